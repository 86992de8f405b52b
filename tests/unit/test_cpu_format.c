/* Memory formats: logical values survive the way in and out, padding stays zero, gradients share
 * the format of their parameter, tables die with their graph, running allocates nothing.
 * Label: numeric. */
#include "cpu/isa.h"
#include "cpu_rig.h"

/* Convolution of c channels to 20, forward and weight gradient. */
struct net {
    struct rig rig;
    int src, weights, bias, dst, diff_dst, diff_weights, diff_bias;
};

static void open_conv(struct net *net, int c)
{
    struct rig *rig = &net->rig;
    rig_open(rig, 2);
    net->src = rig_tensor(rig, "src", DT_ACT, 2, c, 6, 6);
    net->weights = rig_tensor(rig, "weights", DT_PARAM, 20, c, 3, 3);
    net->bias = rig_vector(rig, "bias", DT_PARAM, DT_F32, 20);
    net->dst = rig_tensor(rig, "dst", DT_ACT, 2, 20, 6, 6);
    net->diff_dst = rig_tensor(rig, "diff_dst", DT_DIFF, 2, 20, 6, 6);
    net->diff_weights = rig_tensor(rig, "diff_weights", DT_DIFF_PARAM, 20, c, 3, 3);
    net->diff_bias = rig_vector(rig, "diff_bias", DT_DIFF_PARAM, DT_F32, 20);
    rig->g->tensor[net->weights].diff = net->diff_weights;
    rig->g->tensor[net->diff_weights].diff = net->weights;
    struct dt_node *node =
        rig_node(rig, DT_OP_CONV, RIG_IDS(net->src, net->weights, net->bias), RIG_IDS(net->dst));
    node->attr.conv.stride = node->attr.conv.pad = 1;
    node = rig_node(rig, DT_OP_CONV_BWD_WEIGHTS, RIG_IDS(net->src, net->diff_dst),
                    RIG_IDS(net->diff_weights, net->diff_bias));
    node->attr.conv.stride = node->attr.conv.pad = 1;
    rig_build(rig);
}

/* Sums of the stored floats, padding included, and of the logical ones: equal sums of squares mean
 * that the padding is zero. */
static void check_padding(struct rig *rig, int tensor)
{
    const float *stored = rig->address[tensor];
    float *logical = rig_get(rig, tensor);
    size_t n_stored = dt_backend_cpu.tensor_bytes(rig->dev, rig->g, tensor) / sizeof(float);
    size_t n = dt_tensor_elements(&rig->g->tensor[tensor]), n_nonzero = 0, n_nonzero_stored = 0;
    assert_true(n_stored >= n);
    for (size_t i = 0; i < n_stored; i++)
        n_nonzero_stored += stored[i] != 0;
    for (size_t i = 0; i < n; i++)
        n_nonzero += logical[i] != 0;
    assert_int_equal(n_nonzero_stored, n_nonzero);
    free(logical);
}

static void check_conv(int c)
{
    struct net net;
    open_conv(&net, c);
    float *src = rig_fill(&net.rig, net.src, 0, 1);
    float *weights = rig_fill(&net.rig, net.weights, 0, 1);
    float *bias = rig_fill(&net.rig, net.bias, 0, 1);
    float *diff = rig_fill(&net.rig, net.diff_dst, 0, 1);
    assert_int_equal(dt_backend_cpu.tensor_bytes(net.rig.dev, net.rig.g, net.weights),
                     dt_backend_cpu.tensor_bytes(net.rig.dev, net.rig.g, net.diff_weights));
    check_padding(&net.rig, net.weights);
    check_padding(&net.rig, net.src);

    uint64_t n_allocs = dt_backend_cpu.n_allocs(net.rig.dev);
    rig_run(&net.rig, NULL);
    rig_run(&net.rig, NULL);
    assert_int_equal(dt_backend_cpu.n_allocs(net.rig.dev), n_allocs);
    check_padding(&net.rig, net.dst);
    check_padding(&net.rig, net.diff_weights);

    float *back = rig_get(&net.rig, net.weights);
    assert_memory_equal(back, weights, (size_t)(20 * c * 9) * sizeof(float));
    free(back);
    /* One gradient value by hand: filter 19, the last channel, its centre. */
    float *diff_weights = rig_get(&net.rig, net.diff_weights);
    double expected = 0;
    for (int n = 0; n < 2; n++) {
        for (int i = 0; i < 36; i++)
            expected +=
                (double)diff[(n * 20 + 19) * 36 + i] * (double)src[(n * c + c - 1) * 36 + i];
    }
    assert_near((double)diff_weights[(19 * c + c - 1) * 9 + 4], expected, 1e-4);
    free(diff_weights);
    free(src);
    free(weights);
    free(bias);
    free(diff);
    rig_close(&net.rig);
}

TEST(conv_weights)
{
    check_conv(3);
    check_conv(16);
    check_conv(20);
}

/* The gradient has its parameter's format even before a node that writes it is prepared. */
TEST(gradient_shares_the_format)
{
    struct rig rig;
    rig_open(&rig, 2);
    int src = rig_tensor(&rig, "src", DT_ACT, 2, 20, 6, 6);
    int weights = rig_tensor(&rig, "weights", DT_PARAM, 20, 20, 3, 3);
    int dst = rig_tensor(&rig, "dst", DT_ACT, 2, 20, 4, 4);
    int diff = rig_tensor(&rig, "diff_weights", DT_DIFF_PARAM, 20, 20, 3, 3);
    rig.g->tensor[weights].diff = diff;
    rig.g->tensor[diff].diff = weights;
    rig_node(&rig, DT_OP_CONV, RIG_IDS(src, weights), RIG_IDS(dst))->attr.conv.stride = 1;
    rig_build(&rig);
    float *values = rig_fill(&rig, weights, 0, 1);
    size_t bytes = dt_backend_cpu.tensor_bytes(rig.dev, rig.g, weights);
    assert_int_equal(dt_backend_cpu.tensor_bytes(rig.dev, rig.g, diff), bytes);
    rig_set(&rig, diff, values);
    assert_memory_equal(rig.address[diff], rig.address[weights], bytes);
    free(values);
    rig_close(&rig);
}

static void add_conv(struct rig *rig, enum dt_op op, int stride, int src, int weights, int dst)
{
    struct dt_node *node = rig_node(rig, op, RIG_IDS(src, weights), RIG_IDS(dst));
    node->attr.conv.stride = stride;
    node->attr.conv.pad = 1;
}

/* The gradient of the data is computed in the formats of its activations, without copies of them in
 * scratch, although oneDNN 3.x would choose others for this stride (2.6 does not). It has no code
 * for that in the plain instruction set. */
TEST(strided_gradient_without_copies)
{
    if (!dt_cpu_isa(1, DT_F32))
        skip();
    struct rig rig;
    rig_open(&rig, 2);
    int src = rig_tensor(&rig, "src", DT_ACT, 2, 32, 56, 56);
    int weights = rig_tensor(&rig, "weights", DT_PARAM, 32, 32, 3, 3);
    int dst = rig_tensor(&rig, "dst", DT_ACT, 2, 32, 28, 28);
    int next_weights = rig_tensor(&rig, "next_weights", DT_PARAM, 32, 32, 3, 3);
    int diff_dst = rig_tensor(&rig, "diff_dst", DT_DIFF, 2, 32, 28, 28);
    int diff_src = rig_tensor(&rig, "diff_src", DT_DIFF, 2, 32, 56, 56);
    add_conv(&rig, DT_OP_CONV, 2, src, weights, dst);
    add_conv(&rig, DT_OP_CONV, 1, dst, next_weights, diff_dst);
    add_conv(&rig, DT_OP_CONV_BWD_DATA, 2, diff_dst, weights, diff_src);
    rig_build(&rig);
    assert_true(rig.scratch_bytes[2] < dt_backend_cpu.tensor_bytes(rig.dev, rig.g, diff_dst));
    rig_close(&rig);
}

/* A linear layer after a convolution multiplies blocked values in the order of N C H W. */
TEST(linear_after_conv)
{
    struct rig rig;
    rig_open(&rig, 2);
    int src = rig_tensor(&rig, "src", DT_ACT, 2, 16, 3, 3);
    int conv_weights = rig_tensor(&rig, "conv", DT_PARAM, 20, 16, 1, 1);
    int act = rig_tensor(&rig, "act", DT_ACT, 2, 20, 3, 3);
    const int dim[4] = {5, 180, 1, 1};
    int weights = dt_graph_tensor(rig.g, "weights", DT_PARAM, DT_F32, 2, dim);
    int bias = rig_vector(&rig, "bias", DT_PARAM, DT_F32, 5);
    int dst = rig_tensor(&rig, "dst", DT_ACT, 2, 5, 1, 1);
    struct dt_node *node = rig_node(&rig, DT_OP_CONV, RIG_IDS(src, conv_weights), RIG_IDS(act));
    node->attr.conv.stride = 1;
    rig_node(&rig, DT_OP_LINEAR, RIG_IDS(act, weights, bias), RIG_IDS(dst));
    rig_build(&rig);

    float *x = rig_fill(&rig, src, 0, 1), *cw = rig_fill(&rig, conv_weights, 0, 1);
    float *w = rig_fill(&rig, weights, 0, 1), *b = rig_fill(&rig, bias, 0, 1);
    float *back = rig_get(&rig, weights);
    assert_memory_equal(back, w, 900 * sizeof *w);
    rig_run(&rig, NULL);
    float *middle = rig_get(&rig, act), *out = rig_get(&rig, dst);
    for (int n = 0; n < 2; n++) {
        for (int o = 0; o < 5; o++) {
            double sum = (double)b[o];
            for (int i = 0; i < 180; i++)
                sum += (double)middle[n * 180 + i] * (double)w[o * 180 + i];
            assert_near((double)out[n * 5 + o], sum, 1e-4);
        }
    }
    check_padding(&rig, weights);
    free(x);
    free(cw);
    free(w);
    free(b);
    free(back);
    free(middle);
    free(out);
    rig_close(&rig);
}

/* A table of formats must not outlive its graph: the next graph may have the same address. */
TEST(formats_die_with_the_nodes)
{
    struct net net;
    open_conv(&net, 20);
    size_t blocked = dt_backend_cpu.tensor_bytes(net.rig.dev, net.rig.g, net.weights);
    for (int i = 0; i < RIG_MAX; i++) {
        dt_backend_cpu.release(net.rig.dev, net.rig.exec[i]);
        net.rig.exec[i] = NULL;
    }
    assert_int_equal(dt_backend_cpu.tensor_bytes(net.rig.dev, net.rig.g, net.weights),
                     20 * 20 * 9 * sizeof(float));
    assert_true(blocked >= 20 * 20 * 9 * sizeof(float));
    rig_close(&net.rig);
}

TEST(describe_and_bad_options)
{
    struct rig rig;
    char text[128];
    rig_open(&rig, 2);
    dt_backend_cpu.describe(rig.dev, text, sizeof text);
    assert_non_null(strstr(text, "oneDNN"));
    assert_non_null(strstr(text, "2 threads"));
    rig_close(&rig);
    struct dt_device *dev = NULL;
    const struct dt_device_options none = {.threads = 0};
    assert_int_equal(dt_backend_cpu.open(&dev, &none), DT_ERR_INTERNAL);
    assert_null(dev);
    dt_backend_cpu.close(NULL);
}

TEST_MAIN(NULL, NULL)
