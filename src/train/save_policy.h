/* When to save and how to handle the result: the trainer's view of the writer. Rank 0 copies and
 * writes; the other ranks take part in the decisions and in the comparison before each save. */
#ifndef DTRAIN_TRAIN_SAVE_POLICY_H
#define DTRAIN_TRAIN_SAVE_POLICY_H

#include "checkpoint/run_folder.h"
#include "checkpoint/writer.h"
#include "engine/engine.h"

struct dt_save_policy {
    struct dt_engine *engine;
    struct dt_writer *writer; /* rank 0, else NULL */
    struct dt_checkpoint_target target;
    char dir[DT_PATH_MAX];  /* of the checkpoints */
    char last[DT_PATH_MAX]; /* the newest durable one, "" = none; rank 0 */
    char repro[256];        /* device and libraries, on which the bits of a run also depend */
    int64_t begun_step;     /* of the newest begun or loaded, -1 = none; all ranks */
    int n_failed;           /* saves in a row */
    bool is_late;           /* a save was due while another was under way; rank 0 */
    double ended_s;         /* when the last save ended */
    double stall_s;         /* how long the last save held up training */
    double longest_s;       /* longest save so far, until durable */
};

/* Sets the folder of the checkpoints; dt_save_policy_open does the rest. Local. */
dt_status dt_save_policy_init(struct dt_save_policy *policy, struct dt_engine *engine);
/* Rank 0: allocates the snapshot and checks that there is space. `folder` is locked; it and
 * the texts must outlive the policy. classes: as dt_sets.classes_text. */
dt_status dt_save_policy_open(struct dt_save_policy *policy, struct dt_run_folder *folder,
                              const char *config_json, const char *classes);
void dt_save_policy_close(struct dt_save_policy *policy); /* waits for the save under way */

/* *is_off: a save is still under way, so the one due now is postponed until it ends
 * (dt_save_policy_due_s) and training does not wait for a slow disk. The same on all ranks.
 * Collective. */
dt_status dt_save_policy_put_off(struct dt_save_policy *policy, bool *is_off);
/* Compares the ranks' weights, then begins a save; sets at->loss_scale. Collective. */
dt_status dt_save_policy_begin(struct dt_save_policy *policy, struct dt_checkpoint *at);
/* Reports a save that has ended, or warns that it has failed. Returns an error only if another run
 * has taken over the folder. Does nothing on ranks other than 0. */
dt_status dt_save_policy_poll(struct dt_save_policy *policy);
/* dt_clock_s at which the next timed save, or the next attempt after a failed one, is due; INFINITY
 * = none is scheduled. */
double dt_save_policy_due_s(const struct dt_save_policy *policy);
/* Waits until the save that was begun is durable; retries for a limited time if it fails. If the
 * run folder is lost, saves in a new one, RUN-rescued-step-N, and returns DT_ERR_IO. Collective. */
dt_status dt_save_policy_finish(struct dt_save_policy *policy, const struct dt_checkpoint *at);

#endif
