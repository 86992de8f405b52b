/* Judges a detector: the detections of all ranks against the boxes of the validation set, by COCO's
 * evaluation on rank 0. The order of what is judged is that of the images and, in each, of NMS, so
 * that the numbers are the same on any number of ranks. */
#ifndef DTRAIN_TRAIN_BOX_JUDGING_H
#define DTRAIN_TRAIN_BOX_JUDGING_H

#include "detect/average_precision.h"
#include "train/detections.h"
#include "train/evaluator.h"

/* Most detections of an image and category that count, as in COCO's evaluation. */
enum { DT_COCO_MOST = 100 };

struct dt_box_judging {
    struct dt_detections detections; /* of this rank */
    /* Rank 0: the boxes of the validation set, and after dt_box_judging_sum the detections of all
     * ranks by image, until the next evaluation. 5,000 images of COCO: 2 MB; with 300 detections
     * each 72 MB, and twice that more while they are collected and sorted. */
    struct dt_truth *truths;
    size_t *first_truth; /* images + 1 */
    struct dt_found *found;
    size_t n_found;
    /* All ranks: of each category; -1 without a box of it. */
    struct dt_category_precision *category;
};

/* For the validation set. */
dt_status dt_box_judging_create(struct dt_box_judging **judging, const struct dt_sets *sets);
void dt_box_judging_destroy(struct dt_box_judging *judging); /* accepts NULL */
/* After dt_detections_add of all batches: sets the metrics and the rest of *result that is of
 * detectors, the same on all ranks. Rank 0 beats its pulse meanwhile. Collective. */
dt_status dt_box_judging_sum(struct dt_evaluator *evaluator, struct dt_eval_result *result);

/* Rank 0. A table of the categories; the detections as COCO's results, a JSON list of {"image_id",
 * "category_id", "bbox": [x, y, w, h], "score"}, in which the numbers have all their digits. */
void dt_box_judging_print(FILE *out, const struct dt_evaluator *evaluator);
dt_status dt_box_judging_write(const struct dt_evaluator *evaluator, int fd, const char *path);

#endif
