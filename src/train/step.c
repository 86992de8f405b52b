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
    dt_lap(&r->metrics.laps, &r->engine, kind);
}

static dt_status next_batch(struct run *r, const struct dt_batch **batch)
{
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_DATA);
    dt_fault_at_section(DT_SECTION_DATA);
    lap(r, DT_LAP_OTHER);
    dt_status status = dt_loader_next(r->sets.train, batch);
    lap(r, DT_LAP_DATA);
    if (!*batch && status == DT_OK)
        DT_FAIL(DT_ERR_INTERNAL, "the epoch ended before step %" PRId64, r->at.step + 1);
    return status;
}

static int64_t steps_between_meetings(const struct dt_engine *engine)
{
    return engine->ranks.sync_every < engine->stage.steps_per_epoch ? engine->ranks.sync_every
                                                                    : engine->stage.steps_per_epoch;
}

static dt_status ask(struct run *r, dt_status status)
{
    r->stop.save_at_s = dt_save_policy_due_s(&r->save_policy);
    r->stop.save_s = r->save_policy.longest_s;
    r->stop.log_at_s = dt_metrics_due_s(&r->metrics, r->engine.config);
    r->stop.n_steps = steps_between_meetings(&r->engine);
    return dt_stop_ask(&r->stop, r->engine.ranks.comm, r->at.step, status);
}

/* What is due between two meetings stays due until the next. */
static dt_status hear(struct run *r, dt_status status)
{
    const struct dt_due before = r->due;
    DT_TRY(dt_stop_hear(&r->stop, r->engine.ranks.comm, status, &r->due));
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
    struct dt_scalars scalars = dt_engine_scalars(&r->engine, r->at.step);
    dt_status own = dt_save_policy_poll(&r->save_policy);
    for (int pass = 0; pass < r->engine.stage.n_passes; pass++) {
        const struct dt_batch *batch = NULL;
        dt_status status = next_batch(r, &batch);
        own = own == DT_OK ? status : own;
        if (!batch)
            return own;
        if (pass == r->engine.stage.n_passes - 1)
            DT_TRY(ask(r, own));
        lap(r, DT_LAP_OTHER);
        dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
        dt_fault_at_section(DT_SECTION_COMPUTE);
        DT_TRY(dt_engine_train(&r->engine, &r->sets, batch, &scalars, pass));
        lap(r, DT_LAP_COMPUTE);
    }
    return hear(r, own);
}

/* --- Ranks that meet now and then --- */

/* Whether all ranks have the same weights after the step at `at`. */
bool dt_step_is_meeting(const struct dt_engine *engine, const struct dt_checkpoint *at)
{
    return at->step % engine->ranks.sync_every == 0 || at->batch == 0 ||
           at->step == engine->last_step;
}

static int64_t steps_to_meeting(const struct dt_engine *engine, const struct dt_checkpoint *at)
{
    int64_t n = engine->ranks.sync_every - at->step % engine->ranks.sync_every;
    n = engine->stage.steps_per_epoch - at->batch < n ? engine->stage.steps_per_epoch - at->batch
                                                      : n;
    return engine->last_step - at->step < n ? engine->last_step - at->step : n;
}

static dt_status work_alone(struct run *r, int64_t step)
{
    struct dt_scalars scalars = dt_engine_scalars(&r->engine, step);
    for (int pass = 0; pass < r->engine.stage.n_passes; pass++) {
        const struct dt_batch *batch = NULL;
        DT_TRY(next_batch(r, &batch));
        dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
        dt_fault_at_section(DT_SECTION_COMPUTE);
        DT_TRY(dt_engine_train(&r->engine, &r->sets, batch, &scalars, pass));
        lap(r, DT_LAP_COMPUTE);
    }
    return dt_async_push(&r->async, &r->engine);
}

/* All steps until the ranks meet; a worker that fails leaves early. */
static dt_status train_async(struct run *r, int64_t n_steps)
{
    dt_status own = dt_save_policy_poll(&r->save_policy);
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
    if (r->engine.ranks.rank == 0)
        DT_TRY(dt_async_serve(&r->async, &r->engine, r->at.step));
    for (int64_t i = 0; i < n_steps && r->engine.ranks.rank > 0 && own == DT_OK; i++)
        own = work_alone(r, r->at.step + i);
    if (r->engine.ranks.rank > 0)
        DT_TRY(dt_async_leave(&r->engine.ranks));
    DT_TRY(dt_step_meet(r, own));
    return dt_async_meet(&r->async, &r->engine);
}

static void advance(struct dt_checkpoint *at, const struct dt_engine *engine, int64_t n_steps)
{
    at->step += n_steps;
    at->n_passes += n_steps * engine->stage.n_passes;
    at->batch += n_steps;
    if (at->batch == engine->stage.steps_per_epoch) {
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
    const bool is_async = r->engine.plan->options.parallel == DT_PARALLEL_ASYNC;
    const int64_t n_steps = is_async ? steps_to_meeting(&r->engine, &r->at) : 1;
    double begin_s = dt_clock_s();
    DT_TRY(is_async ? train_async(r, n_steps) : train_step(r));
    dt_timeline_add(r->at.step + 1, begin_s);
    advance(&r->at, &r->engine, n_steps);
    if (r->engine.plan->options.parallel == DT_PARALLEL_LOCAL &&
        dt_step_is_meeting(&r->engine, &r->at))
        DT_TRY(dt_plan_average(r->engine.plan, (float)r->engine.config->train.outer_momentum));
    count_step(r, dt_clock_s() - begin_s);
    if (r->n_step_s == 1)
        dt_metrics_begin_input(&r->metrics, &r->engine, &r->sets, r->at.step);
    if (is_async)
        return DT_OK; /* rank 0 has no work to compare */
    return dt_stragglers_step(&r->stragglers, r->at.step,
                              laps->s[DT_LAP_DATA] - before.s[DT_LAP_DATA],
                              laps->s[DT_LAP_COMPUTE] - before.s[DT_LAP_COMPUTE]);
}
