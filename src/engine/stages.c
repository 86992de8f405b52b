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
    stage.global_batch_size = given.batch;
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
           stage.global_batch_size != engine->stage.global_batch_size;
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
                batch_key(engine->config, &stage, key), stage.global_batch_size,
                dt_dataset_size(sets->train_set), sets->canvases.n > 1 ? " of every canvas" : "");
    return DT_OK;
}

dt_status dt_engine_count_steps(struct dt_engine *engine, const struct dt_sets *sets)
{
    const struct dt_config *config = engine->config;
    if (!sets->train_set)
        return DT_OK;
    dt_loader_count(engine->n_images, sets->train_set, &config->data, &sets->canvases);
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
    engine->last_step = engine->schedule.total_steps;
    if (config->train.max_steps > 0 && config->train.max_steps < engine->last_step)
        engine->last_step = config->train.max_steps;
    return DT_OK;
}

/* --- Before training --- */

dt_status dt_engine_split_batch(struct dt_engine *engine)
{
    char key[KEY_BYTES];
    int batch = engine->stage.global_batch_size, micro = engine->config->train.micro_batch_size;
    if (micro <= 0 && engine->saved_parts > 0 &&
        engine->saved_parts % engine->ranks.n_workers == 0 && batch % engine->saved_parts == 0)
        micro = batch / engine->saved_parts;
    int64_t unit = (int64_t)engine->ranks.n_workers * (micro > 0 ? micro : 1);
    if (batch % unit != 0) {
        int64_t lower = batch / unit * unit, upper = lower + unit;
        int64_t nearest = lower > 0 && batch - lower <= upper - batch ? lower : upper;
        if (micro > 0)
            DT_FAIL(DT_ERR_CONFIG,
                    "%s: %d cannot be split over %d rank%s in micro-batches of "
                    "train.micro_batch_size %d; the nearest global batch that can is %lld",
                    batch_key(engine->config, &engine->stage, key), batch, engine->ranks.n_workers,
                    DT_S(engine->ranks.n_workers), micro, (long long)nearest);
        DT_FAIL(DT_ERR_CONFIG,
                "%s: %d cannot be split evenly over %d ranks; the nearest global batch that can is "
                "%lld",
                batch_key(engine->config, &engine->stage, key), batch, engine->ranks.n_workers,
                (long long)nearest);
    }
    engine->stage.micro_batch_size = micro > 0 ? micro : batch / engine->ranks.n_workers;
    engine->stage.n_passes =
        (int)(batch / ((int64_t)engine->stage.micro_batch_size * engine->ranks.n_workers));
    if (dt_mix_is_on(&engine->config->data) && engine->stage.micro_batch_size % 2 != 0)
        DT_FAIL(DT_ERR_CONFIG,
                "data.mixup and data.cutmix mix pairs, so the images per micro-batch "
                "(train.micro_batch_size) must be even, not %d",
                engine->stage.micro_batch_size);
    return DT_OK;
}

static dt_status check_stage(struct dt_engine *engine)
{
    if (!engine->task->has_boxes && engine->stage.image_size < engine->model->min_image_size)
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
    if (status == DT_OK)
        status = rebuild(engine, sets, copy, epoch);
    dt_snapshot_destroy(copy);
    return status;
}
