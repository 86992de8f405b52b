/* PNG through libpng's simplified interface. Chunks about colours (gamma, profile) are removed
 * first, since Pillow, and with it torchvision, ignores them too. */
#include "image/png.h"

#include <stdlib.h>
#include <string.h>

#ifdef DTRAIN_HAVE_PNG
#include <png.h>
#endif

#include "base/mem.h"

bool dt_png_found(const uint8_t *data, size_t bytes)
{
    return bytes >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0;
}

#ifdef DTRAIN_HAVE_PNG

enum { MAX_PIXELS = 100000000, SIGNATURE = 8, CHUNK_AROUND = 12 };

static bool is_about_colours(const uint8_t *type)
{
    static const char *const types[] = {"gAMA", "cHRM", "sRGB", "iCCP"};
    for (size_t i = 0; i < DT_COUNT(types); i++)
        if (memcmp(type, types[i], 4) == 0)
            return true;
    return false;
}

/* Copies the file without those chunks to a new block; anything that is not a chunk is left to
 * libpng. */
static dt_status strip_colours(uint8_t **out, size_t *n_out, const uint8_t *data, size_t bytes)
{
    size_t at = SIGNATURE, n = SIGNATURE;
    DT_TRY(DT_NEW(*out, bytes));
    memcpy(*out, data, SIGNATURE);
    while (bytes - at >= CHUNK_AROUND) {
        const uint8_t *chunk = data + at;
        const uint64_t size = CHUNK_AROUND + ((uint64_t)chunk[0] << 24 | (uint64_t)chunk[1] << 16 |
                                              (uint64_t)chunk[2] << 8 | chunk[3]);
        if (size > bytes - at)
            break;
        if (!is_about_colours(chunk + 4)) {
            memcpy(*out + n, chunk, size);
            n += size;
        }
        at += size;
    }
    memcpy(*out + n, data + at, bytes - at);
    *n_out = n + (bytes - at);
    return DT_OK;
}

bool dt_png_is_known(void)
{
    return true;
}

/* Decodes with alpha and then drops it, or libpng would blend with a background. */
static dt_status decode_png(png_image *image, uint8_t **pixels, size_t *capacity)
{
    const uint64_t n = (uint64_t)image->width * image->height;
    void *block = *pixels;

    if (n > MAX_PIXELS)
        DT_FAIL(DT_ERR_DATA, "a PNG file of %llu pixels; at most %d are accepted",
                (unsigned long long)n, MAX_PIXELS);
    DT_TRY(dt_mem_grow(&block, capacity, n * 4, 1, "pixels of a PNG file"));
    *pixels = block;
    image->format = PNG_FORMAT_RGBA;
    image->flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* 16 bits are truncated to 8, not linear */
    if (!png_image_finish_read(image, NULL, *pixels, 0, NULL))
        DT_FAIL(DT_ERR_DATA, "damaged PNG file: %s", image->message);
    for (uint64_t i = 0; i < n; i++)
        memmove(*pixels + 3 * i, *pixels + 4 * i, 3);
    return DT_OK;
}

dt_status dt_png_decode(uint8_t **pixels, size_t *capacity, int *width, int *height,
                        const uint8_t *data, size_t bytes)
{
    dt_status status = DT_OK;
    png_image image = {.version = PNG_IMAGE_VERSION};
    uint8_t *plain = NULL;
    size_t n = 0;

    DT_TRY_OUT(strip_colours(&plain, &n, data, bytes));
    if (!png_image_begin_read_from_memory(&image, plain, n))
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "damaged PNG file: %s", image.message));
    *width = (int)image.width;
    *height = (int)image.height;
    DT_TRY_OUT(decode_png(&image, pixels, capacity));
out:
    png_image_free(&image);
    free(plain);
    return status;
}

#else

bool dt_png_is_known(void)
{
    return false;
}

dt_status dt_png_decode(uint8_t **pixels, size_t *capacity, int *width, int *height,
                        const uint8_t *data, size_t bytes)
{
    (void)pixels, (void)capacity, (void)width, (void)height, (void)data, (void)bytes;
    DT_FAIL(DT_ERR_DATA, "a PNG file, which this build cannot read: build dtrain with libpng "
                         "(libpng-dev), or convert the file");
}

#endif
