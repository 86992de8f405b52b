/* The task of a classifier: one class per image. Its metrics are those of the device's counters,
 * and others that judging.c makes from the logits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "data/mix.h"
#include "train/judging.h"
#include "train/predictions.h"
#include "train/task.h"

/* --- Training --- */

static dt_status add_inputs(struct dt_engine *engine, const struct dt_sets *sets,
                            enum dt_phase phase)
{
    if (phase == DT_TRAIN && dt_mix_is_on(&engine->config->data))
        DT_TRY(dt_graph_mix_labels(engine->graph));
    if (phase == DT_TRAIN && engine->config->train.n_class_weights != 0)
        DT_TRY(dt_graph_weigh_classes(engine->graph, sets->num_classes));
    return DT_OK;
}

/* Validation loss is plain cross entropy, comparable between recipes. */
static void add_loss(struct dt_engine *engine, enum dt_phase phase, int logits)
{
    const double smoothing = engine->config->train.label_smoothing;
    dt_graph_softmax_xent(engine->graph, logits, phase == DT_TRAIN ? smoothing : 0);
}

static struct dt_field headline(const struct dt_counters *all)
{
    return (struct dt_field)DT_NUM("top1", 100 * (double)all->top1 / (double)all->n);
}

static int add_details(struct dt_field *fields, const struct dt_sets *sets,
                       const struct dt_counters *all)
{
    if (!dt_sets_has_top5(sets))
        return 0;
    fields[0] = (struct dt_field)DT_NUM("top5", 100 * (double)all->top5 / (double)all->n);
    return 1;
}

/* --- An evaluation --- */

static dt_status open_evaluation(struct dt_evaluator *evaluator, bool all)
{
    if (!all && !dt_judging_is_needed(evaluator->engine->config))
        return DT_OK;
    return dt_judging_create(&evaluator->judging, evaluator->sets);
}

static void close_evaluation(struct dt_evaluator *evaluator)
{
    dt_predictions_destroy(evaluator->predictions);
    dt_judging_destroy(evaluator->judging);
}

static void clear_evaluation(struct dt_evaluator *evaluator)
{
    if (evaluator->judging)
        dt_judge_clear(evaluator->judging->judge);
}

static dt_status add_batch(struct dt_evaluator *evaluator, const struct dt_batch *batch)
{
    return evaluator->judging ? dt_judging_add(evaluator, batch) : DT_OK;
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

static dt_status sum_evaluation(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                                struct dt_counters *own)
{
    enum { LOSS, IMAGES, TOP1, TOP5, FINITE, N };
    const struct dt_sets *sets = evaluator->sets;
    if (sets->config->eval.tta != DT_TTA_NONE)
        replace_counters(own, evaluator->judging->judge);
    double sums[N] = {[LOSS] = own->loss,
                      [IMAGES] = (double)own->n,
                      [TOP1] = (double)own->top1,
                      [TOP5] = (double)own->top5,
                      [FINITE] = (double)own->n_finite};
    DT_TRY(dt_comm_sum_f64(sets->ranks.comm, sums, N));
    result->n_images = (int64_t)sums[IMAGES];
    result->value[DT_METRIC_LOSS] = sums[LOSS] / sums[FINITE];
    result->value[DT_METRIC_TOP1] = 100 * sums[TOP1] / sums[IMAGES];
    if (dt_sets_has_top5(sets))
        result->value[DT_METRIC_TOP5] = 100 * sums[TOP5] / sums[IMAGES];
    return evaluator->judging ? dt_judging_sum(evaluator, result->value) : DT_OK;
}

/* --- dtrain eval and dtrain predict --- */

static dt_status begin_table(struct dt_evaluator *evaluator, const struct dt_eval_files *files,
                             const struct dt_eval_options *options)
{
    const struct dt_predictions_options table = {files->predictions.fd, options->predictions, 0};
    if (!options->predictions)
        return DT_OK;
    return dt_predictions_create(&evaluator->predictions, evaluator, &table);
}

static dt_status write_files(const struct dt_evaluator *evaluator,
                             const struct dt_eval_files *files)
{
    const struct dt_judging *j = evaluator->judging;
    char *text = NULL;
    size_t bytes = 0;
    if (files->confusion.fd < 0)
        return DT_OK;
    FILE *out = open_memstream(&text, &bytes);
    if (out)
        (files->as_picture ? dt_judge_print_svg : dt_judge_print_csv)(out, j->judge, j->names);
    return dt_file_write_stream(files->confusion.fd, out, &text, &bytes, files->confusion.path);
}

static void print_classes(FILE *out, const struct dt_evaluator *evaluator)
{
    const struct dt_judging *j = evaluator->judging;
    dt_judge_print(out, j->judge, &j->ranking, j->names);
}

/* Six digits: those after them depend on the order of summation over ranks. */
static void put_result(struct dt_jsonw *w, const struct dt_eval_result *result)
{
    for (enum dt_metric m = 0; m < DT_N_METRICS; m++)
        if (!isnan(result->value[m]))
            dt_jsonw_number(w, dt_metric_name(m), round(result->value[m] * 1e6) / 1e6);
}

static dt_status predict(struct dt_evaluator *evaluator, const struct dt_predict_options *options)
{
    enum { TOP = 5 };
    const int top = options->top > 0 ? options->top : TOP;
    const struct dt_predictions_options table = {STDOUT_FILENO, "standard output", top};
    struct dt_eval_result result;
    if (options->output)
        DT_FAIL(DT_ERR_USAGE, "--output: %s finds no boxes that could be drawn",
                evaluator->engine->model->name);
    DT_TRY(dt_predictions_create(&evaluator->predictions, evaluator, &table));
    return dt_evaluator_run(evaluator, &result, NULL);
}

const struct dt_task dt_classifier = {
    .least_classes = 2,
    .least_per_gpu = 32,
    .add_inputs = add_inputs,
    .add_loss = add_loss,
    .headline = headline,
    .add_details = add_details,
    .open = open_evaluation,
    .close = close_evaluation,
    .clear = clear_evaluation,
    .add = add_batch,
    .sum = sum_evaluation,
    .why_undefined = "a class it needs has no validation images, or logits are not finite",
    .begin_table = begin_table,
    .write = write_files,
    .print_classes = print_classes,
    .put_result = put_result,
    .predict = predict,
};
