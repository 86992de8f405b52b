/* Finding and loading the point at which a run begins. Rank 0 reads, the others get copies. */
#include "train/resume.h"

#include <stdio.h>
#include <string.h>

#include "dtrain/file.h"
#include "dtrain/log.h"

static dt_status find_path(struct dt_resume *resume, const char *path)
{
    char file[DT_PATH_MAX], dir[DT_PATH_MAX];
    DT_TRY(dt_file_path(file, "%s/state.json", path));
    DT_TRY(dt_file_path(dir, "%s/checkpoints", path));
    if (dt_file_exists(file)) {
        DT_TRY(dt_file_path(resume->path, "%s", path));
        if (dt_checkpoint_read_state(&resume->state, path) != DT_OK)
            DT_FAIL(DT_ERR_NO_CHECKPOINT, "cannot resume: %s", dt_error_text());
        return DT_OK;
    }
    DT_TRY(dt_checkpoint_find(resume->path, &resume->state, dir));
    if (resume->path[0] == '\0')
        DT_FAIL(DT_ERR_NO_CHECKPOINT,
                "cannot resume: %s is neither a checkpoint folder nor a run folder with one", path);
    return DT_OK;
}

/* Going back inside a run folder would leave later checkpoints there that belong to another story.
 */
static dt_status check_no_later(const struct dt_resume *resume, const char *dir)
{
    struct dt_resume newest;
    DT_TRY(dt_checkpoint_find(newest.path, &newest.state, dir));
    if (newest.path[0] && newest.state.step > resume->state.step)
        DT_FAIL(DT_ERR_CREATE,
                "%s is later than %s and would be mixed up with the new run; choose another --out",
                newest.path, resume->path);
    return DT_OK;
}

static dt_status find(struct dt_resume *resume, const char *rule, const char *dir)
{
    bool never = strcmp(rule, "never") == 0, must = strcmp(rule, "must") == 0;
    if (!never && !must && strcmp(rule, "auto") != 0) {
        DT_TRY(find_path(resume, rule));
        DT_TRY(check_no_later(resume, dir));
        resume->found = true;
        return DT_OK;
    }
    DT_TRY(dt_checkpoint_find(resume->path, &resume->state, dir));
    resume->found = resume->path[0] != '\0';
    if (never && resume->found)
        DT_FAIL(
            DT_ERR_CREATE,
            "--resume never: %s is there from an earlier run; choose another --out, remove it, or "
            "use --resume auto",
            resume->path);
    if (must && !resume->found)
        DT_FAIL(DT_ERR_NO_CHECKPOINT, "--resume must: %s holds no complete checkpoint", dir);
    return DT_OK;
}

dt_status dt_resume_find(struct dt_resume *resume, struct dt_session *s, const char *rule,
                         const char *dir)
{
    *resume = (struct dt_resume){0};
    DT_TRY(dt_session_agree(s, s->rank == 0 ? find(resume, rule, dir) : DT_OK));
    return dt_comm_bcast(s->comm, resume, sizeof *resume, 0);
}

static struct dt_checkpoint describe(const struct dt_session *s)
{
    struct dt_checkpoint state = {
        .best_top1 = -1,
        .n_ranks = s->n_ranks,
        .precision = (int)s->config->train.precision,
        .num_classes = s->config->model.num_classes,
        .image_size = s->config->model.image_size,
        .global_batch = s->global_batch,
        .seed = s->config->train.seed,
        .fingerprint = dt_dataset_fingerprint(s->train_set),
        .n_train_images = dt_dataset_size(s->train_set),
    };
    snprintf(state.model, sizeof state.model, "%s", s->model->name);
    return state;
}

static dt_status load(struct dt_session *s, const struct dt_resume *resume)
{
    const char *init_from = s->config->model.init_from;
    if (s->rank != 0)
        return DT_OK;
    if (resume->found)
        return dt_checkpoint_load(s->plan, resume->path);
    DT_TRY(dt_plan_init_params(s->plan, s->config->train.seed));
    if (init_from[0] == '\0')
        return DT_OK;
    char path[DT_PATH_MAX];
    DT_TRY(dt_weights_find(path, init_from));
    return dt_weights_load(s->plan, path, s->model->head, true);
}

/* Weights and momentum are fp32 in a checkpoint, so any precision can go on from it. */
static void adopt(struct dt_checkpoint *state, const struct dt_checkpoint *saved,
                  const struct dt_session *s)
{
    *state = *saved;
    state->n_ranks = s->n_ranks;
    state->precision = (int)s->config->train.precision;
    if (saved->n_ranks != s->n_ranks)
        dt_log(DT_LOG_INFO,
               "resuming a run of %d rank(s) on %d: same samples and schedule; results are equal "
               "up to rounding, not bit for bit",
               saved->n_ranks, s->n_ranks);
    if (saved->precision >= 0 && saved->precision != state->precision)
        dt_log(DT_LOG_INFO, "resuming a run of train.precision %s with %s",
               dt_precision_name((enum dt_precision)saved->precision),
               dt_precision_name(s->config->train.precision));
}

/* A fixed scale is the configuration's. */
static dt_status load_loss_scale(struct dt_checkpoint *state, const struct dt_session *s)
{
    const struct dt_loss_scale saved = state->loss_scale;
    bool dynamic = s->config->train.loss_scale == 0;
    state->loss_scale = (struct dt_loss_scale){0};
    if (!dt_session_scales_loss(s))
        return DT_OK;
    if (saved.scale > 0 && dynamic)
        DT_TRY(s->backend->set_loss_scale(s->device, &saved));
    return s->backend->get_loss_scale(s->device, &state->loss_scale);
}

dt_status dt_resume_load(struct dt_checkpoint *state, const struct dt_resume *resume,
                         struct dt_session *s)
{
    *state = describe(s);
    if (resume->found) {
        dt_status status = dt_checkpoint_match(&resume->state, state, resume->path);
        DT_TRY(dt_session_agree(s, status));
        adopt(state, &resume->state, s);
    }
    DT_TRY(dt_session_agree(s, load_loss_scale(state, s)));
    DT_TRY(dt_session_agree(s, load(s, resume)));
    return dt_plan_broadcast(s->plan);
}
