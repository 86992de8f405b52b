/* The PNG decoder: parts, damage and limits. Pixels of every kind of file: interop/pil. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/decode.h"
#include "image/image_file.h"
#include "image/png.h"
#include "test_status.h"

enum { WIDTH = 5, HEIGHT = 4 };

/* Grey with alpha, interlaced. */
static const uint8_t small[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44,
    0x52, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x04, 0x08, 0x04, 0x00, 0x00, 0x01, 0x9b,
    0x3d, 0x0d, 0x5d, 0x00, 0x00, 0x00, 0x39, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xa8,
    0x6c, 0x66, 0xb0, 0xf7, 0x67, 0xe0, 0x50, 0x61, 0xb8, 0x7b, 0xe0, 0x62, 0x88, 0xbc, 0x2f,
    0xc3, 0xc1, 0xcf, 0x97, 0x3e, 0x31, 0x5c, 0xeb, 0x2c, 0x3e, 0xc9, 0x70, 0x2f, 0xc7, 0xf5,
    0xb2, 0x63, 0xc6, 0x92, 0x1e, 0x51, 0x76, 0x06, 0xf9, 0x92, 0x5f, 0x4a, 0x49, 0xe9, 0xcf,
    0x4d, 0x1a, 0x9c, 0x01, 0xca, 0x70, 0x13, 0xa5, 0x36, 0xd3, 0x37, 0x74, 0x00, 0x00, 0x00,
    0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
};
static const uint8_t on_black[HEIGHT][WIDTH] = {
    {62, 184, 1, 199, 20}, {94, 57, 27, 90, 1}, {166, 115, 69, 91, 9}, {14, 33, 40, 47, 34}};

/* A header of 20000 x 5001 pixels. */
static const uint8_t huge[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44,
    0x52, 0x00, 0x00, 0x4e, 0x20, 0x00, 0x00, 0x13, 0x89, 0x01, 0x00, 0x00, 0x00, 0x00, 0xb7,
    0x1a, 0xb3, 0xc5, 0x00, 0x00, 0x00, 0x00, 0x49, 0x44, 0x41, 0x54, 0x35, 0xaf, 0x06, 0x1e,
};

static struct dt_image_file png;

static int tear_down(void **state)
{
    (void)state;
    dt_image_file_reset(&png);
    return 0;
}

/* Decodes a part from a block of exactly the file's size. */
static dt_status decode(uint8_t *out, const uint8_t *file, size_t bytes, int x, int y, int w, int h)
{
    uint8_t *data = malloc(bytes ? bytes : 1);
    memcpy(data, file, bytes);
    dt_status status = dt_image_file_open(&png, dt_image_format_of_suffix("PNG"), data, bytes);
    if (status == DT_OK && (png.width != WIDTH || png.height != HEIGHT))
        w = h = x = y = 0; /* a damaged header */
    if (status == DT_OK)
        status = dt_image_file_decode(&png, out, x, y, w, h);
    free(data);
    return status;
}

TEST(parts)
{
    uint8_t out[HEIGHT * WIDTH * 3];
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            const int w = WIDTH - x, h = HEIGHT - y;
            assert_int_equal(decode(out, small, sizeof small, x, y, w, h), DT_OK);
            for (int i = 0; i < w * h * 3; i++)
                assert_int_equal(out[i], on_black[y + i / 3 / w][x + i / 3 % w]);
        }
    assert_int_equal(decode(NULL, small, sizeof small, 0, 0, 0, HEIGHT), DT_OK);
}

TEST(damage)
{
    uint8_t file[sizeof small], out[HEIGHT * WIDTH * 3];
    for (size_t n = 0; n < sizeof small; n++) {
        assert_error(decode(out, small, n, 0, 0, WIDTH, HEIGHT), DT_ERR_DATA, "damaged PNG file: ");
    }
    /* libpng 1.6.48 only warns of a wrong checksum of the last chunk, which is empty. */
    for (size_t i = 0; i < sizeof small - 4; i++) {
        memcpy(file, small, sizeof small);
        file[i] ^= 0x55;
        assert_int_equal(decode(out, file, sizeof small, 0, 0, WIDTH, HEIGHT), DT_ERR_DATA);
    }
    struct dt_decoder *decoder;
    int w, h;
    assert_int_equal(dt_decoder_create(&decoder, NULL), DT_OK);
    assert_error(dt_decoder_open(decoder, &w, &h, huge, sizeof huge), DT_ERR_DATA,
                 "100020000 pixels; data.max_pixels allows 100000000");
    dt_decoder_destroy(decoder);
}

int main(void)
{
    if (!dt_png_is_known()) {
        printf("skipped: built without libpng\n");
        return 77;
    }
    return run_all_tests(NULL, tear_down);
}
