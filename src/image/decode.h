/* Image files to RGB pixels, of whichever format their first bytes are: JPEG (jpeg.h) or
 * one of image_file.h. With data.exif apply, all sizes and places are those of the picture upright.
 * One decoder object per thread. */
#ifndef DTRAIN_IMAGE_DECODE_H
#define DTRAIN_IMAGE_DECODE_H

#include <stdint.h>

#include "base/status.h"
#include "image/crop.h"
#include "image/jpeg.h"

struct dt_decoder;
/* `data`: as for dt_jpeg_create, and exif; NULL: it is ignored. */
dt_status dt_decoder_create(struct dt_decoder **decoder, const struct dt_config_data *data);
void dt_decoder_destroy(struct dt_decoder *decoder); /* accepts NULL */
/* As dt_jpeg_open. */
dt_status dt_decoder_open(struct dt_decoder *decoder, int *width, int *height, const uint8_t *data,
                          size_t bytes);
/* The decoder of the open image, for dt_jpeg_components; NULL if it is no JPEG. */
struct dt_jpeg *dt_decoder_jpeg(const struct dt_decoder *decoder);
/* As dt_jpeg_scale, or by a larger divisor if the image exceeds max_pixels; scales *crop, of the
 * whole image, too. Does nothing to files of other formats. */
void dt_decoder_scale(struct dt_decoder *decoder, struct dt_crop *crop, int *width, int *height,
                      int denominator);
/* As dt_jpeg_decode. */
dt_status dt_decoder_decode(struct dt_decoder *decoder, uint8_t *out, int x, int y, int w, int h);
/* As dt_jpeg_skim; decodes all of a file of another format. */
dt_status dt_decoder_skim(struct dt_decoder *decoder, int y, int h);
/* DT_ERR_DATA unless the open image has the size that its annotations give. */
dt_status dt_decoder_expect(const struct dt_decoder *decoder, int width, int height);
/* dt_exif_orientation of the image opened last; the largest value in a file of 16 bits that was
 * decoded last, else 0. */
int dt_decoder_orientation(const struct dt_decoder *decoder);
int dt_decoder_peak(const struct dt_decoder *decoder);

/* exif.c: the orientation that a photo's EXIF data, or the tag of a TIFF file, give to its pixels,
 * 1 to 8; 1, as stored, if a JPEG or PNG file says nothing before its pixels, and for WebP. */
int dt_exif_orientation(const uint8_t *data, size_t bytes);

#endif
