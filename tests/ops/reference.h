/* Plain-loop fp64 reference of every op, over the same graph a backend runs.
 *
 * Values are logical (N C H W, O I H W); pixels are N,H,W,C as the graph says. Most ops are
 * functions of one output element, so that a large tensor can be checked on a sample of its
 * elements: elements that were not computed are NaN. What a forward op keeps for its backward is
 * the reference's own business: max_pool keeps the index of the maximum, bn the mask of its ReLU.
 * `margin` is the smallest distance of a value to a kink (ReLU at 0, two equal maxima): where it is
 * tiny, fp32 and fp64 may rightly disagree about a gradient. */
#ifndef DTRAIN_TESTS_REFERENCE_H
#define DTRAIN_TESTS_REFERENCE_H

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "dtrain/backend.h"
#include "test.h"

struct ref {
    const struct dt_graph *g;
    double **value;      /* one array per tensor used by a node */
    size_t max_elements; /* of conv and linear tensors; larger ones are sampled; 0 = no limit */
    double diff_scale;
    struct dt_counters counters;
    double margin;
};

/* How one op is checked: op_test_<name>, in the header of its family. */
struct op_test {
    /* One of the two: element i of dst[which], or all of every dst. */
    double (*element)(struct ref *r, const struct dt_node *node, int which, size_t i);
    void (*whole)(struct ref *r, const struct dt_node *node);
    /* Turns the random inputs into such as the op gets; may be NULL. */
    void (*adjust)(struct ref *input, const struct dt_node *node);
    bool sampled; /* an element is expensive: of large tensors only some are computed */
    /* The largest error allowed, relative to the largest value of a tensor. Inputs are rounded to
     * the precision first, so products are exact and what remains is the order of the sums (on a
     * GPU the library's choice) and, in 16 bits, the rounding of results. */
    double bound;     /* fp32 */
    double gpu_bound; /* fp32 on a GPU; 0: as bound */
    /* In 16 bits: roundings of values as large as the largest, and of the result itself. conv and
     * linear round before and after they add the bias, bn_bwd what is also diff_residual. */
    int n_roundings, n_own;
    struct CMUnitTest tests[3]; /* of a forward op, its backward ops included */
};

#define TEST_OF(name) cmocka_unit_test(test_##name)

/* run_ops.h */
static const struct op_test *op_test_of(enum dt_op op);

static size_t ref_count(const struct dt_graph *g, const struct dt_node *node, int which)
{
    const struct dt_tensor *tensor = &g->tensor[node->dst[which]];
    return dt_tensor_elements(tensor->dtype == DT_U8 ? &g->tensor[node->dst[0]] : tensor);
}

/* NULL if the node has none. */
static const double *ref_src(const struct ref *r, const struct dt_node *node, int which)
{
    return node->src[which] < 0 ? NULL : r->value[node->src[which]];
}

static double *ref_dst(const struct ref *r, const struct dt_node *node, int which)
{
    return node->dst[which] < 0 ? NULL : r->value[node->dst[which]];
}

static const int *ref_dim(const struct ref *r, int tensor)
{
    return r->g->tensor[tensor].dim;
}

static void ref_decode(int at[4], const int dim[4], size_t i)
{
    for (int d = 3; d >= 0; d--) {
        at[d] = (int)(i % (size_t)dim[d]);
        i /= (size_t)dim[d];
    }
}

static size_t ref_index(const int dim[4], int n, int c, int h, int w)
{
    return (((size_t)n * (size_t)dim[1] + (size_t)c) * (size_t)dim[2] + (size_t)h) *
               (size_t)dim[3] +
           (size_t)w;
}

static double ref_relu(struct ref *r, bool relu, double value)
{
    if (!relu)
        return value;
    r->margin = fmin(r->margin, fabs(value));
    return value > 0 ? value : 0;
}

/* All 16 corners and max_elements more, spread over the tensor. */
static void ref_sample(struct ref *r, const struct dt_node *node, int which, size_t count)
{
    double *value = r->value[node->dst[which]];
    const int *dim = ref_dim(r, node->dst[which]);
    for (size_t i = 0; i < count; i++)
        value[i] = NAN;
    for (unsigned corner = 0; corner < 16; corner++) {
        size_t i = ref_index(dim, corner & 1 ? dim[0] - 1 : 0, corner & 2 ? dim[1] - 1 : 0,
                             corner & 4 ? dim[2] - 1 : 0, corner & 8 ? dim[3] - 1 : 0);
        value[i] = op_test_of(node->op)->element(r, node, which, i);
    }
    for (uint64_t j = 0; j < r->max_elements; j++) {
        size_t i = (size_t)((j * 2654435761u + 97) % count);
        value[i] = op_test_of(node->op)->element(r, node, which, i);
    }
}

static bool ref_is_read(const struct dt_graph *g, int t)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->node[i].n_src; k++)
            if (g->node[i].src[k] == t)
                return true;
    return false;
}

static void ref_run(struct ref *r, const struct dt_node *node)
{
    if (op_test_of(node->op)->whole) {
        op_test_of(node->op)->whole(r, node);
        return;
    }
    for (int which = 0; which < node->n_dst; which++) {
        size_t count = ref_count(r->g, node, which);
        if (op_test_of(node->op)->sampled && r->max_elements && count > 2 * r->max_elements &&
            !ref_is_read(r->g, node->dst[which])) {
            ref_sample(r, node, which, count);
            continue;
        }
        for (size_t i = 0; i < count; i++)
            r->value[node->dst[which]][i] = op_test_of(node->op)->element(r, node, which, i);
    }
}

static void ref_close(struct ref *r)
{
    for (int t = 0; r->value && t < r->g->n_tensors; t++)
        free(r->value[t]);
    free(r->value);
    r->value = NULL;
}

static dt_status ref_alloc(struct ref *r, int tensor, size_t count)
{
    if (r->value[tensor])
        return DT_OK;
    return DT_NEW(r->value[tensor], count);
}

/* On failure ref_close is still the caller's. */
static dt_status ref_open(struct ref *r, const struct dt_graph *g, size_t max_elements)
{
    *r = (struct ref){.g = g, .max_elements = max_elements, .diff_scale = 1, .margin = INFINITY};
    DT_TRY(DT_NEW(r->value, (size_t)g->n_tensors));
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        for (int k = 0; k < node->n_dst; k++)
            DT_TRY(ref_alloc(r, node->dst[k], ref_count(g, node, k)));
        for (int k = 0; k < node->n_src; k++)
            if (node->src[k] >= 0)
                DT_TRY(ref_alloc(r, node->src[k], dt_tensor_elements(&g->tensor[node->src[k]])));
    }
    return DT_OK;
}

#endif
