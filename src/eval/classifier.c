/* The task of a classifier: one class per image. Its metrics are those of the device's counters,
 * and others that are made from the logits on the host. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/names.h"
#include "data/mix.h"
#include "dtrain/eval.h"
#include "engine/task.h"
#include "eval/class_metrics.h"
#include "eval/evaluator.h"
#include "eval/predictions.h"

/* Most classes whose results are kept for the run folder's sake, and of confusion.svg. */
enum { MAX_CLASSES = 1000, MAX_MATRIX = 100 };

/* The results that an evaluation keeps on the host: for metrics that the device's counters do not
 * give, for eval.tta, for tables of predictions, and in training for what the run folder gets. */
struct dt_class_results {
    struct dt_class_counts
        *counts;               /* of this rank; the confusion matrix of all after the evaluation */
    struct dt_score *scores;   /* two classes: of all ranks */
    struct dt_ranking ranking; /* of these, after the evaluation */
    float *logits;             /* of the last batch; a bad image's first one is NaN */
    float *others;             /* eval.tta: of its mirrored images, and these */
    uint8_t *mirrored;
    struct dt_class_errors errors;      /* of this rank; of all after the evaluation */
    struct dt_class_errors *all_errors; /* of each rank */
    struct dt_names texts;
    const char **names; /* of all classes: their numbers if they have no names */
};

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

static dt_status name_classes(struct dt_class_results *results, const struct dt_sets *sets)
{
    char number[16];
    DT_TRY(DT_NEW(results->names, (size_t)sets->num_classes));
    for (int c = 0; c < sets->num_classes; c++) {
        const char *name = dt_dataset_label_text(sets->val_set, c, number);
        DT_TRY(dt_names_add(&results->texts, name, strlen(name)));
    }
    for (int c = 0; c < sets->num_classes; c++)
        results->names[c] = dt_names_get(&results->texts, (size_t)c);
    return DT_OK;
}

static dt_status allocate(struct dt_class_results *results, const struct dt_sets *sets)
{
    const size_t batch = (size_t)sets->config->eval.batch_size_per_rank,
                 n = (size_t)sets->num_classes;
    const size_t size = (size_t)sets->config->model.image_size;
    DT_TRY(dt_class_counts_create(&results->counts, sets->num_classes,
                                  dt_loader_batches(sets->val) * batch));
    DT_TRY(DT_NEW(results->logits, batch * n));
    DT_TRY(DT_NEW(results->all_errors, (size_t)sets->ranks.n_ranks));
    if (n == 2)
        DT_TRY(DT_NEW(results->scores, (size_t)sets->ranks.n_ranks * results->counts->max_rows));
    if (sets->config->eval.tta == DT_TTA_NONE)
        return DT_OK;
    DT_TRY(DT_NEW(results->others, batch * n));
    return DT_NEW(results->mirrored, batch * size * size * 3);
}

/* Keeps results on the host if a table (`all`), eval.metrics, the metrics that decide, or eval.tta
 * need them; in training with at most MAX_CLASSES (evaluator.h) also for the run folder. */
static dt_status open_evaluation(struct dt_evaluator *evaluator, bool all)
{
    const struct dt_config *config = evaluator->engine->config;
    bool needed = all || config->eval.tta != DT_TTA_NONE;
    for (enum dt_metric m = DT_METRIC_TOP5 + 1; m < DT_N_METRICS; m++)
        needed |= dt_metric_networks(m) == DT_OF_CLASSIFIERS && dt_config_has_metric(config, m);
    if (!needed && (!evaluator->sets->train_set || evaluator->sets->num_classes > MAX_CLASSES))
        return DT_OK;
    DT_TRY(DT_NEW(evaluator->classes, 1));
    DT_TRY(allocate(evaluator->classes, evaluator->sets));
    return name_classes(evaluator->classes, evaluator->sets);
}

static void close_evaluation(struct dt_evaluator *evaluator)
{
    struct dt_class_results *results = evaluator->classes;
    dt_predictions_destroy(evaluator->predictions);
    if (!results)
        return;
    dt_class_counts_destroy(results->counts);
    dt_names_reset(&results->texts);
    free(results->names);
    free(results->scores);
    free(results->logits);
    free(results->others);
    free(results->mirrored);
    free(results->all_errors);
    free(results);
}

static void clear_evaluation(struct dt_evaluator *evaluator)
{
    if (!evaluator->classes)
        return;
    dt_class_counts_clear(evaluator->classes->counts);
    evaluator->classes->errors.n = 0;
}

static dt_status get_logits(struct dt_engine *engine, float *out)
{
    return dt_plan_get(engine->plan, DT_ARENA_WORK, engine->graph->program[DT_EVAL].logits, out);
}

static void mirror(uint8_t *out, const uint8_t *pixels, size_t n_rows, size_t width)
{
    for (size_t y = 0; y < n_rows; y++, pixels += 3 * width)
        for (size_t x = width; x-- > 0; out += 3)
            memcpy(out, pixels + 3 * x, 3);
}

static dt_status add_mirrored(struct dt_evaluator *evaluator, const struct dt_batch *batch)
{
    const struct dt_class_results *results = evaluator->classes;
    const size_t n = (size_t)evaluator->sets->config->eval.batch_size_per_rank,
                 c = (size_t)evaluator->sets->num_classes;
    const size_t size = (size_t)evaluator->sets->config->model.image_size;
    struct dt_batch mirrored = *batch;
    mirror(results->mirrored, batch->pixels, n * size, size);
    mirrored.pixels = results->mirrored;
    DT_TRY(dt_engine_eval(evaluator->engine, evaluator->sets, &mirrored));
    DT_TRY(get_logits(evaluator->engine, results->others));
    for (size_t row = 0; row < n; row++)
        dt_average_logits(results->logits + row * c, results->others + row * c,
                          evaluator->sets->num_classes);
    return DT_OK;
}

static void add_row(struct dt_class_results *results, const struct dt_batch *batch, int row)
{
    const int n = results->counts->n_classes, label = batch->labels[row];
    float *logits = results->logits + (size_t)row * (size_t)n;
    const int prediction = dt_class_counts_add(results->counts, logits, label);
    if (batch->crops[row].w <= 0) { /* no image, or a bad one */
        logits[0] = NAN;
    } else if (prediction >= 0 && prediction != label && isfinite(logits[prediction])) {
        const double p = dt_softmax_largest(logits, n);
        dt_class_errors_add(&results->errors,
                            &(struct dt_class_error){p, batch->ids[row], label, prediction});
    }
}

static dt_status add_batch(struct dt_evaluator *evaluator, const struct dt_batch *batch)
{
    struct dt_class_results *results = evaluator->classes;
    if (!results)
        return DT_OK;
    DT_TRY(get_logits(evaluator->engine, results->logits));
    if (evaluator->sets->config->eval.tta == DT_TTA_FLIP)
        DT_TRY(add_mirrored(evaluator, batch));
    for (int row = 0; row < evaluator->sets->config->eval.batch_size_per_rank; row++)
        add_row(results, batch, row);
    return DT_OK;
}

static dt_status gather_errors(struct dt_class_results *results, const struct dt_ranks *ranks)
{
    DT_TRY(
        dt_comm_gather(ranks->comm, results->all_errors, &results->errors, sizeof results->errors));
    results->errors.n = 0;
    for (int r = 0; r < ranks->n_ranks; r++)
        for (int i = 0; i < results->all_errors[r].n; i++)
            dt_class_errors_add(&results->errors, &results->all_errors[r].worst[i]);
    return DT_OK;
}

static dt_status sum_results(struct dt_evaluator *evaluator, double value[DT_N_METRICS])
{
    struct dt_class_results *results = evaluator->classes;
    const struct dt_class_counts *counts = results->counts;
    const int n = evaluator->sets->num_classes;
    DT_TRY(dt_comm_sum_i64(evaluator->sets->ranks.comm, counts->confusion, n * (n + 1)));
    DT_TRY(gather_errors(results, &evaluator->sets->ranks));
    if (results->scores) {
        DT_TRY(dt_comm_gather(evaluator->sets->ranks.comm, results->scores, counts->scores,
                              counts->n_rows * sizeof *counts->scores));
        results->ranking = dt_rank_scores(results->scores,
                                          (size_t)evaluator->sets->ranks.n_ranks * counts->n_rows);
    }
    dt_class_counts_metrics(value, counts, &results->ranking);
    return DT_OK;
}

static dt_status sum_evaluation(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                                struct dt_counters *own)
{
    enum { LOSS, IMAGES, TOP1, TOP5, FINITE, N };
    const struct dt_sets *sets = evaluator->sets;
    if (sets->config->eval.tta != DT_TTA_NONE) { /* the device has counted each image and mirror */
        const struct dt_class_counts *counts = evaluator->classes->counts;
        *own = (struct dt_counters){.loss = counts->loss,
                                    .n = counts->n,
                                    .n_finite = counts->n_finite,
                                    .top1 = counts->top1,
                                    .top5 = counts->top5};
    }
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
    return evaluator->classes ? sum_results(evaluator, result->value) : DT_OK;
}

/* --- The run folder --- */

static dt_status save_classes(const struct dt_evaluator *evaluator)
{
    struct dt_jsonw w = {.pretty = true};
    char path[DT_PATH_MAX];
    DT_TRY(dt_file_path(path, "%s/classes.json", evaluator->sets->config->output.dir));
    dt_class_counts_put_table(&w, evaluator->classes->counts, evaluator->classes->names);
    return dt_jsonw_save(&w, path);
}

static void print_confusion(FILE *out, const struct dt_evaluator *evaluator)
{
    dt_class_counts_print_svg(out, evaluator->classes->counts, evaluator->classes->names);
}

static void print_errors(FILE *out, const struct dt_evaluator *evaluator)
{
    const struct dt_class_results *results = evaluator->classes;
    dt_class_errors_print(out, &results->errors, evaluator->sets->val_set, results->names);
}

static dt_status draw(const struct dt_evaluator *evaluator)
{
    const struct dt_class_results *results = evaluator->classes;
    char path[DT_PATH_MAX];
    if (!results)
        return DT_OK;
    DT_TRY(save_classes(evaluator));
    if (evaluator->sets->num_classes <= MAX_MATRIX)
        DT_TRY(dt_evaluator_save(evaluator, "confusion.svg", print_confusion));
    DT_TRY(dt_evaluator_save(evaluator, "errors.csv", print_errors));
    DT_TRY(dt_file_path(path, "%s/errors.jpg", evaluator->sets->config->output.dir));
    return dt_class_errors_save(path, &results->errors, evaluator->sets->val_set, results->names);
}

/* --- dtrain eval and dtrain predict --- */

static dt_status create_table(struct dt_evaluator *evaluator, int fd, const char *path, int top)
{
    const struct dt_class_results *results = evaluator->classes;
    const struct dt_predictions_options table = {
        evaluator->sets, results->logits, results->names, fd, path, top, evaluator->json};
    return dt_predictions_create(&evaluator->predictions, &table);
}

static dt_status begin_table(struct dt_evaluator *evaluator, const struct dt_eval_files *files,
                             const struct dt_eval_options *options)
{
    if (!options->predictions)
        return DT_OK;
    return create_table(evaluator, files->predictions.fd, options->predictions, 0);
}

static dt_status write_files(const struct dt_evaluator *evaluator,
                             const struct dt_eval_files *files)
{
    const struct dt_class_results *results = evaluator->classes;
    char *text = NULL;
    size_t bytes = 0;
    if (files->confusion.fd < 0)
        return DT_OK;
    FILE *out = open_memstream(&text, &bytes);
    if (out)
        (files->as_picture ? dt_class_counts_print_svg
                           : dt_class_counts_print_csv)(out, results->counts, results->names);
    return dt_file_write_stream(files->confusion.fd, out, &text, &bytes, files->confusion.path);
}

static void print_classes(FILE *out, const struct dt_evaluator *evaluator)
{
    const struct dt_class_results *results = evaluator->classes;
    dt_class_counts_print(out, results->counts, &results->ranking, results->names);
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
    struct dt_eval_result result;
    if (options->output)
        DT_FAIL(DT_ERR_USAGE, "--output: %s finds no boxes that could be drawn",
                evaluator->engine->model->name);
    DT_TRY(create_table(evaluator, STDOUT_FILENO, "standard output", top));
    return dt_evaluator_run(evaluator, &result, NULL);
}

const struct dt_task dt_classifier = {
    .targets = DT_COLUMN_LABELS,
    .min_classes = 2,
    .min_per_gpu = 32,
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
    .draw = draw,
    .begin_table = begin_table,
    .write = write_files,
    .print_classes = print_classes,
    .put_result = put_result,
    .predict = predict,
};
