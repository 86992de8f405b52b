/* What `dtrain shard` does to one image: looks whether it can be used, and makes a JPEG file with
 * RGB colours of it where it is none or is to be smaller. One object per thread; the result is a
 * pure function of the bytes and of the options. */
#ifndef DTRAIN_IMAGE_CONVERT_H
#define DTRAIN_IMAGE_CONVERT_H

#include "data/dataset.h"

enum dt_conversion { DT_KEPT, DT_CONVERTED, DT_REDUCED, DT_N_CONVERSIONS };

struct dt_convert;
/* `options` is kept: resize_short and quality. */
dt_status dt_convert_create(struct dt_convert **convert, const struct dt_shard_options *options);
void dt_convert_destroy(struct dt_convert *convert); /* accepts NULL */

/* Decodes the whole file. *data is `sample`'s or belongs to `convert` and is valid until the next
 * call. PNG, CMYK and YCCK files become JPEG files; with resize_short, images whose shorter side is
 * larger are reduced to it, the longer side in proportion and rounded down (torchvision's Resize).
 * EXIF data, an orientation in them too, are lost where a file is encoded anew. DT_ERR_DATA with
 * the reason, which names no file. */
dt_status dt_convert_run(struct dt_convert *convert, enum dt_conversion *done, const uint8_t **data,
                         size_t *bytes, const struct dt_sample *sample);

#endif
