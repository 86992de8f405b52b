/* PNG through libpng's simplified interface. */
#include "data/png.h"

#include <string.h>

#ifdef DTRAIN_HAVE_PNG
#include <png.h>
#endif

#include "dtrain/mem.h"

bool dt_png_found(const uint8_t *data, size_t bytes)
{
    return bytes >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0;
}

#ifdef DTRAIN_HAVE_PNG

enum { MAX_PIXELS = 100000000 };

bool dt_png_is_known(void)
{
    return true;
}

/* With alpha and then without it: the interface would else blend with a background. */
static dt_status decode(png_image *image, uint8_t **pixels, size_t *capacity)
{
    const uint64_t n = (uint64_t)image->width * image->height;
    void *block = *pixels;

    if (n > MAX_PIXELS)
        DT_FAIL(DT_ERR_DATA, "a PNG file of %llu pixels; at most %d are accepted",
                (unsigned long long)n, MAX_PIXELS);
    DT_TRY(dt_mem_grow(&block, capacity, n * 4, 1, "pixels of a PNG file"));
    *pixels = block;
    image->format = PNG_FORMAT_RGBA;
    if (!png_image_finish_read(image, NULL, *pixels, 0, NULL))
        DT_FAIL(DT_ERR_DATA, "damaged PNG file: %s", image->message);
    for (uint64_t i = 0; i < n; i++)
        memmove(*pixels + 3 * i, *pixels + 4 * i, 3);
    return DT_OK;
}

dt_status dt_png_decode(uint8_t **pixels, size_t *capacity, int *width, int *height,
                        const uint8_t *data, size_t bytes)
{
    png_image image = {.version = PNG_IMAGE_VERSION};

    if (!png_image_begin_read_from_memory(&image, data, bytes))
        DT_FAIL(DT_ERR_DATA, "damaged PNG file: %s", image.message);
    *width = (int)image.width;
    *height = (int)image.height;
    const dt_status status = decode(&image, pixels, capacity);
    png_image_free(&image);
    DT_TRY(status);
    return DT_OK;
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
