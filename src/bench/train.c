/* `dtrain bench`: the training loop on synthetic data that passes through the loader like real
 * data. Warm-up steps, then rounds; the slowest rank determines the time of a round. The console
 * lines have the format of Horovod's synthetic benchmark. A profile times every op separately. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sort.h"
#include "dtrain/train.h"
#include "train/session.h"

enum { PER_RANK = 32 /* images, unless the configuration says: as in Horovod's benchmark */ };

struct bench {
    struct dt_session session;
    struct dt_config *config; /* as given, with synthetic data */
    uint32_t epoch;
    int64_t step;
    int n_steps;                      /* measured steps */
    double *step_s;                   /* one per measured step: slowest rank */
    double *images_per_s;             /* one per round: per rank */
    double wait_s, compute_s, comm_s; /* seconds per step, mean over ranks */
    double mean, spread;              /* images_per_s: mean and 1.96 standard deviations */
    bool has_times;                   /* compute_s and comm_s are valid */
    double rss_bytes;                 /* maximum over the ranks */
};

static dt_status next_batch(struct bench *b, const struct dt_batch **batch)
{
    struct dt_session *s = &b->session;
    DT_TRY(dt_loader_next(s->train, batch));
    if (*batch)
        return DT_OK;
    DT_TRY(dt_loader_start(s->train, ++b->epoch, 0));
    DT_TRY(dt_loader_next(s->train, batch));
    if (!*batch)
        DT_FAIL(DT_ERR_INTERNAL, "an epoch of the synthetic data is empty");
    return DT_OK;
}

static dt_status run_step(struct bench *b)
{
    struct dt_session *s = &b->session;
    struct dt_scalars scalars = dt_session_scalars(s, b->step++);
    for (int pass = 0; pass < s->n_passes; pass++) {
        const struct dt_batch *batch;
        DT_TRY(next_batch(b, &batch));
        DT_TRY(dt_session_pass(s, batch, &scalars, pass));
    }
    return DT_OK;
}

static dt_status run_rounds(struct bench *b)
{
    struct dt_session *s = &b->session;
    int n_rounds = b->config->bench.rounds, n_steps = b->config->bench.steps_per_round;
    DT_TRY(dt_loader_start(s->train, 0, 0));
    for (int i = 0; i < b->config->bench.warmup_steps; i++)
        DT_TRY(run_step(b));
    DT_TRY(s->backend->sync(s->device));
    double wait_s = dt_loader_wait_s(s->train);
    dt_plan_reset_times(s->plan);
    for (int round = 0; round < n_rounds; round++) {
        DT_TRY(dt_comm_barrier(s->comm));
        double begin_s = dt_clock_s(), last_s = begin_s;
        for (int i = 0; i < n_steps; i++) {
            DT_TRY(run_step(b));
            if (i == n_steps - 1) /* the host runs ahead until here: step times show its pace */
                DT_TRY(s->backend->sync(s->device));
            double now_s = dt_clock_s();
            b->step_s[round * n_steps + i] = now_s - last_s;
            last_s = now_s;
        }
        double round_s = last_s - begin_s;
        DT_TRY(dt_comm_max_f64(s->comm, &round_s, 1));
        b->images_per_s[round] = (double)n_steps * s->global_batch_size / s->n_ranks / round_s;
    }
    b->wait_s = dt_loader_wait_s(s->train) - wait_s;
    return DT_OK;
}

static dt_status summarise(struct bench *b)
{
    struct dt_session *s = &b->session;
    struct dt_plan_times times;
    struct rusage usage;
    int n_rounds = b->config->bench.rounds;
    double sum = 0, squares = 0;
    dt_plan_get_times(s->plan, &times);
    b->has_times = dt_session_has_times(s);
    getrusage(RUSAGE_SELF, &usage);
    b->rss_bytes = (double)usage.ru_maxrss * 1024;
    double sums[] = {b->wait_s, times.compute_s + times.update_s, times.comm_s};
    DT_TRY(dt_comm_sum_f64(s->comm, sums, 3));
    DT_TRY(dt_comm_max_f64(s->comm, &b->rss_bytes, 1));
    DT_TRY(dt_comm_max_f64(s->comm, b->step_s, b->n_steps));
    double rank_steps = (double)b->n_steps * s->n_ranks;
    b->wait_s = sums[0] / rank_steps;
    b->compute_s = sums[1] / rank_steps;
    b->comm_s = sums[2] / rank_steps;
    for (int i = 0; i < n_rounds; i++)
        sum += b->images_per_s[i];
    b->mean = sum / n_rounds;
    for (int i = 0; i < n_rounds; i++)
        squares += (b->images_per_s[i] - b->mean) * (b->images_per_s[i] - b->mean);
    b->spread = 1.96 * sqrt(squares / n_rounds);
    dt_sort_f64(b->step_s, (size_t)b->n_steps);
    return DT_OK;
}

static void write_numbers(const struct bench *b, struct dt_jsonw *w)
{
    const struct dt_session *s = &b->session;
    double median_s = dt_percentile_f64(b->step_s, (size_t)b->n_steps, 0.5), mean_s = 0;
    for (int i = 0; i < b->n_steps; i++)
        mean_s += b->step_s[i] / b->n_steps;
    const struct {
        const char *key;
        double value;
        bool is_known;
    } numbers[] = {
        {"images_per_s_per_rank", b->mean, true},
        {"images_per_s", b->mean * s->n_ranks, true},
        {"images_per_s_ci95", b->spread * s->n_ranks, true},
        {"step_median_s", median_s, true},
        {"step_p95_s", dt_percentile_f64(b->step_s, (size_t)b->n_steps, 0.95), true},
        {"step_mean_s", mean_s, true},
        {"data_wait_s", b->wait_s, true},
        {"compute_s", b->compute_s, b->has_times},
        {"exposed_comm_s", b->comm_s, b->has_times},
        {"data_wait_share", b->wait_s / mean_s, true},
        {"compute_share", b->compute_s / mean_s, b->has_times},
        {"exposed_comm_share", b->comm_s / mean_s, b->has_times},
        {"peak_rss_bytes", b->rss_bytes, true},
    };
    for (size_t i = 0; i < DT_COUNT(numbers); i++)
        if (numbers[i].is_known)
            dt_jsonw_number(w, numbers[i].key, numbers[i].value);
}

/* --- Nodes: one line per node of the training list, times per step of rank 0 --- */

struct node_row {
    const struct dt_node *node;
    double s, bytes, flops;
};

static int slowest_first(const void *a, const void *b)
{
    double x = ((const struct node_row *)a)->s, y = ((const struct node_row *)b)->s;
    return (x < y) - (x > y);
}

/* Sorted by time, slowest first; *n = 0 without a profile. */
static dt_status list_nodes(const struct bench *b, struct node_row **rows, int *n)
{
    const struct dt_plan *plan = b->session.plan;
    const struct dt_graph *g = plan->graph;
    double n_passes = b->session.n_passes;
    *n = 0;
    DT_TRY(DT_NEW(*rows, (size_t)g->n_nodes));
    for (int i = 0; plan->node_s && i < g->n_nodes; i++)
        if (plan->node_s[i] > 0)
            (*rows)[(*n)++] = (struct node_row){
                .node = &g->node[i],
                .s = plan->node_s[i] / b->n_steps,
                .bytes = n_passes * dt_plan_node_bytes(plan, &g->node[i]),
                .flops = n_passes * dt_node_flops(g, &g->node[i]),
            };
    qsort(*rows, (size_t)*n, sizeof **rows, slowest_first);
    return DT_OK;
}

static void write_nodes(const struct node_row *rows, int n, struct dt_jsonw *w)
{
    if (n == 0)
        return;
    dt_jsonw_begin(w, "nodes", '[');
    for (int i = 0; i < n; i++) {
        dt_jsonw_begin(w, NULL, '{');
        dt_jsonw_string(w, "name", rows[i].node->name);
        dt_jsonw_string(w, "op", dt_op_name(rows[i].node->op));
        dt_jsonw_number(w, "ms", 1e3 * rows[i].s);
        dt_jsonw_number(w, "mb", rows[i].bytes / 1e6);
        dt_jsonw_number(w, "gflop", rows[i].flops / 1e9);
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
}

static void print_nodes(const struct node_row *rows, int n, FILE *out)
{
    fprintf(out, "%-34s %-20s %9s %9s %8s\n", "node", "op", "ms", "MB", "GB/s");
    for (int i = 0; i < n; i++)
        fprintf(out, "%-34s %-20s %9.3f %9.2f %8.1f\n", rows[i].node->name,
                dt_op_name(rows[i].node->op), 1e3 * rows[i].s, rows[i].bytes / 1e6,
                rows[i].bytes / 1e9 / rows[i].s);
}

/* --- Results --- */

static bool is_recorded(const struct dt_plan *plan)
{
    for (int i = 0; i < DT_N_PASS_KINDS; i++)
        if (plan->recording[i])
            return true;
    return false;
}

static dt_status save_json(const struct bench *b, const char *path, const struct node_row *rows,
                           int n_rows)
{
    const struct dt_session *s = &b->session;
    struct dt_jsonw w;
    char device[256];
    s->backend->describe(s->device, device, sizeof device);
    dt_jsonw_init(&w, true);
    dt_jsonw_begin(&w, NULL, '{');
    dt_jsonw_string(&w, "dtrain", DTRAIN_VERSION);
    dt_jsonw_string(&w, "backend", s->backend->name);
    dt_jsonw_string(&w, "device", device);
    dt_jsonw_string(&w, "precision", dt_precision_name(b->config->train.precision));
    dt_jsonw_bool(&w, "recorded", is_recorded(s->plan));
    dt_jsonw_string(&w, "model", s->model->name);
    dt_jsonw_integer(&w, "image_size", b->config->model.image_size);
    dt_jsonw_integer(&w, "ranks", s->n_ranks);
    dt_jsonw_integer(&w, "threads", s->n_threads);
    dt_jsonw_integer(&w, "global_batch_size", s->global_batch_size);
    dt_jsonw_integer(&w, "micro_batch_size", s->micro_batch_size);
    dt_jsonw_integer(&w, "steps", b->n_steps);
    write_numbers(b, &w);
    write_nodes(rows, n_rows, &w);
    dt_jsonw_close(&w, '}');
    return dt_jsonw_save(&w, path);
}

static void print_profile(const struct bench *b, FILE *out)
{
    struct dt_plan_times times;
    dt_plan_get_times(b->session.plan, &times);
    fprintf(out, "ms per step, rank 0\n");
    for (int op = 0; op < DT_N_OPS; op++)
        if (times.op_s[op] > 0)
            fprintf(out, "  %-20s %10.3f\n", dt_op_name((enum dt_op)op),
                    1e3 * times.op_s[op] / b->n_steps);
    fprintf(out, "  %-20s %10.3f\n", "update", 1e3 * times.update_s / b->n_steps);
    fprintf(out, "  %-20s %10.3f\n", "exposed communication", 1e3 * times.comm_s / b->n_steps);
}

static dt_status print_results(const struct bench *b, const struct dt_bench_options *options)
{
    const struct dt_session *s = &b->session;
    struct node_row *rows = NULL;
    int n_rows;
    dt_status status = DT_OK;
    if (s->rank != 0)
        return DT_OK;
    DT_TRY(list_nodes(b, &rows, &n_rows));
    printf("Img/sec per rank: %.1f +-%.1f\n", b->mean, b->spread);
    printf("Total img/sec on %d rank(s): %.1f +-%.1f\n", s->n_ranks, b->mean * s->n_ranks,
           b->spread * s->n_ranks);
    if (options->profile) {
        print_profile(b, stdout);
        print_nodes(rows, n_rows, stdout);
    }
    if (fflush(stdout) != 0)
        status = DT_ERROR(DT_ERR_IO, "cannot write the result to standard output");
    else if (options->json_path)
        status = save_json(b, options->json_path, rows, n_rows);
    free(rows);
    return status;
}

static dt_status run_train_bench(struct bench *b, const struct dt_bench_options *options)
{
    struct dt_session *s = &b->session;
    struct dt_session_needs needs = {.train = true, .profile = options->profile};
    DT_TRY(dt_session_open(s, &needs));
    DT_TRY(dt_plan_init_params(s->plan, b->config->train.seed));
    DT_TRY(dt_plan_broadcast(s->plan));
    DT_TRY(run_rounds(b));
    DT_TRY(summarise(b));
    return dt_comm_agree(s->comm, print_results(b, options));
}

dt_status dt_bench(struct dt_comm *comm, const struct dt_config *config,
                   const struct dt_bench_options *options)
{
    static struct dt_config own; /* after a failure workers may still read it */
    struct bench *b = NULL;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(b, 1));
    own = *config;
    b->config = &own;
    b->config->data.source = DT_SOURCE_SYNTHETIC;
    b->config->data.class_map[0] = '\0';
    b->config->train.n_class_weights = 0; /* those of the real data */
    if (own.train.global_batch_size == 0 && own.train.batch_size_per_rank == 0)
        b->config->train.batch_size_per_rank = PER_RANK;
    b->n_steps = config->bench.rounds * config->bench.steps_per_round;
    dt_session_init(&b->session, comm, b->config);
    if (b->config->data.synthetic_train < b->session.global_batch_size)
        b->config->data.synthetic_train = b->session.global_batch_size;
    DT_TRY_OUT(DT_NEW(b->step_s, (size_t)b->n_steps));
    DT_TRY_OUT(DT_NEW(b->images_per_s, (size_t)config->bench.rounds));
    status = run_train_bench(b, options);
out:
    dt_session_close(&b->session, status);
    free(b->step_s);
    free(b->images_per_s);
    free(b);
    return status;
}
