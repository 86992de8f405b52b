/* Resizes a rectangle of an image to out_width x out_height pixels as Pillow's BILINEAR filter with
 * antialiasing does, but with taps of 14 bits instead of 22. For the same input pixels no value
 * differs by more than 2 of 255 (photos: 2 of 1000 by 1, one in 10 million by 2). The result has
 * the same bits on every CPU. One object per thread; tables and buffers are reused. */
#ifndef DTRAIN_IMAGE_RESIZE_H
#define DTRAIN_IMAGE_RESIZE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "image/crop.h"

/* Which pixels the filter may look at near the edges of the crop: those of the crop only (crop,
 * then resize: training), or all of the image (resize, then crop: evaluation). */
enum dt_resize_edge { DT_RESIZE_CROP, DT_RESIZE_IMAGE };

/* Bytes after the pixels that dt_resize_run may read but does not use. */
enum { DT_RESIZE_PAD = 16 };

struct dt_rect {
    int x, y, w, h;
};

struct dt_resize;
dt_status dt_resize_create(struct dt_resize **resize);
void dt_resize_destroy(struct dt_resize *resize); /* accepts NULL */

/* Builds the filter tables for `crop` of a width x height image and sets *need to the part of the
 * image that dt_resize_run will read: inside the image, empty if the crop is entirely outside it.
 */
dt_status dt_resize_prepare(struct dt_resize *resize, struct dt_rect *need,
                            const struct dt_crop *crop, enum dt_resize_edge edge, int width,
                            int height, int out_width, int out_height);
/* dst[out_height][out_width][3] from pixels[need.h][need.w][3], a buffer with DT_RESIZE_PAD extra
 * bytes; pixels outside the image are black. */
void dt_resize_run(struct dt_resize *resize, uint8_t *dst, const uint8_t *pixels);
/* The same, with rows of `pitch` bytes, of which it writes the first 3 * out_width. */
void dt_resize_run_into(struct dt_resize *resize, uint8_t *dst, size_t pitch,
                        const uint8_t *pixels);

/* --- warp.c: affine resampling of an image in place of itself: bilinear, edges repeated. In
 * integers, so the same bits on every machine --- */

/* x' = to[0] x + to[1] y + to[2], y' = to[3] x + to[4] y + to[5], and the way back. Pixel i covers
 * i .. i + 1. */
struct dt_warp {
    double to[6], from[6];
};

/* Rounds the six numbers of `to` to multiples of 2^-24, so that the last bits of sine and cosine,
 * which differ between machines, do not matter, and inverts them. The linear part must not be
 * singular. */
void dt_warp_set(struct dt_warp *warp, const double to[6]);
/* dst[height][dst_pitch bytes] = the warped image of src[height][width][3]. */
void dt_warp_run(const struct dt_warp *warp, uint8_t *dst, size_t dst_pitch, const uint8_t *src,
                 int width, int height);

#endif
