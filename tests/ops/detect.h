/* Matching of anchors with boxes, and the losses of a detector. */
#ifndef DTRAIN_TESTS_OPS_DETECT_H
#define DTRAIN_TESTS_OPS_DETECT_H

#include "op_cases.h"

/* Columns of the cases: n, classes, height and width of the canvas, slots for boxes, enum
 * dt_box_loss, levels, level of the loss, flags, gamma or beta. */
enum {
    F_GLOBAL = F_MIXED,
    F_STRICT = F_TWO, /* no low-quality matches */
    F_NO_ALPHA = F_WEIGHTS,
};

static struct dt_node detect_node(const struct op_case *c)
{
    struct dt_node node = {.attr.detect = {.anchors = {.n_levels = c->stride,
                                                       .canvas_height = c->h,
                                                       .canvas_width = c->w,
                                                       .base = 16},
                                           .level = c->pad,
                                           .global = c->flags & F_GLOBAL,
                                           .background = 0.4f,
                                           .foreground = 0.5f,
                                           .low_quality = !(c->flags & F_STRICT),
                                           .alpha = c->flags & F_NO_ALPHA ? -1 : 0.25f,
                                           .gamma = (float)c->smoothing,
                                           .kind = (enum dt_box_loss)c->kernel,
                                           .beta = (float)c->smoothing}};
    struct dt_anchors *a = &node.attr.detect.anchors;
    for (int i = 0; i < a->n_levels; i++) {
        a->height[i] = (c->h + (8 << i) - 1) / (8 << i);
        a->width[i] = (c->w + (8 << i) - 1) / (8 << i);
    }
    return node;
}

/* The ids of match and count. */
static void add_match(struct dt_graph *g, const struct op_case *c, int dst[2])
{
    const struct dt_node like = detect_node(c);
    const struct dt_anchors *a = &like.attr.detect.anchors;
    const int dim[4] = {c->n, dt_anchors_before(a, a->n_levels), 1, 1};
    if (dt_graph_boxes(g, c->k) != DT_OK)
        return;
    const int src[2] = {dt_graph_program(g)->boxes, dt_graph_program(g)->box_labels};
    dst[0] = dt_graph_tensor(g, "match", DT_SAVED, DT_I32, 2, dim);
    dst[1] = add1(g, "count", DT_SAVED, c->n);
    add_node(g, &like, DT_OP_MATCH, 2, src, 2, dst);
}

static void build_match(struct dt_graph *g, const struct op_case *c)
{
    int dst[2];
    add_match(g, c, dst);
}

/* each: channels of an anchor. */
static void build_loss(struct dt_graph *g, const struct op_case *c, enum dt_op op, int each)
{
    const struct dt_node like = detect_node(c);
    const struct dt_anchors *a = &like.attr.detect.anchors;
    struct op_case level = *c;
    int match[2] = {-1, -1};
    add_match(g, c, match);
    level.c = DT_CELL_ANCHORS * each;
    level.h = a->height[c->pad];
    level.w = a->width[c->pad];
    const struct dt_program *p = dt_graph_program(g);
    const int values = add_src(g, &level);
    const int src[4] = {values, match[0], op == DT_OP_BOX_LOSS ? p->boxes : p->box_labels,
                        match[1]};
    const int diff = add_like(g, "diff_src", DT_DIFF, DT_F32, values);
    add_node(g, &like, op, 4, src, c->flags & F_EVAL ? 0 : 1, &diff);
}

static void build_focal_loss(struct dt_graph *g, const struct op_case *c)
{
    build_loss(g, c, DT_OP_FOCAL_LOSS, c->c);
}

static void build_box_loss(struct dt_graph *g, const struct op_case *c)
{
    build_loss(g, c, DT_OP_BOX_LOSS, 4);
}

/* Boxes anywhere, small and large, some twice and some at whole pixels, in some of the slots. */
static void draw_boxes(struct ref *r, const struct dt_node *match)
{
    const struct dt_anchors *a = &match->attr.detect.anchors;
    const double side[2] = {a->canvas_width, a->canvas_height};
    double *box = r->value[match->src[0]], *label = r->value[match->src[1]];
    struct dt_rng rng;
    dt_rng_init(&rng, 1, DT_RNG_SYNTHETIC, 1, 0);
    for (size_t i = 0; i < dt_tensor_elements(&r->g->tensor[match->src[1]]); i++, box += 4) {
        const double kind = dt_rng_uniform(&rng), size = pow(dt_rng_uniform(&rng), 3);
        for (int k = 0; k < 2; k++) {
            const double low = dt_rng_uniform(&rng) * side[k];
            const double high = low + 1 + size * dt_rng_uniform(&rng) * side[k];
            box[k] = kind < 0.3 ? floor(low) : (float)low;
            box[2 + k] = kind < 0.3 ? ceil(high) : (float)high;
        }
        if (i > 0 && kind > 0.9)
            memcpy(box, box - 4, 4 * sizeof *box);
        if (kind > 0.4 && kind < 0.6)
            label[i] = -1;
    }
}

/* Half of the logits or deltas from -6 to 10. */
static void widen_values(struct ref *r, const struct dt_node *loss)
{
    const bool direct = is_input(r->g, loss->src[0]);
    const int t = direct ? loss->src[0] : dt_graph_find(r->g, "copy_src");
    for (size_t i = 0; i < dt_tensor_elements(&r->g->tensor[t]); i += 2)
        r->value[t][i] *= 8;
}

/* --- Matching, in fp32: the rules compare overlaps for equality --- */

/* Anchor i of all, x1 y1 x2 y2. */
static void ref_anchor(float out[4], const struct dt_anchors *a, int i)
{
    float cell[DT_CELL_ANCHORS][4];
    int level = 0, stride[2];
    while (i >= dt_anchors_before(a, level + 1))
        level++;
    i -= dt_anchors_before(a, level);
    dt_anchor_stride(stride, a, level);
    dt_anchor_cell(cell, a, level);
    const int place = i / DT_CELL_ANCHORS;
    for (int k = 0; k < 4; k++) {
        int moves = k % 2 ? place / a->width[level] : place % a->width[level];
        out[k] = cell[i % DT_CELL_ANCHORS][k] + (float)(moves * stride[k % 2 ? 0 : 1]);
    }
}

static float ref_iou(const double *box_values, const float anchor[4])
{
    const float box[4] = {(float)box_values[0], (float)box_values[1], (float)box_values[2],
                          (float)box_values[3]};
    float side[2];
    for (int k = 0; k < 2; k++)
        side[k] = fmaxf(0, fminf(box[2 + k], anchor[2 + k]) - fmaxf(box[k], anchor[k]));
    const float inter = side[0] * side[1];
    const float area = (box[2] - box[0]) * (box[3] - box[1]);
    const float anchor_area = (anchor[2] - anchor[0]) * (anchor[3] - anchor[1]);
    return inter / (area + anchor_area - inter);
}

/* best[slot]: the largest overlap of every box of an image. */
static double ref_match_anchor(const struct dt_detect *d, const double *boxes, const double *labels,
                               const double *best, int n_slots, const float anchor[4])
{
    int slot = -1;
    float top = -1;
    bool keep = false;
    for (int k = 0; k < n_slots; k++) {
        if (labels[k] < 0)
            continue;
        float iou = ref_iou(boxes + 4 * k, anchor);
        if (iou > top) {
            top = iou;
            slot = k;
        }
        keep |= d->low_quality && (double)iou == best[k];
    }
    if (slot < 0 || keep || top >= d->foreground)
        return slot;
    return top < d->background ? -1 : -2;
}

static void ref_match_image(struct ref *r, const struct dt_node *node, int image)
{
    const struct dt_detect *d = &node->attr.detect;
    const int n_slots = ref_dim(r, node->src[1])[1], n = ref_dim(r, node->dst[0])[1];
    const double *boxes = ref_src(r, node, DT_MATCH_BOXES) + (size_t)image * (size_t)n_slots * 4;
    const double *labels = ref_src(r, node, DT_MATCH_BOX_LABELS) + (size_t)image * (size_t)n_slots;
    double *match = ref_dst(r, node, DT_MATCH_DST) + (size_t)image * (size_t)n;
    double *count = ref_dst(r, node, DT_MATCH_COUNT) + image, best[256] = {0};
    float anchor[4];
    for (int i = 0; i < n; i++) {
        ref_anchor(anchor, &d->anchors, i);
        for (int k = 0; k < n_slots; k++)
            best[k] = fmax(best[k], (double)ref_iou(boxes + 4 * k, anchor));
    }
    *count = 0;
    for (int i = 0; i < n; i++) {
        ref_anchor(anchor, &d->anchors, i);
        match[i] = ref_match_anchor(d, boxes, labels, best, n_slots, anchor);
        *count += match[i] >= 0;
    }
    r->counters.weight += d->global ? *count : 1;
}

static void ref_match(struct ref *r, const struct dt_node *node)
{
    const int n = ref_dim(r, node->src[0])[0];
    for (int i = 0; i < n; i++)
        ref_match_image(r, node, i);
    r->counters.n += n;
}

static const struct op_case match_cases[] = {
    {1, 3, 64, 64, 4, 0, 1, 0, 0, 0},
    {2, 3, 100, 75, 7, 0, 5, 0, 0, 0},
    {2, 3, 100, 75, 7, 0, 5, 0, F_STRICT, 0},
    {3, 3, 1, 1, 2, 0, 1, 0, 0, 0},
    {3, 3, 40, 90, 1, 0, 3, 0, F_GLOBAL, 0},
    {2, 3, 24, 1200, 33, 0, 4, 0, 0, 0},
    {1, 3, 200, 168, 150, 0, 5, 0, F_STRICT | F_GLOBAL, 0},
};

OP_TEST(match, build_match, false)

static const struct op_test op_test_match = {
    .whole = ref_match, .adjust = draw_boxes, .tests = {TEST_OF(match)}};

/* --- Losses --- */

static double ref_divisor(const struct ref *r, const struct dt_node *node, int image)
{
    return node->attr.detect.global ? 1 : fmax(1, ref_src(r, node, DT_DETECT_LOSS_COUNT)[image]);
}

/* Adds the loss of anchor i of the level of an image; at[] are its channels, each apart. */
typedef double ref_anchor_loss(const struct ref *r, const struct dt_node *node, int image, int i,
                               double *diff, const double *at, size_t apart);

static double ref_losses(struct ref *r, const struct dt_node *node, ref_anchor_loss *loss)
{
    const int *dim = ref_dim(r, node->src[0]);
    const int n_places = dim[2] * dim[3], each = dim[1] / DT_CELL_ANCHORS;
    double sum = 0;
    for (int image = 0; image < dim[0]; image++)
        for (int i = 0; i < n_places * DT_CELL_ANCHORS; i++) {
            const int place = i / DT_CELL_ANCHORS, c = i % DT_CELL_ANCHORS * each;
            size_t at = ref_index(dim, image, c, place / dim[3], place % dim[3]);
            double diff[1024] = {0}, divisor = ref_divisor(r, node, image);
            sum +=
                loss(r, node, image, i, diff, ref_src(r, node, 0) + at, (size_t)n_places) / divisor;
            for (int k = 0; k < each && ref_dst(r, node, 0); k++)
                ref_dst(r, node, 0)[at + (size_t)(k * n_places)] =
                    diff[k] * r->diff_scale / divisor;
        }
    return sum;
}

static double ref_matched(const struct ref *r, const struct dt_node *node, int image, int i)
{
    const struct dt_detect *d = &node->attr.detect;
    const size_t first = (size_t)image * (size_t)ref_dim(r, node->src[DT_DETECT_LOSS_MATCH])[1];
    return ref_src(
        r, node,
        DT_DETECT_LOSS_MATCH)[first + (size_t)(dt_anchors_before(&d->anchors, d->level) + i)];
}

/* -a (1 - p)^gamma log(p), with p the probability of what is right. */
static double ref_focal_anchor(const struct ref *r, const struct dt_node *node, int image, int i,
                               double *diff, const double *at, size_t apart)
{
    const struct dt_detect *d = &node->attr.detect;
    const double match = ref_matched(r, node, image, i), gamma = (double)d->gamma;
    const int slots = ref_dim(r, node->src[DT_DETECT_LOSS_BOXES])[1];
    const int label =
        match < 0 ? -1 : (int)ref_src(r, node, DT_DETECT_LOSS_BOXES)[image * slots + (int)match];
    double sum = 0;
    for (int k = 0; match != -2 && k < ref_dim(r, node->src[0])[1] / DT_CELL_ANCHORS; k++) {
        const double sign = k == label ? 1 : -1, p = 1 / (1 + exp(-sign * at[(size_t)k * apart]));
        const double a = d->alpha < 0 ? 1 : k == label ? (double)d->alpha : 1 - (double)d->alpha;
        sum -= a * pow(1 - p, gamma) * log(p);
        diff[k] = sign * a * pow(1 - p, gamma) * (gamma * p * log(p) - (1 - p));
    }
    return sum;
}

static void ref_focal_loss(struct ref *r, const struct dt_node *node)
{
    r->counters.loss += ref_losses(r, node, ref_focal_anchor);
    r->counters.n_finite += ref_dim(r, node->src[0])[0];
}

/* Of encoded boxes. */
static double ref_distance(const struct dt_detect *d, double *diff, const double *delta,
                           const float *anchor, const double *box)
{
    double sum = 0;
    for (int k = 0; k < 4; k++) {
        const int low = k % 2, high = 2 + low;
        const double size = (double)anchor[high] - (double)anchor[low];
        const double centre = ((double)anchor[high] + (double)anchor[low]) / 2;
        const double target = k < 2 ? ((box[low] + box[high]) / 2 - centre) / size
                                    : log((box[high] - box[low]) / size);
        const double e = delta[k] - target, beta = d->kind == DT_BOX_L1 ? 0 : (double)d->beta;
        sum += fabs(e) < beta ? e * e / (2 * beta) : fabs(e) - beta / 2;
        diff[k] = fabs(e) < beta ? e / beta : copysign(1, e);
    }
    return sum;
}

/* A value with its derivatives by the four deltas. */
struct dual {
    double v, d[4];
};

/* x * a + y * b + c */
static struct dual dual_sum(struct dual x, double a, struct dual y, double b, double c)
{
    struct dual out = {.v = x.v * a + y.v * b + c};
    for (int k = 0; k < 4; k++)
        out.d[k] = x.d[k] * a + y.d[k] * b;
    return out;
}

static struct dual dual_product(struct dual x, struct dual y)
{
    struct dual out = dual_sum(x, y.v, y, x.v, 0);
    out.v = x.v * y.v;
    return out;
}

static struct dual dual_quotient(struct dual x, struct dual y)
{
    struct dual out = dual_sum(x, 1 / y.v, y, -x.v / (y.v * y.v), 0);
    out.v = x.v / y.v;
    return out;
}

/* The larger one, with sign -1 the smaller one; equal ones share the derivatives. */
static struct dual dual_max(struct dual x, struct dual y, double sign)
{
    return x.v == y.v ? dual_sum(x, 0.5, y, 0.5, 0) : sign * x.v > sign * y.v ? x : y;
}

static void ref_decode_axis(struct dual out[2], const double *delta, const float *anchor, int axis)
{
    const double size = (double)anchor[2 + axis] - (double)anchor[axis], max = log(1000.0 / 16);
    const double stretch = exp(fmin(delta[2 + axis], max));
    struct dual centre = {.v = delta[axis] * size + (double)anchor[axis] + size / 2};
    struct dual half = {.v = stretch * size / 2};
    centre.d[axis] = size;
    half.d[2 + axis] = delta[2 + axis] > max ? 0 : half.v;
    out[0] = dual_sum(centre, 1, half, -1, 0);
    out[1] = dual_sum(centre, 1, half, 1, 0);
}

/* 2 - I / U - U / C: intersection, union and smallest box around the decoded box and `box`. */
static double ref_giou(double *diff, const double *delta, const float *anchor, const double *box)
{
    const struct dual none = {0}, one = {.v = 1};
    struct dual inter = one, whole = one, area = one;
    for (int k = 0; k < 2; k++) {
        const struct dual low = {.v = box[k]}, high = {.v = box[2 + k]};
        struct dual at[2];
        ref_decode_axis(at, delta, anchor, k);
        struct dual both = dual_sum(dual_max(at[1], high, -1), 1, dual_max(at[0], low, 1), -1, 0);
        inter = dual_product(inter, both.v > 0 ? both : none);
        whole = dual_product(
            whole, dual_sum(dual_max(at[1], high, 1), 1, dual_max(at[0], low, -1), -1, 0));
        area = dual_product(area, dual_sum(at[1], 1, at[0], -1, 0));
    }
    const struct dual all = dual_sum(area, 1, inter, -1, (box[2] - box[0]) * (box[3] - box[1]));
    const struct dual loss =
        dual_sum(dual_quotient(inter, all), -1, dual_quotient(all, whole), -1, 2);
    memcpy(diff, loss.d, sizeof loss.d);
    return loss.v;
}

static double ref_box_anchor(const struct ref *r, const struct dt_node *node, int image, int i,
                             double *diff, const double *at, size_t apart)
{
    const struct dt_detect *d = &node->attr.detect;
    const double match = ref_matched(r, node, image, i);
    const int slots = ref_dim(r, node->src[DT_DETECT_LOSS_BOXES])[1];
    double delta[4];
    float anchor[4];
    if (match < 0)
        return 0;
    const double *box = ref_src(r, node, DT_DETECT_LOSS_BOXES) + 4 * (image * slots + (int)match);
    ref_anchor(anchor, &d->anchors, dt_anchors_before(&d->anchors, d->level) + i);
    for (int k = 0; k < 4; k++)
        delta[k] = at[(size_t)k * apart];
    return d->kind == DT_BOX_GIOU ? ref_giou(diff, delta, anchor, box)
                                  : ref_distance(d, diff, delta, anchor, box);
}

static void ref_box_loss(struct ref *r, const struct dt_node *node)
{
    r->counters.box_loss += ref_losses(r, node, ref_box_anchor);
}

static const struct op_case focal_loss_cases[] = {
    {2, 3, 64, 64, 4, 0, 1, 0, 0, 2},          {2, 1, 100, 75, 7, 0, 5, 1, 0, 2},
    {1, 80, 70, 50, 9, 0, 3, 0, 0, 2},         {2, 17, 40, 90, 5, 0, 3, 1, F_GLOBAL, 2},
    {2, 91, 100, 75, 7, 0, 5, 3, F_STRICT, 2}, {2, 5, 100, 75, 7, 0, 5, 0, 0, 1.5},
    {2, 4, 40, 90, 3, 0, 2, 0, F_NO_ALPHA, 0}, {2, 20, 40, 90, 3, 0, 2, 1, F_EVAL | F_GLOBAL, 3},
};

static const struct op_case box_loss_cases[] = {
    {2, 3, 64, 64, 4, DT_BOX_L1, 1, 0, 0, 0},
    {2, 3, 100, 75, 7, DT_BOX_L1, 5, 1, F_GLOBAL, 0},
    {2, 3, 40, 90, 5, DT_BOX_SMOOTH_L1, 3, 0, 0, 0.7},
    {2, 3, 40, 90, 5, DT_BOX_SMOOTH_L1, 3, 0, F_STRICT, 0},
    {2, 3, 100, 75, 7, DT_BOX_GIOU, 5, 0, 0, 0},
    {3, 3, 100, 75, 20, DT_BOX_GIOU, 5, 2, F_GLOBAL, 0},
    {2, 3, 40, 90, 5, DT_BOX_GIOU, 3, 1, F_EVAL, 0},
};

OP_TEST(focal_loss, build_focal_loss, true)
OP_TEST(box_loss, build_box_loss, true)

static double reference_loss(struct ref *r, const struct dt_node *node)
{
    r->counters = (struct dt_counters){0};
    ref_run(r, node);
    return (r->counters.loss + r->counters.box_loss) * r->diff_scale;
}

/* The reference's gradient of some elements, those with a gradient first, against central
 * differences of its loss. */
static dt_status loss_differences(struct ref *r, const struct dt_node *node, double *diff)
{
    enum { N_ELEMENTS = 60 };
    const double step = 1e-6;
    double *value = r->value[node->src[0]];
    const size_t count = dt_tensor_elements(&r->g->tensor[node->src[0]]);
    memcpy(diff, r->value[node->dst[0]], count * sizeof *diff);
    for (size_t j = 0, i = 0; j < N_ELEMENTS; j++, i = (i + 7919) % count) {
        for (size_t k = 0; j % 6 && diff[i] == 0 && k < count; k++)
            i = (i + 1) % count;
        const double saved = value[i];
        value[i] = saved + step;
        const double above = reference_loss(r, node);
        value[i] = saved - step;
        const double difference = (above - reference_loss(r, node)) / (2 * step);
        value[i] = saved;
        if (!(fabs(difference - diff[i]) <= 1e-6 * (1 + fabs(diff[i]))))
            DT_FAIL(DT_ERR_NUMERICAL, "%s: gradient %zu is %.9g, central difference %.9g",
                    dt_op_name(node->op), i, diff[i], difference);
    }
    return DT_OK;
}

static dt_status check_differences(case_build_fn *build, const struct op_case *c)
{
    struct dt_graph *g = NULL;
    struct ref input = {0}, want = {0};
    double *diff = NULL;
    dt_status status;
    DT_TRY_OUT(build_graph(&g, build, c));
    DT_TRY_OUT(ref_open(&input, g, 0));
    DT_TRY_OUT(ref_open(&want, g, 0));
    DT_TRY_OUT(run_reference(&input, &want, c, DT_PRECISION_FP32));
    DT_TRY_OUT(DT_NEW(diff, dt_tensor_elements(&g->tensor[g->node[1].src[0]])));
    DT_TRY_OUT(loss_differences(&want, &g->node[1], diff));
out:
    free(diff);
    ref_close(&input);
    ref_close(&want);
    dt_graph_destroy(g);
    return status;
}

/* A logit that is not finite, and then a box whose label is not a class. */
static dt_status check_bad_inputs(struct suite *suite, struct rig *rig, struct ref *input)
{
    const struct dt_graph *g = rig->g;
    struct dt_counters got;
    input->value[g->node[1].src[0]][7] = NAN;
    DT_TRY(set_inputs(rig, input));
    DT_TRY(rig_run(rig, DT_TRAIN, &case_scalars));
    DT_TRY(suite->backend->download(rig->dev, &got));
    if (got.n != 2 || got.n_finite != 1 || !isfinite(got.loss))
        DT_FAIL(DT_ERR_NUMERICAL, "a loss of NaN: n_finite %lld, loss %g", (long long)got.n_finite,
                got.loss);
    input->value[g->node[0].src[1]][1] = focal_loss_cases[0].c;
    DT_TRY(set_inputs(rig, input));
    dt_status status = rig_run(rig, DT_TRAIN, &case_scalars);
    if (status == DT_OK)
        status = suite->backend->download(rig->dev, &got);
    if (status != DT_ERR_DATA || !strstr(dt_error_text(), "label_offset"))
        DT_FAIL(DT_ERR_INTERNAL, "a label that is not a class was not refused");
    return DT_OK;
}

static void test_focal_loss_bad_inputs(void **state)
{
    struct suite *suite = *state;
    struct dt_graph *g = NULL;
    struct ref input = {0}, want = {0};
    struct rig rig = {.backend = suite->backend};
    dt_status status;
    DT_TRY_OUT(build_graph(&g, build_focal_loss, &focal_loss_cases[0]));
    DT_TRY_OUT(ref_open(&input, g, 0));
    DT_TRY_OUT(ref_open(&want, g, 0));
    DT_TRY_OUT(run_reference(&input, &want, &focal_loss_cases[0], DT_PRECISION_FP32));
    DT_TRY_OUT(rig_open(&rig, suite->backend, &suite->options, g, NULL));
    DT_TRY_OUT(check_bad_inputs(suite, &rig, &input));
out:
    report(suite, "bad inputs of focal_loss", status);
    rig_close(&rig);
    ref_close(&input);
    ref_close(&want);
    dt_graph_destroy(g);
}

#define DIFFERENCES_TEST(name)                                             \
    static void test_##name##_differences(void **state)                    \
    {                                                                      \
        for (size_t i = 0; i < DT_COUNT(name##_cases); i++)                \
            if (!(name##_cases[i].flags & F_EVAL))                         \
                report(*state, #name " differences",                       \
                       check_differences(build_##name, &name##_cases[i])); \
    }
DIFFERENCES_TEST(focal_loss)
DIFFERENCES_TEST(box_loss)

static const struct op_test op_test_focal_loss = {.whole = ref_focal_loss,
                                                  .adjust = widen_values,
                                                  .bound = 2e-6,
                                                  .n_roundings = 1,
                                                  .tests = {TEST_OF(focal_loss),
                                                            TEST_OF(focal_loss_differences),
                                                            TEST_OF(focal_loss_bad_inputs)}};
static const struct op_test op_test_box_loss = {
    .whole = ref_box_loss,
    .adjust = widen_values,
    .bound = 1e-6,
    .n_roundings = 1,
    .tests = {TEST_OF(box_loss), TEST_OF(box_loss_differences)}};

#endif
