# cuDNN: the target CUDNN::CUDNN and CUDNN_VERSION. Looked for in CUDNN_ROOT (a variable or the environment;
# pip's nvidia/cudnn folder is one), the CUDA toolkit and the usual places. A library without the
# linker's name (libcudnn.so), as pip packs it, is taken too.
find_path(CUDNN_INCLUDE_DIR cudnn_version.h
    HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9
    HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)
if(CUDNN_INCLUDE_DIR)
    set(numbers "")
    foreach(part MAJOR MINOR PATCHLEVEL)
        file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h line REGEX "^#define CUDNN_${part} +[0-9]+")
        string(REGEX MATCH "[0-9]+" number "${line}")
        list(APPEND numbers ${number})
    endforeach()
    list(JOIN numbers "." CUDNN_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR
    VERSION_VAR CUDNN_VERSION)
if(CUDNN_FOUND AND NOT TARGET CUDNN::CUDNN)
    add_library(CUDNN::CUDNN UNKNOWN IMPORTED)
    set_target_properties(CUDNN::CUDNN PROPERTIES IMPORTED_LOCATION ${CUDNN_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR};${CUDAToolkit_INCLUDE_DIRS}")
endif()
