/* Formats of the CUDA backend: what the table says of each tensor of a graph. No device is needed:
 * the functions look at the type of the device only. */
#include <stdbool.h>

#include "cuda/cuda_internal.h"
#include "test_status.h"

static const double ZEROS[3] = {0, 0, 0}, ONES[3] = {1, 1, 1};

/* pixels - ingest - conv1 (3 to 20) - bn1 with ReLU - max pool - conv2 (20 to 12) - linear (5). */
static struct dt_graph *make_graph(void)
{
    struct dt_graph *g;
    struct dt_conv_options options = {.out_channels = 20, .kernel = 3, .stride = 1, .pad = 1};
    assert_ok(dt_graph_create(&g));
    for (int phase = 0; phase < DT_N_PHASES; phase++) {
        assert_ok(dt_graph_begin(g, (enum dt_phase)phase, phase == DT_TRAIN ? 2 : 3, 8, 8));
        options.out_channels = 20;
        options.bias = false;
        int x = dt_graph_ingest(g, ZEROS, ONES);
        x = dt_graph_conv(g, x, "conv1", options);
        x = dt_graph_bn(g, x, "bn1", 1);
        x = dt_graph_relu(g, x, "relu1");
        x = dt_graph_max_pool(g, x, "pool", 2, 2, 0);
        options.out_channels = 12;
        options.bias = true;
        x = dt_graph_conv(g, x, "conv2", options);
        x = dt_graph_linear(g, x, "fc", 5, (struct dt_init){0}, (struct dt_init){0});
        dt_graph_softmax_xent(g, x, 0);
    }
    assert_ok(dt_graph_fuse(g, NULL, NULL));
    assert_ok(dt_graph_differentiate(g));
    assert_ok(dt_graph_check(g));
    return g;
}

static const struct dt_node *find_node(const struct dt_graph *g, enum dt_op op, int nth)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->node[i].op == op && g->node[i].phase == DT_TRAIN && nth-- == 0)
            return &g->node[i];
    fail_msg("no node %s", dt_op_name(op));
    return NULL;
}

struct expected {
    enum dt_layout layout;
    enum dt_dtype type;
    int n, c, h, w, cp, np;
    size_t elements, bytes;
};

static void check(struct dt_device *dev, const struct dt_graph *g, int tensor,
                  const struct expected *want)
{
    const struct dt_cuda_format *f;
    assert_ok(dt_cuda_format(dev, &f, g, tensor));
    assert_int_equal(f->layout, want->layout);
    assert_int_equal(f->type, want->type);
    const int got_dims[6] = {f->n, f->c, f->h, f->w, f->cp, f->np};
    const int want_dims[6] = {want->n, want->c, want->h, want->w, want->cp, want->np};
    for (int i = 0; i < 6; i++)
        assert_int_equal(got_dims[i], want_dims[i]);
    assert_int_equal(f->elements, want->elements);
    assert_int_equal(dt_cuda_dtype(dev, g, tensor), want->type);
    assert_int_equal(dt_cuda_tensor_bytes(dev, g, tensor), want->bytes);
}

static void check_graph(enum dt_dtype type)
{
    struct dt_device dev = {.type = type};
    struct dt_graph *g = make_graph();
    const size_t size = dt_dtype_bytes(type);
    const struct dt_node *ingest = find_node(g, DT_OP_INGEST, 0), *bn = find_node(g, DT_OP_BN, 0);
    const struct dt_node *conv1 = find_node(g, DT_OP_CONV, 0), *conv2 = find_node(g, DT_OP_CONV, 1);
    const struct dt_node *pool = find_node(g, DT_OP_MAX_POOL, 0);
    const struct dt_node *fc = find_node(g, DT_OP_LINEAR, 0);
    const struct dt_node *xent = find_node(g, DT_OP_SOFTMAX_XENT, 0);
    const struct dt_node *bn_bwd = find_node(g, DT_OP_BN_BWD, 0);
    const struct {
        int tensor;
        struct expected want;
    } rows[] = {
        {ingest->src[0], {DT_LAYOUT_PLAIN, DT_U8, 2, 3, 8, 8, 3, 2, 384, 384}},
        {ingest->dst[0], {DT_LAYOUT_ACTIVATION, type, 2, 3, 8, 8, 4, 2, 512, 512 * size}},
        {conv1->src[1], {DT_LAYOUT_CONV_WEIGHTS, type, 20, 3, 3, 3, 4, 24, 864, 864 * 4}},
        {g->tensor[conv1->src[1]].diff,
         {DT_LAYOUT_CONV_WEIGHTS, type, 20, 3, 3, 3, 4, 24, 864, 864 * size}},
        {conv1->dst[0], {DT_LAYOUT_ACTIVATION, type, 2, 20, 8, 8, 24, 2, 3072, 3072 * size}},
        {bn->src[1], {DT_LAYOUT_VECTOR, DT_F32, 1, 20, 1, 1, 24, 1, 24, 96}},
        {bn->src[DT_BN_RUNNING_MEAN], {DT_LAYOUT_VECTOR, DT_F32, 1, 20, 1, 1, 24, 1, 24, 96}},
        {bn->dst[1], {DT_LAYOUT_VECTOR, DT_F32, 1, 20, 1, 1, 24, 1, 24, 96}},
        {bn->dst[DT_BN_MASK], {DT_LAYOUT_BITS, DT_U8, 2, 20, 8, 8, 24, 2, 384, 384}},
        {bn_bwd->src[DT_BN_BWD_MASK], {DT_LAYOUT_BITS, DT_U8, 2, 20, 8, 8, 24, 2, 384, 384}},
        {bn_bwd->dst[0], {DT_LAYOUT_ACTIVATION, type, 2, 20, 8, 8, 24, 2, 3072, 3072 * size}},
        {bn_bwd->dst[1], {DT_LAYOUT_VECTOR, DT_F32, 1, 20, 1, 1, 24, 1, 24, 96}},
        {g->tensor[fc->src[DT_LINEAR_BIAS]].diff,
         {DT_LAYOUT_VECTOR, DT_F32, 1, 5, 1, 1, 8, 1, 8, 32}},
        {pool->dst[1], {DT_LAYOUT_BYTES, DT_U8, 2, 20, 4, 4, 24, 2, 768, 768}},
        {conv2->src[1], {DT_LAYOUT_CONV_WEIGHTS, type, 12, 20, 3, 3, 24, 16, 3456, 3456 * 4}},
        {conv2->src[DT_CONV_BIAS], {DT_LAYOUT_VECTOR, DT_F32, 1, 12, 1, 1, 16, 1, 16, 64}},
        {fc->src[1], {DT_LAYOUT_LINEAR_WEIGHTS, type, 5, 12, 4, 4, 16, 8, 2048, 2048 * 4}},
        {g->tensor[fc->src[1]].diff,
         {DT_LAYOUT_LINEAR_WEIGHTS, type, 5, 12, 4, 4, 16, 8, 2048, 2048 * size}},
        {fc->dst[0], {DT_LAYOUT_ACTIVATION, type, 2, 5, 1, 1, 8, 2, 16, 16 * size}},
        {xent->dst[0], {DT_LAYOUT_ACTIVATION, type, 2, 5, 1, 1, 8, 2, 16, 16 * size}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check(&dev, g, rows[i].tensor, &rows[i].want);
    const struct dt_cuda_format *labels;
    assert_ok(dt_cuda_format(&dev, &labels, g, xent->src[1]));
    assert_int_equal(labels->layout, DT_LAYOUT_PLAIN);
    assert_int_equal(dt_cuda_tensor_bytes(&dev, g, xent->src[1]), 2 * sizeof(int32_t));
    dt_cuda_formats_destroy(dev.formats);
    dt_graph_destroy(g);
}

TEST(network)
{
    check_graph(DT_F32);
    check_graph(DT_F16);
    check_graph(DT_BF16);
}

static int add4(struct dt_graph *g, const char *name, enum dt_role role, int n, int c, int h, int w)
{
    const int dim[4] = {n, c, h, w};
    return dt_graph_tensor(g, name, role, DT_F32, 4, dim);
}

/* Backward nodes alone tell the format of weights, to the parameter and to its gradient. */
TEST(backward_alone)
{
    struct dt_device dev = {.type = DT_F16};
    struct dt_graph *g;
    assert_ok(dt_graph_create(&g));
    const int src[2] = {add4(g, "src", DT_ACT, 2, 3, 6, 6), add4(g, "diff", DT_DIFF, 2, 9, 6, 6)};
    int weights = add4(g, "weights", DT_PARAM, 9, 3, 1, 1);
    int diff = add4(g, "diff_weights", DT_DIFF_PARAM, 9, 3, 1, 1);
    int unused = add4(g, "unused", DT_ACT, 2, 9, 1, 1);
    g->tensor[weights].diff = diff;
    g->tensor[diff].diff = weights;
    assert_non_null(dt_graph_node(g, DT_OP_CONV_BWD_WEIGHTS, "node", 2, src, 1, &diff));
    struct expected want = {DT_LAYOUT_CONV_WEIGHTS, DT_F16, 9, 3, 1, 1, 8, 16, 128, 256};
    check(&dev, g, diff, &want);
    want.bytes = 512;
    check(&dev, g, weights, &want);
    want = (struct expected){DT_LAYOUT_ACTIVATION, DT_F16, 2, 9, 1, 1, 16, 2, 32, 64};
    check(&dev, g, unused, &want);
    dt_cuda_formats_destroy(dev.formats);
    dt_graph_destroy(g);
}

/* Rows of 4 channels are for convolutions; kernels want 8. */
TEST(ingest_with_other_readers)
{
    struct dt_device dev = {.type = DT_F32};
    struct dt_graph *g;
    const struct dt_conv_options options = {.out_channels = 8, .kernel = 1, .stride = 1};
    assert_ok(dt_graph_create(&g));
    assert_ok(dt_graph_begin(g, DT_TRAIN, 2, 8, 8));
    int x = dt_graph_ingest(g, ZEROS, ONES);
    int y = dt_graph_conv(g, x, "conv", options);
    dt_graph_relu(g, x, "relu");
    assert_ok(dt_graph_check(g));
    struct expected want = {DT_LAYOUT_ACTIVATION, DT_F32, 2, 3, 8, 8, 8, 2, 1024, 4096};
    check(&dev, g, x, &want);
    want = (struct expected){DT_LAYOUT_CONV_WEIGHTS, DT_F32, 8, 3, 1, 1, 8, 8, 64, 256};
    check(&dev, g, dt_graph_find(g, "conv.weight"), &want);
    assert_true(y >= 0);
    dt_cuda_formats_destroy(dev.formats);
    dt_graph_destroy(g);
}

/* A table must not outlive its nodes: the next graph may have the same address. */
TEST(tables_die_with_the_nodes)
{
    struct dt_device dev = {.type = DT_F32};
    struct dt_graph *g;
    const struct dt_cuda_format *first, *again;
    assert_ok(dt_graph_create(&g));
    int a = add4(g, "a", DT_ACT, 1, 8, 1, 1);
    assert_ok(dt_cuda_formats_acquire(&dev, g));
    assert_ok(dt_cuda_formats_acquire(&dev, g));
    assert_ok(dt_cuda_format(&dev, &first, g, a));
    assert_ok(dt_cuda_format(&dev, &again, g, a));
    assert_ptr_equal(first, again);
    int late = add4(g, "late", DT_ACT, 1, 8, 1, 1);
    assert_int_equal(dt_cuda_format(&dev, &again, g, late), DT_ERR_INTERNAL);
    dt_cuda_formats_release(&dev, g);
    assert_non_null(dev.formats);
    dt_cuda_formats_release(&dev, g);
    assert_null(dev.formats);
    /* Without nodes the graph is looked at anew each time. */
    assert_ok(dt_cuda_format(&dev, &again, g, late));
    g->tensor[late].dim[1] = 9;
    assert_int_equal(dt_cuda_tensor_bytes(&dev, g, late), 64);
    dt_cuda_formats_destroy(dev.formats);
    dt_graph_destroy(g);
}

TEST_MAIN(NULL, NULL)
