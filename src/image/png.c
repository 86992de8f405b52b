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

bool dt_png_found(const uint8_t *data, size_t bytes)
{
    return bytes >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0;
}

#ifdef DTRAIN_HAVE_PNG

struct dt_png {
    png_structp reader;
    png_infop info;
    jmp_buf escape;
    const uint8_t *data; /* not yet read */
    size_t bytes;
    int width, height, channels, n_passes; /* RGB or RGBA; interlaced files have several passes */
    int value_bytes;                       /* 1 or 2, big endian */
    int peak;
    uint8_t *lines; /* one, or all of an interlaced file */
    size_t lines_capacity;
    uint8_t *out;
    int x, y, w, h; /* the rectangle to copy */
};

bool dt_png_is_known(void)
{
    return true;
}

static _Noreturn void on_error(png_structp reader, const char *text)
{
    struct dt_png *png = png_get_error_ptr(reader);
    (void)DT_ERROR(DT_ERR_DATA, "damaged PNG file: %s", text);
    longjmp(png->escape, 1);
}

static void on_warning(png_structp reader, const char *text)
{
    (void)reader, (void)text;
}

static void close_image(struct dt_png *png)
{
    png_destroy_read_struct(&png->reader, &png->info, NULL);
}

/* The only target of longjmp; no local variable is live across it. */
static dt_status run_guarded(struct dt_png *png, void (*work)(struct dt_png *png))
{
    if (setjmp(png->escape)) {
        close_image(png);
        return DT_ERR_DATA;
    }
    work(png);
    return DT_OK;
}

static void read_bytes(png_structp reader, png_bytep out, size_t bytes)
{
    struct dt_png *png = png_get_io_ptr(reader);
    if (bytes > png->bytes)
        png_error(reader, "premature end");
    memcpy(out, png->data, bytes);
    png->data += bytes;
    png->bytes -= bytes;
}

static void read_header(struct dt_png *png)
{
    png_structp reader = png->reader;
    png_set_read_fn(reader, png, read_bytes);
    png_read_info(reader, png->info);
    png_set_expand(reader);
    png_set_gray_to_rgb(reader);
    png->n_passes = png_set_interlace_handling(reader);
    png_read_update_info(reader, png->info);
    png->width = (int)png_get_image_width(reader, png->info);
    png->height = (int)png_get_image_height(reader, png->info);
    png->channels = png_get_channels(reader, png->info);
    png->value_bytes = png_get_bit_depth(reader, png->info) / 8;
    png->peak = 0;
}

dt_status dt_png_create(struct dt_png **png)
{
    return DT_NEW(*png, 1);
}

void dt_png_destroy(struct dt_png *png)
{
    if (!png)
        return;
    close_image(png);
    free(png->lines);
    free(png);
}

dt_status dt_png_open(struct dt_png *png, int *width, int *height, const uint8_t *data,
                      size_t bytes)
{
    close_image(png);
    png->data = data;
    png->bytes = bytes;
    png->reader = png_create_read_struct(PNG_LIBPNG_VER_STRING, png, on_error, on_warning);
    png->info = png->reader ? png_create_info_struct(png->reader) : NULL;
    if (!png->info)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: cannot create a PNG decoder");
    DT_TRY(run_guarded(png, read_header));
    *width = png->width;
    *height = png->height;
    return DT_OK;
}

static void copy_row(const struct dt_png *png, const uint8_t *line, int row)
{
    uint8_t *out = png->out + (ptrdiff_t)(row - png->y) * png->w * 3;
    const int step = png->value_bytes, pixel = step * png->channels;
    line += (ptrdiff_t)png->x * pixel;
    if (pixel == 3) {
        memcpy(out, line, (size_t)png->w * 3);
        return;
    }
    for (int i = 0; i < png->w; i++, line += pixel, out += 3)
        for (int c = 0; c < 3; c++)
            out[c] = png->channels == 3 ? line[c * step]
                                        : (uint8_t)((line[c * step] * line[3 * step] + 127) / 255);
}

static void find_peak(struct dt_png *png, const uint8_t *line)
{
    for (int i = 0; i < png->width * png->channels; i++, line += 2) {
        const int value = line[0] << 8 | line[1];
        if (i % png->channels < 3 && value > png->peak)
            png->peak = value;
    }
}

int dt_png_peak(const struct dt_png *png)
{
    return png->peak;
}

static size_t line_bytes(const struct dt_png *png)
{
    return (size_t)png->width * (size_t)(png->channels * png->value_bytes);
}

static void decode_rows(struct dt_png *png)
{
    for (int pass = 1; pass <= png->n_passes; pass++)
        for (int row = 0; row < png->height; row++) {
            uint8_t *line = png->lines + (png->n_passes > 1 ? (size_t)row * line_bytes(png) : 0);
            png_read_row(png->reader, line, NULL);
            if (pass == png->n_passes && row >= png->y && row < png->y + png->h && png->w > 0)
                copy_row(png, line, row);
            if (pass == png->n_passes && png->value_bytes == 2)
                find_peak(png, line);
        }
    png_read_end(png->reader, NULL);
}

dt_status dt_png_decode(struct dt_png *png, uint8_t *out, int x, int y, int w, int h)
{
    if (!png->reader)
        DT_FAIL(DT_ERR_INTERNAL, "PNG decoding was requested without an open image");
    const size_t n_lines = png->n_passes > 1 ? (size_t)png->height : 1;
    DT_TRY(DT_GROW(png->lines, png->lines_capacity, n_lines * line_bytes(png),
                   "lines of a PNG image"));
    png->out = out;
    png->x = x;
    png->y = y;
    png->w = w;
    png->h = h;
    DT_TRY(run_guarded(png, decode_rows));
    close_image(png);
    return DT_OK;
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
    DT_FAIL(DT_ERR_INTERNAL, "cannot encode a PNG file: %s", image.message);
}

#else

bool dt_png_is_known(void)
{
    return false;
}

dt_status dt_png_create(struct dt_png **png)
{
    *png = NULL;
    return DT_OK;
}

void dt_png_destroy(struct dt_png *png)
{
    (void)png;
}

dt_status dt_png_open(struct dt_png *png, int *width, int *height, const uint8_t *data,
                      size_t bytes)
{
    (void)png, (void)width, (void)height, (void)data, (void)bytes;
    DT_FAIL(DT_ERR_DATA, "a PNG file, which this build cannot read: build dtrain with libpng "
                         "(libpng-dev), or convert the file");
}

int dt_png_peak(const struct dt_png *png)
{
    (void)png;
    return 0;
}

dt_status dt_png_decode(struct dt_png *png, uint8_t *out, int x, int y, int w, int h)
{
    (void)out, (void)x, (void)y, (void)w, (void)h;
    return dt_png_open(png, NULL, NULL, NULL, 0);
}

dt_status dt_png_encode(uint8_t **data, size_t *bytes, const uint8_t *pixels, int width, int height)
{
    (void)data, (void)bytes, (void)pixels, (void)width, (void)height;
    DT_FAIL(DT_ERR_USAGE, "this build cannot write PNG files: build dtrain with libpng");
}

#endif
