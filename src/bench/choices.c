/* `dtrain bench --profile` on a device that chooses between algorithms: what each layer got, what a
 * run of it took when it was chosen, and how much slower the second best was. */
#include <math.h>
#include <stdio.h>

#include "bench/bench.h"

/* Choice number k of node i, which took part in the profile. */
static bool find_choice(const struct dt_bench *b, int i, int k, struct dt_choice *out)
{
    const struct dt_plan *plan = b->engine.plan;
    return plan->backend->chosen && plan->node_s[i] > 0 &&
           plan->backend->chosen(plan->device, plan->exec[i], k, out);
}

static const char *subject(const struct dt_bench *b, int i, const struct dt_choice *choice)
{
    return choice->group ? choice->group : dt_op_name(b->engine.plan->graph->node[i].op);
}

/* "-" if unknown. */
static const char *format_ms(char *out, size_t bytes, double seconds)
{
    snprintf(out, bytes, isnan(seconds) ? "-" : "%.3f", 1e3 * seconds);
    return out;
}

void dt_bench_print_choices(const struct dt_bench *b)
{
    const struct dt_graph *g = b->engine.plan->graph;
    struct dt_choice choice;
    char ms[32], next_ms[32];
    bool has_head = false;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; find_choice(b, i, k, &choice); k++) {
            if (!has_head)
                printf("\n%-34s %-20s %10s %10s  %s\n", "layer", "op or group", "ms", "next ms",
                       "algorithm or way, next best");
            has_head = true;
            printf("%-34s %-20s %10s %10s  %s%s%s\n", g->node[i].name, subject(b, i, &choice),
                   format_ms(ms, sizeof ms, choice.seconds),
                   format_ms(next_ms, sizeof next_ms, choice.runner_up_s), choice.way,
                   choice.runner_up[0] ? ", " : "", choice.runner_up);
        }
}

void dt_bench_write_choices(const struct dt_bench *b, struct dt_jsonw *w)
{
    const struct dt_graph *g = b->engine.plan->graph;
    struct dt_choice choice;
    dt_jsonw_begin(w, "choices", '[');
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; find_choice(b, i, k, &choice); k++) {
            dt_jsonw_begin(w, NULL, '{');
            dt_jsonw_string(w, "name", g->node[i].name);
            dt_jsonw_string(w, "op", subject(b, i, &choice));
            dt_jsonw_string(w, "algorithm", choice.way);
            dt_jsonw_number(w, "ms", 1e3 * choice.seconds);
            dt_jsonw_string(w, "runner_up", choice.runner_up);
            dt_jsonw_number(w, "runner_up_ms", 1e3 * choice.runner_up_s);
            dt_jsonw_close(w, '}');
        }
    dt_jsonw_close(w, ']');
}
