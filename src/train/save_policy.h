/* When to save, and what became of it: the trainer's view of the writer. Rank 0 copies and writes;
 * the other ranks take part in the decisions and in the comparison before each save. */
#ifndef DTRAIN_TRAIN_SAVE_POLICY_H
#define DTRAIN_TRAIN_SAVE_POLICY_H

#include "checkpoint/run_folder.h"
#include "checkpoint/writer.h"
#include "train/session.h"

struct dt_save_policy {
    struct dt_session *session;
    struct dt_writer *writer; /* rank 0, else NULL */
    struct dt_checkpoint_target target;
    char dir[DT_PATH_MAX];  /* of the checkpoints */
    char last[DT_PATH_MAX]; /* the newest that is durable, "" = none; rank 0 */
    char repro[256];
    int64_t begun_step; /* of the newest that has been begun or loaded, -1 = none; all ranks */
    int n_failed;       /* saves in a row */
    bool is_late;       /* one was due while another was under way; rank 0 */
    double ended_s;     /* when the last save ended */
    double stall_s;     /* for which training stood still at the last one */
    double longest_s;   /* of all, until it was durable */
};

/* The folder of the checkpoints; the rest later. Local. */
dt_status dt_save_policy_init(struct dt_save_policy *policy, struct dt_session *s);
/* Rank 0: allocates the snapshot, makes sure there is space. The folder is locked and kept. */
dt_status dt_save_policy_open(struct dt_save_policy *policy, struct dt_run_folder *folder,
                              const char *config_json);
void dt_save_policy_close(struct dt_save_policy *policy); /* waits for the save under way */

/* Whether a save is under way, agreed by all ranks; then the one that is due now is put off until
 * that has ended (dt_save_policy_due_s): training does not wait for a slow disk. Collective. */
dt_status dt_save_policy_put_off(struct dt_save_policy *policy, bool *is_off);
/* Compares the ranks' weights, then begins a save; fills in what `at` lacks. Collective. */
dt_status dt_save_policy_begin(struct dt_save_policy *policy, struct dt_checkpoint *at);
/* Looks after a save under way: reports one that has ended, warns of one that has failed. Fails
 * only when another run has taken the folder over. Rank 0's; nothing on others. */
dt_status dt_save_policy_poll(struct dt_save_policy *policy);
/* dt_clock_s at which the next timed save, or the next attempt after a failed one, is due; INFINITY
 * = not before something else happens. */
double dt_save_policy_due_s(const struct dt_save_policy *policy);
/* Waits until what was begun is durable, and tries again for a while if it fails. Collective. */
dt_status dt_save_policy_finish(struct dt_save_policy *policy, const struct dt_checkpoint *at);

#endif
