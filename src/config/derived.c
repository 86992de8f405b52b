/* Values that follow from several keys, and the table of metrics. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "dtrain/config.h"

/* --- Metrics --- */

#define METRIC_ROW(NAME, name, ...) {#name, __VA_ARGS__},
static const struct {
    const char *name;
    unsigned traits;
    enum dt_networks of;
} metric_rows[] = {DT_METRIC_LIST(METRIC_ROW)};

const char *dt_metric_name(enum dt_metric metric)
{
    return metric_rows[metric].name;
}

bool dt_metric_is_binary(enum dt_metric metric)
{
    return metric_rows[metric].traits & DT_TWO_CLASSES_ONLY;
}

bool dt_metric_is_percent(enum dt_metric metric)
{
    return metric_rows[metric].traits & DT_IN_PERCENT;
}

enum dt_networks dt_metric_networks(enum dt_metric metric)
{
    return metric_rows[metric].of;
}

double dt_metric_gain(enum dt_metric metric, double from, double to)
{
    return metric_rows[metric].traits & DT_LESS_IS_BETTER ? from - to : to - from;
}

/* --- The configuration --- */

bool dt_schedule_has_end(enum dt_schedule_kind kind)
{
#define HAS_END(NAME, name, ...) {__VA_ARGS__},
    static const struct {
        bool has_end;
    } rows[] = {DT_SCHEDULE_LIST(HAS_END)};
    return rows[kind].has_end;
}

/* Also every part of shards such as "a-{0..9}.tar::b.tar". Unchanged if it becomes too long. */
static void make_absolute(char path[DT_PATH_MAX], const char *folder)
{
    char absolute[DT_PATH_MAX];
    struct dt_text text = dt_text_in(absolute, sizeof absolute);
    bool fits = true;
    for (const char *part = path; *part && fits;) {
        const char *joint = strstr(part, "::"), *next = joint ? joint + 2 : part + strlen(part);
        fits = dt_text_add_whole(&text, "%s%s%.*s", part[0] == '/' ? "" : folder,
                                 part[0] == '/' ? "" : "/", (int)(next - part), part);
        part = next;
    }
    if (fits && path[0])
        memcpy(path, absolute, text.used + 1);
}

void dt_config_make_absolute(struct dt_config *config)
{
    char *const paths[] = {config->data.train,        config->data.val,
                           config->data.train_images, config->data.val_images,
                           config->data.class_map,    config->model.initial_checkpoint};
    char folder[DT_PATH_MAX];
    if (!getcwd(folder, sizeof folder))
        return;
    for (size_t i = 0; i < DT_COUNT(paths); i++)
        make_absolute(paths[i], folder);
}

const char *dt_config_names_next(const char *names, char *name, size_t bytes)
{
    size_t n = strcspn(names, "\n");
    if (names[n] == '\0')
        return NULL;
    snprintf(name, bytes, "%.*s", (int)n, names);
    return names + n + 1;
}

bool dt_config_has_metric(const struct dt_config *config, enum dt_metric metric)
{
    char name[DT_CONFIG_NAME_MAX];
    const char *rest = config->eval.metrics;
    if (dt_config_detects(config))
        return dt_config_fits(config, metric);
    while ((rest = dt_config_names_next(rest, name, sizeof name)))
        if (strcmp(name, dt_metric_name(metric)) == 0)
            return true;
    return metric == dt_config_goal_metric(config) || metric == dt_config_best_metric(config) ||
           (config->schedule.kind == DT_SCHEDULE_PLATEAU &&
            metric == dt_config_plateau_metric(config));
}

struct dt_canvases dt_config_canvases(const struct dt_config *config, int side)
{
    char text[DT_CONFIG_NAME_MAX];
    const char *rest = config->model.canvases;
    struct dt_canvases out = {0};
    while (out.n < DT_MAX_CANVASES && (rest = dt_config_names_next(rest, text, sizeof text)))
        if (sscanf(text, "%dx%d", &out.size[out.n].width, &out.size[out.n].height) == 2)
            out.n++;
    if (out.n == 0)
        out.size[out.n++] = (struct dt_canvas){side, side};
    return out;
}

/* A negative value stands for the network's own, and without that the network has no such layer. */
static double or_own(double value, double own)
{
    return value < 0 || own == 0 ? own : value;
}

struct dt_model_options dt_config_model_options(const struct dt_config *config, int num_classes)
{
    const struct dt_config_model *model = &config->model;
    const struct dt_config_train *train = &config->train;
    const struct dt_model *row = dt_model_find(model->name);
    return (struct dt_model_options){
        .num_classes = num_classes,
        .zero_init_residual = model->zero_init_residual,
        .dropout = or_own(model->dropout, row->dropout),
        .stochastic_depth = or_own(model->stochastic_depth, row->stochastic_depth),
        .detector = {.fpn_channels = model->fpn_channels,
                     .trainable_layers = model->trainable_layers,
                     .frozen_norm = model->frozen_norm,
                     .norm_eps = model->norm_eps,
                     .p6_from_c5 = model->p6_from == DT_P6_FROM_C5,
                     .group_norm = model->head_norm == DT_HEAD_NORM_GROUP,
                     .detect = {.anchors.base = model->anchor_base,
                                .global = train->loss_normalizer == DT_NORMALIZER_GLOBAL,
                                .alpha = (float)train->focal_alpha,
                                .gamma = (float)train->focal_gamma,
                                .kind = train->box_loss,
                                .beta = (float)train->box_loss_beta,
                                .min_score = (float)config->eval.score_threshold}}};
}

#define DT_OPTIM_DEFAULTS(NAME, name, square, trust, beta2, eps, lr) {beta2, eps, lr},
static const struct {
    double beta2, eps, lr;
} own[] = {DT_OPTIM_LIST(DT_OPTIM_DEFAULTS)};

double dt_config_own_lr(const struct dt_config *config)
{
    return own[config->optim.name].lr;
}

struct dt_optim_options dt_config_optim(const struct dt_config *config)
{
    const struct dt_config_optim *o = &config->optim;
    return (struct dt_optim_options){
        .momentum = o->momentum,
        .beta2 = o->beta2 > 0 ? o->beta2 : own[o->name].beta2,
        .eps = (float)(o->eps > 0 ? o->eps : own[o->name].eps),
        .weight_decay = (float)o->weight_decay,
        .trust = (float)o->trust_coefficient,
        .clip_norm = (float)o->clip_norm,
        .clip_value = (float)o->clip_value,
        .nesterov = o->nesterov,
    };
}

int dt_config_batch_size(const struct dt_config *config, int n_ranks)
{
    const struct dt_config_train *train = &config->train;
    if (train->batch_size_per_rank > 0)
        return train->batch_size_per_rank *
               (train->virtual_ranks > 0 ? train->virtual_ranks : n_ranks);
    return train->global_batch_size > 0 ? train->global_batch_size : 256;
}

int dt_config_ring_ranks(const struct dt_config *config)
{
    enum { RING_RANKS = 32 };
    const enum dt_comm_algorithm algorithm = config->comm.algorithm;
    if (config->train.deterministic || algorithm == DT_ALGORITHM_RING)
        return INT_MAX;
    return algorithm == DT_ALGORITHM_LIBRARY ? 0 : RING_RANKS;
}

int dt_config_sync_every(const struct dt_config *config)
{
    enum { ASYNC = 32 };
    const int every = config->train.sync_every;
    return every > 0 ? every : config->comm.mode == DT_MODE_ASYNC ? ASYNC : 1;
}

int dt_config_slice_group(const struct dt_config *config)
{
    const int group = config->model.sync_bn;
    const int n = config->train.virtual_ranks;
    return n == 0 || group == 0 ? 1 : group == 1 ? n : group;
}

enum dt_comm_mode dt_config_mode(const struct dt_config *config)
{
    const bool is_local = config->comm.mode == DT_MODE_ALLREDUCE && config->train.sync_every > 1;
    return is_local ? DT_MODE_LOCAL : config->comm.mode;
}

bool dt_config_sums(const struct dt_config *config)
{
    return dt_config_mode(config) == DT_MODE_ALLREDUCE;
}

const char *dt_config_batch_key(const struct dt_config *config)
{
    return config->train.batch_size_per_rank > 0 ? "train.batch_size_per_rank"
                                                 : "train.global_batch_size";
}

struct dt_train_stage dt_config_stage(const struct dt_config *config, int plain_batch,
                                      int64_t epoch, int *index)
{
    struct dt_train_stage stage = {0};
    int last = -1;
    while (last + 1 < config->train.n_stages && config->train.stages[last + 1].epoch <= epoch)
        stage = config->train.stages[++last];
    if (stage.image_size == 0)
        stage.image_size = config->model.image_size;
    if (stage.batch == 0)
        stage.batch = plain_batch;
    if (index)
        *index = last;
    return stage;
}

bool dt_config_fits(const struct dt_config *config, enum dt_metric metric)
{
    const enum dt_networks of = dt_metric_networks(metric);
    return of == DT_OF_ALL || (of == DT_OF_DETECTORS) == dt_config_detects(config);
}

static enum dt_metric choose(const struct dt_config *config, enum dt_metric given,
                             enum dt_metric of_classifier, enum dt_metric of_detector)
{
    if (given != DT_METRIC_AUTO)
        return given;
    return dt_config_detects(config) ? of_detector : of_classifier;
}

enum dt_metric dt_config_goal_metric(const struct dt_config *config)
{
    return choose(config, config->early_stop.metric, DT_METRIC_TOP1, DT_METRIC_AP);
}

enum dt_metric dt_config_best_metric(const struct dt_config *config)
{
    const enum dt_metric given = config->checkpoint.best_metric;
    return given == DT_METRIC_AUTO ? dt_config_goal_metric(config) : given;
}

enum dt_metric dt_config_plateau_metric(const struct dt_config *config)
{
    return choose(config, config->schedule.metric, DT_METRIC_LOSS, DT_METRIC_TRAIN_LOSS);
}

bool dt_config_is_synthetic(const struct dt_config *config)
{
    const struct dt_config_data *data = &config->data;
    bool no_path = !data->train[0] && !data->val[0];
    return data->source == DT_SOURCE_SYNTHETIC || (data->source == DT_SOURCE_AUTO && no_path);
}

bool dt_config_detects(const struct dt_config *config)
{
    const struct dt_model *model = dt_model_find(config->model.name);
    return model && model->detects;
}

bool dt_config_has_validation(const struct dt_config *config)
{
    return dt_config_is_synthetic(config) ? config->data.synthetic_val > 0
                                          : config->data.val[0] || config->data.val_fraction > 0;
}
