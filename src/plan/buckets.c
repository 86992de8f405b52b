/* Orders parameters by when their gradients become ready and cuts them into buckets; makes the
 * action lists, including each bucket's REDUCE.
 *
 * Because a bucket is a range of the grads arena, its reduction needs no packing. The last bucket
 * is small, because no backward work is left to hide its reduction. The others are closed once they
 * have bucket_bytes, so the small parameters after a large one join it. Gradients that are fp32
 * where the others are 16-bit are a bucket of their own: those of vectors, 0.2 % of ResNet-50's. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plan/plan_internal.h"

/* order[]: PARAM tensors, sorted by the node that writes their gradient; then by id those without
 * one: the frozen, or all if there is no backward pass. Other training programs than the first have
 * the same order. */
static int order_params(const struct dt_graph *g, int *order, int *n_trained)
{
    int n_params = 0;
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->node[n].n_dst; i++) {
            const struct dt_tensor *dst = &g->tensor[g->node[n].dst[i]];
            if (dst->role == DT_DIFF_PARAM && g->node[n].program == DT_TRAIN)
                order[n_params++] = dst->diff;
        }
    *n_trained = n_params;
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensor[t].role == DT_PARAM && (*n_trained == 0 || g->tensor[t].frozen))
            order[n_params++] = t;
    return n_params;
}

static enum dt_dtype gradient_type(const struct dt_plan *plan, int param)
{
    return plan->backend->dtype(plan->device, plan->graph, plan->graph->tensor[param].diff);
}

/* Moves parameters with fp32 gradients to the front if the others' are 16-bit; both parts keep
 * their order. Returns how many were moved. */
static int put_wide_first(const struct dt_plan *plan, int *order, int n_trained)
{
    int n_wide = 0;
    for (int i = 0; i < n_trained && plan->grads_type != DT_F32; i++) {
        const int param = order[i];
        if (gradient_type(plan, param) != DT_F32)
            continue;
        memmove(&order[n_wide + 1], &order[n_wide], (size_t)(i - n_wide) * sizeof *order);
        order[n_wide++] = param;
    }
    return n_wide;
}

static bool has_shadow(const struct dt_plan *plan, const int *order, int n_params)
{
    for (int i = 0; i < n_params; i++)
        if (plan->backend->dtype(plan->device, plan->graph, order[i]) != DT_F32)
            return true;
    return false;
}

static void place_persistent(struct dt_plan *plan, const int *order, int n_params, int n_wide)
{
    const struct dt_graph *g = plan->graph;
    size_t offset = 0, trained = 0, of_grads = 0;
    for (int i = 0; i < n_params; i++) {
        struct dt_place *place = &plan->place[order[i]];
        place->arena = DT_ARENA_PARAMS;
        place->offset = offset;
        int diff = g->tensor[order[i]].diff;
        if (diff >= 0) {
            plan->place[diff].arena = DT_ARENA_GRADS;
            plan->place[diff].offset = of_grads;
        }
        const size_t bytes = dt_plan_align_param(place->bytes);
        offset += bytes;
        if (i < n_wide)
            plan->n_wide = offset / sizeof(float);
        if (diff >= 0) {
            trained = offset;
            of_grads +=
                i < n_wide ? bytes : bytes / sizeof(float) * dt_dtype_bytes(plan->grads_type);
        }
    }
    plan->arena_bytes[DT_ARENA_PARAMS] = offset;
    plan->arena_bytes[DT_ARENA_SHADOW] = has_shadow(plan, order, n_params) ? offset / 2 : 0;
    plan->arena_bytes[DT_ARENA_GRADS] = of_grads;
    plan->arena_bytes[DT_ARENA_MOMENTUM] = trained;
    plan->arena_bytes[DT_ARENA_SQUARE] = dt_optim_has_square(plan->options.optim) ? trained : 0;
    plan->arena_bytes[DT_ARENA_OUTER] = plan->options.outer ? trained : 0;
    plan->arena_bytes[DT_ARENA_ANCHOR] = plan->options.outer ? trained : 0;
    plan->n_slots = 1;
    const struct dt_split *split = &plan->options.split;
    if (dt_split_has_slices(split))
        dt_slices_of(split->n_parts, split->first, split->first + split->n_passes, &plan->n_slots);
    plan->arena_bytes[DT_ARENA_ACCUM] =
        plan->options.accumulate ? (size_t)plan->n_slots * trained : 0;
    for (int t = 0; t < g->n_tensors; t++) {
        if (g->tensor[t].role != DT_STAT)
            continue;
        plan->place[t].arena = DT_ARENA_STATS;
        plan->place[t].offset = plan->arena_bytes[DT_ARENA_STATS];
        plan->arena_bytes[DT_ARENA_STATS] += dt_plan_align(plan->place[t].bytes);
    }
    for (int p = 0; p < DT_MAX_PROGRAMS; p++)
        if (g->program[p].divisor >= 0)
            plan->arena_bytes[DT_ARENA_COUNTS] = (size_t)plan->options.n_ranks * sizeof(float);
    plan->arena_bytes[DT_ARENA_KEPT_STATS] =
        dt_split_has_slices(split) ? plan->arena_bytes[DT_ARENA_STATS] : 0;
    plan->arena_bytes[DT_ARENA_EMA] = plan->options.ema ? offset : 0;
    plan->arena_bytes[DT_ARENA_EMA_STATS] =
        plan->options.ema ? plan->arena_bytes[DT_ARENA_STATS] : 0;
}

/* Bytes of the fp32 parameters whose gradients take `bytes` when sent between ranks. */
static size_t on_the_wire(const struct dt_plan *plan, size_t bytes)
{
    return bytes / dt_dtype_bytes(dt_plan_sum_type(plan)) * sizeof(float);
}

/* Index of the first parameter of the small last bucket. */
static int find_last_bucket(const struct dt_plan *plan, const int *order, int n_params)
{
    size_t bytes = 0;
    int first = n_params;
    while (first > 0) {
        bytes += dt_plan_align_param(plan->place[order[first - 1]].bytes);
        if (bytes > on_the_wire(plan, plan->options.last_bucket_bytes))
            break;
        first--;
    }
    return first == n_params ? n_params - 1 : first; /* at least one parameter */
}

static void need_norms(struct dt_plan *plan, size_t n)
{
    const size_t bytes = dt_plan_align(n * sizeof(double));
    if (bytes > plan->arena_bytes[DT_ARENA_NORMS])
        plan->arena_bytes[DT_ARENA_NORMS] = bytes;
}

/* A bucket of the parameters order[0 .. n). */
static dt_status add_bucket(struct dt_plan *plan, const int *order, int n)
{
    const struct dt_place *begin = &plan->place[order[0]], *end = &plan->place[order[n - 1]];
    const int b = plan->n_buckets++;
    struct dt_bucket *bucket = &plan->buckets[b];
    bucket->first = begin->offset / sizeof(float);
    bucket->count = (end->offset + dt_plan_align_param(end->bytes) - begin->offset) / sizeof(float);
    bucket->first_tile = b > 0 ? bucket[-1].first_tile + dt_tiles(bucket[-1].count) : 0;
    if (plan->options.clip)
        need_norms(plan, (size_t)(bucket->first_tile + dt_tiles(bucket->count)));
    const bool by_norms = dt_optim_trust(plan->options.optim) != DT_TRUST_NONE;
    int n_tiles = 0;
    DT_TRY(DT_NEW(bucket->segments, (size_t)n));
    for (int i = 0; i < n; i++) {
        const struct dt_tensor *tensor = &plan->graph->tensor[order[i]];
        const struct dt_place *place = &plan->place[order[i]];
        float decay = tensor->decay || plan->options.decay_norm_bias ? 1.0f : 0.0f;
        size_t first = place->offset / sizeof(float);
        size_t stop = (place->offset + dt_plan_align_param(place->bytes)) / sizeof(float);
        struct dt_segment *last = &bucket->segments[bucket->n_segments - 1];
        bool has_trust = by_norms && tensor->decay;
        if (bucket->n_segments > 0 && last->decay == decay && last->rate == tensor->rate &&
            !last->has_trust && !has_trust)
            last->count = stop - last->first; /* the gap between them is zero and stays zero */
        else
            bucket->segments[bucket->n_segments++] = (struct dt_segment){.first = first,
                                                                         .count = stop - first,
                                                                         .decay = decay,
                                                                         .rate = tensor->rate,
                                                                         .has_trust = has_trust};
    }
    for (int i = 0; i < bucket->n_segments; i++) {
        bucket->segments[i].first_tile = n_tiles;
        n_tiles += dt_tiles(bucket->segments[i].count);
    }
    if (by_norms) /* two sums per tile, for one bucket at a time */
        need_norms(plan, 2 * (size_t)n_tiles);
    return DT_OK;
}

static struct dt_bucket *bucket_of(struct dt_plan *plan, int param)
{
    const size_t first = plan->place[param].offset / sizeof(float);
    struct dt_bucket *bucket = plan->buckets;
    while (first < bucket->first || first >= bucket->first + bucket->count)
        bucket++;
    return bucket;
}

/* One rank sums nothing, so one bucket lets one UPDATE do everything. With slices the buckets must
 * not depend on the number of ranks: clipping adds norms bucket by bucket, and the result has the
 * same bits on any number. Wide parameters lie first in the arenas, but are the last bucket. */
static dt_status make_buckets(struct dt_plan *plan, const int *order, int n_params, int n_wide)
{
    bool many = plan->options.n_ranks > 1 || dt_split_has_slices(&plan->options.split);
    int last_start = many ? find_last_bucket(plan, order, n_params) : 0;
    size_t max = many ? on_the_wire(plan, plan->options.bucket_bytes) : SIZE_MAX;
    DT_TRY(DT_NEW(plan->buckets, (size_t)n_params));
    for (int i = n_wide; i < n_params;) {
        int start = i, limit = i < last_start ? last_start : n_params;
        for (size_t bytes = 0; i < limit && bytes < max; i++)
            bytes += dt_plan_align_param(plan->place[order[i]].bytes);
        DT_TRY(add_bucket(plan, order + start, i - start));
    }
    return n_wide > 0 ? add_bucket(plan, order, n_wide) : DT_OK;
}

/* The node after which a bucket's gradients are complete, in every program. */
static void find_last_writers(struct dt_plan *plan)
{
    const struct dt_graph *g = plan->graph;
    for (int b = 0; b < plan->n_buckets; b++)
        for (int p = 0; p < DT_MAX_PROGRAMS; p++)
            plan->buckets[b].last_writer[p] = -1;
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->node[n].n_dst; i++) {
            const struct dt_tensor *dst = &g->tensor[g->node[n].dst[i]];
            if (dst->role == DT_DIFF_PARAM)
                bucket_of(plan, dst->diff)->last_writer[g->node[n].program] = n;
        }
}

dt_status dt_plan_place_params(struct dt_plan *plan)
{
    const struct dt_graph *g = plan->graph;
    int *order = NULL;
    dt_status status = DT_OK;
    DT_TRY_OUT(DT_NEW(order, (size_t)g->n_tensors));
    int n_trained, n_params = order_params(g, order, &n_trained);
    int n = 0;
    for (int t = 0; t < g->n_tensors; t++)
        n += g->tensor[t].role == DT_PARAM;
    for (int i = 0; i < n_params; i++)
        if (g->tensor[order[i]].role != DT_PARAM)
            DT_TRY_OUT(DT_ERROR(DT_ERR_INTERNAL, "gradient of %s, which is not a parameter",
                                g->tensor[order[i]].name));
    if (n != n_params)
        DT_TRY_OUT(DT_ERROR(DT_ERR_INTERNAL, "%d parameters but %d gradients", n, n_params));
    /* The type that all gradients have, except for some in fp32. */
    plan->grads_type = DT_F32;
    for (int i = 0; i < n_trained; i++) {
        const enum dt_dtype type = gradient_type(plan, order[i]);
        if (type == DT_F32)
            continue;
        if (plan->grads_type != DT_F32 && type != plan->grads_type)
            DT_TRY_OUT(DT_ERROR(DT_ERR_INTERNAL, "the gradient of %s has a third type",
                                plan->graph->tensor[order[i]].name));
        plan->grads_type = type;
    }
    const int n_wide = put_wide_first(plan, order, n_trained);
    place_persistent(plan, order, n_params, n_wide);
    if (plan->arena_bytes[DT_ARENA_GRADS] > 0)
        DT_TRY_OUT(make_buckets(plan, order, n_trained, n_wide));
    if (plan->n_buckets > 0)
        find_last_writers(plan);
out:
    free(order);
    return status;
}

static struct dt_action *add_action(struct dt_plan *plan, int program, enum dt_action_kind kind,
                                    int node, int bucket)
{
    struct dt_action *action = &plan->actions[program][plan->n_actions[program]++];
    *action = (struct dt_action){.kind = kind, .node = node, .bucket = bucket};
    return action;
}

/* These actions follow all passes over the nodes. No update may run before all gradients are
 * checked: only then is it known whether the step counts. */
static void add_update(struct dt_plan *plan, int program, bool sums, bool updates)
{
    const bool central = plan->options.parallel.is_central;
    if (plan->graph->program[program].divisor >= 0)
        add_action(plan, program, DT_ACTION_DIVIDE, -1, -1);
    for (int b = 0; b < plan->n_buckets; b++) {
        if (sums)
            add_action(plan, program, DT_ACTION_WAIT, -1, b);
        if (updates)
            add_action(plan, program, DT_ACTION_CHECK, -1, b);
    }
    if (updates && plan->options.clip)
        add_action(plan, program, DT_ACTION_CLIP, -1, -1);
    for (int b = 0; b < plan->n_buckets && updates; b++)
        add_action(plan, program, DT_ACTION_UPDATE, -1, b);
    if (plan->options.ema)
        add_action(plan, program, DT_ACTION_EMA, -1, -1);
    if (central && !updates)
        add_action(plan, program, DT_ACTION_SHARE, -1, -1);
    if (updates || central)
        add_action(plan, program, DT_ACTION_SETTLE, -1, -1);
    if (central && updates)
        add_action(plan, program, DT_ACTION_SHARE, -1, -1);
}

dt_status dt_plan_make_actions(struct dt_plan *plan)
{
    const struct dt_graph *g = plan->graph;
    const struct dt_plan_parallel *parallel = &plan->options.parallel;
    const bool sums = plan->options.n_ranks > 1 && !parallel->sums_nothing;
    const bool updates = plan->options.is_server || !parallel->rank0_updates;
    size_t max = 3 * (size_t)g->n_nodes + 5 * (size_t)plan->n_buckets + 6;
    for (int p = 0; p < DT_MAX_PROGRAMS; p++)
        if (g->program[p].batch > 0)
            DT_TRY(DT_NEW(plan->actions[p], max));
    for (int n = 0; n < g->n_nodes; n++) {
        const int p = g->node[n].program;
        add_action(plan, p, DT_ACTION_OP, n, -1);
        if (dt_node_is_synced(&g->node[n])) {
            add_action(plan, p, DT_ACTION_SYNC, n, -1);
            add_action(plan, p, DT_ACTION_OP, n, -1)->second_half = true;
        }
        for (int i = 0; i < g->node[n].n_dst; i++)
            if (g->node[n].dst[i] == g->program[p].divisor)
                add_action(plan, p, DT_ACTION_COUNT, n, -1);
        for (int b = 0; b < plan->n_buckets; b++) {
            if (plan->buckets[b].last_writer[p] == n && plan->options.accumulate)
                add_action(plan, p, DT_ACTION_ACCUMULATE, -1, b);
            if (plan->buckets[b].last_writer[p] == n && sums)
                add_action(plan, p, DT_ACTION_REDUCE, -1, b);
        }
    }
    for (int p = 0; p < DT_MAX_PROGRAMS && plan->n_buckets > 0; p++)
        if (g->program[p].batch > 0 && g->program[p].phase == DT_TRAIN)
            add_update(plan, p, sums, updates);
    return DT_OK;
}
