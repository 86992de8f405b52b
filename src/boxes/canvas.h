/* Places the image of a detector on its canvas, and its boxes with it. Pure functions: of the
 * size that the annotations give, the configuration and, in training, (seed, epoch, sample id).
 *
 * An image is resized, flipped, then warped in the place it has got, the upper left corner of its
 * canvas. Sizes follow torchvision's GeneralizedRCNNTransform (_resize_image_and_masks), to the
 * pixel: with r = min(min_side / shorter side, max_side / longer side), sides are floor(side * r).
 * An image that does not fit on the canvas is scaled down until it does; without min_side and
 * max_side the image is as large as the canvas allows. The warp is keras-retinanet's
 * random_transform (its utils/transform.py) around the centre of the image: scale, then shear, move
 * and rotate. */
#ifndef DTRAIN_BOXES_CANVAS_H
#define DTRAIN_BOXES_CANVAS_H

#include "boxes/boxes.h"
#include "dtrain/config.h"
#include "image/resize.h"

/* The canvases of a loader, at least one; the section `data` has the keys. */
struct dt_layout {
    const struct dt_config_data *data;
    struct dt_canvases canvases;
};

struct dt_on_canvas {
    int canvas;                    /* its index */
    int image_width, image_height; /* before */
    int width, height;             /* on the canvas */
    bool flip;
    bool is_warped;
    struct dt_warp warp; /* of the resized and flipped image */
};

/* The canvas on which an image is largest at its full size, of equal ones the smallest; with
 * data.stretch that which changes its proportions least. */
int dt_canvas_choose(const struct dt_layout *layout, int width, int height);
/* Whether a canvas holds the image at the size that min_side and max_side ask for. */
bool dt_canvas_fits(const struct dt_layout *layout, int width, int height);
/* As in evaluation: full size, neither flipped nor warped. */
void dt_canvas_plain(struct dt_on_canvas *placement, const struct dt_layout *layout, int width,
                     int height);
/* As in training. What is off does not change the draws of the rest. */
void dt_canvas_draw(struct dt_on_canvas *placement, const struct dt_layout *layout, uint64_t seed,
                    uint32_t epoch, uint32_t id, int width, int height);
/* x1 y1 x2 y2 of a box on the canvas, clipped to the image there: of a warped one the bounds of its
 * corners. False if nothing is left of it. */
bool dt_on_canvas_box(float box[4], const struct dt_on_canvas *placement,
                      const struct dt_truth *truth);

#endif
