/* One step: batches, passes over them, and what the ranks ask each other meanwhile. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/pulse.h"
#include "base/sort.h"
#include "train/run.h"

static void lap(struct run *r, enum dt_lap kind)
{
    dt_lap(&r->metrics.laps, &r->session, kind);
}

static dt_status next_batch(struct run *r, const struct dt_batch **batch)
{
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_DATA);
    dt_fault_at_section(DT_SECTION_DATA);
    lap(r, DT_LAP_OTHER);
    dt_status status = dt_loader_next(r->session.sets.train, batch);
    lap(r, DT_LAP_DATA);
    if (!*batch && status == DT_OK)
        DT_FAIL(DT_ERR_INTERNAL, "the epoch ended before step %" PRId64, r->at.step + 1);
    return status;
}

static int64_t steps_between_meetings(const struct dt_session *s)
{
    return s->ranks.sync_every < s->engine.stage.steps_per_epoch ? s->ranks.sync_every
                                                                 : s->engine.stage.steps_per_epoch;
}

static dt_status ask(struct run *r, dt_status status)
{
    r->stop.save_at_s = dt_save_policy_due_s(&r->save_policy);
    r->stop.save_s = r->save_policy.longest_s;
    r->stop.log_at_s = dt_metrics_due_s(&r->metrics, &r->session);
    r->stop.n_steps = steps_between_meetings(&r->session);
    return dt_stop_ask(&r->stop, r->session.ranks.comm, r->at.step, status);
}

/* What is due between two meetings stays due until the next. */
static dt_status hear(struct run *r, dt_status status)
{
    const struct dt_due before = r->due;
    DT_TRY(dt_stop_hear(&r->stop, r->session.ranks.comm, status, &r->due));
    r->due.stop = r->due.stop ? r->due.stop : before.stop;
    r->due.save |= before.save;
    return DT_OK;
}

dt_status dt_step_meet(struct run *r, dt_status status)
{
    DT_TRY(ask(r, status));
    return hear(r, status);
}

/* Reads and saves fail in the middle of a run on one rank: it ends the step with the others, which
 * learn of it meanwhile, and all leave with one message. */
static dt_status train_step(struct run *r)
{
    struct dt_session *s = &r->session;
    struct dt_scalars scalars = dt_session_scalars(s, r->at.step);
    dt_status own = dt_save_policy_poll(&r->save_policy);
    for (int pass = 0; pass < s->engine.stage.n_passes; pass++) {
        const struct dt_batch *batch = NULL;
        dt_status status = next_batch(r, &batch);
        own = own == DT_OK ? status : own;
        if (!batch)
            return own;
        if (pass == s->engine.stage.n_passes - 1)
            DT_TRY(ask(r, own));
        lap(r, DT_LAP_OTHER);
        dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
        dt_fault_at_section(DT_SECTION_COMPUTE);
        DT_TRY(dt_session_pass(s, batch, &scalars, pass));
        lap(r, DT_LAP_COMPUTE);
    }
    return hear(r, own);
}

/* --- Ranks that meet now and then --- */

/* Whether all ranks have the same weights after the step at `at`. */
bool dt_step_is_meeting(const struct dt_session *s, const struct dt_checkpoint *at)
{
    return at->step % s->ranks.sync_every == 0 || at->batch == 0 || at->step == s->engine.last_step;
}

static int64_t steps_to_meeting(const struct dt_session *s, const struct dt_checkpoint *at)
{
    int64_t n = s->ranks.sync_every - at->step % s->ranks.sync_every;
    n = s->engine.stage.steps_per_epoch - at->batch < n
            ? s->engine.stage.steps_per_epoch - at->batch
            : n;
    return s->engine.last_step - at->step < n ? s->engine.last_step - at->step : n;
}

static dt_status work_alone(struct run *r, int64_t step)
{
    struct dt_session *s = &r->session;
    struct dt_scalars scalars = dt_session_scalars(s, step);
    for (int pass = 0; pass < s->engine.stage.n_passes; pass++) {
        const struct dt_batch *batch = NULL;
        DT_TRY(next_batch(r, &batch));
        dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
        dt_fault_at_section(DT_SECTION_COMPUTE);
        DT_TRY(dt_session_pass(s, batch, &scalars, pass));
        lap(r, DT_LAP_COMPUTE);
    }
    return dt_async_push(&r->async, s);
}

/* All steps until the ranks meet; a worker that fails leaves early. */
static dt_status train_async(struct run *r, int64_t n_steps)
{
    struct dt_session *s = &r->session;
    dt_status own = dt_save_policy_poll(&r->save_policy);
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
    if (s->ranks.rank == 0)
        DT_TRY(dt_async_serve(&r->async, s, r->at.step));
    for (int64_t i = 0; i < n_steps && s->ranks.rank > 0 && own == DT_OK; i++)
        own = work_alone(r, r->at.step + i);
    if (s->ranks.rank > 0)
        DT_TRY(dt_async_leave(s));
    DT_TRY(dt_step_meet(r, own));
    return dt_async_meet(&r->async, s);
}

static void advance(struct dt_checkpoint *at, const struct dt_session *s, int64_t n_steps)
{
    at->step += n_steps;
    at->n_passes += n_steps * s->engine.stage.n_passes;
    at->batch += n_steps;
    if (at->batch == s->engine.stage.steps_per_epoch) {
        at->batch = 0;
        at->epoch++;
    }
    dt_pulse_step(&dt_pulse_main, at->step);
    dt_fault_at_step(at->step);
}

/* The watchdog's limit follows the median of the last steps. */
static void count_step(struct run *r, double seconds)
{
    double sorted[DT_STEP_TIMES];
    r->step_s[r->n_step_s++ % DT_STEP_TIMES] = seconds;
    if (r->n_step_s == 1) /* until now it was the limit of the start */
        dt_watchdog_set_step(seconds);
    if (r->n_step_s % DT_STEP_TIMES != 0)
        return;
    memcpy(sorted, r->step_s, sizeof sorted);
    dt_sort_f64(sorted, DT_STEP_TIMES);
    dt_watchdog_set_step(sorted[DT_STEP_TIMES / 2]);
}

dt_status dt_step_run(struct run *r)
{
    const struct dt_laps *laps = &r->metrics.laps, before = *laps;
    struct dt_session *s = &r->session;
    const bool is_async = s->engine.plan->options.parallel == DT_PARALLEL_ASYNC;
    const int64_t n_steps = is_async ? steps_to_meeting(s, &r->at) : 1;
    double begin_s = dt_clock_s();
    DT_TRY(is_async ? train_async(r, n_steps) : train_step(r));
    dt_timeline_add(r->at.step + 1, begin_s);
    advance(&r->at, s, n_steps);
    if (s->engine.plan->options.parallel == DT_PARALLEL_LOCAL && dt_step_is_meeting(s, &r->at))
        DT_TRY(dt_plan_average(s->engine.plan, (float)s->config->train.outer_momentum));
    count_step(r, dt_clock_s() - begin_s);
    if (r->n_step_s == 1)
        dt_metrics_begin_input(&r->metrics, s, r->at.step);
    if (is_async)
        return DT_OK; /* rank 0 has no work to compare */
    return dt_stragglers_step(&r->stragglers, r->at.step,
                              laps->s[DT_LAP_DATA] - before.s[DT_LAP_DATA],
                              laps->s[DT_LAP_COMPUTE] - before.s[DT_LAP_COMPUTE]);
}
