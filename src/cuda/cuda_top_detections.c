/* The best detections of a level. */
#include "cuda/cuda_internal.h"

static dt_status prepare_top_detections(struct dt_device *dev, struct dt_exec *exec)
{
    (void)dev;
    const struct dt_cuda_format *logits = exec->src[0], *deltas = exec->src[1];
    if (logits->cp % DT_CHANNEL_PACK != 0 || deltas->type != logits->type ||
        exec->dst[0]->c > DT_TOP_MOST)
        DT_FAIL(DT_ERR_INTERNAL, "the tensors of node '%s' do not have the layout of heads",
                exec->node->name);
    exec->scratch_bytes = dt_top_scratch_bytes(logits->n);
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
    return DT_CUDA(exec->node->name,
                   dt_kernel_top_detections(dev->compute, logits->type, dst[DT_TOP_DST],
                                            dst[DT_TOP_N], src[DT_TOP_LOGITS], src[DT_TOP_DELTAS],
                                            src[DT_TOP_SIZES], exec->scratch, &level));
}

const struct dt_cuda_op dt_cuda_top_detections = {.prepare = prepare_top_detections,
                                                  .run = run_top_detections};
