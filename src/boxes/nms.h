/* Non-maximum suppression: from the candidates of all levels of an image (op top_detections) to its
 * detections, as torchvision's RetinaNet does it. Pure computation in host memory. */
#ifndef DTRAIN_BOXES_NMS_H
#define DTRAIN_BOXES_NMS_H

#include "base/status.h"

struct dt_detection {
    float box[4]; /* x1 y1 x2 y2 in pixels */
    float score;
    int label;
};

/* The candidates of top_detections in one level of one image: n rows of x1 y1 x2 y2 score label. */
enum { DT_CANDIDATE = 6 };
struct dt_candidates {
    const float *rows;
    int n;
};

/* Takes the candidates by falling score, ties in the order of levels and rows, skips each
 * whose IoU with a better one that was taken and has its label is above `iou`, and ends after
 * `max`: *n_out of them in out[max]. The IoU is computed in fp32; a box without area suppresses
 * nothing. A candidate with a number that is not finite is skipped. DT_ERR_MEMORY. */
dt_status dt_detect_nms(struct dt_detection *out, int *n_out, const struct dt_candidates *level,
                        int n_levels, double iou, int max);

#endif
