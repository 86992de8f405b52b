/* The loss, and the download of its counters. Labels are checked on the device only: one that is
 * not a class is reported when the counters are read. */
#include "cuda/cuda_internal.h"

static size_t scratch_bytes(const struct dt_exec *exec)
{
    return (size_t)exec->src[0]->n * sizeof(struct dt_loss_row);
}

static dt_status run_softmax_xent(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_cuda_format *logits = exec->src[0];
    const struct dt_loss_batch batch = {
        .logits = exec->src_data[DT_XENT_LOGITS],
        .labels = exec->src_data[DT_XENT_LABELS],
        .labels2 = exec->src_data[DT_XENT_LABELS2],
        .mix_shares = exec->src_data[DT_XENT_MIX_SHARE],
        .class_weights = exec->src_data[DT_XENT_CLASS_WEIGHTS],
        .n = logits->n,
        .classes = logits->c,
        .cp = logits->cp,
        .smoothing = node->attr.xent.smoothing,
    };
    return DT_KERNEL(dev, exec, dt_kernel_softmax_xent, logits->type, exec->dst_data[0],
                     dev->counters, (struct dt_loss_row *)(void *)exec->scratch, &batch, dev->step,
                     dev->scale);
}

const struct dt_cuda_op dt_cuda_softmax_xent = {.run = run_softmax_xent,
                                                .scratch_bytes = scratch_bytes};

_Static_assert(sizeof(struct dt_step_counters) <= DT_CUDA_PINNED_BYTES, "a download is small");

dt_status dt_cuda_download(struct dt_device *dev, struct dt_counters *out)
{
    struct dt_step_counters *c = dev->pinned;
    DT_TRY(DT_CUDA("reading the counters", cudaMemcpyAsync(c, dev->counters, sizeof *c,
                                                           cudaMemcpyDeviceToHost, dev->compute)));
    DT_TRY(DT_CUDA("resetting the counters",
                   cudaMemsetAsync(dev->counters, 0, sizeof *c, dev->compute)));
    DT_TRY(dt_cuda_wait_stream(dev, dev->compute, "the training step"));
    *out = (struct dt_counters){.loss = c->loss,
                                .box_loss = c->box_loss,
                                .weight = c->weight,
                                .n = c->n,
                                .n_finite = c->n_finite,
                                .top1 = c->top1,
                                .top5 = c->top5,
                                .n_skipped = c->n_skipped,
                                .n_in_a_row = c->n_in_a_row};
    if (c->classes)
        DT_FAIL(DT_ERR_DATA,
                "an image has label %d, but model.num_classes is %d; check data.label_offset",
                (int)c->bad_label, (int)c->classes);
    return DT_OK;
}
