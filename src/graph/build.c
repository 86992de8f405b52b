/* The builder functions that models are made of. Each fills a draft of its node, finds or creates
 * the parameters, lets the op table infer the shape of dst and commits the node.
 *
 * A parameter that exists from the other phase is shared; its shape must agree. */
#include <string.h>

#include "base/rng.h"
#include "graph/ops.h"

static const struct dt_init zeros = {DT_INIT_CONSTANT, 0}, ones = {DT_INIT_CONSTANT, 1};

static dt_status check_source(const struct dt_graph *g, const char *name, int src)
{
    if (strlen(name) >= DT_NAME_MAX)
        DT_FAIL(DT_ERR_INTERNAL, "the node name %s is longer than %d characters", name,
                DT_NAME_MAX - 1);
    if (src < 0 || src >= g->n_tensors)
        DT_FAIL(DT_ERR_INTERNAL, "node %s reads tensor %d, which does not exist", name, src);
    const struct dt_tensor *t = &g->tensor[src];
    if (t->dtype != DT_F32 || t->role != DT_ACT)
        DT_FAIL(DT_ERR_INTERNAL, "node %s reads %s, which is not a value of the network", name,
                t->name);
    return DT_OK;
}

/* Starts a draft; false if the graph has an error already or gets one here. */
static bool begin(struct dt_graph *g, struct dt_node *draft, enum dt_op op, const char *name,
                  int src)
{
    if (g->status == DT_OK)
        dt_graph_remember(g, check_source(g, name, src));
    if (g->status != DT_OK)
        return false;
    *draft = (struct dt_node){.op = op, .n_src = 1, .src = {src}};
    memcpy(draft->name, name, strlen(name) + 1);
    return true;
}

static void add_dst(struct dt_graph *g, struct dt_node *draft, const char *suffix,
                    enum dt_role role, enum dt_dtype dtype, int n_dims, const int dim[4])
{
    char name[2 * DT_NAME_MAX];
    snprintf(name, sizeof name, "%s%s", draft->name, suffix);
    draft->dst[draft->n_dst++] = dt_graph_tensor(g, name, role, dtype, n_dims, dim);
}

/* dst[0], with the dims the op table infers; `dim` (may be NULL) holds them at return. */
static void infer_dst(struct dt_graph *g, struct dt_node *draft, int dim[4])
{
    int local[4];
    int *out = dim ? dim : local;
    if (g->status != DT_OK)
        return;
    memcpy(out, g->tensor[draft->src[0]].dim, sizeof local);
    const struct dt_op_row *row = dt_op_row(draft->op);
    if (row->infer)
        dt_graph_remember(g, row->infer(g, draft, out));
    add_dst(g, draft, "", DT_ACT, DT_F32, 4, out);
}

static int commit(struct dt_graph *g, const struct dt_node *draft)
{
    struct dt_node *node = dt_graph_node(g, draft->op, draft->name, draft->n_src, draft->src,
                                         draft->n_dst, draft->dst);
    if (!node)
        return -1;
    node->attr = draft->attr;
    return node->n_dst > 0 ? node->dst[0] : -1;
}

static dt_status check_shared(const struct dt_graph *g, int id, int n_dims, const int dim[4])
{
    const struct dt_tensor *t = &g->tensor[id];
    if (t->n_dims != n_dims || memcmp(t->dim, dim, sizeof t->dim) != 0) {
        struct dt_tensor wanted = {.n_dims = n_dims, .dim = {dim[0], dim[1], dim[2], dim[3]}};
        char old_text[48], new_text[48];
        DT_FAIL(DT_ERR_CONFIG, "parameter %s is used with two shapes, %s and %s", t->name,
                dt_tensor_format_dims(old_text, sizeof old_text, t),
                dt_tensor_format_dims(new_text, sizeof new_text, &wanted));
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        for (int k = 0; k < node->n_src; k++) {
            if (node->phase == g->phase && node->src[k] == id)
                DT_FAIL(DT_ERR_INTERNAL,
                        "parameter %s is used by two nodes of one phase; give the "
                        "second node another name",
                        t->name);
        }
    }
    return DT_OK;
}

/* Adds a source: the parameter or statistic "<node>.<suffix>", shared with the other phase. */
static void add_param(struct dt_graph *g, struct dt_node *draft, const char *suffix,
                      enum dt_role role, int n_dims, const int dim[4], struct dt_init init)
{
    char name[2 * DT_NAME_MAX];
    if (g->status != DT_OK)
        return;
    snprintf(name, sizeof name, "%s.%s", draft->name, suffix);
    int id = dt_graph_find_role(g, name, role);
    if (id >= 0) {
        dt_graph_remember(g, check_shared(g, id, n_dims, dim));
    } else {
        id = dt_graph_tensor(g, name, role, DT_F32, n_dims, dim);
        if (id < 0)
            return;
        g->tensor[id].init = init;
        g->tensor[id].decay = role == DT_PARAM && n_dims > 1;
    }
    draft->src[draft->n_src++] = id;
}

static dt_status check_ingest(const struct dt_graph *g, const double std[3])
{
    if (g->pixels[g->phase] < 0)
        DT_FAIL(DT_ERR_INTERNAL, "ingest needs pixels: call dt_graph_begin first");
    for (int i = 0; i < 3; i++) {
        if (!(std[i] > 0))
            DT_FAIL(DT_ERR_CONFIG, "data.std: %g is not a positive standard deviation", std[i]);
    }
    return DT_OK;
}

int dt_graph_ingest(struct dt_graph *g, const double mean[3], const double std[3])
{
    if (g->status == DT_OK)
        dt_graph_remember(g, check_ingest(g, std));
    if (g->status != DT_OK)
        return -1;
    struct dt_node draft = {.op = DT_OP_INGEST, .name = "ingest", .n_src = 1};
    draft.src[0] = g->pixels[g->phase];
    for (int i = 0; i < 3; i++) {
        draft.attr.ingest.mean[i] = (float)mean[i];
        draft.attr.ingest.std[i] = (float)std[i];
    }
    infer_dst(g, &draft, NULL);
    return commit(g, &draft);
}

int dt_graph_conv(struct dt_graph *g, int src, const char *name, struct dt_conv_options options)
{
    struct dt_node draft;
    if (!begin(g, &draft, DT_OP_CONV, name, src))
        return -1;
    draft.attr.conv.stride = options.stride;
    draft.attr.conv.pad = options.pad;
    const int weights[4] = {options.out_channels, g->tensor[src].dim[1], options.kernel,
                            options.kernel};
    const int bias[4] = {options.out_channels, 1, 1, 1};
    add_param(g, &draft, "weight", DT_PARAM, 4, weights, options.init);
    if (options.bias)
        add_param(g, &draft, "bias", DT_PARAM, 1, bias, options.bias_init);
    infer_dst(g, &draft, NULL);
    return commit(g, &draft);
}

int dt_graph_bn(struct dt_graph *g, int src, const char *name, double scale_init)
{
    struct dt_node draft;
    if (!begin(g, &draft, DT_OP_BN, name, src))
        return -1;
    draft.attr.bn.eps = 1e-5f;
    draft.attr.bn.momentum = 0.1f;
    const int channels[4] = {g->tensor[src].dim[1], 1, 1, 1};
    const struct dt_init scale = {DT_INIT_CONSTANT, scale_init};
    add_param(g, &draft, "weight", DT_PARAM, 1, channels, scale);
    add_param(g, &draft, "bias", DT_PARAM, 1, channels, zeros);
    add_param(g, &draft, "running_mean", DT_STAT, 1, channels, zeros);
    add_param(g, &draft, "running_var", DT_STAT, 1, channels, ones);
    infer_dst(g, &draft, NULL);
    if (g->phase == DT_TRAIN) {
        add_dst(g, &draft, ".mean", DT_SAVED, DT_F32, 1, channels);
        add_dst(g, &draft, ".variance", DT_SAVED, DT_F32, 1, channels);
    }
    return commit(g, &draft);
}

int dt_graph_relu(struct dt_graph *g, int src, const char *name)
{
    struct dt_node draft;
    if (!begin(g, &draft, DT_OP_RELU, name, src))
        return -1;
    infer_dst(g, &draft, NULL);
    return commit(g, &draft);
}

int dt_graph_add(struct dt_graph *g, int a, int b, const char *name)
{
    struct dt_node draft;
    if (!begin(g, &draft, DT_OP_ADD, name, b) || !begin(g, &draft, DT_OP_ADD, name, a))
        return -1;
    draft.src[draft.n_src++] = b;
    infer_dst(g, &draft, NULL);
    return commit(g, &draft);
}

int dt_graph_max_pool(struct dt_graph *g, int src, const char *name, int kernel, int stride,
                      int pad)
{
    struct dt_node draft;
    int dim[4];
    if (!begin(g, &draft, DT_OP_MAX_POOL, name, src))
        return -1;
    draft.attr.pool.kernel = kernel;
    draft.attr.pool.stride = stride;
    draft.attr.pool.pad = pad;
    infer_dst(g, &draft, dim);
    if (g->phase == DT_TRAIN)
        add_dst(g, &draft, ".workspace", DT_SAVED, DT_U8, 4, dim);
    return commit(g, &draft);
}

int dt_graph_avg_pool(struct dt_graph *g, int src, const char *name, int out_size)
{
    struct dt_node draft;
    if (!begin(g, &draft, DT_OP_AVG_POOL, name, src))
        return -1;
    const struct dt_tensor *t = &g->tensor[src];
    if (t->dim[2] == out_size && t->dim[3] == out_size)
        return src; /* every window is one value: nothing to do */
    const int dim[4] = {t->dim[0], t->dim[1], out_size, out_size};
    add_dst(g, &draft, "", DT_ACT, DT_F32, 4, dim);
    return commit(g, &draft);
}

int dt_graph_linear(struct dt_graph *g, int src, const char *name, int out_features,
                    struct dt_init weight_init, struct dt_init bias_init)
{
    struct dt_node draft;
    if (!begin(g, &draft, DT_OP_LINEAR, name, src))
        return -1;
    const struct dt_tensor *t = &g->tensor[src];
    const int weights[4] = {out_features, t->dim[1] * t->dim[2] * t->dim[3], 1, 1};
    const int bias[4] = {out_features, 1, 1, 1};
    add_param(g, &draft, "weight", DT_PARAM, 2, weights, weight_init);
    add_param(g, &draft, "bias", DT_PARAM, 1, bias, bias_init);
    infer_dst(g, &draft, NULL);
    return commit(g, &draft);
}

int dt_graph_dropout(struct dt_graph *g, int src, const char *name, double p)
{
    struct dt_node draft;
    if (!begin(g, &draft, DT_OP_DROPOUT, name, src))
        return -1;
    if (!(p >= 0 && p < 1)) {
        dt_graph_remember(g, DT_ERROR(DT_ERR_CONFIG, "%s: dropout %g is not in [0, 1)", name, p));
        return -1;
    }
    if (g->phase == DT_EVAL || p == 0)
        return src; /* the identity needs no node */
    draft.attr.dropout.p = (float)p;
    draft.attr.dropout.stream = dt_rng_hash(name);
    infer_dst(g, &draft, NULL);
    return commit(g, &draft);
}

static dt_status check_logits(const struct dt_graph *g, int logits, double smoothing)
{
    const struct dt_tensor *t = &g->tensor[logits];
    if (t->dim[0] != g->batch || t->dim[2] != 1 || t->dim[3] != 1)
        DT_FAIL(DT_ERR_INTERNAL, "softmax_xent: %s does not have the shape of logits", t->name);
    if (g->labels[g->phase] < 0)
        DT_FAIL(DT_ERR_INTERNAL, "softmax_xent needs labels: call dt_graph_begin first");
    if (!(smoothing >= 0 && smoothing < 1))
        DT_FAIL(DT_ERR_CONFIG, "train.label_smoothing: %g is not in [0, 1)", smoothing);
    return DT_OK;
}

void dt_graph_softmax_xent(struct dt_graph *g, int logits, double smoothing)
{
    struct dt_node draft;
    if (!begin(g, &draft, DT_OP_SOFTMAX_XENT, "softmax_xent", logits))
        return;
    dt_graph_remember(g, check_logits(g, logits, smoothing));
    if (g->status != DT_OK)
        return;
    draft.src[draft.n_src++] = g->labels[g->phase];
    if (g->labels2[g->phase] >= 0) {
        draft.src[draft.n_src++] = g->labels2[g->phase];
        draft.src[draft.n_src++] = g->weights[g->phase];
    }
    draft.attr.xent.smoothing = (float)smoothing;
    if (g->phase == DT_TRAIN) {
        const struct dt_tensor *t = &g->tensor[logits];
        char name[2 * DT_NAME_MAX];
        snprintf(name, sizeof name, "diff_%.*s", DT_NAME_MAX - 6, t->name);
        draft.dst[draft.n_dst++] = dt_graph_tensor(g, name, DT_DIFF, DT_F32, t->n_dims, t->dim);
    }
    commit(g, &draft);
    g->logits[g->phase] = logits;
}
