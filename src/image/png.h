/* PNG files to RGB pixels and back, where the build has libpng. Every kind of PNG becomes 8 bits,
 * RGB: of 16 bits the upper 8 are taken (as Pillow does for colours and OpenCV for all; Pillow's
 * conversion of 16-bit grey would clip it to white), fewer bits are spread over 0 .. 255, grey is
 * repeated, and transparency, also by a single colour, is composed on black. Gamma and colour
 * profiles are ignored, as in Pillow. */
#ifndef DTRAIN_IMAGE_PNG_H
#define DTRAIN_IMAGE_PNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

bool dt_png_is_known(void); /* whether this build knows PNG files */

/* Encodes height x width x 3 RGB pixels into a new block; free with free(). */
dt_status dt_png_encode(uint8_t **data, size_t *bytes, const uint8_t *pixels, int width,
                        int height);

#endif
