/* Runs copies of a fusion's nodes on made-up tensors, apart and together. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cuda/cuda_conv.h"
#include "cuda/fusion.h"

struct dt_fusion_timer {
    struct dt_device *dev;
    struct dt_cuda_fusion way[DT_N_FUSION_WAYS]; /* of copies */
    struct dt_cuda_fusion inner[DT_N_FUSION_WAYS][2 * DT_N_FUSION_KINDS];
    struct dt_exec copy[DT_N_FUSION_WAYS][DT_MAX_FUSED];
    void **address; /* per tensor of the graph */
    char *memory;
    size_t bytes, scratch_bytes;
};

/* Another fusion of an original, if all its members are in `fusion` too, as one of their copies. */
static struct dt_cuda_fusion *copy_inner(struct dt_fusion_timer *timer, int way,
                                         const struct dt_cuda_fusion *fusion, int slot,
                                         const struct dt_cuda_fusion *inner)
{
    int n = 0;
    if (!inner)
        return NULL;
    struct dt_cuda_fusion *copy = &timer->inner[way][slot];
    *copy = *inner;
    for (int k = 0; k < inner->n_nodes; k++)
        for (int i = 0; i < fusion->n_nodes; i++)
            if (fusion->exec[i] == inner->exec[k])
                copy->exec[n++] = &timer->copy[way][i];
    return n == inner->n_nodes ? copy : NULL;
}

/* Gives each tensor of the fusion an address from `memory` on; returns the bytes of all. */
static size_t place_tensors(struct dt_fusion_timer *timer, uintptr_t memory)
{
    const struct dt_cuda_fusion *fusion = &timer->way[0];
    uintptr_t next = memory;
    for (int i = 0; i < fusion->n_nodes; i++) {
        const struct dt_exec *exec = fusion->exec[i];
        for (int k = 0; k < exec->node->n_src + exec->node->n_dst; k++) {
            const int d = k - exec->node->n_src;
            const struct dt_cuda_format *f = d < 0 ? exec->src[k] : exec->dst[d];
            if (!f)
                continue;
            timer->address[d < 0 ? exec->node->src[k] : exec->node->dst[d]] = (void *)next;
            next +=
                dt_cuda_align(f->elements * dt_dtype_bytes(f->type)) +
                dt_cuda_align(2 * (size_t)f->cp * sizeof(float)); /* for what is there instead */
        }
    }
    return next - memory;
}

static dt_status bind_copies(struct dt_fusion_timer *timer)
{
    for (int way = 0; way < DT_N_FUSION_WAYS; way++)
        for (int i = 0; i < timer->way[way].n_nodes; i++)
            DT_TRY(dt_cuda_bind(timer->dev, timer->way[way].exec[i], timer->address,
                                timer->memory + timer->bytes));
    return DT_OK;
}

dt_status dt_fusion_timer_open(struct dt_fusion_timer **out, struct dt_device *dev,
                               const struct dt_cuda_fusion *fusion)
{
    struct dt_fusion_timer *timer = NULL;
    dt_status status = DT_OK;
    *out = NULL;
    DT_TRY(DT_NEW(timer, 1));
    timer->dev = dev;
    DT_TRY_OUT(DT_NEW(timer->address, (size_t)fusion->exec[0]->graph->n_tensors));
    for (int way = 0; way < DT_N_FUSION_WAYS; way++) {
        timer->way[way] = *fusion;
        for (int i = 0; i < fusion->n_nodes; i++) {
            struct dt_exec *copy = timer->way[way].exec[i] = &timer->copy[way][i];
            *copy = *fusion->exec[i];
            copy->own = NULL;
            for (int slot = 0; slot < (int)DT_COUNT(copy->fusion); slot++)
                copy->fusion[slot] =
                    copy_inner(timer, way, fusion, slot, fusion->exec[i]->fusion[slot]);
            if (way == DT_FUSION_TOGETHER)
                copy->fusion[dt_fusion_slot(fusion->kind, i)] = &timer->way[way];
            const size_t scratch = dt_cuda_scratch_bytes(timer->dev, copy);
            timer->scratch_bytes = scratch > timer->scratch_bytes ? scratch : timer->scratch_bytes;
        }
    }
    const struct dt_exec *exec = timer->way[0].exec[0];
    void *memory = NULL;
    char what[96];
    timer->bytes = place_tensors(timer, 0);
    const size_t bytes = timer->bytes + timer->scratch_bytes;
    snprintf(what, sizeof what, "allocating %zu MB of device memory to time nodes",
             bytes / 1000000);
    DT_TRY_OUT(DT_CUDA(what, cudaMalloc(&memory, bytes)));
    timer->memory = memory;
    place_tensors(timer, (uintptr_t)memory);
    DT_TRY_OUT(dt_conv_timer_fill(timer->dev, timer->memory, exec->src[0]->type, bytes));
    DT_TRY_OUT(bind_copies(timer));
    *out = timer;
    timer = NULL;
out:
    dt_fusion_timer_close(timer);
    return status;
}

static dt_status run_nodes(struct dt_fusion_timer *timer, const struct dt_cuda_fusion *fusion,
                           int n)
{
    for (int run = 0; run < n; run++)
        for (int i = 0; i < fusion->n_nodes; i++)
            DT_TRY(fusion->exec[i]->op->run(timer->dev, fusion->exec[i]));
    return DT_OK;
}

dt_status dt_fusion_timer_run(void *timer, int way, int n, double *seconds)
{
    struct dt_fusion_timer *t = timer;
    DT_TRY(run_nodes(t, &t->way[way], 1)); /* the others are queued meanwhile */
    DT_TRY(dt_cuda_stamp(t->dev, 0, false));
    DT_TRY(run_nodes(t, &t->way[way], n));
    DT_TRY(dt_cuda_stamp(t->dev, 1, false));
    DT_TRY(dt_cuda_elapsed(t->dev, 0, 1, seconds));
    *seconds /= n;
    return DT_OK;
}

/* If the device hangs, freeing would wait for it. */
void dt_fusion_timer_close(struct dt_fusion_timer *timer)
{
    if (!timer)
        return;
    for (int way = 0; way < DT_N_FUSION_WAYS && !timer->dev->hung; way++)
        for (int i = 0; i < timer->way[way].n_nodes; i++)
            if (timer->copy[way][i].op->release)
                timer->copy[way][i].op->release(timer->dev, &timer->copy[way][i]);
    if (!timer->dev->hung)
        (void)cudaFree(timer->memory);
    free(timer->address);
    free(timer);
}
