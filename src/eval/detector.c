/* The task of a detector: boxes with a class, on images that keep their aspect ratio. Its metrics
 * are COCO's: rank 0 evaluates the detections of all ranks in the order of the images and, in each,
 * of NMS, so that the numbers are the same on any number of ranks. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/text.h"
#include "boxes/canvas.h"
#include "dtrain/eval.h"
#include "engine/task.h"
#include "eval/detections.h"
#include "eval/drawing.h"
#include "eval/evaluator.h"
#include "eval/predict_boxes.h"

/* Most detections of an image and category that count, as in COCO's evaluation. */
enum { DT_COCO_MAX_DETECTIONS = 100 };

struct dt_box_results {
    struct dt_detections detections; /* of this rank */
    /* Rank 0: the boxes of the validation set, and after the evaluation the detections of all
     * ranks by image, until the next evaluation. 5,000 images of COCO: 2 MB; with 300 detections
     * each 72 MB, and twice that more while they are collected and sorted. */
    struct dt_truth *truths;
    size_t *first_truth; /* images + 1 */
    struct dt_found *found;
    size_t n_found;
    /* All ranks: of each category; -1 without a box of it. */
    struct dt_category_precision *category;
};

/* --- Training --- */

/* Images are large, and few of them at a time. */
static void warn(const struct dt_engine *engine)
{
    enum { MIN_FOR_NORM = 4 };
    const struct dt_config_model *model = &engine->config->model;
    if (model->frozen_norm && !model->initial_checkpoint[0])
        dt_log(DT_LOG_WARNING, "model.frozen_norm without model.initial_checkpoint: the backbone "
                               "has random weights and nothing that normalises");
    if (!model->frozen_norm && model->sync_bn == 0 &&
        dt_split_min(&engine->stage.split) < MIN_FOR_NORM)
        dt_log(DT_LOG_WARNING,
               "batch norm takes its statistics from %d image(s), which are few; set "
               "model.sync_bn=true on several ranks, or model.frozen_norm=true with pretrained "
               "weights",
               dt_split_min(&engine->stage.split));
}

/* A global batch has one canvas. */
static void warn_of_data(const struct dt_engine *engine, const struct dt_sets *sets)
{
    const struct dt_layout layout = {&sets->config->data, sets->canvases};
    const uint32_t n = dt_dataset_size(sets->train_set);
    const int batch = engine->stage.split.images;
    uint32_t n_reduced = 0;
    for (uint32_t id = 0; id < n; id++) {
        struct dt_image_info image;
        dt_dataset_image(sets->train_set, id, &image);
        n_reduced += !dt_canvas_fits(&layout, image.width, image.height);
    }
    if (n_reduced > 0)
        dt_log(DT_LOG_NOTICE,
               "%" PRIu32 " of %" PRIu32 " training images are larger than every canvas at "
               "data.min_side %d and data.max_side %d; they are reduced until they fit",
               n_reduced, n, sets->config->data.min_side, sets->config->data.max_side);
    for (int i = 0; i < sets->canvases.n; i++)
        if (engine->n_images[i] > 0 && engine->n_images[i] < (uint32_t)batch)
            dt_log(DT_LOG_WARNING,
                   "only %" PRIu32 " training images are for the canvas %dx%d, less than a global "
                   "batch of %d: they are never trained on; use fewer canvases or a smaller batch",
                   engine->n_images[i], sets->canvases.size[i].width, sets->canvases.size[i].height,
                   batch);
}

static dt_status add_inputs(struct dt_engine *engine, const struct dt_sets *sets,
                            enum dt_phase phase)
{
    enum { UNKNOWN = 100 }; /* a layout without data; images of COCO have up to 93 */
    const struct dt_dataset *set = phase == DT_TRAIN ? sets->train_set : sets->val_set;
    return dt_graph_boxes(engine->graph, set ? dt_dataset_max_boxes(set) : UNKNOWN);
}

static struct dt_field headline(const struct dt_counters *all)
{
    return (struct dt_field)DT_NUM("class_loss", all->loss / all->weight);
}

static int add_details(struct dt_field *fields, const struct dt_sets *sets,
                       const struct dt_counters *all)
{
    (void)sets;
    fields[0] = (struct dt_field)DT_NUM("box_loss", all->box_loss / all->weight);
    return 1;
}

/* --- An evaluation --- */

static dt_status read_truths(struct dt_box_results *results, const struct dt_dataset *set)
{
    const uint32_t n = dt_dataset_size(set);
    const size_t max = (size_t)dt_dataset_max_boxes(set);
    size_t capacity = 0, *first = NULL;
    DT_TRY(DT_NEW(results->first_truth, (size_t)n + 1));
    for (uint32_t id = 0; id < n; id++) {
        first = results->first_truth + id;
        DT_TRY(
            DT_GROW(results->truths, capacity, first[0] + max - 1, "boxes of the validation set"));
        first[1] = first[0] + (size_t)dt_dataset_truths(set, id, results->truths + first[0]);
    }
    return DT_OK;
}

static dt_status open_evaluation(struct dt_evaluator *evaluator, bool all)
{
    const struct dt_sets *sets = evaluator->sets;
    (void)all;
    if (sets->images) /* without ground truth */
        return DT_OK;
    DT_TRY(DT_NEW(evaluator->boxes, 1));
    DT_TRY(DT_NEW(evaluator->boxes->category, (size_t)sets->num_classes));
    return sets->ranks.rank == 0 ? read_truths(evaluator->boxes, sets->val_set) : DT_OK;
}

static void close_evaluation(struct dt_evaluator *evaluator)
{
    struct dt_box_results *results = evaluator->boxes;
    if (!results)
        return;
    dt_detections_reset(&results->detections);
    free(results->truths);
    free(results->first_truth);
    free(results->found);
    free(results->category);
    free(results);
}

static void clear_evaluation(struct dt_evaluator *evaluator)
{
    evaluator->boxes->detections.n = 0;
}

static dt_status add_batch(struct dt_evaluator *evaluator, const struct dt_batch *batch)
{
    return dt_detections_add(&evaluator->boxes->detections, evaluator->engine, evaluator->sets,
                             batch);
}

/* The sort is stable, so that the detections of an image keep their order. */
static dt_status sort_by_image(struct dt_found *sorted, const struct dt_found *found, size_t n,
                               uint32_t n_images)
{
    size_t *next;
    DT_TRY(DT_NEW(next, (size_t)n_images + 1));
    for (size_t i = 0; i < n; i++)
        next[found[i].image + 1]++;
    for (uint32_t image = 0; image < n_images; image++)
        next[image + 1] += next[image];
    for (size_t i = 0; i < n; i++)
        sorted[next[found[i].image]++] = found[i];
    free(next);
    return DT_OK;
}

/* Rank 0 gets the detections rank after rank into all[], then by image; rank r has n[r] of them. */
static dt_status collect(struct dt_evaluator *evaluator, const int64_t *n)
{
    const struct dt_ranks *ranks = &evaluator->sets->ranks;
    const bool first = ranks->rank == 0;
    struct dt_box_results *results = evaluator->boxes;
    const struct dt_detections *own = &results->detections;
    struct dt_found *all = NULL;
    dt_status status = DT_OK;
    size_t total = 0, at = own->n;
    for (int r = 0; r < ranks->n_ranks; r++)
        total += (size_t)n[r];
    free(results->found);
    results->found = NULL;
    results->n_found = total;
    if (first)
        status = DT_NEW(all, total);
    if (first && status == DT_OK)
        status = DT_NEW(results->found, total);
    DT_TRY_OUT(dt_comm_agree(ranks->comm, status));
    if (first && own->n > 0)
        memcpy(all, own->found, own->n * sizeof *all);
    for (int r = 1; r < ranks->n_ranks; r++) {
        struct dt_found *data = first ? all + at : own->found;
        DT_TRY_OUT(dt_comm_copy(ranks->comm, data, (size_t)n[r] * sizeof *data, r, 0));
        at += (size_t)n[r];
    }
    if (first)
        status =
            sort_by_image(results->found, all, total, dt_dataset_size(evaluator->sets->val_set));
out:
    free(all);
    return status;
}

static void show_progress(void *context, int done, int total)
{
    const struct dt_evaluator *evaluator = context;
    dt_pulse_beat(&dt_pulse_main);
    dt_events_progress(evaluator->engine->events, "evaluating the detections, categories", done,
                       total);
}

static dt_status evaluate(struct dt_evaluator *evaluator, double value[DT_N_COCO])
{
    struct dt_box_results *results = evaluator->boxes;
    const struct dt_average_precision_input input = {
        .n_images = dt_dataset_size(evaluator->sets->val_set),
        .n_labels = evaluator->sets->num_classes,
        .truths = results->truths,
        .first_truth = results->first_truth,
        .found = results->found,
        .n_found = results->n_found,
        .max_detections = DT_COCO_MAX_DETECTIONS,
        .progress = show_progress,
        .context = evaluator,
    };
    return dt_average_precision(value, results->category, &input);
}

static dt_status sum_evaluation(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                                struct dt_counters *counters)
{
    static const struct {
        enum dt_metric metric;
        int place;
    } rows[] = {
        {DT_METRIC_AP, DT_COCO_AP}, {DT_METRIC_AP50, DT_COCO_AP50}, {DT_METRIC_AP75, DT_COCO_AP75}};
    struct dt_box_results *results = evaluator->boxes;
    (void)counters;
    const int64_t own = (int64_t)results->detections.n;
    const size_t category_bytes = (size_t)evaluator->sets->num_classes * sizeof *results->category;
    int64_t *n = NULL;
    dt_status status = DT_NEW(n, (size_t)evaluator->sets->ranks.n_ranks);
    DT_TRY_OUT(dt_comm_agree(evaluator->sets->ranks.comm, status));
    DT_TRY_OUT(dt_comm_gather(evaluator->sets->ranks.comm, n, &own, sizeof own));
    status = collect(evaluator, n);
    if (status == DT_OK && evaluator->sets->ranks.rank == 0)
        status = evaluate(evaluator, result->coco);
    DT_TRY_OUT(dt_comm_agree(evaluator->sets->ranks.comm, status));
    DT_TRY_OUT(dt_comm_bcast(evaluator->sets->ranks.comm, result->coco, sizeof result->coco, 0));
    DT_TRY_OUT(dt_comm_bcast(evaluator->sets->ranks.comm, results->category, category_bytes, 0));
    result->n_images = dt_dataset_size(evaluator->sets->val_set);
    result->n_found = (int64_t)results->n_found;
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        const double value = result->coco[rows[i].place];
        result->value[rows[i].metric] = value < 0 ? NAN : value;
    }
out:
    free(n);
    return status;
}

static int add_results(struct dt_field *fields, const struct dt_eval_result *result)
{
    int n = 0;
    for (int i = DT_COCO_AP75 + 1; i < DT_N_COCO; i++) /* the first three are metrics */
        if (result->coco[i] >= 0)
            fields[n++] = (struct dt_field)DT_NUM(dt_coco_names[i], result->coco[i]);
    fields[n++] = (struct dt_field)DT_INT("detections", result->n_found);
    return n;
}

/* --- dtrain eval and dtrain predict --- */

static dt_status check_options(const struct dt_eval_options *options)
{
    const char *suffix = options->predictions ? strrchr(options->predictions, '.') : ".json";
    if (options->confusion)
        DT_FAIL(DT_ERR_USAGE, "--confusion: a detector has none; --per-class has its categories");
    if (!suffix || strcmp(suffix, ".json") != 0)
        DT_FAIL(DT_ERR_USAGE,
                "--predictions: the name of %s must end in .json, as detections are written in "
                "COCO's format",
                options->predictions);
    return DT_OK;
}

static size_t count_truths(const struct dt_evaluator *evaluator, int label)
{
    const struct dt_box_results *results = evaluator->boxes;
    size_t n = 0;
    for (size_t i = 0; i < results->first_truth[dt_dataset_size(evaluator->sets->val_set)]; i++)
        n += results->truths[i].label == label && !results->truths[i].is_crowd;
    return n;
}

static void print_classes(FILE *out, const struct dt_evaluator *evaluator)
{
    enum { NAME_BYTES = 256 };
    char number[16], name[NAME_BYTES];
    fprintf(out, "%8s %9s %7s %7s  category\n", "id", "boxes", "AP", "AP50");
    for (int label = 0; label < evaluator->sets->num_classes; label++) {
        const struct dt_category_precision *c = &evaluator->boxes->category[label];
        snprintf(name, sizeof name, "%s",
                 dt_dataset_label_text(evaluator->sets->val_set, label, number));
        dt_utf8_escape(name);
        fprintf(out, "%8" PRId64 " %9zu %7.3f %7.3f  %s\n",
                dt_dataset_category(evaluator->sets->val_set, label),
                count_truths(evaluator, label), c->ap, c->ap50, name);
    }
}

static dt_status draw(const struct dt_evaluator *evaluator)
{
    const struct dt_box_results *results = evaluator->boxes;
    struct dt_jsonw w = {.pretty = true};
    char number[16], path[DT_PATH_MAX];
    dt_drawing_report(evaluator->sets, evaluator->engine->events, results->found, results->n_found);
    DT_TRY(dt_file_path(path, "%s/classes.json", evaluator->sets->config->output.dir));
    dt_jsonw_begin(&w, NULL, '[');
    for (int label = 0; label < evaluator->sets->num_classes; label++) {
        const struct dt_category_precision *c = &results->category[label];
        const double nothing = c->ap < 0 ? NAN : 0;
        dt_jsonw_add(&w, "{class: %s, ap: %g, ap50: %g, objects: %zu}",
                     dt_dataset_label_text(evaluator->sets->val_set, label, number),
                     c->ap + nothing, c->ap50 + nothing, count_truths(evaluator, label));
    }
    dt_jsonw_close(&w, ']');
    return dt_jsonw_save(&w, path);
}

static void print_found(FILE *out, const struct dt_sets *sets, const struct dt_found *f)
{
    struct dt_image_info info;
    struct dt_jsonw id = {0};
    dt_dataset_image(sets->val_set, f->image, &info);
    if (info.text_id)
        dt_jsonw_string(&id, NULL, info.text_id);
    else
        dt_jsonw_integer(&id, NULL, info.id);
    fprintf(out,
            "{\"image_id\":%s,\"category_id\":%" PRId64
            ",\"bbox\":[%.17g,%.17g,%.17g,%.17g],\"score\":%.17g}",
            id.text, dt_dataset_category(sets->val_set, f->label), f->x, f->y, f->w, f->h,
            f->score);
    dt_jsonw_reset(&id);
}

/* COCO's results: a JSON list of {"image_id", "category_id", "bbox": [x, y, w, h], "score"}, in
 * which the numbers have all their digits. */
static dt_status write_files(const struct dt_evaluator *evaluator,
                             const struct dt_eval_files *files)
{
    enum { PIECE = 4096 };
    const struct dt_new_file *file = &files->predictions;
    const struct dt_box_results *results = evaluator->boxes;
    size_t n_written = 0;
    if (file->fd < 0)
        return DT_OK;
    for (size_t first = 0; first == 0 || first < results->n_found; first += PIECE) {
        const size_t end = results->n_found - first < PIECE ? results->n_found : first + PIECE;
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        for (size_t i = first; out && i < end; i++) {
            if (dt_dataset_category(evaluator->sets->val_set, results->found[i].label) < 0)
                continue;
            fputs(n_written++ == 0 ? "[" : ",\n", out);
            print_found(out, evaluator->sets, &results->found[i]);
        }
        if (out && end == results->n_found)
            fputs(n_written == 0 ? "[]\n" : "]\n", out);
        DT_TRY(dt_file_write_stream(file->fd, out, &text, &bytes, file->path));
        dt_pulse_beat(&dt_pulse_main);
    }
    return DT_OK;
}

/* All digits, which do not depend on the number of ranks. */
static void put_result(struct dt_jsonw *w, const struct dt_eval_result *result)
{
    dt_jsonw_integer(w, "detections", result->n_found);
    for (int i = 0; i < DT_N_COCO; i++)
        dt_jsonw_number(w, dt_coco_names[i], result->coco[i]);
}

const struct dt_task dt_detector = {
    .targets = DT_COLUMN_BOXES,
    .min_classes = 1,
    .min_weight = 1, /* of foreground anchors, of which there may be none */
    .warn = warn,
    .warn_of_data = warn_of_data,
    .add_inputs = add_inputs,
    .headline = headline,
    .add_details = add_details,
    .open = open_evaluation,
    .close = close_evaluation,
    .clear = clear_evaluation,
    .add = add_batch,
    .sum = sum_evaluation,
    .why_undefined = "no validation image has a box",
    .add_results = add_results,
    .draw = draw,
    .check_options = check_options,
    .write = write_files,
    .print_classes = print_classes,
    .put_result = put_result,
    .predict = dt_predict_boxes,
};
