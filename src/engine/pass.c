/* One pass over one micro-batch, for training, evaluation and the benchmark, and the faults
 * injected into it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "data/mix.h"
#include "engine/engine.h"

struct dt_scalars dt_engine_scalars(const struct dt_engine *engine, int64_t step)
{
    const bool trains = engine->options.train; /* dtrain bench --forward-only does not */
    /* The plan divides by the foreground of all images. */
    const bool is_global = engine->config->train.loss_normalizer == DT_NORMALIZER_GLOBAL;
    return (struct dt_scalars){
        .lr = trains ? (float)dt_schedule_lr(&engine->schedule, step) : 0,
        .optim = dt_config_optim(engine->config),
        .diff_scale = is_global ? 1 : 1.0f / (float)engine->stage.split.images,
        .ema_weight =
            (float)fmax(1 - engine->config->train.ema_decay, pow(1 + (double)step, -2.0 / 3)),
        .step = (uint32_t)step,
    };
}

/* The device may read the batch until the feed has ended, even if the walk has failed. */
static dt_status end_feed(struct dt_engine *engine, dt_status status)
{
    char text[2048];
    snprintf(text, sizeof text, "%s", status == DT_OK ? "" : dt_error_text());
    dt_status ended = dt_plan_end_feed(engine->plan);
    if (status != DT_OK && ended != DT_OK)
        DT_FAIL(status, "%s", text); /* the first error counts */
    return status != DT_OK ? status : ended;
}

/* --- Faults (fault.h) --- */

/* Flips a bit in the middle of the mantissa of the first parameter's first value: it stays finite,
 * and no later rounding hides the difference. */
static dt_status flip_bit(struct dt_plan *plan)
{
    int t = 0;
    float *values = NULL;
    uint32_t bits;
    dt_status status = DT_OK;
    while (plan->graph->tensor[t].role != DT_PARAM)
        t++;
    DT_TRY(DT_NEW(values, dt_tensor_elements(&plan->graph->tensor[t])));
    DT_TRY_OUT(dt_plan_get(plan, DT_ARENA_PARAMS, t, values));
    memcpy(&bits, values, sizeof bits);
    bits ^= 1u << 16;
    memcpy(values, &bits, sizeof bits);
    DT_TRY_OUT(dt_plan_set(plan, DT_ARENA_PARAMS, t, values));
out:
    free(values);
    return status;
}

/* Time this rank has computed so far, without waiting for others; on a device with queues, the wall
 * clock. */
static double work_s(const struct dt_engine *engine)
{
    struct dt_plan_times times;
    if (!dt_engine_has_times(engine))
        return dt_clock_s();
    dt_plan_get_times(engine->plan, &times);
    return times.compute_s + times.update_s;
}

/* --- Passes --- */

int dt_engine_program(const struct dt_engine *engine, enum dt_phase phase,
                      const struct dt_batch *batch)
{
    const bool is_smaller = phase == DT_TRAIN && batch->n < dt_split_max(&engine->stage.split);
    return is_smaller ? engine->smaller[batch->canvas] : engine->program[phase][batch->canvas];
}

static dt_status feed(struct dt_engine *engine, const struct dt_sets *sets, enum dt_phase phase,
                      const struct dt_batch *batch)
{
    struct dt_feed input = {.class_weights = sets->class_weights};
    memcpy(input.column, batch->column, sizeof input.column);
    return dt_plan_feed(engine->plan, dt_engine_program(engine, phase, batch), &input);
}

dt_status dt_engine_train(struct dt_engine *engine, struct dt_sets *sets,
                          const struct dt_batch *batch, struct dt_scalars *scalars, int pass)
{
    double begin_s = work_s(engine), slowness = dt_fault_slowness();
    const int program = dt_engine_program(engine, DT_TRAIN, batch);
    const struct dt_split *split = &engine->stage.split;
    if (pass == 0 && sets->class_weights && !dt_mix_is_on(&engine->config->data))
        scalars->diff_scale = (float)(1 / dt_loader_weigh(sets->train, batch, sets->class_weights));
    struct dt_scalars own = *scalars;
    own.diff_scale *= (float)engine->ranks.n_parts;
    own.first_row = (uint32_t)dt_split_first(split, split->first + pass);
    if (dt_fault_due(DT_FAULT_NAN, scalars->step))
        own.diff_scale = NAN;
    dt_status status = feed(engine, sets, DT_TRAIN, batch);
    if (status == DT_OK)
        status = dt_plan_train(engine->plan, program, &own, pass, split->n_passes);
    status = end_feed(engine, status);
    dt_loader_release(sets->train, batch);
    DT_TRY(status);
    if (slowness > 1)
        dt_clock_sleep((slowness - 1) * (work_s(engine) - begin_s));
    if (pass == split->n_passes - 1 && dt_fault_due(DT_FAULT_FLIP, scalars->step))
        DT_TRY(flip_bit(engine->plan));
    return DT_OK;
}

dt_status dt_engine_eval(struct dt_engine *engine, const struct dt_sets *sets,
                         const struct dt_batch *batch)
{
    dt_status status = feed(engine, sets, DT_EVAL, batch);
    if (status == DT_OK)
        status = dt_plan_eval(engine->plan, dt_engine_program(engine, DT_EVAL, batch));
    return end_feed(engine, status);
}
