/* The result of a benchmark: statistics, the lines on stdout, and JSON. Iterations and totals have
 * the format of Horovod's synthetic benchmark. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/mem.h"
#include "base/sort.h"
#include "base/text.h"
#include "bench/bench.h"
#include "engine/task.h"

const char *dt_bench_format_rate(char *out, size_t bytes, double value)
{
    const bool tera = value >= 1e12;
    snprintf(out, bytes, "%.3g %s", value / (tera ? 1e12 : 1e9), tera ? "T" : "G");
    return out;
}

static const struct {
    const char *key, *text;
} modes[] = {{"train", "training"},
             {"train_no_comm", "training without communication: every rank on its own"},
             {"forward", "forward pass of an evaluation only"}};

static int mode(const struct dt_bench *b)
{
    return b->phase == DT_EVAL ? 2 : b->options->no_comm;
}

/* --- Header --- */

/* The rank is the first of its host. */
static bool is_new_host(const struct dt_bench *b, int rank)
{
    for (int r = 0; r < rank; r++)
        if (strcmp(b->hosts[r], b->hosts[rank]) == 0)
            return false;
    return true;
}

void dt_bench_print_header(const struct dt_bench *b)
{
    const struct dt_config *config = b->engine.config;
    const bool is_cpu = b->engine.backend == &dt_backend_cpu;
    struct dt_loader_times times;
    char device[256], memory[32], sizes[DT_SIZES_TEXT];
    int n_hosts = 0;
    for (int r = 0; r < b->engine.ranks.n_ranks; r++)
        n_hosts += is_new_host(b, r);
    b->engine.backend->describe(b->engine.device, device, sizeof device);
    dt_loader_times(b->loader, &times);
    printf("Model:       %s, images of %s, %d classes\n", b->engine.model->name,
           dt_sets_sizes(&b->sets, config->model.image_size, sizes), b->sets.num_classes);
    printf("Mode:        %s\n", modes[mode(b)].text);
    printf("Batch size:  %d global\n             %.7g per rank", b->engine.stage.split.images,
           b->images);
    printf(b->engine.stage.split.n_passes > 1 ? " in %d micro-batches\n" : "\n",
           b->engine.stage.split.n_passes);
    printf("Ranks:       %d on %d host%s (%s%s)\n", b->engine.ranks.n_ranks, n_hosts,
           n_hosts > 1 ? "s" : "", b->hosts[0], n_hosts > 1 ? ", ..." : "");
    printf("Device:      %s\n", device);
    printf("Threads:     %d for computing, %d for data, per rank\n",
           is_cpu ? b->engine.n_threads : 1, times.workers);
    printf("Precision:   %s\n", dt_precision_name(config->train.precision));
    printf("Data:        %s\n", !b->options->real_data ? "synthetic, through the loader"
                                : b->phase == DT_TRAIN || !config->data.val[0] ? config->data.train
                                                                               : config->data.val);
    printf("Memory:      %s per rank for the plan\n",
           dt_memory_format(memory, sizeof memory, dt_plan_bytes(b->engine.plan)));
    printf("Running warm-up of %d step%s, then %d round%s of %d\n", config->bench.warmup_steps,
           DT_S(config->bench.warmup_steps), config->bench.rounds, DT_S(config->bench.rounds),
           config->bench.steps_per_round);
    (void)fflush(stdout);
}

/* --- Statistics --- */

/* The work of a step; passes over different canvases differ. */
static double mean_flops(const struct dt_bench *b)
{
    const struct dt_graph *g = b->engine.plan->graph;
    double n_passes = 0, flops = 0;
    for (int i = 0; i < DT_MAX_PROGRAMS; i++)
        n_passes += (double)b->n_passes[i];
    for (int n = 0; n < g->n_nodes; n++)
        flops += (double)b->n_passes[g->node[n].program] / n_passes * dt_node_flops(g, &g->node[n]);
    return b->engine.stage.split.n_passes * flops;
}

void dt_bench_sum_up(struct dt_bench *b)
{
    const size_t n_rounds = (size_t)b->engine.config->bench.rounds;
    double variance = 0, max_bytes = 0, *all = (double *)&b->all;
    for (int r = 0; r < b->engine.ranks.n_ranks; r++) {
        for (int i = 0; i < DT_BENCH_NUMBERS; i++)
            all[i] += ((const double *)&b->ranks[r])[i] / b->engine.ranks.n_ranks;
        max_bytes = fmax(max_bytes, b->ranks[r].rss_bytes);
    }
    b->all.rss_bytes = max_bytes;
    dt_sort_f64(b->step_s, (size_t)b->n_steps);
    for (int i = 0; i < b->n_steps; i++)
        b->step_mean_s += b->step_s[i] / b->n_steps;
    for (size_t i = 0; i < n_rounds; i++)
        b->mean += b->images_per_s[i] / (double)n_rounds;
    for (size_t i = 0; i < n_rounds; i++)
        variance += pow(b->images_per_s[i] - b->mean, 2) / (double)n_rounds;
    b->spread = 1.96 * sqrt(variance);
    b->ci95 = dt_interval95_f64(b->images_per_s, n_rounds);
    b->flops = mean_flops(b);
    b->flops_per_s = b->flops * b->mean / b->images;
    b->mfu = b->flops_per_s / b->all.peak_flops_per_s;
}

static double percentile(const struct dt_bench *b, double part)
{
    return dt_percentile_f64(b->step_s, (size_t)b->n_steps, part);
}

/* --- Lines --- */

void dt_bench_print(const struct dt_bench *b)
{
    const double n = b->engine.ranks.n_ranks;
    char plan[32], rss[32];
    printf("Img/sec per rank: %.1f +-%.1f\n", b->mean, b->spread);
    printf("Total img/sec on %d rank%s: %.1f +-%.1f\n", b->engine.ranks.n_ranks, DT_S(n),
           b->mean * n, b->spread * n);
    if (isfinite(b->ci95))
        printf("95 %% confidence interval of the total: %.1f +-%.1f (%d round%s)\n", b->mean * n,
               b->ci95 * n, b->engine.config->bench.rounds, DT_S(b->engine.config->bench.rounds));
    printf("Step: p50 %.1f ms, p95 %.1f ms, p99 %.1f ms\n", 1e3 * percentile(b, 0.5),
           1e3 * percentile(b, 0.95), 1e3 * percentile(b, 0.99));
    const double peak = b->all.peak_flops_per_s, paper = dt_bench_paper_flops(b);
    char text[32];
    printf("Compute: %sFLOP/s per rank (convolutions counted as direct)",
           dt_bench_format_rate(text, sizeof text, b->flops_per_s));
    if (!isnan(peak))
        printf(", MFU %.1f %% of the %sFLOP/s measured for a product of %d x %d matrices in %s",
               100 * b->mfu, dt_bench_format_rate(text, sizeof text, peak), b->peak_size,
               b->peak_size, dt_precision_name(b->engine.config->train.precision));
    if (!isnan(paper))
        printf("; %.1f %% of the data sheet's %sFLOP/s", 100 * b->flops_per_s / paper,
               dt_bench_format_rate(text, sizeof text, paper));
    printf("\n");
    printf("Memory: %s per rank for the plan, peak RSS %s\n",
           dt_memory_format(plan, sizeof plan, dt_plan_bytes(b->engine.plan)),
           dt_memory_format(rss, sizeof rss, (uint64_t)b->all.rss_bytes));
    if (b->all.queued_s > 0.1 * b->all.step_s)
        printf(
            "The ranks waited %.0f %% of the time for a CPU: more is running than there are CPUs, "
            "so the figures are too low.\n",
            100 * b->all.queued_s / b->all.step_s);
}

/* --- JSON --- */

static void write_numbers(const struct dt_bench *b, struct dt_jsonw *w)
{
    const struct dt_bench_rank *all = &b->all;
    const double n = b->engine.ranks.n_ranks, paper = dt_bench_paper_flops(b);
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        {"ranks_per_cpu", (double)dt_comm_sharing_ranks(b->engine.ranks.comm) /
                              dt_comm_allowed_cpus(b->engine.ranks.comm)},
        {"images_per_s_per_rank", b->mean},
        {"images_per_s", b->mean * n},
        {"step_median_s", percentile(b, 0.5)},
        {"step_p95_s", percentile(b, 0.95)},
        {"step_p99_s", percentile(b, 0.99)},
        {"step_mean_s", b->step_mean_s},
        {"data_wait_s", all->wait_s},
        {"compute_s", all->compute_s},
        {"exposed_comm_s", all->comm_s},
        {"cpu_wait_s", all->queued_s},
        {"data_wait_share", all->wait_s / b->step_mean_s},
        {"compute_share", all->compute_s / b->step_mean_s},
        {"exposed_comm_share", all->comm_s / b->step_mean_s},
        {"comm_overlap_share", b->timeline.overlap}, /* with --trace */
        {"peak_rss_bytes", all->rss_bytes},
        {"plan_bytes", (double)dt_plan_bytes(b->engine.plan)},
        {"flops_per_step", b->flops * n},
        {"flops_per_s", b->flops_per_s * n},
        {"peak_flops_per_s", all->peak_flops_per_s * n},
        {"peak_copy_bytes_per_s", all->copy_bytes_per_s * n},
        {"mfu", b->mfu},
        {"paper_flops_per_s", paper * n},
        {"paper_mfu", b->flops_per_s / paper},
    };
    dt_jsonw_number(w, "images_per_s_ci95", b->ci95 * n); /* null with one round */
    for (size_t i = 0; i < DT_COUNT(numbers); i++)
        if (!isnan(numbers[i].value))
            dt_jsonw_number(w, numbers[i].key, numbers[i].value);
    dt_jsonw_begin(w, "rounds_images_per_s", '[');
    for (int i = 0; i < b->engine.config->bench.rounds; i++)
        dt_jsonw_number(w, NULL, b->images_per_s[i] * n);
    dt_jsonw_close(w, ']');
}

void dt_bench_write_identity(const struct dt_bench *b, struct dt_jsonw *w)
{
    char sizes[DT_SIZES_TEXT];
    dt_jsonw_add(w, "backend: %s, precision: %s, mode: %s, data: %s, model: %s",
                 b->engine.backend->name, dt_precision_name(b->engine.config->train.precision),
                 modes[mode(b)].key, b->options->real_data ? "real" : "synthetic",
                 b->engine.model->name);
    const int side = dt_sets_crop(&b->sets, b->engine.config->model.image_size);
    if (side > 0)
        dt_jsonw_integer(w, "image_size", side);
    else
        dt_jsonw_string(w, "canvases", dt_sets_sizes(&b->sets, 0, sizes));
    dt_jsonw_add(w, "ranks: %d, global_batch_size: %d, micro_batch_size: %d",
                 b->engine.ranks.n_ranks, b->engine.stage.split.images,
                 dt_split_max(&b->engine.stage.split));
}

dt_status dt_bench_write(const struct dt_bench *b, struct dt_jsonw *w)
{
    char *config = NULL, device[256], comm[128], date[DT_CLOCK_UTC];
    DT_TRY(dt_config_print(&config, b->engine.config));
    b->engine.backend->describe(b->engine.device, device, sizeof device);
    dt_comm_describe_plane(b->engine.plane, comm, sizeof comm);
    dt_jsonw_add(w, "date: %s, dtrain: %s, build: %s, device: %s, communication: %s",
                 dt_clock_utc(date), dt_version, dt_build_id(), device, comm);
    dt_bench_write_identity(b, w);
    bool is_recorded = false;
    for (int i = 0; i < DT_N_PASS_KINDS; i++)
        is_recorded |= b->engine.plan->recording[DT_TRAIN][i] != NULL;
    dt_jsonw_add(w, "recorded: %hhd, threads: %d, steps: %d, peak_matrix_size: %d", is_recorded,
                 b->engine.n_threads, b->n_steps, b->peak_size);
    write_numbers(b, w);
    static const char *const names[DT_BENCH_NUMBERS] = {
        /* as in struct dt_bench_rank */
        "step_mean_s",      "step_median_s",         "data_wait_s",
        "compute_s",        "exposed_comm_s",        "cpu_wait_s",
        "peak_flops_per_s", "peak_copy_bytes_per_s", "peak_rss_bytes"};
    dt_jsonw_begin(w, "hosts", '[');
    for (int r = 0; r < b->engine.ranks.n_ranks; r++)
        if (is_new_host(b, r))
            dt_jsonw_string(w, NULL, b->hosts[r]);
    dt_jsonw_add(w, "], per_rank: [");
    for (int r = 0; r < b->engine.ranks.n_ranks; r++) {
        const struct dt_bench_rank *rank = &b->ranks[r];
        dt_jsonw_add(w, "{host: %s, images_per_s: %g", b->hosts[r], b->images / rank->step_s);
        for (int i = 0; i < DT_BENCH_NUMBERS; i++)
            if (!isnan(((const double *)rank)[i]))
                dt_jsonw_number(w, names[i], ((const double *)rank)[i]);
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
    dt_jsonw_raw(w, "config", config);
    free(config);
    return DT_OK;
}
