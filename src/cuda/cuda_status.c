/* Errors of the CUDA libraries as dt_status: what was attempted, the library's name for the error
 * and its text. */
#include "cuda/cuda_internal.h"

dt_status dt_cuda_status(const char *what, cudaError_t code, const char *file, int line)
{
    if (code == cudaSuccess)
        return DT_OK;
    /* The runtime remembers the error for the next launch that asks; it is reported here. */
    (void)cudaGetLastError();
    return dt_error_set(code == cudaErrorMemoryAllocation ? DT_ERR_MEMORY : DT_ERR_DEVICE, file,
                        line, "%s: %s: %s", what, cudaGetErrorName(code), cudaGetErrorString(code));
}

dt_status dt_cudnn_status(const char *what, cudnnStatus_t code, const char *file, int line)
{
    char detail[512] = "";
    if (code == CUDNN_STATUS_SUCCESS)
        return DT_OK;
    (void)cudaGetLastError();
    cudnnGetLastErrorString(detail, sizeof detail);
    bool memory = code == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                  code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    return dt_error_set(memory ? DT_ERR_MEMORY : DT_ERR_DEVICE, file, line, "%s: %s%s%s", what,
                        cudnnGetErrorString(code), detail[0] ? ": " : "", detail);
}

dt_status dt_cublas_status(const char *what, cublasStatus_t code, const char *file, int line)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return DT_OK;
    (void)cudaGetLastError();
    return dt_error_set(code == CUBLAS_STATUS_ALLOC_FAILED ? DT_ERR_MEMORY : DT_ERR_DEVICE, file,
                        line, "%s: %s: %s", what, cublasLtGetStatusName(code),
                        cublasLtGetStatusString(code));
}
