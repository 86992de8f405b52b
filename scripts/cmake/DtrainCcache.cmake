# Where ccache is installed, what was compiled before is not compiled again, in whichever folder it lies.
# Sets DTRAIN_PATH_IN_FILES: how the names of source files begin.
find_program(DTRAIN_CCACHE ccache DOC "Keeps compiled files for the next build; empty: none is used")
set(DTRAIN_PATH_IN_FILES ${CMAKE_SOURCE_DIR}/)
if(DTRAIN_CCACHE)
    set(DTRAIN_PATH_IN_FILES ../)
    file(STRINGS /proc/cpuinfo flags REGEX "^flags|^Features" LIMIT_COUNT 1)
    file(WRITE ${CMAKE_BINARY_DIR}/cpu_flags "${flags}") # what -march=native means
    foreach(language C CXX CUDA)
        set(CMAKE_${language}_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
            CCACHE_NOHASHDIR=1 CCACHE_EXTRAFILES=${CMAKE_BINARY_DIR}/cpu_flags ${DTRAIN_CCACHE})
    endforeach()
endif()
