# A build id for every program; in release builds also hardening flags, if compiler and linker
# support them. Sanitizer and debug builds omit them, as the two interfere.
include(CheckLinkerFlag)
include(CheckPIESupported)

target_link_options(dt_options INTERFACE LINKER:--build-id)
check_pie_supported(LANGUAGES C)

if(CMAKE_BUILD_TYPE MATCHES "^(Release|RelWithDebInfo)$" AND NOT DTRAIN_SANITIZE)
    foreach(flag -fPIE -fstack-protector-strong -fstack-clash-protection -fcf-protection=full
            -fstrict-flex-arrays=3 -ftrivial-auto-var-init=zero)
        string(MAKE_C_IDENTIFIER "HAVE${flag}" have)
        check_c_compiler_flag(${flag} ${have})
        if(${have})
            target_compile_options(dt_options INTERFACE $<$<COMPILE_LANGUAGE:C>:${flag}>)
        endif()
    endforeach()
    # Some distributions set a lower level by default.
    target_compile_options(dt_options INTERFACE
        "$<$<COMPILE_LANGUAGE:C>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
    foreach(flag relro now noexecstack)
        check_linker_flag(C LINKER:-z,${flag} HAVE_LINK_${flag})
        if(HAVE_LINK_${flag})
            target_link_options(dt_options INTERFACE LINKER:-z,${flag})
        endif()
    endforeach()
endif()
