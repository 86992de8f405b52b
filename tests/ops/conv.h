/* Convolution. */
#ifndef DTRAIN_TESTS_OPS_CONV_H
#define DTRAIN_TESTS_OPS_CONV_H

#include "cpu/isa.h"
#include "op_cases.h"

static void build_conv(struct dt_graph *g, const struct op_case *c)
{
    const int dilation = c->flags >> 28 ? (int)(c->flags >> 28) : 1;
    const int groups = c->flags >> 20 & 255 ? (int)(c->flags >> 20 & 255) : 1;
    const int window = dilation * (c->kernel - 1) + 1;
    const struct op_case wide = {.kernel = window, .stride = c->stride, .pad = c->pad};
    struct dt_node like = {.activation = c->flags & F_RELU ? DT_RELU : 0,
                           .attr.conv = {c->stride, c->pad, dilation}};
    int n_bias = c->flags & F_BIAS ? 1 : 0;
    int src = add_src(g, c);
    int weights = add4(g, "weights", DT_PARAM, c->k, c->c / groups, c->kernel, c->kernel);
    int bias = n_bias ? add1(g, "bias", DT_PARAM, c->k) : -1;
    int dst = add4(g, "dst", DT_ACT, c->n, c->k, window_out(c->h, &wide), window_out(c->w, &wide));
    int fwd[3] = {src, weights, bias};
    add_node(g, &like, DT_OP_CONV, 3, fwd, 1, &dst);
    if (c->flags & F_EVAL)
        return;
    like.activation = DT_NO_ACTIVATION;
    int diff_dst = add_like(g, "diff_dst", DT_DIFF, DT_F32, dst);
    int diff_src = add_like(g, "diff_src", DT_DIFF, DT_F32, src);
    int diff_weights = add_diff_param(g, "diff_weights", weights);
    int diff_bias = n_bias ? add_diff_param(g, "diff_bias", bias) : -1;
    int bwd_weights[2] = {src, diff_dst}, diffs[2] = {diff_weights, diff_bias};
    add_node(g, &like, DT_OP_CONV_BWD_WEIGHTS, 2, bwd_weights, 2, diffs);
    int bwd_data[2] = {diff_dst, weights};
    add_node(g, &like, DT_OP_CONV_BWD_DATA, 2, bwd_data, 1, &diff_src);
}

static double ref_conv(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    const double *src = ref_src(r, node, DT_CONV_SRC);
    const double *weights = ref_src(r, node, DT_CONV_WEIGHTS);
    const double *bias = ref_src(r, node, DT_CONV_BIAS);
    const int *sd = ref_dim(r, node->src[0]), *wd = ref_dim(r, node->src[DT_CONV_WEIGHTS]);
    const int stride = node->attr.conv.stride, pad = node->attr.conv.pad;
    const int step = node->attr.conv.dilation, per_group = wd[0] / (sd[1] / wd[1]);
    int at[4];
    ref_decode(at, ref_dim(r, node->dst[0]), i);
    double sum = bias ? bias[at[1]] : 0;
    const int first = at[1] / per_group * wd[1]; /* channel of the group */
    const size_t plane = (size_t)sd[2] * (size_t)sd[3], window = (size_t)wd[2] * (size_t)wd[3];
    for (int y = 0; y < wd[2]; y++)
        for (int x = 0; x < wd[3]; x++) {
            const int h = at[2] * stride - pad + y * step, w = at[3] * stride - pad + x * step;
            if (h < 0 || h >= sd[2] || w < 0 || w >= sd[3])
                continue;
            const double *from = src + ref_index(sd, at[0], first, h, w);
            const double *weight = weights + ref_index(wd, at[1], 0, y, x);
            for (size_t c = 0; c < (size_t)wd[1]; c++)
                sum += from[c * plane] * weight[c * window];
        }
    return ref_relu(r, node->activation == DT_RELU, sum);
}

static double ref_conv_bwd_data(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    const double *diff_dst = ref_src(r, node, 0), *weights = ref_src(r, node, 1);
    const int *dd = ref_dim(r, node->src[0]), *wd = ref_dim(r, node->src[1]);
    const int stride = node->attr.conv.stride, pad = node->attr.conv.pad;
    const int step = node->attr.conv.dilation;
    const int groups = ref_dim(r, node->dst[0])[1] / wd[1], per_group = wd[0] / groups;
    int at[4];
    ref_decode(at, ref_dim(r, node->dst[0]), i);
    const int first = at[1] / wd[1] * per_group; /* output channel of the group */
    double sum = 0;
    for (int y = 0; y < wd[2]; y++)
        for (int x = 0; x < wd[3]; x++) {
            int h = at[2] + pad - y * step, w = at[3] + pad - x * step;
            if (h < 0 || w < 0 || h % stride != 0 || w % stride != 0)
                continue;
            h /= stride;
            w /= stride;
            if (h >= dd[2] || w >= dd[3])
                continue;
            for (int k = first; k < first + per_group; k++)
                sum += diff_dst[ref_index(dd, at[0], k, h, w)] *
                       weights[ref_index(wd, k, at[1] % wd[1], y, x)];
        }
    return sum;
}

static double ref_conv_bwd_weights(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    const double *src = ref_src(r, node, 0), *diff_dst = ref_src(r, node, 1);
    const int *sd = ref_dim(r, node->src[0]), *dd = ref_dim(r, node->src[1]);
    const int stride = node->attr.conv.stride, pad = node->attr.conv.pad;
    const int step = node->attr.conv.dilation, *wd = ref_dim(r, node->dst[0]);
    const int per_group = wd[0] / (sd[1] / wd[1]);
    int at[4];
    ref_decode(at, ref_dim(r, node->dst[which]), i);
    const int channel = at[0] / per_group * wd[1] + at[1];
    double sum = 0;
    for (int n = 0; n < dd[0]; n++)
        for (int y = 0; y < dd[2]; y++)
            for (int x = 0; x < dd[3]; x++) {
                double diff = diff_dst[ref_index(dd, n, at[0], y, x)];
                int h = y * stride - pad + at[2] * step, w = x * stride - pad + at[3] * step;
                if (which == 1)
                    sum += diff;
                else if (h >= 0 && h < sd[2] && w >= 0 && w < sd[3])
                    sum += diff * src[ref_index(sd, n, channel, h, w)];
            }
    return sum;
}

static const struct op_case conv_cases[] = {
    /* Channels that fill no block, odd sizes, every kernel size in use. */
    {2, 32, 9, 11, 256, 3, 1, 0, F_BIAS, 0},
    {1, 32, 9, 11, 256, 3, 1, 2, 0, 0},
    {2, 3, 9, 9, 16, 3, 1, 1, 0, 0},
    {2, 5, 11, 7, 17, 3, 2, 1, F_BIAS, 0},
    {2, 17, 13, 13, 5, 3, 1, 0, F_BIAS, 0},
    {1, 20, 10, 12, 20, 3, 2, 0, 0, 0},
    {2, 20, 15, 15, 33, 1, 1, 0, F_BIAS, 0},
    {3, 16, 15, 15, 32, 1, 2, 0, 0, 0},
    {2, 17, 9, 9, 3, 1, 2, 0, 0, 0},
    {2, 6, 14, 14, 16, 5, 1, 2, F_BIAS, 0},
    {1, 3, 63, 63, 64, 11, 4, 2, F_BIAS, 0},
    {1, 64, 7, 7, 192, 5, 1, 2, F_BIAS, 0},
    {1, 3, 32, 32, 16, 3, 1, 1, 0, 0},
    {2, 16, 32, 32, 32, 3, 2, 1, 0, 0},
    {1, 1, 5, 5, 1, 3, 1, 1, F_BIAS, 0},
    {4, 8, 1, 1, 12, 1, 1, 0, F_BIAS, 0},
    {2, 16, 3, 3, 16, 3, 1, 0, 0, 0},
    /* Fused ReLU. */
    {2, 3, 12, 12, 16, 3, 1, 1, F_BIAS | F_RELU, 0},
    {2, 17, 11, 11, 20, 3, 2, 1, F_RELU, 0},
    {1, 64, 14, 14, 64, 3, 1, 1, F_BIAS | F_RELU, 0},
    {1, 3, 63, 63, 64, 11, 4, 2, F_BIAS | F_RELU, 0},
    /* Evaluation: forward alone. */
    {2, 3, 33, 33, 64, 7, 2, 3, F_EVAL, 0},
    {3, 17, 8, 8, 20, 3, 1, 1, F_BIAS | F_RELU | F_EVAL, 0},
    /* Groups of one channel, of several that share a block, and of whole blocks; dilation. */
    {2, 20, 9, 9, 20, 3, 1, 1, F_BIAS | F_GROUPS(20), 0},
    {2, 33, 14, 11, 33, 3, 2, 1, F_GROUPS(33), 0},
    {1, 24, 15, 15, 24, 7, 1, 3, F_BIAS | F_GROUPS(24), 0},
    {2, 64, 12, 12, 64, 5, 2, 2, F_RELU | F_GROUPS(64), 0},
    {2, 16, 7, 7, 16, 3, 1, 1, F_EVAL | F_GROUPS(16), 0},
    {2, 32, 9, 9, 32, 3, 1, 1, F_GROUPS(8), 0},
    {2, 32, 9, 9, 64, 3, 2, 1, F_BIAS | F_GROUPS(4), 0},
    {2, 128, 7, 7, 128, 3, 1, 1, F_GROUPS(32), 0},
    {2, 64, 7, 7, 64, 3, 1, 1, F_BIAS | F_RELU | F_GROUPS(2), 0},
    {2, 48, 6, 6, 24, 1, 1, 0, F_BIAS | F_GROUPS(3), 0},
    {2, 16, 13, 13, 24, 3, 1, 2, F_BIAS | F_DILATION(2), 0},
    {2, 32, 17, 17, 32, 3, 2, 3, F_GROUPS(32) | F_DILATION(3), 0},
};

/* Every distinct convolution of ResNet-50 v1.5 at 224 pixels. */
static const struct op_case resnet50_cases[] = {
    {1, 3, 224, 224, 64, 7, 2, 3, 0, 0},    {1, 64, 56, 56, 64, 1, 1, 0, 0, 0},
    {1, 64, 56, 56, 64, 3, 1, 1, 0, 0},     {1, 64, 56, 56, 256, 1, 1, 0, 0, 0},
    {1, 256, 56, 56, 64, 1, 1, 0, 0, 0},    {1, 256, 56, 56, 128, 1, 1, 0, 0, 0},
    {1, 128, 56, 56, 128, 3, 2, 1, 0, 0},   {1, 128, 28, 28, 512, 1, 1, 0, 0, 0},
    {1, 256, 56, 56, 512, 1, 2, 0, 0, 0},   {1, 512, 28, 28, 128, 1, 1, 0, 0, 0},
    {1, 128, 28, 28, 128, 3, 1, 1, 0, 0},   {1, 512, 28, 28, 256, 1, 1, 0, 0, 0},
    {1, 256, 28, 28, 256, 3, 2, 1, 0, 0},   {1, 256, 14, 14, 1024, 1, 1, 0, 0, 0},
    {1, 512, 28, 28, 1024, 1, 2, 0, 0, 0},  {1, 1024, 14, 14, 256, 1, 1, 0, 0, 0},
    {1, 256, 14, 14, 256, 3, 1, 1, 0, 0},   {1, 1024, 14, 14, 512, 1, 1, 0, 0, 0},
    {1, 512, 14, 14, 512, 3, 2, 1, 0, 0},   {1, 512, 7, 7, 2048, 1, 1, 0, 0, 0},
    {1, 1024, 14, 14, 2048, 1, 2, 0, 0, 0}, {1, 2048, 7, 7, 512, 1, 1, 0, 0, 0},
    {2, 512, 7, 7, 512, 3, 1, 1, 0, 0},
};

/* 3x3 convolutions as networks have them: those of ResNet-20 at 32 pixels and of ResNet-18 at 224.
 */
static const struct op_case layer_cases[] = {
    {128, 16, 32, 32, 16, 3, 1, 1, 0, 0},  {128, 32, 16, 16, 32, 3, 1, 1, 0, 0},
    {128, 64, 8, 8, 64, 3, 1, 1, 0, 0},    {16, 64, 56, 56, 64, 3, 1, 1, 0, 0},
    {16, 128, 28, 28, 128, 3, 1, 1, 0, 0}, {16, 256, 14, 14, 256, 3, 1, 1, 0, 0},
    {16, 512, 7, 7, 512, 3, 1, 1, 0, 0},   {16, 64, 56, 56, 128, 3, 2, 1, 0, 0},
    {16, 128, 28, 28, 256, 3, 2, 1, 0, 0},
};

/* Some whose tiles of 4x4 and blocks of channels do not come out even, or that have only a few. */
static const struct op_case winograd_cases[] = {
    {6, 64, 13, 15, 48, 3, 1, 1, F_BIAS, 0},
    {8, 33, 20, 18, 40, 3, 1, 1, F_BIAS, 0},
    {4, 64, 28, 28, 64, 3, 1, 1, F_BIAS | F_RELU, 0},
    {5, 32, 19, 30, 64, 3, 1, 1, F_BIAS | F_RELU | F_EVAL, 0},
    {1, 16, 18, 20, 16, 3, 1, 1, F_BIAS, 0},
    {1, 24, 41, 9, 72, 3, 1, 1, F_RELU, 0},
    {40, 20, 3, 3, 17, 3, 1, 1, 0, 0},
    {6, 72, 31, 29, 80, 3, 2, 1, F_BIAS, 0},
    {3, 65, 40, 63, 100, 3, 2, 1, F_BIAS | F_RELU, 0},
    {2, 64, 48, 64, 64, 3, 2, 1, F_BIAS | F_RELU | F_EVAL, 0},
    {72, 64, 7, 8, 70, 3, 2, 1, 0, 0},
};

OP_TEST(conv, build_conv, true)

/* With a quarter of the pixels on the emulator. */
static void test_resnet50(void **state)
{
    struct suite *suite = *state;
    struct op_case cases[DT_COUNT(resnet50_cases)];
    memcpy(cases, resnet50_cases, sizeof cases);
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        cases[i].h /= suite->few_images ? 2 : 1;
        cases[i].w /= suite->few_images ? 2 : 1;
    }
    run_cases(suite, "resnet50", build_conv, false, cases, DT_COUNT(cases));
}

/* Forward by oneDNN, the gradients by Winograd. */
static const struct op_case mixed_case = {3, 70, 23, 24, 65, 3, 2, 1, F_BIAS, 0};

/* The same bounds; most other tests run without Winograd. */
static void test_winograd(void **state)
{
    struct suite *suite = *state;
    struct op_case cases[DT_COUNT(winograd_cases) + DT_COUNT(layer_cases) + 1];
    memcpy(cases, winograd_cases, sizeof winograd_cases);
    memcpy(cases + DT_COUNT(winograd_cases), layer_cases, sizeof layer_cases);
    cases[DT_COUNT(cases) - 1] = mixed_case;
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        if (suite->few_images)
            cases[i].n = cases[i].n > 2 ? 2 : cases[i].n;
    }
    suite->options.winograd = true;
    run_cases(suite, "winograd", build_conv, false, cases, DT_COUNT(cases));
    suite->options.winograd = false;
}

static dt_status winograd_run(struct rig *rig, const struct suite *suite, const struct dt_graph *g,
                              const struct ref *input, bool winograd, int threads)
{
    struct dt_device_options options = suite->options;
    options.winograd = winograd;
    options.threads = threads;
    DT_TRY(rig_open(rig, suite->backend, &options, g, NULL));
    DT_TRY(set_inputs(rig, input));
    return rig_run(rig, dt_graph_program(g)->phase, &case_scalars);
}

/* The errors of result and gradients, as shares of the largest value. */
static dt_status winograd_errors(double error[3], const struct suite *suite,
                                 const struct op_case *c, bool winograd)
{
    enum { SAMPLES = 400 };
    struct dt_graph *g = NULL;
    struct ref input = {0}, want = {0};
    struct rig rig = {0};
    dt_status status;
    DT_TRY_OUT(build_graph(&g, build_conv, c));
    DT_TRY_OUT(ref_open(&input, g, SAMPLES));
    DT_TRY_OUT(ref_open(&want, g, SAMPLES));
    DT_TRY_OUT(run_reference(&input, &want, c, suite->options.precision));
    status = winograd_run(&rig, suite, g, &input, winograd, suite->options.threads);
    for (int i = 0; status == DT_OK && i < 3; i++) {
        int t = g->node[i].dst[0];
        size_t at;
        float *got;
        status = rig_get(&rig, t, &got);
        if (status == DT_OK)
            error[i] = rig_error(got, want.value[t], dt_tensor_elements(&g->tensor[t]), 0, &at);
        if (status == DT_OK)
            free(got);
    }
    rig_close(&rig);
out:
    ref_close(&input);
    ref_close(&want);
    dt_graph_destroy(g);
    return status;
}

/* In blocks, with more than the plain set. */
static bool has_winograd(const struct suite *suite)
{
    return suite->options.layout != DT_LAYOUT_NHWC && dt_cpu_isa(1, DT_F32) != NULL;
}

/* What backend.h promises, with a table of the errors; and that Winograd is used at all. */
static void test_winograd_errors(void **state)
{
    struct suite *suite = *state;
    if (suite->backend != &dt_backend_cpu || suite->options.precision != DT_PRECISION_FP32)
        skip();
    printf(
        "error / largest value: forward, gradients of weights and data; with Winograd; direct\n");
    for (size_t i = 0; i < DT_COUNT(layer_cases); i++) {
        const struct op_case *c = &layer_cases[i];
        double error[2][3] = {{0}};
        for (int direct = 0; direct < 2; direct++)
            report(suite, "winograd errors", winograd_errors(error[direct], suite, c, direct == 0));
        printf("%4d x %3d -> %3d, %2dx%2d / %d   %.1e %.1e %.1e   %.1e %.1e %.1e\n", c->n, c->c,
               c->k, c->h, c->w, c->stride, error[0][0], error[0][1], error[0][2], error[1][0],
               error[1][1], error[1][2]);
        for (int k = 0; k < 3; k++)
            assert_true(error[0][k] <= fmax(3e-6, error[1][k]) &&
                        (error[0][k] != error[1][k] || !has_winograd(suite)));
    }
}

/* The values of result and gradients, one after the other; the caller frees. */
static dt_status winograd_values(const struct suite *suite, const struct dt_graph *g,
                                 const struct ref *input, int threads, float *out)
{
    struct rig rig;
    dt_status status = winograd_run(&rig, suite, g, input, true, threads);
    for (int i = 0; i < g->n_nodes; i++) {
        for (int k = 0; status == DT_OK && k < g->node[i].n_dst; k++) {
            int t = g->node[i].dst[k];
            status = rig.backend->get_tensor(rig.dev, g, t, out, rig.address[t]);
            out += dt_tensor_elements(&g->tensor[t]);
        }
    }
    if (status == DT_OK)
        status = rig_check_guards(&rig);
    rig_close(&rig);
    return status;
}

static size_t count_values(const struct dt_graph *g)
{
    size_t n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->node[i].n_dst; k++)
            n += dt_tensor_elements(&g->tensor[g->node[i].dst[k]]);
    return n;
}

/* The same bits in every run; with Winograd even for every number of threads. */
static void test_winograd_threads(void **state)
{
    struct suite *suite = *state;
    if (suite->backend != &dt_backend_cpu || suite->options.precision != DT_PRECISION_FP32)
        skip();
    static const int threads[] = {1, 2, 3, 6}; /* 6: more than some cases have groups of blocks */
    for (size_t i = 0; i < DT_COUNT(winograd_cases); i++) {
        struct dt_graph *g;
        struct ref input;
        float *first, *values;
        report(suite, "graph", build_graph(&g, build_conv, &winograd_cases[i]));
        report(suite, "inputs", ref_open(&input, g, 1));
        fill_inputs(&input, 1, winograd_cases[i].c, 0, DT_PRECISION_FP32);
        size_t n = count_values(g);
        report(suite, "memory", DT_NEW(first, n));
        report(suite, "memory", DT_NEW(values, n));
        for (int run = 0; run < 2 * (int)DT_COUNT(threads); run++) {
            bool is_first = run == 0 || (run % 2 == 0 && !has_winograd(suite));
            report(suite, "winograd",
                   winograd_values(suite, g, &input, threads[run / 2], is_first ? first : values));
            if (!is_first)
                assert_memory_equal(values, first, n * sizeof *first);
        }
        free(first);
        free(values);
        ref_close(&input);
        dt_graph_destroy(g);
    }
}

static const struct op_test op_test_conv = {
    .element = ref_conv,
    .sampled = true,
    .bound = 1e-5,
    .gpu_bound = 1e-4,
    .n_roundings = 2,
    .tests = {TEST_OF(conv), TEST_OF(resnet50), TEST_OF(winograd)}};
static const struct op_test op_test_conv_bwd_data = {
    .element = ref_conv_bwd_data,
    .sampled = true,
    .bound = 1e-5,
    .gpu_bound = 1e-4,
    .n_roundings = 1,
    .tests = {TEST_OF(winograd_errors), TEST_OF(winograd_threads)}};
static const struct op_test op_test_conv_bwd_weights = {.element = ref_conv_bwd_weights,
                                                        .sampled = true,
                                                        .bound = 2e-5,
                                                        .gpu_bound = 1e-4,
                                                        .n_roundings = 1};

#endif
