/* Weights by name from a safetensors file: resuming, evaluation, fine-tuning. */
#ifndef DTRAIN_CHECKPOINT_WEIGHTS_H
#define DTRAIN_CHECKPOINT_WEIGHTS_H

#include <stdbool.h>

#include "dtrain/plan.h"

/* Weights and running statistics by name from a safetensors file. Local. With
 * `new_head` a classifier of another shape is left as it is and named in a message. */
dt_status dt_weights_load(struct dt_plan *plan, const char *path, const char *head, bool new_head);
/* The model file behind a file, a checkpoint, a folder of checkpoints or a run folder, into
 * out[DT_PATH_MAX]. */
dt_status dt_weights_find(char *out, const char *path);

#endif
