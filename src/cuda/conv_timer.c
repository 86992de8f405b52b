/* Runs plans of convolutions on made-up tensors and reads their time from the device. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cuda/cuda_conv.h"
#include "cuda/cuda_internal.h"

/* Bytes of all tensors that a task writes, or of those that it only reads. */
static size_t bytes_of(const struct dt_conv_task *task, bool written)
{
    size_t sum = 0;
    for (int t = 0; t < DT_DNN_N_TENSORS; t++)
        if (dt_dnn_writes(task, t) == written)
            sum += dt_cuda_align(dt_dnn_tensor_bytes(task, t));
    return sum;
}

/* A piece is made on the host and doubled repeatedly on the device. */
dt_status dt_conv_timer_fill(struct dt_device *dev, char *memory, enum dt_dtype type, size_t bytes)
{
    enum { PIECE = 1 << 20 };
    /* Sign, the two low bits of the exponent and the mantissa are random, in one number or two. */
    const uint32_t mask = type == DT_F32 ? 0x81FFFFFF : type == DT_F16 ? 0x8FFF8FFF : 0x81FF81FF;
    const uint32_t base = type == DT_F32 ? 0x3C000000 : type == DT_F16 ? 0x20002000 : 0x3C003C00;
    cudaStream_t stream = dev->compute;
    uint32_t *piece = NULL, random = 1;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(piece, PIECE / sizeof *piece));
    for (size_t i = 0; i < PIECE / sizeof *piece; i++) {
        random ^= random << 13, random ^= random >> 17, random ^= random << 5;
        piece[i] = (random & mask) | base;
    }
    size_t filled = bytes < PIECE ? bytes : PIECE;
    DT_TRY_OUT(DT_CUDA("filling memory for the timing of convolutions",
                       cudaMemcpyAsync(memory, piece, filled, cudaMemcpyHostToDevice, stream)));
    for (size_t n; filled < bytes; filled += n) {
        n = filled < bytes - filled ? filled : bytes - filled;
        DT_TRY_OUT(
            DT_CUDA("filling memory for the timing of convolutions",
                    cudaMemcpyAsync(memory + filled, memory, n, cudaMemcpyDeviceToDevice, stream)));
    }
    DT_TRY_OUT(dt_cuda_wait_stream(dev, stream, "filling memory"));
out:
    free(piece);
    return status;
}

dt_status dt_conv_timer_open(struct dt_conv_timer *timer, const struct dt_conv_problem *problems)
{
    for (const struct dt_conv_problem *p = problems; p; p = p->next) {
        if (p->exec.plan || p->refused || (timer->plain_only && p->task.extra != DT_CONV_PLAIN))
            continue;
        const size_t input = bytes_of(&p->task, false), output = bytes_of(&p->task, true);
        timer->input_bytes = input > timer->input_bytes ? input : timer->input_bytes;
        timer->output_bytes = output > timer->output_bytes ? output : timer->output_bytes;
    }
    size_t bytes = timer->input_bytes + timer->output_bytes;
    if (bytes == 0)
        return DT_OK;
    DT_TRY(DT_CUDA("creating an event", cudaEventCreate(&timer->begin)));
    DT_TRY(DT_CUDA("creating an event", cudaEventCreate(&timer->end)));
    void *data = NULL;
    char what[96];
    snprintf(what, sizeof(what), "allocating %zu MB of device memory to time convolutions",
             bytes / 1000000);
    DT_TRY(DT_CUDA(what, cudaMalloc(&data, bytes)));
    timer->data = data;
    return dt_conv_timer_fill(timer->dev, timer->data, problems->task.type, bytes);
}

/* If the device hangs, each of these calls would wait for it. */
void dt_conv_timer_close(struct dt_conv_timer *timer)
{
    if (timer->dev->hung)
        return;
    if (timer->begin)
        (void)cudaEventDestroy(timer->begin);
    if (timer->end)
        (void)cudaEventDestroy(timer->end);
    (void)cudaFree(timer->workspace);
    (void)cudaFree(timer->data);
    *timer = (struct dt_conv_timer){.dev = timer->dev, .plain_only = timer->plain_only};
}

dt_status dt_conv_timer_run(struct dt_conv_timer *timer, const struct dt_conv_task *task,
                            const struct dt_dnn_exec *exec, int n, double *seconds)
{
    cudnnBackendDescriptor_t pack = NULL;
    dt_status status = DT_OK;
    if (exec->workspace_bytes > timer->workspace_bytes) {
        void *workspace = NULL;
        (void)cudaFree(timer->workspace);
        timer->workspace = NULL;
        timer->workspace_bytes = 0;
        DT_TRY(DT_CUDA("allocating a workspace", cudaMalloc(&workspace, exec->workspace_bytes)));
        timer->workspace = workspace;
        timer->workspace_bytes = exec->workspace_bytes;
    }
    /* Placement of a task's tensors: results never overwrite inputs of others, so values stay
     * small. */
    char *next[] = {timer->data, timer->data + timer->input_bytes};
    struct dt_dnn_memory memory = {.workspace = timer->workspace};
    for (int t = 0; t < DT_DNN_N_TENSORS; t++) {
        const size_t bytes = dt_dnn_tensor_bytes(task, t);
        char **end = &next[dt_dnn_writes(task, t)];
        memory.at[t] = bytes > 0 ? *end : NULL;
        *end += dt_cuda_align(bytes);
    }
    DT_TRY_OUT(dt_dnn_pack_create(&pack, &memory));
    struct dt_device *dev = timer->dev;
    float ms = 0;
    DT_TRY_OUT(dt_dnn_run(dev->dnn, exec, pack));
    DT_TRY_OUT(DT_CUDA("recording an event", cudaEventRecord(timer->begin, dev->compute)));
    for (int i = 0; i < n; i++)
        DT_TRY_OUT(dt_dnn_run(dev->dnn, exec, pack));
    DT_TRY_OUT(DT_CUDA("recording an event", cudaEventRecord(timer->end, dev->compute)));
    DT_TRY_OUT(dt_cuda_wait(dev, timer->end, "a convolution algorithm under test"));
    DT_TRY_OUT(DT_CUDA("reading a time", cudaEventElapsedTime(&ms, timer->begin, timer->end)));
    *seconds = (double)ms * 1e-3 / n;
out:
    dt_dnn_pack_destroy(pack);
    return status;
}
