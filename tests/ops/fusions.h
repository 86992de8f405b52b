/* Nodes that a backend runs together (dt_graph_fusions), as small graphs: the reference runs them
 * one by one. Backends without fusions have nothing to do here. */
#ifndef DTRAIN_TESTS_OPS_GROUPS_H
#define DTRAIN_TESTS_OPS_GROUPS_H

#include "base/text.h"
#include "conv.h"
#include "norm.h"
#include "pool.h"

/* c with other flags for one of its nodes. */
static struct op_case with_flags(const struct op_case *c, unsigned flags)
{
    struct op_case other = *c;
    other.flags = flags;
    return other;
}

static int fusion_diff(struct dt_graph *g, const struct op_case *c, const char *name, int other)
{
    return c->flags & F_TWO ? add_like(g, name, DT_DIFF, DT_F32, other) : -1;
}

/* A convolution of src with k output channels; returns dst. */
static int add_conv(struct dt_graph *g, const struct op_case *c, int src, int weights)
{
    const struct dt_node like = {.attr.conv = {c->stride, c->pad, 1}};
    const int from[2] = {src, weights};
    const int dst =
        add4(g, "conv_dst", DT_ACT, c->n, c->k, window_out(c->h, c), window_out(c->w, c));
    add_node(g, &like, DT_OP_CONV, 2, from, 1, &dst);
    return dst;
}

static int add_weights(struct dt_graph *g, const struct op_case *c)
{
    return add4(g, "weights", DT_PARAM, c->k, c->c, c->kernel, c->kernel);
}

/* The gradient of src. */
static int add_conv_bwd_data(struct dt_graph *g, const struct op_case *c, int diff_dst, int weights,
                             int src)
{
    const struct dt_node like = {.attr.conv = {c->stride, c->pad, 1}};
    const int from[2] = {diff_dst, weights};
    const int diff_src = add_like(g, "conv_diff_src", DT_DIFF, DT_F32, src);
    add_node(g, &like, DT_OP_CONV_BWD_DATA, 2, from, 1, &diff_src);
    return diff_src;
}

/* The gradient of a convolution after src, whose own gradient is given. */
static int add_conv_after(struct dt_graph *g, const struct op_case *c, int src)
{
    const int diff_dst =
        add4(g, "diff_conv", DT_DIFF, c->n, c->k, window_out(c->h, c), window_out(c->w, c));
    return add_conv_bwd_data(g, c, diff_dst, add_weights(g, c), src);
}

/* Two norms whose results are added; with k, a convolution reads the sum. */
static void build_bn_pair(struct dt_graph *g, const struct op_case *c)
{
    const struct op_case first = with_flags(c, 0), second = with_flags(c, c->flags | F_RESIDUAL);
    const int src = add_src(g, c);
    const struct bn one = add_bn(g, &first, add_like(g, "src2", DT_ACT, DT_F32, src), -1);
    const struct bn two = add_bn(g, &second, src, one.dst[0]);
    const int diff_dst = add_like(g, "diff_dst", DT_DIFF, DT_F32, src);
    const int diff_dst2 =
        c->k > 0 ? add_conv_after(g, c, src) : fusion_diff(g, c, "diff_dst2", src);
    add_bn_bwd(g, &first, &one, add_bn_bwd(g, &second, &two, diff_dst, diff_dst2), -1);
}

static void build_bn_pool(struct dt_graph *g, const struct op_case *c)
{
    const struct dt_node like = {.attr.pool = {c->kernel, c->stride, c->pad}};
    const struct bn bn = add_bn(g, c, add_src(g, c), -1);
    const int dst[2] = {
        add4(g, "pool_dst", DT_ACT, c->n, c->c, window_out(c->h, c), window_out(c->w, c)),
        add4(g, "where", DT_SAVED, c->n, c->c, window_out(c->h, c), window_out(c->w, c))};
    g->tensor[dst[1]].dtype = DT_U8;
    add_node(g, &like, DT_OP_MAX_POOL, 1, bn.dst, 2, dst);
    const int from[2] = {add_like(g, "diff_dst", DT_DIFF, DT_F32, dst[0]), dst[1]};
    const int diff = add_like(g, "diff_bn", DT_DIFF, DT_F32, bn.src);
    add_node(g, &like, DT_OP_MAX_POOL_BWD, 2, from, 1, &diff);
    add_bn_bwd(g, c, &bn, diff, -1);
}

static void build_conv_bn(struct dt_graph *g, const struct op_case *c)
{
    const int dst = add_conv(g, c, add_src(g, c), add_weights(g, c));
    const int residual = c->flags & F_RESIDUAL ? add_like(g, "residual", DT_ACT, DT_F32, dst) : -1;
    const struct bn bn = add_bn(g, c, dst, residual);
    add_bn_bwd(g, c, &bn, add_like(g, "diff_dst", DT_DIFF, DT_F32, dst),
               fusion_diff(g, c, "diff_dst2", dst));
}

/* With a residual, that of conv_add_bn_bwd. */
static void build_conv_bn_bwd(struct dt_graph *g, const struct op_case *c)
{
    const int src = add_src(g, c);
    const bool adds = c->flags & F_RESIDUAL;
    const struct bn bn =
        add_bn(g, c, src, adds ? add_like(g, "residual", DT_ACT, DT_F32, src) : -1);
    const int diff_dst = adds ? add_like(g, "diff_dst", DT_DIFF, DT_F32, src) : -1;
    const int diff = add_conv_after(g, c, src);
    add_bn_bwd(g, c, &bn, adds ? diff_dst : diff, adds ? diff : -1);
}

/* All that lies between two convolutions of a block. */
static void build_bn_conv(struct dt_graph *g, const struct op_case *c)
{
    const struct dt_node like = {.attr.conv = {c->stride, c->pad, 1}};
    const struct op_case plain = with_flags(c, 0);
    const struct bn bn = add_bn(g, c, add_src(g, c), -1);
    const int weights = add_weights(g, c);
    const struct bn next = add_bn(g, &plain, add_conv(g, c, bn.dst[0], weights), -1);
    const int diff_next = add_like(g, "diff_dst", DT_DIFF, DT_F32, next.dst[0]);
    add_bn_bwd(g, &plain, &next, diff_next, -1);
    const int from[2] = {bn.dst[0], g->node[g->n_nodes - 1].dst[0]};
    const int diff_weights = add_diff_param(g, "diff_weights", weights);
    add_node(g, &like, DT_OP_CONV_BWD_WEIGHTS, 2, from, 1, &diff_weights);
    add_bn_bwd(g, c, &bn, add_conv_bwd_data(g, c, from[1], weights, bn.src), -1);
}

/* --- Cases --- */

static const struct op_case pair_shapes[] = {
    {5, 3, 1, 1, 0, 0, 0, 0, 0, 0},   {1, 20, 7, 1, 0, 0, 0, 0, 0, 0},
    {3, 64, 11, 1, 0, 0, 0, 0, 0, 0}, {2, 92, 5, 5, 0, 0, 0, 0, 0, 0},
    {3, 264, 4, 5, 0, 0, 0, 0, 0, 0}, {2, 5, 30, 25, 0, 0, 0, 0, 0, 0},
};

static const struct op_case far_shapes[] = {{5, 20, 40, 25, 0, 0, 0, 0, 0, 0}};

static const struct op_case pool_shapes[] = {
    {2, 8, 7, 9, 0, 3, 2, 1, 0, 0},    {3, 11, 6, 6, 0, 2, 2, 0, 0, 0},
    {1, 20, 5, 4, 0, 3, 1, 1, 0, 0},   {2, 5, 13, 13, 0, 3, 2, 0, 0, 0},
    {1, 3, 20, 18, 0, 15, 1, 0, 0, 0}, {1, 8, 9, 9, 0, 2, 4, 0, 0, 0},
    {1, 7, 11, 12, 0, 5, 3, 2, 0, 0},  {2, 11, 16, 15, 0, 3, 2, 1, 0, 0},
};

static const struct op_case conv_shapes[] = {
    {2, 13, 7, 6, 21, 1, 1, 0, 0, 0},
    {2, 16, 7, 6, 8, 3, 1, 1, 0, 0},
    {3, 8, 8, 5, 32, 3, 2, 1, 0, 0},
    {2, 64, 9, 9, 16, 1, 2, 0, 0, 0},
};

/* Each is run with every subset of `some` flags. cuDNN has operations around a convolution in fp16
 * only, and adds to the gradient that it computes only with stride 1. */
static const struct fusion_case {
    enum dt_fusion_kind kind;
    case_build_fn *build;
    unsigned always, some;
    const struct op_case *shapes;
    size_t n_shapes;
    bool has_conv, is_dense;
} fusion_list[] = {
#define SHAPES(of) of##_shapes, DT_COUNT(of##_shapes)
    {DT_FUSION_BN_PAIR, build_bn_pair, 0, F_RELU | F_TWO, SHAPES(pair), false, false},
    {DT_FUSION_BN_PAIR_BWD, build_bn_pair, F_FAR, F_TWO, SHAPES(far), false, false},
    {DT_FUSION_BN_POOL, build_bn_pool, F_RELU | F_COARSE, 0, SHAPES(pool), false, false},
    {DT_FUSION_CONV_BN, build_conv_bn, F_COARSE, F_RELU | F_RESIDUAL | F_TWO, SHAPES(conv), true,
     false},
    {DT_FUSION_CONV_BN_BWD, build_conv_bn_bwd, F_COARSE | F_RELU, 0, SHAPES(conv), true, false},
    {DT_FUSION_CONV_ADD_BN_BWD, build_conv_bn_bwd, F_COARSE | F_RELU | F_RESIDUAL, 0, SHAPES(conv),
     true, true},
    {DT_FUSION_BN_CONV, build_bn_conv, F_COARSE | F_RELU, 0, SHAPES(conv), true, false},
    {DT_FUSION_CONV_PAIR_BWD, build_bn_pair, F_COARSE | F_RELU, 0, SHAPES(conv), true, true},
#undef SHAPES
};

static bool uses(const struct dt_graph *g, enum dt_op op)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->node[i].op == op)
            return true;
    return false;
}

/* Around a convolution values are rounded on the way, also before they are added up. Its gradient's
 * place has what a fusion leaves of that. */
static struct bound fusion_bound(const struct suite *suite, const struct rig *rig,
                                 const struct dt_node *node, int t)
{
    struct bound bound = case_bound(suite, rig, node, t);
    if (node->op == DT_OP_CONV_BWD_DATA)
        bound.largest = INFINITY;
    else if (uses(rig->g, DT_OP_CONV) || uses(rig->g, DT_OP_CONV_BWD_DATA))
        bound.largest += 4 * half_unit(DT_F16);
    if (node->op == DT_OP_MAX_POOL) /* of bn's result */
        bound = (struct bound){op_test_bn.gpu_bound, half_unit(rig_type(rig, t))};
    return bound;
}

enum { TAGS_BYTES = 1024 };

/* Whether the fusion runs together or not, as expected; `tags` names the plans of convolutions,
 * each with a time if they were measured. */
static dt_status read_choices(struct rig *rig, const struct fusion_case *fusion, bool together,
                              bool timed, char tags[TAGS_BYTES])
{
    struct dt_choice choice;
    struct dt_text text = dt_text_in(tags, TAGS_BYTES);
    bool found = false;
    for (int i = 0; i < rig->g->n_nodes; i++)
        for (int k = 0; rig->backend->choice_of(rig->dev, rig->exec[i], k, &choice); k++) {
            const char *name = dt_fusion_name(fusion->kind);
            if (!choice.fusion)
                dt_text_add(&text, "%s ", choice.algorithm);
            if (!choice.fusion && timed && !(choice.seconds > 0))
                DT_FAIL(DT_ERR_INTERNAL, "%s was not timed", choice.algorithm);
            if (!choice.fusion || strcmp(choice.fusion, name) != 0)
                continue;
            found = true;
            if (strcmp(choice.algorithm, together ? "together" : "apart") != 0)
                DT_FAIL(DT_ERR_INTERNAL, "%s runs %s", name, choice.algorithm);
        }
    if (!found)
        DT_FAIL(DT_ERR_INTERNAL, "there is no %s", dt_fusion_name(fusion->kind));
    return DT_OK;
}

/* Without running anything. */
static void choose(struct suite *suite, const struct fusion_case *fusion, const struct op_case *c,
                   bool together, char tags[TAGS_BYTES])
{
    struct dt_graph *g = NULL;
    struct rig rig = {0};
    dt_status status = build_graph(&g, fusion->build, c);
    if (status == DT_OK) {
        status = rig_open(&rig, suite->backend, &suite->options, g, NULL);
        if (status == DT_OK)
            status = read_choices(&rig, fusion, together, !suite->options.deterministic, tags);
        rig_close(&rig);
    }
    dt_graph_destroy(g);
    report(suite, dt_fusion_name(fusion->kind), status);
}

/* By every plan that is offered: at most 43 for one convolution by cuDNN 9.19, and the numbers of
 * the candidates go round. Of bn_conv, which compiles two plans for each, by every fifth, or it
 * takes minutes. That the timer finds room for the tensors of all is seen first. */
static bool run_candidates(struct suite *suite, const struct fusion_case *fusion,
                           const struct op_case *c)
{
    enum { MAX = 48 };
    const int step = fusion->kind == DT_FUSION_BN_CONV ? 5 : 1;
    char first[TAGS_BYTES], tags[TAGS_BYTES] = "";
    bool passed = true, again = false;
    suite->options.deterministic = false;
    choose(suite, fusion, c, true, tags);
    suite->options.deterministic = true;
    for (int i = 1; i <= MAX && passed && !again; i += step) {
        suite->options.conv_candidate = i;
        choose(suite, fusion, c, true, i == 1 ? first : tags);
        again = i > 1 && strcmp(tags, first) == 0;
        passed = again || report_case(suite, dt_fusion_name(fusion->kind), fusion->build, c);
    }
    suite->options.conv_candidate = 0;
    return passed;
}

/* Returns the number of failures. */
static int run_fusion(struct suite *suite, const struct fusion_case *fusion, struct op_case c)
{
    char tags[TAGS_BYTES];
    int n_failed = 0;
    const bool together = !fusion->is_dense || c.stride == 1;
    c.flags = fusion->always | fusion->some;
    if (together || suite->few_images) /* another cuDNN may do more */
        choose(suite, fusion, &c, together, tags);
    if (!together)
        return 0;
    if (fusion->has_conv)
        n_failed += !run_candidates(suite, fusion, &c);
    for (unsigned some = fusion->some + 1; some-- > 0;) {
        c.flags = fusion->always | some;
        if ((some & fusion->some) == some)
            n_failed += !report_case(suite, dt_fusion_name(fusion->kind), fusion->build, &c);
    }
    return n_failed;
}

static void test_fusion(struct suite *suite, enum dt_fusion_kind kind)
{
    int n_failed = 0;
    if (!suite->backend->propose_fusion ||
        suite->options.precision == DT_PRECISION_TF32) /* as fp32 */
        skip();
    suite->bound = fusion_bound;
    suite->options.fusion = DT_FUSION_ON;
    for (size_t i = 0; i < DT_COUNT(fusion_list); i++) {
        const struct fusion_case *fusion = &fusion_list[i];
        const bool has_it = !fusion->has_conv || suite->options.precision == DT_PRECISION_FP16;
        for (size_t k = 0; k < fusion->n_shapes && has_it && fusion->kind == kind; k++)
            n_failed += run_fusion(suite, fusion, fusion->shapes[k]);
    }
    suite->options.fusion = DT_FUSION_AUTO;
    suite->bound = case_bound;
    assert_int_equal(n_failed, 0);
}

/* A test per kind, since those with a convolution compile dozens of plans on a GPU. */
#define FUSION_TEST(NAME, name, ...)             \
    static void test_fusion_##name(void **state) \
    {                                            \
        test_fusion(*state, DT_FUSION_##NAME);   \
    }
DT_FUSION_LIST(FUSION_TEST)
#undef FUSION_TEST

#endif
