/* The work arena: tensor lifetimes and offsets.
 *
 * Tensors that share memory because an op works in place, or because they are part of another
 * (dt_graph_share), form one block. Blocks (and the scratch of
 * each node, a block that lives for one node) are placed largest first at the lowest offset that is
 * free during their whole lifetime: the "greedy by size" rule of Pisarchyk and Lee, 2020. The
 * programs never run at the same time, so their blocks may overlap. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plan/plan_internal.h"

struct block {
    int program, first, last; /* lifetime as node ids */
    size_t bytes, offset;
    int tensor; /* first tensor of the block, or -1: scratch of node `first` */
};

static void use(struct dt_plan *plan, int t, int program, int node, int start)
{
    struct dt_place *place = &plan->place[t];
    if (place->first_use[program] < 0)
        /* Inputs are written before the first node runs. */
        place->first_use[program] = plan->graph->tensor[t].role == DT_INPUT ? start : node;
    place->last_use[program] = node;
}

void dt_plan_find_lifetimes(struct dt_plan *plan)
{
    const struct dt_graph *g = plan->graph;
    for (int t = 0; t < g->n_tensors; t++)
        for (int p = 0; p < DT_MAX_PROGRAMS; p++)
            plan->place[t].first_use[p] = plan->place[t].last_use[p] = -1;
    int start[DT_MAX_PROGRAMS], end[DT_MAX_PROGRAMS];
    int touched[DT_MAX_EXTRA_TENSORS], tensor[DT_MAX_SRC + DT_MAX_DST];
    for (int p = 0; p < DT_MAX_PROGRAMS; p++)
        start[p] = -1;
    for (int n = 0; n < g->n_nodes; n++) {
        const struct dt_node *node = &g->node[n];
        const int p = node->program;
        if (start[p] < 0)
            start[p] = n;
        end[p] = n;
        for (int i = dt_node_tensors(node, tensor); i > 0; i--)
            use(plan, tensor[i - 1], p, n, start[p]);
        for (int i = dt_plan_extra_tensors(plan, n, touched); i > 0; i--)
            use(plan, touched[i - 1], p, n, start[p]);
    }
    /* Outputs are read after the last node of their program. The memory of a whole is in use while
     * a part of it is. */
    for (int t = 0; t < g->n_tensors; t++)
        for (int p = 0; p < DT_MAX_PROGRAMS; p++) {
            const struct dt_place *place = &plan->place[t];
            if (place->first_use[p] < 0)
                continue;
            if (g->tensor[t].role == DT_OUTPUT)
                plan->place[t].last_use[p] = end[p];
            struct dt_place *whole = &plan->place[dt_tensor_whole(g, t)];
            if (place->first_use[p] < whole->first_use[p])
                whole->first_use[p] = place->first_use[p];
            if (place->last_use[p] > whole->last_use[p])
                whole->last_use[p] = place->last_use[p];
        }
}

static bool in_work_arena(const struct dt_tensor *tensor)
{
    return tensor->role == DT_INPUT || tensor->role == DT_ACT || tensor->role == DT_SAVED ||
           tensor->role == DT_DIFF || tensor->role == DT_DIFF_TERM || tensor->role == DT_OUTPUT;
}

/* The source whose memory this node's dst[0] takes over, or -1. */
static int find_inplace_source(const struct dt_plan *plan, int n)
{
    const struct dt_graph *g = plan->graph;
    const struct dt_node *node = &g->node[n];
    unsigned allowed = dt_op_inplace(node->op);
    if (node->dst[0] < 0)
        return -1;
    const struct dt_place *dst = &plan->place[node->dst[0]];
    if (dst->first_use[node->program] != n) /* an earlier node of its fusion writes it */
        return -1;
    for (int i = 0; i < node->n_src; i++) {
        int t = node->src[i];
        if (t < 0 || !(allowed >> i & 1))
            continue;
        const struct dt_place *src = &plan->place[t];
        if (in_work_arena(&g->tensor[t]) && g->tensor[t].role != DT_INPUT &&
            g->tensor[t].whole < 0 && g->tensor[node->dst[0]].whole < 0 &&
            src->last_use[node->program] == n && src->bytes == dst->bytes &&
            g->tensor[t].dtype == g->tensor[node->dst[0]].dtype)
            return t;
    }
    return -1;
}

/* Each tensor starts a block or, if computed in place, extends the block of its source; then one
 * block per scratch. block_of[t] is the block of tensor t. */
static int make_blocks(const struct dt_plan *plan, struct block *blocks, int *block_of)
{
    const struct dt_graph *g = plan->graph;
    int n_blocks = 0;
    for (int t = 0; t < g->n_tensors; t++)
        block_of[t] = -1;
    for (int n = 0; n < g->n_nodes; n++) {
        const struct dt_node *node = &g->node[n];
        int heir = find_inplace_source(plan, n);
        int tensor[DT_MAX_SRC + DT_MAX_DST], n_tensors = dt_node_tensors(node, tensor);
        for (int i = 0; i < n_tensors; i++) {
            const int t = dt_tensor_whole(g, tensor[i]);
            const struct dt_place *place = &plan->place[t];
            if (block_of[t] >= 0 || !in_work_arena(&g->tensor[t]))
                continue;
            if (t == node->dst[0] && heir >= 0) {
                block_of[t] = block_of[heir];
                blocks[block_of[t]].last = place->last_use[node->program];
                continue;
            }
            block_of[t] = n_blocks;
            blocks[n_blocks++] = (struct block){.program = node->program,
                                                .first = place->first_use[node->program],
                                                .last = place->last_use[node->program],
                                                .bytes = dt_plan_align(place->bytes),
                                                .tensor = t};
        }
        if (plan->scratch_bytes[n] > 0)
            blocks[n_blocks++] = (struct block){.program = node->program,
                                                .first = n,
                                                .last = n,
                                                .bytes = dt_plan_align(plan->scratch_bytes[n]),
                                                .tensor = -1};
    }
    return n_blocks;
}

static int compare_size(const void *a, const void *b)
{
    const struct block *x = *(struct block *const *)a, *y = *(struct block *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : (x < y ? -1 : x > y);
}

/* Places each block at the lowest offset where it fits between those placed before it that live at
 * the same time; placed[] is sorted by offset. Returns the bytes of all. */
static size_t place_blocks(struct block **by_size, struct block **placed, int n_blocks)
{
    size_t end = 0;
    for (int i = 0; i < n_blocks; i++) {
        struct block *block = by_size[i];
        for (int k = 0; k < i; k++) {
            const struct block *other = placed[k];
            if (other->program != block->program || other->first > block->last ||
                block->first > other->last)
                continue;
            if (other->offset >= block->offset + block->bytes)
                break;
            if (other->offset + other->bytes > block->offset)
                block->offset = other->offset + other->bytes;
        }
        if (block->offset + block->bytes > end)
            end = block->offset + block->bytes;
        int at = i;
        while (at > 0 && placed[at - 1]->offset > block->offset) {
            placed[at] = placed[at - 1];
            at--;
        }
        placed[at] = block;
    }
    return end;
}

dt_status dt_plan_place_work(struct dt_plan *plan)
{
    const struct dt_graph *g = plan->graph;
    size_t max = (size_t)g->n_tensors + (size_t)g->n_nodes;
    struct block *blocks = NULL, **by_size = NULL, **placed = NULL;
    int *block_of = NULL;
    dt_status status = DT_OK;
    DT_TRY_OUT(DT_NEW(blocks, max));
    DT_TRY_OUT(DT_NEW(by_size, max));
    DT_TRY_OUT(DT_NEW(placed, max));
    DT_TRY_OUT(DT_NEW(block_of, (size_t)g->n_tensors));

    int n_blocks = make_blocks(plan, blocks, block_of);
    for (int i = 0; i < n_blocks; i++)
        by_size[i] = &blocks[i];
    qsort(by_size, (size_t)n_blocks, sizeof(struct block *), compare_size);
    plan->arena_bytes[DT_ARENA_WORK] = place_blocks(by_size, placed, n_blocks);

    for (int i = 0; i < n_blocks; i++) {
        const size_t end = blocks[i].offset + blocks[i].bytes;
        if (g->program[blocks[i].program].phase == DT_TRAIN && end > plan->train_bytes)
            plan->train_bytes = end;
    }
    for (int i = 0; i < n_blocks; i++)
        if (blocks[i].tensor < 0)
            plan->scratch_offset[blocks[i].first] = blocks[i].offset;
    for (int t = 0; t < g->n_tensors; t++) {
        const int block = block_of[dt_tensor_whole(g, t)];
        if (block < 0)
            continue;
        plan->place[t].arena = DT_ARENA_WORK;
        plan->place[t].offset = blocks[block].offset;
    }
out:
    free(blocks);
    free(by_size);
    free(placed);
    free(block_of);
    return status;
}
