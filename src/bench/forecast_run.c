/* `dtrain forecast`: gets what the model of forecast.h needs, from a short profile or from the
 * flops of the ops, and prints what it says. */
#include <stdio.h>
#include <stdlib.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sort.h"
#include "bench/bench.h"
#include "bench/forecast.h"

static const double mib = 1 << 20;
static const double caps_mb[] = {1, 2, 4, 8, 16, 25, 32, 64, 128};

struct forecast {
    struct dt_bench base;
    const struct dt_forecast_options *options;
    const struct dt_config *config; /* of the ranks that the forecast is for */
    struct dt_forecast_network network;
    struct dt_forecast_step step;       /* the configured bucket_cap_mb cuts its buckets */
    double measured_s;                  /* step on these ranks; 0 = not measured */
    double best_cap_mb, best_s;         /* for the most ranks */
    struct dt_forecast_bucket *buckets; /* step.buckets */
    double *node_s;                     /* by node, in all passes of a step */
    double *compute_s;                  /* by measured step: of the slowest rank */
    size_t width;                       /* bytes of a gradient between ranks */
};

/* The largest number of ranks that sum in a ring. On CPUs auto sums by node on any number. */
static int ring_ranks(const struct dt_config *config, bool on_cpu)
{
    const bool is_auto =
        config->comm.algorithm == DT_ALGORITHM_AUTO && !config->train.deterministic;
    return on_cpu && is_auto ? 0 : dt_config_ring_ranks(config);
}

/* --- The link --- */

/* From median times of ring sums in host memory. */
static dt_status measure_link(struct dt_comm *comm, struct dt_link *link)
{
    static const double bytes[] = {1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24};
    enum { N = DT_COUNT(bytes), N_TIMES = 9 };
    struct dt_comm_options options = {
        .sum = DT_SUM_RING, .n_reductions = 1, .max_count = (size_t)bytes[N - 1], .dtype = DT_F32};
    double s[N];
    if (dt_comm_size(comm) == 1)
        DT_FAIL_ON_ALL_RANKS(
            DT_ERR_USAGE, "--link measured: there is no link with one rank; start two or more with "
                          "mpirun, or give bandwidth and latency");
    float *values = dt_mem_alloc_aligned((size_t)bytes[N - 1], "sums of a link");
    dt_status status = dt_comm_agree(comm, values ? DT_OK : DT_ERR_MEMORY);
    DT_TRY_OUT(status);
    DT_TRY_OUT(dt_comm_open_reduce(comm, &options));
    for (int i = 0; i < N; i++)
        DT_TRY_OUT(dt_comm_time_sum(comm, values, (size_t)bytes[i], N_TIMES, &s[i]));
    dt_comm_close_reduce(comm);
    *link = dt_forecast_fit(bytes, s, N, dt_comm_size(comm));
out:
    free(values);
    return status;
}

/* --- The step on one rank --- */

/* Runs n steps; compute_s, if not NULL, gets how long each computes. */
static dt_status run_steps(struct dt_bench *b, int n, double *compute_s)
{
    dt_plan_reset_times(b->engine.plan);
    for (int i = 0; i < n; i++) {
        double before_s = b->engine.plan->times.compute_s;
        DT_TRY(dt_bench_step(b));
        if (compute_s)
            compute_s[i] = b->engine.plan->times.compute_s - before_s;
    }
    return b->engine.backend->sync(b->engine.device);
}

/* Means over the steps; the slowest rank of each sets the pace. Ranks that run at the same time
 * slow each other down, as in training. */
static dt_status measure_step(struct forecast *f)
{
    struct dt_engine *engine = &f->base.engine;
    const struct dt_config_bench *bench = &engine->config->bench;
    int n_steps = bench->steps_per_round, n_nodes = engine->graph->n_nodes;
    double rank_steps = (double)n_steps * engine->ranks.n_ranks;
    DT_TRY(dt_plan_init_params(engine->plan, engine->config->train.seed));
    f->base.loader = f->base.sets.train;
    f->base.n_steps = n_steps;
    DT_TRY(dt_bench_start(&f->base));
    DT_TRY(run_steps(&f->base, bench->warmup_steps, NULL));
    DT_TRY(dt_comm_barrier(engine->ranks.comm));
    double begin_s = dt_clock_s();
    DT_TRY(run_steps(&f->base, n_steps, f->compute_s));
    dt_log_progress("");
    const struct dt_plan_times *times = &engine->plan->times;
    double sums[] = {dt_clock_s() - begin_s, times->compute_s, times->comm_s};
    for (int i = 0; i < n_nodes; i++)
        f->node_s[i] = engine->plan->node_s[i] / rank_steps;
    DT_TRY(dt_comm_sum_f64(engine->ranks.comm, sums, DT_COUNT(sums)));
    DT_TRY(dt_comm_sum_f64(engine->ranks.comm, f->node_s, n_nodes));
    DT_TRY(dt_comm_max_f64(engine->ranks.comm, f->compute_s, n_steps));
    for (int i = 0; i < n_steps; i++)
        f->step.compute_s += f->compute_s[i] / n_steps;
    f->measured_s = sums[0] / rank_steps;
    f->step.rest_s = (sums[0] - sums[1] - sums[2]) / rank_steps;
    return DT_OK;
}

/* --- Buckets --- */

/* Cuts the buckets as a plan for many ranks does. */
static dt_status cut_buckets(struct forecast *f, double cap_mb)
{
    const struct dt_engine *engine = &f->base.engine;
    const struct dt_plan *own = engine->plan;
    struct dt_plan_options options = own->options;
    size_t planned = dt_dtype_bytes(options.accumulate ? DT_F32 : own->grads_type);
    struct dt_plan *plan;
    options.n_ranks = 2;
    options.bucket_bytes = (size_t)(cap_mb * mib) / f->width * planned;
    options.last_bucket_bytes =
        (size_t)(engine->config->comm.last_bucket_cap_mb * mib) / f->width * planned;
    DT_TRY(dt_plan_layout(&plan, engine->graph, engine->backend, engine->device, &options));
    free(f->buckets);
    dt_status status = DT_NEW(f->buckets, (size_t)plan->n_buckets);
    for (int i = 0; status == DT_OK && i < plan->n_buckets; i++) {
        double left_s = 0;
        for (int n = 0; n < engine->graph->n_nodes; n++) {
            const struct dt_node *node = &engine->graph->node[n];
            if (node->phase == DT_TRAIN && n > plan->buckets[i].last_writer[node->program])
                left_s += f->node_s[n] / engine->stage.split.n_passes;
        }
        const bool is_wide = dt_plan_is_wide(plan, &plan->buckets[i]);
        f->buckets[i] = (struct dt_forecast_bucket){
            .bytes = (double)(plan->buckets[i].count * (is_wide ? sizeof(float) : f->width)),
            .ready_s = f->step.compute_s - left_s,
        };
    }
    if (status == DT_OK)
        dt_forecast_sort(f->buckets, plan->n_buckets); /* the last may be the fp32 one */
    f->step.buckets = f->buckets;
    f->step.n_buckets = plan->n_buckets;
    dt_plan_destroy(plan);
    return status;
}

/* Tries the caps on the most ranks and keeps the buckets of the configured one. */
static dt_status choose_cap(struct forecast *f)
{
    const struct dt_forecast_options *o = f->options;
    double configured_mb = f->base.engine.config->comm.bucket_cap_mb;
    int max = 1;
    for (int i = 0; i < o->n_ranks; i++)
        max = o->ranks[i] > max ? o->ranks[i] : max;
    for (size_t i = 0; i <= DT_COUNT(caps_mb); i++) {
        double cap_mb = i < DT_COUNT(caps_mb) ? caps_mb[i] : configured_mb;
        DT_TRY(cut_buckets(f, cap_mb));
        double s = dt_forecast_step_s(&f->step, max, &f->network);
        if (i == 0 || s < f->best_s || (s <= f->best_s * 1.001 && cap_mb == configured_mb)) {
            f->best_s = s;
            f->best_cap_mb = cap_mb;
        }
    }
    return DT_OK;
}

/* --- The forecast as a table, in sentences and as JSON --- */

/* Per rank and step. */
static double images_of(const struct forecast *f)
{
    return (double)f->base.engine.stage.split.images / f->base.engine.ranks.n_workers;
}

static double images_per_s(const struct forecast *f, int n_ranks)
{
    return (double)n_ranks * images_of(f) / dt_forecast_step_s(&f->step, n_ranks, &f->network);
}

static void print_limit(const struct forecast *f, double efficiency)
{
    int n = dt_forecast_limit(&f->step, efficiency, &f->network);
    if (n > 0)
        printf("Efficiency falls below %.0f %% at %d ranks.\n", 100 * efficiency, n);
    else
        printf("Efficiency stays above %.0f %% up to a million ranks.\n", 100 * efficiency);
}

static void print_forecast(const struct forecast *f)
{
    const struct dt_forecast_network *network = &f->network;
    double bytes = 0;
    for (int i = 0; i < f->step.n_buckets; i++)
        bytes += f->step.buckets[i].bytes;
    printf(
        "%s, %.7g images per rank: %.2f ms without communication (%s), gradients of %.1f MB in %d "
        "bucket(s)\n",
        f->base.engine.model->name, images_of(f), 1e3 * dt_forecast_step_s(&f->step, 1, network),
        f->measured_s > 0 ? "measured" : "given", bytes / 1e6, f->step.n_buckets);
    printf("Link: %.3g GB/s, %.3g us%s", network->link.bytes_per_s / 1e9,
           1e6 * network->link.latency_s, f->options->measure_link ? " (measured)" : "");
    if (network->ranks_per_node > 1)
        printf("; between the %d ranks of a node: %.3g GB/s, %.3g us", network->ranks_per_node,
               network->local.bytes_per_s / 1e9, 1e6 * network->local.latency_s);
    printf("\n%s\n\n", f->step.overlaps
                           ? "Sums overlap the backward pass."
                           : "Sums take the time of the CPUs that compute: none is hidden.");
    const struct dt_forecast_options *o = f->options;
    const double cap_mb = f->base.engine.config->comm.bucket_cap_mb;
    const int n = f->base.engine.ranks.n_ranks;
    printf("%8s %10s %12s %12s %11s\n", "ranks", "step ms", "exposed ms", "images/s", "efficiency");
    for (int i = 0; i < o->n_ranks; i++)
        printf("%8d %10.2f %12.3f %12.0f %9.1f %%\n", o->ranks[i],
               1e3 * dt_forecast_step_s(&f->step, o->ranks[i], &f->network),
               1e3 * dt_forecast_exposed_s(&f->step, o->ranks[i], &f->network),
               images_per_s(f, o->ranks[i]),
               100 * dt_forecast_efficiency(&f->step, o->ranks[i], &f->network));
    printf("\n");
    print_limit(f, 0.9);
    print_limit(f, 0.5);
    printf("On the most ranks comm.bucket_cap_mb %g is best: %.2f ms per step", f->best_cap_mb,
           1e3 * f->best_s);
    printf(f->best_cap_mb == cap_mb ? ", as configured.\n" : " (configured: %g).\n", cap_mb);
    if (f->measured_s > 0 && n > 1)
        printf("Check on these %d ranks: measured %.2f ms, forecast %.2f ms (%+.1f %%).\n", n,
               1e3 * f->measured_s, 1e3 * dt_forecast_step_s(&f->step, n, &f->network),
               100 * (dt_forecast_step_s(&f->step, n, &f->network) / f->measured_s - 1));
    printf("Not in the model: more ranks to wait for than measured, and ranks that share memory "
           "bandwidth or a CPU.\n");
}

static dt_status save_json(const struct forecast *f)
{
    struct dt_jsonw w = {.pretty = true};
    dt_jsonw_add(&w, "{dtrain: %s, model: %s, images_per_rank: %g", dt_version,
                 f->base.engine.model->name, images_of(f));
    dt_jsonw_add(&w, "link_bytes_per_s: %g, link_latency_s: %g, overlaps: %hhd",
                 f->network.link.bytes_per_s, f->network.link.latency_s, f->step.overlaps);
    if (f->measured_s > 0)
        dt_jsonw_add(&w, "measured_ranks: %d, measured_step_s: %g", f->base.engine.ranks.n_ranks,
                     f->measured_s);
    dt_jsonw_begin(&w, "forecast", '[');
    for (int i = 0; i < f->options->n_ranks; i++) {
        const int n = f->options->ranks[i];
        dt_jsonw_add(&w,
                     "{ranks: %d, step_s: %g, exposed_comm_s: %g, images_per_s: %g, "
                     "efficiency: %g}",
                     n, dt_forecast_step_s(&f->step, n, &f->network),
                     dt_forecast_exposed_s(&f->step, n, &f->network), images_per_s(f, n),
                     dt_forecast_efficiency(&f->step, n, &f->network));
    }
    dt_jsonw_add(&w, "], below_90_percent: %d, below_50_percent: %d, best_bucket_cap_mb: %g}",
                 dt_forecast_limit(&f->step, 0.9, &f->network),
                 dt_forecast_limit(&f->step, 0.5, &f->network), f->best_cap_mb);
    return dt_jsonw_save(&w, f->options->json_path);
}

static dt_status report(const struct forecast *f)
{
    print_forecast(f);
    if (fflush(stdout) != 0)
        DT_FAIL(DT_ERR_IO, "cannot write the forecast to standard output");
    return f->options->json_path ? save_json(f) : DT_OK;
}

/* --- Together --- */

/* Bytes of a gradient between ranks. CPUs send fp32. If nothing runs, auto is what it would be on a
 * GPU. */
static size_t find_width(const struct forecast *f)
{
    const struct dt_engine *engine = &f->base.engine;
    const struct dt_config *config = f->options->step_s == 0 ? engine->config : f->config;
    const bool on_cpu = f->options->step_s == 0 ? engine->backend == &dt_backend_cpu
                                                : config->device.kind == DT_DEVICE_CPU;
    const bool is_16_bit = !on_cpu && config->train.precision != DT_PRECISION_FP32 &&
                           config->train.precision != DT_PRECISION_TF32;
    const bool sums_passes = engine->stage.split.n_passes > 1;
    return !is_16_bit || sums_passes || config->comm.grad_dtype == DT_GRAD_FP32 ? sizeof(float)
                                                                                : sizeof(uint16_t);
}

/* With a given step time nothing runs: a CPU lays out the plan of a GPU. */
static dt_status forecast(struct forecast *f)
{
    struct dt_engine *engine = &f->base.engine;
    struct dt_comm *comm = engine->ranks.comm;
    bool runs = f->options->step_s == 0;
    if (f->options->measure_link)
        DT_TRY(measure_link(comm, &f->network.link));
    DT_TRY(dt_bench_open(&f->base, !runs));
    if (f->options->measure_link && engine->plane == DT_PLANE_NCCL)
        DT_FAIL_ON_ALL_RANKS(DT_ERR_USAGE,
                             "--link measured: only sums in host memory are measured, but "
                             "these ranks use GPUs; give bandwidth and latency");
    DT_TRY(dt_comm_agree(comm, DT_NEW(f->node_s, (size_t)engine->graph->n_nodes)));
    DT_TRY(
        dt_comm_agree(comm, DT_NEW(f->compute_s, (size_t)engine->config->bench.steps_per_round)));
    f->width = find_width(f);
    if (runs) {
        DT_TRY(measure_step(f));
        f->step.overlaps = engine->backend != &dt_backend_cpu;
        f->network.ring_ranks = ring_ranks(f->config, !f->step.overlaps);
    } else {
        const struct dt_graph *g = f->base.engine.graph;
        double flops = 0;
        for (int i = 0; i < g->n_nodes; i++)
            flops += g->node[i].phase == DT_TRAIN ? dt_node_flops(g, &g->node[i]) : 0;
        for (int i = 0; i < g->n_nodes; i++)
            f->node_s[i] = f->options->step_s * dt_node_flops(g, &g->node[i]) / flops;
        f->step.compute_s = f->options->step_s;
    }
    DT_TRY(dt_comm_agree(comm, choose_cap(f)));
    return dt_comm_agree(comm, engine->ranks.rank == 0 ? report(f) : DT_OK);
}

dt_status dt_forecast_run(struct dt_comm *comm, const struct dt_config *config,
                          const struct dt_forecast_options *options)
{
    static struct dt_config own;
    const struct dt_bench_options plain = {.profile = options->step_s == 0};
    struct forecast *f = NULL;
    DT_TRY(DT_NEW(f, 1));
    f->options = options;
    f->network = options->network;
    f->config = config;
    f->step.overlaps = config->device.kind != DT_DEVICE_CPU;
    f->network.ring_ranks = ring_ranks(config, config->device.kind == DT_DEVICE_CPU);
    own = *config;
    if (options->step_s != 0) { /* nothing runs: a CPU lays out the plan of a GPU */
        own.device.kind = DT_DEVICE_CPU;
        own.train.precision = DT_PRECISION_FP32;
        own.comm.grad_dtype = DT_GRAD_AUTO;
        own.comm.backend = DT_COMM_AUTO;
    }
    dt_status status = dt_bench_begin(&f->base, comm, &own, &plain, 0);
    if (status == DT_OK)
        status = forecast(f);
    dt_bench_end(&f->base, status);
    free(f->buckets);
    free(f->node_s);
    free(f->compute_s);
    free(f);
    return status;
}
