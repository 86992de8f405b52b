/* Autodiff: the exact backward nodes of small networks, with and without fused ReLUs. */
#include "graph_check.h"

static const double mean[3] = {0, 0, 0}, std[3] = {1, 1, 1};
static const struct dt_init init = {DT_INIT_NORMAL, 0.01};

static int conv(struct dt_graph *g, int src, const char *name, bool bias)
{
    struct dt_conv_options options = {
        .out_channels = 4, .kernel = 3, .stride = 1, .pad = 1, .bias = bias, .init = init};
    return dt_graph_conv(g, src, name, options);
}

/* Ends the network, fuses on demand, differentiates, compares the backward nodes. */
static void finish(struct dt_graph *g, int x, bool fuse, const char *expected)
{
    char text[4096];
    dt_graph_softmax_xent(g, dt_graph_linear(g, x, "fc", 5, init, init), 0);
    if (fuse)
        assert_int_equal(dt_graph_fuse(g, NULL, NULL), DT_OK);
    const int first = g->n_nodes;
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    check_differentiated(g);
    describe_nodes(g, first, text, sizeof text);
    assert_string_equal(text, expected);
    for (int i = first; i < g->n_nodes; i++)
        assert_int_equal(g->node[i].phase, DT_TRAIN);
    dt_graph_destroy(g);
}

#define FC                                                                \
    "linear_bwd_weights fc: avg diff_fc -> diff_fc.weight diff_fc.bias\n" \
    "linear_bwd_data fc: diff_fc fc.weight -> diff_avg\n"

GRAPH_TEST(chain, DT_TRAIN)
{
    int x = dt_graph_relu(g, dt_graph_bn(g, conv(g, src, "c1", false), "b1", 1), "r1");
    x = dt_graph_max_pool(g, x, "max", 3, 2, 1);
    x = dt_graph_relu(g, conv(g, x, "c2", true), "r2");
    x = dt_graph_avg_pool(g, dt_graph_dropout(g, x, "drop", 0.25), "avg", 1);
    finish(g, x, false,
           FC "avg_pool_bwd avg: diff_avg -> diff_drop\n"
              "dropout_bwd drop: diff_drop -> diff_r2\n"
              "activation_bwd+relu r2: diff_r2 r2 -> diff_c2\n"
              "conv_bwd_weights c2: max diff_c2 -> diff_c2.weight diff_c2.bias\n"
              "conv_bwd_data c2: diff_c2 c2.weight -> diff_max\n"
              "max_pool_bwd max: diff_max max.workspace -> diff_r1\n"
              "activation_bwd+relu r1: diff_r1 r1 -> diff_b1\n"
              "bn_bwd b1: c1 diff_b1 b1.weight b1.bias b1.mean b1.variance"
              " -> diff_c1 diff_b1.weight diff_b1.bias\n"
              "conv_bwd_weights c1: ingest diff_c1 -> diff_c1.weight\n");
}

GRAPH_TEST(chain_fused, DT_TRAIN)
{
    int x = dt_graph_relu(g, dt_graph_bn(g, conv(g, src, "c1", false), "b1", 1), "r1");
    x = dt_graph_relu(g, conv(g, x, "c2", true), "r2");
    x = dt_graph_avg_pool(g, x, "avg", 1);
    finish(g, x, true,
           FC "avg_pool_bwd avg: diff_avg -> diff_r2\n"
              "activation_bwd+relu c2: diff_r2 r2 -> diff_r2#2\n"
              "conv_bwd_weights c2: r1 diff_r2#2 -> diff_c2.weight diff_c2.bias\n"
              "conv_bwd_data c2: diff_r2#2 c2.weight -> diff_r1\n"
              "bn_bwd+relu b1: c1 diff_r1 b1.weight b1.bias b1.mean b1.variance b1.workspace"
              " -> diff_c1 diff_b1.weight diff_b1.bias\n"
              "conv_bwd_weights c1: ingest diff_c1 -> diff_c1.weight\n");
}

/* The value r1 has two readers, and its producer is a ReLU: the sum is folded into activation_bwd.
 */
static int two_readers(struct dt_graph *g, int src)
{
    int x = dt_graph_relu(g, conv(g, src, "c1", false), "r1");
    int y = dt_graph_add(g, conv(g, x, "c2", false), x, "add");
    return dt_graph_avg_pool(g, y, "avg", 1);
}

GRAPH_TEST(sum_into_relu, DT_TRAIN)
{
    finish(g, two_readers(g, src), false,
           FC "avg_pool_bwd avg: diff_avg -> diff_add\n"
              "conv_bwd_weights c2: r1 diff_add -> diff_c2.weight\n"
              "conv_bwd_data c2: diff_add c2.weight -> diff_r1\n"
              "activation_bwd+relu r1: diff_add r1 diff_r1 -> diff_c1\n"
              "conv_bwd_weights c1: ingest diff_c1 -> diff_c1.weight\n");
    g = begin_small(DT_TRAIN, &src);
    finish(g, two_readers(g, src), true,
           FC "avg_pool_bwd avg: diff_avg -> diff_add\n"
              "conv_bwd_weights c2: r1 diff_add -> diff_c2.weight\n"
              "conv_bwd_data c2: diff_add c2.weight -> diff_r1\n"
              "activation_bwd+relu c1: diff_add r1 diff_r1 -> diff_r1#2\n"
              "conv_bwd_weights c1: ingest diff_r1#2 -> diff_c1.weight\n");
}

/* The same after bn+relu. */
GRAPH_TEST(sum_folded_into_bn, DT_TRAIN)
{
    int x = dt_graph_relu(g, dt_graph_bn(g, conv(g, src, "c1", false), "b1", 1), "r1");
    x = dt_graph_add(g, conv(g, x, "c2", false), x, "add");
    finish(g, dt_graph_avg_pool(g, x, "avg", 1), true,
           FC "avg_pool_bwd avg: diff_avg -> diff_add\n"
              "conv_bwd_weights c2: r1 diff_add -> diff_c2.weight\n"
              "conv_bwd_data c2: diff_add c2.weight -> diff_r1\n"
              "bn_bwd+relu b1: c1 diff_add b1.weight b1.bias b1.mean b1.variance b1.workspace"
              " diff_r1 -> diff_c1 diff_b1.weight diff_b1.bias\n"
              "conv_bwd_weights c1: ingest diff_c1 -> diff_c1.weight\n");
}

/* Two residual blocks: bn+residual+relu passes its gradient on through diff_residual, add+relu
 * gives one activation_bwd for both summands. */
static int residual_blocks(struct dt_graph *g, int src)
{
    int x = dt_graph_max_pool(g, conv(g, src, "c0", false), "max", 2, 2, 0);
    int y = dt_graph_bn(g, conv(g, x, "c1", false), "b1", 1);
    x = dt_graph_relu(g, dt_graph_add(g, y, x, "a1"), "r1");
    y = conv(g, x, "c2", false);
    x = dt_graph_relu(g, dt_graph_add(g, y, x, "a2"), "r2");
    return dt_graph_avg_pool(g, x, "avg", 1);
}

GRAPH_TEST(residual_fused, DT_TRAIN)
{
    finish(g, residual_blocks(g, src), true,
           FC "avg_pool_bwd avg: diff_avg -> diff_r2\n"
              "activation_bwd+relu a2: diff_r2 r2 -> diff_r2#2\n"
              "conv_bwd_weights c2: r1 diff_r2#2 -> diff_c2.weight\n"
              "conv_bwd_data c2: diff_r2#2 c2.weight -> diff_r1\n"
              "bn_bwd+relu+residual b1: c1 diff_r2#2 b1.weight b1.bias b1.mean b1.variance"
              " b1.workspace diff_r1 -> diff_c1 diff_b1.weight diff_b1.bias diff_max\n"
              "conv_bwd_weights c1: max diff_c1 -> diff_c1.weight\n"
              "conv_bwd_data c1: diff_c1 c1.weight -> diff_max#2\n"
              "add max: diff_max diff_max#2 -> diff_max#3\n"
              "max_pool_bwd max: diff_max#3 max.workspace -> diff_c0\n"
              "conv_bwd_weights c0: ingest diff_c0 -> diff_c0.weight\n");
}

GRAPH_TEST(three_readers, DT_TRAIN)
{
    int x = dt_graph_relu(g, conv(g, src, "c1", false), "r1");
    int a = conv(g, x, "c2", false), b = conv(g, x, "c3", false);
    x = dt_graph_add(g, dt_graph_add(g, a, b, "a1"), x, "a2");
    finish(g, dt_graph_avg_pool(g, x, "avg", 1), false,
           FC "avg_pool_bwd avg: diff_avg -> diff_a2\n"
              "conv_bwd_weights c3: r1 diff_a2 -> diff_c3.weight\n"
              "conv_bwd_data c3: diff_a2 c3.weight -> diff_r1\n"
              "conv_bwd_weights c2: r1 diff_a2 -> diff_c2.weight\n"
              "conv_bwd_data c2: diff_a2 c2.weight -> diff_r1#2\n"
              "add r1: diff_a2 diff_r1 -> diff_r1#3\n"
              "activation_bwd+relu r1: diff_r1#3 r1 diff_r1#2 -> diff_c1\n"
              "conv_bwd_weights c1: ingest diff_c1 -> diff_c1.weight\n");
}

/* Four readers, one of them twice, of a value without ReLU. */
GRAPH_TEST(many_readers, DT_TRAIN)
{
    int x = conv(g, src, "c1", false);
    int y = dt_graph_add(g, x, x, "a1");
    y = dt_graph_add(g, y, x, "a2");
    y = dt_graph_add(g, dt_graph_relu(g, x, "r"), y, "a3");
    dt_graph_softmax_xent(g, dt_graph_linear(g, y, "fc", 5, init, init), 0);
    const int first = g->n_nodes;
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    check_differentiated(g);
    int n_adds = 0;
    for (int i = first; i < g->n_nodes; i++)
        n_adds += g->node[i].op == DT_OP_ADD;
    assert_int_equal(n_adds, 3);
    dt_graph_destroy(g);
}

/* Tensors that depend only on the image get no gradient: no data gradient, no backward of its
 * ops. */
GRAPH_TEST(no_gradient_of_the_image, DT_TRAIN)
{
    int x = dt_graph_avg_pool(g, dt_graph_relu(g, src, "r"), "half", 4);
    int y = conv(g, x, "c1", false);
    struct dt_conv_options three = {.out_channels = 3, .kernel = 1, .stride = 1, .init = init};
    y = dt_graph_add(g, dt_graph_conv(g, y, "c2", three), x, "a");
    y = dt_graph_add(g, dt_graph_add(g, y, x, "a2"), x, "a3");
    finish(g, dt_graph_avg_pool(g, y, "avg", 1), false,
           FC "avg_pool_bwd avg: diff_avg -> diff_a3\n"
              "conv_bwd_weights c2: c1 diff_a3 -> diff_c2.weight\n"
              "conv_bwd_data c2: diff_a3 c2.weight -> diff_c1\n"
              "conv_bwd_weights c1: half diff_c1 -> diff_c1.weight\n");
}

/* Below the lowest trained parameter nothing is differentiated. */
GRAPH_TEST(frozen_below, DT_TRAIN)
{
    int x = dt_graph_relu(g, dt_graph_bn(g, conv(g, src, "stem.c1", false), "stem.b1", 1), "r1");
    x = dt_graph_max_pool(g, x, "max", 3, 2, 1);
    x = conv(g, conv(g, x, "c2", true), "c3", true);
    x = dt_graph_avg_pool(g, x, "avg", 1);
    assert_int_equal(dt_graph_freeze(g, "ste"), 0);
    assert_int_equal(dt_graph_freeze(g, "stem.c1.weight"), 0);
    assert_int_equal(dt_graph_freeze(g, "stem"), 3);
    assert_int_equal(dt_graph_freeze(g, "c3"), 2);
    finish(g, x, true,
           FC "avg_pool_bwd avg: diff_avg -> diff_c3\n"
              "conv_bwd_data c3: diff_c3 c3.weight -> diff_c2\n"
              "conv_bwd_weights c2: max diff_c2 -> diff_c2.weight diff_c2.bias\n");
}

/* A norm of constants has no parameters, passes gradients on, and is the same in both phases. */
GRAPH_TEST(constant_norm, DT_TRAIN)
{
    int x = dt_graph_relu(g, dt_graph_frozen_bn(g, conv(g, src, "c1", false), "b1", 0), "r1");
    x = dt_graph_avg_pool(g, x, "avg", 1);
    assert_int_equal(dt_graph_freeze(g, "b1"), 0);
    for (int i = 1; i < 5; i++)
        assert_int_equal(g->tensor[g->node[2].src[i]].role, DT_STAT);
    assert_true(g->node[2].attr.bn.eps == 0 && g->node[2].n_dst == 1);
    finish(g, x, true,
           FC "avg_pool_bwd avg: diff_avg -> diff_r1\n"
              "activation_bwd+relu b1: diff_r1 r1 -> diff_r1#2\n"
              "bn_frozen_bwd b1: diff_r1#2 b1.weight b1.running_var -> diff_c1\n"
              "conv_bwd_weights c1: ingest diff_c1 -> diff_c1.weight\n");
}

/* A frozen batch norm passes gradients on, to its source and to what was added to it. */
GRAPH_TEST(frozen_between, DT_TRAIN)
{
    int x = residual_blocks(g, src);
    assert_int_equal(dt_graph_freeze(g, "b1"), 2);
    finish(g, x, true,
           FC "avg_pool_bwd avg: diff_avg -> diff_r2\n"
              "activation_bwd+relu a2: diff_r2 r2 -> diff_r2#2\n"
              "conv_bwd_weights c2: r1 diff_r2#2 -> diff_c2.weight\n"
              "conv_bwd_data c2: diff_r2#2 c2.weight -> diff_r1\n"
              "activation_bwd+relu b1: diff_r2#2 r1 diff_r1 -> diff_r1#2\n"
              "bn_frozen_bwd b1: diff_r1#2 b1.weight b1.running_var -> diff_c1\n"
              "conv_bwd_weights c1: max diff_c1 -> diff_c1.weight\n"
              "conv_bwd_data c1: diff_c1 c1.weight -> diff_max\n"
              "add max: diff_r1#2 diff_max -> diff_max#2\n"
              "max_pool_bwd max: diff_max#2 max.workspace -> diff_c0\n"
              "conv_bwd_weights c0: ingest diff_c0 -> diff_c0.weight\n");
}

GRAPH_TEST(attributes, DT_TRAIN)
{
    struct dt_conv_options options = {
        .out_channels = 4, .kernel = 5, .stride = 2, .pad = 2, .init = init};
    int x = dt_graph_max_pool(g, dt_graph_conv(g, src, "c", options), "max", 3, 2, 1);
    x = dt_graph_dropout(g, dt_graph_bn(g, x, "b", 1), "drop", 0.25);
    dt_graph_softmax_xent(g, dt_graph_linear(g, x, "fc", 5, init, init), 0);
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    uint32_t stream = 0;
    int n_checked = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        if (node->op == DT_OP_DROPOUT)
            stream = node->attr.dropout.stream;
        if (node->op == DT_OP_DROPOUT_BWD)
            n_checked += node->attr.dropout.stream == stream && node->attr.dropout.p == 0.25f;
        if (node->op == DT_OP_BN_BWD)
            n_checked += node->attr.bn.eps == 1e-5f;
        if (node->op == DT_OP_MAX_POOL_BWD)
            n_checked += node->attr.pool.kernel == 3 && node->attr.pool.pad == 1;
        if (node->op == DT_OP_CONV_BWD_WEIGHTS)
            n_checked += node->attr.conv.stride == 2 && node->attr.conv.pad == 2;
    }
    assert_int_equal(n_checked, 4);
    dt_graph_destroy(g);
}

/* Evaluation nodes stay as they are, and the graph can be at the evaluation phase. */
GRAPH_TEST(evaluation_is_left_alone, DT_TRAIN)
{
    dt_graph_softmax_xent(g, dt_graph_linear(g, two_readers(g, src), "fc", 5, init, init), 0);
    assert_int_equal(dt_graph_begin(g, DT_EVAL, 1, 8, 8), DT_OK);
    int x = two_readers(g, dt_graph_ingest(g, mean, std));
    dt_graph_softmax_xent(g, dt_graph_linear(g, x, "fc", 5, init, init), 0);
    const int first = g->n_nodes;
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    check_differentiated(g);
    assert_int_equal(dt_graph_program(g)->phase, DT_EVAL);
    for (int i = first; i < g->n_nodes; i++)
        assert_int_equal(g->node[i].phase, DT_TRAIN);
    assert_error(dt_graph_differentiate(g), DT_ERR_INTERNAL, "already been differentiated");
    dt_graph_destroy(g);
}

GRAPH_TEST(errors, DT_TRAIN)
{
    conv(g, src, "c1", false);
    assert_error(dt_graph_differentiate(g), DT_ERR_INTERNAL, "no loss");
    dt_graph_softmax_xent(g, dt_graph_linear(g, src, "fc", 5, init, init), 0);
    assert_error(dt_graph_differentiate(g), DT_ERR_INTERNAL, "c1.weight has no influence");
    dt_graph_destroy(g);
}

/* Names at the limit: gradients are cut, and stay different. */
GRAPH_TEST(long_names, DT_TRAIN)
{
    char name[DT_NAME_MAX];
    int x = src;
    for (int i = 0; i < 12; i++) { /* 54 letters + 2 digits + ".weight" = 63 */
        snprintf(name, sizeof name, "%054d%02d", 0, i);
        int y = conv(g, x, name, false);
        snprintf(name, sizeof name, "%061d%02d", 1, i);
        x = i ? dt_graph_add(g, x, y, name) : y;
    }
    dt_graph_softmax_xent(g, dt_graph_linear(g, x, "fc", 5, init, init), 0);
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    check_order(g);
    check_paths(g);
    for (int i = 0; i < g->n_tensors; i++) {
        if (strncmp(g->tensor[i].name, "diff_", 5) == 0)
            assert_int_equal(dt_graph_find(g, g->tensor[i].name), i);
    }
    dt_graph_destroy(g);
}

/* Two nodes read the parameters of c1: their gradients are added after the second. */
GRAPH_TEST(shared, DT_TRAIN)
{
    struct dt_conv_options again = {.out_channels = 4,
                                    .kernel = 3,
                                    .stride = 1,
                                    .pad = 1,
                                    .bias = true,
                                    .init = init,
                                    .module = "c1"};
    int x = conv(g, conv(g, src, "c0", false), "c1", true);
    x = dt_graph_conv(g, x, "c2", again);
    finish(g, dt_graph_avg_pool(g, x, "avg", 1), false,
           FC "avg_pool_bwd avg: diff_avg -> diff_c2\n"
              "conv_bwd_weights c2: c1 diff_c2 -> diff_c1.weight diff_c1.bias\n"
              "conv_bwd_data c2: diff_c2 c1.weight -> diff_c1\n"
              "conv_bwd_weights c1: c0 diff_c1 -> diff_c1.weight#2 diff_c1.bias#2\n"
              "conv_bwd_data c1: diff_c1 c1.weight -> diff_c0\n"
              "sum_grads c1.weight: diff_c1.weight diff_c1.weight#2 -> diff_c1.weight#3\n"
              "sum_grads c1.bias: diff_c1.bias diff_c1.bias#2 -> diff_c1.bias#3\n"
              "conv_bwd_weights c0: ingest diff_c0 -> diff_c0.weight\n");
}

/* Not without being asked, not with another shape, not by too many. */
GRAPH_TEST(shared_errors, DT_TRAIN)
{
    struct dt_conv_options c = {
        .out_channels = 3, .kernel = 1, .stride = 1, .init = init, .module = "c"};
    char name[16];
    conv(g, conv(g, src, "same", false), "same", false);
    assert_int_equal(dt_graph_check(g), DT_ERR_CONFIG); /* 3 and 4 input channels */
    dt_graph_destroy(g);
    g = begin_small(DT_TRAIN, &src);
    conv(g, src, "same", false);
    conv(g, src, "same", false);
    assert_error(dt_graph_check(g), DT_ERR_INTERNAL,
                 "same.weight is used by two nodes of one program");
    dt_graph_destroy(g);
    g = begin_small(DT_TRAIN, &src);
    int x = src;
    for (int i = 0; i <= DT_MAX_SRC; i++) {
        snprintf(name, sizeof name, "c%d", i);
        x = dt_graph_conv(g, x, name, c);
    }
    dt_graph_softmax_xent(g, dt_graph_linear(g, x, "fc", 5, init, init), 0);
    assert_error(dt_graph_differentiate(g), DT_ERR_INTERNAL,
                 "c.weight is shared by 10 nodes, more than 9");
    dt_graph_destroy(g);
}

TEST_MAIN(NULL, NULL)
