/* Matching of anchors with boxes, the losses of a detector, and the best detections of a level. */
#include <limits.h>

#include "graph/graph_internal.h"

enum { MAX_CANDIDATES = 1000 }; /* of an image and level, as in torchvision */

/* --- Training --- */

static dt_status check_match(const struct dt_graph *g, const struct dt_detect *detect)
{
    if (dt_graph_program(g)->boxes < 0)
        DT_FAIL(DT_ERR_INTERNAL, "match needs boxes: call dt_graph_boxes first");
    if (detect->anchors.n_levels < 1 || detect->anchors.n_levels > DT_MAX_LEVELS)
        DT_FAIL(DT_ERR_INTERNAL, "match: anchors of %d levels", detect->anchors.n_levels);
    const struct dt_anchors *a = &detect->anchors;
    const struct dt_program *p = dt_graph_program(g);
    if (a->canvas_height != p->height || a->canvas_width != p->width)
        DT_FAIL(DT_ERR_INTERNAL, "match: anchors for %d x %d pixels, but images of %d x %d",
                a->canvas_height, a->canvas_width, p->height, p->width);
    for (int i = 0; i < a->n_levels; i++) {
        if (a->height[i] < 1 || a->width[i] < 1 || a->height[i] > p->height ||
            a->width[i] > p->width)
            DT_FAIL(DT_ERR_INTERNAL, "match: level %d of the anchors is %d x %d", i, a->height[i],
                    a->width[i]);
    }
    if (!(detect->background <= detect->foreground))
        DT_FAIL(DT_ERR_CONFIG, "match: background below an IoU of %g, but foreground from %g on",
                (double)detect->background, (double)detect->foreground);
    return DT_OK;
}

void dt_graph_match(struct dt_graph *g, const struct dt_detect *detect)
{
    struct dt_program *p = &g->program[g->current];
    if (g->status == DT_OK)
        dt_graph_remember(g, check_match(g, detect));
    if (g->status != DT_OK)
        return;
    struct dt_node draft = {
        .op = DT_OP_MATCH,
        .name = "match",
        .n_src = 2,
        .src = {[DT_MATCH_BOXES] = p->boxes, [DT_MATCH_BOX_LABELS] = p->box_labels},
        .attr.detect = *detect};
    const int anchors = dt_anchors_before(&detect->anchors, detect->anchors.n_levels);
    const int match[4] = {p->batch, anchors, 1, 1}, count[4] = {p->batch, 1, 1, 1};
    dt_draft_dst(g, &draft, "", DT_SAVED, DT_I32, 2, match);
    dt_draft_dst(g, &draft, ".count", DT_SAVED, DT_F32, 1, count);
    dt_draft_commit(g, &draft);
    p->match = draft.dst[DT_MATCH_DST];
    p->count = draft.dst[DT_MATCH_COUNT];
    if (detect->global)
        p->divisor = p->count;
}

/* each: channels of an anchor, 0 = any number. */
static dt_status check_values(const struct dt_graph *g, int values, const struct dt_detect *detect,
                              int each)
{
    const struct dt_tensor *t = &g->tensor[values];
    const struct dt_anchors *a = &detect->anchors;
    const int level = detect->level;
    char dims[48];
    if (dt_graph_program(g)->match < 0)
        DT_FAIL(DT_ERR_INTERNAL, "the losses of a detector need dt_graph_match first");
    const int anchors = g->tensor[dt_graph_program(g)->match].dim[1];
    if (level < 0 || level >= a->n_levels || anchors != dt_anchors_before(a, a->n_levels))
        DT_FAIL(DT_ERR_INTERNAL, "%s: level %d is not one of those that were matched", t->name,
                level);
    const bool fits = each ? t->dim[1] == DT_CELL_ANCHORS * each : t->dim[1] % DT_CELL_ANCHORS == 0;
    if (t->dim[0] != dt_graph_program(g)->batch || !fits || t->dim[2] != a->height[level] ||
        t->dim[3] != a->width[level])
        DT_FAIL(DT_ERR_INTERNAL, "%s is %s, but level %d has %d anchors at each of %d x %d places",
                t->name, dt_tensor_format_dims(dims, sizeof dims, t), level, DT_CELL_ANCHORS,
                a->height[level], a->width[level]);
    return DT_OK;
}

static void add_loss(struct dt_graph *g, enum dt_op op, int values, const struct dt_detect *detect,
                     int boxes, int each)
{
    struct dt_node draft = {.op = op, .attr.detect = *detect};
    char name[2 * DT_NAME_MAX];
    const struct dt_program *p = dt_graph_program(g);
    snprintf(name, sizeof name, "%s.%d", dt_op_name(op), detect->level);
    if (!dt_draft_begin(g, &draft, name, 1, &values))
        return;
    dt_graph_remember(g, check_values(g, values, detect, each));
    if (g->status != DT_OK)
        return;
    draft.src[DT_DETECT_LOSS_MATCH] = p->match;
    draft.src[DT_DETECT_LOSS_BOXES] = boxes;
    draft.src[DT_DETECT_LOSS_COUNT] = p->count;
    draft.n_src = DT_DETECT_LOSS_COUNT + 1;
    dt_draft_commit_loss(g, &draft);
}

void dt_graph_focal_loss(struct dt_graph *g, int logits, const struct dt_detect *detect)
{
    add_loss(g, DT_OP_FOCAL_LOSS, logits, detect, dt_graph_program(g)->box_labels, 0);
}

void dt_graph_box_loss(struct dt_graph *g, int deltas, const struct dt_detect *detect)
{
    add_loss(g, DT_OP_BOX_LOSS, deltas, detect, dt_graph_program(g)->boxes, 4);
}

/* --- Inference --- */

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
    struct dt_node draft = {.op = DT_OP_TOP_DETECTIONS, .attr.detect = *detect};
    struct dt_program *p = &g->program[g->current];
    char name[DT_NAME_MAX];
    snprintf(name, sizeof name, "detections%d", detect->level);
    if (!dt_draft_begin(g, &draft, name, 2, (const int[]){logits, deltas}))
        return;
    dt_graph_remember(g, check_heads(g, logits, deltas, detect));
    if (g->status != DT_OK)
        return;
    draft.src[DT_TOP_SIZES] = p->sizes;
    draft.n_src = DT_TOP_SIZES + 1;
    const int *dim = g->tensor[logits].dim, scores = dim[1] * dim[2] * dim[3];
    const int max = scores < MAX_CANDIDATES ? scores : MAX_CANDIDATES;
    dt_draft_dst(g, &draft, "", DT_OUTPUT, DT_F32, 3, (const int[4]){dim[0], max, 6, 1});
    dt_draft_dst(g, &draft, ".n", DT_OUTPUT, DT_I32, 1, (const int[4]){dim[0], 1, 1, 1});
    dt_draft_commit(g, &draft);
    p->detections[detect->level] = draft.dst[DT_TOP_DST];
    p->n_detections[detect->level] = draft.dst[DT_TOP_N];
}

const struct dt_op_rule dt_rule_match = {.per_element = 5};
const struct dt_op_rule dt_rule_focal_loss = {
    .per_element = 40, .is_loss = true, .gradient = dt_gradient_of_loss};
const struct dt_op_rule dt_rule_box_loss = {
    .per_element = 5, .is_loss = true, .gradient = dt_gradient_of_loss};
const struct dt_op_rule dt_rule_top_detections = {.per_element = 1};
