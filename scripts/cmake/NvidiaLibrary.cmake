# find_nvidia_library(NAME library header so-version version-component...): the body of FindCUDNN
# and FindNCCL. Defines the target NAME::NAME and NAME_VERSION. Searches NAME_ROOT (a CMake or
# environment variable, such as pip's nvidia/<library> folder), the CUDA toolkit and the default
# places. Also accepts a library without the linker name lib<library>.so, as in pip's packages.
include(FindPackageHandleStandardArgs)

macro(find_nvidia_library name library header so_version)
    find_path(${name}_INCLUDE_DIR ${header}
        HINTS ${${name}_ROOT} $ENV{${name}_ROOT} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
    find_library(${name}_LIBRARY NAMES ${library} lib${library}.so.${so_version}
        HINTS ${${name}_ROOT} $ENV{${name}_ROOT} ${CUDAToolkit_LIBRARY_DIR}
        PATH_SUFFIXES lib lib64)
    mark_as_advanced(${name}_INCLUDE_DIR ${name}_LIBRARY)
    if(${name}_INCLUDE_DIR)
        set(_numbers "")
        foreach(_part ${ARGN})
            file(STRINGS ${${name}_INCLUDE_DIR}/${header} _line
                REGEX "^#define ${name}_${_part} +[0-9]+")
            string(REGEX MATCH "[0-9]+" _number "${_line}")
            list(APPEND _numbers ${_number})
        endforeach()
        list(JOIN _numbers "." ${name}_VERSION)
    endif()
    find_package_handle_standard_args(${name} REQUIRED_VARS ${name}_LIBRARY ${name}_INCLUDE_DIR
        VERSION_VAR ${name}_VERSION)
    if(${name}_FOUND AND NOT TARGET ${name}::${name})
        add_library(${name}::${name} UNKNOWN IMPORTED)
        set_target_properties(${name}::${name} PROPERTIES IMPORTED_LOCATION ${${name}_LIBRARY}
            INTERFACE_INCLUDE_DIRECTORIES "${${name}_INCLUDE_DIR};${CUDAToolkit_INCLUDE_DIRS}")
    endif()
endmacro()
