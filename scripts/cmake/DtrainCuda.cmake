# The CUDA side of the build: the toolkit, cuDNN and NCCL, the list of GPU architectures, and the
# library of kernels. Sets DTRAIN_HAVE_CUDA. DTRAIN_CUDA=AUTO builds the backend if everything is
# found, ON requires it, OFF disables it. The backend itself is C; nvcc compiles kernels/ only.
set(DTRAIN_KERNELS "" CACHE FILEPATH
    "The libdt_kernels.a of another build folder, to be linked instead of compiled again")
set(DTRAIN_HAVE_CUDA FALSE)
if(NOT DTRAIN_CUDA STREQUAL "OFF")
    if(DTRAIN_KERNELS)
        set(CMAKE_CUDA_COMPILER "not needed")
    else()
        include(CheckLanguage)
        check_language(CUDA)
    endif()
    if(CMAKE_VERSION VERSION_LESS 3.25.2 AND NOT TARGET CUDA::nvToolsExt)
        add_library(CUDA::nvToolsExt INTERFACE IMPORTED) # Debian 12's CMake expects it, CUDA 13 has none
    endif()
    find_package(CUDAToolkit 12 QUIET)
    find_package(CUDNN 9 QUIET)
    find_package(NCCL 2.18 QUIET)
    set(_missing "")
    foreach(_part CMAKE_CUDA_COMPILER CUDAToolkit_FOUND CUDNN_FOUND NCCL_FOUND)
        if(NOT ${_part})
            string(REGEX REPLACE "_FOUND$" "" _name ${_part})
            string(REPLACE "CMAKE_CUDA_COMPILER" "nvcc" _name ${_name})
            list(APPEND _missing ${_name})
        endif()
    endforeach()
    list(JOIN _missing ", " _missing)
    if(NOT _missing)
        set(DTRAIN_HAVE_CUDA TRUE)
    elseif(DTRAIN_CUDA STREQUAL "ON")
        message(FATAL_ERROR "DTRAIN_CUDA=ON, but not found: ${_missing}. The CUDA toolkit >= 12, "
            "cuDNN >= 9 (CUDNN_ROOT) and NCCL >= 2.18 (NCCL_ROOT) are required")
    else()
        message(STATUS "no CUDA backend, not found: ${_missing}")
    endif()
endif()

if(DTRAIN_HAVE_CUDA AND NOT DTRAIN_KERNELS)
    # Machine code for every architecture from Volta on that the toolkit supports, and PTX of the
    # newest for future ones. -DCMAKE_CUDA_ARCHITECTURES=native builds for the GPU of this machine.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
        set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real)
        if(CUDAToolkit_VERSION VERSION_LESS 13)
            list(PREPEND CMAKE_CUDA_ARCHITECTURES 70-real)
        endif()
        if(CUDAToolkit_VERSION VERSION_LESS 12.8)
            list(APPEND CMAKE_CUDA_ARCHITECTURES 90)
        else()
            list(APPEND CMAKE_CUDA_ARCHITECTURES 90-real 100)
        endif()
    endif()
    set(CMAKE_CUDA_STANDARD 17)
    # A program must contain one runtime: the C code links the shared one (CUDA::cudart), and nvcc's
    # objects must register their kernels with the same.
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
    enable_language(CUDA)
    message(STATUS "CUDA backend: toolkit ${CUDAToolkit_VERSION}, cuDNN ${CUDNN_VERSION}, "
        "NCCL ${NCCL_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
endif()

# dt_kernels: kernels/*.cu with plain C launchers.
function(dt_kernels)
    set(folders ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
    if(DTRAIN_KERNELS)
        add_library(dt_kernels STATIC IMPORTED GLOBAL)
        set_target_properties(dt_kernels PROPERTIES IMPORTED_LOCATION ${DTRAIN_KERNELS} SYSTEM OFF)
        target_link_libraries(dt_kernels INTERFACE stdc++) # what nvcc would add
    else()
        file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/*.cu)
        add_library(dt_kernels STATIC ${sources})
        target_include_directories(dt_kernels PRIVATE ${folders} ${RANDOM123_INCLUDE_DIR})
        target_link_libraries(dt_kernels PRIVATE CUDA::cudart)
        target_compile_options(dt_kernels PRIVATE -Xcompiler=-Wall,-Wextra,-fPIE
            -Wno-deprecated-gpu-targets) # old architectures are intended
        if(DTRAIN_WERROR)
            target_compile_options(dt_kernels PRIVATE -Werror=all-warnings)
        endif()
    endif()
    target_include_directories(dt_kernels INTERFACE ${folders})
    target_link_libraries(dt_kernels INTERFACE CUDA::cudart)
endfunction()
