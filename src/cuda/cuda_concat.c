/* Concatenation along the channels, and its gradient. */
#include "cuda/cuda_internal.h"

_Static_assert((int)DT_MAX_PARTS >= (int)DT_MAX_SRC, "a node may have more sources");

static dt_status launch(struct dt_device *dev, const struct dt_exec *exec,
                        const struct dt_parts *parts)
{
    const struct dt_cuda_format *dst = exec->dst[0];
    return DT_KERNEL(dev, exec, dt_kernel_concat, dst->type, exec->dst_data[0],
                     dst->elements / (size_t)dst->cp, dst->cp, parts);
}

static dt_status run_concat(struct dt_device *dev, struct dt_exec *exec)
{
    struct dt_parts parts = {.n = exec->node->n_src};
    for (int i = 0; i < parts.n; i++) {
        parts.at[i] = exec->src_data[i];
        parts.channels[i] = exec->src[i]->c;
        parts.cp[i] = exec->src[i]->cp;
    }
    return launch(dev, exec, &parts);
}

static dt_status run_concat_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_cuda_format *src = exec->src[0];
    const size_t first = (size_t)exec->node->attr.concat.first * dt_dtype_bytes(src->type);
    const struct dt_parts part = {.n = 1,
                                  .at = {(const char *)exec->src_data[0] + first},
                                  .channels = {exec->dst[0]->c},
                                  .cp = {src->cp}};
    return launch(dev, exec, &part);
}

const struct dt_cuda_op dt_cuda_concat = {.run = run_concat};
const struct dt_cuda_op dt_cuda_concat_bwd = {.run = run_concat_bwd};
