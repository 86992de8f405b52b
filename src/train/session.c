/* Opens everything a sub-command uses: checks that need the number of ranks, data sets, device,
 * graph of both phases, plan, loaders. Each part ends in dt_comm_agree, so a failure on one rank
 * prints one message and all ranks return.
 * Data sets are in session_data.c, graph and plan in session_plan.c. */
#include "train/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/pulse.h"
#include "base/text.h"
#include "data/mix.h"
#include "dtrain/train.h"
#include "train/placement.h"

void dt_session_init(struct dt_session *s, struct dt_comm *comm, const struct dt_config *config)
{
    *s = (struct dt_session){
        .config = config,
        .ranks =
            dt_ranks_of(comm, config->comm.mode == DT_MODE_ASYNC, dt_config_sync_every(config)),
        .engine.backend = &dt_backend_cpu,
    };
    if (dt_config_detects(config))
        s->engine.n_canvases = dt_config_canvases(config, s->engine.canvases);
    dt_session_enter(s, 0);
}

const char *dt_session_sizes(const struct dt_session *s, int side, char out[DT_SIZES_TEXT])
{
    struct dt_text text = dt_text_in(out, DT_SIZES_TEXT);
    if (s->engine.n_canvases == 0)
        dt_text_add(&text, "%d x %d", side, side);
    for (int i = 0; i < s->engine.n_canvases; i++)
        dt_text_add(&text, "%s%d x %d", i == 0 ? "" : ", ", s->engine.canvases[i].width,
                    s->engine.canvases[i].height);
    return out;
}

dt_status dt_session_check_bad(const struct dt_loader *loader, double n_bad)
{
    dt_status status = dt_loader_check_bad(loader, (uint64_t)n_bad);
    if (status != DT_OK)
        dt_error_set_origin(0); /* all ranks have the same number */
    return status;
}

bool dt_session_scales_loss(const struct dt_session *s)
{
    return s->config->train.precision == DT_PRECISION_FP16 && s->engine.backend->get_loss_scale;
}

bool dt_session_has_times(const struct dt_session *s)
{
    return !s->engine.backend->stamp || s->engine.plan->options.profile;
}

bool dt_session_has_top5(const struct dt_session *s)
{
    return !dt_config_detects(s->config) && s->sets.num_classes > 5;
}

/* --- Checks --- */

/* Chooses the device, considering the GPUs of all ranks. Collective. */
static dt_status choose_device(struct dt_session *s)
{
    struct dt_device_choice choice;
    DT_TRY(dt_devices_agree(&choice, s->ranks.comm, s->config));
    s->engine.backend = choice.backend;
    s->engine.plane = choice.plane;
    if (choice.fallback && s->ranks.rank == 0)
        dt_log(DT_LOG_WARNING, "no GPU: %.*s; running on the CPU (dtrain doctor says more)",
               (int)strcspn(choice.fallback, ":"), choice.fallback);
    return DT_OK;
}

static void warn_small(const struct dt_session *s)
{
    enum { LEAST_PER_GPU = 32 };
    if (s->ranks.rank == 0 && s->engine.backend != &dt_backend_cpu && !s->engine.model->detects &&
        s->engine.stage.micro_batch_size < LEAST_PER_GPU)
        dt_log(DT_LOG_WARNING,
               "%d images per GPU and micro-batch keep it waiting more than computing; raise %s to "
               "%d per rank or more, or use fewer GPUs",
               s->engine.stage.micro_batch_size, dt_config_batch_key(s->config), LEAST_PER_GPU);
}

/* Detectors have large images, and few of them at a time. */
static void warn_norm(const struct dt_session *s)
{
    enum { LEAST_FOR_NORM = 4 };
    const struct dt_config_model *model = &s->config->model;
    if (s->ranks.rank == 0 && model->frozen_norm && !model->initial_checkpoint[0])
        dt_log(DT_LOG_WARNING, "model.frozen_norm without model.initial_checkpoint: the backbone "
                               "has random weights and nothing that normalises");
    if (s->ranks.rank == 0 && s->engine.model->detects && !model->frozen_norm &&
        model->sync_bn == 0 && s->engine.stage.micro_batch_size < LEAST_FOR_NORM)
        dt_log(DT_LOG_WARNING,
               "batch norm takes its statistics from %d image(s), which are few; set "
               "model.sync_bn=true on several ranks, or model.frozen_norm=true with pretrained "
               "weights",
               s->engine.stage.micro_batch_size);
}

static dt_status check_pairs(const struct dt_session *s)
{
    if (dt_mix_is_on(&s->config->data) && s->engine.stage.micro_batch_size % 2 != 0)
        DT_FAIL(DT_ERR_CONFIG,
                "data.mixup and data.cutmix mix pairs, so the images per micro-batch "
                "(train.micro_batch_size) must be even, not %d",
                s->engine.stage.micro_batch_size);
    return DT_OK;
}

dt_status dt_session_split_batch(struct dt_session *s)
{
    char key[DT_STAGE_KEY];
    int batch = s->engine.stage.global_batch_size, micro = s->config->train.micro_batch_size;
    if (micro == 0 && s->engine.saved_parts > 0 &&
        s->engine.saved_parts % s->ranks.n_workers == 0 && batch % s->engine.saved_parts == 0)
        micro = batch / s->engine.saved_parts;
    int64_t unit = (int64_t)s->ranks.n_workers * (micro > 0 ? micro : 1);
    if (batch % unit != 0) {
        int64_t lower = batch / unit * unit, upper = lower + unit;
        int64_t nearest = lower > 0 && batch - lower <= upper - batch ? lower : upper;
        if (micro > 0)
            DT_FAIL(DT_ERR_CONFIG,
                    "%s: %d cannot be split over %d rank(s) in micro-batches of "
                    "train.micro_batch_size %d; the nearest global batch that can is %lld",
                    dt_session_batch_key(s, key), batch, s->ranks.n_workers, micro,
                    (long long)nearest);
        DT_FAIL(DT_ERR_CONFIG,
                "%s: %d cannot be split evenly over %d ranks; the nearest global "
                "batch that can is %lld",
                dt_session_batch_key(s, key), batch, s->ranks.n_workers, (long long)nearest);
    }
    s->engine.stage.micro_batch_size = micro > 0 ? micro : batch / s->ranks.n_workers;
    s->engine.stage.n_passes =
        (int)(batch / ((int64_t)s->engine.stage.micro_batch_size * s->ranks.n_workers));
    return check_pairs(s);
}

static dt_status check_group(const struct dt_session *s)
{
    const int group = s->config->model.sync_bn;
    if (group > 1 && s->ranks.n_ranks % group != 0)
        DT_FAIL(DT_ERR_CONFIG,
                "model.sync_bn: %d rank(s) cannot form groups of %d; start a multiple of %d ranks, "
                "or set it to true for one group of all ranks",
                s->ranks.n_ranks, group, group);
    return DT_OK;
}

static dt_status check_model(struct dt_session *s, const struct dt_session_needs *needs)
{
    const struct dt_config *config = s->config;
    s->engine.model = dt_model_find(config->model.name);
    if (!s->engine.model)
        return dt_error_pass(DT_ERR_CONFIG, __func__, __FILE__, __LINE__);
    if (s->engine.n_canvases == 0 && config->model.image_size < s->engine.model->min_image_size)
        DT_FAIL(DT_ERR_CONFIG, "model.image_size: %d is too small for %s, which needs at least %d",
                config->model.image_size, s->engine.model->name, s->engine.model->min_image_size);
    if (!needs->train)
        return DT_OK;
    if (!needs->forward_only)
        DT_TRY(dt_devices_check_training(s->engine.backend, config, s->ranks.n_ranks));
    DT_TRY(check_group(s));
    DT_TRY(dt_session_split_batch(s));
    warn_small(s);
    warn_norm(s);
    return DT_OK;
}

int dt_session_cpus(const struct dt_session *s)
{
    int cpus = dt_comm_allowed_cpus(s->ranks.comm) / dt_comm_sharing_ranks(s->ranks.comm);
    return cpus > 0 ? cpus : 1;
}

/* --- Device --- */

static dt_status share(void *context, dt_status mine, void *data, size_t bytes)
{
    struct dt_session *s = context;
    DT_TRY(dt_comm_agree(s->ranks.comm, mine));
    return dt_comm_bcast(s->ranks.comm, data, bytes, 0);
}

static dt_status poll(void *context)
{
    const struct dt_session *s = context;
    return dt_comm_poll(s->ranks.comm);
}

static void show_progress(void *context, const char *what, int64_t done, int64_t total)
{
    const struct dt_session *s = context;
    dt_report_progress(s->report, what, done, total);
    dt_pulse_beat(&dt_pulse_main);
}

static dt_status open_device(struct dt_session *s)
{
    const struct dt_config *config = s->config;
    char cache_dir[DT_PATH_MAX];
    bool on_cpu = s->engine.backend == &dt_backend_cpu;
    s->engine.n_threads = config->device.threads > 0 ? config->device.threads : dt_session_cpus(s);
    dt_devices_cache_dir(cache_dir, config);
    struct dt_device_options options = dt_devices_options(config, s->engine.n_threads);
    options.rank = s->ranks.rank;
    options.n_ranks = s->ranks.n_ranks;
    options.local_rank = dt_comm_local_rank(s->ranks.comm);
    options.cache_dir = cache_dir[0] ? cache_dir : NULL;
    options.share = s->ranks.n_ranks > 1 ? share : NULL;
    options.poll = poll;
    options.progress = show_progress;
    options.context = s;
    DT_TRY(s->engine.backend->open(&s->engine.device, &options));
    /* With a GPU the CPUs only decode. */
    dt_comm_check_binding(s->ranks.comm, on_cpu ? s->engine.n_threads : 1);
    return DT_OK;
}

/* Binds the main thread, and with it those created later: loaders, writer, NCCL's. Collective. */
static dt_status bind_near_gpu(struct dt_session *s)
{
    char what[256];
    if (s->engine.backend == &dt_backend_cpu || !s->config->device.numa_bind)
        return DT_OK;
    if (dt_placement_near_gpu(dt_devices_bus_id(s->engine.backend, s->engine.device), what,
                              sizeof what))
        dt_log(DT_LOG_DEBUG, "%s", what);
    return dt_comm_find_binding(s->ranks.comm);
}

/* --- Loaders --- */

/* The CPUs that computing leaves; beside a GPU that is all but the one that feeds it. */
static int auto_workers(const struct dt_session *s)
{
    int taken = s->engine.backend == &dt_backend_cpu ? s->engine.n_threads : 1;
    int left = dt_session_cpus(s) - taken;
    return left > 1 ? left : 1;
}

struct dt_loader_options dt_session_loader_options(const struct dt_session *s, bool train)
{
    const struct dt_config *config = s->config;
    struct dt_loader_options options = {
        .train = train,
        .data = &config->data,
        .image_size = train ? s->engine.stage.image_size : config->model.image_size,
        .global_batch_size = train ? s->engine.stage.global_batch_size
                                   : s->ranks.n_ranks * config->eval.batch_size_per_rank,
        .micro_batch_size =
            train ? s->engine.stage.micro_batch_size : config->eval.batch_size_per_rank,
        .rank = train ? s->ranks.worker : s->ranks.rank,
        .n_ranks = train ? s->ranks.n_workers : s->ranks.n_ranks,
        .workers = config->data.workers > 0 ? config->data.workers : auto_workers(s),
        .epochs = train ? (uint32_t)config->train.epochs : 0,
        .seed = config->train.seed,
        .n_canvases = s->engine.n_canvases,
    };
    memcpy(options.canvases, s->engine.canvases, sizeof options.canvases);
    return options;
}

static dt_status pin_loader(struct dt_session *s, const struct dt_loader *loader)
{
    void *memory;
    size_t bytes;
    for (int i = 0; (memory = dt_loader_memory(loader, i, &bytes)); i++)
        DT_TRY(s->engine.backend->pin(s->engine.device, memory, bytes));
    return DT_OK;
}

dt_status dt_session_open_loader(struct dt_session *s, bool train)
{
    struct dt_loader_options options = dt_session_loader_options(s, train);
    struct dt_loader **loader = train ? &s->sets.train : &s->sets.val;
    DT_TRY(dt_loader_create(loader, train ? s->sets.train_set : s->sets.val_set, &options));
    return pin_loader(s, *loader);
}

void dt_session_close_loader(struct dt_session *s, struct dt_loader **loader)
{
    void *memory;
    size_t bytes;
    for (int i = 0; s->engine.device && *loader && (memory = dt_loader_memory(*loader, i, &bytes));
         i++)
        s->engine.backend->unpin(s->engine.device, memory);
    dt_loader_destroy(*loader);
    *loader = NULL;
}

static dt_status create_loaders(struct dt_session *s, const struct dt_session_needs *needs)
{
    if (needs->train) {
        DT_TRY(dt_dataset_cache(s->sets.train_set, (uint64_t)s->config->data.cache_mb * 1000000));
        DT_TRY(dt_session_open_loader(s, true));
    }
    if (needs->eval) {
        DT_TRY(dt_session_open_loader(s, false));
        if (!s->engine.model->detects && (needs->judge || dt_judging_is_needed(s->config)))
            DT_TRY(dt_judging_create(&s->evaluator.judging, s));
        if (s->engine.model->detects && !s->sets.images)
            DT_TRY(dt_box_judging_create(&s->evaluator.box_judging, s));
    }
    return DT_OK;
}

/* --- Together --- */

dt_status dt_session_open(struct dt_session *s, const struct dt_session_needs *needs)
{
    if (needs->input_only)
        return dt_session_open_data(s, needs);
    DT_TRY(dt_comm_agree(s->ranks.comm, choose_device(s)));
    DT_TRY(dt_comm_agree(s->ranks.comm, check_model(s, needs)));
    DT_TRY(dt_session_open_data(s, needs));
    DT_TRY(dt_comm_agree(s->ranks.comm, open_device(s)));
    DT_TRY(dt_comm_agree(s->ranks.comm, dt_devices_check_twins(s->ranks.comm, s->engine.backend,
                                                               s->engine.device, s->config)));
    DT_TRY(dt_comm_agree(s->ranks.comm, bind_near_gpu(s)));
    if (needs->train)
        DT_TRY(dt_session_check_stages(s, needs));
    DT_TRY(dt_session_build(s, needs));
    if (needs->layout_only)
        return DT_OK;
    return dt_comm_agree(s->ranks.comm, create_loaders(s, needs));
}

/* A rank that failed alone may have reductions under way and must not wait for anything; the job
 * ends with it, so nothing is released. */
void dt_session_close(struct dt_session *s, dt_status status)
{
    const int origin = dt_error_origin();
    bool failed = status != DT_OK && status != DT_STOPPED;
    if (failed && origin == DT_ORIGIN_LOCAL && s->ranks.n_ranks > 1)
        return;
    dt_session_close_loader(s, &s->sets.train);
    dt_session_close_loader(s, &s->sets.val);
    dt_judging_destroy(s->evaluator.judging);
    dt_box_judging_destroy(s->evaluator.box_judging);
    dt_session_release(s);
    if (s->engine.device)
        s->engine.backend->close(s->engine.device);
    if (s->sets.train_set)
        dt_dataset_close(s->sets.train_set);
    if (s->sets.val_set)
        dt_dataset_close(s->sets.val_set);
    dt_names_reset(&s->sets.classes);
    free(s->sets.classes_text);
    free(s->sets.class_weights);
    dt_report_close(s->report);
    dt_error_set_origin(origin);
}
