/* When the trainer saves, and how it handles saves that fail.
 *
 * A save starts after a step: every checkpoint.every_steps steps, every_epochs epochs and
 * every_seconds seconds since the last save ended (later if stalls would exceed 1 % of the time),
 * and in any case at the end, at a stop, at early_stop.target, and with checkpoint.keep_best after
 * the best evaluation so far. All ranks first compare their weights and momentum; a difference or a
 * non-finite value ends the run. Rank 0 then copies the state into the snapshot, and its writer
 * thread (checkpoint/writer.c) writes it while training continues: the loop waits only for the
 * comparison and the copy. If the previous save is still under way, a periodic save is postponed
 * until it ends; the other kinds, and one for checkpoint.keep_every, wait for it.
 *
 * A failed write causes a warning; the next attempt, checkpoint.retry_s later, saves the state of
 * that later step. A failure ends the run only if another run has taken over the folder
 * (DT_ERR_IN_USE), or if the last save of the run fails 12 times (DT_ERR_IO). */
#include "train/save_policy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "checkpoint/snapshot.h"
#include "engine/preflight.h"

enum { FINAL_ATTEMPTS = 12 };

/* Share of the time for which timed saves may hold up training. */
static const double max_stall = 0.01;
static const double slow_disk = 1e8; /* bytes/s, assumed until the first save has been timed */
static const double final_retry_s = 10;

/* --- Opening --- */

dt_status dt_save_policy_init(struct dt_save_policy *policy, struct dt_engine *engine)
{
    *policy = (struct dt_save_policy){.engine = engine, .begun_step = -1, .ended_s = dt_clock_s()};
    return dt_file_path(policy->dir, "%s/checkpoints", engine->config->output.dir);
}

dt_status dt_save_policy_open(struct dt_save_policy *policy, struct dt_run_folder *folder,
                              const char *config_json, const char *classes)
{
    struct dt_engine *engine = policy->engine;
    char device[DT_DEVICE_MAX], comm[80];
    engine->backend->describe(engine->device, device, sizeof device);
    dt_comm_describe_plane(engine->plane, comm, sizeof comm);
    snprintf(policy->repro, sizeof policy->repro, "%s; %s", device, comm);
    policy->target = (struct dt_checkpoint_target){
        .dir = policy->dir,
        .config_json = config_json,
        .classes = classes,
        .config_hash = XXH3_64bits(config_json, strlen(config_json)),
        .run_id = folder->run_id,
        .build_id = dt_build_id(),
        .repro = policy->repro,
        .config = engine->config->checkpoint,
        .may_commit = dt_run_folder_check,
        .context = folder,
    };
    DT_TRY(dt_writer_create(&policy->writer, &policy->target, engine->plan));
    policy->longest_s = (double)dt_writer_bytes(policy->writer) / slow_disk;
    return dt_preflight_space(engine->config, dt_writer_bytes(policy->writer));
}

void dt_save_policy_close(struct dt_save_policy *policy)
{
    dt_writer_destroy(policy->writer);
    policy->writer = NULL;
}

/* --- Results of saves --- */

static bool is_lost(const struct dt_save_policy *policy)
{
    return policy->target.may_commit && dt_run_folder_is_lost(policy->target.context);
}

static dt_status take_result(struct dt_save_policy *policy, bool wait)
{
    struct dt_events *report = policy->engine->events;
    struct dt_saved saved;
    char text[sizeof saved.problem + DT_PATH_MAX + 128];
    if (!policy->writer || !dt_writer_take_result(policy->writer, &saved, wait))
        return DT_OK;
    policy->ended_s = dt_clock_s();
    policy->longest_s = fmax(policy->longest_s, policy->stall_s + saved.seconds);
    if (saved.status == DT_OK) {
        policy->n_failed = 0;
        memcpy(policy->last, saved.path, sizeof policy->last);
        const struct dt_field fields[] = {DT_INT("step", saved.step), DT_TEXT("path", saved.path),
                                          DT_NUM("seconds", saved.seconds),
                                          DT_NUM("stall_s", policy->stall_s),
                                          DT_INT("bytes", (int64_t)saved.bytes)};
        dt_events_emit(report, "checkpoint", fields, DT_COUNT(fields));
        return DT_OK;
    }
    if (saved.status == DT_ERR_IN_USE)
        DT_FAIL(saved.status, "%s", saved.problem);
    policy->n_failed++;
    snprintf(text, sizeof text, "%s; the newest checkpoint is %s; saving will be retried",
             saved.problem, policy->last[0] ? policy->last : "none");
    const struct dt_field fields[] = {DT_TEXT("text", text)};
    if (!is_lost(policy)) /* otherwise the next dt_stop_send stops the run */
        dt_events_emit(report, "warning", fields, DT_COUNT(fields));
    return DT_OK;
}

dt_status dt_save_policy_poll(struct dt_save_policy *policy)
{
    return take_result(policy, false);
}

double dt_save_policy_due_s(const struct dt_save_policy *policy)
{
    const struct dt_config *config = policy->engine->config;
    double every_s = config->checkpoint.every_seconds;
    if (!policy->writer || dt_writer_is_busy(policy->writer))
        return INFINITY;
    if (policy->n_failed > 0)
        return policy->ended_s + config->checkpoint.retry_s;
    if (policy->is_late)
        return policy->ended_s;
    return every_s > 0 ? policy->ended_s + fmax(every_s, policy->stall_s / max_stall) : INFINITY;
}

/* --- Saving --- */

dt_status dt_save_policy_put_off(struct dt_save_policy *policy, bool *is_off)
{
    double busy = policy->writer && dt_writer_is_busy(policy->writer);
    DT_TRY(dt_comm_max_f64(policy->engine->ranks.comm, &busy, 1));
    *is_off = busy > 0;
    policy->is_late = policy->is_late || *is_off;
    return DT_OK;
}

/* The order keeps bad state off the disk: the weights of all ranks are compared before anything is
 * copied, the result of the previous save is taken before its snapshot is overwritten, and the
 * ranks agree that the writer has begun before they count the step as saved. A rank may fail at any
 * of these calls, so each is skipped after a failure, and all ranks return the same status. */
static dt_status begin_save(struct dt_save_policy *policy, struct dt_checkpoint *at)
{
    struct dt_engine *engine = policy->engine;
    DT_TRY(dt_replicas_compare(engine, at->step, policy->last));
    dt_status status = DT_OK;
    status = engine->backend->get_updates(engine->device, &at->n_updates);
    if (status == DT_OK && dt_engine_scales_loss(engine))
        status = engine->backend->get_loss_scale(engine->device, &at->loss_scale);
    if (status == DT_OK)
        status = take_result(policy, true);
    if (status == DT_OK && policy->writer)
        status = dt_writer_start(policy->writer, at);
    DT_TRY(dt_comm_agree(engine->ranks.comm, status));
    policy->begun_step = at->step;
    policy->is_late = false;
    return DT_OK;
}

dt_status dt_save_policy_begin(struct dt_save_policy *policy, struct dt_checkpoint *at)
{
    enum dt_section before = dt_pulse_enter(&dt_pulse_main, DT_SECTION_SAVE);
    dt_fault_at_section(DT_SECTION_SAVE);
    double begin_s = dt_clock_s();
    dt_status status = begin_save(policy, at);
    policy->stall_s = dt_clock_s() - begin_s;
    dt_pulse_enter(&dt_pulse_main, before);
    return status;
}

static void sleep_for(double seconds)
{
    for (double end_s = dt_clock_s() + seconds; dt_clock_s() < end_s;) {
        dt_clock_sleep(0.1);
        dt_pulse_beat(&dt_pulse_main);
    }
}

/* From here on the checkpoints go next to the folder that is lost. The writer must be idle. */
static dt_status move_out(struct dt_save_policy *policy, int64_t step)
{
    const char *dir = policy->engine->config->output.dir;
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    policy->target.may_commit = NULL;
    DT_TRY(dt_file_path(policy->dir, "%.*s-rescued-step-%09" PRId64 "/checkpoints", (int)n, dir,
                        step));
    dt_status status = dt_file_make_folder(policy->dir);
    if (status != DT_OK)
        DT_FAIL(status,
                "run folder %s was removed, renamed or replaced while this run was using it, and "
                "the state after step %" PRId64 " cannot be saved next to it: %s",
                dir, step, dt_error_text());
    return DT_OK;
}

static dt_status refuse_lost(const struct dt_save_policy *policy, int64_t step)
{
    const char *dir = policy->engine->config->output.dir;
    const int n = (int)(strlen(policy->dir) - strlen("/checkpoints"));
    DT_FAIL(DT_ERR_IO,
            "run folder %s was removed, renamed or replaced while this run was using it, so it "
            "stopped after step %" PRId64 " and saved its state in %.*s: rename that to %s and run "
            "again, or choose another --out and --resume %.*s",
            dir, step, n, policy->dir, dir, n, policy->dir);
}

/* Rank 0 alone waits, between a save that all ranks have begun and an agreement of all. A save that
 * failed is repeated from the plan, which no longer changes; if the folder is lost, another takes
 * its place first, while the writer is idle. */
static dt_status wait_until_durable(struct dt_save_policy *policy, const struct dt_checkpoint *at)
{
    if (!policy->writer)
        return DT_OK;
    for (int attempt = 1;; attempt++) {
        DT_TRY(take_result(policy, true));
        const bool is_gone = is_lost(policy);
        if (policy->n_failed == 0 && !is_gone)
            return policy->target.may_commit ? DT_OK : refuse_lost(policy, at->step);
        if (attempt == FINAL_ATTEMPTS)
            DT_FAIL(DT_ERR_IO,
                    "the checkpoint of step %lld could not be saved in %d attempts; the newest one "
                    "is %s; mend what the warnings name and run again",
                    (long long)at->step, attempt, policy->last[0] ? policy->last : "none");
        if (is_gone)
            DT_TRY(move_out(policy, at->step));
        else
            sleep_for(fmin(policy->engine->config->checkpoint.retry_s, final_retry_s));
        DT_TRY(dt_writer_start(policy->writer, at));
    }
}

dt_status dt_save_policy_finish(struct dt_save_policy *policy, const struct dt_checkpoint *at)
{
    enum dt_section before = dt_pulse_enter(&dt_pulse_main, DT_SECTION_SAVE);
    dt_fault_at_section(DT_SECTION_SAVE);
    dt_status status = dt_comm_agree(policy->engine->ranks.comm, wait_until_durable(policy, at));
    dt_pulse_enter(&dt_pulse_main, before);
    return status;
}
