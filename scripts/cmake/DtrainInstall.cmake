# What `cmake --install` puts into a prefix, which may be moved afterwards, and the packages of cpack:
# DEB, and with -DDTRAIN_BUNDLE=ON a TGZ that has its libraries but MPI's and the C library.
include(GNUInstallDirs)
option(DTRAIN_BUNDLE "Install the libraries too, but not MPI nor what every Linux has" OFF)
set(data ${CMAKE_INSTALL_DATADIR}/dtrain)

# The manual pages are the program's own words. Where there is no awk, they are not made.
find_program(DTRAIN_AWK awk)
set(man ${CMAKE_COMMAND} -E env LC_ALL=C ${DTRAIN_AWK} -f ${CMAKE_SOURCE_DIR}/scripts/cmake/man.awk)
if(DTRAIN_AWK AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
    add_custom_command(TARGET dtrain POST_BUILD
        COMMAND dtrain --version --json > version.txt
        COMMAND dtrain help all > help.txt COMMAND ${man} version.txt help.txt > dtrain.1
        COMMAND dtrain config help > help.txt COMMAND ${man} version.txt help.txt > dtrain-config.5)
    install(FILES ${CMAKE_BINARY_DIR}/dtrain.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${CMAKE_BINARY_DIR}/dtrain-config.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
endif()

install(TARGETS dtrain RUNTIME_DEPENDENCY_SET libraries)
install(DIRECTORY configs/ DESTINATION ${data}/configs FILES_MATCHING PATTERN "*.json")
install(PROGRAMS scripts/compare_modes.sh scripts/ilsvrc_labels.py scripts/make_job.py scripts/mlperf_log.py
    scripts/quickstart.sh scripts/scaling.sh scripts/scaling_report.py scripts/to_coco.py scripts/to_safetensors.py DESTINATION ${data}/scripts)
install(FILES scripts/compare_modes.py scripts/mpi_env.sh DESTINATION ${data}/scripts)
install(FILES src/page/report.css src/page/report.js DESTINATION ${data}/page)
foreach(template slurm/dtrain.sbatch pbs/dtrain.pbs lsf/dtrain.lsf)
    get_filename_component(folder ${template} DIRECTORY)
    install(PROGRAMS scripts/${template} DESTINATION ${data}/scripts/${folder})
endforeach()
install(FILES scripts/k8s/mpijob.yaml DESTINATION ${data}/scripts/k8s)
install(FILES scripts/completion/dtrain.bash RENAME dtrain
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES scripts/completion/_dtrain DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
include(DtrainSpdx)
install(FILES ${CMAKE_BINARY_DIR}/dtrain.spdx LICENSE scripts/packaging/changelog.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(DTRAIN_BUNDLE)
    # Not glibc, the compiler's runtime, and what comes with MPI: a second copy of these would not do.
    # RPATH, as RUNPATH would not lead the libraries to each other.
    set_target_properties(dtrain PROPERTIES INSTALL_RPATH $ORIGIN/../lib/dtrain)
    target_link_options(dtrain PRIVATE LINKER:--disable-new-dtags)
    install(RUNTIME_DEPENDENCY_SET libraries DESTINATION lib/dtrain
        PRE_EXCLUDE_REGEXES "^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\\+\\+))\\.so"
            "^lib(mpi|open|pmix|prrte|event|mpich|fabric|ucx|ucs|ucp|uct)")
else()
    # Libraries in the prefix of Spack, conda or CUDA are found there; a DEB has no such path.
    set_target_properties(dtrain PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
endif()

set(CPACK_PACKAGE_NAME dtrain)
if(DTRAIN_HAVE_CUDA)
    set(CPACK_PACKAGE_NAME dtrain-cuda)
    set(CPACK_DEBIAN_PACKAGE_CONFLICTS dtrain)
    set(CPACK_DEBIAN_PACKAGE_PROVIDES dtrain)
endif()
set(CPACK_PACKAGE_VERSION ${DTRAIN_VERSION})
set(CPACK_PACKAGE_VENDOR "the dtrain developers")
set(CPACK_PACKAGE_CONTACT "dtrain developers <dtrain@example.org>" CACHE STRING "Who publishes the packages")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trainer of convolutional networks on many CPUs or GPUs")
set(CPACK_PACKAGE_DESCRIPTION "dtrain trains classifiers and detectors data-parallel with synchronous
SGD, started with mpirun. It computes with oneDNN on CPUs or cuDNN on
NVIDIA GPUs. A run that was killed resumes at the exact image; weights
are PyTorch's, in safetensors files.")
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin, python3")
if(DTRAIN_HAVE_CUDA) # shlibdeps finds NVIDIA's packages only where they are installed
    string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" _ ${CUDAToolkit_VERSION})
    set(cuda ${CMAKE_MATCH_1}-${CMAKE_MATCH_2})
    string(APPEND CPACK_DEBIAN_PACKAGE_RECOMMENDS
        ", cuda-cudart-${cuda}, libcublas-${cuda}, libcudnn9-cuda-${CMAKE_MATCH_1}, libnccl2")
endif()
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3-torch")
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_BINARY_DIR}/debian.cmake)
string(TIMESTAMP DTRAIN_DATE_RFC "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(scripts/packaging/debian.cmake.in debian.cmake @ONLY)
if(DTRAIN_BUNDLE)
    set(CPACK_GENERATOR TGZ)
endif()
include(CPack)
