/* A training run: the state shared by the loop (trainer.c) and beginning and end of the run
 * (run.c). */
#ifndef DTRAIN_TRAIN_RUN_H
#define DTRAIN_TRAIN_RUN_H

#include "checkpoint/run_folder.h"
#include "dtrain/train.h"
#include "engine/stop.h"
#include "eval/evaluator.h"
#include "trace/timeline.h"
#include "train/best.h"
#include "train/metrics.h"
#include "train/save_policy.h"
#include "watch/stragglers.h"
#include "watch/watchdog.h"

enum { DT_STEP_TIMES = 63 };

struct run;

/* The steps of a comm.mode, as far as they differ; all may be NULL. begin, step and sync_weights
 * are collective; their status is this rank's. */
struct dt_mode_steps {
    dt_status (*begin)(struct run *r); /* before the first step */
    /* Instead of one step of all ranks: trains until the next synchronisation, n_steps later. */
    dt_status (*step)(struct run *r, int64_t n_steps);
    /* After a step after which all ranks must have the same weights. */
    dt_status (*sync_weights)(struct run *r);
    void (*report)(struct run *r, bool is_last); /* at the end of an epoch */
    void (*end)(struct run *r);                  /* releases what begin has made */
};
extern const struct dt_mode_steps dt_async_steps;

struct run {
    struct dt_sets sets;
    struct dt_engine engine;
    struct dt_evaluator evaluator; /* closed if there is no validation set */
    struct dt_checkpoint at;       /* position of training */
    struct dt_metrics metrics;
    struct dt_stop stop;
    struct dt_save_policy save_policy;
    struct dt_stragglers stragglers;
    struct dt_telemetry telemetry;
    struct dt_timeline timeline;
    struct dt_run_folder folder; /* rank 0 */
    struct dt_due due;           /* after the step under way, or the next synchronisation */
    const struct dt_mode_steps *mode;
    struct dt_async *async;  /* of async.c, else NULL */
    int64_t last_sync_step;  /* the last one after which all ranks had the same weights */
    const char *stop_reason; /* NULL = continue */
    bool was_complete;       /* nothing to do */
    double top1;             /* of the last evaluation, -1 = none */
    double begin_s;
    int64_t begin_step;
    double step_s[DT_STEP_TIMES]; /* of the last steps, a ring buffer */
    int64_t n_step_s;
    char *config_json;
};

/* Everything from locking the run folder to printing the summary; then the loop may start, unless
 * was_complete. Collective. */
dt_status dt_run_begin(struct run *r, const struct dt_train_options *options);
/* Sends the last event and updates RUN. `status` is the result of the loop. Collective unless it
 * failed. */
dt_status dt_run_end(struct run *r, dt_status status);
bool dt_run_is_complete(const struct run *r);

/* --- trainer.c: for modes that have steps of their own --- */

dt_status dt_run_next_batch(struct run *r, const struct dt_batch **batch);
/* From here on the time belongs to computing, until the next batch. */
void dt_run_enter_compute(struct run *r);
/* Ranks tell each other what failed (`status`, of this rank) and what is due, which goes to r->due.
 * Collective. */
dt_status dt_run_agree(struct run *r, dt_status status);

/* --- summary.c: the run that is about to start, as lines (rank 0) and as an event --- */

struct dt_summary {
    const struct dt_engine *engine;
    const struct dt_sets *sets;
    const char *run_dir, *start; /* "from scratch", "from .../step-N" */
    uint64_t checkpoint_bytes;
    int64_t n_parameters;
    double seconds;  /* since dt_train was called */
    const char *end; /* why the run may stop before its last step, or "" */
};
void dt_summary_print(const struct dt_summary *summary);
/* --dry-run: schedule and memory. Rank 0. */
void dt_summary_print_dry(const struct dt_engine *engine, const struct dt_sets *sets, FILE *out);

/* Sends run_start; `config_json` is the complete configuration. Collective. */
dt_status dt_announce_start(struct dt_engine *engine, struct dt_sets *sets, const char *config_json,
                            int64_t start_step);

/* --- resume.c, resume_load.c: from a checkpoint, from given weights, or from scratch --- */

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
