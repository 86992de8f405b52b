/* The beginning and the end of a training run. Until it is known that this run may continue in the
 * run folder, nothing changes there except the lock, the heartbeats and the removal of leftovers of
 * crashes. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/text.h"
#include "engine/preflight.h"
#include "eval/drawing.h"
#include "train/run.h"
#include "watch/heartbeat.h"

/* The key to raise in order to continue; NULL if the run is not complete. */
static const char *find_end(const struct run *r)
{
    const char *key = dt_best_ends(&r->at, r->engine.config);
    if (key || r->at.step < r->engine.last_step)
        return key;
    return r->engine.last_step < r->engine.schedule.total_steps ? "train.max_steps"
                                                                : "train.epochs";
}

bool dt_run_is_complete(const struct run *r)
{
    return find_end(r) != NULL;
}

/* --- The folder --- */

/* Takes the lock and opens the console for progress lines. */
static dt_status prepare_output(struct run *r)
{
    struct dt_events_options console = {.config = r->engine.config};
    if (r->engine.ranks.rank != 0)
        return DT_OK;
    DT_TRY(dt_run_folder_open(&r->folder, r->engine.config->output.dir));
    dt_checkpoint_clean(r->save_policy.dir);
    DT_TRY(dt_checkpoint_check_dir(r->save_policy.dir));
    return dt_events_open(&r->engine.events, &console);
}

/* The id is random, so that beats of an earlier start, which may have ended before it got an
 * incarnation in RUN, raise no alarm. */
static dt_status share_start_id(const struct dt_ranks *ranks, int64_t *id)
{
    uint64_t random = 0;
    dt_status status = DT_OK;
    if (ranks->rank == 0 && getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        status =
            DT_ERROR(DT_ERR_IO, "cannot get random numbers for the watchdog: %s", strerror(errno));
    DT_TRY(dt_comm_agree(ranks->comm, status));
    *id = (int64_t)(random & INT64_MAX);
    return dt_comm_bcast(ranks->comm, id, sizeof *id, 0);
}

/* A first beat of rank 0 shows the others that they see the same folder. */
static dt_status check_shared(const struct dt_ranks *ranks, const struct dt_config *config,
                              int64_t start_id)
{
    char path[DT_PATH_MAX];
    struct dt_heartbeat beat = {.start_id = start_id};
    dt_status status = dt_heartbeat_path(path, config->output.dir);
    if (status == DT_OK && ranks->rank == 0)
        status = dt_heartbeat_write(path, &beat);
    DT_TRY(dt_comm_agree(ranks->comm, status));
    status = dt_heartbeat_find_first(config->output.dir, start_id, ranks->comm);
    status = dt_comm_agree(ranks->comm, status);
    if (status != DT_OK)
        dt_error_set_origin(0); /* the text names the rank */
    return status;
}

/* The run folder for what other ranks than 0 keep there; NULL = they do not have it. */
static const char *shared_dir(const struct dt_config *config)
{
    return config->output.shared ? config->output.dir : NULL;
}

static dt_status start_watchdog(const struct dt_ranks *ranks, const struct dt_config *config)
{
    struct dt_watchdog_options options = {
        .dir = shared_dir(config),
        .comm = ranks->comm,
        .rank = ranks->rank,
        .n_ranks = ranks->n_ranks,
        .node = dt_comm_first_of_node(ranks->comm),
        .n_local = dt_comm_local_size(ranks->comm),
        .limits = config->watchdog,
    };
    DT_TRY(share_start_id(ranks, &options.start_id));
    if (options.dir)
        DT_TRY(check_shared(ranks, config, options.start_id));
    DT_TRY(dt_comm_agree(ranks->comm, dt_watchdog_start(&options)));
    /* The first step may take as long as the start. */
    dt_watchdog_set_step(config->watchdog.init_timeout_s / 10);
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_INIT);
    dt_fault_at_section(DT_SECTION_INIT);
    return DT_OK;
}

static dt_status open_output(struct run *r, bool resumed)
{
    const char *dir = r->engine.config->output.dir;
    char path[DT_PATH_MAX];
    struct dt_events_options report = {.config = r->engine.config,
                                       .dir = dir,
                                       .append = resumed,
                                       .from_step = resumed ? r->at.step + !r->at.eval_due : 0};
    struct dt_config stored = *r->engine.config;
    if (r->engine.ranks.rank != 0)
        return DT_OK;
    dt_config_make_absolute(&stored); /* for whoever evaluates from another folder */
    DT_TRY(dt_config_print(&r->config_json, &stored));
    DT_TRY(dt_save_policy_open(&r->save_policy, &r->folder, r->config_json, r->sets.classes_text));
    DT_TRY(dt_run_folder_begin(&r->folder, !resumed));
    r->save_policy.target.incarnation = r->folder.incarnation;
    DT_TRY(dt_file_path(path, "%s/config.json", dir));
    DT_TRY(dt_file_save(path, r->config_json, strlen(r->config_json)));
    DT_TRY(dt_file_path(path, "%s/classes.txt", dir));
    if (r->sets.classes_text)
        DT_TRY(dt_file_save(path, r->sets.classes_text, strlen(r->sets.classes_text)));
    dt_events_close(r->engine.events);
    r->engine.events = NULL;
    return dt_events_open(&r->engine.events, &report);
}

static void open_log(const struct dt_engine *engine)
{
    char host[DT_HOST_MAX], device[256];
    if (!engine->config->output.rank_logs ||
        (engine->ranks.rank != 0 && !shared_dir(engine->config)))
        return;
    dt_host_name(host);
    engine->backend->describe(engine->device, device, sizeof device);
    dt_log_open(engine->config->output.dir);
    dt_log(DT_LOG_DEBUG, "rank %d of %d, process %d on %s, %s, %d CPUs", engine->ranks.rank,
           engine->ranks.n_ranks, (int)getpid(), host, device, dt_comm_cpus(engine->ranks.comm));
}

/* The folder of the best checkpoint; "" if there is none. */
static const char *best_path(char path[DT_PATH_MAX], const struct run *r)
{
    if (r->at.best.step < 0 ||
        dt_checkpoint_path(path, r->save_policy.dir, r->at.best.step) != DT_OK ||
        !dt_file_exists(path))
        path[0] = '\0';
    return path;
}

/* Hashes the file; leaves `hash` unchanged if the run does not promise its bits. */
static void find_hash(char hash[DT_HASH_TEXT], const struct run *r, const char *folder,
                      const char *name)
{
    struct dt_manifest m;
    if (!dt_engine_promises_bits(&r->engine))
        return;
    if (dt_manifest_load(&m, folder) != DT_OK) {
        dt_error_clear();
        return;
    }
    for (int i = 0; i < m.n_files; i++)
        if (strcmp(m.files[i].name, name) == 0)
            dt_hash_format(hash, m.files[i].hash);
    dt_manifest_reset(&m);
}

/* RUN/model.safetensors and RUN/ema.safetensors (`name`) are the result: the last weights, or the
 * best with train.restore_best. Its path goes to `to`, "" if there is none. The checkpoint is
 * durable, so a failure is only a warning. Rank 0. */
static void link_result(const struct run *r, const char *name, char to[DT_PATH_MAX],
                        char hash[DT_HASH_TEXT])
{
    char folder[DT_PATH_MAX] = "", from[DT_PATH_MAX];
    const bool best = r->engine.config->train.restore_best && best_path(folder, r)[0];
    dt_status status = dt_file_path(to, "%s/%s", r->engine.config->output.dir, name);
    if (status == DT_OK && !best)
        status = dt_checkpoint_path(folder, r->save_policy.dir, r->at.step);
    if (status == DT_OK)
        status = dt_file_path(from, "%s/%s", folder, name);
    if (status == DT_OK)
        status = dt_file_publish(from, to);
    if (status == DT_OK) {
        find_hash(hash, r, folder, name);
        return;
    }
    dt_log(DT_LOG_WARNING, "the model remains in %s only: %s", folder, dt_error_text());
    dt_error_clear();
    to[0] = '\0';
}

/* `to` becomes the path of the one that was evaluated. */
static void publish_model(const struct run *r, char to[DT_PATH_MAX], char hash[DT_HASH_TEXT])
{
    const char *const names[] = {"ema.safetensors", "model.safetensors"};
    const bool uses_ema = dt_engine_uses_ema(&r->engine);
    for (int i = !dt_plan_has_ema(r->engine.plan); i < 2; i++)
        link_result(r, names[uses_ema ? 1 - i : i], to, hash);
}

/* --- Messages --- */

/* The start before may have been killed before it published the model. Another folder's run stays
 * where it is. Rank 0. */
static void log_finished(const struct run *r, const struct dt_resume *resume)
{
    char best[96], model[DT_PATH_MAX] = "", hash[DT_HASH_TEXT] = "";
    const char *dir = r->engine.config->output.dir, *key = find_end(r);
    if (resume->is_own)
        publish_model(r, model, hash);
    else if (dt_file_path(model, "%s/model.safetensors", resume->path) != DT_OK)
        dt_error_clear();
    dt_best_describe(best, sizeof best, &r->at);
    dt_log(DT_LOG_INFO,
           "already finished after %" PRId64 " steps%s%s%s; its model is %s%s%s; to train longer, "
           "raise %s: dtrain resume %s --set %s=N; for a new run, choose another --out",
           r->at.step, best[0] ? " (" : "", best, best[0] ? ")" : "", model,
           hash[0] ? ", XXH128 " : "", hash, key, resume->is_own ? dir : "RUN", key);
}

/* How the previous run ended, where this one resumes, and what it is going to do. */
static void print_start(const struct run *r, const struct dt_resume *resume)
{
    char from[DT_PATH_MAX + 8] = "from scratch", lost[96] = "";
    const int64_t last_step = r->folder.was_running ? r->folder.last_step : 0;
    if (resume->found)
        snprintf(from, sizeof from, "from %s", resume->path);
    else if (r->engine.weights[0])
        snprintf(from, sizeof from, "from these weights");
    struct dt_summary summary = {
        .engine = &r->engine,
        .sets = &r->sets,
        .run_dir = r->engine.config->output.dir,
        .start = from,
        .n_parameters = dt_engine_parameters(&r->engine),
        .checkpoint_bytes = dt_writer_bytes(r->save_policy.writer),
        .seconds = dt_clock_s() - r->begin_s,
        .end = isfinite(r->stop.end_s) ? r->stop.end_reason : "",
    };
    if (last_step > r->at.step)
        snprintf(lost, sizeof lost, "; %" PRId64 " step%s will be repeated", last_step - r->at.step,
                 DT_S(last_step - r->at.step));
    if (r->folder.was_running)
        dt_log(DT_LOG_INFO,
               "the previous run ended without a final status at step >= %" PRId64 " (killed?)",
               last_step > r->at.step ? last_step : r->at.step);
    if (resume->found)
        dt_log(DT_LOG_INFO, "resuming from %s%s", resume->path, lost);
    dt_summary_print(&summary);
}

/* --- Together --- */

/* Opens everything in which the run takes place. */
static dt_status open_run(struct run *r, struct dt_resume *resume,
                          const struct dt_train_options *options)
{
    const struct dt_config *config = r->engine.config;
    const bool validates = dt_config_has_validation(config);
    const struct dt_engine_options engine = {.train = true, .eval = validates};
    struct dt_comm *comm = r->engine.ranks.comm;
    DT_TRY(dt_comm_agree(comm, dt_save_policy_init(&r->save_policy, &r->engine)));
    DT_TRY(dt_comm_agree(comm, prepare_output(r)));
    DT_TRY(start_watchdog(&r->engine.ranks, config));
    DT_TRY(dt_resume_find(resume, &r->engine, options, r->save_policy.dir));
    r->engine.run_dir = config->output.dir;
    DT_TRY(dt_engine_open(&r->engine, &r->sets, &engine, shared_dir(config)));
    if (validates)
        DT_TRY(dt_evaluator_open(&r->evaluator, &r->engine, &r->sets, false));
    return dt_preflight_agree(&r->engine, &r->sets);
}

dt_status dt_run_begin(struct run *r, const struct dt_train_options *options)
{
    struct dt_resume resume;
    bool validated = dt_config_has_validation(r->engine.config);
    DT_TRY(dt_timeline_init(&r->timeline, r->engine.ranks.comm, options->trace));
    DT_TRY(dt_file_path(r->timeline.path, "%s/trace.json.gz", r->engine.config->output.dir));
    DT_TRY(open_run(r, &resume, options));
    /* Before the weights: it uses the gradient buffers. */
    DT_TRY(dt_preflight_try(&r->engine, &r->sets));
    DT_TRY(dt_resume_load(&r->at, &resume, &r->engine, &r->sets));
    r->at.eval_due = r->at.eval_due && validated;
    r->begin_step = r->at.step;
    r->was_complete = resume.found && dt_run_is_complete(r) && !r->at.eval_due;
    if (r->was_complete) {
        if (r->engine.ranks.rank == 0)
            log_finished(r, &resume);
        /* A start that was killed has not said so. */
        if (r->engine.ranks.rank == 0 && resume.is_own)
            dt_run_folder_end(&r->folder, DT_OK, r->at.step);
        return DT_OK;
    }
    DT_TRY(dt_timeline_check(&r->timeline, r->at.step, r->engine.last_step));
    DT_TRY(dt_replicas_compare(&r->engine, r->at.step, resume.path)); /* all have rank 0's state */
    DT_TRY(dt_comm_agree(r->engine.ranks.comm, open_output(r, resume.found)));
    open_log(&r->engine);
    memcpy(r->save_policy.last, resume.path, sizeof r->save_policy.last);
    r->save_policy.begun_step = resume.is_own ? r->at.step : -1;
    r->save_policy.target.resumed_step = resume.found ? r->at.step : -1;
    dt_stop_init(&r->stop, options->max_time_s, r->begin_s, r->at.step);
    r->stop.folder = &r->folder;
    r->stop.must_look = !r->engine.config->output.shared;
    dt_metrics_init(&r->metrics, &r->engine, r->at.step);
    dt_stragglers_init(&r->stragglers, r->engine.ranks.comm, r->engine.events,
                       !dt_engine_has_times(&r->engine), r->at.step);
    if (r->engine.ranks.rank == 0)
        print_start(r, &resume);
    DT_TRY(dt_announce_start(&r->engine, &r->sets, r->config_json, r->at.step));
    if (r->engine.ranks.rank == 0 && !resume.found)
        dt_samples_report(&r->engine, &r->sets);
    return DT_OK;
}

/* --- The end --- */

static dt_status report_bad_images(struct run *r)
{
    uint64_t now[2] = {0}, before[2] = {0};
    dt_loader_bad_positions(r->sets.train, &now[0], &before[0]);
    if (r->sets.val)
        dt_loader_bad_positions(r->sets.val, &now[1], &before[1]);
    int64_t sums[] = {(int64_t)now[0], (int64_t)before[0], (int64_t)now[1]};
    DT_TRY(dt_comm_sum_i64(r->engine.ranks.comm, sums, 3));
    int64_t n_bad = (sums[0] > sums[1] ? sums[0] : sums[1]) + sums[2];
    if (n_bad > 0)
        dt_log(DT_LOG_WARNING, "%" PRId64 " unreadable image%s replaced", n_bad,
               n_bad == 1 ? " was" : "s were");
    return DT_OK;
}

static void report_end(struct run *r, dt_status status)
{
    char why[512] = "", path[DT_PATH_MAX], model[DT_PATH_MAX] = "", hash[DT_HASH_TEXT] = "";
    double seconds = dt_clock_s() - r->begin_s;
    double n_images = dt_schedule_images(&r->engine.schedule, r->begin_step, r->at.step);
    const struct dt_best *best = &r->at.best;
    if (status != DT_OK && status != DT_STOPPED)
        snprintf(why, sizeof why, "%s", dt_error_text());
    if (status == DT_OK)
        dt_best_explain(why, sizeof why, &r->at, r->engine.config, find_end(r));
    if (status == DT_OK && r->engine.ranks.rank == 0)
        publish_model(r, model, hash);
    const char *reason = status == DT_STOPPED ? r->stop_reason : why;
    struct dt_field fields[14] = {
        DT_TEXT("status", dt_status_name(status)),
        DT_INT("exit_code", status),
        DT_TEXT("reason", reason),
        DT_INT("steps", r->at.step),
        DT_NUM("seconds", seconds),
        DT_NUM("images_per_s", n_images / seconds),
        DT_TEXT("model", model),
        DT_INT("warnings", dt_log_warnings()),
    };
    const struct dt_field of_best[] = {
        DT_TEXT("best_metric", dt_metric_name(best->metric)),
        DT_NUM("best", best->value),
        DT_INT("best_epoch", best->epoch),
        DT_TEXT("best_path", best_path(path, r)),
    };
    int n_fields = 8;
    for (size_t i = 0; best->step >= 0 && i < DT_COUNT(of_best); i++)
        fields[n_fields++] = of_best[i];
    if (r->top1 >= 0)
        fields[n_fields++] = (struct dt_field)DT_NUM("top1", r->top1);
    if (hash[0])
        fields[n_fields++] = (struct dt_field)DT_TEXT("model_xxh128", hash);
    dt_events_emit(r->engine.events, "run_end", fields, n_fields);
}

/* Open MPI's mpirun passes these on, and what its ranks return does not count then. */
static const char *mpirun_exit_note(const struct run *r)
{
    const bool ends_job =
        strcmp(r->stop_reason, "SIGINT") == 0 || strcmp(r->stop_reason, "SIGTERM") == 0;
    return ends_job && strncmp(dt_comm_launched().variable, "OMPI", 4) == 0
               ? "; mpirun that is ended by Ctrl-C or SIGTERM returns 1, not 75: send it SIGUSR1"
               : "";
}

dt_status dt_run_end(struct run *r, dt_status status)
{
    const int origin = dt_error_origin(); /* what fails from here on does not change it */
    if (status == DT_OK || status == DT_STOPPED)
        DT_TRY(report_bad_images(r));
    if (status == DT_STOPPED)
        dt_log(DT_LOG_INFO, "stopped after step %" PRId64 " by %s; run again to continue from %s%s",
               r->at.step, r->stop_reason, r->save_policy.last, mpirun_exit_note(r));
    report_end(r, status);
    if (r->engine.ranks.rank == 0)
        dt_run_folder_end(&r->folder, status, r->at.step);
    dt_error_set_origin(origin);
    return status;
}
