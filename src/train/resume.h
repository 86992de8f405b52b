/* Where a run begins: from a checkpoint, from given weights, or from scratch. */
#ifndef DTRAIN_TRAIN_RESUME_H
#define DTRAIN_TRAIN_RESUME_H

#include "train/session.h"

struct dt_resume {
    bool found;
    struct dt_checkpoint state;
    char path[DT_PATH_MAX]; /* the checkpoint folder */
};

/* Decides for rule "auto" (newest complete checkpoint in `dir`, or none), "must"
 * (DT_ERR_NO_CHECKPOINT if none), "never" (DT_ERR_CREATE if there is one: it would be overwritten)
 * or a path of a checkpoint or run folder. Collective; all ranks get the same. */
dt_status dt_resume_find(struct dt_resume *resume, struct dt_session *s, const char *rule,
                         const char *dir);
/* Sets weights, running statistics and momentum of all ranks. *state is where training stands: that
 * of the checkpoint, which must belong to this run, or the beginning. Collective. */
dt_status dt_resume_load(struct dt_checkpoint *state, const struct dt_resume *resume,
                         struct dt_session *s);

#endif
