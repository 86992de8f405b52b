/* The JPEG decoder: the whole image, and a rectangle of it, which must have the same pixels.
 * Images above a megapixel are opened only: decoding them costs time and finds nothing new. */
#include "data/jpeg.h"
#include "fuzz.h"

enum { PIXELS_DECODED = 1 << 20 };

struct image {
    const uint8_t *data;
    size_t bytes;
    int width, height;
};

/* Columns x .. x+w-1 of rows y .. y+h-1; NULL if the file is bad. */
static uint8_t *decode(struct dt_jpeg *jpeg, const struct image *image, int x, int y, int w, int h)
{
    int width, height;
    uint8_t *pixels = malloc((size_t)w * (size_t)h * 3);
    FUZZ_CHECK(pixels);
    FUZZ_CHECK(dt_jpeg_open(jpeg, &width, &height, image->data, image->bytes) == DT_OK);
    FUZZ_CHECK(width == image->width && height == image->height);
    dt_status status = dt_jpeg_decode(jpeg, pixels, x, y, w, h);
    if (status == DT_OK)
        return pixels;
    fuzz_check_refusal(status, DT_ERR_DATA);
    free(pixels);
    return NULL;
}

static void check_rectangle(struct dt_jpeg *jpeg, const struct image *image, const uint8_t *whole)
{
    int x = image->width / 4, y = image->height / 4;
    int w = (image->width + 1) / 2, h = (image->height + 1) / 2;
    uint8_t *part = decode(jpeg, image, x, y, w, h);
    FUZZ_CHECK(part || !whole); /* a part asks for less than the whole */
    for (int row = 0; whole && row < h; row++) {
        size_t at = ((size_t)(y + row) * (size_t)image->width + (size_t)x) * 3;
        FUZZ_CHECK(memcmp(part + (size_t)row * (size_t)w * 3, whole + at, (size_t)w * 3) == 0);
    }
    free(part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct dt_jpeg *jpeg;
    struct image image = {.data = data, .bytes = bytes};
    FUZZ_CHECK(dt_jpeg_create(&jpeg, NULL) == DT_OK);
    dt_status status = dt_jpeg_open(jpeg, &image.width, &image.height, data, bytes);
    if (status != DT_OK)
        fuzz_check_refusal(status, DT_ERR_DATA);
    else
        FUZZ_CHECK(image.width > 0 && image.height > 0);
    if (status == DT_OK && (uint64_t)image.width * (uint64_t)image.height <= PIXELS_DECODED) {
        uint8_t *whole = decode(jpeg, &image, 0, 0, image.width, image.height);
        check_rectangle(jpeg, &image, whole);
        free(whole);
    }
    dt_jpeg_destroy(jpeg);
    return 0;
}
