/* Checkpoints: <dir>/step-000005123/{model.safetensors, optim.safetensors, ema.safetensors,
 * state.json, config.json, MANIFEST.json}, dir = <run folder>/checkpoints; ema.safetensors has the
 * moving averages of what is in model.safetensors, with train.ema_decay.
 *
 * Writing: all files are written to <dir>/.tmp-step-N-I, I = incarnation, and made durable, the
 * manifest last; then the folder is renamed and its parent made durable. Only then are the links
 * `latest` and `best` (hints for humans, never followed here) updated and old checkpoints removed,
 * renamed to .trash-step-N first. A crash or power failure at any point leaves the old state or the
 * new one. Reading trusts only what the manifest confirms. These functions are local: rank 0 calls
 * them. */
#ifndef DTRAIN_CHECKPOINT_CHECKPOINT_H
#define DTRAIN_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>

#include "checkpoint/manifest.h"
#include "dtrain/config.h"
#include "dtrain/plan.h"

/* The version of state.json; scripts/packaging/README.md says what later versions read. */
enum { DT_CHECKPOINT_FORMAT = 5 };
enum { DT_MODEL_NAME_MAX = 64, DT_ORIGIN_MAX = DT_ID_MAX + 24 };

/* The best evaluation so far. */
struct dt_best {
    enum dt_metric metric;
    double value;
    int64_t step, epoch; /* step -1 = no evaluation yet; epochs done */
};

/* The memory of schedule.kind "plateau". */
struct dt_plateau {
    double best;   /* value of schedule.metric */
    int64_t waits; /* evaluations since then, or since the last reduction */
    double factor; /* of the learning rate; 0 = another schedule */
};

/* The training loss of an epoch so far, summed over its images and all ranks. */
struct dt_epoch_loss {
    int64_t epoch; /* from 1; 0 = none */
    double loss;   /* of a detector, of classes and boxes */
    double weight; /* what the sum is divided by for the mean */
};

/* Position and identity of a training run. Plain data: rank 0 broadcasts it. */
struct dt_checkpoint {
    int64_t step;          /* updates done */
    int64_t epoch, batch;  /* the next global batch to train on */
    int64_t n_updates;     /* steps that were not skipped: fp16 skips some */
    int64_t n_passes;      /* forward passes of a rank: num_batches_tracked of every batch norm */
    struct dt_best best;   /* by checkpoint.best_metric */
    struct dt_best goal;   /* by early_stop.metric */
    double goal_reference; /* what later evaluations must beat by early_stop.min_delta */
    int64_t goal_waits;    /* evaluations since one did */
    struct dt_plateau plateau;
    struct dt_epoch_loss epoch_loss;
    bool eval_due; /* the run stopped before an evaluation, which comes first on resuming */
    int n_ranks;
    int micro_batch_size, n_parts;   /* largest micro-batch, and the number of them in all ranks */
    int precision;                   /* enum dt_precision, -1 = not recorded */
    struct dt_loss_scale loss_scale; /* fp16; a scale of 0 = none */
    char origin[DT_ORIGIN_MAX];      /* checkpoint of another folder it started from, "" = none */
    /* Values that must be the same to resume. */
    char model[DT_MODEL_NAME_MAX];
    int num_classes, image_size, global_batch_size;
    uint64_t seed, fingerprint;
    int64_t n_train_images;
};

/* --- Names and folders: paths.c --- */

/* <dir>/step-NNNNNNNNN into path[DT_PATH_MAX]. */
dt_status dt_checkpoint_path(char *path, const char *dir, int64_t step);
/* Steps of the folders "step-NNN" in `dir`, newest first; none if the folder is missing.
 * free(*steps). */
dt_status dt_checkpoint_list(int64_t **steps, int *n_steps, const char *dir);
/* Whether `path` is one checkpoint (*is_one: named step-NNN, or with a manifest or state.json) or
 * contains checkpoints, whose folder goes to dir[DT_PATH_MAX]; for a run folder that is
 * "path/checkpoints". DT_ERR_NO_INPUT if `path` is not a folder. */
dt_status dt_checkpoint_locate(char *dir, bool *is_one, const char *path);

/* --- Writing: checkpoint_write.c, paths.c --- */

struct dt_snapshot;

/* Values that are the same for all saves of a run. The caller keeps the texts alive. */
struct dt_checkpoint_target {
    const char *dir;
    const char *config_json;
    const char *classes; /* names with a newline after each, NULL = none */
    uint64_t config_hash;
    const char *run_id, *build_id, *repro;
    int64_t incarnation;
    int64_t resumed_step; /* of the checkpoint the run resumed from, -1 = from scratch */
    struct dt_config_checkpoint config; /* keep, keep_best, keep_every */
    /* Called right before the rename that makes a checkpoint visible; a failure abandons it.
     * NULL = always. */
    dt_status (*may_commit)(void *context);
    void *context;
};

/* Writes the snapshot as a checkpoint, makes it durable and removes checkpoints that need not be
 * kept. Does only file I/O and beats dt_pulse_writer, so any thread may call it. The path goes to
 * path[DT_PATH_MAX]. If a checkpoint of that step already exists, verifies and has the same state,
 * it is kept instead; if it differs in evaluation or loss scale, the two are exchanged atomically.
 * Nothing is removed because it cannot be read: if the name is taken by something not known to be
 * damaged, the save fails, and checkpoints after resumed_step written by another incarnation count
 * as kept only if they verify. On failure the older checkpoints are unchanged and the temporary
 * folder is removed if possible. */
dt_status dt_checkpoint_write(char *path, const struct dt_checkpoint_target *target,
                              const struct dt_snapshot *snapshot);
/* Removes leftovers of crashes: .tmp-step-N-I, .trash-step-N, .tmp-latest-* and .tmp-best-*. Only
 * while the run folder is locked. Main thread: beats dt_pulse_main. */
void dt_checkpoint_clean(const char *dir);
/* Whether a save could begin in `dir`, if that exists: DT_ERR_PERMISSION or DT_ERR_CREATE. */
dt_status dt_checkpoint_check_dir(const char *dir);

/* --- Reading: checkpoint_verify.c, find.c, checkpoint_load.c --- */

/* DT_OK if manifest, sizes, checksums of files and tensors, tables of contents and state are as
 * written; otherwise DT_ERR_DATA (or NO_INPUT) naming the first mismatch. Any other status means
 * that the checkpoint could not be read, and says nothing about its contents. `state` may be NULL.
 * Beats dt_pulse_main. */
dt_status dt_checkpoint_verify(struct dt_checkpoint *state, const char *path);
/* The same, but calls `beat` after every block, with its size in bytes, instead of beating that
 * pulse. */
typedef void dt_checkpoint_beat(void *context, uint64_t bytes);
dt_status dt_checkpoint_verify_with(struct dt_checkpoint *state, const char *path,
                                    dt_checkpoint_beat *beat, void *context);
/* Whether a status of these functions means that the checkpoint is damaged: DT_ERR_DATA or
 * NO_INPUT. */
bool dt_checkpoint_is_damaged(dt_status status);
/* The newest checkpoint that verifies goes to path[DT_PATH_MAX] and *state; path is "" if none
 * does. A warning names each one skipped, damaged or with a read error (DT_ERR_IO), and the reason;
 * any other failure to read one is returned. */
dt_status dt_checkpoint_find(char *path, struct dt_checkpoint *state, const char *dir);
/* The configuration it was saved with. */
dt_status dt_checkpoint_config(struct dt_config *config, const char *path);
/* The names of its classes, see dt_weights_classes. */
dt_status dt_checkpoint_classes(char **classes, const char *path);
/* DT_ERR_CONFIG if the training data are not those of the saved run. dt_config_compare compares the
 * configurations. */
dt_status dt_checkpoint_match(const struct dt_checkpoint *saved,
                              const struct dt_checkpoint *current, const char *path);
/* Loads parameters, running statistics, the optimizer's states if wanted and, if the plan has them,
 * the moving averages from the verified checkpoint folder `path`; without averages there, they
 * begin as copies, with a warning. DT_ERR_CONFIG or DT_ERR_DATA if names or shapes do not fit. */
dt_status dt_checkpoint_load(struct dt_plan *plan, const char *path, bool with_states);

/* --- Text of state.json: state.c --- */

dt_status dt_checkpoint_state_print(struct dt_jsonw *w, const struct dt_checkpoint *state);
dt_status dt_checkpoint_state_load(struct dt_checkpoint *state, const char *path);

#endif
