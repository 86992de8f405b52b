/* A table of all images of an evaluation in CSV, in the order of the data set: file, label,
 * prediction and the probability of every class. The ranks' logits meet after each batch and rank 0
 * writes, so that no rank holds more than one batch of all ranks. */
#ifndef DTRAIN_TRAIN_PREDICTIONS_H
#define DTRAIN_TRAIN_PREDICTIONS_H

#include "train/session.h"

struct dt_predictions;
/* `fd` is written by rank 0 only, and named `path` in errors. The session judges (judging.h) and is
 * kept until dt_predictions_destroy. */
dt_status dt_predictions_create(struct dt_predictions **predictions, const struct dt_session *s,
                                int fd, const char *path);
void dt_predictions_destroy(struct dt_predictions *predictions); /* accepts NULL */
/* Adds global batch `batch`, whose logits are in s->judging. An image that could not be read, or
 * has a NaN among its logits, has no prediction and no probabilities. Collective; the status is
 * local.
 */
dt_status dt_predictions_add(struct dt_predictions *predictions, int64_t batch);

#endif
