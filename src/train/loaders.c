/* Loaders of a session: options from the configuration, the cache, memory pinned for the device. */
#include "train/session.h"

/* The CPUs not used for computing; with a GPU, all but the one that feeds it. */
static int auto_workers(const struct dt_session *s)
{
    int taken = s->backend == &dt_backend_cpu ? s->n_threads : 1;
    int left = dt_session_cpus(s) - taken;
    return left > 1 ? left : 1;
}

struct dt_loader_options dt_session_loader_options(const struct dt_session *s, bool train)
{
    const struct dt_config *config = s->config;
    return (struct dt_loader_options){
        .train = train,
        .data = &config->data,
        .image_size = config->model.image_size,
        .global_batch_size =
            train ? s->global_batch_size : s->n_ranks * config->eval.batch_size_per_rank,
        .micro_batch_size = train ? s->micro_batch_size : config->eval.batch_size_per_rank,
        .rank = s->rank,
        .n_ranks = s->n_ranks,
        .workers = config->data.workers > 0 ? config->data.workers : auto_workers(s),
        .epochs = train ? (uint32_t)config->train.epochs : 0,
        .seed = config->train.seed,
    };
}

static dt_status create_loader(struct dt_session *s, bool train)
{
    struct dt_loader_options options = dt_session_loader_options(s, train);
    return dt_loader_create(train ? &s->train : &s->val, train ? s->train_set : s->val_set,
                            &options);
}

static dt_status pin(struct dt_session *s, const struct dt_loader *loader)
{
    void *memory;
    size_t bytes;
    for (int i = 0; (memory = dt_loader_memory(loader, i, &bytes)); i++)
        DT_TRY(s->backend->pin(s->device, memory, bytes));
    return DT_OK;
}

static void unpin(struct dt_session *s, const struct dt_loader *loader)
{
    void *memory;
    size_t bytes;
    for (int i = 0; loader && (memory = dt_loader_memory(loader, i, &bytes)); i++)
        s->backend->unpin(s->device, memory);
}

dt_status dt_session_create_loaders(struct dt_session *s, const struct dt_session_needs *needs)
{
    if (needs->train) {
        DT_TRY(dt_dataset_cache(s->train_set, (uint64_t)s->config->data.cache_mb << 20));
        DT_TRY(create_loader(s, true));
        DT_TRY(pin(s, s->train));
    }
    if (needs->eval) {
        DT_TRY(create_loader(s, false));
        DT_TRY(pin(s, s->val));
    }
    return DT_OK;
}

void dt_session_destroy_loaders(struct dt_session *s)
{
    if (s->device) {
        unpin(s, s->train);
        unpin(s, s->val);
    }
    dt_loader_destroy(s->train);
    dt_loader_destroy(s->val);
}
