/* The levels of anchors as loops and kernels go through them, and the loss of one box: shared by
 * the CPU backend and the CUDA kernels. Plain C that nvcc compiles too. */
#ifndef DTRAIN_BOX_H
#define DTRAIN_BOX_H

#include <stdint.h>

#include "dtrain/anchors.h"

#ifdef __CUDACC__
#define DT_BOX_FUNCTION static __host__ __device__ inline
#else
#define DT_BOX_FUNCTION static inline
#endif

struct dt_level {
    int height, width, first; /* first: number of its first anchor */
    int stride[2];            /* in y and x */
    float cell[DT_CELL_ANCHORS][4];
};

static inline struct dt_level dt_level_of(const struct dt_anchors *a, int level)
{
    struct dt_level l;
    l.height = a->height[level];
    l.width = a->width[level];
    l.first = dt_anchors_before(a, level);
    dt_anchor_stride(l.stride, a, level);
    dt_anchor_cell(l.cell, a, level);
    return l;
}

/* Anchor i of its level. */
DT_BOX_FUNCTION void dt_level_anchor(float anchor[4], const struct dt_level *level, int i)
{
    const int place = i / DT_CELL_ANCHORS;
    const float *cell = level->cell[i % DT_CELL_ANCHORS];
    const float y = (float)(place / level->width * level->stride[0]);
    const float x = (float)(place % level->width * level->stride[1]);
    anchor[0] = cell[0] + x;
    anchor[1] = cell[1] + y;
    anchor[2] = cell[2] + x;
    anchor[3] = cell[3] + y;
}

/* --- The loss of a predicted box against `box`, and its gradient by the four deltas dx dy dw dh:
 * torchvision's _box_loss (models/detection/_utils.py) with its BoxCoder, weights of 1. --- */

#define DT_BOX_MAX_STRETCH 4.135166556742356 /* ln(1000 / 16): dw and dh when decoded */
#define DT_BOX_EPS         1e-7

/* One axis of an anchor, of the decoded box and of `box`. by_low and by_high are derivatives of
 * their intersection and of what encloses both; where two borders are equal, both get half. */
struct dt_axis {
    double anchor, size; /* sizes */
    double common, whole;
    double common_by_low, common_by_high, whole_by_low, whole_by_high;
};

DT_BOX_FUNCTION double dt_share_above(double a, double b)
{
    return a > b ? 1 : a == b ? 0.5 : 0;
}

DT_BOX_FUNCTION struct dt_axis dt_axis_of(double shift, double stretch, double anchor_low,
                                          double anchor_high, double box_low, double box_high)
{
    struct dt_axis a;
    a.anchor = anchor_high - anchor_low;
    a.size = exp(stretch > DT_BOX_MAX_STRETCH ? DT_BOX_MAX_STRETCH : stretch) * a.anchor;
    const double centre = shift * a.anchor + anchor_low + 0.5 * a.anchor;
    const double low = centre - 0.5 * a.size, high = centre + 0.5 * a.size;
    a.common = (high < box_high ? high : box_high) - (low > box_low ? low : box_low);
    a.whole = (high > box_high ? high : box_high) - (low < box_low ? low : box_low);
    a.common_by_low = -dt_share_above(low, box_low);
    a.common_by_high = dt_share_above(box_high, high);
    a.whole_by_low = -dt_share_above(box_low, low);
    a.whole_by_high = dt_share_above(high, box_high);
    return a;
}

/* Generalised IoU (Rezatofighi et al. 2019): with I the intersection, U the union and C what
 * encloses both, the loss is 1 - I / U + (C - U) / C. */
DT_BOX_FUNCTION double dt_box_giou(double diff[4], const float delta[4], const float anchor[4],
                                   const float box[4])
{
    struct dt_axis axis[2];
    for (int k = 0; k < 2; k++)
        axis[k] = dt_axis_of((double)delta[k], (double)delta[2 + k], (double)anchor[k],
                             (double)anchor[2 + k], (double)box[k], (double)box[2 + k]);
    const bool meet = axis[0].common > 0 && axis[1].common > 0;
    const double inter = meet ? axis[0].common * axis[1].common : 0;
    const double area = ((double)box[2] - (double)box[0]) * ((double)box[3] - (double)box[1]);
    const double all = axis[0].size * axis[1].size + area - inter + DT_BOX_EPS;
    const double whole = axis[0].whole * axis[1].whole + DT_BOX_EPS;
    const double by_all = inter / (all * all) - 1 / whole, by_whole = all / (whole * whole);
    const double by_inter = meet ? -1 / all - by_all : 0;
    for (int k = 0; k < 2; k++) {
        const struct dt_axis a = axis[k], other = axis[1 - k];
        const double common = by_inter * other.common, outer = by_whole * other.whole;
        const double low = common * a.common_by_low - by_all * other.size + outer * a.whole_by_low;
        const double high =
            common * a.common_by_high + by_all * other.size + outer * a.whole_by_high;
        diff[k] = a.anchor * (low + high);
        diff[2 + k] = (double)delta[2 + k] > DT_BOX_MAX_STRETCH ? 0 : 0.5 * a.size * (high - low);
    }
    return 1 - inter / all + (whole - all) / whole;
}

/* The target of the deltas: the box relative to the anchor. */
DT_BOX_FUNCTION void dt_box_encode(double target[4], const float anchor[4], const float box[4])
{
    for (int k = 0; k < 2; k++) {
        const double size = (double)anchor[2 + k] - (double)anchor[k];
        const double box_size = (double)box[2 + k] - (double)box[k];
        const double move = (double)box[k] - (double)anchor[k] + 0.5 * (box_size - size);
        target[k] = move / size;
        target[2 + k] = log(box_size / size);
    }
}

/* smooth_l1 is quadratic below beta; with beta 0 it is l1. */
DT_BOX_FUNCTION double dt_box_distance(double diff[4], const float delta[4], const float anchor[4],
                                       const float box[4], double beta)
{
    double target[4], loss = 0;
    dt_box_encode(target, anchor, box);
    for (int k = 0; k < 4; k++) {
        const double d = (double)delta[k] - target[k], size = fabs(d);
        loss += size < beta ? 0.5 * d * d / beta : size - 0.5 * beta;
        diff[k] = size < beta ? d / beta : d > 0 ? 1 : d < 0 ? -1 : 0;
    }
    return loss;
}

DT_BOX_FUNCTION double dt_box_loss_of(double diff[4], const float delta[4], const float anchor[4],
                                      const float box[4], enum dt_box_loss kind, float beta)
{
    if (kind == DT_BOX_GIOU)
        return dt_box_giou(diff, delta, anchor, box);
    return dt_box_distance(diff, delta, anchor, box, kind == DT_BOX_L1 ? 0 : (double)beta);
}

/* --- Detections --- */

DT_BOX_FUNCTION float dt_box_score(float logit)
{
    return 1 / (1 + expf(-logit));
}

/* Every logit below this one has a smaller score, whatever is rounded. */
static inline float dt_box_logit_below(float score)
{
    const double min = (double)score * (1 - 1e-5);
    return (float)log(min / (1 - min));
}

DT_BOX_FUNCTION float dt_box_clip(float value, float max)
{
    return value < 0 ? 0 : value > max ? max : value;
}

/* torchvision's BoxCoder with weights of 1, in fp32, and clipped to size: height and width. */
DT_BOX_FUNCTION void dt_box_decode(float box[4], const float delta[4], const float anchor[4],
                                   const int32_t size[2])
{
    for (int k = 0; k < 2; k++) {
        const float side = anchor[2 + k] - anchor[k], max = (float)size[1 - k];
        const float longest = (float)DT_BOX_MAX_STRETCH;
        const float stretch = delta[2 + k] > longest ? longest : delta[2 + k];
        const float centre = delta[k] * side + (anchor[k] + 0.5f * side);
        const float half = 0.5f * (expf(stretch) * side);
        box[k] = dt_box_clip(centre - half, max);
        box[2 + k] = dt_box_clip(centre + half, max);
    }
}

#endif
