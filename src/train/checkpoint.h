/* Checkpoints: <dir>/step-000005123/{model.safetensors, optim.safetensors, state.json}.
 *
 * A checkpoint appears under its name by one rename, when all its files are durable, so a folder
 * with that name is complete. <dir>/latest is a text file with the name of the newest one. These
 * functions are local: rank 0 calls them. */
#ifndef DTRAIN_TRAIN_CHECKPOINT_H
#define DTRAIN_TRAIN_CHECKPOINT_H

#include <stdbool.h>

#include "dtrain/plan.h"

enum { DT_MODEL_NAME_MAX = 64 };

/* Where training stands and what it is about. Plain data: rank 0 broadcasts it. */
struct dt_checkpoint {
    int64_t step;         /* updates done */
    int64_t epoch, batch; /* the next global batch to train on */
    int64_t n_passes;     /* forward passes of a rank: num_batches_tracked of every batch norm */
    double best_top1;     /* per cent, -1 = no evaluation yet */
    bool eval_due;        /* the run stopped before an evaluation: it comes first now */
    int n_ranks;
    int precision;                   /* enum dt_precision, -1 = not recorded */
    struct dt_loss_scale loss_scale; /* fp16; a scale of 0 = none */
    /* What must be the same to go on. */
    char model[DT_MODEL_NAME_MAX];
    int num_classes, image_size, global_batch;
    uint64_t seed, fingerprint;
    int64_t n_train_images;
};

/* Saves params, running statistics, momentum and state; removes the oldest so that `keep` remain
 * (keep >= 1; the one just saved always does). `config_json` is kept in state.json. The path goes
 * to path[DT_PATH_MAX]. A failed save leaves the older checkpoints as they were. */
dt_status dt_checkpoint_save(char *path, const char *dir, struct dt_plan *plan,
                             const struct dt_checkpoint *state, const char *config_json, int keep);

/* The complete checkpoint with the highest step goes to path[DT_PATH_MAX] and *state; path "" if
 * there is none. Incomplete ones are named in a warning. */
dt_status dt_checkpoint_find(char *path, struct dt_checkpoint *state, const char *dir);
/* Reads state.json of the checkpoint folder `path`. */
dt_status dt_checkpoint_read_state(struct dt_checkpoint *state, const char *path);
/* DT_ERR_CONFIG with every difference between a saved state and the present run. */
dt_status dt_checkpoint_match(const struct dt_checkpoint *saved,
                              const struct dt_checkpoint *current, const char *path);
/* Params, running statistics and momentum from the checkpoint folder `path`. */
dt_status dt_checkpoint_load(struct dt_plan *plan, const char *path);

#endif
