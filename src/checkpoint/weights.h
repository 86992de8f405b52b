/* Weights by name from a safetensors file: resuming, evaluation, fine-tuning. */
#ifndef DTRAIN_CHECKPOINT_WEIGHTS_H
#define DTRAIN_CHECKPOINT_WEIGHTS_H

#include <stdbool.h>

#include "dtrain/plan.h"

/* Loads weights and running statistics by name from a safetensors file. Local. With `new_head` a
 * classifier of a different shape keeps its values and is named in a message. */
dt_status dt_weights_load(struct dt_plan *plan, const char *path, const char *head, bool new_head);
/* Resolves a file, a checkpoint, a folder of another program, a run folder (its best checkpoint),
 * or RUN@best, RUN@latest, RUN@step-N to the model file, written to out[DT_PATH_MAX]. */
dt_status dt_weights_find(char *out, const char *path);
/* The configuration saved beside those weights; DT_ERR_USAGE if there is none. */
dt_status dt_weights_config(char *out, const char *path);

/* The names of the classes in a safetensors file, with a newline after each; *classes is NULL if it
 * has none. Caller frees. */
dt_status dt_weights_classes(char **classes, const char *path);

#endif
