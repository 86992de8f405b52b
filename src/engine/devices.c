/* Choice of the device of a run. device.kind cuda and cpu are binding; auto uses GPUs if every rank
 * has one and the CPU if none has. */
#include "engine/devices.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#ifdef DTRAIN_HAVE_CUDA
static const struct dt_backend *const cuda = &dt_backend_cuda;

const struct dt_gpu_report *dt_devices_gpus(void)
{
    static struct dt_gpu_report kept;
    static bool is_known;
    if (!is_known)
        dt_gpu_probe(&kept);
    is_known = true;
    return &kept;
}

void dt_devices_gpus_free(struct dt_gpu_report *out)
{
    *out = *dt_devices_gpus();
    dt_gpu_probe_memory(out);
}

void dt_devices_libraries(char *out, size_t bytes)
{
    dt_gpu_libraries(out, bytes);
}
#else
static const struct dt_backend *const cuda = NULL;

const struct dt_gpu_report *dt_devices_gpus(void)
{
    static const struct dt_gpu_report none = {.problem = "this build has no CUDA backend"};
    return &none;
}

void dt_devices_gpus_free(struct dt_gpu_report *out)
{
    *out = *dt_devices_gpus();
}

void dt_devices_libraries(char *out, size_t bytes)
{
    snprintf(out, bytes, "none");
}
#endif

bool dt_devices_has_cuda(void)
{
    return cuda != NULL;
}

/* --- Checks that the configuration suits the device --- */

static dt_status check_plane(const struct dt_device_choice *choice, const struct dt_config *config,
                             int n_ranks)
{
    if (config->comm.backend == DT_COMM_NCCL && !dt_comm_has_plane(DT_PLANE_NCCL))
        DT_FAIL(DT_ERR_DEVICE,
                "comm.backend: this build has no NCCL backend; set comm.backend to mpi");
    if (config->comm.backend == DT_COMM_NCCL && choice->backend != cuda)
        DT_FAIL(DT_ERR_CONFIG,
                "comm.backend: nccl sums in GPU memory, but the network runs on the cpu%s%s; set "
                "comm.backend to auto or mpi",
                choice->fallback ? " because there is no GPU: " : "",
                choice->fallback ? choice->fallback : "");
    if (config->comm.backend == DT_COMM_MPI && choice->backend == cuda && n_ranks > 1)
        DT_FAIL(DT_ERR_CONFIG,
                "comm.backend: mpi sums in host memory, but the network runs on GPUs; set "
                "comm.backend to auto or nccl, or device.kind to cpu");
    return DT_OK;
}

dt_status dt_devices_check_training(const struct dt_backend *backend,
                                    const struct dt_config *config, int n_ranks)
{
    const bool is_own_way = !dt_config_sums(config);
    if (is_own_way && backend == cuda)
        DT_FAIL(DT_ERR_CONFIG,
                "comm.mode other than allreduce and train.sync_every above 1 are for CPUs, but the "
                "network runs on GPUs; set device.kind to cpu");
    if (is_own_way && n_ranks < 2)
        DT_FAIL(DT_ERR_CONFIG,
                "comm.mode other than allreduce and train.sync_every above 1 need at least 2 ranks "
                "(mpirun -np 2)");
    if (config->comm.algorithm > DT_ALGORITHM_LIBRARY && backend == cuda)
        DT_FAIL(DT_ERR_CONFIG,
                "comm.algorithm hierarchical, halving and tree are for CPUs, but the "
                "network runs on GPUs; set comm.algorithm to auto");
    const enum dt_grad_dtype type = config->comm.grad_dtype;
    const enum dt_precision same = type == DT_GRAD_FP16 ? DT_PRECISION_FP16 : DT_PRECISION_BF16;
    const bool is_16_bit = type == DT_GRAD_FP16 || type == DT_GRAD_BF16;
    if (is_16_bit && backend == cuda && config->train.precision != same)
        DT_FAIL(DT_ERR_CONFIG,
                "comm.grad_dtype: GPUs send gradients in a 16-bit type only if they compute in it; "
                "set comm.grad_dtype to auto, or train.precision to %s",
                dt_precision_name(same));
    if (is_16_bit && backend != cuda && config->comm.algorithm == DT_ALGORITHM_LIBRARY)
        DT_FAIL(DT_ERR_CONFIG, "comm.grad_dtype: on CPUs MPI's own sums, comm.algorithm library, "
                               "send no 16 bits; set one of the two to its default");
    return DT_OK;
}

/* Measured in training ResNet-50 on an H100: fp16 is a ninth faster than bf16. */
static enum dt_precision choose_precision(const struct dt_config *config, int capability)
{
    enum { MIN_FOR_FP16 = 70 };
    if (config->train.precision != DT_PRECISION_AUTO)
        return config->train.precision;
    return capability < MIN_FOR_FP16                 ? DT_PRECISION_FP32
           : config->comm.grad_dtype == DT_GRAD_BF16 ? DT_PRECISION_BF16
                                                     : DT_PRECISION_FP16;
}

/* `capability`: the least of the GPUs, 0 = there is none. */
static dt_status complete(struct dt_device_choice *choice, const struct dt_config *config,
                          int n_ranks, int capability)
{
    const bool automatic = config->device.kind == DT_DEVICE_AUTO, on_gpu = capability > 0;
    *choice = (struct dt_device_choice){
        .backend = on_gpu ? cuda : &dt_backend_cpu,
        .plane = on_gpu ? DT_PLANE_NCCL : DT_PLANE_MPI,
        .precision = choose_precision(config, capability),
        .fallback = cuda && automatic && !on_gpu ? dt_devices_gpus()->problem : NULL,
    };
    DT_TRY(check_plane(choice, config, n_ranks));
    if (!on_gpu && choice->precision != DT_PRECISION_FP32 && choice->precision != DT_PRECISION_BF16)
        DT_FAIL(DT_ERR_CONFIG,
                "train.precision: %s is not supported on the cpu device; set train.precision to "
                "auto, fp32 or bf16%s%s%s",
                dt_precision_name(choice->precision),
                choice->fallback ? " (the GPU is not used: " : "",
                choice->fallback ? choice->fallback : "", choice->fallback ? ")" : "");
    return DT_OK;
}

/* --- Choosing --- */

/* The least compute capability of this process's GPUs, 0 = it uses none; DT_ERR_DEVICE if
 * device.kind requires one. */
static dt_status look(const struct dt_config *config, int *capability)
{
    *capability = 0;
    if (config->device.kind != DT_DEVICE_CPU && cuda && !dt_devices_gpus()->problem[0])
        for (int i = 0; i < dt_devices_gpus()->n_devices && i < DT_GPU_MAX; i++)
            if (i == 0 || dt_devices_gpus()->device[i].capability < *capability)
                *capability = dt_devices_gpus()->device[i].capability;
    if (config->device.kind != DT_DEVICE_CUDA || *capability > 0)
        return DT_OK;
    if (!cuda)
        DT_FAIL(DT_ERR_DEVICE,
                "device.kind: this build has no CUDA backend; set device.kind to cpu");
    DT_FAIL(DT_ERR_DEVICE, "device.kind: cuda is not possible: %s; set device.kind to cpu or auto",
            dt_devices_gpus()->problem);
}

dt_status dt_devices_choose(struct dt_device_choice *out, const struct dt_config *config,
                            int n_ranks)
{
    int capability;
    DT_TRY(look(config, &capability));
    return complete(out, config, n_ranks, capability);
}

dt_status dt_devices_agree(struct dt_device_choice *out, struct dt_comm *comm,
                           const struct dt_config *config)
{
    int own;
    dt_status status = DT_OK;
    DT_TRY(dt_comm_agree(comm, look(config, &own)));
    int64_t n_without = own == 0;
    double min = -own;
    DT_TRY(dt_comm_sum_i64(comm, &n_without, 1));
    DT_TRY(dt_comm_max_f64(comm, &min, 1));
    if (own == 0 && n_without < dt_comm_size(comm)) /* device.kind auto; the first is named */
        status = DT_ERROR(
            DT_ERR_DISAGREE,
            "device.kind auto: %lld of %d ranks have no GPU, the first is rank %d on "
            "host %s (%s); start ranks only where there is a GPU, or set device.kind to cpu",
            (long long)n_without, dt_comm_size(comm), dt_comm_rank(comm),
            dt_comm_host(comm, dt_comm_rank(comm)), dt_devices_gpus()->problem);
    DT_TRY(dt_comm_agree(comm, status));
    return dt_comm_agree(comm, complete(out, config, dt_comm_size(comm), (int)-min));
}

/* --- After opening --- */

/* Index in the report of the GPU with that identity, -1 = not found. */
static int find_gpu(const char *identity)
{
    const struct dt_gpu_report *gpus = dt_devices_gpus();
    for (int i = 0; i < gpus->n_devices && i < DT_GPU_MAX; i++)
        if (strcmp(gpus->device[i].identity, identity) == 0)
            return i;
    return -1;
}

const char *dt_devices_bus_id(const struct dt_backend *backend, struct dt_device *device)
{
    char identity[DT_IDENTITY_MAX] = "";
    backend->identity(device, identity);
    int i = find_gpu(identity);
    return i < 0 ? "" : dt_devices_gpus()->device[i].bus_id;
}

dt_status dt_devices_check_shared(struct dt_comm *comm, const struct dt_backend *backend,
                                  struct dt_device *device, const struct dt_config *config)
{
    char identity[DT_IDENTITY_MAX] = "";
    int peer, rank = dt_comm_rank(comm);
    backend->identity(device, identity);
    DT_TRY(dt_comm_find_same(comm, identity, sizeof identity, &peer));
    if (peer < 0 || config->device.allow_shared_gpu)
        return DT_OK;
    const int i = find_gpu(identity);
    DT_FAIL(DT_ERR_CONFIG,
            "ranks %d and %d on host %s both use GPU %s: start at most one rank per GPU (mpirun "
            "-npernode N, or give each its own CUDA_VISIBLE_DEVICES)",
            rank < peer ? rank : peer, rank < peer ? peer : rank, dt_comm_host(comm, peer),
            i < 0 ? identity : dt_devices_gpus()->device[i].name);
}

struct dt_device_options dt_devices_options(const struct dt_config *config, int threads)
{
    return (struct dt_device_options){
        .threads = threads,
        .deterministic = config->train.deterministic,
        .seed = config->train.seed,
        .winograd = config->device.winograd,
        .layout = config->device.layout,
        .precision = config->train.precision,
        .loss_scale = config->train.loss_scale,
        .timeout_s = config->device.timeout_s,
        .conv_candidate = config->device.conv_candidate,
        .fusion = config->device.fusion,
    };
}

void dt_devices_cache_dir(char *out, const struct dt_config *config)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    dt_status status = DT_OK;
    out[0] = '\0';
    if (config->device.cache_dir[0])
        status = dt_file_path(out, "%s", config->device.cache_dir);
    else if (cache && cache[0] == '/') /* the XDG standard says to ignore a relative one */
        status = dt_file_path(out, "%s/dtrain", cache);
    else if (home && home[0] == '/')
        status = dt_file_path(out, "%s/.cache/dtrain", home);
    if (status != DT_OK)
        out[0] = '\0';
}
