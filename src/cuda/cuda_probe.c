/* Lists the GPUs or explains why there are none, in terms for users of a cluster rather than
 * CUDA's. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda/cuda_internal.h"
#include "dtrain/gpu.h"

void dt_cuda_format_version(char *out, size_t bytes, int version)
{
    snprintf(out, bytes, "%d.%d", version / 1000, version / 10 % 100);
}

void dt_cuda_format_uuid(char *out, size_t bytes, const cudaUUID_t *uuid)
{
    for (size_t i = 0; i < sizeof uuid->bytes && 2 * i + 2 < bytes; i++)
        snprintf(out + 2 * i, bytes - 2 * i, "%02x", (unsigned)(unsigned char)uuid->bytes[i]);
}

static void explain_driver(char *out, size_t bytes)
{
    int driver = 0, runtime = 0;
    char newest[16], needed[16];
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        snprintf(
            out, bytes,
            "no NVIDIA driver was found on this machine: on a cluster, run on a GPU node (login "
            "nodes often have none); in a container, start it with the GPUs (docker --gpus "
            "all, apptainer --nv)");
        return;
    }
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess)
        runtime = CUDART_VERSION;
    dt_cuda_format_version(newest, sizeof newest, driver);
    dt_cuda_format_version(needed, sizeof needed, runtime);
    snprintf(out, bytes,
             "the NVIDIA driver is too old: it runs CUDA up to %s, this build of dtrain needs %s; "
             "update the driver, or build dtrain with an older CUDA toolkit",
             newest, needed);
}

void dt_cuda_explain(char *out, size_t bytes, cudaError_t code)
{
    if (code == cudaErrorInsufficientDriver || code == cudaErrorStubLibrary)
        explain_driver(out, bytes);
    else if (code == cudaErrorNoDevice || code == cudaErrorInvalidDevice) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        if (visible && !visible[0])
            snprintf(
                out, bytes,
                "CUDA_VISIBLE_DEVICES is empty, which hides all GPUs: unset it, or ask the batch "
                "system for GPUs (Slurm: --gpus-per-node)");
        else if (visible)
            snprintf(
                out, bytes,
                "CUDA_VISIBLE_DEVICES=%.40s names no GPU of this machine: unset it, or ask the "
                "batch system for GPUs (Slurm: --gpus-per-node)",
                visible);
        else
            snprintf(
                out, bytes,
                "there is an NVIDIA driver but no GPU that this process may use: ask the batch "
                "system for GPUs (Slurm: --gpus-per-node)");
    } else
        snprintf(out, bytes, "the GPUs cannot be used: %s: %.160s", cudaGetErrorName(code),
                 cudaGetErrorString(code));
}

void dt_gpu_libraries(char *out, size_t bytes)
{
    const size_t dnn = cudnnGetVersion(), blas = cublasLtGetVersion();
    char cuda[32] = "";
    int runtime = 0;
    if (cudaRuntimeGetVersion(&runtime) == cudaSuccess)
        dt_cuda_format_version(cuda, sizeof cuda, runtime);
    snprintf(out, bytes, "%s, cuDNN %zu.%zu.%zu, cuBLAS %zu.%zu.%zu", cuda, dnn / 10000,
             dnn / 100 % 100, dnn % 100, blas / 10000, blas / 100 % 100, blas % 100);
}

void dt_gpu_probe(struct dt_gpu_report *out)
{
    *out = (struct dt_gpu_report){0};
    int driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0)
        dt_cuda_format_version(out->driver, sizeof out->driver, driver);
    cudaError_t code = cudaGetDeviceCount(&out->n_devices);
    if (code == cudaSuccess && out->n_devices == 0)
        code = cudaErrorNoDevice;
    for (int i = 0; code == cudaSuccess && i < out->n_devices && i < DT_GPU_MAX; i++) {
        struct cudaDeviceProp properties;
        code = cudaGetDeviceProperties(&properties, i);
        if (code != cudaSuccess)
            break;
        snprintf(out->device[i].name, sizeof out->device[i].name, "%.63s", properties.name);
        out->device[i].capability = 10 * properties.major + properties.minor;
        out->device[i].memory_bytes = properties.totalGlobalMem;
        dt_cuda_format_uuid(out->device[i].identity, DT_IDENTITY_MAX, &properties.uuid);
        snprintf(out->device[i].bus_id, sizeof out->device[i].bus_id, "%04x:%02x:%02x.0",
                 (unsigned)properties.pciDomainID, (unsigned)properties.pciBusID,
                 (unsigned)properties.pciDeviceID);
    }
    if (code != cudaSuccess) {
        out->n_devices = 0;
        dt_cuda_explain(out->problem, sizeof out->problem, code);
    }
    (void)cudaGetLastError();
}
