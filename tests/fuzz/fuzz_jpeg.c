/* The JPEG decoder: decodes the whole image, a rectangle of it, which must have the same pixels,
 * and only its entropy-coded data, which must have the same faults. The length of the input selects
 * the options and the scale. Images above a megapixel are only opened, because decoding them costs
 * time and finds nothing new. */
#include "fuzz.h"
#include "image/jpeg.h"

enum { PIXELS_DECODED = 1 << 20 };

struct image {
    const uint8_t *data;
    size_t bytes;
    int width, height, denominator;
};

static void open_image(struct dt_jpeg *jpeg, struct image *image)
{
    FUZZ_CHECK(dt_jpeg_open(jpeg, &image->width, &image->height, image->data, image->bytes) ==
               DT_OK);
    dt_jpeg_scale(jpeg, &image->width, &image->height, image->denominator);
    FUZZ_CHECK(image->width > 0 && image->height > 0);
}

/* Columns x .. x+w-1 of rows y .. y+h-1; NULL if the file is bad. */
static uint8_t *decode(struct dt_jpeg *jpeg, struct image *image, int x, int y, int w, int h)
{
    uint8_t *pixels = malloc((size_t)w * (size_t)h * 3);
    FUZZ_CHECK(pixels);
    open_image(jpeg, image);
    dt_status status = dt_jpeg_decode(jpeg, pixels, x, y, w, h);
    if (status == DT_OK)
        return pixels;
    fuzz_check_refusal(status, DT_ERR_DATA);
    free(pixels);
    return NULL;
}

static void check_rectangle(struct dt_jpeg *jpeg, struct image *image, const uint8_t *whole)
{
    int x = image->width / 4, y = image->height / 4;
    int w = (image->width + 1) / 2, h = (image->height + 1) / 2;
    uint8_t *part = decode(jpeg, image, x, y, w, h);
    FUZZ_CHECK(part || !whole); /* a part requires less than the whole */
    for (int row = 0; whole && row < h; row++) {
        size_t at = ((size_t)(y + row) * (size_t)image->width + (size_t)x) * 3;
        FUZZ_CHECK(memcmp(part + (size_t)row * (size_t)w * 3, whole + at, (size_t)w * 3) == 0);
    }
    free(part);
}

static void check_skim(struct dt_jpeg *jpeg, struct image *image, const uint8_t *whole)
{
    open_image(jpeg, image);
    dt_status status = dt_jpeg_skim(jpeg, image->height / 2, (image->height + 1) / 2);
    FUZZ_CHECK((status == DT_OK) == (whole != NULL));
    if (status != DT_OK)
        fuzz_check_refusal(status, DT_ERR_DATA);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct dt_jpeg *jpeg;
    const struct dt_config_data data_keys = {.upsampling = bytes & 4 ? DT_UPSAMPLING_PLAIN
                                                                     : DT_UPSAMPLING_FANCY,
                                             .dct = bytes & 8 ? DT_DCT_FAST : DT_DCT_ACCURATE};
    struct image image = {.data = data, .bytes = bytes, .denominator = 1 << (bytes & 3)};
    FUZZ_CHECK(dt_jpeg_create(&jpeg, &data_keys) == DT_OK);
    dt_status status = dt_jpeg_open(jpeg, &image.width, &image.height, data, bytes);
    if (status != DT_OK)
        fuzz_check_refusal(status, DT_ERR_DATA);
    if (status == DT_OK && (uint64_t)image.width * (uint64_t)image.height <= PIXELS_DECODED) {
        open_image(jpeg, &image); /* the scaled size */
        uint8_t *whole = decode(jpeg, &image, 0, 0, image.width, image.height);
        check_rectangle(jpeg, &image, whole);
        check_skim(jpeg, &image, whole);
        free(whole);
    }
    dt_jpeg_destroy(jpeg);
    return 0;
}
