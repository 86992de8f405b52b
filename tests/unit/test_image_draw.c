/* Frames, texts and boxes on a plane of pixels: where they are, that they can be seen on any
 * ground, and that nothing is drawn beyond the edges. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "image/draw.h"
#include "test.h"

enum { WIDTH = 90, HEIGHT = 60, GREY = 100 };

static struct dt_picture make(int width, int height, uint8_t grey)
{
    struct dt_picture picture;
    assert_int_equal(dt_picture_create(&picture, width, height, grey), DT_OK);
    return picture;
}

static const uint8_t *at(const struct dt_picture *picture, int x, int y)
{
    assert_true(x >= 0 && x < picture->width && y >= 0 && y < picture->height);
    return picture->pixels + 3 * (y * picture->width + x);
}

static bool is(const struct dt_picture *picture, int x, int y, uint8_t r, uint8_t g, uint8_t b)
{
    return memcmp(at(picture, x, y), (const uint8_t[3]){r, g, b}, 3) == 0;
}

static int count(const struct dt_picture *picture, uint8_t r, uint8_t g, uint8_t b)
{
    int n = 0;
    for (int i = 0; i < picture->width * picture->height; i++)
        n += is(picture, i % picture->width, i / picture->width, r, g, b);
    return n;
}

static struct dt_draw_box box_of(double x1, double y1, double x2, double y2, const char *text)
{
    return (struct dt_draw_box){
        .x1 = x1, .y1 = y1, .x2 = x2, .y2 = y2, .text = text, .scale = 1, .rgb = {255, 0, 0}};
}

TEST(image_and_text)
{
    static const uint8_t pixels[2 * 2 * 3] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    struct dt_picture picture = make(WIDTH, HEIGHT, GREY);
    dt_draw_image(&picture, 4, 5, pixels, 2, 2, 3, 1);
    assert_int_equal(count(&picture, 1, 2, 3), 9);
    assert_true(is(&picture, 6, 7, 1, 2, 3) && is(&picture, 7, 8, 10, 11, 12));
    dt_draw_text(&picture, 40, 40, "|", 2, 9); /* seven pixels high */
    assert_int_equal(count(&picture, 9, 9, 9), 7 * 4);
    dt_draw_text(&picture, 60, 40, "\xc3\xa4", 1, 8); /* one character in UTF-8 */
    dt_draw_text(&picture, 70, 40, "?", 1, 8);
    for (int i = 0; i < DT_TEXT_STEP * DT_TEXT_HEIGHT; i++) {
        const int x = 60 + i % DT_TEXT_STEP, y = 40 + i / DT_TEXT_STEP;
        assert_memory_equal(at(&picture, x, y), at(&picture, x + 10, y), 3);
    }
    free(picture.pixels);
}

/* The frame is where the box is, with its outline inside; the text is above it. */
TEST(box)
{
    struct dt_picture picture = make(WIDTH, HEIGHT, GREY);
    struct dt_draw_box box = box_of(20, 30, 60.4, 50, "");
    dt_draw_box(&picture, &box);
    assert_int_equal(count(&picture, 255, 0, 0), 40 * 20 - 36 * 16);
    assert_int_equal(count(&picture, 255, 255, 255), 36 * 16 - 34 * 14);
    assert_true(is(&picture, 20, 30, 255, 0, 0) && is(&picture, 59, 49, 255, 0, 0));
    assert_true(is(&picture, 22, 32, 255, 255, 255) && is(&picture, 23, 33, GREY, GREY, GREY));
    box.text = "ab";
    dt_draw_box(&picture, &box);
    assert_true(is(&picture, 20, 20, 255, 0, 0) && is(&picture, 32, 29, 255, 0, 0));
    assert_true(is(&picture, 33, 20, GREY, GREY, GREY) && is(&picture, 20, 19, GREY, GREY, GREY));
    assert_true(is(&picture, 21, 50, GREY, GREY, GREY));
    box.below = true;
    dt_draw_box(&picture, &box);
    assert_true(is(&picture, 20, 50, 255, 0, 0) && is(&picture, 32, 59, 255, 0, 0));
    free(picture.pixels);
}

/* Texts move into the picture; boxes far outside, or without sense, harm nothing. */
TEST(edges)
{
    static const double corners[][4] = {{-30, -40, 20, 20},   {80, 50, 200, 300},
                                        {1e300, 1e300, 1, 1}, {-1e300, 5, 1e300, 9},
                                        {NAN, NAN, NAN, NAN}, {30, 30, 10, 10}};
    for (size_t i = 0; i < DT_COUNT(corners); i++) {
        const double *c = corners[i];
        for (int below = 0; below < 2; below++) {
            struct dt_picture picture = make(WIDTH, HEIGHT, GREY);
            struct dt_draw_box box = box_of(c[0], c[1], c[2], c[3], "ab");
            box.below = below;
            dt_draw_box(&picture, &box);
            assert_true(count(&picture, 255, 0, 0) >= 13 * 10 / 2); /* the whole patch */
            assert_true(count(&picture, 255, 255, 255) > 10);
            free(picture.pixels);
        }
    }
    for (int size = 1; size < 12; size++) { /* no room for the text */
        struct dt_picture picture = make(size, size, GREY);
        struct dt_draw_box box = box_of(0, 0, size, size, "a long name");
        dt_draw_box(&picture, &box);
        assert_true(count(&picture, 255, 0, 0) > 0);
        free(picture.pixels);
    }
}

static double brightness(const uint8_t rgb[3])
{
    return 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];
}

/* On a ground of any grey, the frame or its outline stands out; text and patch always differ. */
TEST(contrast)
{
    for (int label = 0; label < 100; label++) {
        for (int grey = 0; grey < 256; grey += 15) {
            struct dt_picture picture = make(WIDTH, HEIGHT, (uint8_t)grey);
            struct dt_draw_box box = box_of(20, 30, 60, 50, "|");
            dt_draw_colour(box.rgb, label);
            dt_draw_box(&picture, &box);
            const double frame = brightness(at(&picture, 20, 40));
            const double outline = brightness(at(&picture, 22, 40));
            assert_true(fabs(frame - outline) > 100);
            assert_true(fmax(fabs(frame - grey), fabs(outline - grey)) > 60);
            assert_true(count(&picture, at(&picture, 22, 40)[0], at(&picture, 22, 40)[1],
                              at(&picture, 22, 40)[2]) > 7);
            free(picture.pixels);
        }
    }
}

TEST(colours)
{
    uint8_t rgb[91][3];
    for (int i = 0; i < 91; i++)
        dt_draw_colour(rgb[i], i);
    for (int i = 0; i < 91; i++) {
        for (int k = 0; k < i; k++) {
            int distance = 0;
            for (int c = 0; c < 3; c++)
                distance += abs(rgb[i][c] - rgb[k][c]);
            assert_true(distance > 0);
            assert_true(i >= 8 || distance > 100);
        }
    }
    assert_int_equal(dt_draw_scale(100, 2000), 1);
    assert_int_equal(dt_draw_scale(640, 480), 2);
    assert_int_equal(dt_draw_scale(10000, 10000), 6);
}

TEST_MAIN(NULL, NULL)
