/* JPEG files to RGB pixels and back. One decoder object per thread; the result is a pure function
 * of the bytes of the file, the options, the scale and the rectangle asked for. Limits: file 50 MB,
 * 8 bits, Huffman coding, 1, 3 or 4 components, 2000 M pixels, 800 MB of working memory, 100 scans,
 * 2000 M pixels times scans (2 to 4 s; a limit in seconds would make the list of bad files depend
 * on the machine). Grey, CMYK and YCCK become RGB. */
#ifndef DTRAIN_IMAGE_JPEG_H
#define DTRAIN_IMAGE_JPEG_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "dtrain/config.h"

/* How JPEG files are decoded. Upsampling fancy and DCT accurate without scaling give the pixels of
 * a full decode by libjpeg's defaults, as in Pillow and torchvision. The others, over 240 ImageNet
 * photos (500 x 375; 58 with reduced chroma) with libjpeg-turbo 2.1.5 on AVX2; differences of 255:
 *   upsampling plain  mean 0.15, worst photo 1.9, pixel 69; 3 to 5 % faster (32 x 32: 19 % slower,
 *                     because libjpeg builds tables for it)
 *   dct fast          mean 1.2, worst photo 2.2, pixel 22; 0 to 4 % faster
 *   scaled_decode     of rows that are scaled, after the resize: mean 1.6, worst photo 8.2, pixel
 *                     76 (tested: 2, 10, 90); others are equal. Few crops of such photos are large
 *                     enough at 224: 1 to 3 % faster */
struct dt_jpeg;
/* Takes upsampling and DCT from `data`; NULL: fancy and accurate. */
dt_status dt_jpeg_create(struct dt_jpeg **jpeg, const struct dt_config_data *data);
void dt_jpeg_destroy(struct dt_jpeg *jpeg); /* accepts NULL */

/* Reads the header. `data` is kept until dt_jpeg_decode or the next dt_jpeg_open. DT_ERR_DATA with
 * the reason (which names no file: the caller knows it) if this is not an acceptable JPEG file. */
dt_status dt_jpeg_open(struct dt_jpeg *jpeg, int *width, int *height, const uint8_t *data,
                       size_t bytes);
/* Between open and decode: colour components of the file; 1 is grey, 4 is CMYK or YCCK. */
int dt_jpeg_components(const struct dt_jpeg *jpeg);
/* Between open and decode: reduces the image to 1/denominator (1, 2, 4 or 8) of its size, rounded
 * up, by inverse DCTs of fewer coefficients; sets *width and *height to the new size. */
void dt_jpeg_scale(struct dt_jpeg *jpeg, int *width, int *height, int denominator);
/* Decodes columns x .. x+w-1 of rows y .. y+h-1, inside the (scaled) image, into out[h][w][3], RGB:
 * the same pixels as in a decode of the whole image. Call it once after dt_jpeg_open. Any damage up
 * to the last requested row, and a missing end marker wherever the file was cut, is DT_ERR_DATA;
 * the entropy-coded data of the rows below is not checked in a sequential file. Defects that
 * libjpeg merely notes (junk before a marker, an odd JFIF, Adobe or ICC header) are accepted. */
dt_status dt_jpeg_decode(struct dt_jpeg *jpeg, uint8_t *out, int x, int y, int w, int h);
/* For measuring, instead of dt_jpeg_decode: decodes the entropy-coded data of rows y .. y+h-1 and
 * of those above, with the same errors, but makes the pixels of a few columns only. */
dt_status dt_jpeg_skim(struct dt_jpeg *jpeg, int y, int h);

/* Encodes height x width x 3 RGB pixels as a baseline JPEG with 4:2:0 chroma into a new block; free
 * with free(). Quality 1 to 100; orientation 2 to 8 is noted as EXIF data, 1 is not. */
dt_status dt_jpeg_encode(uint8_t **data, size_t *bytes, const uint8_t *pixels, int width,
                         int height, int quality, int orientation);

#endif
