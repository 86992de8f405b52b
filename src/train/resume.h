/* Where a run begins: from a checkpoint, from given weights, or from scratch. */
#ifndef DTRAIN_TRAIN_RESUME_H
#define DTRAIN_TRAIN_RESUME_H

#include "dtrain/train.h"
#include "train/session.h"

struct dt_resume {
    bool found, is_own; /* is_own: it lies among the run's own */
    bool may_differ;    /* --allow-config-change */
    struct dt_checkpoint state;
    char path[DT_PATH_MAX]; /* the checkpoint folder, which has been verified */
};

/* Decides by options->resume: "auto" (the newest good checkpoint in `dir`, or none), "must"
 * (DT_ERR_NO_CHECKPOINT if there is none), "never" (DT_ERR_CREATE if there is one: it would be
 * overwritten) or the path of a checkpoint, a folder of them, or a run folder
 * (DT_ERR_NO_CHECKPOINT if it is not good). If there are checkpoints in `dir` and none is good, all
 * but a path are DT_ERR_NO_CHECKPOINT. With the path of one of another folder, the newest in `dir`
 * is taken if its run has begun with that one. DT_ERR_CONFIG if the configuration has changed in
 * what makes it another run. Sets s->saved_micro_batch_size. Before dt_session_open. Collective;
 * all ranks get the same. */
dt_status dt_resume_find(struct dt_resume *resume, struct dt_session *s,
                         const struct dt_train_options *options, const char *dir);
/* Sets weights, running statistics and momentum of all ranks. *state is where training stands: that
 * of the checkpoint, which must be of the same training data, or the beginning. Collective. */
dt_status dt_resume_load(struct dt_checkpoint *state, const struct dt_resume *resume,
                         struct dt_session *s);

#endif
