/* COCO's evaluation of detections, equal to pycocotools 2.0.11 (COCOeval, iouType "bbox"): twelve
 * numbers between 0 and 1, -1 where there is no ground truth to compare with. Pure computation.
 *
 * One difference: pycocotools takes a match with an annotation whose id is 0 for none, a false
 * detection, and its numbers are then lower. */
#ifndef DTRAIN_BOXES_AVERAGE_PRECISION_H
#define DTRAIN_BOXES_AVERAGE_PRECISION_H

#include <stddef.h>

#include "base/status.h"
#include "boxes/boxes.h"

/* In the order of pycocotools' stats. */
#define DT_COCO_LIST(X) \
    X(ap)               \
    X(ap50)             \
    X(ap75)             \
    X(ap_small)         \
    X(ap_medium) X(ap_large) X(ar1) X(ar10) X(ar100) X(ar_small) X(ar_medium) X(ar_large)
enum { DT_COCO_AP, DT_COCO_AP50, DT_COCO_AP75, DT_N_COCO = 12 };
extern const char *const dt_coco_names[DT_N_COCO];

struct dt_average_precision_input {
    uint32_t n_images;
    int n_labels; /* in the order of their categories' ids */
    const struct dt_truth *truths;
    const size_t *first_truth; /* n_images + 1: image i has truths first_truth[i] .. [i + 1] - 1 */
    const struct dt_found *found; /* in any order; ties of the score count in this order */
    size_t n_found;
    int max_detections; /* of an image and category: COCO has 100; ar1 and ar10 take fewer */
    void (*progress)(void *context, int done, int total); /* after each label; may be NULL */
    void *context;
};

/* category[n_labels], may be NULL: AP and AP50 of each. With max_detections other than 100, ap to
 * ap_large and ar100 to ar_large are those of that many. All numbers are finite. DT_ERR_MEMORY. */
struct dt_category_precision {
    double ap, ap50;
};
dt_status dt_average_precision(double value[DT_N_COCO], struct dt_category_precision *category,
                               const struct dt_average_precision_input *input);

#endif
