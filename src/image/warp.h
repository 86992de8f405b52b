/* Affine resampling of an image in place of itself: bilinear, edges repeated. In integers, so the
 * same bits on every machine. */
#ifndef DTRAIN_IMAGE_WARP_H
#define DTRAIN_IMAGE_WARP_H

#include <stddef.h>
#include <stdint.h>

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
