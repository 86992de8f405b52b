#include "image/image_file.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifdef DTRAIN_HAVE_WEBP
#include <webp/decode.h>
#endif

#include "base/mem.h"

#ifdef DTRAIN_HAVE_WEBP
static dt_status webp_header(struct dt_image_file *picture)
{
    WebPBitstreamFeatures features;
    const VP8StatusCode code = WebPGetFeatures(picture->data, picture->bytes, &features);
    if (code != VP8_STATUS_OK)
        DT_FAIL(DT_ERR_DATA, "damaged WebP file: its header is incomplete or wrong (%d)", code);
    if (features.has_animation)
        DT_FAIL(DT_ERR_DATA, "an animated WebP file: extract one of its images");
    picture->width = features.width;
    picture->height = features.height;
    return DT_OK;
}

static dt_status webp_decode(struct dt_image_file *picture)
{
    const size_t n = (size_t)picture->width * (size_t)picture->height;
    WebPBitstreamFeatures features;
    WebPGetFeatures(picture->data, picture->bytes, &features);
    uint8_t *rgba =
        features.has_alpha ? WebPDecodeRGBA(picture->data, picture->bytes, NULL, NULL) : NULL;
    if (!rgba &&
        (features.has_alpha || !WebPDecodeRGBInto(picture->data, picture->bytes, picture->pixels,
                                                  3 * n, 3 * picture->width)))
        DT_FAIL(DT_ERR_DATA, "damaged WebP file: its pixels are incomplete or wrong");
    for (size_t i = 0; i < n && rgba; i++)
        for (size_t c = 0; c < 3; c++)
            picture->pixels[3 * i + c] = dt_on_black(rgba[4 * i + c], rgba[4 * i + 3]);
    WebPFree(rgba);
    return DT_OK;
}
#define WEBP webp_header, webp_decode
#else
#define WEBP NULL, NULL
#endif

#ifdef DTRAIN_HAVE_PNG
#define PNG_FILE dt_png_header, dt_png_decode
#else
#define PNG_FILE NULL, NULL
#endif
#ifdef DTRAIN_HAVE_TIFF
#define TIFF_FILE dt_tiff_header, dt_tiff_decode
#else
#define TIFF_FILE NULL, NULL
#endif
#ifdef DTRAIN_HAVE_GIF
#define GIF_FILE dt_gif_header, dt_gif_decode
#else
#define GIF_FILE NULL, NULL
#endif
#define MAGIC(text, offset) text, offset, sizeof text - 1

static const struct dt_image_format formats[] = {
    {"a PNG file", {"png", NULL}, "libpng-dev", MAGIC("\x89PNG\r\n\x1a\n", 0), PNG_FILE},
    {"a WebP file", {"webp", NULL}, "libwebp-dev", MAGIC("WEBP", 8), WEBP},
    {"a TIFF file", {"tif", "tiff"}, "libtiff-dev", MAGIC("II*\0", 0), TIFF_FILE},
    {"a TIFF file", {"tif", "tiff"}, "libtiff-dev", MAGIC("MM\0*", 0), TIFF_FILE},
    {"a GIF file", {"gif", NULL}, "libgif-dev", MAGIC("GIF8", 0), GIF_FILE},
    {"a BMP file", {"bmp", NULL}, "", MAGIC("BM", 0), dt_bmp_header, dt_bmp_decode},
};

const struct dt_image_format *dt_image_format_of_suffix(const char *suffix)
{
    for (size_t i = 0; i < DT_COUNT(formats); i++)
        for (size_t s = 0; s < DT_COUNT(formats[i].suffix) && formats[i].suffix[s]; s++)
            if (strcasecmp(suffix, formats[i].suffix[s]) == 0)
                return &formats[i];
    return NULL;
}

const struct dt_image_format *dt_image_format_of_data(const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < DT_COUNT(formats); i++) {
        const struct dt_image_format *f = &formats[i];
        if (bytes >= f->offset + f->magic_bytes &&
            memcmp(data + f->offset, f->magic, f->magic_bytes) == 0)
            return f;
    }
    return NULL;
}

dt_status dt_image_file_open(struct dt_image_file *picture, const struct dt_image_format *format,
                             const uint8_t *data, size_t bytes)
{
    picture->format = format;
    picture->data = data;
    picture->bytes = bytes;
    picture->peak = 0;
    if (!format->header)
        DT_FAIL(DT_ERR_DATA,
                "%s, which this build cannot read: build dtrain with %s, or convert the file",
                format->name, format->library);
    DT_TRY(format->header(picture));
    if (picture->width <= 0 || picture->height <= 0)
        DT_FAIL(DT_ERR_DATA, "%s of %d x %d pixels", format->name, picture->width, picture->height);
    return DT_OK;
}

dt_status dt_image_file_decode(struct dt_image_file *picture, uint8_t *out, int x, int y, int w,
                               int h)
{
    const size_t n = (size_t)picture->width * (size_t)picture->height;
    DT_TRY(DT_GROW(picture->pixels, picture->capacity, 3 * n, "pixels of an image"));
    DT_TRY(picture->format->decode(picture));
    for (int row = 0; row < h && w > 0; row++)
        memcpy(out + 3 * (size_t)row * (size_t)w,
               picture->pixels + 3 * ((size_t)(y + row) * (size_t)picture->width + (size_t)x),
               3 * (size_t)w);
    return DT_OK;
}

void dt_image_file_reset(struct dt_image_file *picture)
{
    free(picture->pixels);
    *picture = (struct dt_image_file){0};
}
