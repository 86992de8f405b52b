/* Image files other than JPEG to RGB pixels: PNG, WebP, TIFF, GIF and BMP, of which all but the
 * last need a library each that the build may lack. The whole file is decoded; the result is a pure
 * function of its bytes, with 8 bits per colour. One object per thread.
 *
 * Colours are Pillow's, except that transparency is composited on black. Of 16 bits the upper 8 are
 * taken (of TIFF files with alpha, tiles or planes: rounded by libtiff). Of a GIF or TIFF file with
 * several images it is the first. Pixels are as stored: the orientation of a TIFF file is that of
 * exif.c. */
#ifndef DTRAIN_IMAGE_IMAGE_FILE_H
#define DTRAIN_IMAGE_IMAGE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dt_image_file;

struct dt_image_format {
    const char *name;      /* "a WebP file" */
    const char *suffix[2]; /* "webp"; NULL after the last one */
    const char *library;   /* Debian's package that the build needs to read it */
    const char *magic;     /* at `offset` of the file */
    size_t offset, magic_bytes;
    /* Sets width and height. NULL: this build cannot read such files. */
    dt_status (*header)(struct dt_image_file *picture);
    dt_status (*decode)(struct dt_image_file *picture); /* fills pixels */
};

struct dt_image_file {
    const struct dt_image_format *format;
    const uint8_t *data; /* the file, kept until it is decoded */
    size_t bytes;
    int width, height;
    uint8_t *pixels; /* [height][width][3] */
    size_t capacity;
    int peak;        /* the largest value in a file of 16 bits, else 0 */
    char reason[96]; /* of a library's error */
};

/* The format with that suffix, in any case, or that the file begins as; NULL: none of the table. */
const struct dt_image_format *dt_image_format_of_suffix(const char *suffix);
const struct dt_image_format *dt_image_format_of_data(const uint8_t *data, size_t bytes);
/* Reads the header. DT_ERR_DATA with the reason, which names no file. */
dt_status dt_image_file_open(struct dt_image_file *picture, const struct dt_image_format *format,
                             const uint8_t *data, size_t bytes);
/* Columns x .. x+w-1 of rows y .. y+h-1, inside the image, into out[h][w][3]; after
 * dt_image_file_open. Damage anywhere in the image is DT_ERR_DATA. */
dt_status dt_image_file_decode(struct dt_image_file *picture, uint8_t *out, int x, int y, int w,
                               int h);
void dt_image_file_reset(struct dt_image_file *picture);

/* One file each: png.c, tiff.c, gif.c, bmp.c, and image_file.c. */
dt_status dt_png_header(struct dt_image_file *picture);
dt_status dt_png_decode(struct dt_image_file *picture);
dt_status dt_tiff_header(struct dt_image_file *picture);
dt_status dt_tiff_decode(struct dt_image_file *picture);
dt_status dt_gif_header(struct dt_image_file *picture);
dt_status dt_gif_decode(struct dt_image_file *picture);
dt_status dt_bmp_header(struct dt_image_file *picture);
dt_status dt_bmp_decode(struct dt_image_file *picture);

/* For these: a colour composited on black. */
static inline uint8_t dt_on_black(unsigned colour, unsigned alpha)
{
    return (uint8_t)((colour * alpha + 127) / 255);
}

#endif
