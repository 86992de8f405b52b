/* EXIF orientations: where they are found, and what the decoder makes of each. Pixels against
 * Pillow's exif_transpose: interop/pil. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "image/decode.h"
#include "test_status.h"

enum { WIDTH = 21, HEIGHT = 13 };

#define ENTRY_BE "\x01\x12\0\3\0\0\0\1\0\6\0\0"
#define TIFF_BE  "MM\0*\0\0\0\x08\0\1" ENTRY_BE "\0\0\0\0"
#define IHDR     "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR0123456789abcCRC."
#define XMP      "\xff\xe1\0\x08http:/"

/* A file cut anywhere says 1 or what the whole file says. */
TEST(places)
{
    static const struct {
        const char *data;
        size_t bytes;
        int orientation;
    } cases[] = {
#define FILE_OF(orientation, text) {text, sizeof text - 1, orientation}
        FILE_OF(6, "\xff\xd8\xff\xe1\0\x22"
                   "Exif\0\0" TIFF_BE "\xff\xda"),
        FILE_OF(6, "\xff\xd8\xff\xe0\0\4ab\xff\xff" XMP "\xff\xe1\0\x22"
                   "Exif\0\0" TIFF_BE),
        FILE_OF(8, "\xff\xd8\xff\xe1\0\x22"
                   "Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\x08\0\0\0"),
        FILE_OF(3, "\xff\xd8\xff\xe1\0\x22"
                   "Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\4\0\1\0\0\0\3\0\0\0"),
        FILE_OF(1, "\xff\xd8\xff\xe1\0\x22"
                   "Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\4\0\1\0\0\0\x09\0\0\0"),
        FILE_OF(1, "\xff\xd8\xff\xe1\0\x22"
                   "Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\0\0\0\0"),
        FILE_OF(1, "\xff\xd8\xff\xda\0\4ab\xff\xe1\0\x22"
                   "Exif\0\0" TIFF_BE), /* behind the pixels */
        FILE_OF(1, "\xff\xd8\xff\xe1\0\x22"
                   "Exif\0\0XX\0*\0\0\0\x08\0\1" ENTRY_BE),
        FILE_OF(1, "\xff\xd8\xff\xe1\0\x22"
                   "Exif\0\0MM\0*\xff\xff\xff\xff\xff\xff" ENTRY_BE),
        FILE_OF(1, "\xff\xd8\0\0" TIFF_BE),
        FILE_OF(6, IHDR "\0\0\0\x1a"
                        "eXIf" TIFF_BE "CRC."),
        FILE_OF(6, IHDR "\0\0\0\2tEXtabCRC.\0\0\0\x20"
                        "eXIfExif\0\0" TIFF_BE "CRC."),
        FILE_OF(1, IHDR "\0\0\0\2IDATabCRC.\0\0\0\x1a"
                        "eXIf" TIFF_BE "CRC."),
        FILE_OF(6, "MM\0*\0\0\0\x08\0\1" ENTRY_BE), /* a TIFF file */
        FILE_OF(1, ""),
    };
    for (size_t i = 0; i < DT_COUNT(cases); i++)
        for (size_t bytes = 0; bytes <= cases[i].bytes; bytes++) {
            uint8_t *copy = malloc(bytes + 1); /* of this size, for the sanitizer */
            memcpy(copy, cases[i].data, bytes);
            copy = realloc(copy, bytes ? bytes : 1);
            const int found = dt_exif_orientation(copy, bytes);
            free(copy);
            if (found != cases[i].orientation && (bytes == cases[i].bytes || found != 1))
                fail_msg("case %zu, %zu bytes: %d", i, bytes, found);
        }
}

/* The pixel in row r and column c of those stored, in the picture upright: EXIF says at which of
 * its sides row 0 and column 0 are. */
static const uint8_t *stored(const uint8_t *pixels, int orientation, int x, int y)
{
    const bool rows_are_far = strchr("\3\4\6\7", orientation), swaps = orientation >= 5;
    const bool columns_are_far = strchr("\2\3\7\x08", orientation);
    int r = swaps ? x : y, c = swaps ? y : x;
    r = rows_are_far ? HEIGHT - 1 - r : r;
    c = columns_are_far ? WIDTH - 1 - c : c;
    return pixels + 3 * (r * WIDTH + c);
}

static void check(const struct dt_config_data *data, uint8_t *file, size_t bytes, int orientation,
                  const uint8_t *pixels)
{
    struct dt_decoder *decoder;
    int w, h;
    assert_int_equal(dt_decoder_create(&decoder, data), DT_OK);
    for (int i = 0; i < 4; i++) {
        const int x = i * 3, y = i * 2, part_w = 12 - x, part_h = 11 - y;
        uint8_t part[12 * 11 * 3];
        assert_int_equal(dt_decoder_open(decoder, &w, &h, file, bytes), DT_OK);
        assert_int_equal(dt_decoder_orientation(decoder), orientation);
        const bool swaps = data->exif == DT_EXIF_APPLY && orientation >= 5;
        assert_true(w == (swaps ? HEIGHT : WIDTH) && h == (swaps ? WIDTH : HEIGHT));
        assert_int_equal(dt_decoder_expect(decoder, w, h), DT_OK);
        assert_int_equal(dt_decoder_expect(decoder, h, w), DT_ERR_DATA);
        assert_true(!strstr(dt_error_text(), "EXIF") == (orientation < 5));
        assert_int_equal(dt_decoder_decode(decoder, part, x, y, part_w, part_h), DT_OK);
        for (int k = 0; k < part_w * part_h; k++)
            assert_memory_equal(part + 3 * k,
                                stored(pixels, data->exif == DT_EXIF_APPLY ? orientation : 1,
                                       x + k % part_w, y + k / part_w),
                                3);
    }
    assert_int_equal(dt_decoder_open(decoder, &w, &h, file, bytes), DT_OK);
    assert_int_equal(dt_decoder_skim(decoder, h / 2, 1), DT_OK);
    assert_int_equal(dt_decoder_open(decoder, &w, &h, file, bytes), DT_OK);
    assert_int_equal(dt_decoder_decode(decoder, NULL, w, h, 0, 0), DT_OK);
    dt_decoder_destroy(decoder);
}

TEST(orientations)
{
    const struct dt_config_data apply = {.exif = DT_EXIF_APPLY}, ignore = {.exif = DT_EXIF_IGNORE};
    uint8_t pixels[3 * WIDTH * HEIGHT], *file;
    struct dt_jpeg *jpeg;
    size_t bytes;
    int w, h;
    for (int i = 0; i < WIDTH * HEIGHT * 3; i++)
        pixels[i] = (uint8_t)(i * 11 % 256);
    assert_int_equal(dt_jpeg_create(&jpeg, NULL), DT_OK);
    for (int orientation = 1; orientation <= 8; orientation++) {
        uint8_t decoded[3 * WIDTH * HEIGHT];
        assert_int_equal(dt_jpeg_encode(&file, &bytes, pixels, WIDTH, HEIGHT, 95, orientation),
                         DT_OK);
        assert_int_equal(dt_jpeg_open(jpeg, &w, &h, file, bytes), DT_OK);
        assert_int_equal(dt_jpeg_decode(jpeg, decoded, 0, 0, WIDTH, HEIGHT), DT_OK);
        check(&apply, file, bytes, orientation, decoded);
        check(&ignore, file, bytes, orientation, decoded);
        free(file);
    }
    dt_jpeg_destroy(jpeg);
}

/* Above max_pixels a JPEG file is decoded at 1/2, 1/4 or 1/8. A crop of the turned picture stays
 * where it was: the pixel at the edge that is not whole comes first there. */
TEST(scale)
{
    static const struct {
        int max_pixels, width, height;
    } cases[] = {{273, 13, 21}, {272, 7, 11}, {68, 7, 11}, {67, 4, 6}, {14, 2, 3}};
    uint8_t pixels[3 * WIDTH * HEIGHT] = {0}, *file;
    struct dt_decoder *decoder;
    size_t bytes;
    int w, h;
    assert_int_equal(dt_jpeg_encode(&file, &bytes, pixels, WIDTH, HEIGHT, 95, 7), DT_OK);
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        const struct dt_config_data data = {.exif = DT_EXIF_APPLY,
                                            .max_pixels = cases[i].max_pixels};
        struct dt_crop crop = {4, 8, 8, 8, true};
        assert_int_equal(dt_decoder_create(&decoder, &data), DT_OK);
        assert_int_equal(dt_decoder_open(decoder, &w, &h, file, bytes), DT_OK);
        dt_decoder_scale(decoder, &crop, &w, &h, 1);
        assert_true(w == cases[i].width && h == cases[i].height && crop.flip);
        const float d = 8 / crop.w;
        assert_true(crop.h * d == 8 && (float)w - crop.x - crop.w == (13 - 4 - 8) / d);
        assert_true((float)h - crop.y - crop.h == (21 - 8 - 8) / d);
        uint8_t out[3 * WIDTH * HEIGHT];
        assert_int_equal(dt_decoder_decode(decoder, out, 0, 0, w, h), DT_OK);
        dt_decoder_destroy(decoder);
    }
    free(file);
}

TEST_MAIN(NULL, NULL)
