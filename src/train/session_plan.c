/* Graph and plan of a session. */
#include "base/memory.h"
#include "data/mix.h"
#include "train/freeze.h"
#include "train/session.h"

/* --- Graph --- */

static int max_boxes(const struct dt_session *s, enum dt_phase phase)
{
    enum { UNKNOWN = 100 }; /* a layout without data; images of COCO have up to 93 */
    const struct dt_dataset *set = phase == DT_TRAIN ? s->sets.train_set : s->sets.val_set;
    return set ? dt_dataset_max_boxes(set) : UNKNOWN;
}

static dt_status build_program(struct dt_session *s, enum dt_phase phase, int canvas)
{
    const struct dt_config *config = s->config;
    const struct dt_model_options options = dt_config_model_options(config, s->sets.num_classes);
    int batch =
        phase == DT_TRAIN ? s->engine.stage.micro_batch_size : config->eval.batch_size_per_rank;
    int side = phase == DT_TRAIN ? s->engine.stage.image_size : config->model.image_size;
    const struct dt_canvas square = {side, side};
    const struct dt_canvas size = s->engine.n_canvases > 0 ? s->engine.canvases[canvas] : square;
    DT_TRY(dt_graph_begin(s->engine.graph, phase, batch, size.height, size.width));
    s->engine.program[phase][canvas] = s->engine.graph->current;
    if (phase == DT_TRAIN && dt_mix_is_on(&config->data))
        DT_TRY(dt_graph_mix_labels(s->engine.graph));
    if (phase == DT_TRAIN && config->train.n_class_weights != 0)
        DT_TRY(dt_graph_weigh_classes(s->engine.graph, s->sets.num_classes));
    if (s->engine.model->detects)
        DT_TRY(dt_graph_boxes(s->engine.graph, max_boxes(s, phase)));
    int src = dt_graph_ingest(s->engine.graph, config->data.mean, config->data.std);
    int logits = s->engine.model->build(s->engine.graph, src, s->engine.model, &options);
    if (s->engine.model->detects)
        return dt_graph_check(s->engine.graph);
    /* Validation loss is plain cross entropy, comparable between recipes. */
    dt_graph_softmax_xent(s->engine.graph, logits,
                          phase == DT_TRAIN ? config->train.label_smoothing : 0);
    return dt_graph_check(s->engine.graph);
}

static dt_status build_phase(struct dt_session *s, enum dt_phase phase)
{
    const int n = s->engine.n_canvases > 0 ? s->engine.n_canvases : 1;
    for (int canvas = 0; canvas < n; canvas++)
        DT_TRY(build_program(s, phase, canvas));
    return DT_OK;
}

static bool supports(void *context, const struct dt_graph *g, const struct dt_node *node)
{
    const struct dt_session *s = context;
    return s->engine.backend->supports(s->engine.device, g, node);
}

/* Ranks over which batch norm takes its statistics. */
static int bn_group(const struct dt_session *s, const struct dt_session_needs *needs)
{
    const int group = s->config->model.sync_bn;
    return needs->no_comm ? 0 : group == 1 ? s->ranks.n_ranks : group;
}

static dt_status build_graph(struct dt_session *s, const struct dt_session_needs *needs)
{
    DT_TRY(dt_graph_create(&s->engine.graph));
    s->engine.graph->bn_group = bn_group(s, needs);
    if (needs->train)
        DT_TRY(build_phase(s, DT_TRAIN));
    if (needs->eval)
        DT_TRY(build_phase(s, DT_EVAL));
    if (needs->train && s->engine.stage.is_frozen && !needs->forward_only) /* else no statistics */
        DT_TRY(dt_freeze(s->engine.graph, s->config->optim.freeze));
    for (int t = 0; t < s->engine.graph->n_tensors; t++)
        if (dt_graph_is_within(s->engine.graph->tensor[t].name, s->engine.model->head))
            s->engine.graph->tensor[t].rate = (float)s->config->optim.head_lr_factor;
    DT_TRY(dt_graph_fuse(s->engine.graph, supports, s));
    if (needs->train && !needs->forward_only)
        DT_TRY(dt_graph_differentiate(s->engine.graph));
    return DT_OK;
}

/* --- Plan --- */

/* The share of a device's free memory for the plan; the rest is for libraries and CUDA graphs. */
static double device_budget(const struct dt_session *s)
{
    const double most_reserved = 1u << 30;
    double bytes = (double)s->engine.backend->free_bytes(s->engine.device);
    double reserved = bytes / 16 < most_reserved ? bytes / 16 : most_reserved;
    int n_sharing = s->config->device.allow_shared_gpu ? dt_comm_local_size(s->ranks.comm) : 1;
    return (bytes - reserved) / n_sharing;
}

/* Subtracts data.cache_mb from host memory. */
static dt_status keep_cache_free(const struct dt_session *s, size_t *left, double bytes)
{
    double cache = s->engine.backend == &dt_backend_cpu ? s->config->data.cache_mb * 1e6 : 0;
    if (cache > 0 && cache >= bytes)
        DT_FAIL(DT_ERR_CONFIG,
                "data.cache_mb: a rank can have at most %.0f MB of memory here, so %d MB for a "
                "cache leave nothing for training",
                bytes / 1e6, s->config->data.cache_mb);
    *left = (size_t)(bytes - cache);
    return DT_OK;
}

/* Bytes each rank may use: the same on all ranks, so that they fail together. */
static dt_status find_memory(struct dt_session *s, size_t *max_bytes)
{
    double bytes = s->engine.backend == &dt_backend_cpu
                       ? (double)dt_memory_available("") / dt_comm_local_size(s->ranks.comm)
                       : device_budget(s);
    double least = -bytes;
    DT_TRY(dt_comm_max_f64(s->ranks.comm, &least, 1));
    return keep_cache_free(s, max_bytes, -least);
}

struct dt_comm_options dt_session_comm_options(const struct dt_session *s)
{
    static const enum dt_dtype wires[] = {[DT_GRAD_AUTO] = DT_F32,
                                          [DT_GRAD_FP32] = DT_F32,
                                          [DT_GRAD_FP16] = DT_F16,
                                          [DT_GRAD_BF16] = DT_BF16};
    const bool central = s->config->comm.mode == DT_MODE_CENTRAL;
    return (struct dt_comm_options){.plane = central ? DT_PLANE_CENTRAL : s->engine.plane,
                                    .ring = s->config->comm.algorithm == DT_ALGORITHM_RING,
                                    .wire = wires[s->config->comm.grad_dtype],
                                    .timeout_s = s->config->device.timeout_s,
                                    .share = s->config->device.allow_shared_gpu};
}

static enum dt_parallel parallel_of(const struct dt_session *s)
{
    switch (s->config->comm.mode) {
    case DT_MODE_CENTRAL:
        return DT_PARALLEL_CENTRAL;
    case DT_MODE_ASYNC:
        return DT_PARALLEL_ASYNC;
    case DT_MODE_ALLREDUCE:
        break;
    }
    return s->ranks.sync_every > 1 ? DT_PARALLEL_LOCAL : DT_PARALLEL_SUM;
}

static dt_status build_plan(struct dt_session *s, const struct dt_session_needs *needs)
{
    const struct dt_config *config = s->config;
    enum dt_precision precision = config->train.precision;
    const int n_ranks = needs->no_comm ? 1 : s->ranks.n_ranks;
    bool narrow = precision == DT_PRECISION_FP16 || precision == DT_PRECISION_BF16;
    size_t max_bytes = 0;
    DT_TRY(find_memory(s, &max_bytes));
    struct dt_plan_options options = {
        .bucket_bytes = (size_t)(config->comm.bucket_cap_mb * (1 << 20)),
        .last_bucket_bytes = (size_t)(config->comm.last_bucket_cap_mb * (1 << 20)),
        .n_ranks = n_ranks,
        .comm = dt_session_comm_options(s),
        .parallel = parallel_of(s),
        .is_server = s->ranks.rank == 0,
        .average_states = config->train.average_states,
        .outer = config->train.outer_momentum > 0,
        .accumulate =
            s->engine.stage.n_passes > 1 || (narrow && config->comm.grad_dtype == DT_GRAD_FP32),
        .record = config->device.cuda_graph,
        .profile = needs->profile,
        .optim = config->optim.name,
        .clip = config->optim.clip_norm > 0,
        .decay_norm_bias = config->optim.decay_norm_bias,
        .ema = needs->train && config->train.ema_decay > 0,
        .max_bytes = max_bytes,
    };
    options.comm.group = s->engine.graph->bn_group;
    if (needs->layout_only)
        return dt_plan_layout(&s->engine.plan, s->engine.graph, s->engine.backend, s->engine.device,
                              &options);
    return dt_plan_build(&s->engine.plan, s->engine.graph, s->engine.backend, s->engine.device,
                         n_ranks > 1 ? s->ranks.comm : NULL, &options);
}

dt_status dt_session_build(struct dt_session *s, const struct dt_session_needs *needs)
{
    DT_TRY(dt_comm_agree(s->ranks.comm, build_graph(s, needs)));
    return dt_comm_agree(s->ranks.comm, build_plan(s, needs));
}

void dt_session_release(struct dt_session *s)
{
    dt_plan_destroy(s->engine.plan);
    dt_graph_destroy(s->engine.graph);
    s->engine.plan = NULL;
    s->engine.graph = NULL;
}
