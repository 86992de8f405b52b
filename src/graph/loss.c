/* Softmax cross entropy. */
#include "graph/graph_internal.h"

static dt_status check_logits(const struct dt_graph *g, int logits, double smoothing)
{
    const struct dt_tensor *t = &g->tensor[logits];
    const struct dt_program *p = dt_graph_program(g);
    if (t->dim[0] != p->batch || t->dim[2] != 1 || t->dim[3] != 1)
        DT_FAIL(DT_ERR_INTERNAL, "softmax_xent: %s does not have the shape of logits", t->name);
    if (p->labels < 0)
        DT_FAIL(DT_ERR_INTERNAL, "softmax_xent needs labels: call dt_graph_begin first");
    const int weights = p->class_weights;
    if (weights >= 0 && g->tensor[weights].dim[0] != t->dim[1])
        DT_FAIL(DT_ERR_INTERNAL, "softmax_xent: %d class weights for %d classes",
                g->tensor[weights].dim[0], t->dim[1]);
    if (!(smoothing >= 0 && smoothing < 1))
        DT_FAIL(DT_ERR_CONFIG, "train.label_smoothing: %g is not in [0, 1)", smoothing);
    return DT_OK;
}

void dt_draft_commit_loss(struct dt_graph *g, struct dt_node *draft)
{
    if (dt_graph_program(g)->phase == DT_TRAIN) {
        const struct dt_tensor *t = &g->tensor[draft->src[0]];
        char name[2 * DT_NAME_MAX];
        snprintf(name, sizeof name, "diff_%.*s", DT_NAME_MAX - 6, t->name);
        draft->dst[draft->n_dst++] = dt_graph_tensor(g, name, DT_DIFF, DT_F32, t->n_dims, t->dim);
    }
    dt_draft_commit(g, draft);
}

void dt_gradient_of_loss(struct dt_autodiff *ad, const struct dt_node *node)
{
    dt_autodiff_give(ad, node->src[0], node->dst[0]);
}

void dt_graph_softmax_xent(struct dt_graph *g, int logits, double smoothing)
{
    struct dt_node draft = {.op = DT_OP_SOFTMAX_XENT, .attr.xent = {(float)smoothing}};
    const struct dt_program *p = dt_graph_program(g);
    if (!dt_draft_begin(g, &draft, "softmax_xent", 1, &logits))
        return;
    dt_graph_remember(g, check_logits(g, logits, smoothing));
    if (g->status != DT_OK)
        return;
    draft.src[DT_XENT_LABELS] = p->labels;
    draft.src[DT_XENT_LABELS2] = p->labels2;
    draft.src[DT_XENT_MIX_SHARE] = p->mix_share;
    draft.src[DT_XENT_CLASS_WEIGHTS] = p->class_weights;
    draft.n_src = DT_XENT_CLASS_WEIGHTS + 1;
    dt_draft_commit_loss(g, &draft);
    g->program[g->current].logits = logits;
}

const struct dt_op_rule dt_rule_softmax_xent = {
    .per_element = 5, .is_loss = true, .gradient = dt_gradient_of_loss};
