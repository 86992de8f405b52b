/* Checkpoints: <dir>/step-000005123/{model.safetensors, optim.safetensors, state.json, config.json,
 * MANIFEST.json}, dir = <run folder>/checkpoints.
 *
 * Writing: all files go into <dir>/.tmp-step-N-I, I = incarnation, are made durable, the manifest
 * last, then the folder is renamed and its parent made durable; only then `latest` (a text file
 * with the name, a hint for humans) moves and old ones go, by a rename to .trash-step-N first. A
 * crash or a lost power supply at any point leaves the old state or the new one. Reading trusts
 * nothing but what the manifest confirms. These functions are local: rank 0 calls them. */
#ifndef DTRAIN_CHECKPOINT_CHECKPOINT_H
#define DTRAIN_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>

#include "checkpoint/manifest.h"
#include "dtrain/config.h"
#include "dtrain/plan.h"

enum { DT_MODEL_NAME_MAX = 64, DT_ORIGIN_MAX = DT_ID_MAX + 24 };

/* Where training stands and what it is about. Plain data: rank 0 broadcasts it. */
struct dt_checkpoint {
    int64_t step;         /* updates done */
    int64_t epoch, batch; /* the next global batch to train on */
    int64_t n_passes;     /* forward passes of a rank: num_batches_tracked of every batch norm */
    double best_top1;     /* per cent, -1 = no evaluation yet */
    int64_t best_step;    /* of best_top1 */
    bool eval_due;        /* the run stopped before an evaluation: it comes first now */
    int n_ranks, micro_batch_size;
    int precision;                   /* enum dt_precision, -1 = not recorded */
    struct dt_loss_scale loss_scale; /* fp16; a scale of 0 = none */
    char origin[DT_ORIGIN_MAX];      /* the checkpoint of another folder it began with, "" = none */
    /* What must be the same to go on. */
    char model[DT_MODEL_NAME_MAX];
    int num_classes, image_size, global_batch_size;
    uint64_t seed, fingerprint;
    int64_t n_train_images;
};

/* <dir>/step-NNNNNNNNN into path[DT_PATH_MAX]. */
dt_status dt_checkpoint_path(char *path, const char *dir, int64_t step);

/* --- Writing: write.c --- */

struct dt_snapshot;

/* What stays the same over the saves of a run. Texts are kept by the caller. */
struct dt_checkpoint_target {
    const char *dir;
    const char *config_json;
    uint64_t config_hash;
    const char *run_id, *build_id, *repro;
    int64_t incarnation;
    int64_t resumed_step; /* of the checkpoint the run began with, -1 = from scratch */
    struct dt_config_checkpoint config; /* keep, keep_best, keep_every */
    /* Called directly before the rename that makes a checkpoint visible; a failure abandons it. */
    dt_status (*may_commit)(void *context);
    void *context;
};

/* Writes the snapshot as a checkpoint, makes it durable, removes what need not be kept. Does
 * nothing but file I/O and beats of dt_pulse_writer: any thread. The path goes to
 * path[DT_PATH_MAX]. A checkpoint of that step that is there already, verifies and stands where
 * this one does is kept instead; if it differs in evaluation or loss scale, the two are exchanged
 * in one step. Nothing is removed because it cannot be read: what has the name and is not known to
 * be damaged fails the save, and those after resumed_step that another incarnation has written
 * count as kept ones only if they verify. On failure the older checkpoints are as they were and the
 * temporary folder is gone, if that can be done. */
dt_status dt_checkpoint_write(char *path, const struct dt_checkpoint_target *target,
                              const struct dt_snapshot *snapshot);
/* Removes what crashes have left: .tmp-* and .trash-*. Only while the run folder is locked. Main
 * thread: beats dt_pulse_main. */
void dt_checkpoint_clean(const char *dir);

/* --- Reading: find.c, verify.c, load.c --- */

/* Steps of the folders "step-NNN" in `dir`, newest first; a missing folder has none. free(). */
dt_status dt_checkpoint_list(int64_t **steps, int *n_steps, const char *dir);
/* What `path` is: one checkpoint (*is_one: named step-NNN, or with a manifest or state.json), or a
 * place with checkpoints: its folder goes to dir[DT_PATH_MAX], for a run folder "path/checkpoints".
 * DT_ERR_NO_INPUT if it is no folder. */
dt_status dt_checkpoint_locate(char *dir, bool *is_one, const char *path);
/* DT_OK if manifest, sizes, checksums of files and tensors, tables of contents and state are as
 * written; else DT_ERR_DATA (or NO_INPUT) with the first thing that is not. Any other status says
 * that it could not be read, and nothing about the checkpoint. `state` may be NULL. Beats
 * dt_pulse_main. */
dt_status dt_checkpoint_verify(struct dt_checkpoint *state, const char *path);
/* The same; instead of that pulse `beat` is called after every block, with its bytes. */
typedef void dt_checkpoint_beat(void *context, uint64_t bytes);
dt_status dt_checkpoint_verify_with(struct dt_checkpoint *state, const char *path,
                                    dt_checkpoint_beat *beat, void *context);
/* Whether their status says that the checkpoint is damaged: DT_ERR_DATA or NO_INPUT. */
bool dt_checkpoint_is_damaged(dt_status status);
/* The newest checkpoint that verifies goes to path[DT_PATH_MAX] and *state; path "" if there is
 * none. Those skipped, damaged or with errors of reading (DT_ERR_IO), are named in warnings with
 * the reason; any other failure to read one is returned. */
dt_status dt_checkpoint_find(char *path, struct dt_checkpoint *state, const char *dir);
/* The configuration it was saved with. */
dt_status dt_checkpoint_config(struct dt_config *config, const char *path);
/* DT_ERR_CONFIG if the training data are not those of the saved run. What the configuration says is
 * dt_config_compare's. */
dt_status dt_checkpoint_match(const struct dt_checkpoint *saved,
                              const struct dt_checkpoint *current, const char *path);
/* Params, running statistics and momentum from the checkpoint folder `path`, which has been
 * verified. DT_ERR_CONFIG or DT_ERR_DATA if names and shapes are not the plan's. */
dt_status dt_checkpoint_load(struct dt_plan *plan, const char *path);

/* --- Text of state.json: state.c --- */

dt_status dt_checkpoint_state_print(struct dt_jsonw *w, const struct dt_checkpoint *state);
dt_status dt_checkpoint_state_load(struct dt_checkpoint *state, const char *path);

#endif
