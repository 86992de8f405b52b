/* Graph and plan of an engine. */
#include <math.h>

#include "base/host.h"
#include "engine/engine.h"
#include "engine/parallel.h"
#include "engine/task.h"

/* --- Graph --- */

static dt_status build_program(struct dt_engine *engine, const struct dt_sets *sets,
                               enum dt_phase phase, struct dt_canvas size, int batch)
{
    const struct dt_config *config = engine->config;
    const struct dt_model_options options = dt_config_model_options(config, sets->num_classes);
    DT_TRY(dt_graph_begin(engine->graph, phase, batch, size.height, size.width));
    DT_TRY(engine->task->add_inputs(engine, sets, phase));
    int src = dt_graph_ingest(engine->graph, config->data.mean, config->data.std);
    int logits = engine->model->build(engine->graph, src, engine->model, &options);
    if (engine->task->add_loss)
        engine->task->add_loss(engine, phase, logits);
    return dt_graph_check(engine->graph);
}

static dt_status build_phase(struct dt_engine *engine, const struct dt_sets *sets,
                             enum dt_phase phase)
{
    const struct dt_stage *stage = &engine->stage;
    const int side = phase == DT_TRAIN ? stage->image_size : engine->config->model.image_size;
    const struct dt_canvases canvases = dt_config_canvases(engine->config, side);
    const int rows = engine->config->eval.batch_size_per_rank;
    for (int canvas = 0; canvas < canvases.n; canvas++) {
        const int max = phase == DT_TRAIN ? dt_split_max(&stage->split) : rows;
        DT_TRY(build_program(engine, sets, phase, canvases.size[canvas], max));
        engine->program[phase][canvas] = engine->graph->current;
        if (phase == DT_TRAIN)
            engine->smaller[canvas] = engine->graph->current;
        const int min = phase == DT_TRAIN ? dt_split_min(&stage->split) : rows;
        if (min == max)
            continue;
        DT_TRY(build_program(engine, sets, phase, canvases.size[canvas], min));
        engine->smaller[canvas] = engine->graph->current;
    }
    return DT_OK;
}

static bool supports(void *context, const struct dt_graph *g, const struct dt_node *node)
{
    const struct dt_engine *engine = context;
    return engine->backend->supports(engine->device, g, node);
}

static int count_bn_ranks(const struct dt_engine *engine)
{
    const int group = engine->config->model.sync_bn;
    if (engine->options.no_comm)
        return 0;
    if (dt_split_has_slices(&engine->stage.split))
        return engine->stage.split.group;
    return group == 1 ? engine->ranks.n_ranks : group;
}

static dt_status build_graph(struct dt_engine *engine, const struct dt_sets *sets)
{
    const bool learns = engine->options.train && !engine->options.forward_only;
    DT_TRY(dt_graph_create(&engine->graph));
    struct dt_graph *g = engine->graph;
    g->bn_ranks = count_bn_ranks(engine);
    if (engine->options.train)
        DT_TRY(build_phase(engine, sets, DT_TRAIN));
    if (engine->options.eval)
        DT_TRY(build_phase(engine, sets, DT_EVAL));
    if (learns && engine->config->optim.unfreeze_epoch > 0)
        DT_TRY(dt_engine_check_norms(engine));
    if (learns && engine->stage.is_frozen) /* else no statistics */
        DT_TRY(dt_freeze(g, engine->config->optim.freeze));
    if (learns)
        DT_TRY(dt_engine_check_norms(engine));
    for (int t = 0; t < g->n_tensors; t++)
        if (dt_graph_is_within(g->tensor[t].name, engine->model->head))
            g->tensor[t].rate = (float)engine->config->optim.head_lr_factor;
    DT_TRY(dt_graph_fuse(g, supports, engine));
    if (learns)
        DT_TRY(dt_graph_differentiate(g));
    if (engine->backend->shares && engine->backend->shares(engine->device))
        dt_graph_share(g);
    return DT_OK;
}

/* --- Plan --- */

/* Bytes each rank may use: the same on all ranks, so that they fail together. Of host memory
 * without data.cache_mb; of a GPU's without a reserve for libraries and CUDA graphs. */
static dt_status find_memory(struct dt_engine *engine, size_t *max_bytes)
{
    const double max_reserved = 1u << 30, grows = 32e6; /* a process, by what is not planned */
    const bool on_cpu = engine->backend == &dt_backend_cpu;
    const double cache = on_cpu ? engine->config->data.cache_mb * 1e6 : 0;
    double bytes = on_cpu ? (double)dt_memory_available("")
                          : (double)engine->backend->free_bytes(engine->device);
    if (!on_cpu)
        bytes -= bytes / 16 < max_reserved ? bytes / 16 : max_reserved;
    if (on_cpu || engine->config->device.allow_shared_gpu)
        bytes /= dt_comm_local_size(engine->ranks.comm);
    if (on_cpu && !engine->has_copy)
        bytes -= fmin(grows, bytes / 8);
    double min = -bytes;
    DT_TRY(dt_comm_max_f64(engine->ranks.comm, &min, 1));
    engine->n_copy_ranks = on_cpu && engine->options.train && !engine->has_copy
                               ? dt_comm_local_size(engine->ranks.comm)
                               : 0;
    DT_TRY(dt_comm_bcast(engine->ranks.comm, &engine->n_copy_ranks, sizeof(int), 0));
    if (cache > 0 && cache >= -min)
        DT_FAIL(DT_ERR_CONFIG,
                "data.cache_mb: a rank can have at most %.0f MB of memory here, so %d MB for a "
                "cache leave nothing for training",
                -min / 1e6, engine->config->data.cache_mb);
    *max_bytes = (size_t)fmax(-min - cache, on_cpu); /* 0 would be unknown */
    return DT_OK;
}

/* Between nodes: 10 Gb/s. */
static const struct dt_link usual_link = {.bytes_per_s = 1.25e9, .latency_s = 20e-6};

static enum dt_sum choose_sum(const struct dt_config *config)
{
    static const enum dt_sum sums[] = {
        [DT_ALGORITHM_RING] = DT_SUM_RING,       [DT_ALGORITHM_AUTO] = DT_SUM_AUTO,
        [DT_ALGORITHM_LIBRARY] = DT_SUM_LIBRARY, [DT_ALGORITHM_HIERARCHICAL] = DT_SUM_BY_NODE,
        [DT_ALGORITHM_HALVING] = DT_SUM_HALVING, [DT_ALGORITHM_TREE] = DT_SUM_TREE};
    const bool is_auto = config->comm.algorithm == DT_ALGORITHM_AUTO;
    return is_auto && config->train.deterministic ? DT_SUM_RING : sums[config->comm.algorithm];
}

struct dt_comm_options dt_engine_comm_options(const struct dt_engine *engine)
{
    static const enum dt_dtype wires[] = {[DT_GRAD_AUTO] = DT_F32,
                                          [DT_GRAD_FP32] = DT_F32,
                                          [DT_GRAD_FP16] = DT_F16,
                                          [DT_GRAD_BF16] = DT_BF16};
    const bool central = engine->parallel->mode.is_central;
    const enum dt_dtype wire = wires[engine->config->comm.grad_dtype];
    const bool on_gpu = engine->plane == DT_PLANE_NCCL;
    const bool has_ring = engine->ranks.n_ranks <= dt_config_ring_ranks(engine->config);
    return (struct dt_comm_options){.plane = central ? DT_PLANE_CENTRAL : engine->plane,
                                    .sum = !on_gpu    ? choose_sum(engine->config)
                                           : has_ring ? DT_SUM_RING
                                                      : DT_SUM_LIBRARY,
                                    .link =
                                        engine->link.bytes_per_s > 0 ? engine->link : usual_link,
                                    .keeps_order = engine->config->train.deterministic &&
                                                   choose_sum(engine->config) == DT_SUM_BY_NODE,
                                    .wire = wire,
                                    .timeout_s = engine->config->device.timeout_s,
                                    .share = engine->config->device.allow_shared_gpu};
}

/* Every slice of a rank is a recording of its own; the same on all ranks. */
static bool can_record(const struct dt_engine *engine)
{
    const struct dt_split *split = &engine->stage.split;
    return !dt_split_has_slices(split) ||
           split->n_parts <= DT_N_PASS_KINDS * engine->ranks.n_workers;
}

static struct dt_plan_options plan_options(const struct dt_engine *engine, size_t max_bytes)
{
    const struct dt_config *config = engine->config;
    const enum dt_precision precision = config->train.precision;
    /* Gradients on a CPU are fp32, in bf16 too. */
    const bool is_16_bit = engine->backend != &dt_backend_cpu &&
                           (precision == DT_PRECISION_FP16 || precision == DT_PRECISION_BF16);
    const bool is_virtual = dt_split_has_slices(&engine->stage.split);
    struct dt_plan_options options = {
        .bucket_bytes = (size_t)(config->comm.bucket_cap_mb * (1 << 20)),
        .last_bucket_bytes = (size_t)(config->comm.last_bucket_cap_mb * (1 << 20)),
        .n_ranks = engine->options.no_comm ? 1 : engine->ranks.n_ranks,
        .comm = dt_engine_comm_options(engine),
        .parallel = engine->parallel->mode,
        .is_server = engine->ranks.rank == 0,
        .outer = config->train.outer_momentum > 0,
        .split = engine->stage.split,
        .accumulate = engine->stage.split.n_passes > 1 || is_virtual ||
                      (is_16_bit && config->comm.grad_dtype == DT_GRAD_FP32),
        .record = config->device.cuda_graph && can_record(engine),
        .profile = engine->options.profile,
        .optim = config->optim.name,
        .clip = config->optim.clip_norm > 0,
        .decay_norm_bias = config->optim.decay_norm_bias,
        .ema = engine->options.train && config->train.ema_decay > 0,
        .max_bytes = max_bytes,
        .is_host_memory = engine->backend == &dt_backend_cpu,
        .copy_ranks = engine->n_copy_ranks,
    };
    options.comm.exchange_ranks = engine->graph->bn_ranks;
    if (is_virtual && engine->backend == &dt_backend_cpu)
        options.comm.plane = DT_PLANE_SLICES;
    if (is_virtual && engine->options.no_comm)
        options.split.group = 1;
    if (config->train.average_states)
        options.parallel.local_optimizer_state = false;
    return options;
}

/* Measures the link once, for trainings whose sums choose by it. */
static dt_status find_link(struct dt_engine *engine)
{
    const struct dt_comm_options options = dt_engine_comm_options(engine);
    const bool chooses = options.sum == DT_SUM_AUTO && options.plane == DT_PLANE_MPI;
    const bool sums = engine->options.train && !engine->options.no_comm &&
                      !dt_split_has_slices(&engine->stage.split);
    if (!chooses || !sums || engine->ranks.n_ranks == 1 || engine->link.bytes_per_s > 0)
        return DT_OK;
    engine->link = usual_link;
    return dt_link_find(&engine->link, engine->ranks.comm, engine->run_dir);
}

static dt_status build_plan(struct dt_engine *engine, bool is_layout)
{
    size_t max_bytes = 0;
    DT_TRY(find_memory(engine, &max_bytes));
    if (!is_layout)
        DT_TRY(find_link(engine));
    const struct dt_plan_options options = plan_options(engine, max_bytes);
    if (options.split.group > 1 && engine->backend != &dt_backend_cpu)
        DT_FAIL(DT_ERR_CONFIG, "train.virtual_ranks on GPUs has no model.sync_bn; remove one of "
                               "them, or set fewer virtual ranks, each with more images");
    if (dt_split_has_slices(&options.split) && engine->backend != &dt_backend_cpu &&
        !engine->config->train.deterministic)
        DT_FAIL(DT_ERR_CONFIG, "train.virtual_ranks on GPUs needs algorithms that do not depend on "
                               "timing; set train.deterministic to true");
    struct dt_comm *comm = options.n_ranks > 1 ? engine->ranks.comm : NULL;
    if (is_layout)
        return dt_plan_layout(&engine->plan, engine->graph, engine->backend, engine->device,
                              &options);
    return dt_plan_build(&engine->plan, engine->graph, engine->backend, engine->device, comm,
                         &options);
}

static dt_status build(struct dt_engine *engine, const struct dt_sets *sets, bool is_layout)
{
    DT_TRY(dt_comm_agree(engine->ranks.comm, build_graph(engine, sets)));
    return dt_comm_agree(engine->ranks.comm, build_plan(engine, is_layout));
}

double dt_engine_room(const struct dt_engine *engine)
{
    const struct dt_plan *plan = engine->plan;
    const double bytes = (double)plan->options.max_bytes;
    return engine->backend == &dt_backend_cpu ? fmax(bytes * 7 / 8, 1) : bytes;
}

dt_status dt_engine_fit(struct dt_engine *engine, const struct dt_sets *sets)
{
    struct dt_split *own = &engine->stage.split, split = *own;
    const double room = dt_engine_room(engine);
    const bool is_even = dt_split_min(own) == dt_split_max(own);
    double max = (double)dt_plan_bytes(engine->plan);
    DT_TRY(dt_comm_max_f64(engine->ranks.comm, &max, 1));
    while (room > 0 && max > room && !dt_split_has_slices(own)) {
        split = dt_engine_split(engine, split.n_passes + 1);
        const int min = dt_split_min(&split), size = dt_split_max(&split);
        if (min == 0)
            break;
        if (size == dt_split_max(own) || (is_even && size != min))
            continue;
        dt_engine_release(engine);
        *own = split;
        DT_TRY(build(engine, sets, true));
        max = (double)dt_plan_bytes(engine->plan);
        DT_TRY(dt_comm_max_f64(engine->ranks.comm, &max, 1));
    }
    return DT_OK;
}

dt_status dt_engine_build(struct dt_engine *engine, const struct dt_sets *sets, bool is_layout)
{
    const bool fits = engine->config->train.micro_batch_size == DT_MICRO_BATCH_AUTO;
    if (!fits || !engine->options.train)
        return build(engine, sets, is_layout);
    DT_TRY(build(engine, sets, true));
    DT_TRY(dt_engine_fit(engine, sets));
    if (is_layout)
        return DT_OK;
    dt_engine_release(engine);
    return build(engine, sets, false);
}

void dt_engine_release(struct dt_engine *engine)
{
    dt_plan_destroy(engine->plan);
    dt_graph_destroy(engine->graph);
    engine->plan = NULL;
    engine->graph = NULL;
}
