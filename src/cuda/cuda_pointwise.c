/* Elementwise ops: activations, additions, dropout, ingest. Each tensor of a node is treated as a
 * flat array, padding included. */
#include "cuda/cuda_internal.h"

static dt_status run_add(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_cuda_format *f = exec->dst[0];
    return DT_KERNEL(dev, exec, dt_kernel_add, f->type, exec->dst_data[0], exec->src_data[0],
                     exec->src_data[1], f->elements, exec->node->activation == DT_RELU);
}

static dt_status run_activation(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_cuda_format *f = exec->dst[0];
    return DT_KERNEL(dev, exec, dt_kernel_activation, f->type, exec->node->activation,
                     exec->dst_data[0], exec->src_data[0], f->elements, f->c, f->cp);
}

static dt_status run_activation_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_cuda_format *f = exec->dst[0];
    void *const *src = exec->src_data;
    return DT_KERNEL(dev, exec, dt_kernel_activation_bwd, f->type, exec->node->activation,
                     exec->dst_data[0], src[DT_ACTIVATION_BWD_DIFF_DST],
                     src[DT_ACTIVATION_BWD_DIFF_DST2], src[DT_ACTIVATION_BWD_SRC], f->elements);
}

_Static_assert((int)DT_MAX_TERMS >= (int)DT_MAX_SRC, "a node may have more terms");

static dt_status run_sum_grads(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_cuda_format *f = exec->dst[0];
    return DT_KERNEL(dev, exec, dt_kernel_sum, f->type, exec->dst_data[0],
                     (const void *const *)exec->src_data, exec->node->n_src, f->elements);
}

/* Forward and backward: the mask is a function of the element's position in the global batch. */
static dt_status run_dropout(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_cuda_format *f = exec->dst[0];
    return DT_KERNEL(dev, exec, dt_kernel_dropout, f->type, exec->dst_data[0], exec->src_data[0],
                     f->n, f->c, f->h, f->w, f->cp, node->attr.dropout.p, dev->options.seed,
                     node->attr.dropout.stream, dev->step);
}

static dt_status prepare_ingest(struct dt_device *dev, struct dt_exec *exec)
{
    (void)dev;
    int channels = exec->src[0]->c;
    if (channels > 3)
        DT_FAIL(DT_ERR_INTERNAL, "node '%s' takes images of up to 3 channels, not %d",
                exec->node->name, channels);
    return DT_OK;
}

static dt_status run_ingest(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_cuda_format *f = exec->dst[0];
    struct dt_ingest ingest = {.sizes = exec->src_data[DT_INGEST_SIZES],
                               .n = f->n,
                               .height = f->h,
                               .width = f->w,
                               .channels = f->c,
                               .cp = f->cp};
    for (int c = 0; c < f->c; c++) {
        ingest.scale[c] = (float)(1 / (255 * (double)node->attr.ingest.std[c]));
        ingest.shift[c] = -node->attr.ingest.mean[c] / node->attr.ingest.std[c];
    }
    return DT_KERNEL(dev, exec, dt_kernel_ingest, f->type, exec->dst_data[0], exec->src_data[0],
                     &ingest);
}

const struct dt_cuda_op dt_cuda_ingest = {.prepare = prepare_ingest, .run = run_ingest};
const struct dt_cuda_op dt_cuda_add = {.run = run_add};
const struct dt_cuda_op dt_cuda_activation = {.run = run_activation};
const struct dt_cuda_op dt_cuda_activation_bwd = {.run = run_activation_bwd};
const struct dt_cuda_op dt_cuda_dropout = {.run = run_dropout};
const struct dt_cuda_op dt_cuda_dropout_bwd = {.run = run_dropout};
const struct dt_cuda_op dt_cuda_sum_grads = {.run = run_sum_grads};
