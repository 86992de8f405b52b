/* Ops on single elements: ingest, additions, and dropout, whose mask is random and is checked
 * by its statistics. */
#ifndef DTRAIN_TESTS_OPS_POINTWISE_H
#define DTRAIN_TESTS_OPS_POINTWISE_H

#include "op_cases.h"

/* --- Ingest --- */

static void build_ingest(struct dt_graph *g, const struct op_case *c)
{
    struct dt_node like = {0};
    for (int i = 0; i < 3; i++) {
        like.attr.ingest.mean[i] = 0.4f + 0.05f * (float)i;
        like.attr.ingest.std[i] = 0.2f + 0.03f * (float)i;
    }
    if (c->flags & F_SIZES)
        (void)dt_graph_boxes(g, 1);
    int src[2] = {dt_graph_program(g)->pixels, dt_graph_program(g)->sizes};
    int dst = add_like(g, "dst", DT_ACT, DT_F32, src[0]);
    add_node(g, &like, DT_OP_INGEST, 2, src, 1, &dst);
}

static double ref_ingest(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    int at[4];
    const int *dim = ref_dim(r, node->dst[0]);
    ref_decode(at, dim, i);
    const double *sizes = ref_src(r, node, DT_INGEST_SIZES);
    if (sizes && (at[2] >= sizes[2 * at[0]] || at[3] >= sizes[2 * at[0] + 1]))
        return 0;
    size_t pixel =
        (((size_t)at[0] * (size_t)dim[2] + (size_t)at[2]) * (size_t)dim[3] + (size_t)at[3]) * 3 +
        (size_t)at[1];
    return (ref_src(r, node, 0)[pixel] / 255.0 - (double)node->attr.ingest.mean[at[1]]) /
           (double)node->attr.ingest.std[at[1]];
}

/* With F_SIZES, heights and widths are less than c. */
static const struct op_case ingest_cases[] = {
    {1, 3, 224, 224, 0, 0, 0, 0, 0, 0},     {5, 3, 7, 7, 0, 0, 0, 0, 0, 0},
    {2, 3, 32, 32, 0, 0, 0, 0, F_EVAL, 0},  {1, 3, 1, 1, 0, 0, 0, 0, 0, 0},
    {2, 3, 9, 14, 0, 0, 0, 0, 0, 0},        {1, 9, 8, 11, 0, 0, 0, 0, F_SIZES, 0},
    {4, 17, 16, 9, 0, 0, 0, 0, F_SIZES, 0}, {3, 32, 24, 31, 0, 0, 0, 0, F_SIZES | F_EVAL, 0},
};

OP_TEST(ingest, build_ingest, false)

static const struct op_test op_test_ingest = {
    .element = ref_ingest, .bound = 1e-6, .n_roundings = 1, .tests = {TEST_OF(ingest)}};

/* --- Addition --- */

static void build_add(struct dt_graph *g, const struct op_case *c)
{
    const struct dt_node like = {.activation = c->flags & F_RELU ? DT_RELU : 0};
    int src[2] = {add_src(g, c), -1};
    src[1] = add_like(g, "src2", DT_ACT, DT_F32, src[0]);
    int dst = add_like(g, "dst", DT_ACT, DT_F32, src[0]);
    add_node(g, &like, DT_OP_ADD, 2, src, 1, &dst);
}

static double ref_add(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    return ref_relu(r, node->activation, ref_src(r, node, 0)[i] + ref_src(r, node, 1)[i]);
}

static const struct op_case add_cases[] = {
    {1, 1, 1, 1, 0, 0, 0, 0, 0, 0},          {3, 17, 5, 7, 0, 0, 0, 0, 0, 0},
    {2, 256, 14, 14, 0, 0, 0, 0, 0, 0},      {3, 17, 5, 7, 0, 0, 0, 0, F_RELU, 0},
    {2, 256, 28, 28, 0, 0, 0, 0, F_RELU, 0}, {2, 20, 3, 3, 0, 0, 0, 0, F_RELU, 0},
};

OP_TEST(add, build_add, true)

static const struct op_test op_test_add = {
    .element = ref_add, .bound = 1e-6, .n_roundings = 1, .tests = {TEST_OF(add)}};

/* --- The sum of the gradients of a shared parameter --- */

/* k terms, of weights or, with F_BIAS, of a bias. With F_COPY the parameter is that of a
 * convolution and has the format of its choice. */
static void build_sum_grads(struct dt_graph *g, const struct op_case *c)
{
    const struct dt_node like = {.attr.conv = {1, c->h / 2, 1}};
    int param = c->flags & F_BIAS ? add1(g, "param", DT_PARAM, c->n)
                                  : add4(g, "param", DT_PARAM, c->n, c->c, c->h, c->w);
    int term[DT_MAX_SRC], diff = add_diff_param(g, "diff_param", param);
    if (c->flags & F_COPY && !(c->flags & F_BIAS)) {
        int src[2] = {add4(g, "src", DT_ACT, 1, c->c, 6, 6), param};
        int dst = add4(g, "dst", DT_ACT, 1, c->n, 6, 6);
        add_node(g, &like, DT_OP_CONV, 2, src, 1, &dst);
    }
    for (int i = 0; i < c->k; i++) {
        char name[16];
        snprintf(name, sizeof name, "term%d", i);
        term[i] = add_like(g, name, DT_DIFF_TERM, DT_F32, param);
        if (term[i] >= 0)
            g->tensor[term[i]].diff = param;
    }
    add_node(g, NULL, DT_OP_SUM_GRADS, c->k, term, 1, &diff);
}

static double ref_sum_grads(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    double sum = 0;
    for (int k = 0; k < node->n_src; k++)
        sum += ref_src(r, node, k)[i];
    return sum;
}

static const struct op_case sum_grads_cases[] = {
    {1, 1, 1, 1, 2, 0, 0, 0, 0, 0},        {17, 20, 3, 3, 5, 0, 0, 0, 0, 0},
    {40, 16, 3, 3, 8, 0, 0, 0, 0, 0},      {36, 64, 1, 1, 3, 0, 0, 0, 0, 0},
    {720, 3, 1, 1, 5, 0, 0, 0, F_BIAS, 0}, {36, 3, 1, 1, 2, 0, 0, 0, F_BIAS, 0},
};

OP_TEST(sum_grads, build_sum_grads, true)

static const struct op_test op_test_sum_grads = {
    .element = ref_sum_grads, .bound = 1e-6, .n_roundings = 1, .tests = {TEST_OF(sum_grads)}};

/* --- Dropout --- */

/* Only p = 0: the mask of a backend is checked by its statistics. */
static double ref_dropout(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    return node->attr.dropout.p == 0 ? ref_src(r, node, 0)[i] : NAN;
}

struct dropout_case {
    const char *name;
    float p;
    int dim[4];
    uint32_t stream;
};

/* src -> dst, diff_dst -> diff_src with the same mask. */
static dt_status dropout_graph(struct dt_graph **g, const struct dropout_case *c)
{
    DT_TRY(dt_graph_create(g));
    DT_TRY(dt_graph_begin(*g, DT_TRAIN, c->dim[0], 1, 1));
    int src = dt_graph_tensor(*g, "src", DT_ACT, DT_F32, 4, c->dim);
    int dst = dt_graph_tensor(*g, "dst", DT_ACT, DT_F32, 4, c->dim);
    int diff_dst = dt_graph_tensor(*g, "diff_dst", DT_DIFF, DT_F32, 4, c->dim);
    int diff_src = dt_graph_tensor(*g, "diff_src", DT_DIFF, DT_F32, 4, c->dim);
    struct dt_node *fwd = dt_graph_node(*g, DT_OP_DROPOUT, "drop", 1, &src, 1, &dst);
    if (fwd) {
        fwd->attr.dropout.p = c->p;
        fwd->attr.dropout.stream = c->stream;
    }
    struct dt_node *bwd = dt_graph_node(*g, DT_OP_DROPOUT_BWD, "drop", 1, &diff_dst, 1, &diff_src);
    if (bwd) {
        bwd->attr.dropout.p = c->p;
        bwd->attr.dropout.stream = c->stream;
    }
    DT_TRY(dt_graph_check(*g));
    return DT_OK;
}

/* Sources of ones and twos: dst is the scaled mask and diff_src twice that. */
static dt_status dropout_run(struct rig *rig, uint32_t step, float **mask, float **diff)
{
    struct dt_scalars scalars = {.diff_scale = 1, .step = step};
    int src = dt_graph_find(rig->g, "src"), diff_dst = dt_graph_find(rig->g, "diff_dst");
    size_t count = dt_tensor_elements(&rig->g->tensor[src]);
    double *value;
    DT_TRY(DT_NEW(value, count));
    for (size_t i = 0; i < count; i++)
        value[i] = 1;
    dt_status status = rig_set(rig, src, value);
    for (size_t i = 0; i < count; i++)
        value[i] = 2;
    if (status == DT_OK)
        status = rig_set(rig, diff_dst, value);
    free(value);
    DT_TRY(status);
    DT_TRY(rig_run(rig, DT_TRAIN, &scalars));
    DT_TRY(rig_check_guards(rig));
    DT_TRY(rig_get(rig, dt_graph_find(rig->g, "dst"), mask));
    DT_TRY(rig_get(rig, dt_graph_find(rig->g, "diff_src"), diff));
    return DT_OK;
}

static dt_status dropout_check(const struct dropout_case *c, const float *mask, const float *diff,
                               size_t count)
{
    double p = (double)c->p, kept = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_kept = mask[i] != 0;
        kept += is_kept;
        if (is_kept && !(fabs((double)mask[i] * (1 - p) - 1) < 1e-6))
            DT_FAIL(DT_ERR_NUMERICAL, "element %zu is %.9g, neither 0 nor 1 / (1 - p)", i,
                    (double)mask[i]);
        if (diff[i] != 2 * mask[i])
            DT_FAIL(DT_ERR_NUMERICAL, "element %zu: backward %.9g does not fit forward %.9g", i,
                    (double)diff[i], (double)mask[i]);
    }
    double deviation = fabs(kept - (1 - p) * (double)count);
    if (!(deviation <= 5 * sqrt(p * (1 - p) * (double)count)))
        DT_FAIL(DT_ERR_NUMERICAL, "%g of %zu elements kept with p = %g", kept, count, p);
    return DT_OK;
}

/* How often two masks agree; independent ones: p * p + (1 - p) * (1 - p) of the elements. */
static dt_status dropout_independent(double p, const float *a, const float *b, size_t count,
                                     const char *what)
{
    double agree = 0, q = p * p + (1 - p) * (1 - p);
    for (size_t i = 0; i < count; i++)
        agree += (a[i] != 0) == (b[i] != 0);
    if (p > 0 && !(fabs(agree - q * (double)count) <= 5 * sqrt(q * (1 - q) * (double)count)))
        DT_FAIL(DT_ERR_NUMERICAL, "masks of another %s agree in %g of %zu elements", what, agree,
                count);
    return DT_OK;
}

/* One mask on a device of its own; the caller frees *mask. */
static dt_status dropout_mask(struct suite *suite, const struct dropout_case *c, uint64_t seed,
                              uint32_t step, bool in_place, float **mask)
{
    struct suite other = *suite;
    struct dt_graph *g = NULL;
    struct rig rig = {.backend = suite->backend};
    float *diff = NULL;
    int *alias = NULL;
    dt_status status;
    *mask = NULL;
    other.options.seed = seed;
    DT_TRY_OUT(dropout_graph(&g, c));
    DT_TRY_OUT(DT_NEW(alias, (size_t)g->n_tensors));
    make_alias(g, alias, 0);
    DT_TRY_OUT(rig_open(&rig, other.backend, &other.options, g, in_place ? alias : NULL));
    DT_TRY_OUT(dropout_run(&rig, step, mask, &diff));
    DT_TRY_OUT(
        dropout_check(c, *mask, diff, dt_tensor_elements(&g->tensor[dt_graph_find(g, "src")])));
    suite->covered[DT_OP_DROPOUT] = suite->covered[DT_OP_DROPOUT_BWD] = true;
out:
    rig_close(&rig);
    free(alias);
    free(diff);
    dt_graph_destroy(g);
    return status;
}

static dt_status run_dropout(struct suite *suite, const struct dropout_case *c)
{
    enum { BASE, IN_PLACE, OTHER_SEED, OTHER_STEP, OTHER_STREAM, N_MASKS };
    static const char *const what[N_MASKS] = {"", "place", "seed", "step", "stream"};
    struct dropout_case other_stream = *c;
    other_stream.stream++;
    float *mask[N_MASKS] = {NULL};
    size_t count = (size_t)c->dim[0] * (size_t)c->dim[1] * (size_t)c->dim[2] * (size_t)c->dim[3];
    dt_status status;
    for (int i = 0; i < N_MASKS; i++)
        DT_TRY_OUT(dropout_mask(suite, i == OTHER_STREAM ? &other_stream : c,
                                i == OTHER_SEED ? 12 : 11, i == OTHER_STEP ? 6 : 5, i == IN_PLACE,
                                &mask[i]));
    if (memcmp(mask[BASE], mask[IN_PLACE], count * sizeof(float)) != 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_NUMERICAL, "two runs with the same seed and step differ"));
    for (int i = OTHER_SEED; i < N_MASKS; i++)
        DT_TRY_OUT(dropout_independent((double)c->p, mask[BASE], mask[i], count, what[i]));
out:
    for (int i = 0; i < N_MASKS; i++)
        free(mask[i]);
    return status;
}

static void test_dropout(void **state)
{
    static const struct dropout_case cases[] = {
        {"dropout 0.5", 0.5f, {4, 4096, 1, 1}, 77},
        {"dropout 0.2", 0.2f, {3, 17, 9, 5}, 78},
        {"dropout 0.9", 0.9f, {2, 64, 6, 6}, 79},
        {"dropout 0", 0, {2, 20, 3, 3}, 80},
    };
    for (size_t i = 0; i < DT_COUNT(cases); i++)
        report(*state, cases[i].name, run_dropout(*state, &cases[i]));
}

static const struct op_test op_test_dropout = {
    .element = ref_dropout, .n_roundings = 1, .tests = {TEST_OF(dropout)}};
static const struct op_test op_test_dropout_bwd = {.element = ref_dropout, .n_roundings = 1};

#endif
