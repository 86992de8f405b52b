/* The plan as text, for --dry-run: arenas and buckets, one line per action; also the bytes
 * that a node moves. */
#include "plan/plan_internal.h"

#define ACTION_NAME(NAME, name, ...) #name,
#define ARENA_NAME(NAME, name)       #name,
static const char *const kind_name[] = {DT_ACTION_LIST(ACTION_NAME)};
static const char *const arena_name[] = {DT_ARENA_LIST(ARENA_NAME)};
static const char *const phase_name[] = {[DT_TRAIN] = "train", [DT_EVAL] = "eval"};

/* "train", or "train 800x1088" of a further program. */
static const char *program_name(char *out, size_t bytes, const struct dt_plan *plan, int program)
{
    const struct dt_program *p = &plan->graph->program[program];
    if (program < DT_N_PHASES)
        return phase_name[p->phase];
    snprintf(out, bytes, "%s %dx%d", phase_name[p->phase], p->height, p->width);
    return out;
}

const char *dt_arena_name(enum dt_arena arena)
{
    return arena_name[arena];
}

const char *dt_action_kind_name(enum dt_action_kind kind)
{
    return kind_name[kind];
}

/* A parameter's place holds its fp32 master, which nodes do not read in mixed precision. */
static size_t tensor_bytes(const struct dt_plan *plan, int t)
{
    const size_t bytes = plan->place[t].bytes;
    if (plan->graph->tensor[t].role != DT_PARAM)
        return bytes;
    return bytes / sizeof(float) *
           dt_dtype_bytes(plan->backend->dtype(plan->device, plan->graph, t));
}

static bool is_concat(const struct dt_node *node)
{
    return node->op == DT_OP_CONCAT || node->op == DT_OP_CONCAT_BWD;
}

/* Whether a part of a concatenation, or of its gradient, is there already. */
static bool is_in_place(const struct dt_plan *plan, const struct dt_node *node)
{
    const struct dt_graph *g = plan->graph;
    return dt_tensor_whole(g, node->src[0]) == dt_tensor_whole(g, node->dst[0]);
}

/* The rest is copied. */
static double concat_bytes(const struct dt_plan *plan, const struct dt_node *node)
{
    size_t bytes = tensor_bytes(plan, node->dst[0]);
    if (is_in_place(plan, node))
        bytes -= tensor_bytes(plan, node->op == DT_OP_CONCAT ? node->src[0] : node->dst[0]);
    return 2 * (double)bytes;
}

double dt_plan_node_bytes(const struct dt_plan *plan, const struct dt_node *node)
{
    if (is_concat(node))
        return concat_bytes(plan, node);
    const int n = (int)(node - plan->graph->node);
    int touched[DT_MAX_EXTRA_TENSORS], tensor[DT_MAX_SRC + DT_MAX_DST];
    size_t bytes = 0;
    for (int i = dt_node_tensors(node, tensor); i > 0; i--)
        bytes += tensor_bytes(plan, tensor[i - 1]);
    for (int i = dt_plan_extra_tensors(plan, n, touched); i > 0; i--)
        bytes += tensor_bytes(plan, touched[i - 1]);
    int64_t again = 0;
    if (plan->backend->again_bytes)
        again = plan->backend->again_bytes(plan->device, plan->exec[n]);
    return (double)bytes + (double)again;
}

size_t dt_plan_bucket_bytes(const struct dt_plan *plan, int bucket)
{
    const struct dt_bucket *b = &plan->buckets[bucket];
    return b->count * dt_dtype_bytes(dt_plan_sum_grads(plan, b).type);
}

double dt_plan_update_bytes(const struct dt_plan *plan)
{
    const size_t n = plan->arena_bytes[DT_ARENA_MOMENTUM] / sizeof(float);
    const size_t shadow = plan->arena_bytes[DT_ARENA_SHADOW] > 0 ? sizeof(uint16_t) : 0;
    const size_t states = dt_optim_has_square(plan->options.optim) ? 2 : 1;
    size_t bytes = n * ((1 + states) * 2 * sizeof(float) + shadow);
    for (int b = 0; b < plan->n_buckets; b++)
        bytes += 2 * dt_plan_bucket_bytes(plan, b);
    return (double)bytes;
}

static double mega(size_t bytes)
{
    return (double)bytes / 1e6;
}

static const char *const activation_name[] = {[DT_NO_ACTIVATION] = "",
#define ACTIVATION_NAME(NAME, name) [DT_##NAME] = "+" #name,
                                              DT_ACTIVATION_LIST(ACTIVATION_NAME)
#undef ACTIVATION_NAME
};

static void print_op(const struct dt_plan *plan, const struct dt_action *action, FILE *out)
{
    const struct dt_graph *g = plan->graph;
    const struct dt_node *node = &g->node[action->node];
    char dims[48] = "-", where[48] = "-";
    if (node->dst[0] >= 0) {
        const struct dt_place *place = &plan->place[node->dst[0]];
        dt_tensor_format_dims(dims, sizeof(dims), &g->tensor[node->dst[0]]);
        snprintf(where, sizeof(where), "%s+%zu", arena_name[place->arena], place->offset);
    }
    fprintf(out, "%-18s %-28s %-20s %10.3f %10.2f  %-18s %s%s\n", dt_op_name(node->op), node->name,
            dims, dt_node_flops(g, node) * 1e-9, mega((size_t)dt_plan_node_bytes(plan, node)),
            where, node->residual ? "+add" : "",
            action->second_half ? "+finish"
            : is_concat(node)   ? (is_in_place(plan, node) ? "in place" : "copied")
                                : activation_name[node->activation]);
}

static void print_bucket(const struct dt_plan *plan, const struct dt_action *action, FILE *out)
{
    if (action->bucket < 0) {
        fprintf(out, "%s\n", kind_name[action->kind]);
        return;
    }
    const struct dt_bucket *bucket = &plan->buckets[action->bucket];
    const struct dt_grads grads = dt_plan_sum_grads(plan, bucket);
    fprintf(out, "%-18s bucket %-21d %-20zu %10s %10.2f  %s+%zu\n", kind_name[action->kind],
            action->bucket, bucket->count, "", mega(dt_plan_bucket_bytes(plan, action->bucket)),
            arena_name[grads.arena], grads.origin + bucket->first * dt_dtype_bytes(grads.type));
}

static void print_program(const struct dt_plan *plan, int program, FILE *out)
{
    char text[48];
    const char *name = program_name(text, sizeof text, plan, program);
    double flops = 0, bytes = 0;
    fprintf(out, "\n%s: %d actions, batch %d\n%5s %-18s %-28s %-20s %10s %10s  %s\n", name,
            plan->n_actions[program], plan->graph->program[program].batch, "", "action", "name",
            "dst", "GFLOP", "MB", "memory");
    for (int i = 0; i < plan->n_actions[program]; i++) {
        const struct dt_action *action = &plan->actions[program][i];
        fprintf(out, "%5d ", i);
        if (action->kind == DT_ACTION_SYNC) {
            const struct dt_node *synced = &plan->graph->node[action->node];
            char ranks[32];
            size_t slot_bytes;
            (void)plan->backend->exchange_slots(plan->device, plan->exec[action->node],
                                                &slot_bytes);
            snprintf(ranks, sizeof ranks, "%d %s", synced->attr.bn.n_ranks,
                     plan->options.split.group > 1 ? "slices" : "ranks");
            fprintf(out, "%-18s %-28s %-20s %10s %10.2f\n", kind_name[action->kind], synced->name,
                    ranks, "", mega(slot_bytes));
        } else if (action->kind == DT_ACTION_OP) {
            const struct dt_node *node = &plan->graph->node[action->node];
            print_op(plan, action, out);
            flops += action->second_half ? 0 : dt_node_flops(plan->graph, node);
            bytes += action->second_half ? 0 : dt_plan_node_bytes(plan, node);
        } else {
            print_bucket(plan, action, out);
        }
    }
    fprintf(out, "%s total: %.2f GFLOP, %.1f MB touched\n", name, flops * 1e-9,
            mega((size_t)bytes));
}

void dt_plan_print_actions(const struct dt_plan *plan, FILE *out)
{
    for (int p = 0; p < DT_MAX_PROGRAMS; p++)
        if (plan->n_actions[p] > 0)
            print_program(plan, p, out);
}

void dt_plan_print_memory(const struct dt_plan *plan, FILE *out)
{
    fprintf(out, "memory per rank\n");
    for (int a = 0; a < DT_N_ARENAS; a++)
        if (plan->arena_bytes[a] > 0)
            fprintf(out, "  %-10s %10.1f MB\n", arena_name[a], mega(plan->arena_bytes[a]));
    if (plan->backend->n_feed_blocks > 0)
        fprintf(out, "  %-10s %10.1f MB\n", "input",
                plan->backend->n_feed_blocks * mega(plan->feed_bytes));
    fprintf(out, "  %-10s %10.1f MB\n", "total", mega(dt_plan_bytes(plan)));
    fprintf(out, "buckets: %d", plan->n_buckets);
    for (int b = 0; b < plan->n_buckets; b++)
        fprintf(out, "%s%.2f", b == 0 ? ", MB: " : " ", mega(dt_plan_bucket_bytes(plan, b)));
    fprintf(out, "\n");
}
