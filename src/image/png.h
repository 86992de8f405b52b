/* PNG files to RGB pixels and back, where the build has libpng. One decoder object per thread; the
 * result is a pure function of the bytes of the file. Every kind of PNG becomes 8 bits, RGB: of 16
 * bits the upper 8 are taken (as Pillow does for colours and OpenCV for all; Pillow's conversion of
 * 16-bit grey would clip it to white), fewer bits are spread over 0 .. 255, grey is repeated, and
 * transparency, also by a single colour, is composed on black. Gamma and colour profiles are
 * ignored, as in Pillow. */
#ifndef DTRAIN_IMAGE_PNG_H
#define DTRAIN_IMAGE_PNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

bool dt_png_is_known(void); /* whether this build knows PNG files */
bool dt_png_found(const uint8_t *data, size_t bytes);

struct dt_png;
dt_status dt_png_create(struct dt_png **png);
void dt_png_destroy(struct dt_png *png); /* accepts NULL */
/* Reads the header. `data` is kept until dt_png_decode or the next dt_png_open. DT_ERR_DATA with
 * the reason, which names no file; always without libpng. */
dt_status dt_png_open(struct dt_png *png, int *width, int *height, const uint8_t *data,
                      size_t bytes);
/* After dt_png_decode: the largest value of a colour in a file of 16 bits; 0 for other files. */
int dt_png_peak(const struct dt_png *png);
/* Columns x .. x+w-1 of rows y .. y+h-1, inside the image, into out[h][w][3], RGB. Call it once
 * after dt_png_open. The whole file is decoded, and damage anywhere is DT_ERR_DATA. */
dt_status dt_png_decode(struct dt_png *png, uint8_t *out, int x, int y, int w, int h);
/* Encodes height x width x 3 RGB pixels into a new block; free with free(). */
dt_status dt_png_encode(uint8_t **data, size_t *bytes, const uint8_t *pixels, int width,
                        int height);

#endif
