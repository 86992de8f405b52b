/* Affine resampling against plain loops in fp64, at positions rounded as the warp rounds them. */
#include <stdlib.h>
#include <string.h>

#include <math.h>

#include "base/rng.h"
#include "image/resize.h"
#include "test.h"

enum { WIDTH = 45, HEIGHT = 31, PITCH = 3 * WIDTH + 7 };

static uint8_t g_src[3 * WIDTH * HEIGHT], g_dst[PITCH * HEIGHT];

static void fill(uint64_t seed)
{
    struct dt_rng rng;
    dt_rng_init(&rng, seed, DT_RNG_SYNTHETIC, 0, 0);
    for (size_t i = 0; i < sizeof g_src; i++)
        g_src[i] = (uint8_t)dt_rng_below(&rng, 256);
    memset(g_dst, 77, sizeof g_dst);
}

static double pixel_of(int x, int y, int c)
{
    x = x < 0 ? 0 : x >= WIDTH ? WIDTH - 1 : x;
    y = y < 0 ? 0 : y >= HEIGHT ? HEIGHT - 1 : y;
    return g_src[3 * (y * WIDTH + x) + c];
}

/* The largest difference from any position within 1/64 of a pixel, to which shares are rounded. */
static double error_of(const struct dt_warp *warp, int x, int y, int c)
{
    const double *f = warp->from;
    const double at_x = f[0] * (x + 0.5) + f[1] * (y + 0.5) + f[2] - 0.5;
    const double at_y = f[3] * (x + 0.5) + f[4] * (y + 0.5) + f[5] - 0.5;
    const double min_x = floor(at_x * 64) / 64, min_y = floor(at_y * 64) / 64;
    const int left = (int)floor(min_x), top = (int)floor(min_y);
    const double right = min_x - left, below = min_y - top;
    const double expected =
        (1 - below) * ((1 - right) * pixel_of(left, top, c) + right * pixel_of(left + 1, top, c)) +
        below * ((1 - right) * pixel_of(left, top + 1, c) + right * pixel_of(left + 1, top + 1, c));
    return fabs(g_dst[y * PITCH + 3 * x + c] - expected);
}

/* Exact but for the rounding of the result. At the ends of a step of 1/64, where the integers may
 * take the other side, the next step's value. */
static void check(const double to[6])
{
    struct dt_warp warp;
    int n_off = 0;
    dt_warp_set(&warp, to);
    dt_warp_run(&warp, g_dst, PITCH, g_src, WIDTH, HEIGHT);
    for (int y = 0; y < HEIGHT; y++) {
        for (int x = 0; x < WIDTH; x++)
            for (int c = 0; c < 3; c++) {
                const double error = error_of(&warp, x, y, c);
                assert_true(error <= 0.5 + 255.0 / 64);
                n_off += error > 0.5000001;
            }
        for (int i = 3 * WIDTH; i < PITCH; i++)
            assert_int_equal(g_dst[y * PITCH + i], 77);
    }
    assert_in_range(n_off, 0, 3 * WIDTH * HEIGHT / 500);
}

TEST(random)
{
    struct dt_rng rng;
    dt_rng_init(&rng, 8, DT_RNG_AUGMENT, 0, 0);
    for (uint64_t i = 0; i < 40; i++) {
        double to[6];
        for (int k = 0; k < 6; k++)
            to[k] = (dt_rng_uniform(&rng) - 0.5) * (k % 3 == 2 ? 60 : 0.6) + (k % 4 == 0);
        fill(i);
        check(to);
    }
}

/* No change, a shift by whole pixels, and a half turn are exact; the edges are repeated. */
TEST(exact)
{
    static const double to[3][6] = {
        {1, 0, 0, 0, 1, 0}, {1, 0, 5, 0, 1, -4}, {-1, 0, WIDTH, 0, -1, HEIGHT}};
    for (int i = 0; i < 3; i++) {
        struct dt_warp warp;
        fill(3);
        dt_warp_set(&warp, to[i]);
        dt_warp_run(&warp, g_dst, PITCH, g_src, WIDTH, HEIGHT);
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++)
                for (int c = 0; c < 3; c++) {
                    const int from_x = i == 2 ? WIDTH - 1 - x : x - (int)to[i][2];
                    const int from_y = i == 2 ? HEIGHT - 1 - y : y - (int)to[i][5];
                    assert_true(g_dst[y * PITCH + 3 * x + c] == pixel_of(from_x, from_y, c));
                }
    }
}

/* One pixel, and a move far beyond the image. */
TEST(extremes)
{
    static const double far[6] = {1e-3, 0, 1e6, 0, 1000, -1e6};
    struct dt_warp warp;
    uint8_t pixel[3] = {1, 2, 3}, out[3];
    dt_warp_set(&warp, far);
    dt_warp_run(&warp, out, 3, pixel, 1, 1);
    assert_memory_equal(out, pixel, 3);
    fill(1);
    dt_warp_run(&warp, g_dst, PITCH, g_src, WIDTH, HEIGHT);
    assert_true(g_dst[0] == pixel_of(0, HEIGHT - 1, 0));
}

TEST_MAIN(NULL, NULL)
