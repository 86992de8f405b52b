/* Start of a run: from a checkpoint, from given weights, or from scratch. */
#ifndef DTRAIN_TRAIN_RESUME_H
#define DTRAIN_TRAIN_RESUME_H

#include "dtrain/train.h"
#include "engine/engine.h"

struct dt_resume {
    bool found, is_own; /* is_own: it is in this run's folder */
    bool may_differ;    /* --allow-config-change */
    bool new_optimizer; /* another one than the checkpoint's, whose states mean something else */
    struct dt_config saved; /* of the run it is of */
    struct dt_checkpoint state;
    char path[DT_PATH_MAX]; /* the checkpoint folder, verified */
};

/* Decides by options->resume: "auto" (the newest good checkpoint in `dir`, or none), "must"
 * (DT_ERR_NO_CHECKPOINT if there is none), "never" (DT_ERR_CREATE if there is one, which would be
 * overwritten) or the path of a checkpoint, a folder of them, or a run folder (DT_ERR_NO_CHECKPOINT
 * if it is not good). If `dir` has checkpoints but none is good, all options but a path are
 * DT_ERR_NO_CHECKPOINT. If the path is in another folder, the newest checkpoint in `dir` is taken
 * if its run started from that one. DT_ERR_CONFIG if a change of the configuration makes it a
 * different run. Sets engine->saved_parts and enters its epoch. Call it before dt_engine_open.
 * Collective; all ranks get the same result. */
dt_status dt_resume_find(struct dt_resume *resume, struct dt_engine *engine,
                         const struct dt_train_options *options, const char *dir);
/* Sets weights, running statistics and momentum of all ranks. *state is the position of training:
 * the beginning, or the checkpoint's, by dt_schedule_resume; its training data must be the same
 * unless the configuration may differ. Collective. */
dt_status dt_resume_load(struct dt_checkpoint *state, const struct dt_resume *resume,
                         struct dt_engine *engine, struct dt_sets *sets);
/* Loads model.initial_checkpoint, if any, on rank 0 and describes it in engine->weights; into a
 * layout only checks that it fits. Local. */
dt_status dt_resume_initial_weights(struct dt_engine *engine);

#endif
