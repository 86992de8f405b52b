/* From evaluated batches to the detections of their images, in pixels of the original images.
 *
 *   levels  what top_detections found, read from the device, per level of the pyramid
 *   NMS     of all levels of an image, by eval.nms_iou and eval.max_detections
 *   found   each box times (size of the image / its size in the row), as torchvision does it in
 *           fp32; then x, y, width and height, the last two by subtraction in fp32 */
#ifndef DTRAIN_EVAL_DETECTIONS_H
#define DTRAIN_EVAL_DETECTIONS_H

#include "boxes/boxes.h"
#include "dtrain/plan.h"
#include "engine/engine.h"

/* The output of one pass of an evaluation program. Begin with {0}; the memory is used again. */
struct dt_levels {
    float *rows[DT_MAX_LEVELS]; /* N images x the level's most x DT_CANDIDATE */
    int32_t *n[DT_MAX_LEVELS];  /* N */
    size_t row_capacity[DT_MAX_LEVELS], n_capacity[DT_MAX_LEVELS];
    size_t stride[DT_MAX_LEVELS]; /* floats of an image */
    int n_levels;
};
/* After a walk of the program. Waits for the device. */
dt_status dt_levels_read(struct dt_levels *levels, struct dt_plan *plan, int program);
/* The detections of image `row` of the batch, in pixels of its canvas, into out[max]. */
dt_status dt_levels_detect(struct dt_detection *out, int *n, const struct dt_levels *levels,
                           int row, double iou, int max);
void dt_levels_reset(struct dt_levels *levels);

/* The collected detections of this rank: image after image in the order of the batches, of an image
 * in the order of NMS, by falling score. Begin with {0}. 5,000 images with 300 detections each, the
 * most that they can have by default, take 72 MB. */
struct dt_detections {
    struct dt_found *found;
    size_t n, capacity;
    struct dt_levels levels;
    struct dt_detection *of_image; /* eval.max_detections */
    size_t of_image_capacity;
};
/* Adds those of the batch that dt_engine_eval has just evaluated and that is not yet
 * released. Bad images and rows n and up have none. Local. */
dt_status dt_detections_add(struct dt_detections *detections, const struct dt_engine *engine,
                            const struct dt_sets *sets, const struct dt_batch *batch);
void dt_detections_reset(struct dt_detections *detections);

/* A detection in an image of that size (from `info`) that has size[2] (height, width) in its row.
 */
struct dt_found dt_detection_found(const struct dt_detection *detection, uint32_t image,
                                   const struct dt_image_info *info, const int32_t size[2]);

#endif
