/* `dtrain shard` converts one image: it checks that the image is usable, and re-encodes it as
 * an RGB JPEG file if it is not one already or is to be reduced. One object per thread; the result
 * is a pure function of the bytes and the options. */
#ifndef DTRAIN_IMAGE_CONVERT_H
#define DTRAIN_IMAGE_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "image/decode.h"

/* Smallest and largest resize_short. */
enum { DT_MIN_RESIZE_SHORT = 32, DT_MAX_RESIZE_SHORT = 4096 };

enum dt_conversion { DT_KEPT, DT_CONVERTED, DT_REDUCED, DT_N_CONVERSIONS };

struct dt_convert;
/* Images whose shorter side exceeds `resize_short` are reduced to it (0 = never); `quality`, 1 ..
 * 100, applies to files that are re-encoded; keeps_png: PNG files are not, unless they are reduced
 * or turned; `data` as for dt_decoder_create. */
dt_status dt_convert_create(struct dt_convert **convert, int resize_short, int quality,
                            bool keeps_png, const struct dt_config_data *data);
void dt_convert_destroy(struct dt_convert *convert); /* accepts NULL */

/* Decodes the whole file data[0 .. bytes). *out is `data` or belongs to `convert` and is valid
 * until the next call. CMYK and YCCK files and those of other formats become RGB JPEG files. Where
 * an image is reduced, the longer side is scaled in proportion and rounded down (torchvision's
 * Resize). Re-encoding drops EXIF data except the orientation. DT_ERR_DATA with the reason, which
 * names no file. */
dt_status dt_convert_run(struct dt_convert *convert, enum dt_conversion *done, const uint8_t **out,
                         size_t *out_bytes, const uint8_t *data, size_t bytes);
/* Has decoded the image that dt_convert_run was last called with. */
const struct dt_decoder *dt_convert_decoder(const struct dt_convert *convert);

#endif
