/* Matching of anchors with boxes, the losses of a detector, and the best detections of a level.
 * Labels are checked on the device only, as those of softmax_xent. */
#include "cuda/cuda_internal.h"

static size_t match_scratch_bytes(const struct dt_exec *exec)
{
    return dt_match_scratch_bytes(exec->src[0]->n, exec->src[0]->c);
}

static dt_status run_match(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_detect *detect = &node->attr.detect;
    const struct dt_anchors *anchors = &detect->anchors;
    struct dt_match_args args = {
        .boxes = exec->src_data[DT_MATCH_BOXES],
        .labels = exec->src_data[DT_MATCH_BOX_LABELS],
        .n = exec->src[0]->n,
        .n_slots = exec->src[0]->c,
        .n_anchors = dt_anchors_before(anchors, anchors->n_levels),
        .n_levels = anchors->n_levels,
        .low_quality = detect->low_quality,
        .global = detect->global,
        .background = detect->background,
        .foreground = detect->foreground,
    };
    for (int i = 0; i < anchors->n_levels; i++)
        args.level[i] = dt_level_of(anchors, i);
    return DT_KERNEL(dev, exec, dt_kernel_match, exec->dst_data[DT_MATCH_DST],
                     exec->dst_data[DT_MATCH_COUNT], dev->counters, exec->scratch, &args);
}

static size_t loss_scratch_bytes(const struct dt_exec *exec)
{
    return dt_detect_scratch_bytes(exec->src[0]->n);
}

static dt_status run_loss(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_detect *detect = &exec->node->attr.detect;
    const bool focal = exec->node->op == DT_OP_FOCAL_LOSS;
    const struct dt_detect_args args = {
        .match = exec->src_data[DT_DETECT_LOSS_MATCH],
        .labels = focal ? exec->src_data[DT_DETECT_LOSS_BOXES] : NULL,
        .boxes = focal ? NULL : exec->src_data[DT_DETECT_LOSS_BOXES],
        .count = exec->src_data[DT_DETECT_LOSS_COUNT],
        .level = dt_level_of(&detect->anchors, detect->level),
        .n = exec->src[0]->n,
        .channels = exec->src[0]->c,
        .cp = exec->src[0]->cp,
        .n_anchors = exec->src[DT_DETECT_LOSS_MATCH]->c,
        .n_slots = exec->src[DT_DETECT_LOSS_BOXES]->c,
        .global = detect->global,
        .alpha = detect->alpha,
        .gamma = detect->gamma,
        .kind = detect->kind,
        .beta = detect->beta,
    };
    return DT_CUDA(node->name,
                   (node->op == DT_OP_FOCAL_LOSS ? dt_kernel_focal_loss : dt_kernel_box_loss)(
                       dev->compute, exec->src[0]->type, exec->dst_data[0], dev->counters,
                       (double *)(void *)exec->scratch, exec->src_data[0], &args, dev->step,
                       dev->scale));
}

static dt_status prepare_top_detections(struct dt_device *dev, struct dt_exec *exec)
{
    (void)dev;
    if (exec->dst[0]->c > DT_MAX_TOP)
        DT_FAIL(DT_ERR_INTERNAL, "node '%s' has %d detections, more than %d", exec->node->name,
                exec->dst[0]->c, (int)DT_MAX_TOP);
    exec->scratch_bytes = dt_top_scratch_bytes(exec->src[0]->n);
    return DT_OK;
}

static dt_status run_top_detections(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_detect *detect = &exec->node->attr.detect;
    const struct dt_cuda_format *logits = exec->src[0];
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    const struct dt_top_level level = {.place = dt_level_of(&detect->anchors, detect->level),
                                       .n = logits->n,
                                       .channels = logits->c,
                                       .cp = logits->cp,
                                       .delta_cp = exec->src[DT_TOP_DELTAS]->cp,
                                       .keep = (unsigned)exec->dst[0]->c,
                                       .min_score = detect->min_score};
    return DT_KERNEL(dev, exec, dt_kernel_top_detections, logits->type, dst[DT_TOP_DST],
                     dst[DT_TOP_N], src[DT_TOP_LOGITS], src[DT_TOP_DELTAS], src[DT_TOP_SIZES],
                     exec->scratch, &level);
}

const struct dt_cuda_op dt_cuda_match = {.run = run_match, .scratch_bytes = match_scratch_bytes};
const struct dt_cuda_op dt_cuda_focal_loss = {.run = run_loss, .scratch_bytes = loss_scratch_bytes};
const struct dt_cuda_op dt_cuda_box_loss = {.run = run_loss, .scratch_bytes = loss_scratch_bytes};
const struct dt_cuda_op dt_cuda_top_detections = {.prepare = prepare_top_detections,
                                                  .run = run_top_detections};
