/* A table of all images of an evaluation, in the order of the data set: in CSV with label,
 * prediction and the probability of every class, or the most probable classes. The ranks' logits
 * meet after each batch and rank 0 writes, so that no rank holds more than one batch of all ranks.
 */
#ifndef DTRAIN_EVAL_PREDICTIONS_H
#define DTRAIN_EVAL_PREDICTIONS_H

#include "engine/sets.h"

struct dt_predictions;
struct dt_predictions_options {
    const struct dt_sets *sets;
    float *logits;            /* where those of this rank's batch are, see dt_predictions_add */
    const char *const *names; /* of the classes */
    int fd;                   /* of rank 0 */
    const char *path;         /* its name in errors */
    int top;                  /* number of most probable classes; 0 = CSV */
    struct dt_jsonw *json;    /* the most probable classes go here as well; NULL = nowhere */
};
dt_status dt_predictions_create(struct dt_predictions **predictions,
                                const struct dt_predictions_options *options);
void dt_predictions_destroy(struct dt_predictions *predictions); /* accepts NULL */
/* Adds global batch `batch`, whose logits are in place. An image that could not be read, or has a
 * NaN among its logits, has no prediction and no probabilities. Collective; the status is local.
 */
dt_status dt_predictions_add(struct dt_predictions *predictions, int64_t batch);

/* --- class_errors.c: a classifier's worst errors, the images with the highest probability of a
 * wrong class --- */

enum { DT_WORST_ERRORS = 12 };

struct dt_class_errors {
    struct dt_class_error {
        double probability; /* of the prediction */
        uint32_t image;
        int32_t label, prediction;
    } worst[DT_WORST_ERRORS]; /* the worst first, of equal ones the first image */
    int32_t n;
};

/* Keeps it if it is one of the worst so far. */
void dt_class_errors_add(struct dt_class_errors *errors, const struct dt_class_error *error);
/* CSV: file, label, prediction, probability. */
void dt_class_errors_print(FILE *out, const struct dt_class_errors *errors,
                           const struct dt_dataset *dataset, const char *const *names);
/* The images with label, prediction and its probability; without errors there is no such file. */
dt_status dt_class_errors_save(const char *path, const struct dt_class_errors *errors,
                               const struct dt_dataset *dataset, const char *const *names);

#endif
