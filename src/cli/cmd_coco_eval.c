/* dtrain coco-eval: evaluates a file of detections by COCO's evaluation, in the words of
 * pycocotools, whose lines scripts parse. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "boxes/average_precision.h"
#include "boxes/coco.h"
#include "cli/commands.h"

struct evaluation {
    struct dt_coco coco;
    struct dt_found *found;
    size_t n_found;
    int max_detections;
    double value[DT_N_COCO];
    struct dt_category_precision *of_category;
    size_t *n_truths; /* of each category, crowds not counted */
};

static void show_progress(void *context, int done, int total)
{
    const double *begin_s = context;
    dt_log_progress_of("evaluating the detections", (size_t)done, (size_t)total, "categories",
                       *begin_s);
}

static dt_status evaluate(struct evaluation *e, const char *path)
{
    double begin_s = dt_clock_s();
    const struct dt_average_precision_input input = {
        .n_images = e->coco.n_images,
        .n_labels = e->coco.n_categories,
        .truths = e->coco.truths,
        .first_truth = e->coco.first_truth,
        .found = e->found,
        .n_found = e->n_found,
        .max_detections = e->max_detections,
        .progress = show_progress,
        .context = &begin_s,
    };
    const size_t n_truths = input.first_truth[input.n_images];
    size_t n_scored = 0;
    DT_TRY(DT_NEW(e->of_category, (size_t)input.n_labels));
    DT_TRY(DT_NEW(e->n_truths, (size_t)input.n_labels));
    for (size_t i = 0; i < n_truths; i++) {
        e->n_truths[input.truths[i].label] += !input.truths[i].is_crowd;
        n_scored += !input.truths[i].is_crowd;
        if (input.truths[i].id == 0)
            dt_log(DT_LOG_WARNING,
                   "annotation 0: pycocotools counts a detection of it as a false one, because "
                   "its id is 0; dtrain does not");
    }
    if (n_scored == 0)
        DT_FAIL(DT_ERR_DATA, "%s has no boxes, crowds not counted, to compare detections with",
                path);
    const dt_status status = dt_average_precision(e->value, e->of_category, &input);
    dt_log_progress("");
    return status;
}

static void print_lines(const struct evaluation *e, bool per_class)
{
    static const char *const areas[] = {"all", "small", "medium", "large"};
    static const struct {
        bool is_recall;
        const char *iou;
        int area, max; /* 0: max_detections */
    } lines[DT_N_COCO] = {
        {false, "0.50:0.95", 0, 0}, {false, "0.50", 0, 0},      {false, "0.75", 0, 0},
        {false, "0.50:0.95", 1, 0}, {false, "0.50:0.95", 2, 0}, {false, "0.50:0.95", 3, 0},
        {true, "0.50:0.95", 0, 1},  {true, "0.50:0.95", 0, 10}, {true, "0.50:0.95", 0, 0},
        {true, "0.50:0.95", 1, 0},  {true, "0.50:0.95", 2, 0},  {true, "0.50:0.95", 3, 0},
    };
    for (int i = 0; i < DT_N_COCO; i++)
        printf(" %-18s %s @[ IoU=%-9s | area=%6s | maxDets=%3d ] = %0.3f\n",
               lines[i].is_recall ? "Average Recall" : "Average Precision",
               lines[i].is_recall ? "(AR)" : "(AP)", lines[i].iou, areas[lines[i].area],
               lines[i].max ? lines[i].max : e->max_detections, e->value[i]);
    if (per_class)
        printf("\n%8s %9s %7s %7s  category\n", "id", "boxes", "AP", "AP50");
    for (int i = 0; per_class && i < e->coco.n_categories; i++)
        printf("%8" PRId64 " %9zu %7.3f %7.3f  %s\n", e->coco.category_ids[i], e->n_truths[i],
               e->of_category[i].ap, e->of_category[i].ap50,
               dt_names_get(&e->coco.categories, (size_t)i));
}

static dt_status save(const struct evaluation *e, const char *path)
{
    struct dt_jsonw w = {.pretty = true};
    dt_jsonw_begin(&w, NULL, '{');
    for (int i = 0; i < DT_N_COCO; i++)
        dt_jsonw_number(&w, dt_coco_names[i], e->value[i]);
    dt_jsonw_add(&w, "max_detections: %d, images: %d, detections: %zu, categories: [",
                 e->max_detections, e->coco.n_images, e->n_found);
    for (int i = 0; i < e->coco.n_categories; i++)
        dt_jsonw_add(&w, "{id: %" PRId64 ", name: %s, boxes: %zu, ap: %g, ap50: %g}",
                     e->coco.category_ids[i], dt_names_get(&e->coco.categories, (size_t)i),
                     e->n_truths[i], e->of_category[i].ap, e->of_category[i].ap50);
    dt_jsonw_add(&w, "]}");
    return dt_jsonw_save(&w, path);
}

dt_status dt_cmd_coco_eval(const struct dt_arguments *args)
{
    struct evaluation e = {.max_detections = (int)args->max_detections};
    static struct dt_config config;
    dt_status status = DT_OK;
    DT_TRY(dt_arguments_config(&config, args));
    const struct dt_coco_rules rules = {.max_bad = config.data.max_bad_fraction,
                                        .is_lenient = true};
    if (args->json)
        DT_TRY(dt_file_check_new(args->json));
    DT_TRY_OUT(dt_coco_open(&e.coco, args->operands[0], &rules));
    DT_TRY_OUT(dt_coco_read_found(&e.found, &e.n_found, &e.coco, args->operands[1]));
    DT_TRY_OUT(evaluate(&e, args->operands[0]));
    print_lines(&e, args->eval.per_class);
    if (args->json)
        DT_TRY_OUT(save(&e, args->json));
out:
    free(e.n_truths);
    free(e.of_category);
    free(e.found);
    dt_coco_reset(&e.coco);
    return status;
}
