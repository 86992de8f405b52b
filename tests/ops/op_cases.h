/* The driver of single-op cases.
 *
 * It fills the inputs, runs the graph of a case on the reference and on the backend and compares
 * every tensor; sources must be unchanged and guard words intact. It runs again with dst[0] in the
 * place of each source that the op list allows, and all that again with src in the format that a
 * convolution prefers. A case whose fused node the backend does not support is left out. */
#ifndef DTRAIN_TESTS_OP_CASES_H
#define DTRAIN_TESTS_OP_CASES_H

#include <stdio.h>

#include "base/rng.h"
#include "numbers.h"
#include "op_build.h"
#include "rig.h"

struct suite;

/* Of tensor t, which the node makes. */
typedef struct bound bound_fn(const struct suite *suite, const struct rig *rig,
                              const struct dt_node *node, int t);

/* What a test program knows; the state of every test. */
struct suite {
    const struct dt_backend *backend;
    struct dt_device_options options;
    bool few_images; /* the emulator is slow, and computes all convolutions in the same way */
    bound_fn *bound; /* case_bound, but for graphs of several ops */
    int n_runs, n_failed, n_unsupported;
    bool covered[DT_N_OPS];
};

/* Half a unit in the last place, with some room. */
static double half_unit(enum dt_dtype type)
{
    return type == DT_F16 ? 0x1.02p-11 : type == DT_BF16 ? 0x1.02p-8 : 0;
}

/* What F_FAR adds to src: the variance is then small beside the square of the mean. */
static double far_offset(enum dt_precision precision)
{
    return precision == DT_PRECISION_FP32 ? 1000 : 30;
}

static bool is_far(const struct dt_tensor *tensor)
{
    return strcmp(tensor->name, FAR_SRC) == 0;
}

/* What is far from zero costs precision, but not in the statistics. */
static struct bound case_bound(const struct suite *suite, const struct rig *rig,
                               const struct dt_node *node, int t)
{
    const struct op_test *test = op_test_of(node->op);
    const bool is_gpu = suite->backend != &dt_backend_cpu;
    const bool is_statistic = node->op == DT_OP_BN && rig->g->tensor[t].n_dims == 1;
    const double unit = half_unit(rig_type(rig, t));
    const bool adds_narrow =
        !is_gpu && node->op == DT_OP_MAX_POOL_BWD; /* oneDNN, windows overlap */
    const int n_roundings =
        node->op == DT_OP_BN_BWD && !node->residual ? 0 : test->n_roundings + adds_narrow;
    double exact = is_gpu && test->gpu_bound > 0 ? test->gpu_bound : test->bound;
    if (is_far(&rig->g->tensor[node->src[0]]) && !is_statistic)
        exact *= far_offset(suite->options.precision);
    return (struct bound){exact + unit * n_roundings, unit * test->n_own};
}

/* True if no node writes the tensor: the driver fills it. */
static bool is_input(const struct dt_graph *g, int t)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->node[i].n_dst; k++)
            if (g->node[i].dst[k] == t)
                return false;
    return true;
}

/* Shares of labels, and class weights; also exactly all and exactly half. */
static double random_share(double u)
{
    return u < 0.2 ? 1 : u < 0.4 ? 0.5 : (float)(0.5 + 0.5 * u);
}

static double random_value(struct dt_rng *rng, const struct dt_tensor *t, int n_labels, bool ignore)
{
    double u = dt_rng_uniform(rng);
    if (t->dtype == DT_U8)
        return floor(u * 256);
    if (t->dtype == DT_I32)
        return ignore && u < 0.2 ? -1.0 : (double)dt_rng_below(rng, (uint32_t)n_labels);
    if (t->role == DT_INPUT)
        return random_share(u);
    if (t->role == DT_STAT)
        return (float)(u + 0.25); /* also a variance */
    if (t->role == DT_PARAM && !dt_tensor_is_vector(t))
        return (float)((2 * u - 1) * sqrt(6.0 / ((double)t->dim[1] * t->dim[2] * t->dim[3])));
    return (float)(2 * u - 0.75);
}

/* Fills every input of the graph; the same seed gives the same values. All but vectors (fp32
 * everywhere) are rounded to what the precision holds. */
static void fill_inputs(struct ref *r, uint64_t seed, int n_labels, unsigned flags,
                        enum dt_precision precision)
{
    for (int t = 0; t < r->g->n_tensors; t++) {
        if (!r->value[t] || !is_input(r->g, t))
            continue;
        struct dt_rng rng;
        dt_rng_init(&rng, seed, DT_RNG_SYNTHETIC, 0, (uint32_t)t);
        const struct dt_tensor *tensor = &r->g->tensor[t];
        const bool identity = strcmp(tensor->name, COPY_WEIGHTS) == 0;
        const bool is_vector = dt_tensor_is_vector(tensor);
        const double far = is_far(tensor) ? far_offset(precision) : 0;
        bool is_labels = t == r->g->program[DT_TRAIN].labels || t == r->g->program[DT_EVAL].labels;
        for (size_t i = 0; i < dt_tensor_elements(tensor); i++) {
            double value = far + (identity ? i % ((size_t)tensor->dim[0] + 1) == 0
                                           : random_value(&rng, tensor, n_labels,
                                                          flags & F_IGNORE && is_labels));
            if (flags & F_COARSE && !is_vector)
                value = nearbyint(8 * value) / 8;
            r->value[t][i] = is_vector ? value : round_to(precision, value);
        }
    }
    for (int i = 0; i < r->g->n_nodes; i++) {
        const struct op_test *test = op_test_of(r->g->node[i].op);
        if (test->adjust)
            test->adjust(r, &r->g->node[i]);
    }
}

static void copy_inputs(struct ref *to, const struct ref *from)
{
    for (int t = 0; t < from->g->n_tensors; t++) {
        if (from->value[t] && is_input(from->g, t))
            memcpy(to->value[t], from->value[t],
                   dt_tensor_elements(&from->g->tensor[t]) * sizeof(double));
    }
}

/* Uploads the inputs; gradients of parameters get values that must be overwritten. */
static dt_status set_inputs(struct rig *rig, const struct ref *input)
{
    for (int t = 0; t < rig->g->n_tensors; t++) {
        if (!rig->address[t])
            continue;
        if (is_input(rig->g, t)) {
            DT_TRY(rig_set(rig, t, input->value[t]));
        } else if (rig->g->tensor[t].role == DT_DIFF_PARAM) {
            for (size_t i = 0; i < dt_tensor_elements(&rig->g->tensor[t]); i++)
                input->value[t][i] = 3;
            DT_TRY(rig_set(rig, t, input->value[t]));
        }
    }
    return DT_OK;
}

static dt_status check_equal(struct rig *rig, int t, const double *value)
{
    const struct dt_tensor *tensor = &rig->g->tensor[t];
    if (tensor->dtype == DT_F32) {
        DT_TRY(rig_compare(rig, t, value, (struct bound){0, 0}));
        return DT_OK;
    }
    union {
        void *any;
        int32_t *i32;
        uint8_t *u8;
    } raw;
    raw.any = dt_mem_alloc(1, rig_round(rig->bytes[t]), "an input read back");
    if (!raw.any)
        return DT_ERR_MEMORY;
    dt_status status =
        rig->backend->read(rig->dev, raw.any, rig->address[t], rig_round(rig->bytes[t]));
    bool differs = false;
    for (size_t i = 0; i < dt_tensor_elements(tensor); i++)
        differs |= value[i] != (tensor->dtype == DT_I32 ? raw.i32[i] : raw.u8[i]);
    free(raw.any);
    DT_TRY(status);
    if (differs)
        DT_FAIL(DT_ERR_NUMERICAL, "%s: the whole numbers differ", tensor->name);
    return DT_OK;
}

static bool is_overwritten(const struct dt_graph *g, const int *alias, int t)
{
    for (int i = 0; alias && i < g->n_tensors; i++)
        if (alias[i] == t)
            return true;
    return false;
}

static dt_status check_counters(struct rig *rig, const struct dt_counters *want)
{
    struct dt_counters got;
    DT_TRY(rig->backend->download(rig->dev, &got));
    if (got.n != want->n || got.n_finite != want->n_finite || got.top1 != want->top1 ||
        got.top5 != want->top5 ||
        !(fabs(got.loss - want->loss) <= 1e-5 * (1e-6 + fabs(want->loss))) ||
        !(fabs(got.box_loss - want->box_loss) <= 1e-5 * (1e-6 + want->box_loss)) ||
        !(fabs(got.weight - want->weight) <= 1e-6 * want->weight))
        DT_FAIL(DT_ERR_NUMERICAL,
                "counters: n %lld top1 %lld top5 %lld loss %.9g %.9g, should be %lld %lld %lld "
                "%.9g %.9g",
                (long long)got.n, (long long)got.top1, (long long)got.top5, got.loss, got.box_loss,
                (long long)want->n, (long long)want->top1, (long long)want->top5, want->loss,
                want->box_loss);
    DT_TRY(rig->backend->download(rig->dev, &got));
    if (got.n != 0 || got.n_finite != 0 || got.top1 != 0 || got.top5 != 0 || got.loss != 0 ||
        got.box_loss != 0 || got.weight != 0)
        DT_FAIL(DT_ERR_NUMERICAL, "download did not set the counters to zero");
    return DT_OK;
}

/* Values and their gradients are, unless a norm divides by a variance of 0 there. */
static bool is_padded_with_zeros(const struct dt_node *node, enum dt_role role)
{
    const bool is_bn = node->op == DT_OP_BN || node->op == DT_OP_BN_FROZEN_BWD;
    if (role == DT_ACT || role == DT_DIFF)
        return !is_bn || node->attr.bn.eps > 0;
    return (is_bn && node->attr.bn.eps > 0) || node->op == DT_OP_BN_BWD;
}

/* Every tensor a node of `phase` wrote, except what only the backend can read, and its statistics.
 */
static dt_status compare_outputs(const struct suite *suite, struct rig *rig, enum dt_phase phase,
                                 const struct ref *want)
{
    for (int i = 0; i < rig->g->n_nodes; i++) {
        const struct dt_node *node = &rig->g->node[i];
        for (int k = 0; k < node->n_dst && node->phase == phase; k++) {
            const int t = node->dst[k];
            if (rig->g->tensor[t].dtype == DT_I32)
                DT_TRY(check_equal(rig, t, want->value[t]));
            if (rig->g->tensor[t].dtype != DT_F32 || !rig_holds(rig, t) ||
                is_overwritten(rig->g, rig->alias, t))
                continue;
            DT_TRY(rig_compare(rig, t, want->value[t], suite->bound(suite, rig, node, t)));
            if (is_padded_with_zeros(node, rig->g->tensor[t].role))
                DT_TRY(rig_check_padding(rig, t));
        }
        for (int k = 0; k < node->n_src && node->phase == phase; k++) {
            int t = node->src[k];
            if (t >= 0 && rig->g->tensor[t].role == DT_STAT)
                DT_TRY(rig_compare(rig, t, want->value[t], suite->bound(suite, rig, node, t)));
        }
    }
    return DT_OK;
}

static dt_status check_sources(struct rig *rig, const struct ref *input)
{
    for (int t = 0; t < rig->g->n_tensors; t++) {
        enum dt_role role = rig->g->tensor[t].role;
        if (!rig->address[t])
            continue;
        if (is_input(rig->g, t) && role != DT_STAT && !is_overwritten(rig->g, rig->alias, t))
            DT_TRY(check_equal(rig, t, input->value[t]));
        if (role == DT_PARAM || role == DT_DIFF_PARAM)
            DT_TRY(rig_check_padding(rig, t));
    }
    return DT_OK;
}

enum { CASE_SEED = 11 };
static const struct dt_scalars case_scalars = {.diff_scale = 0.25f, .step = 3, .first_row = 6};

/* Twice, as a step must not depend on what the one before left: statistics are set again. */
static dt_status run_on_backend(struct suite *suite, const struct dt_graph *g, int *alias,
                                const struct ref *input, const struct ref *want)
{
    struct rig rig;
    dt_status status = rig_open(&rig, suite->backend, &suite->options, g, alias);
    for (int round = 0; status == DT_OK && round < 2; round++) {
        DT_TRY_OUT(set_inputs(&rig, input));
        DT_TRY_OUT(rig_run(&rig, dt_graph_program(g)->phase, &case_scalars));
        DT_TRY_OUT(compare_outputs(suite, &rig, dt_graph_program(g)->phase, want));
        DT_TRY_OUT(check_sources(&rig, input));
        DT_TRY_OUT(rig_check_guards(&rig));
        DT_TRY_OUT(check_counters(&rig, &want->counters));
    }
out:
    rig_close(&rig);
    return status;
}

static bool is_read_later(const struct dt_graph *g, int node, int t)
{
    for (int i = node + 1; i < g->n_nodes; i++)
        for (int k = 0; k < g->node[i].n_src; k++)
            if (g->node[i].src[k] == t)
                return true;
    return false;
}

/* alias: dst[0] of each node in the place of source `bit` (-1: the first that is possible), where
 * the op list allows and the source dies there. False if no node can. */
static bool make_alias(const struct dt_graph *g, int *alias, int bit)
{
    bool any = false;
    for (int t = 0; t < g->n_tensors; t++)
        alias[t] = -1;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        for (int k = 0; k < node->n_src && node->dst[0] >= 0; k++) {
            bool wanted = bit < 0 ? alias[node->dst[0]] < 0 : k == bit;
            if (!wanted || !(dt_op_inplace(node->op) >> k & 1) || is_read_later(g, i, node->src[k]))
                continue;
            alias[node->dst[0]] = node->src[k];
            any = true;
        }
    }
    return any;
}

static dt_status run_all_places(struct suite *suite, const struct dt_graph *g,
                                const struct ref *input, const struct ref *want)
{
    int *alias;
    suite->n_runs++;
    DT_TRY(run_on_backend(suite, g, NULL, input, want));
    DT_TRY(DT_NEW(alias, (size_t)g->n_tensors));
    dt_status status = DT_OK;
    for (int bit = 0; status == DT_OK && bit < 3; bit++) {
        if (!make_alias(g, alias, bit))
            continue;
        suite->n_runs++;
        status = run_on_backend(suite, g, alias, input, want);
        if (status != DT_OK)
            fprintf(stderr, "(in the place of source %d:) ", bit);
    }
    free(alias);
    DT_TRY(status);
    return DT_OK;
}

static dt_status build_graph(struct dt_graph **g, case_build_fn *build, const struct op_case *c)
{
    DT_TRY(dt_graph_create(g));
    DT_TRY(dt_graph_begin(*g, c->flags & F_EVAL ? DT_EVAL : DT_TRAIN, c->n, c->h, c->w));
    build(*g, c);
    DT_TRY(dt_graph_check(*g));
    return DT_OK;
}

static dt_status is_supported(struct suite *suite, const struct dt_graph *g, bool *supported)
{
    struct dt_device *dev;
    DT_TRY(suite->backend->open(&dev, &suite->options));
    *supported = true;
    for (int i = 0; i < g->n_nodes; i++)
        *supported = *supported && suite->backend->supports(dev, g, &g->node[i]);
    suite->backend->close(dev);
    return DT_OK;
}

/* bn recomputes what its ReLU masks, and another activation's argument: no value may be so near to
 * a kink that rounding decides, nor a maximum of its results so near to another that they are
 * rounded to the same. */
static double min_margin(const struct dt_graph *g, enum dt_precision precision)
{
    static const double rounded[] = {[DT_PRECISION_FP16] = 0x1p-9, [DT_PRECISION_BF16] = 0x1p-6};
    bool masks = false, pools = false;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        masks |= node->op == DT_OP_BN_BWD && node->activation;
        pools |= node->op == DT_OP_MAX_POOL || node->activation > DT_RELU;
    }
    const bool rounds = precision == DT_PRECISION_FP16 || precision == DT_PRECISION_BF16;
    return !masks ? 0 : pools && rounds ? rounded[precision] : 2e-6;
}

static dt_status run_reference(struct ref *input, struct ref *want, const struct op_case *c,
                               enum dt_precision precision)
{
    const double min = min_margin(input->g, precision);
    for (uint64_t seed = 1; seed < 100; seed++) {
        fill_inputs(input, seed, c->c, c->flags, precision);
        copy_inputs(want, input);
        want->diff_scale = (double)case_scalars.diff_scale;
        want->margin = INFINITY;
        for (int i = 0; i < want->g->n_nodes; i++)
            ref_run(want, &want->g->node[i]);
        if (min == 0 || want->margin > min)
            return DT_OK;
    }
    DT_FAIL(DT_ERR_INTERNAL, "no seed keeps all values away from 0");
}

static dt_status run_case(struct suite *suite, case_build_fn *build, const struct op_case *c)
{
    enum { MAX_ELEMENTS = 400 };
    struct dt_graph *g = NULL;
    struct ref input = {0}, want = {0};
    bool supported = false;
    dt_status status;
    DT_TRY_OUT(build_graph(&g, build, c));
    DT_TRY_OUT(is_supported(suite, g, &supported));
    const struct dt_node *last = &g->node[g->n_nodes - 1];
    const bool is_bn = last->op == DT_OP_BN || last->op == DT_OP_BN_BWD;
    const bool is_fused = c->flags & (F_RELU | F_RESIDUAL) || (is_bn && last->activation);
    if (!supported && is_fused) {
        suite->n_unsupported++;
        goto out;
    }
    if (!supported)
        DT_TRY_OUT(DT_ERROR(DT_ERR_INTERNAL, "the backend does not support this plain op"));
    DT_TRY_OUT(ref_open(&input, g, MAX_ELEMENTS));
    DT_TRY_OUT(ref_open(&want, g, MAX_ELEMENTS));
    DT_TRY_OUT(run_reference(&input, &want, c, suite->options.precision));
    DT_TRY_OUT(run_all_places(suite, g, &input, &want));
    for (int i = 0; i < g->n_nodes; i++)
        suite->covered[g->node[i].op] = true;
out:
    ref_close(&input);
    ref_close(&want);
    dt_graph_destroy(g);
    return status;
}

static bool report_case(struct suite *suite, const char *what, case_build_fn *build,
                        const struct op_case *c)
{
    if (run_case(suite, build, c) == DT_OK)
        return true;
    suite->n_failed++;
    fprintf(stderr,
            "FAIL %s%s: src %dx%dx%dx%d k %d kernel %d stride %d pad %d flags %u: %s\n    %s\n",
            what, c->flags & F_COPY ? " behind a convolution" : "", c->n, c->c, c->h, c->w, c->k,
            c->kernel, c->stride, c->pad, c->flags, dt_error_text(), dt_error_trail());
    return false;
}

/* Every case; with `copy` also behind a convolution, unless its reference would take too long. */
static void run_cases(struct suite *suite, const char *what, case_build_fn *build, bool copy,
                      const struct op_case *cases, size_t n_cases)
{
    int n_failed = 0;
    for (size_t i = 0; i < n_cases; i++) {
        struct op_case c = cases[i];
        n_failed += !report_case(suite, what, build, &c);
        c.flags |= F_COPY;
        if (copy && (double)c.n * c.h * c.w * c.c * c.c < 7e6)
            n_failed += !report_case(suite, what, build, &c);
    }
    assert_int_equal(n_failed, 0);
}

#define OP_TEST(name, build, copy)                                                   \
    static void test_##name(void **state)                                            \
    {                                                                                \
        run_cases(*state, #name, build, copy, name##_cases, DT_COUNT(name##_cases)); \
    }

/* One check that is no case. */
static void report(struct suite *suite, const char *what, dt_status status)
{
    suite->n_runs++;
    if (status != DT_OK) {
        suite->n_failed++;
        fprintf(stderr, "FAIL %s: %s\n    %s\n", what, dt_error_text(), dt_error_trail());
    }
    assert_int_equal(status, DT_OK);
}

#endif
