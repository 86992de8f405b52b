/* Boxes of the ground truth and boxes that a detector has found, as COCO's files have them: x and y
 * of the upper left corner, width and height, in pixels of the original image, in fp64 as written.
 */
#ifndef DTRAIN_BOXES_BOXES_H
#define DTRAIN_BOXES_BOXES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct dt_truth {
    double x, y, w, h;
    double area; /* of the object, from the file: it decides between small, medium and large */
    int64_t id;  /* of the annotation */
    int32_t label;
    bool is_crowd; /* a region with many objects: not trained on, and no detection in it is wrong */
};

/* Whether a detector is trained on it: something of it is in the image. */
static inline bool dt_truth_is_usable(const struct dt_truth *t, int width, int height)
{
    return !t->is_crowd && t->w > 0 && t->h > 0 && t->x < width && t->y < height &&
           t->x + t->w > 0 && t->y + t->h > 0;
}

struct dt_found {
    double x, y, w, h, score;
    uint32_t image; /* its index in the data set */
    int32_t label;
};

/* Non-maximum suppression: from the candidates of all levels of an image (op top_detections) to its
 * detections, as torchvision's RetinaNet does it. Pure computation in host memory. */
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
