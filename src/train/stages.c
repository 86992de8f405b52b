/* What changes from one epoch to the next: the stage (train.stages) and what is frozen. Graph, plan
 * and training loader are then built anew, and the state moves by name, as if the run had stopped
 * and resumed. */
#include <stdio.h>

#include "checkpoint/snapshot.h"
#include "train/session.h"

static bool freezes(const struct dt_session *s, int64_t epoch)
{
    const struct dt_config_optim *optim = &s->config->optim;
    return optim->freeze[0] && (optim->unfreeze_epoch == 0 || epoch < optim->unfreeze_epoch);
}

static struct dt_train_stage stage_of(const struct dt_session *s, int64_t epoch, int *index)
{
    return dt_config_stage(s->config, dt_config_batch_size(s->config, s->ranks.n_ranks), epoch,
                           index);
}

void dt_session_enter(struct dt_session *s, int64_t epoch)
{
    const struct dt_train_stage stage = stage_of(s, epoch, &s->engine.stage.index);
    s->engine.stage.epoch = epoch;
    s->engine.stage.is_frozen = freezes(s, epoch);
    s->engine.stage.image_size = stage.image_size;
    s->engine.stage.global_batch_size = stage.batch;
    s->engine.stage.steps_per_epoch = dt_schedule_steps(s->sets.n_images, stage.batch);
}

static bool has_other_input(const struct dt_session *s, int64_t epoch)
{
    const struct dt_train_stage stage = stage_of(s, epoch, NULL);
    return stage.image_size != s->engine.stage.image_size ||
           stage.batch != s->engine.stage.global_batch_size;
}

bool dt_session_differs(const struct dt_session *s, int64_t epoch)
{
    return s->engine.stage.is_frozen != freezes(s, epoch) || has_other_input(s, epoch);
}

const char *dt_session_batch_key(const struct dt_session *s, char out[DT_STAGE_KEY])
{
    bool in_stage =
        s->engine.stage.index >= 0 && s->config->train.stages[s->engine.stage.index].batch > 0;
    snprintf(out, DT_STAGE_KEY, "train.stages[%d].batch", s->engine.stage.index);
    return in_stage ? out : dt_config_batch_key(s->config);
}

/* --- Before training --- */

static dt_status check_stage(struct dt_session *s)
{
    if (s->engine.n_canvases == 0 && s->engine.stage.image_size < s->engine.model->min_image_size)
        DT_FAIL(DT_ERR_CONFIG,
                "train.stages[%d].image_size: %d is too small for %s, which needs at least %d",
                s->engine.stage.index, s->engine.stage.image_size, s->engine.model->name,
                s->engine.model->min_image_size);
    return dt_session_split_batch(s);
}

dt_status dt_session_check_stages(struct dt_session *s, const struct dt_session_needs *needs)
{
    const int64_t now = s->engine.stage.epoch;
    const struct dt_config_train *train = &s->config->train;
    struct dt_session_needs layout = *needs;
    layout.layout_only = true;
    for (int i = 0; i < train->n_stages; i++) {
        dt_session_enter(s, train->stages[i].epoch);
        DT_TRY(dt_comm_agree(s->ranks.comm, check_stage(s)));
        DT_TRY(dt_session_build(s, &layout));
        s->engine.stage_bytes[i] = dt_plan_bytes(s->engine.plan);
        dt_status status = needs->layout_only ? DT_OK : dt_plan_check_memory(s->engine.plan);
        dt_session_release(s);
        if (status != DT_OK)
            DT_ERROR(status, "train.stages[%d]: %s", i, dt_error_text());
        DT_TRY(dt_comm_agree(s->ranks.comm, status));
    }
    dt_session_enter(s, now);
    return train->n_stages > 0 ? dt_session_split_batch(s) : DT_OK;
}

/* --- Between epochs --- */

/* All training state of this rank in host memory. */
static dt_status copy_state(struct dt_snapshot **copy, const struct dt_session *s)
{
    static const struct dt_checkpoint unused;
    DT_TRY(dt_snapshot_create(copy, s->engine.plan));
    return dt_snapshot_take(*copy, &unused);
}

static dt_status rebuild(struct dt_session *s, struct dt_snapshot *copy, int64_t epoch)
{
    const struct dt_session_needs needs = {.train = true, .eval = s->sets.val != NULL};
    const struct dt_plan_times times = s->engine.plan->times;
    const bool has_new_input = has_other_input(s, epoch);
    dt_session_release(s);
    if (has_new_input)
        dt_session_close_loader(s, &s->sets.train);
    dt_session_enter(s, epoch);
    if (has_new_input)
        DT_TRY(dt_comm_agree(s->ranks.comm, dt_session_split_batch(s)));
    DT_TRY(dt_session_build(s, &needs));
    s->engine.plan->times = times;
    dt_snapshot_set_plan(copy, s->engine.plan);
    DT_TRY(dt_comm_agree(s->ranks.comm, dt_snapshot_restore(copy)));
    return has_new_input ? dt_comm_agree(s->ranks.comm, dt_session_open_loader(s, true)) : DT_OK;
}

dt_status dt_session_rebuild(struct dt_session *s, int64_t epoch)
{
    struct dt_snapshot *copy = NULL;
    dt_status status = dt_comm_agree(s->ranks.comm, copy_state(&copy, s));
    if (status == DT_OK)
        status = rebuild(s, copy, epoch);
    dt_snapshot_destroy(copy);
    return status;
}
