/* The best detections of a level. */
#ifndef DTRAIN_TESTS_OPS_TOP_DETECTIONS_H
#define DTRAIN_TESTS_OPS_TOP_DETECTIONS_H

#include "op_cases.h"

static int top_values; /* different logits in the case that was built */

/* c: classes; h, w: the grid; kernel: how many different logits; stride: of the anchors; pad: by
 * how much the canvas is higher than they reach; smoothing: the lowest score. */
static void build_top_detections(struct dt_graph *g, const struct op_case *c)
{
    struct dt_detect detect = {.level = 1, .min_score = (float)c->smoothing};
    detect.anchors = (struct dt_anchors){.n_levels = 2,
                                         .height = {2 * c->h, c->h},
                                         .width = {2 * c->w, c->w},
                                         .canvas_height = c->h * c->stride + c->pad,
                                         .canvas_width = c->w * c->stride,
                                         .base = c->stride};
    struct op_case heads = *c;
    heads.c = c->c * DT_CELL_ANCHORS;
    top_values = c->kernel;
    int logits = add_src(g, &heads);
    int deltas = add4(g, "deltas", DT_ACT, c->n, 4 * DT_CELL_ANCHORS, c->h, c->w);
    if (dt_graph_boxes(g, 1) == DT_OK)
        dt_graph_top_detections(g, logits, deltas, &detect);
}

/* Logits in steps of 1/16 from -8 on, which every type holds, so that scores are equal or differ by
 * more than a rounding; the highest are so large that their scores are 1. Some boxes are too large;
 * every image has another size. */
static void adjust_top_detections(struct ref *input, const struct dt_node *node)
{
    const struct dt_graph *g = input->g;
    const int from = is_input(g, node->src[0]) ? node->src[0] : dt_graph_find(g, "copy_src");
    double *logits = input->value[from], *deltas = input->value[node->src[DT_TOP_DELTAS]];
    struct dt_rng rng;
    dt_rng_init(&rng, 1, DT_RNG_SYNTHETIC, 2, 0);
    for (size_t i = 0; i < dt_tensor_elements(&g->tensor[from]); i++) {
        const int step = (int)dt_rng_below(&rng, (uint32_t)top_values) * (256 / top_values);
        logits[i] = step >= 250 ? 17 + (double)(i % 3) : step / 16.0 - 8;
    }
    for (size_t i = 0; i < dt_tensor_elements(&g->tensor[node->src[DT_TOP_DELTAS]]); i++)
        deltas[i] = i % 7 == 0 ? 5 : (double)dt_rng_below(&rng, 128) / 64 - 0.75;
    for (int i = 0; i < ref_dim(input, node->src[DT_TOP_SIZES])[0]; i++) {
        input->value[node->src[DT_TOP_SIZES]][2 * i] = node->attr.detect.anchors.canvas_height - i;
        input->value[node->src[DT_TOP_SIZES]][2 * i + 1] =
            node->attr.detect.anchors.canvas_width - 2 * i;
    }
}

struct ref_score {
    double logit;
    int number; /* (place * 9 + anchor) * classes + class */
};

static int ref_by_score(const void *a, const void *b)
{
    const struct ref_score *x = a, *y = b;
    int by_value = (x->logit < y->logit) - (x->logit > y->logit);
    return by_value ? by_value : x->number - y->number;
}

/* Centre and sides of torchvision's AnchorGenerator: y x, height width. */
static void ref_frame(double centre[2], double side[2], const struct dt_detect *d, int i)
{
    const int place = i / 9, width = d->anchors.width[d->level];
    const double size = floor(ldexp(d->anchors.base, d->level) * pow(2, i % 3 / 3.0));
    const double root = sqrt(ldexp(0.5, i % 9 / 3));
    centre[0] = place / width * (d->anchors.canvas_height / d->anchors.height[d->level]);
    centre[1] = place % width * (d->anchors.canvas_width / width);
    side[0] = 2 * nearbyint(size * root / 2);
    side[1] = 2 * nearbyint(size / root / 2);
}

static void ref_row(double row[6], struct ref *r, const struct dt_node *node, int image,
                    const struct ref_score *s)
{
    const int *dim = ref_dim(r, node->src[DT_TOP_DELTAS]),
              n_classes = ref_dim(r, node->src[0])[1] / 9;
    const int anchor = s->number / n_classes, place = anchor / 9;
    double centre[2], side[2], delta[4];
    ref_frame(centre, side, &node->attr.detect, anchor);
    for (int i = 0; i < 4; i++)
        delta[i] = ref_src(r, node, DT_TOP_DELTAS)[ref_index(dim, image, anchor % 9 * 4 + i,
                                                             place / dim[3], place % dim[3])];
    for (int i = 0; i < 2; i++) { /* x, y */
        const double max = ref_src(r, node, DT_TOP_SIZES)[2 * image + 1 - i];
        const double middle = centre[1 - i] + delta[i] * side[1 - i];
        const double half = side[1 - i] * fmin(exp(delta[2 + i]), 62.5) / 2;
        row[i] = fmin(fmax(middle - half, 0), max);
        row[2 + i] = fmin(fmax(middle + half, 0), max);
    }
    row[4] = 1 / (1 + exp(-s->logit));
    row[5] = s->number % n_classes;
}

static void ref_top_detections(struct ref *r, const struct dt_node *node)
{
    const int *dim = ref_dim(r, node->src[0]), max = ref_dim(r, node->dst[0])[1];
    const int n_scores = dim[1] * dim[2] * dim[3], area = dim[2] * dim[3];
    struct ref_score *score = calloc((size_t)n_scores, sizeof *score);
    assert_non_null(score);
    for (int image = 0; image < dim[0]; image++) {
        double *row = r->value[node->dst[0]] + (size_t)image * (size_t)max * 6;
        int n = 0, n_above = 0;
        for (int i = 0; i < n_scores; i++) {
            const double logit = ref_src(r, node, 0)[(size_t)image * (size_t)n_scores + (size_t)i];
            score[i] = (struct ref_score){fmin(logit, 17), i % area * dim[1] + i / area};
            n_above += 1 / (1 + exp(-logit)) > (double)node->attr.detect.min_score;
        }
        qsort(score, (size_t)n_scores, sizeof *score, ref_by_score);
        for (int i = 0; i < 6 * max; i++)
            row[i] = 0;
        for (; n < n_above && n < max; n++)
            ref_row(row + 6 * n, r, node, image, &score[n]);
        ref_dst(r, node, DT_TOP_N)[image] = n;
    }
    free(score);
}

static const struct op_case top_detections_cases[] = {
    {1, 1, 1, 1, 0, 256, 4, 0, F_EVAL, 0.05},
    {2, 3, 5, 4, 0, 256, 8, 3, F_EVAL, 0.05},
    {2, 20, 13, 12, 0, 256, 4, 9, F_EVAL, 0.05},
    {1, 91, 12, 11, 0, 256, 8, 0, F_EVAL, 0.05},
    {3, 80, 6, 5, 0, 256, 4, 0, F_EVAL, 0.9996},
    {2, 80, 4, 5, 0, 256, 4, 0, F_EVAL, 0.5},
    /* Many equal scores; all; none; none and some. */
    {2, 20, 13, 12, 0, 4, 4, 0, F_EVAL, 0.05},
    {1, 20, 9, 9, 0, 1, 4, 0, F_EVAL, 0},
    {2, 3, 5, 4, 0, 1, 4, 0, F_EVAL, 0.05},
    {3, 1, 2, 2, 0, 64, 4, 0, F_EVAL, 0.9996},
};

OP_TEST(top_detections, build_top_detections, true)

static const struct op_test op_test_top_detections = {.whole = ref_top_detections,
                                                      .adjust = adjust_top_detections,
                                                      .bound = 2e-6,
                                                      .tests = {TEST_OF(top_detections)}};

#endif
