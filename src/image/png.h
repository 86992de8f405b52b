/* PNG files to RGB, where the build has libpng. */
#ifndef DTRAIN_IMAGE_PNG_H
#define DTRAIN_IMAGE_PNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

bool dt_png_is_known(void); /* whether this build decodes PNG files */
bool dt_png_found(const uint8_t *data, size_t bytes);
/* pixels[height][width][3] in the caller's block, which is grown as needed. Transparency is
 * dropped, as by Pillow's convert("RGB"). Limit: 100 M pixels. DT_ERR_DATA with the reason (which
 * names no file); always fails without libpng. */
dt_status dt_png_decode(uint8_t **pixels, size_t *capacity, int *width, int *height,
                        const uint8_t *data, size_t bytes);

#endif
