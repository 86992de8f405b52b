/* The data of a session: opens the data sets, agrees on their classes, counts the steps. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "data/classes.h"
#include "data/placement.h"
#include "train/session.h"

/* Generated images are cut to the size of a stage. */
static int largest_size(const struct dt_config *config)
{
    int size = config->model.image_size;
    for (int i = 0; i < config->train.n_stages; i++)
        if (config->train.stages[i].image_size > size)
            size = config->train.stages[i].image_size;
    return size;
}

static dt_status open_set(struct dt_session *s, struct dt_dataset **set, bool train,
                          const char *cache_dir)
{
    const struct dt_config *config = s->config;
    const bool is_split = config->data.val_fraction > 0;
    const char *path = train || is_split ? config->data.train : config->data.val;
    if (!dt_config_is_synthetic(config) && path[0] == '\0')
        DT_FAIL(DT_ERR_CONFIG, "data.%s: no path given; name a folder or shards",
                train ? "train" : "val");
    struct dt_dataset_options options = {
        .data = &config->data,
        .path = path,
        .images_folder = train || is_split ? config->data.train_images : config->data.val_images,
        .cache_dir = cache_dir,
        .num_classes = s->sets.num_classes,
        .classes = &s->sets.classes,
        .subset = config->data.class_map[0] != '\0',
        .synthetic_images = train ? config->data.synthetic_train : config->data.synthetic_val,
        .image_size = train ? largest_size(config) : config->model.image_size,
        .detects = dt_config_detects(config),
        .seed = config->train.seed + (!train && !is_split), /* other synthetic images */
        .part = train ? DT_PART_TRAIN : DT_PART_VAL,
        .rest_of = !train && is_split ? s->sets.train_set : NULL,
        .n_canvases = s->engine.n_canvases,
    };
    memcpy(options.canvases, s->engine.canvases, sizeof options.canvases);
    DT_TRY(dt_dataset_open(set, &options));
    s->sets.num_classes = dt_dataset_n_classes(*set);
    if (!dt_dataset_classes(*set) && s->sets.num_classes < s->sets.weights_classes)
        s->sets.num_classes = s->sets.weights_classes;
    const struct dt_names *names = dt_dataset_classes(*set);
    return s->sets.classes.n == 0 && names ? dt_names_add_all(&s->sets.classes, names) : DT_OK;
}

static dt_status open_images(struct dt_session *s)
{
    struct dt_dataset_options options = {
        .data = &s->config->data,
        .images = s->sets.images,
        .num_classes = s->sets.num_classes > 0 ? s->sets.num_classes : s->sets.weights_classes,
        .classes = &s->sets.classes,
        .detects = dt_config_detects(s->config)};
    DT_TRY(dt_dataset_open(&s->sets.val_set, &options));
    s->sets.num_classes = dt_dataset_n_classes(s->sets.val_set);
    return DT_OK;
}

static dt_status open_sets(struct dt_session *s, const struct dt_session_needs *needs)
{
    dt_status status = DT_OK;
    if (s->sets.num_classes == 0)
        s->sets.num_classes = s->config->model.num_classes;
    if (s->config->data.class_map[0] && s->sets.classes.n == 0)
        status = dt_classes_load(&s->sets.classes, s->config->data.class_map);
    if (status == DT_OK && needs->train)
        status = open_set(s, &s->sets.train_set, true, needs->cache_dir);
    if (status == DT_OK && needs->eval)
        status = s->sets.images ? open_images(s)
                                : open_set(s, &s->sets.val_set, false, needs->cache_dir);
    if (status == DT_OK)
        status = dt_classes_text(&s->sets.classes_text, &s->sets.classes);
    if (needs->layout_only) {
        s->sets.status = status;
        snprintf(s->sets.problem, sizeof s->sets.problem, "%s",
                 status == DT_OK ? "" : dt_error_text());
        if (s->sets.num_classes == 0)
            s->sets.num_classes = 1000; /* unknown; ImageNet's */
        return DT_OK;
    }
    return status;
}

static dt_status check_classes(const struct dt_session *s)
{
    if (s->sets.num_classes < 2 && !dt_config_detects(s->config))
        DT_FAIL(DT_ERR_DATA, "%s holds one class only, so there is nothing to learn",
                s->sets.train_set || !s->config->data.val[0] ? s->config->data.train
                                                             : s->config->data.val);
    return DT_OK;
}

static dt_status check_batch(const struct dt_session *s)
{
    char key[DT_STAGE_KEY];
    if (s->engine.stage.steps_per_epoch == 0)
        DT_FAIL(DT_ERR_CONFIG,
                "%s: a global batch of %d is more than the %u training images%s; make it smaller",
                dt_session_batch_key(s, key), s->engine.stage.global_batch_size,
                dt_dataset_size(s->sets.train_set),
                s->engine.n_canvases > 1 ? " of every canvas" : "");
    return DT_OK;
}

static void tell_reduced(const struct dt_session *s)
{
    const struct dt_layout layout = {&s->config->data, s->engine.canvases, s->engine.n_canvases};
    const uint32_t n = s->engine.n_canvases > 0 ? dt_dataset_size(s->sets.train_set) : 0;
    uint32_t n_reduced = 0;
    for (uint32_t id = 0; id < n; id++) {
        struct dt_image_info image;
        dt_dataset_image(s->sets.train_set, id, &image);
        n_reduced += !dt_placement_fits(&layout, image.width, image.height);
    }
    if (n_reduced > 0 && s->ranks.rank == 0)
        dt_log(DT_LOG_NOTICE,
               "%" PRIu32 " of %" PRIu32 " training images are larger than every canvas at "
               "data.min_side %d and data.max_side %d; they are reduced until they fit",
               n_reduced, n, s->config->data.min_side, s->config->data.max_side);
}

/* A global batch has one canvas. */
static void warn_rare(const struct dt_session *s)
{
    for (int i = 0; i < s->engine.n_canvases && s->ranks.rank == 0; i++)
        if (s->sets.n_images[i] > 0 &&
            s->sets.n_images[i] < (uint32_t)s->engine.stage.global_batch_size)
            dt_log(DT_LOG_WARNING,
                   "only %" PRIu32 " training images are for the canvas %dx%d, less than a global "
                   "batch of %d: they are never trained on; use fewer canvases or a smaller batch",
                   s->sets.n_images[i], s->engine.canvases[i].width, s->engine.canvases[i].height,
                   s->engine.stage.global_batch_size);
}

static dt_status count_steps(struct dt_session *s)
{
    const struct dt_config *config = s->config;
    const int64_t now = s->engine.stage.epoch;
    if (!s->sets.train_set)
        return DT_OK;
    const struct dt_loader_options options = dt_session_loader_options(s, true);
    dt_loader_count(s->sets.n_images, s->sets.train_set, &options);
    tell_reduced(s);
    dt_session_enter(s, now);
    warn_rare(s);
    DT_TRY(check_batch(s));
    for (int i = 0; i < config->train.n_stages; i++) {
        dt_session_enter(s, config->train.stages[i].epoch);
        DT_TRY(check_batch(s));
    }
    dt_session_enter(s, now);
    dt_schedule_init(&s->engine.schedule, config, dt_config_batch_size(config, s->ranks.n_ranks),
                     s->sets.n_images);
    if (s->engine.schedule.warmup_steps > s->engine.schedule.total_steps)
        DT_FAIL(DT_ERR_CONFIG,
                "schedule.warmup_steps: a warm-up of %" PRId64 " steps is longer than the run of "
                "%" PRId64 " steps",
                s->engine.schedule.warmup_steps, s->engine.schedule.total_steps);
    s->engine.last_step = s->engine.schedule.total_steps;
    if (config->train.max_steps > 0 && config->train.max_steps < s->engine.last_step)
        s->engine.last_step = config->train.max_steps;
    return DT_OK;
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

static dt_status check_metrics(const struct dt_session *s)
{
    const struct dt_config *config = s->config;
    bool decides = strcmp(metric_key(config, DT_METRIC_TOP5), "eval.metrics") != 0;
    if (decides && !dt_session_has_top5(s))
        DT_FAIL(DT_ERR_CONFIG, "%s: top5 needs at least 6 classes, but there are %d",
                metric_key(config, DT_METRIC_TOP5), s->sets.num_classes);
    for (enum dt_metric m = 0; m < DT_N_METRICS; m++)
        if (dt_metric_is_binary(m) && s->sets.num_classes != 2 && dt_config_has_metric(config, m))
            DT_FAIL(DT_ERR_CONFIG,
                    "%s: %s is defined for two classes, but there are %d; use macro_f1 or "
                    "balanced_accuracy",
                    metric_key(config, m), dt_metric_name(m), s->sets.num_classes);
    return DT_OK;
}

/* With a cache rank 0 goes first, so that the others find its index instead of building one. */
dt_status dt_session_open_data(struct dt_session *s, const struct dt_session_needs *needs)
{
    dt_status status = DT_OK;
    dt_report_progress(s->report, "reading the data index", 0, 1);
    if (s->ranks.rank == 0 || !needs->cache_dir)
        status = open_sets(s, needs);
    /* The lines of the other ranks begin with theirs. */
    if (status != DT_OK && s->ranks.rank == 0 &&
        dt_comm_local_size(s->ranks.comm) < s->ranks.n_ranks)
        DT_ERROR(status, "%s, on %s", dt_error_text(), dt_comm_host(s->ranks.comm, 0));
    if (needs->cache_dir) {
        DT_TRY(dt_comm_agree(s->ranks.comm, status));
        if (s->ranks.rank != 0)
            status = open_sets(s, needs);
    }
    dt_report_progress(s->report, "reading the data index", 1, 1);
    if (status == DT_OK && !needs->input_only)
        status = check_classes(s);
    if (status == DT_OK && needs->eval && !s->sets.problem[0])
        status = check_metrics(s);
    if (status == DT_OK && needs->train && !needs->input_only)
        status = count_steps(s);
    if (status == DT_OK && needs->train && !needs->input_only)
        status = dt_session_weigh_classes(s);
    return dt_comm_agree(s->ranks.comm, status);
}
