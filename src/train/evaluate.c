/* Evaluation: the validation set once, every image counted exactly once on any number of ranks (the
 * loader sees to it), and the sub-command `dtrain eval`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/trace.h"
#include "checkpoint/weights.h"
#include "data/classes.h"
#include "dtrain/models.h"
#include "dtrain/train.h"
#include "train/box_judging.h"
#include "train/judging.h"
#include "train/predictions.h"
#include "train/preflight.h"
#include "train/stop.h"

static dt_status run_batch(struct dt_evaluator *evaluator)
{
    const struct dt_batch *batch;
    DT_TRY(dt_loader_next(evaluator->sets->val, &batch));
    if (!batch)
        DT_FAIL(DT_ERR_INTERNAL, "the validation set ended too early");
    dt_status status = dt_engine_eval(evaluator->engine, evaluator->sets, batch);
    if (status == DT_OK && evaluator->judging)
        status = dt_judging_add(evaluator, batch);
    if (status == DT_OK && evaluator->box_judging)
        status = dt_detections_add(&evaluator->box_judging->detections, evaluator->engine,
                                   evaluator->sets, batch);
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
        dt_report_progress(evaluator->engine->report, "evaluation",
                           i * per_batch < n_images ? i * per_batch : n_images, n_images);
        if (!stop || i < stop->next_step || i == n_batches)
            continue;
        DT_TRY(dt_stop_check(stop, evaluator->sets->ranks.comm, i, status, &due));
    }
    *reason = due.stop;
    return dt_comm_agree(evaluator->sets->ranks.comm, status);
}

/* With eval.tta the device has counted each image and its mirror. */
static void replace_counters(struct dt_counters *counters, const struct dt_judge *judge)
{
    counters->loss = judge->loss;
    counters->n = judge->n;
    counters->n_finite = judge->n_finite;
    counters->top1 = judge->top1;
    counters->top5 = judge->top5;
}

static bool is_expected(const struct dt_evaluator *evaluator, enum dt_metric m)
{
    return dt_config_has_metric(evaluator->sets->config, m) && m != DT_METRIC_TRAIN_LOSS &&
           (m != DT_METRIC_TOP5 || dt_sets_has_top5(evaluator->sets));
}

static void warn_undefined(const struct dt_evaluator *evaluator,
                           const struct dt_eval_result *result)
{
    char text[160];
    const struct dt_field fields[] = {DT_TEXT("text", text)};
    const char *const why =
        evaluator->engine->model->detects
            ? "no validation image has a box"
            : "a class it needs has no validation images, or logits are not finite";
    for (enum dt_metric m = 0; m < DT_N_METRICS; m++) {
        if (!isnan(result->value[m]) || !is_expected(evaluator, m))
            continue;
        snprintf(text, sizeof text, "%s is undefined and left out: %s", dt_metric_name(m), why);
        dt_report_event(evaluator->engine->report, "warning", fields, DT_COUNT(fields));
    }
}

enum { SUM_LOSS, SUM_IMAGES, SUM_TOP1, SUM_TOP5, SUM_BAD, SUM_FINITE, N_SUMS };

static dt_status set_values(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                            const double *sums)
{
    for (int m = 0; m < DT_N_METRICS; m++)
        result->value[m] = result->raw[m] = NAN;
    if (evaluator->box_judging)
        return dt_box_judging_sum(evaluator, result);
    result->n_images = (int64_t)sums[SUM_IMAGES];
    result->value[DT_METRIC_LOSS] = sums[SUM_LOSS] / sums[SUM_FINITE];
    result->value[DT_METRIC_TOP1] = 100 * sums[SUM_TOP1] / sums[SUM_IMAGES];
    if (dt_sets_has_top5(evaluator->sets))
        result->value[DT_METRIC_TOP5] = 100 * sums[SUM_TOP5] / sums[SUM_IMAGES];
    return evaluator->judging ? dt_judging_sum(evaluator, result->value) : DT_OK;
}

static dt_status evaluate(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                          const struct dt_stop *stop)
{
    struct dt_counters counters;
    struct dt_stop batches;
    uint64_t n_bad, unused;
    if (stop)
        dt_stop_begin_batches(&batches, stop);
    if (evaluator->judging)
        dt_judge_clear(evaluator->judging->judge);
    if (evaluator->box_judging)
        evaluator->box_judging->detections.n = 0;
    DT_TRY(dt_plan_broadcast_stats(evaluator->engine->plan));
    DT_TRY(run_batches(evaluator, stop ? &batches : NULL, &result->stop));
    DT_TRY(evaluator->engine->backend->download(evaluator->engine->device, &counters));
    if (result->stop)
        return DT_OK;
    if (evaluator->sets->config->eval.tta != DT_TTA_NONE)
        replace_counters(&counters, evaluator->judging->judge);
    dt_loader_bad_positions(evaluator->sets->val, &n_bad, &unused);
    double sums[N_SUMS] = {
        [SUM_LOSS] = counters.loss,         [SUM_IMAGES] = (double)counters.n,
        [SUM_TOP1] = (double)counters.top1, [SUM_TOP5] = (double)counters.top5,
        [SUM_BAD] = (double)n_bad,          [SUM_FINITE] = (double)counters.n_finite};
    DT_TRY(dt_comm_sum_f64(evaluator->sets->ranks.comm, sums, N_SUMS));
    DT_TRY(dt_sets_check_bad(evaluator->sets->val, sums[SUM_BAD]));
    DT_TRY(set_values(evaluator, result, sums));
    warn_undefined(evaluator, result);
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

static dt_status evaluate_ema(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                              const struct dt_stop *stop)
{
    DT_TRY(dt_plan_swap_ema(evaluator->engine->plan));
    dt_status status = dt_evaluator_run(evaluator, result, stop);
    dt_status swapped = dt_plan_swap_ema(evaluator->engine->plan);
    return status != DT_OK ? status : swapped;
}

dt_status dt_evaluator_validate(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                                const struct dt_stop *stop)
{
    double raw[DT_N_METRICS];
    const bool judges_ema = dt_engine_uses_ema(evaluator->engine);
    const bool both = judges_ema && evaluator->sets->config->eval.weights == DT_WEIGHTS_BOTH;
    if (!judges_ema || both)
        DT_TRY(dt_evaluator_run(evaluator, result, stop));
    if (!judges_ema || (both && result->stop))
        return DT_OK;
    memcpy(raw, result->value, sizeof raw);
    DT_TRY(evaluate_ema(evaluator, result, stop));
    if (both && !result->stop)
        memcpy(result->raw, raw, sizeof raw);
    return DT_OK;
}

dt_status dt_evaluator_open(struct dt_evaluator *evaluator, struct dt_engine *engine,
                            struct dt_sets *sets, bool all)
{
    *evaluator = (struct dt_evaluator){.engine = engine, .sets = sets};
    dt_status status = DT_OK;
    if (!engine->model->detects && (all || dt_judging_is_needed(engine->config)))
        status = dt_judging_create(&evaluator->judging, sets);
    if (engine->model->detects && !sets->images)
        status = dt_box_judging_create(&evaluator->box_judging, sets);
    return dt_comm_agree(engine->ranks.comm, status);
}

void dt_evaluator_close(struct dt_evaluator *evaluator)
{
    dt_predictions_destroy(evaluator->predictions);
    dt_judging_destroy(evaluator->judging);
    dt_box_judging_destroy(evaluator->box_judging);
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
        status = dt_weights_classes(&text, &n, path, dt_model_find(sets->config->model.name)->head);
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

dt_status dt_engine_open_weights(struct dt_engine *engine, struct dt_sets *sets,
                                 const struct dt_engine_options *options, const char *weights)
{
    const struct dt_sets_options data = {
        .train = options->train, .val = options->eval, .report = engine->report};
    char path[DT_PATH_MAX];
    dt_status status = DT_OK;
    DT_TRY(take_classes(sets, path, weights));
    DT_TRY(dt_engine_choose(engine, options));
    DT_TRY(dt_sets_open(sets, &data));
    DT_TRY(dt_engine_open(engine, sets));
    DT_TRY(dt_preflight_agree(engine, sets));
    if (engine->ranks.rank == 0)
        status = dt_weights_load(engine->plan, path, engine->model->head, false, NULL);
    DT_TRY(dt_comm_agree(engine->ranks.comm, status));
    return dt_plan_broadcast(engine->plan);
}

/* Six digits: the digits after them depend on the order of summation over ranks. The numbers of a
 * detector have all their digits, which do not. */
static double rounded(double value)
{
    return round(value * 1e6) / 1e6;
}

static dt_status print_result(const struct dt_eval_result *result, bool detects)
{
    struct dt_jsonw w;
    dt_jsonw_init(&w, false);
    dt_jsonw_begin(&w, NULL, '{');
    dt_jsonw_integer(&w, "images", result->n_images);
    if (detects)
        dt_jsonw_integer(&w, "detections", result->n_found);
    for (int i = 0; i < DT_N_COCO && detects; i++)
        dt_jsonw_number(&w, dt_coco_names[i], result->coco[i]);
    for (enum dt_metric m = 0; m < DT_N_METRICS && !detects; m++)
        if (!isnan(result->value[m]))
            dt_jsonw_number(&w, dt_metric_name(m), rounded(result->value[m]));
    dt_jsonw_close(&w, '}');
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK && (printf("%s\n", w.text) < 0 || fflush(stdout) != 0))
        status = DT_ERROR(DT_ERR_IO, "cannot write the result to standard output");
    dt_jsonw_reset(&w);
    return status;
}

/* --- Tables, on rank 0 --- */

/* What --confusion and --predictions write. */
struct tables {
    struct dt_new_file confusion, predictions;
    bool as_picture;
};

/* The tables of a detector are other ones. */
static dt_status check_tables(const struct dt_eval_options *options, bool detects)
{
    const char *suffix = options->predictions ? strrchr(options->predictions, '.') : ".json";
    if (detects && options->confusion)
        DT_FAIL(DT_ERR_USAGE, "--confusion: a detector has none; --per-class has its categories");
    if (detects && (!suffix || strcmp(suffix, ".json") != 0))
        DT_FAIL(DT_ERR_USAGE,
                "--predictions: the name of %s must end in .json, as detections are written in "
                "COCO's format",
                options->predictions);
    return DT_OK;
}

static dt_status begin_tables(struct tables *tables, const struct dt_eval_options *options,
                              bool detects)
{
    DT_TRY(check_tables(options, detects));
    const char *suffix = options->confusion ? strrchr(options->confusion, '.') : ".csv";
    tables->as_picture = suffix && strcmp(suffix, ".svg") == 0;
    if (!tables->as_picture && (!suffix || strcmp(suffix, ".csv") != 0))
        DT_FAIL(DT_ERR_USAGE, "--confusion: the name of %s must end in .csv or .svg",
                options->confusion);
    if (options->confusion)
        DT_TRY(dt_file_begin(&tables->confusion, options->confusion));
    if (options->predictions)
        DT_TRY(dt_file_begin(&tables->predictions, options->predictions));
    return DT_OK;
}

static dt_status write_confusion(const struct tables *tables, const struct dt_judging *j)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out)
        (tables->as_picture ? dt_judge_print_svg : dt_judge_print_csv)(out, j->judge, j->names);
    return dt_file_write_stream(tables->confusion.fd, out, &text, &bytes, tables->confusion.path);
}

static dt_status end_tables(struct tables *tables, dt_status status)
{
    status = dt_file_end(&tables->predictions, status);
    return dt_file_end(&tables->confusion, status);
}

static dt_status publish(struct tables *tables, const struct dt_evaluator *evaluator,
                         const struct dt_eval_result *result, const struct dt_eval_options *options)
{
    const struct dt_judging *j = evaluator->judging;
    const struct dt_new_file *file = &tables->predictions;
    if (options->confusion)
        DT_TRY(write_confusion(tables, j));
    if (options->predictions && evaluator->box_judging)
        DT_TRY(dt_box_judging_write(evaluator, file->fd, file->path));
    DT_TRY(end_tables(tables, DT_OK));
    if (options->per_class && evaluator->box_judging)
        dt_box_judging_print(stdout, evaluator);
    else if (options->per_class)
        dt_judge_print(stdout, j->judge, &j->ranking, j->names);
    return print_result(result, evaluator->engine->model->detects);
}

/* --- The sub-command --- */

struct evaluation {
    struct dt_sets sets;
    struct dt_engine engine;
    struct dt_evaluator evaluator;
    struct tables tables;
};

static dt_status load_and_evaluate(struct evaluation *e, const struct dt_eval_options *options)
{
    const struct dt_report_options report = {.config = NULL};
    const struct dt_ranks *ranks = &e->engine.ranks;
    const bool first = ranks->rank == 0, detects = dt_config_detects(e->engine.config);
    const bool all = options->per_class || options->confusion || options->predictions;
    struct dt_eval_result result;
    DT_TRY(dt_comm_agree(ranks->comm, first ? dt_report_open(&e->engine.report, &report) : DT_OK));
    DT_TRY(dt_comm_agree(ranks->comm, first ? begin_tables(&e->tables, options, detects) : DT_OK));
    const struct dt_predictions_options table = {e->tables.predictions.fd, options->predictions, 0};
    const struct dt_engine_options engine = {.eval = true};
    DT_TRY(dt_engine_open_weights(&e->engine, &e->sets, &engine, options->weights));
    DT_TRY(dt_evaluator_open(&e->evaluator, &e->engine, &e->sets, all));
    if (options->predictions && !detects)
        DT_TRY(dt_comm_agree(
            ranks->comm, dt_predictions_create(&e->evaluator.predictions, &e->evaluator, &table)));
    DT_TRY(dt_evaluator_run(&e->evaluator, &result, NULL));
    return dt_comm_agree(ranks->comm,
                         first ? publish(&e->tables, &e->evaluator, &result, options) : DT_OK);
}

dt_status dt_evaluate(struct dt_comm *comm, const struct dt_config *config,
                      const struct dt_eval_options *options)
{
    struct evaluation e = {.tables = {.confusion.fd = -1, .predictions.fd = -1}};
    dt_sets_init(&e.sets, comm, config);
    dt_engine_init(&e.engine, comm, config);
    dt_status status = load_and_evaluate(&e, options);
    if (status != DT_OK)
        end_tables(&e.tables, status);
    if (!dt_ranks_may_close(&e.engine.ranks, status))
        return status;
    dt_evaluator_close(&e.evaluator);
    dt_engine_close(&e.engine, &e.sets);
    dt_sets_close(&e.sets);
    dt_report_close(e.engine.report);
    return status;
}
