/* The decoder: every kind of file it accepts, cut files and limits. What else it must refuse is in
 * tests/fuzz/jpeg_cases.py. */
#include "base/rng.h"
#include "image/jpeg.h"
#include "jpeg_make.h"
#include "test_status.h"

static struct dt_jpeg *jpeg;

static int set_up(void **state)
{
    (void)state;
    return dt_jpeg_create(&jpeg, NULL) == DT_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    dt_jpeg_destroy(jpeg);
    return 0;
}

/* Decodes all of a file from a block of exactly its size. */
static dt_status decode_all(uint8_t **pixels, int *width, int *height, const struct file *file,
                            size_t bytes)
{
    uint8_t *data = malloc(bytes ? bytes : 1);
    memcpy(data, file->data, bytes);
    *pixels = NULL;
    dt_status status = dt_jpeg_open(jpeg, width, height, data, bytes);
    if (status == DT_OK) {
        *pixels = malloc((size_t)*width * (size_t)*height * 3);
        status = dt_jpeg_decode(jpeg, *pixels, 0, 0, *width, *height);
    }
    free(data);
    return status;
}

/* Channel c of `picture` as RGB. */
static double expected_rgb(const struct jpeg_kind *kind, int x, int y, int c)
{
    if (kind->pixels == JCS_GRAYSCALE)
        return picture(kind, x, y, 0);
    if (kind->pixels == JCS_RGB)
        return picture(kind, x, y, c);
    double ink = picture(kind, x, y, c), black = picture(kind, x, y, 3);
    return kind->adobe ? ink * black / 255.0 : (255.0 - ink) * (255.0 - black) / 255.0;
}

TEST(kinds)
{
    for (int k = 0; k < N_JPEG_KINDS; k++) {
        const struct jpeg_kind *kind = &jpeg_kinds[k];
        struct file file = jpeg_make(kind);
        uint8_t *pixels;
        int width, height;
        assert_int_equal(decode_all(&pixels, &width, &height, &file, file.bytes), DT_OK);
        assert_int_equal(width, kind->width);
        assert_int_equal(height, kind->height);
        double worst = 0.0, total = 0.0;
        for (int i = 0; i < width * height * 3; i++) {
            double expected = expected_rgb(kind, i / 3 % width, i / 3 / width, i % 3);
            double difference = pixels[i] > expected ? pixels[i] - expected : expected - pixels[i];
            worst = difference > worst ? difference : worst;
            total += difference;
        }
        if (worst > 12.0 || total > 2.0 * width * height * 3)
            fail_msg("%s: worst difference %g, mean %g", kind->name, worst,
                     total / (width * height * 3));
        free(pixels);
        free(file.data);
    }
}

TEST(rectangles)
{
    struct dt_rng rng;
    dt_rng_init(&rng, 1, DT_RNG_AUGMENT, 0, 0);
    for (int k = 0; k < N_JPEG_KINDS; k++) {
        struct file file = jpeg_make(&jpeg_kinds[k]);
        uint8_t *pixels;
        int width, height;
        assert_int_equal(decode_all(&pixels, &width, &height, &file, file.bytes), DT_OK);
        for (int i = 0; i < 10; i++) {
            int w = 1 + (int)dt_rng_below(&rng, (uint32_t)width);
            int h = 1 + (int)dt_rng_below(&rng, (uint32_t)height);
            int x = (int)dt_rng_below(&rng, (uint32_t)(width - w + 1));
            int y = (int)dt_rng_below(&rng, (uint32_t)(height - h + 1));
            uint8_t *part = malloc((size_t)w * (size_t)h * 3);
            assert_int_equal(dt_jpeg_open(jpeg, &width, &height, file.data, file.bytes), DT_OK);
            assert_int_equal(dt_jpeg_decode(jpeg, part, x, y, w, h), DT_OK);
            for (int row = 0; row < h; row++)
                assert_memory_equal(part + row * w * 3, pixels + ((y + row) * width + x) * 3,
                                    (size_t)w * 3);
            free(part);
        }
        assert_int_equal(dt_jpeg_open(jpeg, &width, &height, file.data, file.bytes), DT_OK);
        assert_int_equal(dt_jpeg_decode(jpeg, pixels, 0, 0, width + 1, height), DT_ERR_INTERNAL);
        assert_int_equal(dt_jpeg_decode(jpeg, pixels, 0, height, 1, 1), DT_ERR_INTERNAL);
        free(pixels);
        free(file.data);
    }
}

/* Each scan over a large image takes time, so there may be fewer of them. */
TEST(work)
{
    struct jpeg_kind kind = jpeg_kinds[BASE_NOT_REFINED];
    kind.width = kind.height = 4600; /* so that 300 scans fit in a file */
    struct file file = jpeg_make(&kind);
    uint8_t row[3];
    int width, height;
    repeat_scan(&file);
    assert_int_equal(dt_jpeg_open(jpeg, &width, &height, file.data, file.bytes), DT_OK);
    assert_error(dt_jpeg_decode(jpeg, row, 0, 0, 1, 1), DT_ERR_DATA,
                 "95 scans are too many for 21160000 pixels");
    free(file.data);
}

/* A file cut anywhere is bad, also when only its first row is asked for. */
TEST(truncation)
{
    const int kinds[] = {0, 1, 3, 4, 7, 9, 10};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct file file = jpeg_make(&jpeg_kinds[kinds[k]]);
        uint8_t *pixels, row[3 * 97];
        int width, height;
        for (size_t bytes = 0; bytes < file.bytes; bytes += bytes < 700 ? 1 : 13) {
            if (decode_all(&pixels, &width, &height, &file, bytes) != DT_ERR_DATA)
                fail_msg("%s, %zu of %zu bytes: accepted", jpeg_kinds[kinds[k]].name, bytes,
                         file.bytes);
            free(pixels);
            if (dt_jpeg_open(jpeg, &width, &height, file.data, bytes) == DT_OK)
                assert_int_equal(dt_jpeg_decode(jpeg, row, 0, 0, width, 1), DT_ERR_DATA);
        }
        free(file.data);
    }
}

/* Bytes around the image that mean nothing do not make it bad. */
TEST(harmless)
{
    struct file file = jpeg_make(&jpeg_kinds[1]), junk;
    uint8_t *clean, *pixels;
    int width, height;
    assert_int_equal(decode_all(&clean, &width, &height, &file, file.bytes), DT_OK);
    size_t bytes = (size_t)width * (size_t)height * 3;

    static const struct {
        int before; /* this marker, or the end for 0 */
        const char *data;
        size_t n;
    } additions[] = {
        {0, "trailing junk", 13},
        {DQT, "\0\0\0\0\0", 5}, /* extraneous bytes */
        {DQT,
         "\xff\xe1\0\x0e"
         "Exif\0\0"
         "\xff\xff\xff\xff\xff\xff",
         16},                           /* a broken EXIF block */
        {DQT, "\xff\xfe\0\x06 hi!", 8}, /* a comment */
    };
    for (size_t i = 0; i < sizeof additions / sizeof additions[0]; i++) {
        size_t n = additions[i].n;
        size_t at = additions[i].before ? find_marker(&file, additions[i].before) : file.bytes;
        junk = (struct file){malloc(file.bytes + n), file.bytes + n};
        memcpy(junk.data, file.data, at);
        memcpy(junk.data + at, additions[i].data, n);
        memcpy(junk.data + at + n, file.data + at, file.bytes - at);
        if (decode_all(&pixels, &width, &height, &junk, junk.bytes) != DT_OK)
            fail_msg("addition %zu: %s", i, dt_error_text());
        assert_memory_equal(pixels, clean, bytes);
        free(pixels);
        free(junk.data);
    }
    file.data[find_marker(&file, APP0) + 9] = 7; /* JFIF version 7 */
    assert_int_equal(decode_all(&pixels, &width, &height, &file, file.bytes), DT_OK);
    assert_memory_equal(pixels, clean, bytes);
    free(pixels);
    free(clean);
    free(file.data);
}

/* A file without tables must not borrow those of the file before it. */
TEST(no_memory_of_the_last_file)
{
    struct file good = jpeg_make(&jpeg_kinds[1]), bad = jpeg_make(&jpeg_kinds[1]);
    uint8_t *pixels;
    int width, height;
    remove_quantisation(&bad);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(decode_all(&pixels, &width, &height, &bad, bad.bytes), DT_ERR_DATA);
        free(pixels);
        assert_int_equal(decode_all(&pixels, &width, &height, &good, good.bytes), DT_OK);
        free(pixels);
    }
    free(good.data);
    free(bad.data);
}

TEST(no_open)
{
    struct file file = jpeg_make(&jpeg_kinds[N_JPEG_KINDS - 1]);
    uint8_t pixel[3];
    int width, height;
    assert_int_equal(dt_jpeg_decode(jpeg, pixel, 0, 0, 1, 1), DT_ERR_INTERNAL);
    assert_int_equal(dt_jpeg_open(jpeg, &width, &height, file.data, file.bytes), DT_OK);
    assert_int_equal(dt_jpeg_decode(jpeg, pixel, 0, 0, 1, 1), DT_OK);
    assert_int_equal(dt_jpeg_decode(jpeg, pixel, 0, 0, 1, 1), DT_ERR_INTERNAL);
    free(file.data);
}

TEST_MAIN(set_up, tear_down)
