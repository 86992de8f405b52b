/* The only user of libpng. Like libjpeg it reports errors through a callback that must not return,
 * so each operation runs under one setjmp (run_guarded) and fails through longjmp. */
#include "image/png.h"

#include <stdlib.h>
#include <string.h>

#ifdef DTRAIN_HAVE_PNG
#include <setjmp.h>

#include <png.h>
#endif

#include "base/mem.h"
#include "image/image_file.h"

#ifdef DTRAIN_HAVE_PNG

struct reading {
    struct dt_image_file *picture;
    png_structp reader;
    png_infop info;
    jmp_buf escape;
    size_t at;              /* bytes that have been read */
    int channels, n_passes; /* RGB or RGBA; interlaced files have several passes */
    int value_bytes;        /* 1 or 2, big endian */
    uint8_t *lines;         /* one, or all of an interlaced file */
};

bool dt_png_is_known(void)
{
    return true;
}

static _Noreturn void on_error(png_structp reader, const char *text)
{
    struct reading *png = png_get_error_ptr(reader);
    (void)DT_ERROR(DT_ERR_DATA, "damaged PNG file: %s", text);
    longjmp(png->escape, 1);
}

static void on_warning(png_structp reader, const char *text)
{
    (void)reader, (void)text;
}

/* The only target of longjmp; no local variable is live across it. */
static dt_status run_guarded(struct reading *png, void (*work)(struct reading *png))
{
    if (setjmp(png->escape))
        return DT_ERR_DATA;
    work(png);
    return DT_OK;
}

static void read_bytes(png_structp reader, png_bytep out, size_t bytes)
{
    struct reading *png = png_get_io_ptr(reader);
    if (bytes > png->picture->bytes - png->at)
        png_error(reader, "premature end");
    memcpy(out, png->picture->data + png->at, bytes);
    png->at += bytes;
}

static void read_header(struct reading *png)
{
    png_structp reader = png->reader;
    png_set_read_fn(reader, png, read_bytes);
    png_read_info(reader, png->info);
    png_set_expand(reader);
    png_set_gray_to_rgb(reader);
    png->n_passes = png_set_interlace_handling(reader);
    png_read_update_info(reader, png->info);
    png->picture->width = (int)png_get_image_width(reader, png->info);
    png->picture->height = (int)png_get_image_height(reader, png->info);
    png->channels = png_get_channels(reader, png->info);
    png->value_bytes = png_get_bit_depth(reader, png->info) / 8;
}

static size_t line_bytes(const struct reading *png)
{
    return (size_t)png->picture->width * (size_t)(png->channels * png->value_bytes);
}

static void put_row(const struct reading *png, const uint8_t *line, int row)
{
    struct dt_image_file *picture = png->picture;
    const int step = png->value_bytes, pixel = step * png->channels, width = picture->width;
    uint8_t *out = picture->pixels + (ptrdiff_t)row * width * 3;
    if (pixel == 3) {
        memcpy(out, line, (size_t)width * 3);
        return;
    }
    for (int i = 0; i < width; i++, line += pixel, out += 3)
        for (int c = 0; c < 3; c++) {
            const int value = step == 2 ? line[c * 2] << 8 | line[c * 2 + 1] : 0;
            picture->peak = value > picture->peak ? value : picture->peak;
            out[c] =
                png->channels == 3 ? line[c * step] : dt_on_black(line[c * step], line[3 * step]);
        }
}

static void read_rows(struct reading *png)
{
    for (int pass = 1; pass <= png->n_passes; pass++)
        for (int row = 0; row < png->picture->height; row++) {
            uint8_t *line = png->lines + (png->n_passes > 1 ? (size_t)row * line_bytes(png) : 0);
            png_read_row(png->reader, line, NULL);
            if (pass == png->n_passes)
                put_row(png, line, row);
        }
    png_read_end(png->reader, NULL);
}

static dt_status read_picture(struct dt_image_file *picture, bool has_pixels)
{
    struct reading png = {.picture = picture};
    dt_status status = DT_OK;
    png.reader = png_create_read_struct(PNG_LIBPNG_VER_STRING, &png, on_error, on_warning);
    png.info = png.reader ? png_create_info_struct(png.reader) : NULL;
    if (!png.info)
        DT_TRY_OUT(DT_ERROR(DT_ERR_MEMORY, "out of memory: cannot create a PNG decoder"));
    DT_TRY_OUT(run_guarded(&png, read_header));
    if (has_pixels) {
        const size_t n_lines = png.n_passes > 1 ? (size_t)picture->height : 1;
        DT_TRY_OUT(DT_NEW(png.lines, n_lines * line_bytes(&png)));
        DT_TRY_OUT(run_guarded(&png, read_rows));
    }
out:
    png_destroy_read_struct(&png.reader, &png.info, NULL);
    free(png.lines);
    return status;
}

dt_status dt_png_header(struct dt_image_file *picture)
{
    return read_picture(picture, false);
}

dt_status dt_png_decode(struct dt_image_file *picture)
{
    return read_picture(picture, true);
}

dt_status dt_png_encode(uint8_t **data, size_t *bytes, const uint8_t *pixels, int width, int height)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = PNG_FORMAT_RGB,
                       .flags = PNG_IMAGE_FLAG_FAST};
    *bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
    DT_TRY(DT_NEW(*data, *bytes));
    if (png_image_write_to_memory(&image, *data, bytes, 0, pixels, 0, NULL))
        return DT_OK;
    free(*data);
    *data = NULL;
    DT_FAIL(DT_ERR_INTERNAL, "cannot encode a PNG file: %s", image.message);
}

#else

bool dt_png_is_known(void)
{
    return false;
}

dt_status dt_png_encode(uint8_t **data, size_t *bytes, const uint8_t *pixels, int width, int height)
{
    (void)data, (void)bytes, (void)pixels, (void)width, (void)height;
    DT_FAIL(DT_ERR_USAGE, "this build cannot write PNG files: build dtrain with libpng");
}

#endif
