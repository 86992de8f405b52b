/* One pass over one batch, for training, evaluation and the benchmark. */
#include <stdio.h>

#include "train/session.h"

struct dt_scalars dt_session_scalars(const struct dt_session *s, int64_t step)
{
    return (struct dt_scalars){
        .lr = (float)dt_schedule_lr(&s->schedule, step),
        .momentum = (float)s->config->optim.momentum,
        .weight_decay = (float)s->config->optim.weight_decay,
        .nesterov = s->config->optim.nesterov,
        .diff_scale = 1.0f / (float)s->global_batch,
        .step = (uint32_t)step,
    };
}

/* The device may read the batch until the feed has ended, also when the walk has failed. */
static dt_status end_feed(struct dt_session *s, struct dt_loader *loader,
                          const struct dt_batch *batch, dt_status status)
{
    char text[2048];
    snprintf(text, sizeof text, "%s", status == DT_OK ? "" : dt_error_text());
    dt_status ended = dt_plan_end_feed(s->plan);
    dt_loader_release(loader, batch);
    if (status != DT_OK && ended != DT_OK)
        DT_FAIL(status, "%s", text); /* the first error counts */
    return status != DT_OK ? status : ended;
}

dt_status dt_session_pass(struct dt_session *s, const struct dt_batch *batch,
                          const struct dt_scalars *scalars, int pass)
{
    struct dt_scalars own = *scalars;
    own.first_row = (uint32_t)((s->rank * s->n_passes + pass) * s->micro_batch);
    dt_status status = dt_plan_feed(s->plan, DT_TRAIN, batch->pixels, batch->labels);
    if (status == DT_OK)
        status = dt_plan_train(s->plan, &own, pass, s->n_passes);
    return end_feed(s, s->train, batch, status);
}

dt_status dt_session_eval_pass(struct dt_session *s, const struct dt_batch *batch)
{
    dt_status status = dt_plan_feed(s->plan, DT_EVAL, batch->pixels, batch->labels);
    if (status == DT_OK)
        status = dt_plan_eval(s->plan);
    return end_feed(s, s->val, batch, status);
}
