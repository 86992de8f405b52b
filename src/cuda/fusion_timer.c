/* Runs copies of a fusion's nodes on made-up tensors, apart and together. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cuda/cuda_conv.h"
#include "cuda/fusion.h"

struct dt_fusion_timer {
    struct dt_device *dev;
    struct dt_cuda_fusion variant[DT_N_FUSION_VARIANTS]; /* of copies */
    struct dt_cuda_fusion inner[DT_N_FUSION_VARIANTS][2 * DT_N_FUSION_KINDS];
    struct dt_exec copy[DT_N_FUSION_VARIANTS][DT_MAX_FUSED];
    void **address; /* per tensor of the graph */
    char *memory;
    size_t bytes, scratch_bytes;
};

/* Another fusion of an original, if all its members are in `fusion` too, as one of their copies. */
static struct dt_cuda_fusion *copy_inner(struct dt_fusion_timer *timer, int variant,
                                         const struct dt_cuda_fusion *fusion, int slot,
                                         const struct dt_cuda_fusion *inner)
{
    int n = 0;
    if (!inner)
        return NULL;
    struct dt_cuda_fusion *copy = &timer->inner[variant][slot];
    *copy = *inner;
    for (int k = 0; k < inner->n_nodes; k++)
        for (int i = 0; i < fusion->n_nodes; i++)
            if (fusion->exec[i] == inner->exec[k])
                copy->exec[n++] = &timer->copy[variant][i];
    return n == inner->n_nodes ? copy : NULL;
}

/* Gives each tensor of the fusion an address from `memory` on; returns the bytes of all. */
static size_t place_tensors(struct dt_fusion_timer *timer, uintptr_t memory)
{
    const struct dt_cuda_fusion *fusion = &timer->variant[0];
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
    for (int variant = 0; variant < DT_N_FUSION_VARIANTS; variant++)
        for (int i = 0; i < timer->variant[variant].n_nodes; i++)
            DT_TRY(dt_cuda_bind(timer->dev, timer->variant[variant].exec[i], timer->address,
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
    for (int variant = 0; variant < DT_N_FUSION_VARIANTS; variant++) {
        timer->variant[variant] = *fusion;
        for (int i = 0; i < fusion->n_nodes; i++) {
            struct dt_exec *copy = timer->variant[variant].exec[i] = &timer->copy[variant][i];
            *copy = *fusion->exec[i];
            copy->own = NULL;
            for (int slot = 0; slot < (int)DT_COUNT(copy->fusion); slot++)
                copy->fusion[slot] =
                    copy_inner(timer, variant, fusion, slot, fusion->exec[i]->fusion[slot]);
            if (variant == DT_FUSION_FUSED)
                copy->fusion[dt_fusion_slot(fusion->kind, i)] = &timer->variant[variant];
            const size_t scratch = dt_cuda_scratch_bytes(timer->dev, copy);
            timer->scratch_bytes = scratch > timer->scratch_bytes ? scratch : timer->scratch_bytes;
        }
    }
    const struct dt_exec *exec = timer->variant[0].exec[0];
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

dt_status dt_fusion_timer_run(void *timer, int variant, int n, double *seconds)
{
    struct dt_fusion_timer *t = timer;
    DT_TRY(run_nodes(t, &t->variant[variant], 1)); /* the others are queued meanwhile */
    DT_TRY(dt_cuda_stamp(t->dev, 0, false));
    DT_TRY(run_nodes(t, &t->variant[variant], n));
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
    for (int variant = 0; variant < DT_N_FUSION_VARIANTS && !timer->dev->hung; variant++)
        for (int i = 0; i < timer->variant[variant].n_nodes; i++)
            if (timer->copy[variant][i].op->release)
                timer->copy[variant][i].op->release(timer->dev, &timer->copy[variant][i]);
    if (!timer->dev->hung)
        (void)cudaFree(timer->memory);
    free(timer->address);
    free(timer);
}
