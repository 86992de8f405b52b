/* The best detections of a level of the pyramid. */
#include <limits.h>

#include "graph/graph_internal.h"

enum { MAX_CANDIDATES = 1000 }; /* of an image and level, as in torchvision */

static dt_status check_heads(const struct dt_graph *g, int logits, int deltas,
                             const struct dt_detect *detect)
{
    const struct dt_tensor *l = &g->tensor[logits], *d = &g->tensor[deltas];
    if (detect->level < 0 || detect->level >= detect->anchors.n_levels)
        DT_FAIL(DT_ERR_INTERNAL, "top_detections: the anchors have no level %d", detect->level);
    const int height = detect->anchors.height[detect->level];
    const int width = detect->anchors.width[detect->level];
    if (d->role != DT_ACT || l->dim[1] % DT_CELL_ANCHORS || d->dim[1] != 4 * DT_CELL_ANCHORS)
        DT_FAIL(DT_ERR_INTERNAL,
                "top_detections: %s and %s are not classes and boxes of %d anchors", l->name,
                d->name, DT_CELL_ANCHORS);
    for (int i = 0; i < 2; i++) {
        const struct dt_tensor *t = i ? d : l;
        if (t->dim[0] != dt_graph_program(g)->batch || t->dim[2] != height || t->dim[3] != width)
            DT_FAIL(DT_ERR_INTERNAL, "top_detections: %s does not have the size of level %d",
                    t->name, detect->level);
    }
    if ((double)l->dim[1] * height * width > INT_MAX)
        DT_FAIL(DT_ERR_CONFIG, "%d x %d places of %d scores are too many: use smaller images",
                height, width, l->dim[1]);
    if (dt_graph_program(g)->sizes < 0)
        DT_FAIL(DT_ERR_INTERNAL, "top_detections needs sizes: call dt_graph_boxes first");
    if (!(detect->min_score >= 0 && detect->min_score < 1))
        DT_FAIL(DT_ERR_CONFIG, "the lowest score of a detection, %g, is not in [0, 1)",
                (double)detect->min_score);
    return DT_OK;
}

void dt_graph_top_detections(struct dt_graph *g, int logits, int deltas,
                             const struct dt_detect *detect)
{
    struct dt_node draft;
    struct dt_program *p = &g->program[g->current];
    char name[DT_NAME_MAX];
    snprintf(name, sizeof name, "detections%d", detect->level);
    if (!dt_draft_begin(g, &draft, DT_OP_TOP_DETECTIONS, name, logits))
        return;
    dt_graph_remember(g, check_heads(g, logits, deltas, detect));
    if (g->status != DT_OK)
        return;
    draft.src[DT_TOP_DELTAS] = deltas;
    draft.src[DT_TOP_SIZES] = p->sizes;
    draft.n_src = DT_TOP_SIZES + 1;
    draft.attr.detect = *detect;
    const int *dim = g->tensor[logits].dim, scores = dim[1] * dim[2] * dim[3];
    const int most = scores < MAX_CANDIDATES ? scores : MAX_CANDIDATES;
    dt_draft_dst(g, &draft, "", DT_OUTPUT, DT_F32, 3, (const int[4]){dim[0], most, 6, 1});
    dt_draft_dst(g, &draft, ".n", DT_OUTPUT, DT_I32, 1, (const int[4]){dim[0], 1, 1, 1});
    dt_draft_commit(g, &draft);
    p->detections[detect->level] = draft.dst[DT_TOP_DST];
    p->n_detections[detect->level] = draft.dst[DT_TOP_N];
}

const struct dt_op_rule dt_rule_top_detections = {.per_element = 1};
