/* Saves never end a run: one that fails is a warning and is tried again. Only at the end, when
 * nothing is left to do but to save, does it count. */
#include "train/save_policy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "checkpoint/snapshot.h"
#include "train/preflight.h"
#include "train/replicas.h"

enum { FINAL_ATTEMPTS = 12 };

/* Training may stand still for a hundredth of the time. */
static const double most_stall = 0.01;
static const double slow_disk = 1e8; /* bytes/s, until the first save has been timed */
static const double final_retry_s = 10;

/* --- Opening --- */

dt_status dt_saving_init(struct dt_saving *saving, struct dt_session *s)
{
    *saving = (struct dt_saving){.session = s, .begun_step = -1, .ended_s = dt_clock_s()};
    return dt_file_path(saving->dir, "%s/checkpoints", s->config->output.dir);
}

/* What the bits of a run depend on beside configuration and data. */
static void describe(char *out, size_t bytes, const struct dt_session *s)
{
    char device[128], comm[96];
    s->backend->describe(s->device, device, sizeof device);
    dt_comm_describe_plane(s->plane, comm, sizeof comm);
    snprintf(out, bytes, "%s; %s", device, comm);
}

dt_status dt_saving_open(struct dt_saving *saving, struct dt_run_folder *folder,
                         const char *config_json)
{
    struct dt_session *s = saving->session;
    describe(saving->repro, sizeof saving->repro, s);
    saving->target = (struct dt_checkpoint_target){
        .dir = saving->dir,
        .config_json = config_json,
        .config_hash = XXH3_64bits(config_json, strlen(config_json)),
        .run_id = folder->run_id,
        .build_id = dt_build_id(),
        .repro = saving->repro,
        .keep = s->config->checkpoint.keep,
        .keep_best = s->config->checkpoint.keep_best,
        .keep_every = s->config->checkpoint.keep_every,
        .may_commit = dt_run_folder_check,
        .context = folder,
    };
    DT_TRY(dt_saver_create(&saving->saver, &saving->target, s->plan));
    saving->longest_s = (double)dt_saver_bytes(saving->saver) / slow_disk;
    return dt_preflight_space(s, dt_saver_bytes(saving->saver));
}

void dt_saving_close(struct dt_saving *saving)
{
    dt_saver_destroy(saving->saver);
    saving->saver = NULL;
}

/* --- What became of a save --- */

static void report(const struct dt_saving *saving, const struct dt_saved *saved)
{
    const struct dt_field fields[] = {
        DT_INT("step", saved->step),
        DT_TEXT("path", saved->path),
        DT_NUM("seconds", saved->seconds),
        DT_NUM("stall_s", saving->stall_s),
        DT_INT("bytes", (int64_t)saved->bytes),
    };
    dt_report_event(saving->session->report, "checkpoint", fields, DT_COUNT(fields));
}

static void warn(const struct dt_saving *saving, const struct dt_saved *saved)
{
    char text[sizeof saved->problem + DT_PATH_MAX + 128];
    snprintf(text, sizeof text, "%s; the newest checkpoint is %s; it will be tried again",
             saved->problem, saving->last[0] ? saving->last : "none");
    const struct dt_field fields[] = {DT_TEXT("text", text)};
    dt_report_event(saving->session->report, "warning", fields, DT_COUNT(fields));
}

static dt_status take_result(struct dt_saving *saving, bool wait)
{
    struct dt_saved saved;
    if (!saving->saver || !dt_saver_take_result(saving->saver, &saved, wait))
        return DT_OK;
    saving->ended_s = dt_clock_s();
    saving->longest_s = fmax(saving->longest_s, saving->stall_s + saved.seconds);
    if (saved.status == DT_OK) {
        saving->n_failed = 0;
        memcpy(saving->last, saved.path, sizeof saving->last);
        report(saving, &saved);
        return DT_OK;
    }
    if (saved.status == DT_ERR_IN_USE)
        DT_FAIL(saved.status, "%s", saved.problem);
    saving->n_failed++;
    warn(saving, &saved);
    return DT_OK;
}

dt_status dt_saving_poll(struct dt_saving *saving)
{
    return take_result(saving, false);
}

double dt_saving_due_s(const struct dt_saving *saving)
{
    const struct dt_config *config = saving->session->config;
    double every_s = config->checkpoint.every_seconds;
    if (!saving->saver || dt_saver_is_busy(saving->saver))
        return INFINITY;
    if (saving->n_failed > 0)
        return saving->ended_s + config->checkpoint.retry_s;
    if (saving->is_late)
        return saving->ended_s;
    return every_s > 0 ? saving->ended_s + fmax(every_s, saving->stall_s / most_stall) : INFINITY;
}

/* --- Saving --- */

dt_status dt_saving_put_off(struct dt_saving *saving, bool *is_off)
{
    double busy = saving->saver && dt_saver_is_busy(saving->saver);
    DT_TRY(dt_comm_max_f64(saving->session->comm, &busy, 1));
    *is_off = busy > 0;
    saving->is_late = saving->is_late || *is_off;
    return DT_OK;
}

static dt_status begin(struct dt_saving *saving, struct dt_checkpoint *at)
{
    struct dt_session *s = saving->session;
    DT_TRY(dt_replicas_compare(s, at->step, saving->last));
    dt_status status = DT_OK;
    if (dt_session_scales_loss(s))
        status = s->backend->get_loss_scale(s->device, &at->loss_scale);
    if (status == DT_OK)
        status = take_result(saving, true);
    if (status == DT_OK && saving->saver)
        status = dt_saver_start(saving->saver, at);
    DT_TRY(dt_session_agree(s, status));
    saving->begun_step = at->step;
    saving->is_late = false;
    return DT_OK;
}

dt_status dt_saving_begin(struct dt_saving *saving, struct dt_checkpoint *at)
{
    enum dt_section before = dt_pulse_enter(&dt_pulse_main, DT_SECTION_SAVE);
    dt_fault_at_section(DT_SECTION_SAVE);
    double begin_s = dt_clock_s();
    dt_status status = begin(saving, at);
    saving->stall_s = dt_clock_s() - begin_s;
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

static dt_status wait_until_durable(struct dt_saving *saving, const struct dt_checkpoint *at)
{
    if (!saving->saver)
        return DT_OK;
    for (int attempt = 1;; attempt++) {
        DT_TRY(take_result(saving, true));
        if (saving->n_failed == 0)
            return DT_OK;
        if (attempt == FINAL_ATTEMPTS)
            DT_FAIL(DT_ERR_IO,
                    "the checkpoint of step %lld could not be saved in %d attempts; the newest one "
                    "is %s; make space and run again",
                    (long long)at->step, attempt, saving->last[0] ? saving->last : "none");
        sleep_for(fmin(saving->session->config->checkpoint.retry_s, final_retry_s));
        DT_TRY(dt_saver_start(saving->saver, at));
    }
}

dt_status dt_saving_finish(struct dt_saving *saving, const struct dt_checkpoint *at)
{
    enum dt_section before = dt_pulse_enter(&dt_pulse_main, DT_SECTION_SAVE);
    dt_fault_at_section(DT_SECTION_SAVE);
    dt_status status = dt_session_agree(saving->session, wait_until_durable(saving, at));
    dt_pulse_enter(&dt_pulse_main, before);
    return status;
}
