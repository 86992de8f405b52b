/* JPEG encoding, for generated data and for files that `dtrain shard` re-encodes. */
#ifndef DTRAIN_IMAGE_JPEG_ENCODE_H
#define DTRAIN_IMAGE_JPEG_ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Encodes height x width x 3 RGB pixels as a baseline JPEG with 4:2:0 chroma into a new block; free
 * with free(). Quality 1 to 100. */
dt_status dt_jpeg_encode(uint8_t **data, size_t *bytes, const uint8_t *pixels, int width,
                         int height, int quality);

#endif
