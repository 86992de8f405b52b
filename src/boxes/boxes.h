/* Boxes of the ground truth and boxes that a detector has found, as COCO's files have them: x and y
 * of the upper left corner, width and height, in pixels of the original image, in fp64 as written.
 */
#ifndef DTRAIN_BOXES_BOXES_H
#define DTRAIN_BOXES_BOXES_H

#include <stdbool.h>
#include <stdint.h>

struct dt_truth {
    double x, y, w, h;
    double area; /* of the object, from the file: it decides between small, medium and large */
    int64_t id;  /* of the annotation */
    int32_t label;
    bool is_crowd; /* a region with many objects: not trained on, and no detection in it is wrong */
};

/* Whether a detector is trained on it: something of it is in the image. */
static inline bool dt_truth_is_usable(const struct dt_truth *t, int width, int height)
{
    return !t->is_crowd && t->w > 0 && t->h > 0 && t->x < width && t->y < height &&
           t->x + t->w > 0 && t->y + t->h > 0;
}

struct dt_found {
    double x, y, w, h, score;
    uint32_t image; /* its index in the data set */
    int32_t label;
};

#endif
