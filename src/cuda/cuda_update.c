/* The parameter side of a step: its values, the update, sums over passes, 16-bit copies, whether
 * the step counts, and the loss scale. All of it is enqueued in the compute stream. */
#include <string.h>

#include "cuda/cuda_internal.h"
#include "kernels/ranges.h"

dt_status dt_cuda_set_scalars(struct dt_device *dev, const struct dt_scalars *scalars)
{
    const struct dt_step_values values = {.lr = scalars->lr,
                                          .diff_scale = scalars->diff_scale,
                                          .optim = scalars->optim,
                                          .ema_weight = scalars->ema_weight,
                                          .step = scalars->step,
                                          .first_row = scalars->first_row};
    return DT_CUDA("setting the values of a step",
                   dt_kernel_set_step(dev->compute, dev->step, &values, dev->scale));
}

dt_status dt_cuda_cut_ranges(struct dt_range *ranges, int *n_ranges,
                             const struct dt_segment *segments, int n_segments, int *next)
{
    *n_ranges = 0;
    for (; *next < n_segments && *n_ranges < DT_MAX_RANGES; ++*next) {
        const struct dt_segment *s = &segments[*next];
        if (s->first % DT_CHANNEL_PACK || s->count % DT_CHANNEL_PACK)
            DT_FAIL(DT_ERR_INTERNAL, "segment %d (%zu elements from %zu) is not padded to %d",
                    *next, s->count, s->first, DT_CHANNEL_PACK);
        ranges[(*n_ranges)++] = (struct dt_range){
            s->first, s->count, s->decay, s->rate, (uint32_t)s->first_tile, s->has_trust};
    }
    return DT_OK;
}

dt_status dt_cuda_update(struct dt_device *dev, const struct dt_update *update)
{
    struct dt_range ranges[DT_MAX_RANGES];
    const struct dt_update_memory memory = {.params = update->params,
                                            .momentum = update->momentum,
                                            .square = update->square,
                                            .shadow = update->shadow,
                                            .grads = update->grads,
                                            .norms = update->norms};
    for (int next = 0; next < update->n_segments;) {
        int n_ranges;
        DT_TRY(dt_cuda_cut_ranges(ranges, &n_ranges, update->segments, update->n_segments, &next));
        DT_TRY(
            DT_CUDA("updating the parameters",
                    dt_kernel_update(dev->compute, update->optim, &memory, dev->type,
                                     update->grads_type, ranges, n_ranges, dev->step, dev->scale)));
    }
    return DT_OK;
}

dt_status dt_cuda_lerp(struct dt_device *dev, float *dst, const float *src, size_t count)
{
    return DT_CUDA("averaging the parameters",
                   dt_kernel_lerp(dev->compute, dst, src, count, dev->step, dev->scale));
}

dt_status dt_cuda_accumulate(struct dt_device *dev, float *dst, const void *src,
                             enum dt_dtype src_type, size_t count, bool first)
{
    return DT_CUDA("adding up gradients",
                   dt_kernel_accumulate(dev->compute, dst, src_type, src, count, first));
}

dt_status dt_cuda_refresh(struct dt_device *dev, void *shadow, const float *params, size_t count)
{
    return DT_CUDA("copying the parameters to 16 bits",
                   dt_kernel_convert(dev->compute, dev->type, shadow, params, count));
}

/* --- Whether the step counts, and the loss scale --- */

dt_status dt_cuda_check(struct dt_device *dev, const void *grads, enum dt_dtype type, size_t count,
                        double *norms)
{
    return DT_CUDA("checking gradients",
                   norms
                       ? dt_kernel_check_norms(dev->compute, dev->scale, type, grads, count, norms)
                       : dt_kernel_check(dev->compute, dev->scale, type, grads, count));
}

dt_status dt_cuda_count(struct dt_device *dev, float *count, const float *from, int n, bool first)
{
    return DT_CUDA("counting", dt_kernel_count(dev->compute, count, from, n, first));
}

dt_status dt_cuda_divide(struct dt_device *dev, const float *counts, int n)
{
    return DT_CUDA("dividing gradients", dt_kernel_divide(dev->compute, dev->scale, counts, n));
}

dt_status dt_cuda_clip(struct dt_device *dev, const double *norms, int n)
{
    return DT_CUDA("clipping gradients",
                   dt_kernel_clip(dev->compute, dev->scale, dev->step, norms, n));
}

dt_status dt_cuda_end_step(struct dt_device *dev)
{
    return DT_CUDA("settling a step", dt_kernel_settle(dev->compute, dev->scale, dev->counters));
}

static dt_status read_state(struct dt_device *dev, struct dt_scale_state *state)
{
    DT_TRY(
        DT_CUDA("reading the loss scale", cudaMemcpyAsync(dev->pinned, dev->scale, sizeof *state,
                                                          cudaMemcpyDeviceToHost, dev->compute)));
    DT_TRY(dt_cuda_wait_stream(dev, dev->compute, "the work before the loss scale is read"));
    memcpy(state, dev->pinned, sizeof *state);
    return DT_OK;
}

static dt_status write_state(struct dt_device *dev, const struct dt_scale_state *state)
{
    return DT_CUDA("setting the loss scale", dt_kernel_set_scale(dev->compute, dev->scale, state));
}

dt_status dt_cuda_get_loss_scale(struct dt_device *dev, struct dt_loss_scale *out)
{
    struct dt_scale_state state;
    DT_TRY(read_state(dev, &state));
    *out = (struct dt_loss_scale){.scale = state.scale, .n_clean = state.n_clean};
    return DT_OK;
}

dt_status dt_cuda_set_loss_scale(struct dt_device *dev, const struct dt_loss_scale *in)
{
    struct dt_scale_state state;
    if (dev->options.precision != DT_PRECISION_FP16)
        return DT_OK;
    DT_TRY(read_state(dev, &state));
    state.scale = in->scale;
    state.n_clean = in->n_clean;
    return write_state(dev, &state);
}

dt_status dt_cuda_get_updates(struct dt_device *dev, int64_t *n)
{
    struct dt_scale_state state;
    DT_TRY(read_state(dev, &state));
    *n = state.n_updates;
    return DT_OK;
}

dt_status dt_cuda_set_updates(struct dt_device *dev, int64_t n)
{
    struct dt_scale_state state;
    DT_TRY(read_state(dev, &state));
    state.n_updates = n;
    return write_state(dev, &state);
}
