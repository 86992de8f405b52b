#include "engine/sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/text.h"
#include "engine/parallel.h"
#include "engine/task.h"

void dt_sets_init(struct dt_sets *sets, struct dt_comm *comm, const struct dt_config *config,
                  const struct dt_task *task)
{
    *sets = (struct dt_sets){
        .config = config,
        .ranks =
            dt_ranks_of(comm, dt_parallel_of(config)->has_server, dt_config_sync_every(config)),
        .task = task,
        .canvases = dt_config_canvases(config, config->model.image_size),
    };
}

const char *dt_sets_sizes(const struct dt_sets *sets, int side, char out[DT_SIZES_TEXT])
{
    struct dt_text text = dt_text_in(out, DT_SIZES_TEXT);
    const struct dt_canvases canvases = dt_config_canvases(sets->config, side);
    for (int i = 0; i < canvases.n; i++)
        dt_text_add(&text, "%s%d x %d", i == 0 ? "" : ", ", canvases.size[i].width,
                    canvases.size[i].height);
    return out;
}

int dt_sets_crop(const struct dt_sets *sets, int side)
{
    return sets->task->targets == DT_COLUMN_BOXES ? 0 : side;
}

dt_status dt_sets_check_bad(const struct dt_loader *loader, double n_bad)
{
    dt_status status = dt_loader_check_bad(loader, (uint64_t)n_bad);
    if (status != DT_OK)
        dt_error_set_origin(0); /* all ranks have the same number */
    return status;
}

bool dt_sets_has_top5(const struct dt_sets *sets)
{
    return sets->num_classes > 5;
}

/* --- Opening --- */

/* Generated images are cut to the size of a stage. */
static int largest_size(const struct dt_config *config)
{
    int size = config->model.image_size;
    for (int i = 0; i < config->train.n_stages; i++)
        if (config->train.stages[i].image_size > size)
            size = config->train.stages[i].image_size;
    return size;
}

dt_status dt_sets_check_given(const struct dt_config *config)
{
    if (config->data.train[0] || config->data.source == DT_SOURCE_SYNTHETIC)
        return DT_OK;
    DT_FAIL_ON_ALL_RANKS(
        DT_ERR_CONFIG,
        "data.train: not given; name a folder with a folder of images per class, shards "
        "such as train-{0000..0009}.tar, or a .csv or COCO .json file (--set "
        "data.train=PATH); generated images: --set data.source=synthetic");
}

/* For struct dt_data_share; `context`: the sets. */
static dt_status give(void *context, dt_status mine, struct dt_shared *shared, const void *data,
                      size_t bytes)
{
    const struct dt_sets *sets = context;
    DT_TRY(dt_comm_agree(sets->ranks.comm, mine));
    return dt_comm_share(sets->ranks.comm, shared, data, bytes);
}

/* In messages: who has said what the classes are; NULL if nobody has. */
static const char *whose_classes(const struct dt_sets *sets)
{
    if (sets->train_set)
        return sets->config->data.train;
    if (sets->weights_classes > 0)
        return "the weights";
    return sets->classes.n > 0 ? sets->config->data.class_map : NULL;
}

static dt_status open_set(struct dt_sets *sets, struct dt_dataset **set, bool train,
                          const char *cache_dir)
{
    const struct dt_config *config = sets->config;
    const struct dt_data_share share = {sets->ranks.rank == 0, give, sets};
    const bool is_split = config->data.val_fraction > 0;
    const char *path = train || is_split ? config->data.train : config->data.val;
    if (train || is_split)
        DT_TRY(dt_sets_check_given(config));
    else if (config->data.source != DT_SOURCE_SYNTHETIC && path[0] == '\0')
        DT_FAIL(
            DT_ERR_CONFIG,
            "data.val: not given; name a folder or shards, or train with data.val_fraction=0.1, "
            "which keeps some of the training images for it");
    struct dt_dataset_options options = {
        .data = &config->data,
        .path = path,
        .images_folder = train || is_split ? config->data.train_images : config->data.val_images,
        .cache_dir = cache_dir,
        .num_classes = sets->num_classes,
        .classes = &sets->classes,
        .class_map = sets->class_map,
        .classes_of = whose_classes(sets),
        .by_order = !sets->train_set,
        .subset = config->data.class_map[0] != '\0',
        .synthetic_images = train ? config->data.synthetic_train : config->data.synthetic_val,
        .targets = sets->task->targets,
        .may_lack_boxes = sets->may_lack_boxes,
        .seed = config->train.seed + (!train && !is_split), /* other synthetic images */
        .part = train ? DT_PART_TRAIN : DT_PART_VAL,
        .share = sets->ranks.n_ranks > 1 ? &share : NULL,
        .rest_of = !train && is_split ? sets->train_set : NULL,
        .canvases =
            dt_config_canvases(config, train ? largest_size(config) : config->model.image_size),
    };
    const dt_status status = dt_dataset_open(set, &options);
    if (status == DT_ERR_NO_INPUT)
        DT_FAIL(status, "%s; if the data are elsewhere: --set data.%s=PATH", dt_error_text(),
                train || is_split ? "train" : "val");
    DT_TRY(status);
    sets->num_classes = dt_dataset_n_classes(*set);
    if (!dt_dataset_classes(*set) && sets->num_classes < sets->weights_classes)
        sets->num_classes = sets->weights_classes;
    const struct dt_names *names = dt_dataset_classes(*set);
    return sets->classes.n == 0 && names ? dt_names_add_all(&sets->classes, names) : DT_OK;
}

static dt_status open_images(struct dt_sets *sets)
{
    struct dt_dataset_options options = {
        .data = &sets->config->data,
        .images = sets->images,
        .num_classes = sets->num_classes > 0 ? sets->num_classes : sets->weights_classes,
        .classes = &sets->classes,
        .targets = sets->task->targets};
    DT_TRY(dt_dataset_open(&sets->val_set, &options));
    sets->num_classes = dt_dataset_n_classes(sets->val_set);
    return DT_OK;
}

/* Rank 0 reads data.class_map. Classes of weights stay; then the map only says what numbers mean,
 * and may be gone. */
static dt_status load_class_map(struct dt_sets *sets)
{
    const char *path = sets->config->data.class_map;
    const bool decides = sets->classes.n == 0;
    struct dt_names *names = decides ? &sets->classes : &sets->numbers;
    struct dt_shared shared = {0};
    char *text = NULL;
    dt_status status = DT_OK;
    sets->class_map = names;
    if (sets->ranks.rank == 0 && (decides || dt_file_exists(path)))
        status = dt_classes_load(names, path);
    if (sets->ranks.n_ranks == 1)
        return status;
    if (status == DT_OK && sets->ranks.rank == 0)
        status = dt_classes_text(&text, names);
    const char *lines = text ? text : "";
    status = give(sets, status, &shared, lines, strlen(lines) + 1);
    if (status == DT_OK && sets->ranks.rank != 0)
        status = dt_classes_parse(names, shared.data, path);
    dt_shared_free(&shared);
    free(text);
    return status;
}

static dt_status open_sets(struct dt_sets *sets, const struct dt_sets_options *options)
{
    struct dt_comm *comm = sets->ranks.comm;
    dt_status status = DT_OK;
    if (sets->num_classes == 0)
        sets->num_classes = sets->config->model.num_classes;
    if (sets->config->data.class_map[0])
        status = dt_comm_agree(comm, load_class_map(sets));
    if (status == DT_OK && options->train)
        status = dt_comm_agree(comm, open_set(sets, &sets->train_set, true, options->cache_dir));
    if (status == DT_OK && options->val && sets->images)
        status = open_images(sets);
    else if (status == DT_OK && options->val)
        status = dt_comm_agree(comm, open_set(sets, &sets->val_set, false, options->cache_dir));
    if (status == DT_OK)
        status = dt_classes_text(&sets->classes_text, &sets->classes);
    if (options->may_lack) {
        sets->status = status;
        snprintf(sets->problem, sizeof sets->problem, "%s", status == DT_OK ? "" : dt_error_text());
        if (sets->num_classes == 0)
            sets->num_classes = 1000; /* unknown; ImageNet's */
        return DT_OK;
    }
    return status;
}

/* The key that asks for the metric. */
static const char *metric_key(const struct dt_config *config, enum dt_metric metric)
{
    if (dt_config_goal_metric(config) == metric)
        return "early_stop.metric";
    if (dt_config_best_metric(config) == metric)
        return "checkpoint.best_metric";
    bool is_followed =
        config->schedule.kind == DT_SCHEDULE_PLATEAU && dt_config_plateau_metric(config) == metric;
    return is_followed ? "schedule.metric" : "eval.metrics";
}

static dt_status check_metrics(const struct dt_sets *sets)
{
    const struct dt_config *config = sets->config;
    bool decides = strcmp(metric_key(config, DT_METRIC_TOP5), "eval.metrics") != 0;
    if (decides && !dt_sets_has_top5(sets))
        DT_FAIL(DT_ERR_CONFIG, "%s: top5 needs at least 6 classes, but there are %d",
                metric_key(config, DT_METRIC_TOP5), sets->num_classes);
    for (enum dt_metric m = 0; m < DT_N_METRICS; m++)
        if (dt_metric_is_binary(m) && sets->num_classes != 2 && dt_config_has_metric(config, m))
            DT_FAIL(DT_ERR_CONFIG,
                    "%s: %s is defined for two classes, but there are %d; use macro_f1 or "
                    "balanced_accuracy",
                    metric_key(config, m), dt_metric_name(m), sets->num_classes);
    return DT_OK;
}

/* --- Class weights --- */

/* The weights are those of scikit-learn's compute_class_weight("balanced"): with equal shares all
 * weights are 1. */
static dt_status balance(struct dt_sets *sets)
{
    const int n_classes = sets->num_classes;
    const uint32_t n_images = dt_dataset_size(sets->train_set);
    uint32_t *counts = NULL;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(counts, (size_t)n_classes));
    for (uint32_t id = 0; id < n_images; id++)
        counts[dt_dataset_label(sets->train_set, id)]++;
    for (int c = 0; c < n_classes; c++) {
        const char *name = dt_dataset_class(sets->train_set, c);
        if (counts[c] == 0)
            DT_TRY_OUT(DT_ERROR(DT_ERR_CONFIG,
                                "train.class_weights: no training image is of class %d%s%s%s, so "
                                "\"balanced\" gives it no weight; list the weights",
                                c, name ? " (" : "", name ? name : "", name ? ")" : ""));
        sets->class_weights[c] = (float)((double)n_images / ((double)n_classes * counts[c]));
    }
out:
    free(counts);
    return status;
}

/* DT_ERR_CONFIG if there is not one weight per class, or a class without images. */
static dt_status weigh_classes(struct dt_sets *sets)
{
    const int n = sets->config->train.n_class_weights;
    if (n == 0 || !sets->train_set)
        return DT_OK;
    DT_TRY(DT_NEW(sets->class_weights, (size_t)sets->num_classes));
    if (n == DT_CLASS_WEIGHTS_BALANCED)
        return balance(sets);
    if (n != sets->num_classes)
        DT_FAIL(DT_ERR_CONFIG, "train.class_weights: %d weights for %d classes; list one per class",
                n, sets->num_classes);
    for (int c = 0; c < n; c++)
        sets->class_weights[c] = (float)sets->config->train.class_weights[c];
    return DT_OK;
}

/* --- Together --- */

static dt_status check(struct dt_sets *sets, const struct dt_sets_options *options)
{
    if (!options->is_raw && sets->num_classes < sets->task->min_classes)
        DT_FAIL(DT_ERR_DATA, "%s holds one class only, so there is nothing to learn",
                sets->train_set || !sets->config->data.val[0] ? sets->config->data.train
                                                              : sets->config->data.val);
    if (options->val && !sets->problem[0])
        DT_TRY(check_metrics(sets));
    return options->is_raw ? DT_OK : weigh_classes(sets);
}

dt_status dt_sets_open(struct dt_sets *sets, const struct dt_sets_options *options)
{
    const struct dt_ranks *ranks = &sets->ranks;
    dt_events_progress(options->events, "reading the data index", 0, 1);
    const dt_status status = open_sets(sets, options);
    /* The lines of the other ranks begin with theirs. */
    if (status != DT_OK && ranks->rank == 0 && dt_comm_local_size(ranks->comm) < ranks->n_ranks)
        DT_ERROR(status, "%s, on %s", dt_error_text(), dt_comm_host(ranks->comm, 0));
    dt_events_progress(options->events, "reading the data index", 1, 1);
    return dt_comm_agree(ranks->comm, status == DT_OK ? check(sets, options) : status);
}

void dt_sets_close(struct dt_sets *sets)
{
    if (sets->train_set)
        dt_dataset_close(sets->train_set);
    if (sets->val_set)
        dt_dataset_close(sets->val_set);
    dt_names_reset(&sets->classes);
    dt_names_reset(&sets->numbers);
    free(sets->classes_text);
    free(sets->class_weights);
}
