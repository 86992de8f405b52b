/* dtrain eval, predict and average. Collective over the ranks of `comm`; failures as in train.h. */
#ifndef DTRAIN_EVAL_H
#define DTRAIN_EVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "dtrain/comm.h"
#include "dtrain/config.h"

#define DT_FOLLOW_S 0.5 /* between two looks for a new checkpoint */

struct dt_eval_options {
    const char *weights;     /* a safetensors file, a checkpoint folder or a run folder */
    bool per_class;          /* a table on stdout */
    const char *run;         /* what the command line calls it */
    bool all_checkpoints;    /* of that run, from the oldest: a line for each */
    bool follow;             /* and then the new ones, until the run has ended */
    const char *confusion;   /* file for the confusion matrix, .csv or .svg; NULL = none */
    const char *predictions; /* CSV file of all images; NULL = none */
};
/* dtrain eval: the metrics of weights on the validation set, as one JSON line at the end of stdout.
 * With the other options, eval.tta or others than loss, top1 and top5 in eval.metrics these are all
 * that are defined. */
dt_status dt_evaluate(struct dt_comm *comm, const struct dt_config *config,
                      const struct dt_eval_options *options);

struct dt_predict_options {
    const char *weights; /* as dt_eval_options */
    char *const *paths;  /* images, folders with images, or "-" for a list on standard input */
    int n_paths, top;    /* top: classes, or detections of an image; 0 = 5, or all */
    double min_score;    /* a detector's: only scores of at least that */
    const char *output;  /* a detector's: folder for pictures with boxes, NULL = none */
    bool yolo;           /* and for text files in YOLO's format, in labels/ */
    const char *json;    /* file for an array with an object for each image, NULL = none */
};
/* dtrain predict: the most probable classes of images, on stdout, with the preprocessing of an
 * evaluation; of a detector a line for each detection: image, class, score, x1, y1, x2 and y2 in
 * pixels, with tabs between. Images that cannot be read are warned of and lead to DT_ERR_DATA at
 * the end. One rank only. */
dt_status dt_predict(struct dt_comm *comm, const struct dt_config *config,
                     const struct dt_predict_options *options);

struct dt_average_options {
    char *const *paths; /* as dt_eval_options.weights */
    int n_paths;
    const char *out;   /* a safetensors file */
    bool recompute_bn; /* else config is not used */
    int64_t n_images;  /* training images for that, 0 = an epoch */
};
/* dtrain average: the mean of weights. With recompute_bn, batch norm's running statistics become
 * the mean over the batches of forward passes in training mode, as in PyTorch's update_bn; on any
 * number of ranks, with the same bits in every run. */
dt_status dt_average(struct dt_comm *comm, const struct dt_config *config,
                     const struct dt_average_options *options);

#endif
