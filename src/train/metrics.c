/* Sums the device counters and the timers of all ranks once per interval and sends the step event.
 */
#include "train/metrics.h"

#include <math.h>

#include "dtrain/clock.h"

static void begin_interval(struct dt_metrics *metrics, const struct dt_session *s, int64_t step)
{
    metrics->first_step = step;
    metrics->begin_s = dt_clock_s();
    metrics->wait_s = dt_loader_wait_s(s->train);
    metrics->paused_s = 0;
    dt_plan_reset_times(s->plan);
}

void dt_metrics_init(struct dt_metrics *metrics, const struct dt_session *s, int64_t step)
{
    *metrics = (struct dt_metrics){0};
    begin_interval(metrics, s, step);
}

void dt_metrics_pause(struct dt_metrics *metrics, double seconds)
{
    metrics->paused_s += seconds;
}

/* All ranks see the same sum and decide the same, so they leave together. */
static dt_status check_loss(struct dt_session *s, double loss, int64_t first, int64_t last,
                            const char *checkpoint)
{
    if (isfinite(loss))
        return DT_OK;
    s->origin = 0;
    DT_FAIL(DT_ERR_NUMERICAL,
            "the loss is %s in steps %lld to %lld; %s%s; try a lower schedule.lr or more "
            "schedule.warmup_epochs",
            isnan(loss) ? "NaN" : "infinite", (long long)first + 1, (long long)last,
            checkpoint[0] ? "the last checkpoint is " : "there is no checkpoint yet", checkpoint);
}

dt_status dt_metrics_report(struct dt_metrics *metrics, struct dt_session *s, int64_t step,
                            int64_t epoch, double lr, const char *checkpoint)
{
    struct dt_counters counters;
    struct dt_plan_times times;
    uint64_t n_bad_now, n_bad_before;
    double n_steps = (double)(step - metrics->first_step);
    DT_TRY(s->backend->download(s->device, &counters));
    dt_plan_get_times(s->plan, &times);
    dt_loader_bad_positions(s->train, &n_bad_now, &n_bad_before);
    double elapsed_s = dt_clock_s() - metrics->begin_s - metrics->paused_s;
    double sums[] = {counters.loss,
                     (double)counters.n,
                     (double)counters.top1,
                     (double)counters.top5,
                     dt_loader_wait_s(s->train) - metrics->wait_s,
                     times.comm_s,
                     elapsed_s,
                     (double)n_bad_now,
                     (double)n_bad_before};
    DT_TRY(dt_comm_sum_f64(s->comm, sums, 9));
    DT_TRY(dt_session_check_bad(s, s->train, fmax(sums[7], sums[8])));
    DT_TRY(check_loss(s, sums[0], metrics->first_step, step, checkpoint));

    double n = sums[1], rank_steps = n_steps * s->n_ranks;
    double step_s = sums[6] / rank_steps;
    metrics->step_s = metrics->step_s > 0 ? 0.7 * metrics->step_s + 0.3 * step_s : step_s;
    const struct dt_field fields[] = {
        DT_INT("step", step),
        DT_INT("total_steps", s->last_step),
        DT_INT("epoch", epoch),
        DT_NUM("loss", sums[0] / n),
        DT_NUM("top1", 100 * sums[2] / n),
        DT_NUM("top5", 100 * sums[3] / n),
        DT_NUM("lr", lr),
        DT_NUM("images_per_s", n / n_steps / step_s),
        DT_NUM("data_wait_s", sums[4] / rank_steps),
        DT_NUM("comm_s", sums[5] / rank_steps),
        DT_NUM("eta_s", metrics->step_s * (double)(s->last_step - step)),
    };
    dt_report_event(s->report, "step", fields, sizeof fields / sizeof *fields);
    begin_interval(metrics, s, step);
    return DT_OK;
}
