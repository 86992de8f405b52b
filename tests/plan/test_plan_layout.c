/* Plans over a null backend: lifetimes, places, buckets and step order, without a device.
 *
 * The null backend claims whatever fusions a test asks for and gives every node some scratch, so
 * the checks here are about the planner alone. */
#include <string.h>

#include <stdlib.h>

#include "base/mem.h"
#include "dtrain/models.h"
#include "dtrain/plan.h"
#include "plan_net.h"
#include "test.h"

enum { BATCH = 4, EVAL_BATCH = 8 };

static bool fuse_residual, mix_labels;
static const char *frozen; /* a module, NULL: none */
/* Of activations, of weights as nodes read them, and of their gradients. */
static enum dt_dtype null_type;

static bool null_supports(void *context, const struct dt_graph *g, const struct dt_node *node)
{
    (void)context;
    (void)g;
    return fuse_residual || !node->residual;
}

/* A prepared node is its number, counted from 1. */
static dt_status null_prepare(struct dt_device *dev, struct dt_exec **exec,
                              const struct dt_graph *g, int node)
{
    (void)dev;
    (void)g;
    *exec = (struct dt_exec *)(intptr_t)(node + 1);
    return DT_OK;
}

static dt_status null_autotune(struct dt_device *dev, dt_status prepared)
{
    (void)dev;
    return prepared;
}

static size_t null_scratch_bytes(struct dt_device *dev, const struct dt_exec *exec)
{
    (void)dev;
    int node = (int)(intptr_t)exec - 1;
    return node % 3 == 0 ? 0 : (size_t)node * 100;
}

static enum dt_dtype null_dtype(struct dt_device *dev, const struct dt_graph *g, int tensor)
{
    (void)dev;
    const struct dt_tensor *t = &g->tensor[tensor];
    return t->dtype != DT_F32 || dt_tensor_is_vector(t) ? t->dtype : null_type;
}

static size_t null_tensor_bytes(struct dt_device *dev, const struct dt_graph *g, int tensor)
{
    const struct dt_tensor *t = &g->tensor[tensor];
    enum dt_dtype type = t->role == DT_PARAM ? DT_F32 : null_dtype(dev, g, tensor);
    return dt_tensor_elements(t) * dt_dtype_bytes(type);
}

static void null_release(struct dt_device *dev, struct dt_exec *exec)
{
    (void)dev;
    (void)exec;
}

static const struct dt_backend null_backend = {
    .name = "null",
    .prepare = null_prepare,
    .autotune = null_autotune,
    .scratch_bytes = null_scratch_bytes,
    .dtype = null_dtype,
    .tensor_bytes = null_tensor_bytes,
    .release = null_release,
};

static void add_phase(struct dt_graph *g, const struct dt_model *model, enum dt_phase phase,
                      int batch, int size)
{
    static const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.2, 0.2, 0.2};
    const struct dt_model_options options = {.num_classes = 10, .dropout = 0.5};
    assert_int_equal(dt_graph_begin(g, phase, batch, size, size), DT_OK);
    if (mix_labels && phase == DT_TRAIN)
        assert_int_equal(dt_graph_mix_labels(g), DT_OK);
    int image = dt_graph_ingest(g, mean, std);
    dt_graph_softmax_xent(g, model->build(g, image, model, &options), 0.1);
    assert_int_equal(dt_graph_check(g), DT_OK);
}

static int bn_ranks;

static struct dt_graph *make_graph(const char *name, int size)
{
    struct dt_graph *g = NULL;
    const struct dt_model *model = dt_model_find(name);
    assert_non_null(model);
    assert_int_equal(dt_graph_create(&g), DT_OK);
    g->bn_ranks = bn_ranks;
    add_phase(g, model, DT_TRAIN, BATCH, size);
    add_phase(g, model, DT_EVAL, EVAL_BATCH, size);
    if (frozen)
        assert_true(dt_graph_freeze(g, frozen) > 0);
    assert_int_equal(dt_graph_fuse(g, null_supports, NULL), DT_OK);
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    return g;
}

static struct dt_plan *make_plan(const struct dt_graph *g, int n_ranks, bool accumulate)
{
    struct dt_plan *plan = NULL;
    const struct dt_plan_options options = {.bucket_bytes = 4 << 20,
                                            .last_bucket_bytes = 1 << 20,
                                            .n_ranks = n_ranks,
                                            .accumulate = accumulate,
                                            .ema = accumulate};
    assert_int_equal(dt_plan_layout(&plan, g, &null_backend, NULL, &options), DT_OK);
    return plan;
}

/* Walks a phase with the memory as a byte-wise owner map at 64-byte grain: a node may only read
 * what still belongs to the tensor it reads. This finds every wrong overlap, in place or not. */
static void check_memory(const struct dt_plan *plan, enum dt_phase phase)
{
    const struct dt_graph *g = plan->graph;
    size_t grains = plan->arena_bytes[DT_ARENA_WORK] / 64;
    int *owner = malloc(grains * sizeof(int));
    assert_non_null(owner);
    for (size_t i = 0; i < grains; i++)
        owner[i] = -1;
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensor[t].role == DT_INPUT && plan->place[t].first_use[phase] >= 0)
            for (size_t i = 0; i < (plan->place[t].bytes + 63) / 64; i++)
                owner[plan->place[t].offset / 64 + i] = t;
    for (int n = 0; n < g->n_nodes; n++) {
        const struct dt_node *node = &g->node[n];
        if (node->phase != phase)
            continue;
        for (size_t i = 0; i < (plan->scratch_bytes[n] + 63) / 64; i++)
            owner[plan->scratch_offset[n] / 64 + i] = -2; /* may not hit a source, checked next */
        for (int s = 0; s < node->n_src; s++) {
            if (node->src[s] < 0)
                continue;
            const struct dt_place *place = &plan->place[node->src[s]];
            if (place->arena != DT_ARENA_WORK)
                continue;
            for (size_t i = 0; i < (place->bytes + 63) / 64; i++)
                if (owner[place->offset / 64 + i] != node->src[s])
                    fail_msg("%s %s reads %s, which was overwritten by tensor %d",
                             dt_op_name(node->op), node->name, g->tensor[node->src[s]].name,
                             owner[place->offset / 64 + i]);
        }
        for (int d = 0; d < node->n_dst; d++) {
            const struct dt_place *place = &plan->place[node->dst[d]];
            if (place->arena != DT_ARENA_WORK)
                continue;
            assert_true(place->offset + place->bytes <= plan->arena_bytes[DT_ARENA_WORK]);
            for (size_t i = 0; i < (place->bytes + 63) / 64; i++) {
                int before = owner[place->offset / 64 + i];
                assert_true(before != -2); /* dst and scratch of one node are apart */
                owner[place->offset / 64 + i] = node->dst[d];
            }
        }
        /* A source may only be overwritten by dst[0], and only if the op allows it. */
        for (int s = 0; s < node->n_src; s++) {
            if (node->src[s] < 0)
                continue;
            const struct dt_place *src = &plan->place[node->src[s]];
            bool alive = src->last_use[phase] > n;
            for (size_t i = 0; src->arena == DT_ARENA_WORK && i < (src->bytes + 63) / 64; i++) {
                int now = owner[src->offset / 64 + i];
                if (now == node->src[s])
                    continue;
                assert_false(alive);
                assert_int_equal(now, node->dst[0]);
                assert_true(dt_op_inplace(node->op) >> s & 1);
            }
        }
        for (size_t i = 0; i < (plan->scratch_bytes[n] + 63) / 64; i++)
            owner[plan->scratch_offset[n] / 64 + i] = -1;
    }
    free(owner);
}

/* What GPU libraries like best: 256 bytes, also for the 16-bit copies and gradients. */
static void check_alignment(const struct dt_plan *plan)
{
    for (int t = 0; t < plan->graph->n_tensors; t++) {
        const struct dt_place *place = &plan->place[t];
        assert_int_equal(place->offset % (place->arena == DT_ARENA_PARAMS ? 512 : 256), 0);
    }
    for (int n = 0; n < plan->graph->n_nodes; n++)
        assert_int_equal(plan->scratch_offset[n] % 256, 0);
}

static void check_buckets(const struct dt_plan *plan)
{
    const struct dt_graph *g = plan->graph;
    const bool is_mixed = null_type != DT_F32;
    size_t next = plan->n_wide;
    assert_true((plan->n_wide > 0) == is_mixed);
    for (int b = 0; b < plan->n_buckets; b++) {
        const struct dt_bucket *bucket = &plan->buckets[b];
        if (is_mixed && b == plan->n_buckets - 1) { /* that of the vectors */
            assert_int_equal(bucket->count, plan->n_wide);
            assert_int_equal(next * 4, plan->arena_bytes[DT_ARENA_MOMENTUM]);
            next = 0;
        }
        assert_int_equal(bucket->first, next); /* buckets tile the arena in order */
        next += bucket->count;
        if (next > plan->n_wide && b > 0)
            assert_true(bucket->last_writer[DT_TRAIN] >= bucket[-1].last_writer[DT_TRAIN]);
        size_t inside = bucket->first;
        for (int s = 0; s < bucket->n_segments; s++) {
            assert_int_equal(bucket->segments[s].first, inside);
            inside += bucket->segments[s].count;
        }
        assert_int_equal(inside, next);
    }
    const size_t grad_bytes = dt_dtype_bytes(null_type);
    next = plan->arena_bytes[DT_ARENA_MOMENTUM] / sizeof(float);
    assert_int_equal(plan->grads_type, null_type);
    assert_int_equal(plan->n_wide * 4 + (next - plan->n_wide) * grad_bytes,
                     plan->arena_bytes[DT_ARENA_GRADS]);
    assert_int_equal(plan->options.accumulate ? next * sizeof(float) : 0,
                     plan->arena_bytes[DT_ARENA_ACCUM]);
    size_t end_of_params = next * sizeof(float);
    for (int t = 0; t < g->n_tensors; t++) {
        if (g->tensor[t].role != DT_PARAM)
            continue;
        const struct dt_place *place = &plan->place[t];
        assert_int_equal(place->arena, DT_ARENA_PARAMS);
        if (g->tensor[t].frozen) { /* behind the last bucket, in this order */
            assert_int_equal(place->offset, end_of_params);
            end_of_params += (place->bytes + 511) / 512 * 512;
            continue;
        }
        const struct dt_place *diff = &plan->place[g->tensor[t].diff];
        assert_int_equal(diff->arena, DT_ARENA_GRADS);
        const size_t at = place->offset / sizeof(float);
        const bool is_wide = is_mixed && dt_tensor_is_vector(&g->tensor[t]);
        assert_true(is_wide == (at < plan->n_wide));
        assert_int_equal(diff->offset,
                         is_wide ? at * 4 : plan->n_wide * 4 + (at - plan->n_wide) * grad_bytes);
        int n_in = 0;
        for (int b = 0; b < plan->n_buckets; b++) {
            const struct dt_bucket *bucket = &plan->buckets[b];
            size_t first = bucket->first * 4, end = first + bucket->count * 4;
            n_in += place->offset >= first && place->offset + place->bytes <= end;
            for (int s = 0; s < bucket->n_segments; s++)
                if (place->offset / 4 >= bucket->segments[s].first &&
                    place->offset / 4 < bucket->segments[s].first + bucket->segments[s].count)
                    assert_true((bucket->segments[s].decay == 1.0f) == g->tensor[t].decay);
        }
        assert_int_equal(n_in, 1);
    }
    assert_int_equal(end_of_params, plan->arena_bytes[DT_ARENA_PARAMS]);
    assert_int_equal(null_type != DT_F32 ? end_of_params / 2 : 0,
                     plan->arena_bytes[DT_ARENA_SHADOW]);
    assert_int_equal(plan->options.ema ? end_of_params : 0, plan->arena_bytes[DT_ARENA_EMA]);
    assert_int_equal(plan->options.ema ? plan->arena_bytes[DT_ARENA_STATS] : 0,
                     plan->arena_bytes[DT_ARENA_EMA_STATS]);
}

static void check_steps(const struct dt_plan *plan)
{
    const struct dt_graph *g = plan->graph;
    bool *written = calloc((size_t)g->n_tensors, sizeof(bool));
    /* Per bucket: 0 open, 1 accumulated, 2 reduced, 3 waited, 4 checked, 5 updated. */
    int state[512] = {0}, n_checked = 0, n_clipped = 0, n_averaged = 0, n_settled = 0;
    bool many = plan->options.n_ranks > 1;
    int ready = many ? 3 : plan->options.accumulate ? 1 : 0;
    assert_non_null(written);
    for (int i = 0; i < plan->n_actions[DT_TRAIN]; i++) {
        const struct dt_action *step = &plan->actions[DT_TRAIN][i];
        int b = step->bucket;
        switch (step->kind) {
        case DT_ACTION_OP:
            for (int d = 0; d < g->node[step->node].n_dst; d++)
                written[g->node[step->node].dst[d]] = true;
            break;
        case DT_ACTION_SYNC: /* between the halves of a node with statistics of the batch */
            assert_true(dt_node_is_synced(&g->node[step->node]) && g->bn_ranks > 1);
            assert_true(step[-1].node == step->node && !step[-1].second_half);
            assert_true(step[1].node == step->node && step[1].second_half);
            break;
        case DT_ACTION_ACCUMULATE:
            assert_int_equal(state[b], 0);
            state[b] = 1;
            break;
        case DT_ACTION_REDUCE:
            assert_int_equal(state[b], plan->options.accumulate ? 1 : 0);
            /* Directly after its last writer (other bucket steps may stand between). */
            for (int j = i - 1; j >= 0; j--)
                if (plan->actions[DT_TRAIN][j].kind == DT_ACTION_OP) {
                    assert_int_equal(plan->actions[DT_TRAIN][j].node,
                                     plan->buckets[b].last_writer[DT_TRAIN]);
                    break;
                }
            for (int t = 0; t < g->n_tensors; t++)
                if (g->tensor[t].role == DT_PARAM && g->tensor[t].diff >= 0 &&
                    plan->place[t].offset / 4 >= plan->buckets[b].first &&
                    plan->place[t].offset / 4 < plan->buckets[b].first + plan->buckets[b].count)
                    assert_true(written[g->tensor[t].diff]);
            state[b] = 2;
            break;
        case DT_ACTION_WAIT:
            assert_int_equal(state[b], 2);
            state[b] = 3;
            break;
        case DT_ACTION_CHECK:
            assert_int_equal(state[b], ready);
            state[b] = 4;
            n_checked++;
            break;
        case DT_ACTION_CLIP:
            assert_true(plan->options.clip && n_clipped++ == 0);
            assert_int_equal(n_checked, plan->n_buckets);
            break;
        case DT_ACTION_UPDATE:
            assert_int_equal(state[b], 4);
            assert_int_equal(n_checked, plan->n_buckets); /* all before the first */
            assert_int_equal(n_clipped, plan->options.clip);
            state[b] = 5;
            break;
        case DT_ACTION_EMA:
            assert_int_equal(i, plan->n_actions[DT_TRAIN] - 2);
            n_averaged++;
            break;
        case DT_ACTION_SETTLE:
            assert_int_equal(i, plan->n_actions[DT_TRAIN] - 1);
            n_settled++;
            break;
        case DT_ACTION_SHARE: /* comm.mode central only */
        case DT_ACTION_COUNT: /* with a divisor only */
        case DT_ACTION_DIVIDE:
            fail();
            break;
        case DT_N_ACTION_KINDS:
            fail();
        }
    }
    assert_int_equal(n_averaged, plan->options.ema);
    assert_int_equal(n_settled, 1);
    for (int b = 0; b < plan->n_buckets; b++)
        assert_int_equal(state[b], 5);
    for (int i = 0; i < plan->n_actions[DT_EVAL]; i++)
        assert_int_equal(plan->actions[DT_EVAL][i].kind, DT_ACTION_OP);
    free(written);
}

static void check_plan(const struct dt_plan *plan)
{
    check_memory(plan, DT_TRAIN);
    check_memory(plan, DT_EVAL);
    check_alignment(plan);
    check_buckets(plan);
    check_steps(plan);
}

static const struct {
    const char *model;
    int size;
} models[] = {
    {"tiny", 32},     {"resnet20", 32}, {"resnet18", 64}, {"resnet50", 64},
    {"vgg11_bn", 64}, {"vgg11", 64},    {"alexnet", 96},
};

TEST(every_model)
{
    for (size_t m = 0; m < DT_COUNT(models); m++)
        for (int variant = 0; variant < 4; variant++) {
            fuse_residual = variant & 1;
            null_type = DT_F32;
            bn_ranks = variant & 2;
            struct dt_graph *g = make_graph(models[m].model, models[m].size);
            struct dt_plan *plan = make_plan(g, variant & 2 ? 2 : 1, variant == 3);
            check_plan(plan);
            dt_plan_destroy(plan);
            dt_graph_destroy(g);
        }
    bn_ranks = 0;
}

/* Two more inputs, which live from the beginning to the loss; nothing else is added. */
TEST(mixed_labels)
{
    fuse_residual = true;
    struct dt_graph *plain = make_graph("tiny", 32);
    mix_labels = true;
    struct dt_graph *g = make_graph("tiny", 32);
    mix_labels = false;
    struct dt_plan *plan = make_plan(g, 1, false);
    assert_int_equal(g->n_nodes, plain->n_nodes);
    assert_int_equal(g->n_tensors, plain->n_tensors + 2);
    const int inputs[2] = {g->program[DT_TRAIN].labels2, g->program[DT_TRAIN].mix_share};
    for (int i = 0; i < 2; i++) {
        const struct dt_place *place = &plan->place[inputs[i]];
        assert_int_equal(place->arena, DT_ARENA_WORK);
        assert_int_equal(place->bytes, BATCH * 4);
        assert_int_equal(place->first_use[DT_TRAIN], 0);
        assert_int_equal(g->node[place->last_use[DT_TRAIN]].op, DT_OP_SOFTMAX_XENT);
        assert_int_equal(place->first_use[DT_EVAL], -1);
    }
    check_memory(plan, DT_TRAIN);
    check_memory(plan, DT_EVAL);
    dt_plan_destroy(plan);
    dt_graph_destroy(g);
    dt_graph_destroy(plain);
}

/* In 32 and 16 bits, on 1 and 2 ranks; below the rest, and between. */
TEST(frozen)
{
    fuse_residual = true;
    for (int variant = 0; variant < 8; variant++) {
        null_type = variant & 1 ? DT_F16 : DT_F32;
        bn_ranks = variant & 4 ? 2 : 0;
        struct dt_graph *whole = make_graph("resnet18", 64);
        frozen = variant & 2 ? "layer3" : "conv1";
        struct dt_graph *g = make_graph("resnet18", 64);
        frozen = NULL;
        struct dt_plan *plan = make_plan(g, variant & 4 ? 2 : 1, variant == 7);
        assert_true(g->n_nodes < whole->n_nodes);
        check_plan(plan);
        dt_plan_destroy(plan);
        dt_graph_destroy(g);
        dt_graph_destroy(whole);
    }
    null_type = DT_F32;
    bn_ranks = 0;
}

/* Mixed precision: types, shadow, fp32 sums of 16-bit gradients, 1 and 2 ranks. */
TEST(mixed_precision)
{
    fuse_residual = true;
    null_type = DT_F16;
    for (size_t m = 0; m < DT_COUNT(models); m++)
        for (int variant = 0; variant < 4; variant++) {
            const struct dt_plan_options options = {.bucket_bytes = 4 << 20,
                                                    .last_bucket_bytes = 1 << 20,
                                                    .n_ranks = variant & 1 ? 2 : 1,
                                                    .accumulate = variant & 2};
            struct dt_graph *g = make_graph(models[m].model, models[m].size);
            struct dt_plan *plan = NULL;
            assert_int_equal(dt_plan_layout(&plan, g, &null_backend, NULL, &options), DT_OK);
            check_plan(plan);
            dt_plan_destroy(plan);
            dt_graph_destroy(g);
        }
    null_type = DT_F32;
}

/* A convolution moves half the bytes in 16 bits, weights included; pixels are bytes anyway. */
TEST(node_bytes)
{
    static const struct {
        enum dt_dtype type;
        size_t bytes;
    } types[] = {{DT_F32, 4}, {DT_F16, 2}};
    fuse_residual = true;
    for (size_t i = 0; i < DT_COUNT(types); i++) {
        null_type = types[i].type;
        struct dt_graph *g = make_graph("resnet20", 32);
        struct dt_plan *plan = make_plan(g, 1, false);
        size_t n_convs = 0;
        for (int n = 0; n < g->n_nodes; n++) {
            const struct dt_node *node = &g->node[n];
            size_t elements = 0;
            if (node->op != DT_OP_CONV && node->op != DT_OP_CONV_BWD_WEIGHTS)
                continue;
            for (int s = 0; s < node->n_src; s++)
                elements += dt_tensor_elements(&g->tensor[node->src[s]]);
            elements += dt_tensor_elements(&g->tensor[node->dst[0]]);
            assert_true(dt_plan_node_bytes(plan, node) == (double)(elements * types[i].bytes));
            n_convs++;
        }
        assert_true(n_convs > 0);
        size_t pixels = dt_tensor_elements(&g->tensor[g->node[0].src[0]]);
        assert_int_equal(g->node[0].op, DT_OP_INGEST);
        assert_true(dt_plan_node_bytes(plan, &g->node[0]) ==
                    (double)(pixels * (1 + types[i].bytes)));
        dt_plan_destroy(plan);
        dt_graph_destroy(g);
    }
    null_type = DT_F32;
}

static int count_nodes(const struct dt_graph *g, enum dt_phase phase, enum dt_op op, bool relu,
                       bool residual)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        n += node->phase == phase && node->op == op && (node->activation == DT_RELU) == relu &&
             node->residual == residual;
    }
    return n;
}

/* A device that takes every fusion gets ResNet-50 as the fewest kernels: 53 convolutions, 53 batch
 * norms that hold all ReLUs and all residual sums, and nothing of either left over. */
TEST(no_fusion_is_lost)
{
    fuse_residual = true;
    struct dt_graph *g = make_graph("resnet50", 64);
    for (int phase = 0; phase < DT_N_PHASES; phase++) {
        assert_int_equal(count_nodes(g, phase, DT_OP_BN, true, true), 16);
        assert_int_equal(count_nodes(g, phase, DT_OP_BN, true, false), 33);
        assert_int_equal(count_nodes(g, phase, DT_OP_BN, false, false), 4);
        assert_int_equal(count_nodes(g, phase, DT_OP_CONV, false, false), 53);
        for (int relu = 0; relu < 2; relu++) {
            assert_int_equal(count_nodes(g, phase, DT_OP_ACTIVATION, relu, false), 0);
            assert_int_equal(count_nodes(g, phase, DT_OP_ACTIVATION_BWD, relu, false), 0);
        }
    }
    /* The gradient of a block's input has two terms; bn_bwd of the block before sums them itself,
     * but after the stem's max pooling stands no bn. */
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_ADD, false, false), 1);
    assert_int_equal(count_nodes(g, DT_EVAL, DT_OP_ADD, false, false), 0);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_BN_BWD, true, true), 16);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_CONV_BWD_DATA, false, false), 52);
    dt_graph_destroy(g);
}

TEST(bucket_sizes)
{
    fuse_residual = false;
    null_type = DT_F32;
    struct dt_graph *g = make_graph("resnet50", 64);
    struct dt_plan *plan = make_plan(g, 2, false);
    /* The largest parameter has 9 MiB; the last bucket is small, the one before it takes the rest.
     */
    for (int b = 0; b < plan->n_buckets; b++) {
        size_t bytes = plan->buckets[b].count * sizeof(float);
        if (b == plan->n_buckets - 1)
            assert_true(bytes <= 1 << 20);
        else
            assert_true(bytes < 13 << 20);
        if (b < plan->n_buckets - 2)
            assert_true(bytes >= 4 << 20);
    }
    assert_in_range(plan->n_buckets, 10, 25);
    dt_plan_destroy(plan);
    dt_graph_destroy(g);
}

TEST(memory_limit)
{
    struct dt_graph *g = make_graph("resnet18", 64);
    struct dt_plan *plan = NULL;
    const struct dt_plan_options options = {
        .bucket_bytes = 4 << 20, .last_bucket_bytes = 1 << 20, .n_ranks = 1, .max_bytes = 64 << 20};
    assert_int_equal(dt_plan_build(&plan, g, &null_backend, NULL, NULL, &options), DT_ERR_MEMORY);
    assert_null(plan);
    assert_non_null(strstr(dt_error_text(), "train.micro_batch_size"));
    dt_graph_destroy(g);
}

TEST(memory_is_reused)
{
    fuse_residual = false;
    struct dt_graph *g = make_graph("resnet50", 64);
    struct dt_plan *plan = make_plan(g, 1, false);
    /* What the backward pass needs must stay: half of all bytes is a bound with room to spare. */
    assert_true(plan->arena_bytes[DT_ARENA_WORK] < bytes_without_sharing(plan) * 6 / 10);
    dt_plan_destroy(plan);
    dt_graph_destroy(g);
}

/* No planner can need less than the tensors that are alive at one node. */
TEST(close_to_lower_bound)
{
    fuse_residual = false;
    for (size_t m = 0; m < DT_COUNT(models); m++) {
        struct dt_graph *g = make_graph(models[m].model, models[m].size);
        struct dt_plan *plan = make_plan(g, 1, false);
        size_t bound = 0;
        for (int n = 0; n < g->n_nodes; n++) {
            enum dt_phase phase = g->node[n].phase;
            size_t alive = plan->scratch_bytes[n];
            for (int t = 0; t < g->n_tensors; t++) {
                const struct dt_place *place = &plan->place[t];
                /* A source that dies here may lend its memory to dst[0]. */
                if (place->arena == DT_ARENA_WORK && place->first_use[phase] >= 0 &&
                    place->first_use[phase] < n && place->last_use[phase] >= n)
                    alive += place->bytes;
            }
            if (alive > bound)
                bound = alive;
        }
        assert_true(plan->arena_bytes[DT_ARENA_WORK] >= bound);
        assert_true((double)plan->arena_bytes[DT_ARENA_WORK] < 1.25 * (double)bound);
        dt_plan_destroy(plan);
        dt_graph_destroy(g);
    }
}

TEST(print)
{
    fuse_residual = true;
    struct dt_graph *g = make_graph("resnet20", 32);
    struct dt_plan *plan = make_plan(g, 2, false);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    dt_plan_print_memory(plan, out);
    dt_plan_print_actions(plan, out);
    fclose(out);
    assert_non_null(strstr(text, "conv_bwd_weights"));
    assert_non_null(strstr(text, "reduce"));
    assert_non_null(strstr(text, "layer3.2.conv2"));
    free(text);
    dt_plan_destroy(plan);
    dt_graph_destroy(g);
}

TEST_MAIN(NULL, NULL)
