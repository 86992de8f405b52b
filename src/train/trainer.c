/* Training: take a batch, walk the plan, log; now and then evaluate and save. The loop is `train`;
 * everything else here decides what is due after a step, or begins and ends a run. Whatever changes
 * the course of the loop follows from numbers that all ranks share. */
#include "dtrain/train.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtrain/clock.h"
#include "dtrain/file.h"
#include "dtrain/log.h"
#include "dtrain/mem.h"
#include "train/metrics.h"
#include "train/resume.h"
#include "train/session.h"
#include "train/stop.h"

struct run {
    struct dt_session session;
    struct dt_checkpoint at; /* where training stands */
    struct dt_metrics metrics;
    struct dt_stop stop;
    const char *stop_reason; /* NULL = go on */
    bool was_complete;       /* nothing to do */
    double top1;             /* of the last evaluation, -1 = none */
    double begin_s;
    char *config_json;
    char checkpoints[DT_PATH_MAX], last_checkpoint[DT_PATH_MAX];
};

/* --- One step --- */

static dt_status train_step(struct dt_session *s, const struct dt_scalars *scalars)
{
    for (int pass = 0; pass < s->n_passes; pass++) {
        const struct dt_batch *batch;
        /* Reading is what fails in the middle of a run: all ranks leave with one message. */
        DT_TRY(dt_session_agree(s, dt_loader_next(s->train, &batch)));
        if (!batch)
            DT_FAIL(DT_ERR_INTERNAL, "the epoch ended before step %u", scalars->step);
        DT_TRY(dt_session_pass(s, batch, scalars, pass));
    }
    return DT_OK;
}

static void advance(struct dt_checkpoint *at, const struct dt_session *s)
{
    at->step++;
    at->n_passes += s->n_passes;
    if (++at->batch == s->steps_per_epoch) {
        at->batch = 0;
        at->epoch++;
    }
}

/* --- What is due after a step --- */

static bool is_goal_reached(const struct run *r)
{
    double goal = r->session.config->train.stop_top1;
    return goal > 0 && r->at.best_top1 >= goal;
}

static dt_status evaluate(struct run *r)
{
    struct dt_session *s = &r->session;
    struct dt_eval_result result;
    double begin_s = dt_clock_s();
    DT_TRY(dt_session_evaluate(s, &result));
    r->top1 = result.top1;
    if (result.top1 > r->at.best_top1)
        r->at.best_top1 = result.top1;
    r->at.eval_due = false;
    const struct dt_field fields[] = {
        DT_INT("epoch", r->at.epoch),      DT_INT("step", r->at.step),
        DT_INT("images", result.n_images), DT_NUM("loss", result.loss),
        DT_NUM("top1", result.top1),       DT_NUM("top5", result.top5),
    };
    dt_report_event(s->report, "eval", fields, DT_COUNT(fields));
    dt_metrics_pause(&r->metrics, dt_clock_s() - begin_s);
    return DT_OK;
}

static dt_status save(struct run *r)
{
    struct dt_session *s = &r->session;
    dt_status status = DT_OK;
    double begin_s = dt_clock_s();
    if (dt_session_scales_loss(s))
        status = s->backend->get_loss_scale(s->device, &r->at.loss_scale);
    if (s->rank == 0 && status == DT_OK)
        status = dt_checkpoint_save(r->last_checkpoint, r->checkpoints, s->plan, &r->at,
                                    r->config_json, s->config->checkpoint.keep);
    DT_TRY(dt_session_agree(s, status));
    double seconds = dt_clock_s() - begin_s;
    const struct dt_field fields[] = {
        DT_INT("step", r->at.step),
        DT_TEXT("path", r->last_checkpoint),
        DT_NUM("seconds", seconds),
    };
    dt_report_event(s->report, "checkpoint", fields, DT_COUNT(fields));
    dt_metrics_pause(&r->metrics, seconds);
    return DT_OK;
}

static bool is_due(int64_t count, int64_t every)
{
    return every > 0 && count % every == 0;
}

static dt_status after_step(struct run *r)
{
    struct dt_session *s = &r->session;
    const struct dt_config *config = s->config;
    const struct dt_checkpoint *at = &r->at;
    bool epoch_end = at->batch == 0, end = at->step == s->last_step;
    if (!end)
        DT_TRY(dt_stop_check(&r->stop, s->comm, at->step, &r->stop_reason));
    bool eval_due = s->val && (end || (epoch_end && is_due(at->epoch, config->train.eval_every)));
    bool save_due = end || is_due(at->step, config->checkpoint.every_steps) ||
                    (epoch_end && is_due(at->epoch, config->checkpoint.every_epochs));
    if (r->stop_reason) {
        r->at.eval_due = eval_due; /* little time may be left: first thing in the next run */
        eval_due = false;
        save_due = true;
    }
    if (eval_due || save_due || is_due(at->step, config->output.log_every))
        DT_TRY(dt_metrics_report(&r->metrics, s, at->step, at->epoch + !epoch_end,
                                 dt_schedule_lr(&s->schedule, at->step - 1), r->last_checkpoint));
    /* Ranks normalise with statistics of their own images; from here on all have the mean. */
    if (eval_due || save_due)
        DT_TRY(dt_plan_average_stats(s->plan));
    if (eval_due)
        DT_TRY(evaluate(r));
    if (save_due || is_goal_reached(r))
        DT_TRY(save(r));
    return DT_OK;
}

static bool is_complete(const struct run *r)
{
    return r->at.step >= r->session.last_step || is_goal_reached(r);
}

static bool is_finished(const struct run *r)
{
    return r->stop_reason || is_complete(r);
}

/* --- The loop --- */

static dt_status train(struct run *r)
{
    struct dt_session *s = &r->session;
    if (r->at.eval_due) {
        DT_TRY(evaluate(r));
        if (is_complete(r))
            DT_TRY(save(r));
    }
    while (!is_finished(r)) {
        DT_TRY(dt_loader_start(s->train, (uint32_t)r->at.epoch, (uint64_t)r->at.batch));
        do {
            struct dt_scalars scalars = dt_session_scalars(s, r->at.step);
            DT_TRY(train_step(s, &scalars));
            advance(&r->at, s);
            DT_TRY(after_step(r));
        } while (r->at.batch != 0 && !is_finished(r));
    }
    return r->stop_reason ? DT_STOPPED : DT_OK;
}

/* --- Beginning and end of a run --- */

/* The folder, and the console for progress lines. Nothing in the folder changes before it is known
 * that this run may go on there. */
static dt_status prepare_output(struct run *r)
{
    struct dt_session *s = &r->session;
    struct dt_report_options console = {.dir = NULL};
    if (s->rank != 0)
        return DT_OK;
    DT_TRY(dt_file_make_folder(s->config->output.dir));
    DT_TRY(dt_config_print(&r->config_json, s->config));
    return dt_report_open(&s->report, &console);
}

static dt_status open_output(struct run *r, bool resumed)
{
    struct dt_session *s = &r->session;
    const char *dir = s->config->output.dir;
    char path[DT_PATH_MAX];
    struct dt_report_options report = {.dir = dir, .append = resumed};
    if (s->rank != 0)
        return DT_OK;
    DT_TRY(dt_file_path(path, "%s/config.json", dir));
    DT_TRY(dt_file_save(path, r->config_json, strlen(r->config_json)));
    dt_report_close(s->report);
    s->report = NULL;
    return dt_report_open(&s->report, &report);
}

static int64_t n_parameters(const struct dt_graph *g)
{
    int64_t n = 0;
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensor[t].role == DT_PARAM)
            n += (int64_t)dt_tensor_elements(&g->tensor[t]);
    return n;
}

static void report_start(const struct run *r)
{
    const struct dt_session *s = &r->session;
    char device[256];
    s->backend->describe(s->device, device, sizeof device);
    const struct dt_field fields[] = {
        DT_JSONV("config", r->config_json),
        DT_INT("ranks", s->n_ranks),
        DT_TEXT("device", device),
        DT_INT("global_batch", s->global_batch),
        DT_INT("micro_batch", s->micro_batch),
        DT_INT("passes", s->n_passes),
        DT_NUM("lr", s->schedule.lr),
        DT_INT("steps_per_epoch", s->steps_per_epoch),
        DT_INT("epochs", s->config->train.epochs),
        DT_INT("parameters", n_parameters(s->graph)),
        DT_INT("train_images", dt_dataset_size(s->train_set)),
        DT_INT("val_images", s->val_set ? dt_dataset_size(s->val_set) : 0),
        DT_INT("start_step", r->at.step),
    };
    dt_report_event(s->report, "run_start", fields, DT_COUNT(fields));
}

static void log_finished(const struct run *r)
{
    char best[64] = "";
    if (r->at.best_top1 >= 0)
        snprintf(best, sizeof best, " (best Acc@1 %.3f)", r->at.best_top1);
    dt_log(DT_LOG_INFO,
           "already finished after %" PRId64 " steps%s; raise %s or choose another --out",
           r->at.step, best,
           is_goal_reached(r)                                       ? "train.stop_top1"
           : r->session.last_step < r->session.schedule.total_steps ? "train.max_steps"
                                                                    : "train.epochs");
}

static dt_status start(struct run *r, const struct dt_train_options *options)
{
    struct dt_session *s = &r->session;
    const struct dt_config *config = s->config;
    struct dt_resume resume;
    bool validated = dt_session_has_validation(s);
    struct dt_session_needs needs = {
        .train = true, .eval = validated, .cache_dir = config->output.dir};
    DT_TRY(dt_session_agree(s, dt_file_path(r->checkpoints, "%s/checkpoints", config->output.dir)));
    DT_TRY(dt_resume_find(&resume, s, options->resume, r->checkpoints));
    DT_TRY(dt_session_agree(s, prepare_output(r)));
    DT_TRY(dt_session_open(s, &needs));
    DT_TRY(dt_resume_load(&r->at, &resume, s));
    r->at.eval_due = r->at.eval_due && validated;
    r->was_complete = resume.found && is_complete(r) && !r->at.eval_due;
    if (r->was_complete) {
        log_finished(r);
        return DT_OK;
    }
    DT_TRY(dt_session_agree(s, open_output(r, resume.found)));
    memcpy(r->last_checkpoint, resume.path, sizeof r->last_checkpoint);
    dt_stop_init(&r->stop, options->max_time_s, r->begin_s, r->at.step);
    dt_metrics_init(&r->metrics, s, r->at.step);
    if (s->rank == 0)
        report_start(r);
    if (resume.found)
        dt_log(DT_LOG_INFO, "resuming from %s", resume.path);
    if (!validated)
        dt_log(DT_LOG_INFO, "data.val is empty: no evaluation");
    return DT_OK;
}

static dt_status report_bad_images(struct run *r)
{
    struct dt_session *s = &r->session;
    uint64_t now[2] = {0}, before[2] = {0};
    dt_loader_bad_positions(s->train, &now[0], &before[0]);
    if (s->val)
        dt_loader_bad_positions(s->val, &now[1], &before[1]);
    int64_t sums[] = {(int64_t)now[0], (int64_t)before[0], (int64_t)now[1]};
    DT_TRY(dt_comm_sum_i64(s->comm, sums, 3));
    int64_t n_bad = (sums[0] > sums[1] ? sums[0] : sums[1]) + sums[2];
    if (n_bad > 0)
        dt_log(DT_LOG_WARNING, "%" PRId64 " unreadable image(s) were replaced", n_bad);
    return DT_OK;
}

static void report_end(struct run *r, dt_status status)
{
    struct dt_session *s = &r->session;
    const struct dt_field fields[] = {
        DT_TEXT("status", dt_status_name(status)),
        DT_INT("exit_code", status),
        DT_INT("steps", r->at.step),
        DT_NUM("seconds", dt_clock_s() - r->begin_s),
        DT_NUM("top1", r->top1),
    };
    if (status == DT_STOPPED)
        dt_log(DT_LOG_INFO, "stopped after step %lld by %s; run again to go on from %s",
               (long long)r->at.step, r->stop_reason, r->last_checkpoint);
    /* Without an evaluation there is no top1. */
    dt_report_event(s->report, "run_end", fields, (int)DT_COUNT(fields) - (r->top1 < 0));
}

static dt_status dry_run(struct dt_session *s)
{
    struct dt_session_needs needs = {
        .train = true, .eval = dt_session_has_validation(s), .layout_only = true};
    DT_TRY(dt_session_open(s, &needs));
    if (s->rank == 0)
        dt_session_print(s, stdout);
    return DT_OK;
}

static dt_status run(struct run *r, const struct dt_train_options *options)
{
    if (options->dry_run)
        return dry_run(&r->session);
    DT_TRY(start(r, options));
    if (r->was_complete)
        return DT_OK;
    dt_status status = train(r);
    if (status == DT_OK || status == DT_STOPPED)
        DT_TRY(report_bad_images(r));
    report_end(r, status);
    return status;
}

dt_status dt_train(struct dt_comm *comm, const struct dt_config *config,
                   const struct dt_train_options *options, int *origin)
{
    struct run *r = NULL;
    *origin = DT_ORIGIN_LOCAL;
    DT_TRY(DT_NEW(r, 1));
    r->begin_s = dt_clock_s();
    r->top1 = -1;
    dt_stop_catch_signals();
    dt_session_init(&r->session, comm, config);
    dt_status status = run(r, options);
    *origin = r->session.origin;
    dt_session_close(&r->session, status);
    free(r->config_json);
    free(r);
    return status;
}
