# cuDNN: the target CUDNN::CUDNN and CUDNN_VERSION.
include(NvidiaLibrary)
find_nvidia_library(CUDNN cudnn cudnn_version.h 9 MAJOR MINOR PATCHLEVEL)
