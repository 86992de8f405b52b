/* Linear layers on the CUDA device: the three products against sums in fp64, with channels and
 * outputs that need padding, in all precisions; twice the same bits; padding stays zero. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "dtrain/backend.h"
#include "need_gpu.h"
#include "test.h"

#define OK(call) assert_string_equal((call) == DT_OK ? "" : dt_error_text(), "")

static const struct dt_backend *const CUDA = &dt_backend_cuda;

enum { N = 6, C = 5, H = 3, W = 2, K = C * H * W, O = 11 };
enum { SRC, WEIGHTS, BIAS, DST, DIFF_DST, DIFF_SRC, DIFF_WEIGHTS, DIFF_BIAS, N_TENSORS };

struct net {
    struct dt_device *dev;
    struct dt_graph *g;
    struct dt_exec *exec[3];
    void *address[N_TENSORS], *shadow, *scratch;
    float *value[N_TENSORS]; /* of the inputs */
};

static void make_graph(struct net *net)
{
    static const struct {
        const char *name;
        enum dt_role role;
        int n_dims, dim[4];
    } tensors[N_TENSORS] = {{"src", DT_ACT, 4, {N, C, H, W}},
                            {"weights", DT_PARAM, 2, {O, K, 1, 1}},
                            {"bias", DT_PARAM, 1, {O, 1, 1, 1}},
                            {"dst", DT_ACT, 4, {N, O, 1, 1}},
                            {"diff_dst", DT_DIFF, 4, {N, O, 1, 1}},
                            {"diff_src", DT_DIFF, 4, {N, C, H, W}},
                            {"diff_weights", DT_DIFF_PARAM, 2, {O, K, 1, 1}},
                            {"diff_bias", DT_DIFF_PARAM, 1, {O, 1, 1, 1}}};
    static const int src[3][3] = {{SRC, WEIGHTS, BIAS}, {DIFF_DST, WEIGHTS}, {SRC, DIFF_DST}};
    static const int dst[3][2] = {{DST}, {DIFF_SRC}, {DIFF_WEIGHTS, DIFF_BIAS}};
    OK(dt_graph_create(&net->g));
    for (int t = 0; t < N_TENSORS; t++)
        assert_int_equal(dt_graph_tensor(net->g, tensors[t].name, tensors[t].role, DT_F32,
                                         tensors[t].n_dims, tensors[t].dim),
                         t);
    for (int i = 0; i < 2; i++) {
        net->g->tensor[WEIGHTS + i].diff = DIFF_WEIGHTS + i;
        net->g->tensor[DIFF_WEIGHTS + i].diff = WEIGHTS + i;
    }
    assert_non_null(dt_graph_node(net->g, DT_OP_LINEAR, "fc", 3, src[0], 1, dst[0]));
    assert_non_null(dt_graph_node(net->g, DT_OP_LINEAR_BWD_DATA, "fc", 2, src[1], 1, dst[1]));
    assert_non_null(dt_graph_node(net->g, DT_OP_LINEAR_BWD_WEIGHTS, "fc", 2, src[2], 2, dst[2]));
}

/* Small multiples of 1/8: exact in all types. */
static void fill(struct net *net, int t)
{
    size_t count = dt_tensor_elements(&net->g->tensor[t]);
    OK(DT_NEW(net->value[t], count));
    for (size_t i = 0; i < count; i++)
        net->value[t][i] = (float)((int)((i * 7919 + (size_t)t * 31) % 33) - 16) / 8;
    OK(CUDA->set_tensor(net->dev, net->g, t, net->address[t], net->value[t]));
}

static void open_net(struct net *net, enum dt_precision precision)
{
    const struct dt_device_options options = {
        .threads = 1, .deterministic = true, .precision = precision, .timeout_s = 120};
    size_t scratch = 0;
    void *address[N_TENSORS];
    *net = (struct net){0};
    OK(CUDA->open(&net->dev, &options));
    make_graph(net);
    for (int i = 0; i < 3; i++)
        OK(CUDA->prepare(net->dev, &net->exec[i], net->g, i));
    OK(CUDA->autotune(net->dev, DT_OK));
    for (int i = 0; i < 3; i++) {
        size_t bytes = CUDA->scratch_bytes(net->dev, net->exec[i]);
        scratch = bytes > scratch ? bytes : scratch;
    }
    for (int t = 0; t < N_TENSORS; t++)
        OK(CUDA->alloc(net->dev, &net->address[t], CUDA->tensor_bytes(net->dev, net->g, t)));
    OK(CUDA->alloc(net->dev, &net->scratch, scratch + 64));
    fill(net, SRC);
    fill(net, WEIGHTS);
    fill(net, BIAS);
    fill(net, DIFF_DST);
    memcpy(address, net->address, sizeof address);
    if (CUDA->dtype(net->dev, net->g, WEIGHTS) != DT_F32) {
        size_t bytes = CUDA->tensor_bytes(net->dev, net->g, WEIGHTS);
        OK(CUDA->alloc(net->dev, &net->shadow, bytes / 2));
        OK(CUDA->refresh(net->dev, net->shadow, net->address[WEIGHTS], bytes / 4));
        address[WEIGHTS] = net->shadow;
    }
    for (int i = 0; i < 3; i++) /* aligned as the plan aligns, not better */
        OK(CUDA->bind(net->dev, net->exec[i], address, (char *)net->scratch + 64));
}

static void close_net(struct net *net)
{
    for (int i = 0; i < 3; i++)
        CUDA->release(net->dev, net->exec[i]);
    for (int t = 0; t < N_TENSORS; t++) {
        CUDA->free(net->dev, net->address[t], 0);
        free(net->value[t]);
    }
    CUDA->free(net->dev, net->shadow, 0);
    CUDA->free(net->dev, net->scratch, 0);
    dt_graph_destroy(net->g);
    CUDA->close(net->dev);
}

static double reference(const struct net *net, int t, size_t i)
{
    const float *x = net->value[SRC], *w = net->value[WEIGHTS], *d = net->value[DIFF_DST];
    double sum = t == DST ? (double)net->value[BIAS][i % O] : 0;
    if (t == DST)
        for (size_t k = 0; k < K; k++)
            sum += (double)x[i / O * K + k] * (double)w[i % O * K + k];
    else if (t == DIFF_SRC)
        for (size_t o = 0; o < O; o++)
            sum += (double)d[i / K * O + o] * (double)w[o * K + i % K];
    else
        for (size_t n = 0; n < N; n++)
            sum += (double)d[n * O + (t == DIFF_BIAS ? i : i / K)] *
                   (t == DIFF_BIAS ? 1 : (double)x[n * K + i % K]);
    return sum;
}

/* Elements that are not zero, of the first `count` of type `type` in device memory. */
static size_t count_nonzero(struct net *net, int t, size_t *stored)
{
    size_t bytes = CUDA->tensor_bytes(net->dev, net->g, t), n = 0;
    size_t size = dt_dtype_bytes(CUDA->dtype(net->dev, net->g, t));
    const int dim[4] = {(int)(bytes / sizeof(float)), 1, 1, 1};
    struct dt_graph *g;
    float *raw;
    OK(DT_NEW(raw, bytes / sizeof *raw));
    OK(dt_graph_create(&g));
    int view = dt_graph_tensor(g, "raw", DT_STAT, DT_F32, 1, dim); /* read as it is */
    OK(CUDA->get_tensor(net->dev, g, view, raw, net->address[t]));
    for (size_t i = 0; i < bytes / size; i++) {
        const char *element = (const char *)raw + i * size;
        bool zero = true; /* of either sign */
        for (size_t b = 0; b < size; b++)
            zero = zero && (element[b] & (b + 1 == size ? 0x7f : 0xff)) == 0;
        n += !zero;
    }
    *stored = bytes / size;
    dt_graph_destroy(g);
    free(raw);
    return n;
}

/* `bound`: of the error, relative to the largest value. */
static void check_outputs(struct net *net, int t, double bound, float *bits, bool first)
{
    size_t count = dt_tensor_elements(&net->g->tensor[t]), stored, n_nonzero = 0;
    float *got;
    double worst = 0, largest = 0;
    OK(DT_NEW(got, count));
    OK(CUDA->get_tensor(net->dev, net->g, t, got, net->address[t]));
    for (size_t i = 0; i < count; i++) {
        double want = reference(net, t, i);
        worst = fmax(worst, fabs((double)got[i] - want));
        largest = fmax(largest, fabs(want));
        n_nonzero += got[i] != 0;
    }
    if (!(worst <= bound * largest))
        fail_msg("%s: error %g of %g", net->g->tensor[t].name, worst, largest);
    assert_int_equal(count_nonzero(net, t, &stored), n_nonzero);
    assert_true(stored > count);
    if (!first)
        assert_memory_equal(got, bits, count * sizeof *got);
    memcpy(bits, got, count * sizeof *got);
    free(got);
}

TEST(products)
{
    /* The inputs are exact, so fp32 and tf32 differ from fp64 by the order of sums only. */
    static const double bounds[] = {1e-6, 1e-6, 0x1p-7, 0x1p-10};
    static const int outputs[] = {DST, DIFF_SRC, DIFF_WEIGHTS, DIFF_BIAS};
    static float bits[4][O * K + N * K];
    for (int p = DT_PRECISION_FP32; p <= DT_PRECISION_FP16; p++) {
        struct net net;
        open_net(&net, (enum dt_precision)p);
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 3; i++)
                OK(CUDA->run(net.dev, net.exec[i]));
            for (int i = 0; i < 4; i++)
                check_outputs(&net, outputs[i], bounds[p], bits[i], round == 0);
        }
        close_net(&net);
    }
}

GPU_TEST_MAIN(NULL, NULL)
