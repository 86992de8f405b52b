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

static dt_status run_batch(struct dt_session *s)
{
    const struct dt_batch *batch;
    DT_TRY(dt_loader_next(s->sets.val, &batch));
    if (!batch)
        DT_FAIL(DT_ERR_INTERNAL, "the validation set ended too early");
    dt_status status = dt_session_eval_pass(s, batch);
    if (status == DT_OK && s->evaluator.judging)
        status = dt_judging_add(s, batch);
    if (status == DT_OK && s->evaluator.box_judging)
        status = dt_detections_add(&s->evaluator.box_judging->detections, s, batch);
    dt_loader_release(s->sets.val, batch);
    return status;
}

/* Unless they write predictions, the ranks do not communicate between batches, so a rank that fails
 * skips its remaining batches until the next collective call: at the end, or when they check for a
 * stop. */
static dt_status run_batches(struct dt_session *s, struct dt_stop *stop, const char **reason)
{
    int64_t n_images = dt_dataset_size(s->sets.val_set);
    int64_t per_batch = (int64_t)s->ranks.n_ranks * s->config->eval.batch_size_per_rank;
    int64_t n_batches = (int64_t)dt_loader_batches(s->sets.val);
    struct dt_due due = {0};
    dt_status status = dt_loader_start(s->sets.val, 0, 0);
    for (int64_t i = 1; i <= n_batches && !due.stop; i++) {
        if (status == DT_OK)
            status = run_batch(s);
        if (s->evaluator.predictions) {
            DT_TRY(dt_comm_agree(s->ranks.comm, status));
            status = dt_predictions_add(s->evaluator.predictions, i - 1);
        }
        dt_pulse_beat(&dt_pulse_main);
        dt_report_progress(s->report, "evaluation",
                           i * per_batch < n_images ? i * per_batch : n_images, n_images);
        if (!stop || i < stop->next_step || i == n_batches)
            continue;
        DT_TRY(dt_stop_check(stop, s->ranks.comm, i, status, &due));
    }
    *reason = due.stop;
    return dt_comm_agree(s->ranks.comm, status);
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

static bool is_expected(const struct dt_session *s, enum dt_metric m)
{
    return dt_config_has_metric(s->config, m) && m != DT_METRIC_TRAIN_LOSS &&
           (m != DT_METRIC_TOP5 || dt_session_has_top5(s));
}

static void warn_undefined(const struct dt_session *s, const struct dt_eval_result *result)
{
    char text[160];
    const struct dt_field fields[] = {DT_TEXT("text", text)};
    const char *const why =
        s->engine.model->detects
            ? "no validation image has a box"
            : "a class it needs has no validation images, or logits are not finite";
    for (enum dt_metric m = 0; m < DT_N_METRICS; m++) {
        if (!isnan(result->value[m]) || !is_expected(s, m))
            continue;
        snprintf(text, sizeof text, "%s is undefined and left out: %s", dt_metric_name(m), why);
        dt_report_event(s->report, "warning", fields, DT_COUNT(fields));
    }
}

enum { SUM_LOSS, SUM_IMAGES, SUM_TOP1, SUM_TOP5, SUM_BAD, SUM_FINITE, N_SUMS };

static dt_status set_values(struct dt_session *s, struct dt_eval_result *result, const double *sums)
{
    for (int m = 0; m < DT_N_METRICS; m++)
        result->value[m] = result->raw[m] = NAN;
    if (s->evaluator.box_judging)
        return dt_box_judging_sum(s, result);
    result->n_images = (int64_t)sums[SUM_IMAGES];
    result->value[DT_METRIC_LOSS] = sums[SUM_LOSS] / sums[SUM_FINITE];
    result->value[DT_METRIC_TOP1] = 100 * sums[SUM_TOP1] / sums[SUM_IMAGES];
    if (dt_session_has_top5(s))
        result->value[DT_METRIC_TOP5] = 100 * sums[SUM_TOP5] / sums[SUM_IMAGES];
    return s->evaluator.judging ? dt_judging_sum(s, result->value) : DT_OK;
}

static dt_status evaluate(struct dt_session *s, struct dt_eval_result *result,
                          const struct dt_stop *stop)
{
    struct dt_counters counters;
    struct dt_stop batches;
    uint64_t n_bad, unused;
    if (stop)
        dt_stop_begin_batches(&batches, stop);
    if (s->evaluator.judging)
        dt_judge_clear(s->evaluator.judging->judge);
    if (s->evaluator.box_judging)
        s->evaluator.box_judging->detections.n = 0;
    DT_TRY(dt_plan_broadcast_stats(s->engine.plan));
    DT_TRY(run_batches(s, stop ? &batches : NULL, &result->stop));
    DT_TRY(s->engine.backend->download(s->engine.device, &counters));
    if (result->stop)
        return DT_OK;
    if (s->config->eval.tta != DT_TTA_NONE)
        replace_counters(&counters, s->evaluator.judging->judge);
    dt_loader_bad_positions(s->sets.val, &n_bad, &unused);
    double sums[N_SUMS] = {
        [SUM_LOSS] = counters.loss,         [SUM_IMAGES] = (double)counters.n,
        [SUM_TOP1] = (double)counters.top1, [SUM_TOP5] = (double)counters.top5,
        [SUM_BAD] = (double)n_bad,          [SUM_FINITE] = (double)counters.n_finite};
    DT_TRY(dt_comm_sum_f64(s->ranks.comm, sums, N_SUMS));
    DT_TRY(dt_session_check_bad(s->sets.val, sums[SUM_BAD]));
    DT_TRY(set_values(s, result, sums));
    warn_undefined(s, result);
    return DT_OK;
}

dt_status dt_session_evaluate(struct dt_session *s, struct dt_eval_result *result,
                              const struct dt_stop *stop)
{
    enum dt_section before = dt_pulse_enter(&dt_pulse_main, DT_SECTION_EVAL);
    dt_fault_at_section(DT_SECTION_EVAL);
    double begin_s = dt_trace_now();
    dt_status status = evaluate(s, result, stop);
    dt_trace_span("evaluation", NULL, NULL, begin_s, dt_trace_now());
    dt_pulse_enter(&dt_pulse_main, before);
    return status;
}

bool dt_session_judges_ema(const struct dt_session *s)
{
    return dt_plan_has_ema(s->engine.plan) && s->config->eval.weights != DT_WEIGHTS_RAW;
}

static dt_status evaluate_ema(struct dt_session *s, struct dt_eval_result *result,
                              const struct dt_stop *stop)
{
    DT_TRY(dt_plan_swap_ema(s->engine.plan));
    dt_status status = dt_session_evaluate(s, result, stop);
    dt_status swapped = dt_plan_swap_ema(s->engine.plan);
    return status != DT_OK ? status : swapped;
}

dt_status dt_session_validate(struct dt_session *s, struct dt_eval_result *result,
                              const struct dt_stop *stop)
{
    double raw[DT_N_METRICS];
    const bool judges_ema = dt_session_judges_ema(s);
    const bool both = judges_ema && s->config->eval.weights == DT_WEIGHTS_BOTH;
    if (!judges_ema || both)
        DT_TRY(dt_session_evaluate(s, result, stop));
    if (!judges_ema || (both && result->stop))
        return DT_OK;
    memcpy(raw, result->value, sizeof raw);
    DT_TRY(evaluate_ema(s, result, stop));
    if (both && !result->stop)
        memcpy(result->raw, raw, sizeof raw);
    return DT_OK;
}

/* The model's classes are those of the weights; all ranks get them from rank 0. Collective. */
static dt_status take_classes(struct dt_session *s, char *path, const char *weights)
{
    dt_status status = DT_OK;
    char *text = NULL;
    int64_t n = 0;
    if (s->ranks.rank == 0)
        status = dt_weights_find(path, weights);
    if (s->ranks.rank == 0 && status == DT_OK)
        status = dt_weights_classes(&text, &n, path, dt_model_find(s->config->model.name)->head);
    int64_t bytes = text ? (int64_t)strlen(text) : 0;
    DT_TRY_OUT(dt_comm_agree(s->ranks.comm, status));
    DT_TRY_OUT(dt_comm_bcast(s->ranks.comm, &bytes, sizeof bytes, 0));
    DT_TRY_OUT(dt_comm_bcast(s->ranks.comm, &n, sizeof n, 0));
    s->sets.weights_classes = (int)n;
    if (s->ranks.rank != 0)
        status = DT_NEW(text, (size_t)bytes + 1);
    DT_TRY_OUT(dt_comm_agree(s->ranks.comm, status));
    DT_TRY_OUT(dt_comm_bcast(s->ranks.comm, text, (size_t)bytes, 0));
    DT_TRY_OUT(dt_comm_agree(s->ranks.comm,
                             bytes ? dt_classes_parse(&s->sets.classes, text, weights) : DT_OK));
out:
    free(text);
    return status;
}

dt_status dt_session_open_weights(struct dt_session *s, const struct dt_session_needs *needs,
                                  const char *weights)
{
    char path[DT_PATH_MAX];
    dt_status status = DT_OK;
    DT_TRY(take_classes(s, path, weights));
    DT_TRY(dt_session_open(s, needs));
    DT_TRY(dt_preflight_agree(s));
    if (s->ranks.rank == 0)
        status = dt_weights_load(s->engine.plan, path, s->engine.model->head, false, NULL);
    DT_TRY(dt_comm_agree(s->ranks.comm, status));
    return dt_plan_broadcast(s->engine.plan);
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

static dt_status publish(struct tables *tables, const struct dt_session *s,
                         const struct dt_eval_result *result, const struct dt_eval_options *options)
{
    const struct dt_judging *j = s->evaluator.judging;
    const struct dt_new_file *file = &tables->predictions;
    if (options->confusion)
        DT_TRY(write_confusion(tables, j));
    if (options->predictions && s->evaluator.box_judging)
        DT_TRY(dt_box_judging_write(s, file->fd, file->path));
    DT_TRY(end_tables(tables, DT_OK));
    if (options->per_class && s->evaluator.box_judging)
        dt_box_judging_print(stdout, s);
    else if (options->per_class)
        dt_judge_print(stdout, j->judge, &j->ranking, j->names);
    return print_result(result, s->engine.model->detects);
}

/* --- The sub-command --- */

static dt_status load_and_evaluate(struct dt_session *s, struct tables *tables,
                                   const struct dt_eval_options *options)
{
    struct dt_eval_result result;
    struct dt_session_needs needs = {
        .eval = true, .judge = options->per_class || options->confusion || options->predictions};
    struct dt_report_options report = {.config = NULL};
    const bool detects = dt_config_detects(s->config);
    DT_TRY(dt_comm_agree(s->ranks.comm,
                         s->ranks.rank == 0 ? dt_report_open(&s->report, &report) : DT_OK));
    DT_TRY(dt_comm_agree(s->ranks.comm,
                         s->ranks.rank == 0 ? begin_tables(tables, options, detects) : DT_OK));
    struct dt_predictions_options predictions = {tables->predictions.fd, options->predictions, 0};
    DT_TRY(dt_session_open_weights(s, &needs, options->weights));
    if (options->predictions && !detects)
        DT_TRY(dt_comm_agree(s->ranks.comm,
                             dt_predictions_create(&s->evaluator.predictions, s, &predictions)));
    DT_TRY(dt_session_evaluate(s, &result, NULL));
    return dt_comm_agree(s->ranks.comm,
                         s->ranks.rank == 0 ? publish(tables, s, &result, options) : DT_OK);
}

dt_status dt_evaluate(struct dt_comm *comm, const struct dt_config *config,
                      const struct dt_eval_options *options)
{
    struct dt_session s;
    struct tables tables = {.confusion.fd = -1, .predictions.fd = -1};
    dt_session_init(&s, comm, config);
    dt_status status = load_and_evaluate(&s, &tables, options);
    if (status != DT_OK)
        end_tables(&tables, status);
    dt_predictions_destroy(s.evaluator.predictions);
    dt_session_close(&s, status);
    return status;
}
