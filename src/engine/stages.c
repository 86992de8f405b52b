/* Changes from one epoch to the next: the stage (train.stages) and what is frozen. Graph, plan
 * and training loader are then built again, and the state moves by name, as if the run had stopped
 * and resumed. */
#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "checkpoint/snapshot.h"
#include "data/mix.h"
#include "engine/engine.h"
#include "engine/task.h"

enum { KEY_BYTES = 32 };

static bool freezes(const struct dt_config *config, int64_t epoch)
{
    const struct dt_config_optim *optim = &config->optim;
    return optim->freeze[0] && (optim->unfreeze_epoch == 0 || epoch < optim->unfreeze_epoch);
}

/* The split of the batch into passes stays as it was. */
static struct dt_stage stage_at(const struct dt_engine *engine, int64_t epoch)
{
    const struct dt_config *config = engine->config;
    const int plain_batch = dt_config_batch_size(config, engine->ranks.n_ranks);
    struct dt_stage stage = engine->stage;
    const struct dt_train_stage given = dt_config_stage(config, plain_batch, epoch, &stage.index);
    stage.epoch = epoch;
    stage.is_frozen = freezes(config, epoch);
    stage.image_size = given.image_size;
    stage.split.images = given.batch;
    stage.steps_per_epoch = dt_schedule_steps(engine->n_images, given.batch);
    return stage;
}

void dt_engine_enter(struct dt_engine *engine, int64_t epoch)
{
    engine->stage = stage_at(engine, epoch);
}

static bool has_other_input(const struct dt_engine *engine, int64_t epoch)
{
    const struct dt_stage stage = stage_at(engine, epoch);
    return stage.image_size != engine->stage.image_size ||
           stage.split.images != engine->stage.split.images;
}

bool dt_engine_differs(const struct dt_engine *engine, int64_t epoch)
{
    return engine->stage.is_frozen != freezes(engine->config, epoch) ||
           has_other_input(engine, epoch);
}

/* The key that the global batch of a stage follows from. */
static const char *batch_key(const struct dt_config *config, const struct dt_stage *stage,
                             char out[KEY_BYTES])
{
    bool in_stage = stage->index >= 0 && config->train.stages[stage->index].batch > 0;
    snprintf(out, KEY_BYTES, "train.stages[%d].batch", stage->index);
    return in_stage ? out : dt_config_batch_key(config);
}

/* --- The steps of all epochs --- */

static dt_status check_batch(const struct dt_engine *engine, const struct dt_sets *sets,
                             int64_t epoch)
{
    const struct dt_stage stage = stage_at(engine, epoch);
    char key[KEY_BYTES];
    if (stage.steps_per_epoch == 0)
        DT_FAIL(DT_ERR_CONFIG,
                "%s: a global batch of %d is more than the %u training images%s; make it smaller",
                batch_key(engine->config, &stage, key), stage.split.images,
                dt_dataset_size(sets->train_set), sets->canvases.n > 1 ? " of every canvas" : "");
    return DT_OK;
}

void dt_engine_find_end(struct dt_engine *engine)
{
    const int64_t max = engine->config->train.max_steps;
    engine->last_step = engine->schedule.total_steps;
    if (max > 0 && max < engine->last_step)
        engine->last_step = max;
}

dt_status dt_engine_count_steps(struct dt_engine *engine, const struct dt_sets *sets)
{
    const struct dt_config *config = engine->config;
    if (!sets->train_set)
        return DT_OK;
    dt_loader_count(engine->n_images, NULL, sets->train_set, &config->data, &sets->canvases);
    dt_engine_enter(engine, engine->stage.epoch);
    if (engine->task->warn_of_data && engine->ranks.rank == 0)
        engine->task->warn_of_data(engine, sets);
    DT_TRY(check_batch(engine, sets, engine->stage.epoch));
    for (int i = 0; i < config->train.n_stages; i++)
        DT_TRY(check_batch(engine, sets, config->train.stages[i].epoch));
    dt_schedule_init(&engine->schedule, config, dt_config_batch_size(config, engine->ranks.n_ranks),
                     engine->n_images);
    if (engine->schedule.warmup_steps > engine->schedule.total_steps)
        DT_FAIL(DT_ERR_CONFIG,
                "schedule.warmup_steps: a warm-up of %" PRId64 " steps is longer than the run of "
                "%" PRId64 " steps",
                engine->schedule.warmup_steps, engine->schedule.total_steps);
    dt_engine_find_end(engine);
    return DT_OK;
}

/* --- Before training --- */

void dt_split_describe(char out[DT_SPLIT_TEXT], const struct dt_split *split)
{
    const int min = dt_split_min(split), max = dt_split_max(split);
    if (min == max)
        snprintf(out, DT_SPLIT_TEXT, "%d image%s", min, DT_S(min));
    else
        snprintf(out, DT_SPLIT_TEXT, "%d or %d images", min, max);
}

void dt_engine_describe_batch(char out[DT_BATCH_TEXT], const struct dt_engine *engine)
{
    const struct dt_split *split = &engine->stage.split;
    const bool is_virtual = dt_split_has_slices(split);
    const int n = is_virtual ? split->n_parts : engine->ranks.n_workers;
    char images[DT_SPLIT_TEXT];
    struct dt_text text = dt_text_in(out, DT_BATCH_TEXT);
    dt_split_describe(images, split);
    dt_text_add(&text, "%d = %d %srank%s x ", split->images, n, is_virtual ? "virtual " : "",
                DT_S(n));
    if (!is_virtual && split->n_passes > 1)
        dt_text_add(&text, "%d micro-batches x ", split->n_passes);
    dt_text_add(&text, "%s", images);
}

struct dt_split dt_engine_split(const struct dt_engine *engine, int n_passes)
{
    const struct dt_ranks *ranks = &engine->ranks;
    return (struct dt_split){.images = engine->stage.split.images,
                             .n_parts = ranks->n_workers * n_passes,
                             .first = ranks->worker * n_passes,
                             .n_passes = n_passes,
                             .unit = dt_mix_is_on(&engine->config->data) ? 2 : 1};
}

/* With train.virtual_ranks. */
static dt_status split_slices(struct dt_split *split, const struct dt_engine *engine)
{
    const struct dt_ranks *ranks = &engine->ranks;
    const int n = engine->config->train.virtual_ranks;
    if (ranks->n_workers > n)
        DT_FAIL(DT_ERR_CONFIG,
                "train.virtual_ranks: %d of them cannot be shared by %d ranks; start at most %d", n,
                ranks->n_workers, n);
    split->n_parts = n;
    split->group = dt_config_slice_group(engine->config);
    split->first = dt_slices_first(n, split->group, ranks->n_workers, ranks->worker);
    split->n_passes =
        dt_slices_first(n, split->group, ranks->n_workers, ranks->worker + 1) - split->first;
    return DT_OK;
}

/* The fewest passes in which no micro-batch of n images per rank exceeds train.micro_batch_size,
 * or as many as the resumed run had. */
static dt_status count_passes(int *n_passes, const struct dt_engine *engine, int n)
{
    const struct dt_split *split = &engine->stage.split;
    const int limit = engine->config->train.micro_batch_size, parts = engine->saved_parts;
    const int max = limit / split->unit * split->unit, images = split->images;
    const bool fits = parts > 0 && parts % engine->ranks.n_workers == 0 &&
                      images / split->unit >= parts &&
                      (images % parts == 0 || images == engine->saved_batch);
    if (limit > 0 && max == 0)
        DT_FAIL(DT_ERR_CONFIG, "train.micro_batch_size: data.mixup and data.cutmix mix pairs, "
                               "so 1 image is too few; make it even");
    *n_passes = limit > 0 ? (n + max - 1) / max : fits ? parts / engine->ranks.n_workers : 1;
    return DT_OK;
}

dt_status dt_engine_split_batch(struct dt_engine *engine)
{
    char key[KEY_BYTES];
    struct dt_split *split = &engine->stage.split;
    const int n_ranks = engine->ranks.n_workers, images = split->images;
    const bool is_virtual = engine->options.train && engine->config->train.virtual_ranks > 0;
    int n_passes = 1;
    *split = dt_engine_split(engine, 1);
    if (is_virtual)
        DT_TRY(split_slices(split, engine));
    if (images % split->unit != 0)
        DT_FAIL(DT_ERR_CONFIG, "%s: data.mixup and data.cutmix mix pairs, so %d must be even",
                batch_key(engine->config, &engine->stage, key), images);
    if (dt_split_min(split) == 0)
        DT_FAIL(DT_ERR_CONFIG,
                "%s: %d image%s%s too few for %d %sranks; raise it, or %s at most %d",
                batch_key(engine->config, &engine->stage, key), images, DT_S(images),
                images == 1 ? " is" : " are", split->n_parts, is_virtual ? "virtual " : "",
                is_virtual ? "set train.virtual_ranks to" : "start", images / split->unit);
    if (is_virtual)
        return DT_OK;
    DT_TRY(count_passes(&n_passes, engine, dt_split_max(split)));
    *split = dt_engine_split(engine, n_passes);
    if (dt_split_min(split) == 0)
        DT_FAIL(DT_ERR_CONFIG,
                "train.micro_batch_size: micro-batches of %d image%s leave some of %d ranks "
                "without any in the last of %d passes over a global batch of %d; set it to %d",
                dt_split_max(split), DT_S(dt_split_max(split)), n_ranks, n_passes, images,
                2 * split->unit);
    return DT_OK;
}

/* The output of a norm over one value is its bias, whatever the image is. */
static bool is_constant(const struct dt_graph *g, const struct dt_node *node)
{
    const bool is_norm =
        node->op == DT_OP_BN || node->op == DT_OP_GROUP_NORM || node->op == DT_OP_LAYER_NORM;
    return is_norm && dt_node_has_statistics(node) && !dt_node_is_synced(node) &&
           dt_tensor_elements(&g->tensor[node->src[DT_BN_SRC]]) ==
               dt_tensor_elements(&g->tensor[node->dst[DT_BN_MEAN]]);
}

dt_status dt_engine_check_norms(const struct dt_engine *engine)
{
    const struct dt_stage *stage = &engine->stage;
    const struct dt_graph *g = engine->graph;
    char buffer[KEY_BYTES];
    const char *key = stage->split.n_passes > 1 && !dt_split_has_slices(&stage->split)
                          ? "train.micro_batch_size"
                          : batch_key(engine->config, stage, buffer);
    for (int i = 0; i < g->n_nodes && !engine->options.no_comm; i++) {
        const struct dt_node *node = &g->node[i];
        if (!is_constant(g, node))
            continue;
        const int *dim = g->tensor[node->src[DT_BN_SRC]].dim;
        if (node->op != DT_OP_BN)
            DT_FAIL(DT_ERR_CONFIG,
                    "%s: the feature map of %d x %d leaves it one value per group, so no gradient "
                    "passes; use larger images (model.image_size) or more channels "
                    "(model.fpn_channels)",
                    node->name, dim[2], dim[3]);
        DT_FAIL(DT_ERR_CONFIG,
                "%s: a micro-batch of %d image and its feature map of %d x %d leave this batch "
                "norm one value per channel, so no gradient passes; use more images per rank (%s), "
                "larger images (model.image_size), or model.sync_bn with several ranks",
                node->name, dim[0], dim[2], dim[3], key);
    }
    return DT_OK;
}

static dt_status check_stage(struct dt_engine *engine)
{
    if (dt_config_canvases(engine->config, engine->stage.image_size).size[0].width <
        engine->model->min_image_size)
        DT_FAIL(DT_ERR_CONFIG,
                "train.stages[%d].image_size: %d is too small for %s, which needs at least %d",
                engine->stage.index, engine->stage.image_size, engine->model->name,
                engine->model->min_image_size);
    return dt_engine_split_batch(engine);
}

dt_status dt_engine_check_stages(struct dt_engine *engine, const struct dt_sets *sets)
{
    const int64_t now = engine->stage.epoch;
    const struct dt_config_train *train = &engine->config->train;
    struct dt_comm *comm = engine->ranks.comm;
    for (int i = 0; i < train->n_stages; i++) {
        dt_engine_enter(engine, train->stages[i].epoch);
        DT_TRY(dt_comm_agree(comm, check_stage(engine)));
        DT_TRY(dt_engine_build(engine, sets, true));
        engine->stage_bytes[i] = dt_plan_bytes(engine->plan);
        dt_status status = engine->options.layout_only ? DT_OK : dt_plan_check_memory(engine->plan);
        dt_engine_release(engine);
        if (status != DT_OK)
            DT_ERROR(status, "train.stages[%d]: %s", i, dt_error_text());
        DT_TRY(dt_comm_agree(comm, status));
    }
    dt_engine_enter(engine, now);
    return train->n_stages > 0 ? dt_engine_split_batch(engine) : DT_OK;
}

/* --- Between epochs --- */

/* All training state of this rank in host memory. */
static dt_status copy_state(struct dt_snapshot **copy, const struct dt_engine *engine)
{
    static const struct dt_checkpoint unused;
    DT_TRY(dt_snapshot_create(copy, engine->plan));
    return dt_snapshot_take(*copy, &unused);
}

static dt_status rebuild(struct dt_engine *engine, struct dt_sets *sets, struct dt_snapshot *copy,
                         int64_t epoch)
{
    const struct dt_plan_times times = engine->plan->times;
    const bool has_new_input =
        has_other_input(engine, epoch) ||
        engine->config->train.micro_batch_size == DT_MICRO_BATCH_AUTO; /* may be split otherwise */
    struct dt_comm *comm = engine->ranks.comm;
    dt_engine_release(engine);
    if (has_new_input)
        dt_engine_close_loader(engine, &sets->train);
    dt_engine_enter(engine, epoch);
    if (has_new_input)
        DT_TRY(dt_comm_agree(comm, dt_engine_split_batch(engine)));
    DT_TRY(dt_engine_build(engine, sets, false));
    engine->plan->times = times;
    dt_snapshot_set_plan(copy, engine->plan);
    DT_TRY(dt_comm_agree(comm, dt_snapshot_restore(copy)));
    return has_new_input ? dt_comm_agree(comm, dt_engine_open_loader(engine, sets, true)) : DT_OK;
}

dt_status dt_engine_rebuild(struct dt_engine *engine, struct dt_sets *sets, int64_t epoch)
{
    struct dt_snapshot *copy = NULL;
    dt_status status = dt_comm_agree(engine->ranks.comm, copy_state(&copy, engine));
    engine->has_copy = true;
    if (status == DT_OK)
        status = rebuild(engine, sets, copy, epoch);
    engine->has_copy = false;
    dt_snapshot_destroy(copy);
    return status;
}
