/* The loaders of an engine, whose memory the device pins. */
#include <string.h>

#include "engine/engine.h"

/* The CPUs that computing leaves; beside a GPU that is all but the one that feeds it. */
static int auto_workers(const struct dt_engine *engine)
{
    int taken = engine->backend == &dt_backend_cpu ? engine->n_threads : 1;
    int left = dt_comm_cpus(engine->ranks.comm) - taken;
    return left > 1 ? left : 1;
}

struct dt_loader_options dt_engine_loader_options(const struct dt_engine *engine,
                                                  const struct dt_sets *sets, bool train)
{
    const struct dt_config *config = engine->config;
    struct dt_loader_options options = {
        .train = train,
        .data = &config->data,
        .image_size = train ? engine->stage.image_size : config->model.image_size,
        .global_batch_size = train ? engine->stage.global_batch_size
                                   : engine->ranks.n_ranks * config->eval.batch_size_per_rank,
        .micro_batch_size =
            train ? engine->stage.micro_batch_size : config->eval.batch_size_per_rank,
        .rank = train ? engine->ranks.worker : engine->ranks.rank,
        .n_ranks = train ? engine->ranks.n_workers : engine->ranks.n_ranks,
        .workers = config->data.workers > 0 ? config->data.workers : auto_workers(engine),
        .epochs = train ? (uint32_t)config->train.epochs : 0,
        .seed = config->train.seed,
        .canvases = sets->canvases,
    };
    return options;
}

static dt_status pin_loader(struct dt_engine *engine, const struct dt_loader *loader)
{
    void *memory;
    size_t bytes;
    for (int i = 0; (memory = dt_loader_memory(loader, i, &bytes)); i++)
        DT_TRY(engine->backend->pin(engine->device, memory, bytes));
    return DT_OK;
}

dt_status dt_engine_open_loader(struct dt_engine *engine, struct dt_sets *sets, bool train)
{
    struct dt_loader_options options = dt_engine_loader_options(engine, sets, train);
    struct dt_loader **loader = train ? &sets->train : &sets->val;
    DT_TRY(dt_loader_create(loader, train ? sets->train_set : sets->val_set, &options));
    return pin_loader(engine, *loader);
}

void dt_engine_close_loader(struct dt_engine *engine, struct dt_loader **loader)
{
    void *memory;
    size_t bytes;
    for (int i = 0; engine->device && *loader && (memory = dt_loader_memory(*loader, i, &bytes));
         i++)
        engine->backend->unpin(engine->device, memory);
    dt_loader_destroy(*loader);
    *loader = NULL;
}
