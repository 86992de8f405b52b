/* Evaluation: the validation set once, every image counted exactly once on any number of ranks (the
 * loader sees to it), and the sub-command `dtrain eval`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alive.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/pulse.h"
#include "base/trace.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/weights.h"
#include "dtrain/eval.h"
#include "dtrain/models.h"
#include "engine/preflight.h"
#include "engine/stop.h"
#include "engine/task.h"
#include "eval/evaluator.h"
#include "eval/predictions.h"

const struct dt_task *dt_task_of(const struct dt_config *config)
{
    return dt_config_detects(config) ? &dt_detector : &dt_classifier;
}

static dt_status run_batch(struct dt_evaluator *evaluator)
{
    const struct dt_batch *batch;
    DT_TRY(dt_loader_next(evaluator->sets->val, &batch));
    if (!batch)
        DT_FAIL(DT_ERR_INTERNAL, "the validation set ended too early");
    dt_status status = dt_engine_eval(evaluator->engine, evaluator->sets, batch);
    if (status == DT_OK)
        status = evaluator->engine->task->add(evaluator, batch);
    dt_loader_release(evaluator->sets->val, batch);
    return status;
}

/* Unless they write predictions, the ranks do not communicate between batches, so a rank that fails
 * skips its remaining batches until the next collective call: at the end, or when they check for a
 * stop. */
static dt_status run_batches(struct dt_evaluator *evaluator, struct dt_stop *stop,
                             const char **reason)
{
    int64_t n_images = dt_dataset_size(evaluator->sets->val_set);
    int64_t per_batch =
        (int64_t)evaluator->sets->ranks.n_ranks * evaluator->sets->config->eval.batch_size_per_rank;
    int64_t n_batches = (int64_t)dt_loader_batches(evaluator->sets->val);
    struct dt_due due = {0};
    dt_status status = dt_loader_start(evaluator->sets->val, 0, 0);
    for (int64_t i = 1; i <= n_batches && !due.stop; i++) {
        if (status == DT_OK)
            status = run_batch(evaluator);
        if (evaluator->predictions) {
            DT_TRY(dt_comm_agree(evaluator->sets->ranks.comm, status));
            status = dt_predictions_add(evaluator->predictions, i - 1);
        }
        dt_pulse_beat(&dt_pulse_main);
        dt_events_progress(evaluator->engine->events, "evaluation",
                           i * per_batch < n_images ? i * per_batch : n_images, n_images);
        if (!stop || i < stop->next_step || i == n_batches)
            continue;
        DT_TRY(dt_stop_check(stop, evaluator->sets->ranks.comm, i, status, &due));
    }
    *reason = due.stop;
    return dt_comm_agree(evaluator->sets->ranks.comm, status);
}

static dt_status evaluate(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                          const struct dt_stop *stop)
{
    struct dt_engine *engine = evaluator->engine;
    struct dt_loader *loader = evaluator->sets->val;
    struct dt_counters counters;
    struct dt_stop batches;
    char text[160];
    const struct dt_field fields[] = {DT_TEXT("text", text)};
    uint64_t n_bad, unused;
    if (stop)
        dt_stop_begin_batches(&batches, stop);
    engine->task->clear(evaluator);
    DT_TRY(dt_plan_broadcast_stats(engine->plan));
    DT_TRY(run_batches(evaluator, stop ? &batches : NULL, &result->stop));
    DT_TRY(engine->backend->download(engine->device, &counters));
    if (result->stop)
        return DT_OK;
    dt_loader_bad_positions(loader, &n_bad, &unused);
    double n_bad_of_all = (double)n_bad;
    DT_TRY(dt_comm_sum_f64(engine->ranks.comm, &n_bad_of_all, 1));
    DT_TRY(dt_sets_check_bad(loader, n_bad_of_all));
    for (int m = 0; m < DT_N_METRICS; m++)
        result->value[m] = result->raw[m] = NAN;
    DT_TRY(engine->task->sum(evaluator, result, &counters));
    for (enum dt_metric m = 0; m < DT_N_METRICS; m++) {
        const bool is_expected = dt_config_has_metric(engine->config, m) &&
                                 m != DT_METRIC_TRAIN_LOSS &&
                                 (m != DT_METRIC_TOP5 || dt_sets_has_top5(evaluator->sets));
        if (!isnan(result->value[m]) || !is_expected)
            continue;
        snprintf(text, sizeof text, "%s is undefined and omitted: %s", dt_metric_name(m),
                 engine->task->why_undefined);
        dt_events_emit(engine->events, "warning", fields, DT_COUNT(fields));
    }
    return DT_OK;
}

dt_status dt_evaluator_run(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                           const struct dt_stop *stop)
{
    enum dt_section before = dt_pulse_enter(&dt_pulse_main, DT_SECTION_EVAL);
    dt_fault_at_section(DT_SECTION_EVAL);
    double begin_s = dt_trace_now();
    dt_status status = evaluate(evaluator, result, stop);
    dt_trace_span("evaluation", NULL, NULL, begin_s, dt_trace_now());
    dt_pulse_enter(&dt_pulse_main, before);
    return status;
}

dt_status dt_evaluator_validate(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                                const struct dt_stop *stop)
{
    double raw[DT_N_METRICS];
    const bool uses_ema = dt_engine_uses_ema(evaluator->engine);
    const bool both = uses_ema && evaluator->sets->config->eval.weights == DT_WEIGHTS_BOTH;
    if (!uses_ema || both)
        DT_TRY(dt_evaluator_run(evaluator, result, stop));
    if (!uses_ema || (both && result->stop))
        return DT_OK;
    memcpy(raw, result->value, sizeof raw);
    DT_TRY(dt_plan_swap_ema(evaluator->engine->plan));
    dt_status status = dt_evaluator_run(evaluator, result, stop);
    dt_status swapped = dt_plan_swap_ema(evaluator->engine->plan);
    DT_TRY(status != DT_OK ? status : swapped);
    if (both && !result->stop)
        memcpy(result->raw, raw, sizeof raw);
    return DT_OK;
}

dt_status dt_evaluator_save(const struct dt_evaluator *evaluator, const char *name,
                            void (*print)(FILE *, const struct dt_evaluator *))
{
    struct dt_new_file file;
    char path[DT_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    DT_TRY(dt_file_path(path, "%s/%s", evaluator->sets->config->output.dir, name));
    DT_TRY(dt_file_begin(&file, path));
    FILE *out = open_memstream(&text, &bytes);
    if (out)
        print(out, evaluator);
    return dt_file_end(&file, dt_file_write_stream(file.fd, out, &text, &bytes, path));
}

dt_status dt_evaluator_open(struct dt_evaluator *evaluator, struct dt_engine *engine,
                            struct dt_sets *sets, bool all)
{
    *evaluator = (struct dt_evaluator){.engine = engine, .sets = sets};
    return dt_comm_agree(engine->ranks.comm, engine->task->open(evaluator, all));
}

void dt_evaluator_close(struct dt_evaluator *evaluator)
{
    if (evaluator->engine)
        evaluator->engine->task->close(evaluator);
}

/* The model's classes are those of the weights; all ranks get them from rank 0. Collective. */
static dt_status take_classes(struct dt_sets *sets, char *path, const char *weights)
{
    struct dt_comm *comm = sets->ranks.comm;
    const bool first = sets->ranks.rank == 0;
    dt_status status = DT_OK;
    char *text = NULL;
    int64_t n = 0;
    if (first)
        status = dt_weights_find(path, weights);
    if (first && status == DT_OK)
        status = dt_weights_classes(&text, &n, path, dt_model_find(sets->config->model.name));
    int64_t bytes = text ? (int64_t)strlen(text) : 0;
    DT_TRY_OUT(dt_comm_agree(comm, status));
    DT_TRY_OUT(dt_comm_bcast(comm, &bytes, sizeof bytes, 0));
    DT_TRY_OUT(dt_comm_bcast(comm, &n, sizeof n, 0));
    sets->weights_classes = (int)n;
    if (!first)
        status = DT_NEW(text, (size_t)bytes + 1);
    DT_TRY_OUT(dt_comm_agree(comm, status));
    DT_TRY_OUT(dt_comm_bcast(comm, text, (size_t)bytes, 0));
    DT_TRY_OUT(
        dt_comm_agree(comm, bytes ? dt_classes_parse(&sets->classes, text, weights) : DT_OK));
out:
    free(text);
    return status;
}

/* Rank 0 has the path. */
static dt_status load_weights(struct dt_engine *engine, const char *path)
{
    dt_status status = DT_OK;
    if (engine->ranks.rank == 0)
        status = dt_weights_load(engine->plan, path, NULL, true, NULL);
    DT_TRY(dt_comm_agree(engine->ranks.comm, status));
    return dt_plan_broadcast(engine->plan);
}

/* All but the weights themselves, whose path rank 0 gets. */
static dt_status open_for(char path[DT_PATH_MAX], struct dt_engine *engine, struct dt_sets *sets,
                          const struct dt_engine_options *options, const char *weights)
{
    DT_TRY(take_classes(sets, path, weights));
    DT_TRY(dt_engine_open(engine, sets, options, NULL));
    return dt_preflight_agree(engine, sets);
}

dt_status dt_engine_open_weights(struct dt_engine *engine, struct dt_sets *sets,
                                 const struct dt_engine_options *options, const char *weights)
{
    char path[DT_PATH_MAX];
    DT_TRY(open_for(path, engine, sets, options, weights));
    return load_weights(engine, path);
}

static dt_status print_result(const struct dt_task *task, const struct dt_eval_result *result,
                              const char *checkpoint)
{
    struct dt_jsonw w = {0};
    dt_jsonw_begin(&w, NULL, '{');
    if (checkpoint)
        dt_jsonw_string(&w, "checkpoint", checkpoint);
    dt_jsonw_integer(&w, "images", result->n_images);
    task->put_result(&w, result);
    dt_jsonw_close(&w, '}');
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK && (printf("%s\n", w.text) < 0 || fflush(stdout) != 0))
        status = DT_ERROR(DT_ERR_IO, "cannot write the result to standard output");
    dt_jsonw_reset(&w);
    return status;
}

/* --- Files, on rank 0 --- */

static dt_status end_files(struct dt_eval_files *files, dt_status status)
{
    status = dt_file_end(&files->predictions, status);
    return dt_file_end(&files->confusion, status);
}

static dt_status publish(struct dt_eval_files *files, const struct dt_evaluator *evaluator,
                         const struct dt_eval_result *result, bool per_class,
                         const char *checkpoint)
{
    const struct dt_task *task = evaluator->engine->task;
    DT_TRY(task->write(evaluator, files));
    DT_TRY(end_files(files, DT_OK));
    if (per_class)
        task->print_classes(stdout, evaluator);
    return print_result(task, result, checkpoint);
}

/* --- All checkpoints of a run --- */

/* The good ones after step *last, from the oldest; *last becomes that of the newest. Rank 0. */
static dt_status list_checkpoints(struct dt_names *files, const char *run, int64_t *last)
{
    char path[DT_PATH_MAX], dir[DT_PATH_MAX];
    int64_t *steps = NULL;
    int n_steps = 0;
    bool is_one;
    dt_status status = DT_OK;
    DT_TRY(dt_checkpoint_locate(dir, &is_one, run));
    DT_TRY(dt_checkpoint_list(&steps, &n_steps, dir));
    if (n_steps == 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_USAGE, "%s holds no checkpoints", run));
    for (int i = n_steps - 1; i >= 0; i--) {
        if (steps[i] <= *last)
            continue;
        *last = steps[i];
        DT_TRY_OUT(dt_checkpoint_path(path, dir, steps[i]));
        if (dt_weights_find(path, path) == DT_OK)
            DT_TRY_OUT(dt_names_add(files, path, strlen(path)));
        else
            dt_log(DT_LOG_WARNING, "skipped: %s", dt_error_text());
    }
out:
    free(steps);
    return status;
}

/* --- The sub-command --- */

struct evaluation {
    struct dt_sets sets;
    struct dt_engine engine;
    struct dt_evaluator evaluator;
    struct dt_eval_files files;
    /* Rank 0, if not only one is evaluated: */
    struct dt_names checkpoints; /* files of the next ones */
    int64_t last_step;           /* of those that were found, -1 = none */
    double found_s;              /* dt_clock_s when that was */
    bool has_said;               /* that it waits */
};

static dt_status prepare(struct evaluation *e, const struct dt_eval_options *options)
{
    const struct dt_events_options report = {.config = NULL};
    if (e->engine.ranks.rank != 0)
        return DT_OK;
    DT_TRY(dt_events_open(&e->engine.events, &report));
    if (options->all_checkpoints && (options->confusion || options->predictions))
        DT_FAIL(DT_ERR_USAGE,
                "--all-checkpoints: %s is written for a single checkpoint; name one, as RUN@best",
                options->confusion ? "--confusion" : "--predictions");
    if (e->engine.task->check_options)
        DT_TRY(e->engine.task->check_options(options));
    const char *suffix = options->confusion ? strrchr(options->confusion, '.') : ".csv";
    e->files.as_picture = suffix && strcmp(suffix, ".svg") == 0;
    if (!e->files.as_picture && (!suffix || strcmp(suffix, ".csv") != 0))
        DT_FAIL(DT_ERR_USAGE, "--confusion: the name of %s must end in .csv or .svg",
                options->confusion);
    if (options->confusion)
        DT_TRY(dt_file_begin(&e->files.confusion, options->confusion));
    return options->predictions ? dt_file_begin(&e->files.predictions, options->predictions)
                                : DT_OK;
}

/* The weights that are loaded; those of `checkpoint`, which the result then names, or NULL. */
static dt_status evaluate_loaded(struct evaluation *e, const struct dt_eval_options *options,
                                 const char *checkpoint)
{
    struct dt_eval_result result;
    dt_status status = DT_OK;
    DT_TRY(dt_evaluator_run(&e->evaluator, &result, NULL));
    if (e->engine.ranks.rank == 0)
        status = publish(&e->files, &e->evaluator, &result, options->per_class, checkpoint);
    return dt_comm_agree(e->engine.ranks.comm, status);
}

/* The run may have removed it since it was found. `file`: on rank 0. */
static dt_status evaluate_one(struct evaluation *e, const struct dt_eval_options *options,
                              const char *file)
{
    struct dt_engine *engine = &e->engine;
    dt_status status = DT_OK;
    int64_t is_gone = 0;
    if (file)
        status = dt_weights_load(engine->plan, file, NULL, true, NULL);
    if (status != DT_OK && !dt_file_exists(file)) {
        dt_log(DT_LOG_WARNING, "skipped: the run has removed %s", file);
        dt_error_clear();
        is_gone = true;
        status = DT_OK;
    }
    DT_TRY(dt_comm_agree(engine->ranks.comm, status));
    DT_TRY(dt_comm_bcast(engine->ranks.comm, &is_gone, sizeof is_gone, 0));
    if (is_gone)
        return DT_OK;
    DT_TRY(dt_plan_broadcast(engine->plan));
    return evaluate_loaded(e, options, file);
}

static void wait_for_more(struct evaluation *e, const char *run)
{
    char text[DT_PATH_MAX + 96], since[32];
    if (e->engine.ranks.rank == 0 && dt_log_is_terminal()) {
        dt_clock_format(since, sizeof since, dt_clock_s() - e->found_s);
        snprintf(text, sizeof text, "waiting for a checkpoint of %s; the last came %s ago", run,
                 since);
        dt_log_progress(text);
    } else if (!e->has_said) {
        dt_log(DT_LOG_INFO, "waiting for the next checkpoint of %s", run);
    }
    e->has_said = true;
    dt_clock_sleep(DT_FOLLOW_S);
    dt_pulse_beat(&dt_pulse_main);
}

/* Whether the run is in progress is asked before its checkpoints are listed: a run that has ended
 * makes no more. */
static dt_status evaluate_all(struct evaluation *e, const struct dt_eval_options *options)
{
    struct dt_comm *comm = e->engine.ranks.comm;
    const bool first = e->engine.ranks.rank == 0;
    struct {
        uint64_t n, goes_on;
    } found;
    e->found_s = dt_clock_s();
    do {
        dt_status status = DT_OK;
        found.goes_on = first && options->follow && dt_run_is_alive(options->run);
        dt_names_reset(&e->checkpoints);
        if (first)
            status = list_checkpoints(&e->checkpoints, options->run, &e->last_step);
        DT_TRY(dt_comm_agree(comm, status));
        found.n = e->checkpoints.n;
        DT_TRY(dt_comm_bcast(comm, &found, sizeof found, 0));
        if (found.n > 0)
            e->found_s = dt_clock_s();
        for (size_t i = 0; i < found.n; i++)
            DT_TRY(evaluate_one(e, options, first ? dt_names_get(&e->checkpoints, i) : NULL));
        if (found.n == 0 && found.goes_on)
            wait_for_more(e, options->run);
    } while (found.goes_on);
    dt_log_progress("");
    return DT_OK;
}

static dt_status load_and_evaluate(struct evaluation *e, const struct dt_eval_options *options)
{
    const struct dt_engine_options evaluates = {.eval = true};
    const struct dt_task *task = e->engine.task;
    const bool all = options->per_class || options->confusion || options->predictions;
    char path[DT_PATH_MAX];
    struct dt_comm *comm = e->engine.ranks.comm;
    DT_TRY(dt_comm_agree(comm, prepare(e, options)));
    DT_TRY(open_for(path, &e->engine, &e->sets, &evaluates, options->weights));
    DT_TRY(dt_evaluator_open(&e->evaluator, &e->engine, &e->sets, all));
    if (options->all_checkpoints)
        return evaluate_all(e, options);
    DT_TRY(load_weights(&e->engine, path));
    if (task->begin_table)
        DT_TRY(dt_comm_agree(comm, task->begin_table(&e->evaluator, &e->files, options)));
    return evaluate_loaded(e, options, NULL);
}

dt_status dt_evaluate(struct dt_comm *comm, const struct dt_config *config,
                      const struct dt_eval_options *options)
{
    struct evaluation e = {.files = {.confusion.fd = -1, .predictions.fd = -1}, .last_step = -1};
    dt_sets_init(&e.sets, comm, config, dt_task_of(config));
    e.sets.may_lack_boxes = options->predictions;
    dt_engine_init(&e.engine, &e.sets);
    dt_status status = load_and_evaluate(&e, options);
    if (status != DT_OK)
        end_files(&e.files, status);
    dt_names_reset(&e.checkpoints);
    dt_evaluator_close(&e.evaluator);
    dt_engine_close(&e.engine, &e.sets, status);
    return status;
}
