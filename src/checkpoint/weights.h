/* Weights by name from a safetensors file: resuming, evaluation, fine-tuning. find and config are
 * in find.c. */
#ifndef DTRAIN_CHECKPOINT_WEIGHTS_H
#define DTRAIN_CHECKPOINT_WEIGHTS_H

#include <stdbool.h>

#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "dtrain/models.h"
#include "dtrain/plan.h"

enum { DT_WEIGHTS_TEXT = DT_PATH_MAX + 256 };

/* Loads weights and running statistics by name from a safetensors file; into a plan without memory
 * (dt_plan_layout) it loads nothing and only checks that they fit. Local. With `may_lack_head`, the
 * row of the model, a classifier of a different shape keeps its values, and a detector also takes
 * the weights of a classifier for its backbone. Names of detectors may be those of torchvision
 * before 0.13. With `must_be_finite`, NaN and infinities are DT_ERR_NUMERICAL: behind them ReLU
 * gives finite results. text[DT_WEIGHTS_TEXT] (may be NULL) says how much of the model the file
 * has: "100 of 102 tensors from FILE; classifier fc new (1000 -> 2 classes)". */
dt_status dt_weights_load(struct dt_plan *plan, const char *path,
                          const struct dt_model *may_lack_head, bool must_be_finite, char *text);
/* Resolves a file, a checkpoint, a folder of another program, a run folder (its best checkpoint),
 * or RUN@best, RUN@latest, RUN@step-N to a safetensors file, written to out[DT_PATH_MAX]. In a
 * checkpoint that is ema.safetensors if the run evaluated it (eval.weights in the config.json
 * next to it), otherwise model.safetensors; a log line says which. */
dt_status dt_weights_find(char *out, const char *path);
/* The configuration saved next to the model file `model`; DT_ERR_USAGE if there is none, with the
 * place of it if the file tells, as an average does. */
dt_status dt_weights_config(char *out, const char *model);

/* The names of the classes in a safetensors file, with a newline after each; *classes is NULL if it
 * has none. Caller frees. *n (may be NULL): the number of classes of `model`'s classifier; 0 if
 * the file has no such tensor. */
dt_status dt_weights_classes(char **classes, int64_t *n, const char *path,
                             const struct dt_model *model);

/* In average_weights.c: the mean of saved weights, as a safetensors file. Local. */
struct dt_average {
    struct dt_st_tensor *tensors; /* placed; F32 and I64 */
    size_t n_tensors;
    char *data, *classes, *config; /* classes, path of the configuration: NULL if unknown */
};

/* Arithmetic means in fp64 of the floating-point tensors of `paths` (dt_weights_find); integers are
 * the last one's. DT_ERR_CONFIG if they are not of the same model, with the same classes. *average
 * may be reset in any case. */
dt_status dt_average_read(struct dt_average *average, char *const *paths, int n);
/* Writes the mean from the beginning of a file that dt_file_begin has begun, again if called again.
 */
dt_status dt_average_write(const struct dt_average *average, const struct dt_new_file *file);
void dt_average_reset(struct dt_average *average);

#endif
