/* One pass over one batch, for training and for the benchmark. */
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

dt_status dt_session_pass(struct dt_session *s, const struct dt_batch *batch,
                          const struct dt_scalars *scalars, int pass)
{
    dt_status status = dt_plan_feed(s->plan, DT_TRAIN, batch->pixels, batch->labels);
    dt_loader_release(s->train, batch);
    DT_TRY(status);
    struct dt_scalars own = *scalars;
    own.first_row = (uint32_t)((s->rank * s->n_passes + pass) * s->micro_batch);
    return dt_plan_train(s->plan, &own, pass, s->n_passes);
}
