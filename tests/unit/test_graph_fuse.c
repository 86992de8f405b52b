/* Fusion: what folds, what must not, and asking the backend. */
#include "graph_check.h"

static const struct dt_init init = {DT_INIT_NORMAL, 0.01};

static int conv(struct dt_graph *g, int src, const char *name)
{
    struct dt_conv_options options = {
        .out_channels = 3, .kernel = 3, .stride = 1, .pad = 1, .init = init};
    return dt_graph_conv(g, src, name, options);
}

static int bn(struct dt_graph *g, int src, const char *conv_name, const char *name)
{
    return dt_graph_bn(g, conv(g, src, conv_name), name, 1);
}

/* Fuses and compares the nodes after ingest. */
static void fuse(struct dt_graph *g, dt_supports_fn *supports, void *context, const char *expected)
{
    char text[4096];
    assert_int_equal(dt_graph_check(g), DT_OK);
    assert_int_equal(dt_graph_fuse(g, supports, context), DT_OK);
    check_order(g);
    describe_nodes(g, 1, text, sizeof text);
    assert_string_equal(text, expected);
    dt_graph_destroy(g);
}

struct refuse {
    enum dt_op op;
    bool residual_only;
    int n_asked;
};

static bool refuses(void *context, const struct dt_graph *g, const struct dt_node *node)
{
    struct refuse *r = context;
    r->n_asked++;
    assert_int_equal(node->activation, DT_RELU);
    for (int i = 0; i < node->n_src; i++)
        assert_in_range(node->src[i], 0, g->n_tensors - 1);
    for (int i = 0; i < node->n_dst; i++)
        assert_in_range(node->dst[i], 0, g->n_tensors - 1);
    return !(node->op == r->op && (node->residual || !r->residual_only));
}

GRAPH_TEST(relu, DT_TRAIN)
{
    int x = dt_graph_relu(g, conv(g, src, "c1"), "r1");
    x = dt_graph_relu(g, bn(g, x, "c2", "b2"), "r2");
    x = dt_graph_relu(g, dt_graph_add(g, x, src, "a"), "r3");
    x = dt_graph_relu(g, dt_graph_max_pool(g, x, "max", 2, 2, 0), "r4");
    fuse(g, NULL, NULL,
         "conv+relu c1: ingest c1.weight -> r1\n"
         "conv c2: r1 c2.weight -> c2\n"
         "bn+relu b2: c2 b2.weight b2.bias b2.running_mean b2.running_var"
         " -> r2 b2.mean b2.variance b2.workspace\n"
         "add+relu a: r2 ingest -> r3\n"
         "max_pool max: r3 -> max max.workspace\n"
         "activation+relu r4: max -> r4\n");
}

GRAPH_TEST(evaluation, DT_EVAL)
{
    int x = dt_graph_relu(g, bn(g, src, "c1", "b1"), "r1");
    dt_graph_relu(g, dt_graph_add(g, bn(g, x, "c2", "b2"), x, "a"), "r2");
    fuse(g, NULL, NULL,
         "conv c1: ingest c1.weight -> c1\n"
         "bn+relu b1: c1 b1.weight b1.bias b1.running_mean b1.running_var -> r1\n"
         "conv c2: r1 c2.weight -> c2\n"
         "bn+relu+residual b2: c2 b2.weight b2.bias b2.running_mean b2.running_var r1 -> r2\n");
}

GRAPH_TEST(workspace, DT_TRAIN)
{
    dt_graph_relu(g, bn(g, src, "c1", "b1"), "r1");
    assert_int_equal(dt_graph_fuse(g, NULL, NULL), DT_OK);
    const struct dt_tensor *t = &g->tensor[g->node[2].dst[DT_BN_MASK]];
    char dims[32];
    assert_int_equal(t->role, DT_SAVED);
    assert_int_equal(t->dtype, DT_U8);
    assert_string_equal(dt_tensor_format_dims(dims, sizeof dims, t), "2x3x8x8");
    dt_graph_destroy(g);
}

/* Both summands are batch norms: the one that runs last takes the other one as its residual. */
TEST(two_bn)
{
    for (int swap = 0; swap < 2; swap++) {
        int src;
        struct dt_graph *g = begin_small(DT_EVAL, &src);
        int first = bn(g, src, "c1", "b1"), second = bn(g, src, "c2", "b2");
        dt_graph_relu(g, dt_graph_add(g, swap ? second : first, swap ? first : second, "a"), "r");
        fuse(g, NULL, NULL,
             "conv c1: ingest c1.weight -> c1\n"
             "bn b1: c1 b1.weight b1.bias b1.running_mean b1.running_var -> b1\n"
             "conv c2: ingest c2.weight -> c2\n"
             "bn+relu+residual b2: c2 b2.weight b2.bias b2.running_mean b2.running_var b1 -> r\n");
    }
}

/* The other summand is a ReLU that stands after the bn, but is folded into a node before it. */
GRAPH_TEST(residual_moves_forward, DT_EVAL)
{
    int first = conv(g, src, "c1"), second = bn(g, src, "c2", "b2");
    first = dt_graph_relu(g, first, "r1");
    dt_graph_relu(g, dt_graph_add(g, first, second, "a"), "r");
    fuse(g, NULL, NULL,
         "conv+relu c1: ingest c1.weight -> r1\n"
         "conv c2: ingest c2.weight -> c2\n"
         "bn+relu+residual b2: c2 b2.weight b2.bias b2.running_mean b2.running_var r1 -> r\n");
}

/* The other summand comes later than the bn: the bn cannot wait for it. */
GRAPH_TEST(residual_too_late, DT_EVAL)
{
    int first = bn(g, src, "c1", "b1"), second = conv(g, src, "c2");
    dt_graph_relu(g, dt_graph_add(g, first, second, "a"), "r");
    fuse(g, NULL, NULL,
         "conv c1: ingest c1.weight -> c1\n"
         "bn b1: c1 b1.weight b1.bias b1.running_mean b1.running_var -> b1\n"
         "conv c2: ingest c2.weight -> c2\n"
         "add+relu a: b1 c2 -> r\n");
}

GRAPH_TEST(second_reader_forbids, DT_EVAL)
{
    int x = conv(g, src, "c1");
    int y = dt_graph_relu(g, x, "r1");
    x = dt_graph_bn(g, dt_graph_add(g, x, y, "a1"), "b1", 1);
    y = dt_graph_relu(g, dt_graph_add(g, x, src, "a2"), "r2"); /* x is read again below */
    dt_graph_add(g, x, y, "a3");
    fuse(g, NULL, NULL,
         "conv c1: ingest c1.weight -> c1\n"
         "activation+relu r1: c1 -> r1\n"
         "add a1: c1 r1 -> a1\n"
         "bn b1: a1 b1.weight b1.bias b1.running_mean b1.running_var -> b1\n"
         "add+relu a2: b1 ingest -> r2\n"
         "add a3: b1 r2 -> a3\n");
}

/* add(bn, bn) reads one value twice. */
GRAPH_TEST(bn_added_to_itself, DT_EVAL)
{
    int x = bn(g, src, "c1", "b1");
    dt_graph_relu(g, dt_graph_add(g, x, x, "a"), "r");
    fuse(g, NULL, NULL,
         "conv c1: ingest c1.weight -> c1\n"
         "bn b1: c1 b1.weight b1.bias b1.running_mean b1.running_var -> b1\n"
         "add+relu a: b1 b1 -> r\n");
}

GRAPH_TEST(only_one_relu, DT_EVAL)
{
    int x = dt_graph_relu(g, dt_graph_relu(g, conv(g, src, "c1"), "r1"), "r2");
    x = dt_graph_relu(g, bn(g, x, "c2", "b2"), "r3");
    dt_graph_relu(g, dt_graph_add(g, x, src, "a"), "r4"); /* bn has its ReLU before the add */
    fuse(g, NULL, NULL,
         "conv+relu c1: ingest c1.weight -> r1\n"
         "activation+relu r2: r1 -> r2\n"
         "conv c2: r2 c2.weight -> c2\n"
         "bn+relu b2: c2 b2.weight b2.bias b2.running_mean b2.running_var -> r3\n"
         "add+relu a: r3 ingest -> r4\n");
}

static struct dt_graph *all_kinds(int *src)
{
    struct dt_graph *g = begin_small(DT_TRAIN, src);
    int x = dt_graph_relu(g, conv(g, *src, "c1"), "r1");
    int y = dt_graph_relu(g, bn(g, x, "c2", "b2"), "r2");
    dt_graph_relu(g, dt_graph_add(g, bn(g, y, "c3", "b3"), x, "a"), "r3");
    return g;
}

TEST(backend_refuses)
{
    int src;
    struct refuse residual = {.op = DT_OP_BN, .residual_only = true};
    fuse(all_kinds(&src), refuses, &residual,
         "conv+relu c1: ingest c1.weight -> r1\n"
         "conv c2: r1 c2.weight -> c2\n"
         "bn+relu b2: c2 b2.weight b2.bias b2.running_mean b2.running_var"
         " -> r2 b2.mean b2.variance b2.workspace\n"
         "conv c3: r2 c3.weight -> c3\n"
         "bn b3: c3 b3.weight b3.bias b3.running_mean b3.running_var"
         " -> b3 b3.mean b3.variance\n"
         "add+relu a: b3 r1 -> r3\n");
    assert_int_equal(residual.n_asked, 4);
    struct refuse any_bn = {.op = DT_OP_BN};
    fuse(all_kinds(&src), refuses, &any_bn,
         "conv+relu c1: ingest c1.weight -> r1\n"
         "conv c2: r1 c2.weight -> c2\n"
         "bn b2: c2 b2.weight b2.bias b2.running_mean b2.running_var"
         " -> b2 b2.mean b2.variance\n"
         "activation+relu r2: b2 -> r2\n"
         "conv c3: r2 c3.weight -> c3\n"
         "bn b3: c3 b3.weight b3.bias b3.running_mean b3.running_var"
         " -> b3 b3.mean b3.variance\n"
         "add+relu a: b3 r1 -> r3\n");
}

/* A refused fusion leaves no tensors over. */
TEST(refusal_leaves_nothing)
{
    int src;
    struct dt_graph *g = all_kinds(&src);
    const int n_tensors = g->n_tensors;
    struct refuse any_bn = {.op = DT_OP_BN};
    assert_int_equal(dt_graph_fuse(g, refuses, &any_bn), DT_OK);
    assert_int_equal(g->n_tensors, n_tensors);
    dt_graph_destroy(g);
}

TEST_MAIN(NULL, NULL)
