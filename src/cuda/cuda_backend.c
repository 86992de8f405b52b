/* The CUDA backend: opening and closing the device, memory, and the table from op to its code.
 *
 * Convolutions use cuDNN (cuda_conv.c, autotune.c), linear layers cuBLASLt (cuda_linear.c),
 * everything else our own kernels. Every call enqueues its work in the compute stream and returns
 * (stream.c, feed.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/cuda_internal.h"

static const struct dt_cuda_op *const OPS[DT_N_OPS] = {
#define ROW(NAME, name, ...) [DT_OP_##NAME] = &dt_cuda_##name,
    DT_OP_LIST(ROW)
#undef ROW
};

static const struct {
    enum dt_dtype type;
    int capability; /* minimum compute capability */
} PRECISIONS[] = {
    [DT_PRECISION_FP32] = {DT_F32, 0},
    [DT_PRECISION_TF32] = {DT_F32, 80},
    [DT_PRECISION_BF16] = {DT_BF16, 80},
    [DT_PRECISION_FP16] = {DT_F16, 0},
};

/* --- Opening and closing --- */

/* A hung device is not touched: each of these calls would wait for it. */
static void cuda_close(struct dt_device *dev)
{
    if (!dev)
        return;
    if (!dev->hung) {
        dt_cuda_close_nvml(dev);
        dt_cuda_problems_destroy(dev);
        dt_cuda_fusion_tasks_destroy(dev);
        if (dev->blas)
            (void)cublasLtDestroy(dev->blas);
        if (dev->dnn)
            (void)cudnnDestroy(dev->dnn);
        dt_cuda_close_feed(dev);
        if (dev->step)
            (void)cudaFree(dev->step);
        if (dev->pinned)
            (void)cudaFreeHost(dev->pinned);
        dt_cuda_close_streams(dev);
        (void)cudaGetLastError();
    }
    dt_cuda_formats_destroy(dev->formats);
    free(dev);
}

static dt_status find_device(struct dt_device *dev)
{
    int n = 0;
    cudaError_t code = cudaGetDeviceCount(&n);
    if (code != cudaSuccess || n == 0) {
        char why[256];
        (void)cudaGetLastError();
        dt_cuda_explain(why, sizeof why, code == cudaSuccess ? cudaErrorNoDevice : code);
        DT_FAIL(DT_ERR_DEVICE, "%s; or set device.kind to cpu", why);
    }
    dev->index = dev->options.local_rank % n;
    return DT_CUDA("selecting the GPU", cudaSetDevice(dev->index));
}

/* One zeroed block with a part for each; dev->step is its beginning. */
static dt_status open_state(struct dt_device *dev)
{
    enum { STEP, COUNTERS, SCALE, N_PARTS };
    const size_t bytes = N_PARTS * DT_CUDA_ALIGN + DT_MAX_TICKETS * sizeof *dev->tickets;
    char *block = NULL;
    DT_TRY(DT_CUDA("GPU memory for counters", cudaMalloc((void **)&block, bytes)));
    dev->step = (struct dt_step_values *)(block + STEP * DT_CUDA_ALIGN);
    dev->counters = (struct dt_step_counters *)(block + COUNTERS * DT_CUDA_ALIGN);
    dev->scale = (struct dt_scale_state *)(block + SCALE * DT_CUDA_ALIGN);
    dev->tickets = (unsigned *)(block + N_PARTS * DT_CUDA_ALIGN);
    DT_TRY(DT_CUDA("GPU memory for counters", cudaMemsetAsync(block, 0, bytes, dev->compute)));
    DT_TRY(DT_CUDA("pinned host memory", cudaMallocHost(&dev->pinned, DT_CUDA_PINNED_BYTES)));
    memset(dev->pinned, 0, DT_CUDA_PINNED_BYTES);
    /* The first launch: fails here if the build has no code for this GPU. */
    const struct dt_step_values zero = {0};
    cudaError_t code = dt_kernel_set_step(dev->compute, dev->step, &zero, dev->scale);
    if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction) {
        (void)cudaGetLastError();
        DT_FAIL(DT_ERR_DEVICE,
                "this build of dtrain has no code for %s (compute capability %d.%d); build it with "
                "-DCMAKE_CUDA_ARCHITECTURES=%d, or set device.kind to cpu",
                dev->name, dev->capability / 10, dev->capability % 10, dev->capability);
    }
    DT_TRY(DT_CUDA("first launch of a kernel", code));
    const bool scales = dev->options.precision == DT_PRECISION_FP16;
    const double fixed = scales ? dev->options.loss_scale : 1;
    const struct dt_scale_state state = {.clip = 1,
                                         .scale = fixed > 0 ? (float)fixed : DT_SCALE_START,
                                         .dynamic = fixed > 0 ? 0 : 1};
    return DT_CUDA("loss scale", dt_kernel_set_scale(dev->compute, dev->scale, &state));
}

static dt_status cuda_open(struct dt_device **out, const struct dt_device_options *options)
{
    dt_status status = DT_OK;
    struct dt_device *dev = NULL;

    *out = NULL;
    if (options->local_rank < 0)
        DT_FAIL(DT_ERR_INTERNAL, "local rank %d", options->local_rank);
    DT_TRY(DT_NEW(dev, 1));
    dev->options = *options;
    if (options->cache_dir)
        snprintf(dev->cache_dir, sizeof dev->cache_dir, "%s", options->cache_dir);
    dev->options.cache_dir = options->cache_dir ? dev->cache_dir : NULL;
    DT_TRY_OUT(find_device(dev));
    struct cudaDeviceProp properties;
    DT_TRY_OUT(
        DT_CUDA("reading the GPU's properties", cudaGetDeviceProperties(&properties, dev->index)));
    snprintf(dev->name, sizeof dev->name, "%.*s", (int)sizeof dev->name - 1, properties.name);
    dev->capability = 10 * properties.major + properties.minor;
    dt_cuda_format_uuid(dev->identity, sizeof dev->identity, &properties.uuid);
    const enum dt_precision precision = dev->options.precision;
    if (dev->capability < PRECISIONS[precision].capability)
        DT_TRY_OUT(DT_ERROR(
            DT_ERR_CONFIG,
            "train.precision: %s needs a GPU of compute capability 8.0 or later, but %s has "
            "%d.%d; use fp16 or fp32",
            dt_precision_name(precision), dev->name, dev->capability / 10, dev->capability % 10));
    dev->type = PRECISIONS[precision].type;
    DT_TRY_OUT(dt_cuda_open_streams(dev));
    DT_TRY_OUT(open_state(dev));
    DT_TRY_OUT(DT_CUDNN("starting cuDNN", cudnnCreate(&dev->dnn)));
    DT_TRY_OUT(DT_CUDNN("setting cuDNN's stream", cudnnSetStream(dev->dnn, dev->compute)));
    DT_TRY_OUT(DT_CUBLAS("starting cuBLASLt", cublasLtCreate(&dev->blas)));
    DT_TRY_OUT(dt_cuda_sync(dev));
    dt_cuda_open_nvml(dev);
    *out = dev;
    dev = NULL;
out:
    cuda_close(dev);
    return status;
}

/* --- Description --- */

static void cuda_describe(struct dt_device *dev, char *out, size_t bytes)
{
    int runtime = 0;
    size_t free_bytes = 0, total_bytes = 0, dnn = cudnnGetVersion();
    char version[16];
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess ||
        cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess)
        (void)cudaGetLastError(); /* zeros are shown instead */
    dt_cuda_format_version(version, sizeof version, runtime);
    snprintf(out, bytes, "cuda:%d %s, %.1f GiB, CUDA %s, cuDNN %zu.%zu.%zu, %s", dev->index,
             dev->name, (double)total_bytes / (1 << 30), version, dnn / 10000, dnn / 100 % 100,
             dnn % 100, dt_precision_name(dev->options.precision));
}

static void cuda_identity(struct dt_device *dev, char out[DT_IDENTITY_MAX])
{
    memcpy(out, dev->identity, DT_IDENTITY_MAX);
}

static bool cuda_supports(struct dt_device *dev, const struct dt_graph *g,
                          const struct dt_node *node)
{
    (void)dev, (void)g;
    return dt_node_is_foldable(node) && !(node->op == DT_OP_BN && node->activation > DT_RELU);
}

/* --- Memory --- */

static size_t cuda_free_bytes(struct dt_device *dev)
{
    size_t free_bytes = 0, total_bytes = 0;
    (void)dev;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return free_bytes;
}

static dt_status cuda_zero(struct dt_device *dev, void *memory, size_t bytes)
{
    return DT_CUDA("zeroing GPU memory", cudaMemsetAsync(memory, 0, bytes, dev->compute));
}

static void cuda_free(struct dt_device *dev, void *memory, size_t bytes)
{
    (void)bytes;
    if (memory && !dev->hung)
        (void)cudaFree(memory);
}

static dt_status cuda_alloc(struct dt_device *dev, void **out, size_t bytes)
{
    void *block = NULL;
    dev->n_allocs++;
    cudaError_t code = cudaMalloc(&block, bytes ? bytes : 1);
    if (code == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        DT_FAIL(
            DT_ERR_MEMORY,
            "out of GPU memory: requested %zu MB for tensors, %zu MB are free on %s; use a "
            "smaller train.micro_batch_size, or check for other processes on this GPU (nvidia-smi)",
            bytes / 1000000, cuda_free_bytes(dev) / 1000000, dev->name);
    }
    DT_TRY(DT_CUDA("GPU memory for tensors", code));
    dt_status status = cuda_zero(dev, block, bytes);
    if (status != DT_OK)
        cuda_free(dev, block, bytes);
    else
        *out = block;
    return status;
}

static uint64_t cuda_n_allocs(const struct dt_device *dev)
{
    return dev->n_allocs;
}

/* --- Nodes --- */

static void cuda_release(struct dt_device *dev, struct dt_exec *exec)
{
    if (!exec)
        return;
    dt_cuda_leave_fusions(dev, exec);
    if (exec->op->release)
        exec->op->release(dev, exec);
    dt_cuda_formats_release(dev, exec->graph);
    free(exec);
}

static dt_status cuda_prepare(struct dt_device *dev, struct dt_exec **out, const struct dt_graph *g,
                              int node)
{
    struct dt_exec *exec = NULL;
    DT_TRY(DT_NEW(exec, 1));
    dt_status status = dt_cuda_formats_acquire(dev, g);
    if (status != DT_OK) {
        free(exec);
        return status;
    }
    const struct dt_node *own = &g->node[node];
    exec->graph = g;
    exec->node = own;
    exec->op = OPS[own->op];
    for (int i = 0; i < own->n_src; i++)
        if (own->src[i] >= 0)
            DT_TRY_OUT(dt_cuda_format(dev, &exec->src[i], g, own->src[i]));
    for (int i = 0; i < own->n_dst; i++)
        DT_TRY_OUT(dt_cuda_format(dev, &exec->dst[i], g, own->dst[i]));
    if (exec->op->prepare)
        DT_TRY_OUT(exec->op->prepare(dev, exec));
    *out = exec;
    exec = NULL;
out:
    cuda_release(dev, exec);
    return status;
}

static dt_status cuda_run(struct dt_device *dev, struct dt_exec *exec)
{
    return exec->op->run(dev, exec);
}

static dt_status cuda_run_second_half(struct dt_device *dev, struct dt_exec *exec)
{
    return exec->op->run_second_half(dev, exec);
}

const struct dt_backend dt_backend_cuda = {.name = "cuda",
                                           .open = cuda_open,
                                           .close = cuda_close,
                                           .describe = cuda_describe,
                                           .identity = cuda_identity,
                                           .alloc = cuda_alloc,
                                           .free = cuda_free,
                                           .n_allocs = cuda_n_allocs,
                                           .free_bytes = cuda_free_bytes,
                                           .zero = cuda_zero,
                                           .supports = cuda_supports,
                                           .prepare = cuda_prepare,
                                           .propose_fusion = dt_cuda_propose_fusion,
                                           .autotune = dt_cuda_autotune,
                                           .extra_tensors = dt_cuda_extra_tensors,
                                           .choice_of = dt_cuda_choice,
                                           .scratch_bytes = dt_cuda_scratch_bytes,
                                           .dtype = dt_cuda_dtype,
                                           .tensor_bytes = dt_cuda_tensor_bytes,
                                           .bind = dt_cuda_bind,
                                           .set_scalars = dt_cuda_set_scalars,
                                           .run = cuda_run,
                                           .exchange_slots = dt_cuda_exchange_slots,
                                           .run_second_half = cuda_run_second_half,
                                           .release = cuda_release,
                                           .again_bytes = dt_cuda_again_bytes,
                                           .update = dt_cuda_update,
                                           .lerp = dt_cuda_lerp,
                                           .accumulate = dt_cuda_accumulate,
                                           .refresh = dt_cuda_refresh,
                                           .check = dt_cuda_check,
                                           .count = dt_cuda_count,
                                           .divide = dt_cuda_divide,
                                           .clip = dt_cuda_clip,
                                           .end_step = dt_cuda_end_step,
                                           .get_loss_scale = dt_cuda_get_loss_scale,
                                           .set_loss_scale = dt_cuda_set_loss_scale,
                                           .get_updates = dt_cuda_get_updates,
                                           .set_updates = dt_cuda_set_updates,
                                           .upload = dt_cuda_upload,
                                           .read = dt_cuda_read,
                                           .set_tensor = dt_cuda_set_tensor,
                                           .get_tensor = dt_cuda_get_tensor,
                                           .n_feed_blocks = DT_CUDA_FEED_SLOTS,
                                           .open_feed = dt_cuda_open_feed,
                                           .feed = dt_cuda_feed,
                                           .end_feed = dt_cuda_end_feed,
                                           .pin = dt_cuda_pin,
                                           .unpin = dt_cuda_unpin,
                                           .download = dt_cuda_download,
                                           .sync = dt_cuda_sync,
                                           .read_sensors = dt_cuda_read_sensors,
                                           .comm_stream = dt_cuda_comm_stream,
                                           .open_marks = dt_cuda_open_marks,
                                           .fork = dt_cuda_fork,
                                           .mark = dt_cuda_mark,
                                           .join = dt_cuda_join,
                                           .record = dt_cuda_record,
                                           .end_record = dt_cuda_end_record,
                                           .replay = dt_cuda_replay,
                                           .release_recording = dt_cuda_release_recording,
                                           .stamp = dt_cuda_stamp,
                                           .elapsed = dt_cuda_elapsed,
                                           .push_range = dt_cuda_push_range,
                                           .pop_range = dt_cuda_pop_range};
