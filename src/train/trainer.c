/* Training. The loop is in dt_train: data, forward and backward pass with the sums between the
 * ranks, update, and what is due after a step, which is decided here too. Every decision that
 * affects the loop depends only on numbers that all ranks share. */
#include "dtrain/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/host.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/sort.h"
#include "base/text.h"
#include "engine/parallel.h"
#include "engine/task.h"
#include "train/run.h"

/* --- A step --- */

static void lap(struct run *r, enum dt_lap kind)
{
    dt_lap(&r->metrics.laps, &r->engine, kind);
}

dt_status dt_run_next_batch(struct run *r, const struct dt_batch **batch)
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

void dt_run_enter_compute(struct run *r)
{
    lap(r, DT_LAP_OTHER);
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
    dt_fault_at_section(DT_SECTION_COMPUTE);
}

/* Whether all ranks have the same weights after the step at `at`. */
static bool is_sync_step(const struct dt_engine *engine, const struct dt_checkpoint *at)
{
    return at->step % engine->ranks.sync_every == 0 || at->batch == 0 ||
           at->step == engine->last_step;
}

static int64_t steps_to_sync(const struct dt_engine *engine, const struct dt_checkpoint *at)
{
    int64_t n = engine->ranks.sync_every - at->step % engine->ranks.sync_every;
    n = engine->stage.steps_per_epoch - at->batch < n ? engine->stage.steps_per_epoch - at->batch
                                                      : n;
    return engine->last_step - at->step < n ? engine->last_step - at->step : n;
}

/* send_status sends this rank's status and what is due, receive_decision waits for the answer of
 * all ranks. Between the two lies the last pass of the step, whose computing hides the latency of
 * the network. A rank that has failed must send too: the others wait for its word in
 * receive_decision, which then fails on all of them with the same message. */
static dt_status send_status(struct run *r, dt_status status)
{
    r->stop.save_at_s = dt_save_policy_due_s(&r->save_policy);
    r->stop.save_s = r->save_policy.longest_s;
    r->stop.log_at_s = dt_metrics_due_s(&r->metrics, r->engine.config);
    r->stop.n_steps = r->engine.ranks.sync_every < r->engine.stage.steps_per_epoch
                          ? r->engine.ranks.sync_every
                          : r->engine.stage.steps_per_epoch;
    return dt_stop_send(&r->stop, r->engine.ranks.comm, r->at.step, status);
}

/* An action that becomes due between two synchronisations stays due until the next. */
static dt_status receive_decision(struct run *r, dt_status status)
{
    const struct dt_due before = r->due;
    DT_TRY(dt_stop_receive(&r->stop, r->engine.ranks.comm, status, &r->due));
    r->due.stop = r->due.stop ? r->due.stop : before.stop;
    r->due.save |= before.save;
    return DT_OK;
}

dt_status dt_run_agree(struct run *r, dt_status status)
{
    DT_TRY(send_status(r, status));
    return receive_decision(r, status);
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

/* Ends the n_steps that began at begin_s, when the laps were `before`. */
static dt_status end_step(struct run *r, int64_t n_steps, double begin_s,
                          const struct dt_laps *before)
{
    const struct dt_laps *laps = &r->metrics.laps;
    const struct dt_split *split = &r->engine.stage.split;
    dt_timeline_add(r->at.step + 1, begin_s);
    r->at.step += n_steps;
    /* Those that change the running statistics. */
    r->at.n_passes += n_steps * (dt_split_has_slices(split) ? 1 : split->n_passes);
    r->at.batch += n_steps;
    if (r->at.batch == r->engine.stage.steps_per_epoch) {
        r->at.batch = 0;
        r->at.epoch++;
    }
    dt_pulse_step(&dt_pulse_main, r->at.step);
    dt_fault_at_step(r->at.step);
    if (r->mode->sync_weights && is_sync_step(&r->engine, &r->at))
        DT_TRY(r->mode->sync_weights(r));
    count_step(r, dt_clock_s() - begin_s);
    if (r->n_step_s == 1)
        dt_metrics_begin_input(&r->metrics, &r->engine, &r->sets, r->at.step);
    if (r->engine.parallel->has_server)
        return DT_OK; /* rank 0 has no work to compare */
    const double passes = dt_split_has_slices(split) ? split->n_passes : 1;
    return dt_stragglers_step(&r->stragglers, r->at.step,
                              (laps->s[DT_LAP_DATA] - before->s[DT_LAP_DATA]) / passes,
                              (laps->s[DT_LAP_COMPUTE] - before->s[DT_LAP_COMPUTE]) / passes);
}

/* --- What is due after a step --- */

/* The time from `begin_pause` to `end_pause` is not spent on steps. */
static void begin_pause(struct run *r)
{
    lap(r, DT_LAP_OTHER);
}

static void end_pause(struct run *r)
{
    const double begin_s = r->metrics.laps.at_s;
    lap(r, DT_LAP_PAUSE);
    dt_stop_pause(&r->stop, r->metrics.laps.at_s - begin_s);
}

static bool is_due(int64_t count, int64_t every)
{
    return every > 0 && count % every == 0;
}

/* Whether an evaluation now decides anything: the best checkpoint, early_stop and plateau. One that
 * train.max_steps forces elsewhere does not, so that the run can be continued as if it had not
 * ended. */
static bool is_scheduled(const struct run *r)
{
    const struct dt_config *config = r->engine.config;
    return r->at.batch == 0 &&
           (is_due(r->at.epoch, config->eval.every_epochs) || r->at.epoch == config->train.epochs);
}

/* Called after every evaluation, or with train_loss after every epoch. All ranks have the same
 * value. */
static void follow_plateau(struct run *r, double value)
{
    struct dt_schedule *schedule = &r->engine.schedule;
    const struct dt_config_schedule *config = schedule->config;
    if (config->kind != DT_SCHEDULE_PLATEAU || r->at.step < schedule->warmup_steps ||
        !dt_plateau_count(&r->at.plateau, schedule, value))
        return;
    schedule->plateau = r->at.plateau.factor;
    if (r->engine.ranks.rank == 0)
        dt_log(DT_LOG_INFO,
               "after %" PRId64 " epochs: no better %s for %d in a row, learning rate %.6g",
               r->at.epoch, dt_metric_name(schedule->metric), config->patience + 1,
               dt_schedule_lr(schedule, r->at.step));
}

#define RAW_NAME(NAME, name, ...) #name "_raw",
static const char *const raw_names[] = {DT_METRIC_LIST(RAW_NAME)};

static void report_evaluation(const struct run *r, const struct dt_eval_result *result)
{
    struct dt_field fields[6 + 2 * DT_N_METRICS + DT_N_COCO] = {
        DT_INT("epoch", r->at.epoch),
        DT_INT("step", r->at.step),
        DT_INT("images", result->n_images),
    };
    int n = 3;
    for (enum dt_metric m = 0; m < DT_N_METRICS; m++)
        if (!isnan(result->value[m]) && dt_config_has_metric(r->engine.config, m))
            fields[n++] = (struct dt_field)DT_NUM(dt_metric_name(m), result->value[m]);
    if (r->engine.task->add_results)
        n += r->engine.task->add_results(fields + n, result);
    for (enum dt_metric m = 0; m < DT_N_METRICS; m++)
        if (!isnan(result->raw[m]) && dt_config_has_metric(r->engine.config, m))
            fields[n++] = (struct dt_field)DT_NUM(raw_names[m], result->raw[m]);
    if (dt_engine_uses_ema(&r->engine))
        fields[n++] = (struct dt_field)DT_TEXT("weights", "ema");
    if (!is_scheduled(r))
        fields[n++] = (struct dt_field)DT_JSONV("reported_only", "true");
    dt_events_emit(r->engine.events, "eval", fields, n);
}

/* *is_best: the best so far. A stop leaves the evaluation to the next run. */
static dt_status evaluate(struct run *r, bool *is_best)
{
    struct dt_eval_result result;
    const double sent_bytes = dt_comm_sent_bytes(r->engine.ranks.comm);
    begin_pause(r);
    *is_best = false;
    DT_TRY(dt_evaluator_validate(&r->evaluator, &result, &r->stop));
    r->metrics.sent_bytes +=
        dt_comm_sent_bytes(r->engine.ranks.comm) - sent_bytes; /* not of a step */
    end_pause(r);
    r->stop_reason = result.stop;
    r->at.eval_due = result.stop != NULL;
    if (result.stop)
        return DT_OK;
    result.value[DT_METRIC_TRAIN_LOSS] = dt_metrics_epoch_loss(&r->at.epoch_loss);
    if (is_scheduled(r)) {
        DT_TRY(
            dt_best_count(is_best, &r->at, r->engine.config, r->engine.ranks.comm, result.value));
        if (r->engine.schedule.metric != DT_METRIC_TRAIN_LOSS)
            follow_plateau(r, result.value[r->engine.schedule.metric]);
    }
    r->top1 = result.value[DT_METRIC_TOP1];
    report_evaluation(r, &result);
    if (r->engine.task->draw) {
        begin_pause(r);
        if (r->engine.events && r->engine.task->draw(&r->evaluator) != DT_OK) {
            dt_log(DT_LOG_WARNING, "not all tables and pictures of the evaluation: %s",
                   dt_error_text());
            dt_error_clear();
        }
        end_pause(r);
    }
    return DT_OK;
}

/* `must`: even if that means waiting for a save under way. */
static dt_status save_state(struct run *r, bool must)
{
    bool is_off = false;
    begin_pause(r);
    if (!must)
        DT_TRY(dt_save_policy_put_off(&r->save_policy, &is_off));
    if (is_off)
        return DT_OK;
    DT_TRY(dt_save_policy_begin(&r->save_policy, &r->at));
    end_pause(r);
    return DT_OK;
}

/* True every so many steps, or at the first chance after that; `last` is the chance before. */
static bool is_step_due(const struct run *r, int64_t last, int64_t every)
{
    return every > 0 && r->at.step / every > last / every;
}

static dt_status report_metrics(struct run *r)
{
    struct dt_checkpoint *at = &r->at;
    bool epoch_end = at->batch == 0;
    return dt_metrics_report(&r->metrics, &r->engine, &r->sets, at->step, at->epoch + !epoch_end,
                             dt_schedule_lr(&r->engine.schedule, at->step - 1), r->save_policy.last,
                             &at->epoch_loss);
}

static bool is_finished(const struct run *r)
{
    return r->stop_reason || dt_run_is_complete(r);
}

static dt_status after_step(struct run *r)
{
    const struct dt_config *config = r->engine.config;
    const struct dt_checkpoint *at = &r->at;
    bool epoch_end = at->batch == 0, end = at->step == r->engine.last_step, is_best = false;
    const struct dt_due due = end ? (struct dt_due){0} : r->due;
    const bool log_due = due.log || is_step_due(r, r->metrics.first_step, config->output.log_every);
    if (!is_sync_step(&r->engine, at))
        return log_due ? report_metrics(r) : DT_OK;
    r->due = (struct dt_due){0};
    r->stop_reason = due.stop;
    bool eval_due =
        r->sets.val && (end || (epoch_end && is_due(at->epoch, config->eval.every_epochs)));
    bool save_due = end || due.save || due.stop ||
                    is_step_due(r, r->last_sync_step, config->checkpoint.every_steps) ||
                    (epoch_end && is_due(at->epoch, config->checkpoint.every_epochs));
    bool check_due =
        !save_due && is_step_due(r, r->last_sync_step, config->train.replica_check_every);
    if (due.stop) { /* little time may be left: the next run evaluates first */
        r->at.eval_due = eval_due;
        eval_due = false;
    }
    /* A line is of one stage, and of one epoch if its mean loss is asked for. */
    bool must_log = epoch_end && (dt_engine_differs(&r->engine, at->epoch) ||
                                  dt_config_has_metric(config, DT_METRIC_TRAIN_LOSS));
    if (eval_due || save_due || log_due || must_log)
        DT_TRY(report_metrics(r));
    if (epoch_end && r->engine.schedule.metric == DT_METRIC_TRAIN_LOSS)
        follow_plateau(r, dt_metrics_epoch_loss(&at->epoch_loss));
    if (r->mode->report && (epoch_end || end || due.stop))
        r->mode->report(r, end || due.stop);
    if (eval_due)
        DT_TRY(evaluate(r, &is_best));
    if (check_due)
        DT_TRY(dt_replicas_compare(&r->engine, at->step, r->save_policy.last));
    r->last_sync_step = at->step;
    bool must_save = is_finished(r) || (is_best && config->checkpoint.keep_best) ||
                     (save_due && is_due(at->step, config->checkpoint.keep_every));
    return must_save || save_due ? save_state(r, must_save) : DT_OK;
}

/* --- Around the steps --- */

/* Does what an earlier run left to do, and obeys a stop requested while this run started. */
static dt_status before_steps(struct run *r)
{
    bool is_best;
    DT_TRY(dt_run_agree(r, DT_OK));
    r->stop_reason = r->due.stop;
    if (r->at.eval_due && !r->stop_reason)
        DT_TRY(evaluate(r, &is_best));
    if (is_finished(r) && (r->save_policy.begun_step != r->at.step || !r->stop_reason))
        DT_TRY(save_state(r, true));
    r->last_sync_step = r->at.step;
    dt_plan_anchor(r->engine.plan);
    if (!r->mode->begin)
        return DT_OK;
    return dt_comm_agree(r->engine.ranks.comm, r->mode->begin(r));
}

/* Called at the end of an epoch, or of a run that ends within one. */
static dt_status report_input(struct run *r)
{
    enum { MIN_STEPS = 10 }; /* for part of an epoch */
    bool epoch_end = r->at.batch == 0;
    return dt_metrics_report_input(&r->metrics, &r->engine, &r->sets, r->at.step,
                                   r->at.epoch + !epoch_end, epoch_end ? 1 : MIN_STEPS);
}

/* Called at the beginning of an epoch of another stage, or in which nothing is frozen any more.
 * Steps then take another time than before. */
static dt_status change_stage(struct run *r)
{
    const struct dt_stage old = r->engine.stage, *stage = &r->engine.stage;
    char after[48], sizes[DT_SIZES_TEXT], batch[DT_BATCH_TEXT];
    begin_pause(r);
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_INIT);
    DT_TRY(dt_engine_rebuild(&r->engine, &r->sets, r->at.epoch));
    if (r->engine.ranks.rank == 0)
        dt_writer_set_plan(r->save_policy.writer, r->engine.plan);
    r->at.global_batch_size = stage->split.images;
    r->at.micro_batch_size = dt_split_max(&stage->split);
    r->at.n_parts = stage->split.n_parts;
    r->n_step_s = 0;
    r->metrics.step_s = 0;
    dt_watchdog_set_step(r->engine.config->watchdog.init_timeout_s / 10);
    dt_plan_anchor(r->engine.plan);
    end_pause(r);
    snprintf(after, sizeof after, "after %" PRId64 " epoch%s", r->at.epoch, DT_S(r->at.epoch));
    dt_engine_describe_batch(batch, &r->engine);
    if (r->engine.ranks.rank == 0 && old.is_frozen && !stage->is_frozen)
        dt_log(DT_LOG_INFO, "%s: all parameters are trained from here on", after);
    if (r->engine.ranks.rank == 0 && (old.split.images != stage->split.images ||
                                      dt_split_max(&old.split) != dt_split_max(&stage->split) ||
                                      old.image_size != stage->image_size))
        dt_log(DT_LOG_INFO, "%s: images of %s, batch %s, %" PRId64 " step%s per epoch", after,
               dt_sets_sizes(&r->sets, stage->image_size, sizes), batch, stage->steps_per_epoch,
               DT_S(stage->steps_per_epoch));
    return DT_OK;
}

static dt_status begin_epoch(struct run *r)
{
    const struct dt_ranks *ranks = &r->engine.ranks;
    if (dt_engine_differs(&r->engine, r->at.epoch))
        DT_TRY(change_stage(r));
    if (ranks->n_workers < ranks->n_ranks && ranks->rank == 0)
        return DT_OK;
    return dt_loader_start(r->sets.train, (uint32_t)r->at.epoch, (uint64_t)r->at.batch);
}

/* Begins or ends the timeline if that is due before `step`. */
static void trace(struct run *r, int64_t step)
{
    begin_pause(r);
    dt_timeline_step(&r->timeline, step);
    end_pause(r);
}

/* --- The whole run --- */

/* Local SGD. */
static dt_status average(struct run *r)
{
    return dt_plan_average(r->engine.plan, (float)r->engine.config->train.outer_momentum);
}

static const struct dt_mode_steps *mode_steps(enum dt_comm_mode mode)
{
    static const struct dt_mode_steps common, local = {.sync_weights = average};
    return mode == DT_MODE_ASYNC ? &dt_async_steps : mode == DT_MODE_LOCAL ? &local : &common;
}

static dt_status create_run(struct run **run, struct dt_comm *comm, const struct dt_config *config)
{
    struct run *r = NULL;
    DT_TRY(DT_NEW(r, 1));
    r->begin_s = dt_clock_s();
    r->top1 = -1;
    r->folder.lock_fd = -1;
    r->mode = mode_steps(dt_config_mode(config));
    dt_sets_init(&r->sets, comm, config, dt_task_of(config));
    dt_engine_init(&r->engine, &r->sets);
    dt_watchdog_catch_crashes(r->engine.ranks.rank);
    *run = r;
    return DT_OK;
}

static void close_run(struct run *r, dt_status status)
{
    const int origin = dt_error_origin();
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_SAVE);
    dt_save_policy_close(&r->save_policy);
    dt_error_set_origin(origin); /* the writer's last failure is not why the run ended */
    if (r->mode->end)
        r->mode->end(r);
    dt_evaluator_close(&r->evaluator);
    dt_engine_close(&r->engine, &r->sets, status);
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_NONE);
    dt_watchdog_stop();
    dt_run_folder_close(&r->folder);
    free(r->config_json);
    free(r);
}

void dt_train_catch_signals(void)
{
    dt_stop_catch_signals();
}

dt_status dt_train(struct dt_comm *comm, const struct dt_config *config,
                   const struct dt_train_options *options)
{
    struct run *r = NULL;
    bool has_begun = false;
    dt_status status = DT_OK;
    DT_TRY(create_run(&r, comm, config));
    DT_TRY_OUT(dt_run_begin(r, options));
    if (r->was_complete)
        goto out;
    has_begun = true;
    DT_TRY_OUT(before_steps(r));
    while (!is_finished(r)) {
        DT_TRY_OUT(begin_epoch(r));
        do {
            const struct dt_laps before = r->metrics.laps;
            const int64_t n_steps = r->mode->step ? steps_to_sync(&r->engine, &r->at) : 1;
            trace(r, r->at.step + 1);
            const double begin_s = dt_clock_s();
            if (r->mode->step) {
                DT_TRY_OUT(r->mode->step(r, n_steps));
            } else {
                /* A read or a save may fail on one rank in the middle of a run: it ends the step
                 * with the others, which learn of it meanwhile, and all leave with one message. */
                struct dt_scalars scalars = dt_engine_scalars(&r->engine, r->at.step);
                const int n_passes = r->engine.stage.split.n_passes;
                dt_status own = dt_save_policy_poll(&r->save_policy);
                for (int pass = 0; pass < n_passes; pass++) {
                    const struct dt_batch *batch = NULL;
                    dt_status read = dt_run_next_batch(r, &batch);
                    own = own == DT_OK ? read : own;
                    if (!batch)
                        DT_TRY_OUT(own);
                    if (pass == n_passes - 1)
                        DT_TRY_OUT(send_status(r, own));
                    /* Forward, backward, sums over the ranks; in the last pass the update. */
                    dt_run_enter_compute(r);
                    DT_TRY_OUT(dt_engine_train(&r->engine, &r->sets, batch, &scalars, pass));
                    lap(r, DT_LAP_COMPUTE);
                }
                DT_TRY_OUT(receive_decision(r, own));
            }
            DT_TRY_OUT(end_step(r, n_steps, begin_s, &before));
            DT_TRY_OUT(after_step(r)); /* metrics, evaluation, checkpoint */
            dt_telemetry_step(&r->telemetry, &r->engine, r->at.step);
        } while (r->at.batch != 0 && !is_finished(r));
        DT_TRY_OUT(report_input(r));
    }
    DT_TRY_OUT(dt_save_policy_finish(&r->save_policy, &r->at));
    trace(r, INT64_MAX);
    status = r->stop_reason ? DT_STOPPED : DT_OK;
out:
    if (has_begun)
        status = dt_run_end(r, status);
    close_run(r, status);
    return status;
}

/* --- --dry-run --- */

/* Prints the available memory, and if the plan takes more, the micro-batch that would fit. The
 * layout is then that of the last one tried. */
static dt_status tell_memory(struct run *r)
{
    struct dt_engine *engine = &r->engine;
    const struct dt_split *split = &engine->stage.split;
    const size_t max = engine->plan->options.max_bytes, planned = dt_plan_bytes(engine->plan);
    char text[3][32];
    double too_much = (double)planned - (double)max;
    DT_TRY(dt_comm_max_f64(engine->ranks.comm, &too_much, 1));
    if (too_much > 0)
        DT_TRY(dt_engine_fit(engine, &r->sets));
    const size_t bytes = dt_plan_bytes(engine->plan);
    if (engine->ranks.rank != 0 || max == 0)
        return DT_OK;
    dt_memory_format(text[0], sizeof text[0], max);
    dt_memory_format(text[1], sizeof text[1], planned);
    dt_memory_format(text[2], sizeof text[2], bytes);
    printf("available: %s per rank\n", text[0]);
    if (bytes > max && dt_split_has_slices(split))
        dt_log(DT_LOG_WARNING, "the plan takes %s of %s; start more ranks, or %s", text[1], text[0],
               dt_plan_advice(engine->plan));
    else if (bytes > max)
        dt_log(DT_LOG_WARNING,
               "the plan takes %s of %s, and no train.micro_batch_size makes it fit", text[1],
               text[0]);
    else if (bytes < planned)
        dt_log(DT_LOG_WARNING,
               "the plan takes %s of %s; train.micro_batch_size=%d would fit with %s: the same "
               "global batch in %d parts, of which batch norm sees one at a time",
               text[1], text[0], dt_split_max(split), text[2], split->n_passes);
    return DT_OK;
}

/* Problems with weights and data are reported last, so that the rest is seen. */
dt_status dt_dry_run(struct dt_comm *comm, const struct dt_config *config, bool print_plan)
{
    const struct dt_engine_options layout = {
        .train = true, .eval = dt_config_has_validation(config), .layout_only = true};
    struct run *r = NULL;
    DT_TRY(create_run(&r, comm, config));
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_engine_open(&r->engine, &r->sets, &layout, NULL));
    status = dt_resume_initial_weights(&r->engine);
    if (r->engine.ranks.rank == 0) {
        dt_summary_print_dry(&r->engine, &r->sets, stdout);
        if (print_plan)
            dt_plan_print_actions(r->engine.plan, stdout);
    }
    if (status == DT_OK)
        status = tell_memory(r);
    fflush(stdout);
    if (r->sets.status != DT_OK)
        status = DT_ERROR(r->sets.status, "%s", r->sets.problem);
    status = dt_comm_agree(comm, status);
out:
    close_run(r, status);
    return status;
}
