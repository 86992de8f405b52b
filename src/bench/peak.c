/* The peaks of the device, to compare the benchmark with: the rate of a matrix product and of a
 * copy, measured on all ranks at the same time, with the threads and the precision of training. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench/bench.h"

enum { MIN_SIZE = 256, MAX_SIZE = 8192, COPY_BYTES = 64 << 20 };
static const double burst_s = 0.1, window_s = 0.02;
static const double long_s = 0.005; /* a product that is large enough */

/* Work that is repeated: a matrix product as a node of a plan, or else a copy. */
struct work {
    const struct dt_backend *backend;
    struct dt_device *device;
    struct dt_graph *graph;
    struct dt_plan *plan;
    int node;
    void *from, *to;
};

static dt_status run_work(const struct work *w)
{
    if (w->plan)
        return w->backend->run(w->device, w->plan->exec[w->node]);
    return w->backend->accumulate(w->device, w->to, w->from, DT_F32, COPY_BYTES / sizeof(float),
                                  true);
}

/* Seconds of one run, in the best of some windows; the first run is slow and does not count. */
static dt_status time_work(const struct work *w, double *best_s)
{
    int n = 1;
    *best_s = INFINITY;
    DT_TRY(run_work(w));
    DT_TRY(w->backend->sync(w->device));
    const double begin_s = dt_clock_s();
    for (double last_s = begin_s, now_s; last_s - begin_s < burst_s; last_s = now_s) {
        for (int i = 0; i < n; i++)
            DT_TRY(run_work(w));
        DT_TRY(w->backend->sync(w->device));
        now_s = dt_clock_s();
        *best_s = fmin(*best_s, fmax(now_s - last_s, 1e-9) / n);
        n = 1 + (int)(window_s / *best_s);
    }
    return DT_OK;
}

/* One training step on noise, because products of zeros take less power and may run faster. */
static dt_status fill_product(struct work *w, int size, int image_size)
{
    static const struct dt_scalars scalars = {.diff_scale = 1};
    const size_t n_pixels = (size_t)size * (size_t)image_size * (size_t)image_size * 3;
    uint8_t *pixels = NULL;
    int32_t *labels = NULL;
    dt_status status = DT_OK;
    DT_TRY_OUT(DT_NEW(pixels, n_pixels));
    DT_TRY_OUT(DT_NEW(labels, (size_t)size));
    for (size_t i = 0; i < n_pixels; i++)
        pixels[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
    const struct dt_feed feed = {.pixels = pixels, .labels = labels};
    DT_TRY_OUT(dt_plan_init_params(w->plan, 1));
    DT_TRY_OUT(dt_plan_feed(w->plan, DT_TRAIN, &feed));
    DT_TRY_OUT(dt_plan_train(w->plan, DT_TRAIN, &scalars, 0, 1));
    DT_TRY_OUT(dt_plan_end_feed(w->plan));
    DT_TRY_OUT(w->backend->sync(w->device));
out:
    free(pixels);
    free(labels);
    return status;
}

/* Two linear layers; the second and its gradients are products of size x size matrices. */
static dt_status build_product(struct work *w, int size)
{
    static const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.25, 0.25, 0.25};
    static const struct dt_init zero;
    static const struct dt_plan_options options = {
        .bucket_bytes = 1 << 22, .last_bucket_bytes = 1 << 22, .n_ranks = 1};
    const struct dt_init noise = {.kind = DT_INIT_UNIFORM, .value = 1 / sqrt(size)};
    const int image_size = 8;
    DT_TRY(dt_graph_create(&w->graph));
    DT_TRY(dt_graph_begin(w->graph, DT_TRAIN, size, image_size, image_size));
    int src = dt_graph_ingest(w->graph, mean, std);
    for (int i = 0; i < 2; i++)
        src = dt_graph_linear(w->graph, src, i == 0 ? "first" : "second", size, noise, zero);
    dt_graph_softmax_xent(w->graph, src, 0);
    DT_TRY(dt_graph_check(w->graph));
    DT_TRY(dt_graph_differentiate(w->graph));
    DT_TRY(dt_plan_build(&w->plan, w->graph, w->backend, w->device, NULL, &options));
    return fill_product(w, size, image_size);
}

/* The fastest of the three. */
static dt_status time_nodes(struct work *w, double flops, double *best_s)
{
    *best_s = INFINITY;
    for (w->node = 0; w->node < w->graph->n_nodes; w->node++) {
        double seconds;
        if (dt_node_flops(w->graph, &w->graph->node[w->node]) < flops)
            continue;
        DT_TRY(time_work(w, &seconds));
        *best_s = fmin(*best_s, seconds);
    }
    return DT_OK;
}

static dt_status time_product(struct dt_bench *b, int size, double flops, double *seconds)
{
    struct work w = {.backend = b->engine.backend, .device = b->engine.device};
    dt_status status = dt_comm_agree(b->engine.ranks.comm, build_product(&w, size));
    if (status == DT_OK)
        status = dt_comm_agree(b->engine.ranks.comm, time_nodes(&w, flops, seconds));
    dt_plan_destroy(w.plan);
    dt_graph_destroy(w.graph);
    return status;
}

/* Larger and larger products, until one takes long. All ranks measure the same sizes. */
static dt_status measure_product(struct dt_bench *b)
{
    double seconds = 0;
    for (int size = MIN_SIZE; size <= MAX_SIZE && seconds < long_s; size *= 2) {
        const double flops = 2.0 * size * size * size;
        DT_TRY(time_product(b, size, flops, &seconds));
        const double rate = flops / seconds;
        if (!(rate <= b->own.peak_flops_per_s))
            b->peak_size = size;
        b->own.peak_flops_per_s = fmax(b->own.peak_flops_per_s, rate);
        DT_TRY(dt_comm_max_f64(b->engine.ranks.comm, &seconds, 1));
    }
    return DT_OK;
}

/* Counts what is read and what is written. */
static dt_status measure_copy(struct dt_bench *b)
{
    struct work w = {.backend = b->engine.backend, .device = b->engine.device};
    double seconds;
    dt_status status = b->engine.backend->alloc(b->engine.device, &w.from, COPY_BYTES);
    if (status == DT_OK)
        status = b->engine.backend->alloc(b->engine.device, &w.to, COPY_BYTES);
    status = dt_comm_agree(b->engine.ranks.comm, status);
    if (status == DT_OK)
        status = dt_comm_agree(b->engine.ranks.comm, time_work(&w, &seconds));
    if (status == DT_OK)
        b->own.copy_bytes_per_s = 2.0 * COPY_BYTES / seconds;
    b->engine.backend->free(b->engine.device, w.from, COPY_BYTES);
    b->engine.backend->free(b->engine.device, w.to, COPY_BYTES);
    return status;
}

dt_status dt_bench_peaks(struct dt_bench *b)
{
    b->own.peak_flops_per_s = b->own.copy_bytes_per_s = NAN;
    dt_status status = measure_copy(b);
    if (status == DT_OK)
        status = measure_product(b);
    return status == DT_ERR_MEMORY ? DT_OK : status; /* then something is unknown */
}

double dt_bench_paper_flops(const struct dt_bench *b)
{
    /* TFLOP/s of NVIDIA's data sheets, without sparsity. The name is a part of the device's. */
    static const struct {
        const char *name;
        double fp32, tf32, bits16;
    } rows[] = {{"H100 PCIe", 51, 378, 756}, {"H100 NVL", 60, 418, 835}, {"H100", 67, 495, 989},
                {"H200 NVL", 60, 418, 835},  {"H200", 67, 495, 989},     {"A100", 19.5, 156, 312},
                {"V100-SXM", 15.7, 0, 125},  {"V100-PCIE", 14, 0, 112},  {"L40S", 91.6, 183, 362},
                {"T4", 8.1, 0, 65}};
    const enum dt_precision precision = b->engine.config->train.precision;
    char device[256];
    b->engine.backend->describe(b->engine.device, device, sizeof device);
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        if (b->engine.backend != &dt_backend_cpu && strstr(device, rows[i].name))
            return 1e12 * (precision == DT_PRECISION_FP32   ? rows[i].fp32
                           : precision == DT_PRECISION_TF32 ? rows[i].tf32
                                                            : rows[i].bits16);
    return NAN;
}
