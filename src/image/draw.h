/* Pictures for people: enlarged images and text on a plane of pixels, saved as PNG or JPEG. */
#ifndef DTRAIN_IMAGE_DRAW_H
#define DTRAIN_IMAGE_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dt_picture {
    uint8_t *pixels; /* height x width x 3, RGB */
    int width, height;
};

/* All pixels have the same grey; free `pixels` with free(). DT_ERR_USAGE above 2^27 pixels. */
dt_status dt_picture_create(struct dt_picture *picture, int width, int height, uint8_t grey);
/* Draws height x width x 3 pixels at x, y: every step-th of a row and of a column, as a square of
 * zoom x zoom. What is beyond an edge is cut off, here and below. */
void dt_draw_image(struct dt_picture *picture, int x, int y, const uint8_t *pixels, int width,
                   int height, int zoom, int step);
/* Pixels from one character to the next, and height of a character, at scale 1. */
enum { DT_TEXT_STEP = 6, DT_TEXT_HEIGHT = 8 };
/* Draws one line of text; what is not ASCII becomes a question mark. */
void dt_draw_text(struct dt_picture *picture, int x, int y, const char *text, int scale,
                  uint8_t grey);
/* The colour of a class, bright and unlike those of the labels before it. */
void dt_draw_colour(uint8_t rgb[3], int label);
/* A box of an object: a frame with an outline, so that it is seen on any ground, and its text on a
 * patch of the same colour, in black or white. */
struct dt_draw_box {
    double x1, y1, x2, y2; /* in the picture; what is beyond an edge is drawn at the edge */
    const char *text;      /* at the upper left corner; "" = none */
    bool below;            /* at the lower left one instead */
    int scale;             /* of the text; the frame is as thick as its strokes and one more */
    uint8_t rgb[3];
};
void dt_draw_box(struct dt_picture *picture, const struct dt_draw_box *box);
/* A scale of texts for a picture of that size. */
int dt_draw_scale(int width, int height);
/* DT_ERR_USAGE unless `path` ends in .jpg or .jpeg, or .png where the build has libpng. */
dt_status dt_picture_check(const char *path);
dt_status dt_picture_save(const struct dt_picture *picture, const char *path);

#endif
