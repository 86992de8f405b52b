/* Image files other than JPEG and PNG to RGB pixels: WebP, TIFF, GIF and BMP, of which the first
 * three need a library each that the build may lack. The whole file is decoded; the result is a
 * pure function of its bytes, with 8 bits per colour. One object per thread.
 *
 * Colours are Pillow's, except that transparency is composited on black, as in PNG files (png.h).
 * Of 16 bits the upper 8 are taken. Of a GIF or TIFF file with several images it is the first.
 * Pixels are as stored: the orientation of a TIFF file is that of exif.c. */
#ifndef DTRAIN_IMAGE_PICTURE_H
#define DTRAIN_IMAGE_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dt_picture;

struct dt_picture_format {
    const char *name;      /* "a WebP file" */
    const char *suffix[2]; /* "webp"; NULL after the last one */
    const char *library;   /* Debian's package that the build needs to read it */
    const char *magic;     /* at `offset` of the file */
    size_t offset, magic_bytes;
    /* Sets width and height. NULL: this build cannot read such files. */
    dt_status (*header)(struct dt_picture *picture);
    dt_status (*decode)(struct dt_picture *picture); /* fills pixels */
};

struct dt_picture {
    const struct dt_picture_format *format;
    const uint8_t *data; /* the file, kept until it is decoded */
    size_t bytes;
    int width, height;
    uint8_t *pixels; /* [height][width][3] */
    size_t capacity;
    int peak;        /* as dt_png_peak */
    char reason[96]; /* of a library's error */
};

/* The format with that suffix, in any case, or that the file begins as; NULL: none of the table. */
const struct dt_picture_format *dt_picture_of_suffix(const char *suffix);
const struct dt_picture_format *dt_picture_of_data(const uint8_t *data, size_t bytes);
/* Reads the header. DT_ERR_DATA with the reason, which names no file. */
dt_status dt_picture_open(struct dt_picture *picture, const struct dt_picture_format *format,
                          const uint8_t *data, size_t bytes);
/* Columns x .. x+w-1 of rows y .. y+h-1, inside the image, into out[h][w][3]; after
 * dt_picture_open. Damage anywhere in the image is DT_ERR_DATA. */
dt_status dt_picture_decode(struct dt_picture *picture, uint8_t *out, int x, int y, int w, int h);
void dt_picture_reset(struct dt_picture *picture);

/* One file each: picture_tiff.c, picture_gif.c, picture_bmp.c, and picture.c. */
dt_status dt_tiff_header(struct dt_picture *picture);
dt_status dt_tiff_decode(struct dt_picture *picture);
dt_status dt_gif_header(struct dt_picture *picture);
dt_status dt_gif_decode(struct dt_picture *picture);
dt_status dt_bmp_header(struct dt_picture *picture);
dt_status dt_bmp_decode(struct dt_picture *picture);

/* For these: a colour composited on black. */
static inline uint8_t dt_on_black(unsigned colour, unsigned alpha)
{
    return (uint8_t)((colour * alpha + 127) / 255);
}

#endif
