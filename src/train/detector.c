/* The task of a detector: boxes with a class, on images that keep their aspect ratio. Its metrics
 * are COCO's (box_judging.c). */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "data/placement.h"
#include "train/box_judging.h"
#include "train/drawing.h"
#include "train/predict_boxes.h"
#include "train/task.h"

/* --- Training --- */

/* Images are large, and few of them at a time. */
static void warn(const struct dt_engine *engine)
{
    enum { LEAST_FOR_NORM = 4 };
    const struct dt_config_model *model = &engine->config->model;
    if (model->frozen_norm && !model->initial_checkpoint[0])
        dt_log(DT_LOG_WARNING, "model.frozen_norm without model.initial_checkpoint: the backbone "
                               "has random weights and nothing that normalises");
    if (!model->frozen_norm && model->sync_bn == 0 &&
        engine->stage.micro_batch_size < LEAST_FOR_NORM)
        dt_log(DT_LOG_WARNING,
               "batch norm takes its statistics from %d image(s), which are few; set "
               "model.sync_bn=true on several ranks, or model.frozen_norm=true with pretrained "
               "weights",
               engine->stage.micro_batch_size);
}

static void tell_reduced(const struct dt_sets *sets)
{
    const struct dt_layout layout = {&sets->config->data, sets->canvases, sets->n_canvases};
    const uint32_t n = dt_dataset_size(sets->train_set);
    uint32_t n_reduced = 0;
    for (uint32_t id = 0; id < n; id++) {
        struct dt_image_info image;
        dt_dataset_image(sets->train_set, id, &image);
        n_reduced += !dt_placement_fits(&layout, image.width, image.height);
    }
    if (n_reduced > 0)
        dt_log(DT_LOG_NOTICE,
               "%" PRIu32 " of %" PRIu32 " training images are larger than every canvas at "
               "data.min_side %d and data.max_side %d; they are reduced until they fit",
               n_reduced, n, sets->config->data.min_side, sets->config->data.max_side);
}

/* A global batch has one canvas. */
static void warn_of_data(const struct dt_engine *engine, const struct dt_sets *sets)
{
    const int batch = engine->stage.global_batch_size;
    tell_reduced(sets);
    for (int i = 0; i < sets->n_canvases; i++)
        if (engine->n_images[i] > 0 && engine->n_images[i] < (uint32_t)batch)
            dt_log(DT_LOG_WARNING,
                   "only %" PRIu32 " training images are for the canvas %dx%d, less than a global "
                   "batch of %d: they are never trained on; use fewer canvases or a smaller batch",
                   engine->n_images[i], sets->canvases[i].width, sets->canvases[i].height, batch);
}

static dt_status add_inputs(struct dt_engine *engine, const struct dt_sets *sets,
                            enum dt_phase phase)
{
    enum { UNKNOWN = 100 }; /* a layout without data; images of COCO have up to 93 */
    const struct dt_dataset *set = phase == DT_TRAIN ? sets->train_set : sets->val_set;
    return dt_graph_boxes(engine->graph, set ? dt_dataset_max_boxes(set) : UNKNOWN);
}

/* Of foreground anchors, of which there may be none. */
static double per_weight(double loss, const struct dt_counters *all)
{
    return loss / (all->weight > dt_detector.least_weight ? all->weight : dt_detector.least_weight);
}

static struct dt_field headline(const struct dt_counters *all)
{
    return (struct dt_field)DT_NUM("class_loss", per_weight(all->loss, all));
}

static int add_details(struct dt_field *fields, const struct dt_sets *sets,
                       const struct dt_counters *all)
{
    (void)sets;
    fields[0] = (struct dt_field)DT_NUM("box_loss", per_weight(all->box_loss, all));
    return 1;
}

/* --- An evaluation --- */

static dt_status open_evaluation(struct dt_evaluator *evaluator, bool all)
{
    (void)all;
    if (evaluator->sets->images) /* without ground truth */
        return DT_OK;
    return dt_box_judging_create(&evaluator->box_judging, evaluator->sets);
}

static void close_evaluation(struct dt_evaluator *evaluator)
{
    dt_box_judging_destroy(evaluator->box_judging);
}

static void clear_evaluation(struct dt_evaluator *evaluator)
{
    evaluator->box_judging->detections.n = 0;
}

static dt_status add_batch(struct dt_evaluator *evaluator, const struct dt_batch *batch)
{
    return dt_detections_add(&evaluator->box_judging->detections, evaluator->engine,
                             evaluator->sets, batch);
}

static dt_status sum_evaluation(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                                struct dt_counters *own)
{
    (void)own;
    return dt_box_judging_sum(evaluator, result);
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

static void draw(const struct dt_evaluator *evaluator)
{
    const struct dt_box_judging *j = evaluator->box_judging;
    dt_drawing_report(evaluator->sets, evaluator->engine->report, j->found, j->n_found);
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

static dt_status write_files(const struct dt_evaluator *evaluator,
                             const struct dt_eval_files *files)
{
    const struct dt_new_file *file = &files->predictions;
    return file->fd < 0 ? DT_OK : dt_box_judging_write(evaluator, file->fd, file->path);
}

/* All digits, which do not depend on the number of ranks. */
static void put_result(struct dt_jsonw *w, const struct dt_eval_result *result)
{
    dt_jsonw_integer(w, "detections", result->n_found);
    for (int i = 0; i < DT_N_COCO; i++)
        dt_jsonw_number(w, dt_coco_names[i], result->coco[i]);
}

static dt_status predict(struct dt_evaluator *evaluator, const struct dt_predict_options *options)
{
    return dt_predict_boxes(evaluator->engine, evaluator->sets, options);
}

const struct dt_task dt_detector = {
    .has_boxes = true,
    .least_classes = 1,
    .least_weight = 1,
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
    .print_classes = dt_box_judging_print,
    .put_result = put_result,
    .predict = predict,
};
