/* Building graphs: shapes, shared parameters, remembered errors, the op table. */
#include <string.h>

#include "base/mem.h"
#include "dtrain/graph.h"
#include "test_status.h"

static const double mean[3] = {0.5, 0.25, 0.125}, std[3] = {1, 2, 4};
static const struct dt_init init = {DT_INIT_NORMAL, 0.01};

static struct dt_graph *new_graph(void)
{
    struct dt_graph *g;
    assert_int_equal(dt_graph_create(&g), DT_OK);
    return g;
}

static struct dt_graph *begin(enum dt_phase phase, int batch, int image_size, int *src)
{
    struct dt_graph *g = new_graph();
    assert_int_equal(dt_graph_begin(g, phase, batch, image_size, image_size), DT_OK);
    *src = dt_graph_ingest(g, mean, std);
    assert_in_range(*src, 0, 100);
    return g;
}

static struct dt_conv_options conv_options(int out_channels, int kernel, int stride, int pad,
                                           bool bias)
{
    return (struct dt_conv_options){.out_channels = out_channels,
                                    .kernel = kernel,
                                    .stride = stride,
                                    .pad = pad,
                                    .bias = bias,
                                    .init = init,
                                    .bias_init = {DT_INIT_UNIFORM, 0.5}};
}

static void assert_dims(const struct dt_graph *g, int id, const char *expected)
{
    char text[64];
    assert_in_range(id, 0, g->n_tensors - 1);
    assert_string_equal(dt_tensor_format_dims(text, sizeof text, &g->tensor[id]), expected);
}

static void assert_refused(struct dt_graph *g, dt_status status, const char *part)
{
    assert_error(dt_graph_check(g), status, part);
    dt_graph_destroy(g);
}

TEST(inputs)
{
    int src;
    struct dt_graph *g = begin(DT_TRAIN, 8, 32, &src);
    const struct dt_tensor *pixels = &g->tensor[g->program[DT_TRAIN].pixels];
    const struct dt_tensor *labels = &g->tensor[g->program[DT_TRAIN].labels];
    assert_dims(g, g->program[DT_TRAIN].pixels, "8x3x32x32");
    assert_dims(g, g->program[DT_TRAIN].labels, "8");
    assert_int_equal(pixels->dtype, DT_U8);
    assert_int_equal(pixels->role, DT_INPUT);
    assert_int_equal(labels->dtype, DT_I32);
    assert_int_equal(g->program[DT_EVAL].pixels, -1);
    assert_int_equal(dt_graph_program(g)->batch, 8);
    assert_dims(g, src, "8x3x32x32");
    assert_int_equal(g->tensor[src].role, DT_ACT);
    assert_int_equal(g->tensor[src].dtype, DT_F32);
    assert_int_equal(g->node[0].op, DT_OP_INGEST);
    assert_true(g->node[0].attr.ingest.mean[1] == 0.25f && g->node[0].attr.ingest.std[2] == 4);
    assert_int_equal(dt_graph_begin(g, DT_EVAL, 0, 32, 32), DT_ERR_CONFIG);
    for (int program = DT_N_PHASES; program < DT_MAX_PROGRAMS; program++) {
        assert_int_equal(dt_graph_begin(g, DT_TRAIN, 4, 32, 64), DT_OK);
        assert_int_equal(g->current, program);
        assert_dims(g, dt_graph_program(g)->pixels, "4x3x32x64");
    }
    assert_int_equal(dt_graph_begin(g, DT_TRAIN, 4, 64, 32), DT_ERR_CONFIG);
    assert_int_equal(dt_graph_begin(g, DT_EVAL, 4, 32, 32), DT_OK);
    assert_int_equal(g->current, DT_EVAL);
    dt_graph_destroy(g);
    dt_graph_destroy(NULL);
}

TEST(mixed_labels)
{
    int src;
    struct dt_graph *g = begin(DT_TRAIN, 6, 8, &src);
    assert_int_equal(g->program[DT_TRAIN].labels2, -1);
    assert_int_equal(g->program[DT_TRAIN].mix_share, -1);
    assert_int_equal(dt_graph_mix_labels(g), DT_OK);
    const int labels2 = g->program[DT_TRAIN].labels2, share = g->program[DT_TRAIN].mix_share;
    assert_dims(g, labels2, "6");
    assert_dims(g, share, "6");
    assert_int_equal(g->tensor[labels2].dtype, DT_I32);
    assert_int_equal(g->tensor[share].dtype, DT_F32);
    assert_int_equal(g->tensor[labels2].role, DT_INPUT);
    assert_int_equal(g->tensor[share].role, DT_INPUT);
    assert_int_equal(g->program[DT_EVAL].labels2, -1);
    dt_graph_softmax_xent(g, dt_graph_linear(g, src, "fc", 10, init, init), 0.1);
    const struct dt_node *loss = &g->node[g->n_nodes - 1];
    assert_int_equal(loss->n_src, 4);
    assert_int_equal(loss->src[1], g->program[DT_TRAIN].labels);
    assert_int_equal(loss->src[DT_XENT_LABELS2], labels2);
    assert_int_equal(loss->src[DT_XENT_MIX_SHARE], share);
    assert_int_equal(loss->n_dst, 1);
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    dt_graph_destroy(g);

    g = new_graph();
    assert_error(dt_graph_mix_labels(g), DT_ERR_INTERNAL, "dt_graph_begin first");
    dt_graph_destroy(g);
}

TEST(shapes)
{
    int src;
    struct dt_graph *g = begin(DT_TRAIN, 2, 30, &src);
    int conv = dt_graph_conv(g, src, "conv", conv_options(16, 7, 2, 3, false));
    assert_dims(g, conv, "2x16x15x15");
    int bn = dt_graph_bn(g, conv, "bn", 0.5);
    int relu = dt_graph_relu(g, bn, "relu");
    int pool = dt_graph_max_pool(g, relu, "pool", 3, 2, 0);
    assert_dims(g, pool, "2x16x7x7");
    assert_dims(g, dt_graph_max_pool(g, relu, "pool1", 3, 2, 1), "2x16x8x8");
    assert_dims(g, dt_graph_max_pool_ceil(g, relu, "pool3", 2, 2), "2x16x8x8");
    assert_dims(g, dt_graph_max_pool(g, relu, "pool2", 2, 2, 0), "2x16x7x7");
    int sum = dt_graph_add(g, pool, pool, "add");
    assert_dims(g, sum, "2x16x7x7");
    int avg = dt_graph_avg_pool(g, sum, "avg", 3);
    assert_dims(g, avg, "2x16x3x3");
    assert_int_equal(dt_graph_avg_pool(g, avg, "same", 3), avg);
    int drop = dt_graph_dropout(g, avg, "drop", 0.5);
    assert_dims(g, drop, "2x16x3x3");
    int fc = dt_graph_linear(g, drop, "fc", 10, init, init);
    assert_dims(g, fc, "2x10x1x1");
    dt_graph_softmax_xent(g, fc, 0.1);
    assert_int_equal(dt_graph_check(g), DT_OK);
    assert_int_equal(g->program[DT_TRAIN].logits, fc);

    const struct dt_node *loss = &g->node[g->n_nodes - 1];
    assert_int_equal(loss->op, DT_OP_SOFTMAX_XENT);
    assert_int_equal(loss->n_src, 2);
    assert_int_equal(loss->src[1], g->program[DT_TRAIN].labels);
    assert_int_equal(loss->n_dst, 1);
    assert_dims(g, loss->dst[0], "2x10x1x1");
    assert_string_equal(g->tensor[loss->dst[0]].name, "diff_fc");
    assert_int_equal(g->tensor[loss->dst[0]].role, DT_DIFF);
    dt_graph_destroy(g);
}

static void assert_param(const struct dt_graph *g, const char *name, enum dt_role role,
                         const char *dims, bool decay, enum dt_init_kind kind, double value)
{
    int id = dt_graph_find(g, name);
    assert_dims(g, id, dims);
    const struct dt_tensor *t = &g->tensor[id];
    assert_int_equal(t->role, role);
    assert_int_equal(t->dtype, DT_F32);
    assert_int_equal(t->decay, decay);
    assert_int_equal(t->init.kind, kind);
    assert_true(t->init.value == value);
    assert_int_equal(t->diff, -1);
}

TEST(parameters)
{
    int src;
    struct dt_graph *g = begin(DT_TRAIN, 2, 8, &src);
    int x = dt_graph_conv(g, src, "conv", conv_options(4, 3, 1, 1, true));
    x = dt_graph_bn(g, x, "bn", 0.5);
    dt_graph_linear(g, x, "fc", 10, init, (struct dt_init){DT_INIT_CONSTANT, 0});
    assert_param(g, "conv.weight", DT_PARAM, "4x3x3x3", true, DT_INIT_NORMAL, 0.01);
    assert_param(g, "conv.bias", DT_PARAM, "4", false, DT_INIT_UNIFORM, 0.5);
    assert_param(g, "bn.weight", DT_PARAM, "4", false, DT_INIT_CONSTANT, 0.5);
    assert_param(g, "bn.bias", DT_PARAM, "4", false, DT_INIT_CONSTANT, 0);
    assert_param(g, "bn.running_mean", DT_STAT, "4", false, DT_INIT_CONSTANT, 0);
    assert_param(g, "bn.running_var", DT_STAT, "4", false, DT_INIT_CONSTANT, 1);
    assert_param(g, "fc.weight", DT_PARAM, "10x256", true, DT_INIT_NORMAL, 0.01);
    assert_param(g, "fc.bias", DT_PARAM, "10", false, DT_INIT_CONSTANT, 0);
    assert_int_equal(dt_graph_find(g, "fc.weights"), -1);

    const struct dt_node *bn = &g->node[2];
    assert_int_equal(bn->n_src, 5);
    assert_int_equal(bn->n_dst, 3);
    assert_dims(g, bn->dst[1], "4");
    assert_int_equal(g->tensor[bn->dst[1]].role, DT_SAVED);
    assert_string_equal(g->tensor[bn->dst[DT_BN_VARIANCE]].name, "bn.variance");
    assert_true(bn->attr.bn.eps == 1e-5f && bn->attr.bn.momentum == 0.1f);
    dt_graph_destroy(g);
}

static int build_both(struct dt_graph *g, int out_features)
{
    int x = dt_graph_conv(g, dt_graph_ingest(g, mean, std), "conv", conv_options(4, 3, 1, 1, true));
    x = dt_graph_max_pool(g, dt_graph_bn(g, x, "bn", 1), "pool", 2, 2, 0);
    x = dt_graph_linear(g, dt_graph_dropout(g, x, "drop", 0.5), "fc", out_features, init, init);
    dt_graph_softmax_xent(g, x, 0);
    return x;
}

TEST(phases_share_parameters)
{
    struct dt_graph *g = new_graph();
    assert_int_equal(dt_graph_begin(g, DT_TRAIN, 8, 16, 16), DT_OK);
    build_both(g, 10);
    const int n_train = g->n_nodes;
    assert_int_equal(dt_graph_begin(g, DT_EVAL, 4, 16, 16), DT_OK);
    assert_int_equal(dt_graph_program(g)->batch, 4);
    int logits = build_both(g, 10);
    assert_int_equal(dt_graph_check(g), DT_OK);
    assert_int_equal(g->program[DT_EVAL].logits, logits);
    assert_dims(g, logits, "4x10x1x1");

    int n_params = 0;
    for (int i = 0; i < g->n_tensors; i++)
        n_params += g->tensor[i].role == DT_PARAM || g->tensor[i].role == DT_STAT;
    assert_int_equal(n_params, 8);
    assert_int_equal(g->n_nodes, n_train + n_train - 1); /* no dropout in evaluation */
    for (int i = n_train; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        assert_int_equal(node->phase, DT_EVAL);
        assert_int_equal(node->n_dst, node->op == DT_OP_SOFTMAX_XENT ? 0 : 1);
    }
    assert_int_equal(g->node[1].src[1], g->node[n_train + 1].src[1]);
    dt_graph_destroy(g);
}

TEST(shared_parameter_of_another_shape)
{
    struct dt_graph *g = new_graph();
    assert_int_equal(dt_graph_begin(g, DT_TRAIN, 8, 16, 16), DT_OK);
    build_both(g, 10);
    assert_int_equal(dt_graph_begin(g, DT_EVAL, 4, 16, 16), DT_OK);
    assert_int_equal(build_both(g, 11), -1);
    assert_refused(g, DT_ERR_CONFIG, "fc.weight is used with two shapes, 10x256 and 11x256");
}

TEST(name_used_twice)
{
    int src;
    struct dt_graph *g = begin(DT_TRAIN, 2, 8, &src);
    int x = dt_graph_conv(g, src, "conv", conv_options(3, 3, 1, 1, false));
    assert_int_equal(dt_graph_conv(g, x, "conv", conv_options(3, 3, 1, 1, false)), -1);
    assert_refused(g, DT_ERR_INTERNAL, "conv.weight is used by two nodes");
}

TEST(first_error_is_remembered)
{
    int src;
    struct dt_graph *g = begin(DT_TRAIN, 2, 8, &src);
    int x = dt_graph_conv(g, src, "small", conv_options(4, 11, 4, 0, false));
    assert_int_equal(x, -1);
    const int n_nodes = g->n_nodes, n_tensors = g->n_tensors;
    x = dt_graph_relu(g, dt_graph_bn(g, x, "bn", 1), "relu");
    x = dt_graph_add(g, x, src, "add");
    x = dt_graph_avg_pool(g, dt_graph_max_pool(g, x, "pool", 2, 2, 0), "avg", 1);
    x = dt_graph_dropout(g, dt_graph_linear(g, x, "fc", 10, init, init), "drop", 7);
    dt_graph_softmax_xent(g, x, 0);
    assert_int_equal(x, -1);
    assert_int_equal(dt_graph_ingest(g, mean, std), -1);
    assert_null(dt_graph_node(g, DT_OP_ACTIVATION, "r", 1, &src, 1, &src));
    assert_int_equal(g->n_nodes, n_nodes);
    assert_int_equal(g->n_tensors, n_tensors);
    assert_int_equal(dt_graph_begin(g, DT_EVAL, 2, 8, 8), DT_ERR_CONFIG);
    assert_int_equal(dt_graph_fuse(g, NULL, NULL), DT_ERR_CONFIG);
    assert_int_equal(dt_graph_differentiate(g), DT_ERR_CONFIG);
    assert_refused(g, DT_ERR_CONFIG, "small: a 11x11 window does not fit in 8x8");
}

/* One mean and inverse standard deviation for each pixel, kept in training only. */
TEST(layer_norm)
{
    int src;
    struct dt_graph *g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_layer_norm(g, src, "norm");
    assert_int_equal(dt_graph_begin(g, DT_EVAL, 2, 8, 8), DT_OK);
    dt_graph_layer_norm(g, dt_graph_ingest(g, mean, std), "norm");
    assert_int_equal(dt_graph_check(g), DT_OK);
    assert_dims(g, dt_graph_find(g, "norm.weight"), "3");
    assert_dims(g, g->node[1].dst[DT_GN_MEAN], "128");
    assert_true(g->node[1].attr.group_norm.eps == 1e-6f);
    assert_int_equal(g->node[1].src[DT_GN_SHIFT], g->node[3].src[DT_GN_SHIFT]);
    assert_int_equal(g->node[3].n_dst, 1);
    dt_graph_destroy(g);
}

/* Stochastic depth is for training only; a layer scale stays, and is a vector. */
TEST(scaled_add)
{
    int src;
    struct dt_graph *g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_scaled_add(g, src, src, "depth", 0.25, NULL, 0);
    dt_graph_scaled_add(g, src, src, "scaled", 0.5, "block", 1e-6);
    dt_graph_scaled_add(g, src, src, "plain", 0, NULL, 0);
    assert_int_equal(dt_graph_begin(g, DT_EVAL, 2, 8, 8), DT_OK);
    src = dt_graph_ingest(g, mean, std);
    dt_graph_scaled_add(g, src, src, "depth", 0.25, NULL, 0);
    dt_graph_scaled_add(g, src, src, "scaled", 0.5, "block", 1e-6);
    assert_int_equal(dt_graph_check(g), DT_OK);
    const struct dt_node *train = g->node + 1, *eval = g->node + 5;
    assert_int_equal(train[0].op, DT_OP_SCALED_ADD);
    assert_int_equal(train[2].op, DT_OP_ADD);
    assert_int_equal(eval[0].op, DT_OP_ADD);
    assert_int_equal(eval[1].op, DT_OP_SCALED_ADD);
    assert_true(train[1].attr.dropout.p == 0.5f && eval[1].attr.dropout.p == 0);
    assert_int_not_equal(train[0].attr.dropout.stream, train[1].attr.dropout.stream);

    const int scale = train[1].src[DT_SCALED_ADD_SCALE];
    assert_int_equal(scale, eval[1].src[DT_SCALED_ADD_SCALE]);
    assert_int_equal(scale, dt_graph_find(g, "block.layer_scale"));
    assert_dims(g, scale, "3x1x1");
    assert_true(dt_tensor_is_vector(&g->tensor[scale]) && !g->tensor[scale].decay);
    assert_true(g->tensor[scale].init.value == 1e-6);
    dt_graph_destroy(g);
}

TEST(wrong_arguments)
{
    int src;
    struct dt_graph *g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_add(g, src, dt_graph_max_pool(g, src, "pool", 2, 2, 0), "add");
    assert_refused(g, DT_ERR_INTERNAL,
                   "node add: source 1, pool of 2x3x4x4, does not go with ingest of 2x3x8x8");

    g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_upsample_add(g, src, dt_graph_max_pool(g, src, "pool", 2, 2, 0), "up");
    assert_refused(g, DT_ERR_CONFIG, "up: 2x3x4x4 does not have twice the height and width");

    g = begin(DT_TRAIN, 2, 8, &src);
    const int parts[] = {src, dt_graph_max_pool(g, src, "pool", 2, 2, 0)};
    dt_graph_concat(g, 2, parts, "cat");
    assert_refused(g, DT_ERR_INTERNAL,
                   "node cat: source 1, pool of 2x3x4x4, does not go with ingest of 2x3x8x8");

    g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_group_norm(g, src, "norm", NULL, 2);
    assert_refused(g, DT_ERR_CONFIG, "norm: 3 channels do not make 2 groups");

    g = begin(DT_TRAIN, 2, 8, &src);
    const struct dt_conv_options uneven = {
        .out_channels = 4, .kernel = 1, .stride = 1, .groups = 2};
    dt_graph_conv(g, src, "conv", uneven);
    assert_refused(g, DT_ERR_CONFIG, "conv: 3 to 4 channels do not make 2 groups");

    g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_relu(g, g->program[DT_TRAIN].pixels, "relu");
    assert_refused(g, DT_ERR_INTERNAL, "relu reads pixels");

    g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_gate(g, src, dt_graph_max_pool(g, src, "pool", 2, 2, 0), "gate");
    assert_refused(g, DT_ERR_INTERNAL,
                   "node gate: source 1, pool of 2x3x4x4, does not go with ingest of 2x3x8x8");

    g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_scaled_add(g, src, src, "depth", 1, NULL, 0);
    assert_refused(g, DT_ERR_CONFIG, "depth: stochastic depth 1 is not in");

    g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_relu(g, 1000, "relu");
    assert_refused(g, DT_ERR_INTERNAL, "tensor 1000");

    g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_dropout(g, src, "drop", 1);
    assert_refused(g, DT_ERR_CONFIG, "drop: dropout 1 is not in");

    g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_conv(g, src, "conv", conv_options(0, 3, 1, 1, false));
    assert_refused(g, DT_ERR_INTERNAL, "conv.weight");

    g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_max_pool(g, src, "pool", 2, 0, 0);
    assert_refused(g, DT_ERR_CONFIG, "stride 0");

    g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_softmax_xent(g, src, 0);
    assert_refused(g, DT_ERR_INTERNAL, "shape of logits");

    g = begin(DT_TRAIN, 2, 8, &src);
    dt_graph_conv(g, src, "a_name_of_sixty_characters_does_fit_but_no_parameter_after_it",
                  conv_options(4, 3, 1, 1, false));
    assert_refused(g, DT_ERR_INTERNAL, "longer than 63");

    g = new_graph();
    dt_graph_ingest(g, mean, std);
    assert_refused(g, DT_ERR_INTERNAL, "dt_graph_begin first");
}

TEST(low_level)
{
    struct dt_graph *g = new_graph();
    const int dim[4] = {2, 3, 4, 5};
    int a = dt_graph_tensor(g, "a", DT_ACT, DT_F32, 4, dim);
    for (int i = 0; i < 100; i++) /* arguments that point into the array while it grows */
        a = dt_graph_tensor(g, g->tensor[a].name, DT_ACT, DT_F32, 4, g->tensor[a].dim);
    assert_int_equal(a, 100);
    assert_string_equal(g->tensor[100].name, "a");
    assert_dims(g, 100, "2x3x4x5");
    int src[3] = {0, 1, 2}, dst[2] = {3, 4};
    for (int i = 0; i < 100; i++) {
        struct dt_node *node = dt_graph_node(g, DT_OP_ADD, "n", 2, src, 1, dst);
        assert_non_null(node);
        assert_ptr_equal(node, &g->node[i]);
    }
    assert_int_equal(g->node[99].src[1], 1);
    assert_int_equal(g->node[99].dst[0], 3);
    assert_null(dt_graph_node(g, DT_OP_ADD, "n", 3, src, 1, dst));
    assert_refused(g, DT_ERR_INTERNAL, "n has 3 sources; allowed: 2 to 2");

    g = new_graph();
    dt_graph_tensor(g, "a", DT_ACT, DT_F32, 4, dim);
    assert_null(dt_graph_node(g, DT_OP_ACTIVATION, "n", 1, (int[]){0}, 1, (int[]){1}));
    assert_refused(g, DT_ERR_INTERNAL, "does not exist");

    g = new_graph();
    assert_int_equal(dt_graph_tensor(g, "a", DT_ACT, DT_F32, 2, dim), -1);
    assert_refused(g, DT_ERR_INTERNAL, "not a shape");
}

/* Each letter of the op list is checked; dst is the value, or three gradients. */
TEST(operands)
{
    enum { VALUE, SMALL, VECTOR, VECTOR4, MASK, PIXEL, KEPT };
    static const struct {
        enum dt_op op;
        int n_src, src[7], n_dst, dst[3];
        const char *refused;
    } cases[] = {
        {DT_OP_SCALED_ADD, 3, {VALUE, VALUE, VECTOR}, 1, {VALUE}, NULL},
        {DT_OP_SCALED_ADD, 3, {VALUE, VALUE, VECTOR4}, 1, {VALUE}, "n: source 2, vector4 of 4,"},
        {DT_OP_SCALED_ADD, 3, {VALUE, SMALL, VECTOR}, 1, {VALUE}, "n: source 1, small of 2x3x2x2,"},
        {DT_OP_SCALED_ADD, 2, {VALUE, VALUE}, 1, {SMALL}, "n: destination 0, small of 2x3x2x2,"},
        {DT_OP_ADD, 2, {VALUE, -1}, 1, {VALUE}, "n: source 1 is tensor -1"},
        {DT_OP_ADD, 2, {VALUE, KEPT}, 1, {VALUE}, "n: source 1, kept of 2x3x4x4,"},
        {DT_OP_GATE, 2, {VALUE, PIXEL}, 1, {VALUE}, NULL},
        {DT_OP_GATE, 2, {VALUE, SMALL}, 1, {VALUE}, "does not go with value of 2x3x4x4"},
        {DT_OP_AVG_POOL, 1, {VALUE}, 1, {SMALL}, NULL},
        {DT_OP_AVG_POOL, 1, {VALUE}, 1, {VECTOR}, "n: destination 0, vector of 3,"},
        {DT_OP_CONCAT, 2, {VALUE, SMALL}, 1, {VALUE}, "n: source 1, small"},
        {DT_OP_BN_BWD,
         7,
         {VALUE, VALUE, VECTOR, VECTOR, VECTOR, VECTOR, MASK},
         3,
         {VALUE, VECTOR, VECTOR},
         NULL},
        {DT_OP_BN_BWD,
         7,
         {VALUE, VALUE, VECTOR, VECTOR, VECTOR, VECTOR, VALUE},
         3,
         {VALUE, VECTOR, VECTOR},
         "n: source 6, value"},
        {DT_OP_BN_BWD,
         7,
         {MASK, VALUE, VECTOR, VECTOR, VECTOR, VECTOR, -1},
         3,
         {VALUE, VECTOR, VECTOR},
         "n: source 0, mask"},
    };
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        struct dt_graph *g = new_graph();
        const int value[] = {2, 3, 4, 4}, small[] = {2, 3, 2, 2}, vector[] = {3, 1, 1, 1};
        dt_graph_tensor(g, "value", DT_ACT, DT_F32, 4, value);
        dt_graph_tensor(g, "small", DT_ACT, DT_F32, 4, small);
        dt_graph_tensor(g, "vector", DT_PARAM, DT_F32, 1, vector);
        dt_graph_tensor(g, "vector4", DT_PARAM, DT_F32, 1, (int[]){4, 1, 1, 1});
        dt_graph_tensor(g, "mask", DT_SAVED, DT_U8, 4, value);
        dt_graph_tensor(g, "pixel", DT_ACT, DT_F32, 4, (int[]){2, 3, 1, 1});
        dt_graph_tensor(g, "kept", DT_SAVED, DT_F32, 4, value);
        const struct dt_node *node = dt_graph_node(g, cases[i].op, "n", cases[i].n_src,
                                                   cases[i].src, cases[i].n_dst, cases[i].dst);
        assert_int_equal(!node, cases[i].refused != NULL);
        if (!node) {
            assert_refused(g, DT_ERR_INTERNAL, cases[i].refused);
            continue;
        }
        assert_int_equal(dt_graph_check(g), DT_OK);
        dt_graph_destroy(g);
    }
}

TEST(flops_and_bytes)
{
    int src;
    struct dt_graph *g = begin(DT_TRAIN, 2, 8, &src);
    int x = dt_graph_conv(g, src, "conv", conv_options(4, 3, 2, 1, false));
    x = dt_graph_linear(g, x, "fc", 10, init, init);
    dt_graph_softmax_xent(g, x, 0);
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    const double conv = 2.0 * (2 * 4 * 4 * 4) * (3 * 3 * 3), fc = 2.0 * 2 * 10 * 64;
    const struct {
        enum dt_op op;
        double flops;
    } expected[] = {
        {DT_OP_CONV, conv},
        {DT_OP_LINEAR, fc},
        {DT_OP_LINEAR_BWD_WEIGHTS, fc},
        {DT_OP_LINEAR_BWD_DATA, fc},
        {DT_OP_CONV_BWD_WEIGHTS, conv},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct dt_node *found = NULL;
        for (int k = 0; k < g->n_nodes; k++) {
            if (g->node[k].op == expected[i].op)
                found = &g->node[k];
        }
        assert_non_null(found);
        assert_true(dt_node_flops(g, found) == expected[i].flops);
    }
    for (int i = 0; i < g->n_nodes; i++)
        assert_true(dt_node_flops(g, &g->node[i]) > 0);
    dt_graph_destroy(g);
}

/* Heads of 2 classes at 4x6 places of a canvas of 32x48. */
static int heads(struct dt_graph *g, int src, const char *name, int per_anchor)
{
    return dt_graph_conv(g, src, name, conv_options(9 * per_anchor, 8, 8, 0, true));
}

static struct dt_graph *begin_detector(int *src)
{
    struct dt_graph *g = new_graph();
    assert_int_equal(dt_graph_begin(g, DT_EVAL, 2, 32, 48), DT_OK);
    *src = dt_graph_ingest(g, mean, std);
    return g;
}

TEST(top_detections)
{
    struct dt_detect detect = {.anchors = {.n_levels = 2, .height = {9, 4}, .width = {9, 6}},
                               .level = 1,
                               .min_score = 0.05f};
    int src;
    struct dt_graph *g = begin_detector(&src);
    assert_int_equal(dt_graph_boxes(g, 3), DT_OK);
    dt_graph_top_detections(g, heads(g, src, "logits", 2), heads(g, src, "deltas", 4), &detect);
    assert_int_equal(dt_graph_check(g), DT_OK);
    const struct dt_program *p = &g->program[DT_EVAL];
    assert_dims(g, p->detections[1], "2x432x6");
    assert_dims(g, p->n_detections[1], "2");
    assert_int_equal(g->tensor[p->detections[1]].role, DT_OUTPUT);
    assert_int_equal(g->tensor[p->n_detections[1]].dtype, DT_I32);
    assert_int_equal(p->detections[0], -1);
    dt_graph_top_detections(g, heads(g, src, "more", 200), heads(g, src, "boxes", 4), &detect);
    assert_dims(g, p->detections[1], "2x1000x6");
    dt_graph_destroy(g);

    g = begin_detector(&src);
    dt_graph_top_detections(g, heads(g, src, "logits", 2), heads(g, src, "deltas", 4), &detect);
    assert_refused(g, DT_ERR_INTERNAL, "top_detections needs sizes");
    g = begin_detector(&src);
    dt_graph_top_detections(g, heads(g, src, "logits", 2), heads(g, src, "deltas", 5), &detect);
    assert_refused(g, DT_ERR_INTERNAL, "logits and deltas are not classes and boxes of 9 anchors");
    g = begin_detector(&src);
    detect.level = 0;
    dt_graph_top_detections(g, heads(g, src, "logits", 2), heads(g, src, "deltas", 4), &detect);
    assert_refused(g, DT_ERR_INTERNAL, "logits does not have the size of level 0");
}

TEST(op_table)
{
    assert_string_equal(dt_op_name(DT_OP_INGEST), "ingest");
    assert_string_equal(dt_op_name(DT_OP_SOFTMAX_XENT), "softmax_xent");
    assert_string_equal(dt_op_name(DT_OP_DROPOUT_BWD), "dropout_bwd");
    assert_int_equal(dt_op_inplace(DT_OP_ADD), 3);
    assert_int_equal(dt_op_inplace(DT_OP_ACTIVATION_BWD), 7);
    assert_int_equal(dt_op_inplace(DT_OP_CONV), 0);
    assert_int_equal(dt_dtype_bytes(DT_U8), 1);
    assert_int_equal(dt_dtype_bytes(DT_I32), 4);
    struct dt_tensor t = {.n_dims = 2, .dim = {1000, 2048, 1, 1}};
    char text[8];
    assert_int_equal(dt_tensor_elements(&t), 2048000);
    assert_string_equal(dt_tensor_format_dims(text, sizeof text, &t), "1000x20"); /* cut */
}

TEST_MAIN(NULL, NULL)
