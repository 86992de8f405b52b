/* Finds the checkpoint from which a run starts, and decides whether it may. Rank 0 reads, the
 * others receive copies. */
#include "train/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

enum { LIST_BYTES = 4096 };

/* --- Which checkpoint --- */

static dt_status find_path(struct dt_resume *resume, const char *path)
{
    char dir[DT_PATH_MAX];
    bool is_one;
    if (dt_checkpoint_locate(dir, &is_one, path) != DT_OK)
        DT_FAIL(DT_ERR_NO_CHECKPOINT, "cannot resume: %s", dt_error_text());
    if (is_one) {
        DT_TRY(dt_file_path(resume->path, "%s", path));
        dt_status status = dt_checkpoint_verify(&resume->state, path);
        if (dt_checkpoint_is_damaged(status))
            DT_FAIL(DT_ERR_NO_CHECKPOINT, "cannot resume from %s: %s", path, dt_error_text());
        DT_TRY(status);
        return DT_OK;
    }
    DT_TRY(dt_checkpoint_find(resume->path, &resume->state, dir));
    if (resume->path[0] == '\0')
        DT_FAIL(DT_ERR_NO_CHECKPOINT, "cannot resume: %s holds no good checkpoint", dir);
    return DT_OK;
}

/* Resuming from an older checkpoint would leave later ones of a different history in the run
 * folder. Damaged ones do not count. */
static dt_status check_no_later(const struct dt_resume *resume, const char *dir)
{
    char path[DT_PATH_MAX];
    int64_t *steps = NULL;
    int n_steps = 0;
    dt_status status = DT_OK;
    DT_TRY(dt_checkpoint_list(&steps, &n_steps, dir));
    for (int i = 0; i < n_steps && steps[i] > resume->state.step; i++) {
        DT_TRY_OUT(dt_checkpoint_path(path, dir, steps[i]));
        dt_status found = dt_checkpoint_verify(NULL, path);
        if (found != DT_OK && !dt_checkpoint_is_damaged(found))
            DT_TRY_OUT(found);
        if (found == DT_OK)
            DT_TRY_OUT(DT_ERROR(
                DT_ERR_CREATE,
                "%s is later than %s and would be mixed up with the new run; choose another --out, "
                "or use --resume auto to continue from it",
                path, resume->path));
    }
out:
    free(steps);
    return status;
}

/* A crash never leaves only damaged checkpoints, so a new run must not overwrite them. */
static dt_status find_newest(struct dt_resume *resume, const char *rule, const char *dir)
{
    char bad[LIST_BYTES];
    struct dt_text text = dt_text_in(bad, sizeof bad);
    int64_t *steps;
    int n_steps;
    DT_TRY(dt_checkpoint_find(resume->path, &resume->state, dir));
    resume->found = resume->is_own = resume->path[0] != '\0';
    if (resume->found)
        return DT_OK;
    DT_TRY(dt_checkpoint_list(&steps, &n_steps, dir));
    for (int i = 0; i < n_steps; i++)
        dt_text_add(&text, "%sstep-%09" PRId64, i ? ", " : "", steps[i]);
    free(steps);
    if (n_steps > 0)
        DT_FAIL(DT_ERR_NO_CHECKPOINT,
                "--resume %s: %s holds no good checkpoint; damaged: %s; repair or remove them, or "
                "choose another --out",
                rule, dir, bad);
    if (strcmp(rule, "must") == 0)
        DT_FAIL(DT_ERR_NO_CHECKPOINT, "--resume must: %s holds no complete checkpoint", dir);
    return DT_OK;
}

static bool is_among(const char *path, const char *dir)
{
    char parent[DT_PATH_MAX];
    struct stat a, b;
    return (size_t)snprintf(parent, sizeof parent, "%s/..", path) < sizeof parent &&
           stat(parent, &a) == 0 && stat(dir, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* The same command was repeated after a stop: it continues from its own newest checkpoint. */
static dt_status take_descendant(struct dt_resume *resume, const char *dir)
{
    char path[DT_PATH_MAX], origin[DT_ORIGIN_MAX];
    struct dt_checkpoint newest;
    struct dt_manifest m;
    DT_TRY(dt_manifest_load(&m, resume->path));
    snprintf(origin, sizeof origin, "%s step %" PRId64, m.run_id, m.step);
    dt_manifest_reset(&m);
    DT_TRY(dt_checkpoint_find(path, &newest, dir));
    if (path[0] == '\0' || strcmp(newest.origin, origin) != 0) {
        memcpy(resume->state.origin, origin, sizeof origin);
        return DT_OK;
    }
    dt_log(DT_LOG_INFO, "%s, which began with %s, already exists: continuing from it", path,
           resume->path);
    memcpy(resume->path, path, sizeof path);
    resume->state = newest;
    resume->is_own = true;
    return DT_OK;
}

static dt_status choose_checkpoint(struct dt_resume *resume, const char *rule, const char *dir)
{
    bool never = strcmp(rule, "never") == 0;
    if (!never && strcmp(rule, "must") != 0 && strcmp(rule, "auto") != 0) {
        DT_TRY(find_path(resume, rule));
        resume->found = true;
        resume->is_own = is_among(resume->path, dir);
        if (!resume->is_own)
            DT_TRY(take_descendant(resume, dir));
        return check_no_later(resume, dir);
    }
    DT_TRY(find_newest(resume, rule, dir));
    if (never && resume->found)
        DT_FAIL(
            DT_ERR_CREATE,
            "--resume never: %s exists from an earlier run; choose another --out, remove it, or "
            "use --resume auto",
            resume->path);
    return DT_OK;
}

/* --- Whether this run may continue from it --- */

/* Joins the lines of a list into one log line. */
static const char *one_line(char *list)
{
    char *out = list;
    const char *in = list + strspn(list, " ");
    while (*in) {
        bool ends = *in == '\n';
        *out++ = ends ? ';' : *in;
        in += ends ? strspn(in, "\n ") : 1;
        if (ends)
            *out++ = ' ';
    }
    *out = '\0';
    return list;
}

/* Whether the saved batch is what its epoch has in this run, or, where an epoch has just ended,
 * what the one before had. */
static bool is_own_batch(const struct dt_checkpoint *state, const struct dt_engine *engine)
{
    const int plain = dt_config_batch_size(engine->config, engine->ranks.n_ranks);
    int64_t last = state->epoch - (state->batch == 0);
    return state->global_batch_size ==
               dt_config_stage(engine->config, plain, state->epoch, NULL).batch ||
           state->global_batch_size == dt_config_stage(engine->config, plain, last, NULL).batch;
}

static dt_status check_config(struct dt_resume *resume, struct dt_engine *engine)
{
    struct dt_config *saved = &resume->saved, now = *engine->config;
    char refused[LIST_BYTES], inexact[LIST_BYTES];
    DT_TRY(dt_checkpoint_config(saved, resume->path));
    dt_config_make_absolute(&now);
    if (now.train.precision == DT_PRECISION_AUTO)
        now.train.precision = saved->train.precision; /* else dt_resume_load says so */
    dt_config_make_absolute(saved);                   /* older runs stored paths as given */
    dt_config_compare(saved, &now, refused, inexact, LIST_BYTES);
    if (!refused[0] && !is_own_batch(&resume->state, engine))
        snprintf(refused, LIST_BYTES,
                 "    train.batch_size_per_rank: %d made a global batch of %d on %d rank%s, now %d "
                 "on %d",
                 engine->config->train.batch_size_per_rank, resume->state.global_batch_size,
                 resume->state.n_ranks, DT_S(resume->state.n_ranks), engine->stage.split.images,
                 engine->ranks.n_ranks);
    if (refused[0] && !resume->may_differ)
        DT_FAIL(DT_ERR_CONFIG,
                "cannot resume from %s, which belongs to a different run:\n%s\n    with the old "
                "values: dtrain resume %s; with the new ones: add --allow-config-change; as a new "
                "run: another --out",
                resume->path, refused, resume->is_own ? engine->config->output.dir : "RUN");
    if (refused[0])
        dt_log(DT_LOG_WARNING, "continuing as a different run: %s", one_line(refused));
    resume->new_optimizer = saved->optim.name != engine->config->optim.name;
    if (resume->new_optimizer)
        dt_log(DT_LOG_WARNING, "optim.name has changed: momentum and all other states of the "
                               "optimizer start at 0");
    if (inexact[0])
        dt_log(DT_LOG_INFO, "the resumed run will not be bit-identical: %s", one_line(inexact));
    const struct dt_checkpoint *state = &resume->state;
    if (saved->train.micro_batch_size <= 0 && is_own_batch(state, engine))
        engine->saved_parts = state->n_parts;
    return DT_OK;
}

dt_status dt_resume_find(struct dt_resume *resume, struct dt_engine *engine,
                         const struct dt_train_options *options, const char *dir)
{
    dt_status status = DT_OK;
    *resume = (struct dt_resume){.may_differ = options->allow_config_change};
    if (engine->ranks.rank == 0)
        status = choose_checkpoint(resume, options->resume, dir);
    if (status == DT_OK && resume->found)
        status = check_config(resume, engine);
    DT_TRY(dt_comm_agree(engine->ranks.comm, status));
    DT_TRY(dt_comm_bcast(engine->ranks.comm, &engine->saved_parts, sizeof engine->saved_parts, 0));
    DT_TRY(dt_comm_bcast(engine->ranks.comm, resume, sizeof *resume, 0));
    engine->saved_batch = resume->state.global_batch_size;
    engine->saved_precision = resume->found ? resume->state.precision : -1;
    dt_engine_enter(engine, resume->state.epoch);
    return DT_OK;
}
