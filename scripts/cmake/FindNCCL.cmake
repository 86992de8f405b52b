# NCCL: the target NCCL::NCCL and NCCL_VERSION.
include(NvidiaLibrary)
find_nvidia_library(NCCL nccl nccl.h 2 MAJOR MINOR PATCH)
