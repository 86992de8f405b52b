# Finds oneDNN by header and library: target OneDNN::OneDNN, variable OneDNN_VERSION.
# Debian's dnnl-config.cmake requires OpenCL's development files, which dtrain does not need.
find_path(OneDNN_INCLUDE_DIR dnnl.h)
find_library(OneDNN_LIBRARY dnnl)
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY)

if(OneDNN_INCLUDE_DIR)
    find_file(version_header NAMES dnnl_version.h oneapi/dnnl/dnnl_version.h
        PATHS ${OneDNN_INCLUDE_DIR} NO_CACHE)
    foreach(file ${version_header} ${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h)
        if(EXISTS ${file})
            file(STRINGS ${file} lines REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
            if(lines)
                string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
                list(JOIN numbers "." OneDNN_VERSION)
            endif()
        endif()
    endforeach()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR
    VERSION_VAR OneDNN_VERSION)

if(OneDNN_FOUND AND NOT TARGET OneDNN::OneDNN)
    add_library(OneDNN::OneDNN UNKNOWN IMPORTED)
    set_target_properties(OneDNN::OneDNN PROPERTIES IMPORTED_LOCATION ${OneDNN_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${OneDNN_INCLUDE_DIR})
endif()
