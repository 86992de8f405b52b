/* Anchors of a RetinaNet (Lin et al. 2017, "Focal Loss for Dense Object Detection"), as torchvision
 * makes them, and what the ops of a detector have to know.
 *
 * A level of the pyramid has DT_CELL_ANCHORS anchors at every place of its grid. Anchor a of place
 * (y, x) is number (y * width + x) * DT_CELL_ANCHORS + a of its level; a network has the
 * anchors of its levels, one level after the other. Boxes are x1 y1 x2 y2 in pixels of the canvas:
 * the frame of fixed size, with the image in its upper left corner. */
#ifndef DTRAIN_ANCHORS_H
#define DTRAIN_ANCHORS_H

#include <math.h>
#include <stdbool.h>

enum { DT_MAX_LEVELS = 5, DT_CELL_ANCHORS = 9 };

struct dt_anchors {
    int n_levels, height[DT_MAX_LEVELS], width[DT_MAX_LEVELS];
    int canvas_height, canvas_width;
    int base; /* side of the smallest anchor of level 0; each level doubles it */
};

enum dt_box_loss { DT_BOX_L1, DT_BOX_SMOOTH_L1, DT_BOX_GIOU };

/* Attributes of match, focal_loss, box_loss and top_detections. */
struct dt_detect {
    struct dt_anchors anchors;
    int level;   /* all but match */
    bool global; /* losses are not divided by the foreground anchors of each image */
    float background, foreground; /* match: IoU below which, and from which on */
    bool low_quality;             /* match: also the best anchors of every box */
    float alpha, gamma;           /* focal_loss */
    enum dt_box_loss kind;        /* box_loss */
    float beta;                   /* box_loss: where smooth_l1 becomes linear */
    float min_score;              /* top_detections: only scores above it */
};

/* Anchors of a level. */
static inline int dt_anchors_of_level(const struct dt_anchors *a, int level)
{
    return a->height[level] * a->width[level] * DT_CELL_ANCHORS;
}

/* The number of anchors in the levels before `level`: the index of its first; n_levels gives the
 * total. */
static inline int dt_anchors_before(const struct dt_anchors *a, int level)
{
    int before = 0;
    for (int i = 0; i < level; i++)
        before += dt_anchors_of_level(a, i);
    return before;
}

/* The distance of neighbouring places: torchvision's whole-number quotient, which is not always a
 * power of two (a canvas 800 high has 7 rows in the last level, 114 apart). */
static inline void dt_anchor_stride(int stride[2], const struct dt_anchors *a, int level)
{
    stride[0] = a->canvas_height / a->height[level];
    stride[1] = a->canvas_width / a->width[level];
}

/* The anchors around the origin: areas of (base 2^level 2^(0, 1/3, 2/3))^2, ratios of height to
 * width of 1/2, 1 and 2, sides cut and corners rounded to whole pixels. Anchor a of place (y, x) is
 * cell[a] moved by x and y strides: all are whole numbers. */
static inline void dt_anchor_cell(float cell[DT_CELL_ANCHORS][4], const struct dt_anchors *a,
                                  int level)
{
    for (int i = 0; i < DT_CELL_ANCHORS; i++) {
        const float size = (float)(int)((a->base << level) * pow(2.0, i % 3 / 3.0));
        const float tall = sqrtf(0.5f * (float)(1 << i / 3)), wide = 1 / tall;
        const float half_width = rintf(wide * size / 2), half_height = rintf(tall * size / 2);
        cell[i][0] = -half_width;
        cell[i][1] = -half_height;
        cell[i][2] = half_width;
        cell[i][3] = half_height;
    }
}

#endif
