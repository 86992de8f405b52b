/* PNG files to RGB, where the build has libpng. */
#ifndef DTRAIN_IMAGE_PNG_H
#define DTRAIN_IMAGE_PNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

bool dt_png_is_known(void); /* whether this build decodes them */
bool dt_png_found(const uint8_t *data, size_t bytes);
/* pixels[height][width][3] in a block of the caller's that is grown as needed. Transparency is
 * dropped, as Pillow's convert("RGB") does. Limit: 100 M pixels. DT_ERR_DATA with the reason (which
 * names no file); without libpng always. */
dt_status dt_png_decode(uint8_t **pixels, size_t *capacity, int *width, int *height,
                        const uint8_t *data, size_t bytes);

#endif
