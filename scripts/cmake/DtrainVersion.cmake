# DTRAIN_VERSION: of a tag such as v1.2.3 its version, of another commit the project's with the
# commit's date and hash (0.1.0+20261126.gcac7205), without git the project's. DTRAIN_EPOCH: seconds
# from 1970 to the commit, or SOURCE_DATE_EPOCH, which date what a package holds.
set(DTRAIN_VERSION ${PROJECT_VERSION})
set(DTRAIN_EPOCH 0)
find_package(Git QUIET)
if(Git_FOUND AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
    execute_process(COMMAND ${GIT_EXECUTABLE} log -1 --date=format:%Y%m%d "--format=%ct;%cd.g%h"
        WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    execute_process(COMMAND ${GIT_EXECUTABLE} describe --exact-match --match "v[0-9]*"
        WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE tag ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(tag)
        string(SUBSTRING ${tag} 1 -1 DTRAIN_VERSION)
    elseif(commit)
        list(GET commit 1 hash)
        string(APPEND DTRAIN_VERSION "+${hash}")
    endif()
    if(commit)
        list(GET commit 0 DTRAIN_EPOCH)
    endif()
    # Only a release follows each commit: the other builds would link all tests again.
    if(CMAKE_BUILD_TYPE STREQUAL "Release" AND EXISTS ${CMAKE_SOURCE_DIR}/.git/logs/HEAD)
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/.git/logs/HEAD)
    endif()
endif()
if(DEFINED ENV{SOURCE_DATE_EPOCH})
    set(DTRAIN_EPOCH $ENV{SOURCE_DATE_EPOCH})
endif()
set(ENV{SOURCE_DATE_EPOCH} ${DTRAIN_EPOCH})
string(TIMESTAMP DTRAIN_DATE %Y-%m-%d UTC)
