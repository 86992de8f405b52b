/* Reverse-mode differentiation: walks the training nodes backwards and lets each op's rule append
 * its backward nodes.
 *
 * Between rules, the gradients contributed by the readers of each forward tensor are kept as
 * pending terms. When a third arrives, the first two are added at once, so at most two are pending;
 * the producer's rule takes them as one tensor (through an add node) or, if its backward node can
 * sum two terms itself, as they are. The terms of a parameter that several nodes share are all kept
 * and added by a sum_grads node after the last of them. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/graph_internal.h"

struct value {
    bool needs;    /* depends on a parameter that is trained */
    int producer;  /* node id, -1 = none */
    int n_readers; /* of a parameter, in the program */
    int n_terms, term[DT_MAX_SRC];
};

struct dt_autodiff {
    struct dt_graph *g;
    struct value *value; /* one per forward tensor */
    int n_values, program;
};

const struct dt_graph *dt_autodiff_graph(const struct dt_autodiff *ad)
{
    return ad->g;
}

bool dt_autodiff_needs(const struct dt_autodiff *ad, int value)
{
    return ad->value[value].needs;
}

static int new_tensor(struct dt_autodiff *ad, int like, enum dt_role role)
{
    struct dt_graph *g = ad->g;
    char name[DT_NAME_MAX];
    /* "diff_<name>", or "diff_<name>#2" and so on if that name is taken; truncated to fit. */
    snprintf(name, DT_NAME_MAX, "diff_%.*s", DT_NAME_MAX - 6, g->tensor[like].name);
    for (int n = 2; dt_graph_find(g, name) >= 0; n++) {
        char suffix[12];
        int length = snprintf(suffix, sizeof suffix, "#%d", n);
        snprintf(name, DT_NAME_MAX, "diff_%.*s%s", DT_NAME_MAX - 6 - length, g->tensor[like].name,
                 suffix);
    }
    return dt_graph_tensor(g, name, role, DT_F32, g->tensor[like].n_dims, g->tensor[like].dim);
}

int dt_autodiff_new(struct dt_autodiff *ad, int value)
{
    return new_tensor(ad, value, DT_DIFF);
}

/* All programs write the same gradient. */
static int gradient_of_param(struct dt_autodiff *ad, int param)
{
    int diff = ad->g->tensor[param].diff;
    if (diff < 0)
        diff = new_tensor(ad, param, DT_DIFF_PARAM);
    if (diff >= 0) {
        ad->g->tensor[diff].diff = param;
        ad->g->tensor[param].diff = diff;
    }
    return diff;
}

int dt_autodiff_new_param(struct dt_autodiff *ad, int param)
{
    struct value *v = &ad->value[param];
    if (v->n_readers < 2)
        return gradient_of_param(ad, param);
    int term = new_tensor(ad, param, DT_DIFF_TERM);
    if (term >= 0)
        ad->g->tensor[term].diff = param;
    v->term[v->n_terms++] = term;
    return term;
}

/* Replaces the two pending terms of `value` by their sum. */
static void add_terms(struct dt_autodiff *ad, int value)
{
    struct value *v = &ad->value[value];
    char name[DT_NAME_MAX] = "input";
    if (v->producer >= 0)
        memcpy(name, ad->g->node[v->producer].name, sizeof name);
    int sum = dt_autodiff_new(ad, value);
    dt_graph_node(ad->g, DT_OP_ADD, name, 2, v->term, 1, &sum);
    v->term[0] = sum;
    v->n_terms = 1;
}

void dt_autodiff_give(struct dt_autodiff *ad, int value, int diff)
{
    struct value *v = &ad->value[value];
    if (!v->needs || diff < 0)
        return;
    if (v->n_terms == 2)
        add_terms(ad, value);
    v->term[v->n_terms++] = diff;
}

void dt_autodiff_take_terms(struct dt_autodiff *ad, int value, int term[2])
{
    const struct value *v = &ad->value[value];
    term[0] = v->term[0];
    term[1] = v->n_terms == 2 ? v->term[1] : -1;
}

int dt_autodiff_take_addend(struct dt_autodiff *ad, int value)
{
    struct value *v = &ad->value[value];
    if (!v->needs || v->n_terms != 1)
        return -1;
    v->n_terms = 0;
    return v->term[0];
}

int dt_autodiff_take(struct dt_autodiff *ad, const struct dt_node *node)
{
    const int value = node->dst[0];
    if (node->activation)
        return dt_autodiff_through_activation(ad, node, value);
    if (ad->value[value].n_terms == 2)
        add_terms(ad, value);
    return ad->value[value].term[0];
}

struct dt_node *dt_autodiff_append(struct dt_autodiff *ad, enum dt_op op,
                                   const struct dt_node *node, int n_src, const int *src, int n_dst,
                                   const int *dst)
{
    struct dt_node *backward = dt_graph_node(ad->g, op, node->name, n_src, src, n_dst, dst);
    if (backward)
        backward->attr = node->attr;
    if (backward && (op == DT_OP_ACTIVATION_BWD || op == DT_OP_BN_BWD))
        backward->activation = node->activation;
    return backward;
}

int dt_autodiff_through_activation(struct dt_autodiff *ad, const struct dt_node *node, int value)
{
    int term[2];
    dt_autodiff_take_terms(ad, node->dst[0], term);
    const bool by_result = node->activation == DT_RELU;
    const int src[] = {[DT_ACTIVATION_BWD_DIFF_DST] = term[0],
                       [DT_ACTIVATION_BWD_SRC] = by_result ? node->dst[0] : node->src[0],
                       [DT_ACTIVATION_BWD_DIFF_DST2] = term[1]};
    int diff_src = dt_autodiff_new(ad, value);
    dt_autodiff_append(ad, DT_OP_ACTIVATION_BWD, node, DT_COUNT(src), src, 1, &diff_src);
    return diff_src;
}

static void append_one_to_one(struct dt_autodiff *ad, enum dt_op op, const struct dt_node *node,
                              int diff_dst, int second)
{
    const int src[] = {diff_dst, second};
    int diff_src = dt_autodiff_new(ad, node->src[0]);
    dt_autodiff_append(ad, op, node, second >= 0 ? 2 : 1, src, 1, &diff_src);
    dt_autodiff_give(ad, node->src[0], diff_src);
}

void dt_autodiff_one_to_one(struct dt_autodiff *ad, enum dt_op op, const struct dt_node *node,
                            int saved)
{
    append_one_to_one(ad, op, node, dt_autodiff_take(ad, node), saved);
}

/* Weights first, so that their gradient is being reduced while the data gradient is computed. */
void dt_autodiff_weights_then_data(struct dt_autodiff *ad, const struct dt_node *node,
                                   enum dt_op bwd_weights, enum dt_op bwd_data)
{
    int diff_dst = dt_autodiff_take(ad, node);
    const int src[] = {[DT_BWD_WEIGHTS_SRC] = node->src[0], [DT_BWD_WEIGHTS_DIFF_DST] = diff_dst};
    int dst[] = {-1, -1};
    for (int i = 1; i < node->n_src && dt_autodiff_needs(ad, node->src[i]); i++)
        dst[i - 1] = dt_autodiff_new_param(ad, node->src[i]);
    if (dst[DT_BWD_DIFF_WEIGHTS] >= 0)
        dt_autodiff_append(ad, bwd_weights, node, DT_COUNT(src), src, DT_COUNT(dst), dst);
    if (dt_autodiff_needs(ad, node->src[0]))
        append_one_to_one(ad, bwd_data, node, diff_dst, node->src[1]);
}

static dt_status find_needs(struct dt_autodiff *ad)
{
    struct dt_graph *g = ad->g;
    for (int i = 0; i < ad->n_values; i++) {
        bool trained = g->tensor[i].role == DT_PARAM && !g->tensor[i].frozen;
        ad->value[i] = (struct value){.needs = trained, .producer = -1};
    }
    for (int i = 0; i < g->n_nodes; i++) {
        struct dt_node *node = &g->node[i];
        if (node->program != ad->program || dt_op_row(node->op)->rule->is_loss)
            continue;
        for (int k = 0; k < node->n_src; k++)
            ad->value[node->src[k]].n_readers++;
        struct value *v = &ad->value[node->dst[0]];
        v->producer = i;
        for (int k = 0; k < node->n_src; k++)
            v->needs = v->needs || ad->value[node->src[k]].needs;
        if (!v->needs && dt_op_row(node->op)->rule->gradient)
            dt_node_save_nothing(node);
    }
    for (int i = 0; i < ad->n_values; i++) {
        if (ad->g->tensor[i].role == DT_PARAM && ad->value[i].n_readers > DT_MAX_SRC)
            DT_FAIL(DT_ERR_INTERNAL, "parameter %s is shared by %d nodes, more than %d",
                    ad->g->tensor[i].name, ad->value[i].n_readers, DT_MAX_SRC);
    }
    return DT_OK;
}

static void walk_back(struct dt_autodiff *ad)
{
    struct dt_graph *g = ad->g;
    for (int i = g->n_nodes - 1; i >= 0 && g->status == DT_OK; i--) {
        const struct dt_node node = g->node[i]; /* a copy: the array grows */
        if (node.program != ad->program)
            continue;
        const struct dt_op_rule *rule = dt_op_row(node.op)->rule;
        const struct value *v = node.dst[0] >= 0 ? &ad->value[node.dst[0]] : NULL;
        if (!rule->is_loss && !(v && v->needs && v->n_terms > 0))
            continue;
        rule->gradient(ad, &node);
        /* The sum follows the node that makes the last term. */
        for (int k = 0; k < node.n_src; k++) {
            const int param = node.src[k];
            if (param < 0 || ad->g->tensor[param].role != DT_PARAM)
                continue;
            const struct value *shared = &ad->value[param];
            if (shared->n_readers < 2 || shared->n_terms != shared->n_readers)
                continue;
            int diff = gradient_of_param(ad, param);
            dt_graph_node(ad->g, DT_OP_SUM_GRADS, ad->g->tensor[param].name, shared->n_terms,
                          shared->term, 1, &diff);
        }
    }
}

/* A gradient without some of its terms would keep its old value. */
static dt_status check_terms(const struct dt_autodiff *ad)
{
    DT_TRY(ad->g->status);
    for (int i = 0; i < ad->n_values; i++) {
        const struct value *v = &ad->value[i];
        if (ad->g->tensor[i].role == DT_PARAM && v->needs && v->n_readers > 1 &&
            v->n_terms != v->n_readers)
            DT_FAIL(DT_ERR_INTERNAL, "some readers of parameter %s have no influence on the loss",
                    ad->g->tensor[i].name);
    }
    return DT_OK;
}

dt_status dt_graph_differentiate(struct dt_graph *g)
{
    DT_TRY(g->status);
    bool loss = false;
    for (int i = 0; i < g->n_nodes; i++)
        loss = loss || (g->node[i].phase == DT_TRAIN && dt_op_row(g->node[i].op)->rule->is_loss);
    if (!loss)
        DT_FAIL(DT_ERR_INTERNAL, "the training graph has no loss to differentiate");
    for (int i = 0; i < g->n_tensors; i++) {
        if (g->tensor[i].role == DT_DIFF_PARAM)
            DT_FAIL(DT_ERR_INTERNAL, "the graph has already been differentiated");
    }
    struct dt_autodiff ad = {.g = g, .n_values = g->n_tensors};
    const int n_forward = g->n_nodes, current = g->current;
    DT_TRY(DT_NEW(ad.value, (size_t)ad.n_values));
    for (int i = 0; i < DT_MAX_PROGRAMS && g->status == DT_OK; i++) {
        if (g->program[i].batch == 0 || g->program[i].phase != DT_TRAIN)
            continue;
        g->current = ad.program = i;
        dt_graph_remember(g, find_needs(&ad));
        walk_back(&ad);
        dt_graph_remember(g, check_terms(&ad));
    }
    g->current = current;
    free(ad.value);
    DT_TRY(g->status);
    /* A parameter without a gradient would silently keep its initial value. */
    for (int i = 0; i < n_forward; i++) {
        const struct dt_node *node = &g->node[i];
        int tensor[DT_MAX_SRC + DT_MAX_DST];
        const int n = node->phase == DT_TRAIN ? dt_node_tensors(node, tensor) : 0;
        for (int k = 0; k < n; k++) {
            const struct dt_tensor *t = &g->tensor[tensor[k]];
            if (t->role == DT_PARAM && !t->frozen && t->diff < 0)
                DT_FAIL(DT_ERR_INTERNAL, "parameter %s has no influence on the loss", t->name);
        }
    }
    return DT_OK;
}
