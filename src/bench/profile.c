/* `dtrain bench --profile`: where the time of a step goes, by op and by layer, and what follows
 * from it, and the algorithm that each layer got. All times are of
 * rank 0; the bytes of an op are those of its tensors, as often as its kernels pass over them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "bench/bench.h"

/* Per step. */
struct row {
    const char *name, *op; /* op: "" if the name is the op's */
    double s, bytes, flops;
};

static int slowest_first(const void *a, const void *b)
{
    double x = ((const struct row *)a)->s, y = ((const struct row *)b)->s;
    return (x < y) - (x > y);
}

/* One row per node if by_layer, else one per op; only those that take time. */
static dt_status list_rows(const struct dt_bench *b, bool by_layer, struct row **rows, int *n)
{
    const struct dt_plan *plan = b->engine.plan;
    const struct dt_graph *g = plan->graph;
    const double n_passes = b->engine.stage.split.n_passes;
    const int n_all = by_layer ? g->n_nodes : DT_N_OPS;
    *n = 0;
    DT_TRY(DT_NEW(*rows, (size_t)n_all));
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        struct row *row = &(*rows)[by_layer ? i : (int)node->op];
        if (plan->node_s[i] <= 0)
            continue;
        row->name = by_layer ? node->name : dt_op_name(node->op);
        row->op = by_layer ? dt_op_name(node->op) : "";
        row->s += plan->node_s[i] / b->n_steps;
        row->bytes += n_passes * dt_plan_node_bytes(plan, node);
        row->flops += n_passes * dt_node_flops(g, node);
    }
    qsort(*rows, (size_t)n_all, sizeof **rows, slowest_first);
    while (*n < n_all && (*rows)[*n].s > 0)
        ++*n;
    return DT_OK;
}

/* --- Tables --- */

/* Seconds at the measured rates of a matrix product and of a copy, whichever takes longer; *memory
 * tells which one. */
static double roofline_s(const struct dt_bench *b, const struct row *row, bool *memory)
{
    const double copy_s = row->bytes / b->own.copy_bytes_per_s;
    const double product_s = row->flops / b->own.peak_flops_per_s;
    *memory = copy_s > product_s;
    return fmax(copy_s, product_s);
}

static void print_rows(const struct dt_bench *b, const struct row *rows, int n)
{
    for (int i = 0; i < n; i++) {
        const struct row *row = &rows[i];
        bool memory;
        printf("%-34s %-20s %6.1f %% %10.3f", row->name, row->op, 100 * row->s / b->own.step_s,
               1e3 * row->s);
        if (row->bytes > 0)
            printf(" %8.1f %9.1f", row->bytes / 1e9 / row->s, row->flops / 1e9 / row->s);
        if (row->bytes > 0 && !isnan(b->own.copy_bytes_per_s))
            printf(" %6.0f %%", 100 * roofline_s(b, row, &memory) / row->s);
        printf("\n");
    }
}

static void print_head(const char *what, const char *op)
{
    printf("\n%-34s %-20s %8s %10s %8s %9s %8s\n", what, op, "share", "ms", "GB/s", "GFLOP/s",
           "of peak");
}

/* The parts of a step that are no ops. */
static void print_rest(const struct dt_bench *b, double ops_s)
{
    struct dt_plan_times times;
    dt_plan_get_times(b->engine.plan, &times);
    const struct dt_bench_rank *own = &b->own;
    const double sums_s = times.compute_s / b->n_steps - ops_s;
    const double update_s = times.update_s / b->n_steps;
    const struct row rows[] = {
        {"sums over micro-batches", "", sums_s, 0, 0},
        {"update", "", update_s, dt_plan_update_bytes(b->engine.plan), 0},
        {"exposed communication", "", own->comm_s, 0, 0},
        {"waiting for input", "", own->wait_s, 0, 0},
        {"other", "", own->step_s - own->compute_s - own->comm_s - own->wait_s, 0, 0},
        {"step", "", own->step_s, 0, 0},
    };
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        if (rows[i].s > 1e-7)
            print_rows(b, &rows[i], 1);
}

/* --- Choices between algorithms --- */

/* Choice number k of node i, which took part in the profile. */
static bool find_choice(const struct dt_bench *b, int i, int k, struct dt_choice *out)
{
    const struct dt_plan *plan = b->engine.plan;
    return plan->node_s[i] > 0 && plan->backend->choice_of(plan->device, plan->exec[i], k, out);
}

static const char *subject(const struct dt_bench *b, int i, const struct dt_choice *choice)
{
    return choice->fusion ? choice->fusion : dt_op_name(b->engine.plan->graph->node[i].op);
}

/* "-" if unknown. */
static const char *format_ms(char *out, size_t bytes, double seconds)
{
    snprintf(out, bytes, isnan(seconds) ? "-" : "%.3f", 1e3 * seconds);
    return out;
}

/* The time of each algorithm when it was chosen, and of the next best, where these were measured.
 */
static void print_choices(const struct dt_bench *b)
{
    const struct dt_graph *g = b->engine.plan->graph;
    struct dt_choice choice;
    char ms[32], next_ms[32];
    bool has_head = false;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; find_choice(b, i, k, &choice); k++) {
            if (!has_head)
                printf("\n%-34s %-20s %10s %10s  %s\n", "layer", "op or fusion", "ms", "next ms",
                       "algorithm, next best");
            has_head = true;
            printf("%-34s %-20s %10s %10s  %s%s%s\n", g->node[i].name, subject(b, i, &choice),
                   format_ms(ms, sizeof ms, choice.seconds),
                   format_ms(next_ms, sizeof next_ms, choice.runner_up_s), choice.algorithm,
                   choice.runner_up[0] ? ", " : "", choice.runner_up);
        }
}

/* --- What follows --- */

static void say_op(const struct dt_bench *b, const struct row *rows, int n)
{
    const struct row *row = NULL;
    double gain_s = 0;
    bool memory = false;
    for (int i = 0; i < n; i++)
        if (rows[i].s - roofline_s(b, &rows[i], &memory) > gain_s) {
            gain_s = rows[i].s - roofline_s(b, &rows[i], &memory);
            row = &rows[i];
        }
    if (isnan(b->own.peak_flops_per_s) || isnan(b->own.copy_bytes_per_s)) {
        printf("The peaks of the device could not be measured: too little memory is left.\n");
        return;
    }
    if (!row) {
        printf("No op is slower than a matrix product or a copy of its size.\n");
        return;
    }
    (void)roofline_s(b, row, &memory);
    const double rate = memory ? row->bytes : row->flops;
    const double peak = memory ? b->own.copy_bytes_per_s : b->own.peak_flops_per_s;
    const char *unit = memory ? "B/s" : "FLOP/s";
    char own[32], best[32];
    printf("%s runs at %s%s of the %s%s that a %s reaches; at that rate the step would be %.1f %% "
           "shorter, more than by any other op.\n",
           row->name, dt_bench_format_rate(own, sizeof own, rate / row->s), unit,
           dt_bench_format_rate(best, sizeof best, peak), unit, memory ? "copy" : "matrix product",
           100 * gain_s / b->own.step_s);
}

static void say_waits(const struct dt_bench *b)
{
    const double comm = b->own.comm_s / b->own.step_s, input = b->own.wait_s / b->own.step_s;
    if (b->engine.plan->options.n_ranks == 1)
        printf("Nothing was communicated.\n");
    else
        printf("Exposed communication takes %.1f %% of the step%s.\n", 100 * comm,
               comm < 0.05 ? ""
                           : "; try more images per rank or another comm.bucket_cap_mb, and see "
                             "what --no-comm reaches");
    printf("Waiting for input takes %.1f %% of the step%s%s.\n", 100 * input,
           b->options->real_data ? "" : " (synthetic data)",
           input < 0.05 ? "" : "; try more data.workers, and see dtrain bench --input");
}

dt_status dt_bench_print_profile(const struct dt_bench *b)
{
    struct row *ops = NULL, *layers = NULL;
    int n_ops, n_layers;
    double ops_s = 0;
    dt_status status = DT_OK;
    DT_TRY_OUT(list_rows(b, false, &ops, &n_ops));
    DT_TRY_OUT(list_rows(b, true, &layers, &n_layers));
    for (int i = 0; i < n_ops; i++)
        ops_s += ops[i].s;
    print_head("op, all layers", "");
    print_rows(b, ops, n_ops);
    print_rest(b, ops_s);
    print_head("layer", "op");
    print_rows(b, layers, n_layers);
    print_choices(b);
    printf("\n");
    say_op(b, ops, n_ops);
    say_waits(b);
out:
    free(ops);
    free(layers);
    return status;
}

/* --- JSON --- */

static dt_status write_rows(const struct dt_bench *b, bool by_layer, struct dt_jsonw *w)
{
    struct row *rows = NULL;
    int n = 0;
    dt_status status = list_rows(b, by_layer, &rows, &n);
    dt_jsonw_begin(w, by_layer ? "nodes" : "ops", '[');
    for (int i = 0; i < n; i++) {
        dt_jsonw_begin(w, NULL, '{');
        if (by_layer)
            dt_jsonw_string(w, "name", rows[i].name);
        dt_jsonw_add(w, "op: %s, ms: %g, mb: %g, gflop: %g}", by_layer ? rows[i].op : rows[i].name,
                     1e3 * rows[i].s, rows[i].bytes / 1e6, rows[i].flops / 1e9);
    }
    dt_jsonw_close(w, ']');
    free(rows);
    return status;
}

dt_status dt_bench_write_profile(const struct dt_bench *b, struct dt_jsonw *w)
{
    const struct dt_graph *g = b->engine.plan->graph;
    struct dt_choice choice;
    DT_TRY(write_rows(b, false, w));
    DT_TRY(write_rows(b, true, w));
    dt_jsonw_begin(w, "choices", '[');
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; find_choice(b, i, k, &choice); k++)
            dt_jsonw_add(w,
                         "{name: %s, op: %s, algorithm: %s, ms: %g, runner_up: %s, "
                         "runner_up_ms: %g}",
                         g->node[i].name, subject(b, i, &choice), choice.algorithm,
                         1e3 * choice.seconds, choice.runner_up, 1e3 * choice.runner_up_s);
    dt_jsonw_close(w, ']');
    return DT_OK;
}
