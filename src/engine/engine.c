/* Device and model, and the checks that need the number of ranks. Each part ends in dt_comm_agree,
 * so a failure on one rank prints one message and all ranks return. Stages are in stages.c, graph
 * and plan in engine_plan.c. */
#include "engine/engine.h"

#include <string.h>

#include "base/log.h"
#include "base/pulse.h"
#include "base/text.h"
#include "engine/devices.h"
#include "engine/parallel.h"
#include "engine/task.h"

const struct dt_parallel *dt_parallel_of(const struct dt_config *config)
{
    static const struct dt_parallel modes[] = {
        [DT_MODE_CENTRAL] = {{.is_central = true,
                              .rank0_updates = true,
                              .local_optimizer_state = true}},
        [DT_MODE_LOCAL] = {{.sums_nothing = true, .local_optimizer_state = true}},
        [DT_MODE_ASYNC] = {{.sums_nothing = true,
                            .rank0_updates = true,
                            .local_optimizer_state = true},
                           .has_server = true,
                           .why_inexact = "comm.mode async is never the same twice"},
    };
    return &modes[dt_config_mode(config)];
}

void dt_engine_init(struct dt_engine *engine, const struct dt_sets *sets)
{
    *engine = (struct dt_engine){
        .config = sets->config,
        .ranks = sets->ranks,
        .task = sets->task,
        .parallel = dt_parallel_of(sets->config),
        .backend = &dt_backend_cpu,
        .saved_precision = -1,
    };
    dt_engine_enter(engine, 0);
    engine->stage.split = dt_engine_split(engine, 1);
}

bool dt_engine_scales_loss(const struct dt_engine *engine)
{
    return engine->config->train.precision == DT_PRECISION_FP16 && engine->backend->get_loss_scale;
}

bool dt_engine_has_times(const struct dt_engine *engine)
{
    return !engine->backend->stamp || engine->plan->options.profile;
}

bool dt_engine_uses_ema(const struct dt_engine *engine)
{
    return dt_plan_has_ema(engine->plan) && engine->config->eval.weights != DT_WEIGHTS_RAW;
}

int64_t dt_engine_parameters(const struct dt_engine *engine)
{
    int64_t n = 0;
    for (int t = 0; t < engine->graph->n_tensors; t++)
        if (engine->graph->tensor[t].role == DT_PARAM)
            n += (int64_t)dt_tensor_elements(&engine->graph->tensor[t]);
    return n;
}

/* --- Checks --- */

void dt_engine_use(struct dt_engine *engine, const struct dt_device_choice *choice)
{
    const bool keeps = engine->saved_precision >= 0 && choice->backend != &dt_backend_cpu;
    engine->backend = choice->backend;
    engine->plane = choice->plane;
    engine->no_gpu = choice->fallback;
    if (engine->config->train.precision != DT_PRECISION_AUTO)
        return;
    engine->resolved = *engine->config;
    engine->resolved.train.precision =
        keeps ? (enum dt_precision)engine->saved_precision : choice->precision;
    engine->config = &engine->resolved;
}

/* Chooses the device, considering the GPUs of all ranks. Collective. */
static dt_status choose_device(struct dt_engine *engine)
{
    struct dt_device_choice choice;
    DT_TRY(dt_devices_agree(&choice, engine->ranks.comm, engine->config));
    dt_engine_use(engine, &choice);
    return DT_OK;
}

/* Workers push in turns: their gradients become n_workers - 1 updates old. */
static dt_status check_staleness(const struct dt_config *config, int n_workers)
{
    const int max = config->comm.max_staleness;
    if (max > 0 && max < n_workers - 1)
        DT_FAIL(DT_ERR_CONFIG,
                "comm.max_staleness: with %d ranks that compute, a gradient becomes %d updates old "
                "if they take turns; set it to that or more, or to 0",
                n_workers, n_workers - 1);
    return DT_OK;
}

static dt_status check_model(struct dt_engine *engine)
{
    const struct dt_config *config = engine->config;
    const int group = config->model.sync_bn, min = engine->task->min_per_gpu;
    engine->model = dt_model_find(config->model.name);
    if (!engine->model)
        return dt_error_pass(DT_ERR_CONFIG, __func__, __FILE__, __LINE__);
    if (dt_config_canvases(config, config->model.image_size).size[0].width <
        engine->model->min_image_size)
        DT_FAIL(DT_ERR_CONFIG, "model.image_size: %d is too small for %s, which needs at least %d",
                config->model.image_size, engine->model->name, engine->model->min_image_size);
    if (!engine->options.train)
        return DT_OK;
    if (!engine->options.forward_only)
        DT_TRY(dt_devices_check_training(engine->backend, config, engine->ranks.n_ranks));
    if (!engine->options.forward_only && engine->parallel->has_server)
        DT_TRY(check_staleness(config, engine->ranks.n_ranks - 1));
    if (group > 1 && config->train.virtual_ranks == 0 && engine->ranks.n_ranks % group != 0)
        DT_FAIL(DT_ERR_CONFIG,
                "model.sync_bn: %d rank%s cannot form groups of %d; start a multiple of %d ranks, "
                "or set it to true for one group of all ranks",
                engine->ranks.n_ranks, DT_S(engine->ranks.n_ranks), group, group);
    DT_TRY(dt_engine_split_batch(engine));
    if (engine->ranks.rank == 0 && engine->backend != &dt_backend_cpu &&
        dt_split_min(&engine->stage.split) < min)
        dt_log(DT_LOG_WARNING,
               "%d images per GPU and micro-batch keep it waiting more than computing; raise %s to "
               "%d per rank or more, or use fewer GPUs",
               dt_split_min(&engine->stage.split), dt_config_batch_key(config), min);
    if (engine->task->warn && engine->ranks.rank == 0)
        engine->task->warn(engine);
    return DT_OK;
}

/* --- Device --- */

static dt_status share(void *context, dt_status mine, void *data, size_t bytes)
{
    const struct dt_engine *engine = context;
    DT_TRY(dt_comm_agree(engine->ranks.comm, mine));
    return dt_comm_bcast(engine->ranks.comm, data, bytes, 0);
}

static dt_status poll(void *context)
{
    const struct dt_engine *engine = context;
    return dt_comm_poll(engine->ranks.comm);
}

static void show_progress(void *context, const char *what, int64_t done, int64_t total)
{
    const struct dt_engine *engine = context;
    dt_events_progress(engine->events, what, done, total);
    dt_pulse_beat(&dt_pulse_main);
}

/* Not before errors, and once although a benchmark opens the device again. */
static void warn_of_cpu(const struct dt_engine *engine)
{
    static bool has_warned;
    if (engine->no_gpu && engine->ranks.rank == 0 && !has_warned)
        dt_log(DT_LOG_WARNING, "no GPU: %.*s; running on the CPU (dtrain doctor says more)",
               (int)strcspn(engine->no_gpu, ":"), engine->no_gpu);
    has_warned = true;
}

static dt_status open_device(struct dt_engine *engine)
{
    const struct dt_config *config = engine->config;
    struct dt_comm *comm = engine->ranks.comm;
    char cache_dir[DT_PATH_MAX];
    bool on_cpu = engine->backend == &dt_backend_cpu;
    engine->n_threads = config->device.threads > 0 ? config->device.threads : dt_comm_cpus(comm);
    dt_devices_cache_dir(cache_dir, config);
    struct dt_device_options options = dt_devices_options(config, engine->n_threads);
    options.rank = engine->ranks.rank;
    options.n_ranks = engine->ranks.n_ranks;
    options.local_rank = dt_comm_local_rank(comm);
    options.cache_dir = cache_dir[0] ? cache_dir : NULL;
    options.share = engine->ranks.n_ranks > 1 ? share : NULL;
    options.poll = poll;
    options.progress = show_progress;
    options.context = engine;
    warn_of_cpu(engine);
    DT_TRY(engine->backend->open(&engine->device, &options));
    /* With a GPU the CPUs only decode. */
    dt_comm_check_binding(comm, on_cpu ? engine->n_threads : 1);
    return DT_OK;
}

/* Binds the main thread, and with it those created later: loaders, writer, NCCL's. Collective. */
static dt_status bind_near_gpu(struct dt_engine *engine)
{
    char what[256];
    if (engine->backend == &dt_backend_cpu || !engine->config->device.numa_bind)
        return DT_OK;
    if (dt_numa_near_gpu(dt_devices_bus_id(engine->backend, engine->device), what, sizeof what))
        dt_log(DT_LOG_DEBUG, "%s", what);
    return dt_comm_find_binding(engine->ranks.comm);
}

/* --- Loaders, whose memory the device pins --- */

struct dt_loader_options dt_engine_loader_options(const struct dt_engine *engine, bool train)
{
    const struct dt_config *config = engine->config;
    /* The CPUs that computing leaves; next to a GPU that is all but the one that feeds it. */
    const int taken = engine->backend == &dt_backend_cpu ? engine->n_threads : 1;
    const int left = dt_comm_cpus(engine->ranks.comm) - taken;
    const int rows = config->eval.batch_size_per_rank, n_ranks = engine->ranks.n_ranks;
    const struct dt_split val = {rows * n_ranks, n_ranks, engine->ranks.rank, 1, 1, 0};
    return (struct dt_loader_options){
        .train = train,
        .data = &config->data,
        .split = train ? engine->stage.split : val,
        .workers = config->data.workers > 0 ? config->data.workers
                   : left > 1               ? left
                                            : 1,
        .epochs = train ? (uint32_t)config->train.epochs : 0,
        .seed = config->train.seed,
        .canvases =
            dt_config_canvases(config, train ? engine->stage.image_size : config->model.image_size),
    };
}

dt_status dt_engine_open_loader(struct dt_engine *engine, struct dt_sets *sets, bool train)
{
    struct dt_loader_options options = dt_engine_loader_options(engine, train);
    struct dt_loader **loader = train ? &sets->train : &sets->val;
    void *memory;
    size_t bytes;
    DT_TRY(dt_loader_create(loader, train ? sets->train_set : sets->val_set, &options));
    for (int i = 0; (memory = dt_loader_memory(*loader, i, &bytes)); i++)
        DT_TRY(engine->backend->pin(engine->device, memory, bytes));
    return DT_OK;
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

/* --- Together --- */

static dt_status open_loaders(struct dt_engine *engine, struct dt_sets *sets)
{
    const uint64_t cache_bytes = (uint64_t)engine->config->data.cache_mb * 1000000;
    if (engine->options.train)
        DT_TRY(dt_dataset_cache(sets->train_set, cache_bytes));
    if (engine->options.train)
        DT_TRY(dt_engine_open_loader(engine, sets, true));
    return engine->options.eval ? dt_engine_open_loader(engine, sets, false) : DT_OK;
}

dt_status dt_engine_open(struct dt_engine *engine, struct dt_sets *sets,
                         const struct dt_engine_options *options, const char *cache_dir)
{
    const struct dt_sets_options data = {
        .train = options->train,
        .val = options->eval,
        .may_lack = options->layout_only,
        .cache_dir = cache_dir,
        .events = engine->events,
    };
    struct dt_comm *comm = engine->ranks.comm;
    engine->options = *options;
    DT_TRY(dt_comm_agree(comm, choose_device(engine)));
    DT_TRY(dt_comm_agree(comm, check_model(engine)));
    DT_TRY(dt_sets_open(sets, &data));
    if (options->train)
        DT_TRY(dt_comm_agree(comm, dt_engine_count_steps(engine, sets)));
    DT_TRY(dt_comm_agree(comm, open_device(engine)));
    DT_TRY(dt_comm_agree(
        comm, dt_devices_check_shared(comm, engine->backend, engine->device, engine->config)));
    DT_TRY(dt_comm_agree(comm, bind_near_gpu(engine)));
    if (options->train)
        DT_TRY(dt_engine_check_stages(engine, sets));
    DT_TRY(dt_engine_build(engine, sets, options->layout_only));
    return options->layout_only ? DT_OK : dt_comm_agree(comm, open_loaders(engine, sets));
}

/* A rank that failed alone may have reductions under way and must not wait for anything; the job
 * ends with it, so nothing is released. */
void dt_engine_close(struct dt_engine *engine, struct dt_sets *sets, dt_status status)
{
    const int origin = dt_error_origin();
    const bool failed = status != DT_OK && status != DT_STOPPED;
    if (failed && origin == DT_ORIGIN_LOCAL && engine->ranks.n_ranks > 1)
        return;
    dt_engine_close_loader(engine, &sets->train);
    dt_engine_close_loader(engine, &sets->val);
    dt_engine_release(engine);
    if (engine->device)
        engine->backend->close(engine->device);
    dt_sets_close(sets);
    dt_events_close(engine->events);
    dt_error_set_origin(origin);
}
