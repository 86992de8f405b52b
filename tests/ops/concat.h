/* Concatenation along the channels. */
#ifndef DTRAIN_TESTS_OPS_CONCAT_H
#define DTRAIN_TESTS_OPS_CONCAT_H

#include "op_cases.h"

/* Sources of c, k and, if there are more, `kernel` and `stride` channels. */
static void build_concat(struct dt_graph *g, const struct op_case *c)
{
    static const char *const names[] = {"src", "src1", "src2", "src3"};
    static const char *const diffs[] = {"diff_src", "diff_src1", "diff_src2", "diff_src3"};
    const int channels[] = {c->c, c->k, c->kernel, c->stride};
    int src[4] = {add_src(g, c)}, n = 1, total = c->c;
    while (n < 4 && channels[n] > 0) {
        src[n] = add4(g, names[n], DT_ACT, c->n, channels[n], c->h, c->w);
        total += channels[n++];
    }
    int dst = add4(g, "dst", DT_ACT, c->n, total, c->h, c->w);
    add_node(g, NULL, DT_OP_CONCAT, n, src, 1, &dst);
    int diff_dst = add_like(g, "diff_dst", DT_DIFF, DT_F32, dst);
    struct dt_node like = {.attr.concat.first = 0};
    for (int i = 0; i < n && !(c->flags & F_EVAL); i++) {
        int diff_src = add_like(g, diffs[i], DT_DIFF, DT_F32, src[i]);
        add_node(g, &like, DT_OP_CONCAT_BWD, 1, &diff_dst, 1, &diff_src);
        like.attr.concat.first += channels[i];
    }
}

static double ref_concat(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    int at[4], source = 0;
    ref_decode(at, ref_dim(r, node->dst[0]), i);
    while (at[1] >= ref_dim(r, node->src[source])[1])
        at[1] -= ref_dim(r, node->src[source++])[1];
    return ref_src(r, node,
                   source)[ref_index(ref_dim(r, node->src[source]), at[0], at[1], at[2], at[3])];
}

static double ref_concat_bwd(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    int at[4];
    ref_decode(at, ref_dim(r, node->dst[0]), i);
    return ref_src(r, node, 0)[ref_index(ref_dim(r, node->src[0]), at[0],
                                         at[1] + node->attr.concat.first, at[2], at[3])];
}

static const struct op_case concat_cases[] = {
    {2, 3, 5, 7, 5, 0, 0, 0, 0, 0},       {2, 16, 8, 8, 16, 0, 0, 0, 0, 0},
    {2, 32, 6, 5, 64, 16, 0, 0, 0, 0},    {3, 17, 5, 4, 20, 0, 0, 0, 0, 0},
    {2, 8, 7, 7, 24, 0, 0, 0, 0, 0},      {1, 16, 1, 1, 32, 0, 0, 0, 0, 0},
    {2, 16, 4, 3, 20, 0, 0, 0, 0, 0},     {2, 1, 3, 3, 2, 9, 16, 0, 0, 0},
    {2, 32, 6, 6, 8, 0, 0, 0, F_EVAL, 0},
};

OP_TEST(concat, build_concat, true)

static const struct op_test op_test_concat = {.element = ref_concat, .tests = {TEST_OF(concat)}};
static const struct op_test op_test_concat_bwd = {.element = ref_concat_bwd};

#endif
