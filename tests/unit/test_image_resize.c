/* The plain resampler against loops in double precision, its exact cases, and the other sets of
 * kernels against the plain one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/rng.h"
#include "image/resize.h"
#include "image/resize_kernels.h"
#include "test.h"

struct image {
    int width, height;
    uint8_t *rgb;
};

static struct dt_resize *resize;

static int set_up(void **state)
{
    (void)state;
    if (dt_resize_create(&resize) != DT_OK)
        return -1;
    dt_resize_use(resize, &dt_resize_plain);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    dt_resize_destroy(resize);
    return 0;
}

static struct image make_image(int width, int height)
{
    struct image image = {width, height, malloc((size_t)width * (size_t)height * 3)};
    struct dt_rng rng;
    dt_rng_init(&rng, 3, DT_RNG_SYNTHETIC, (uint32_t)width, (uint32_t)height);
    for (int i = 0; i < width * height * 3; i++)
        image.rgb[i] = (uint8_t)dt_rng_u32(&rng);
    return image;
}

static int pixel(const struct image *image, int x, int y, int c)
{
    if (x < 0 || y < 0 || x >= image->width || y >= image->height)
        return 0;
    return image->rgb[(y * image->width + x) * 3 + c];
}

/* Weight of source pixel `at` for output pixel i, not normalised. */
static double weight(double origin, double length, int size, int i, int at)
{
    double scale = length / size, stretch = scale > 1.0 ? scale : 1.0;
    double distance = fabs(at + 0.5 - (origin + (i + 0.5) * scale)) / stretch;
    return distance < 1.0 ? 1.0 - distance : 0.0;
}

static double reference(const struct image *image, const struct dt_crop *crop,
                        enum dt_resize_edge edge, int out_width, int out_height, int i, int j,
                        int c)
{
    int x0 = 0, y0 = 0, x1 = image->width, y1 = image->height;
    if (edge == DT_RESIZE_CROP) {
        x0 = (int)floorf(crop->x);
        y0 = (int)floorf(crop->y);
        x1 = (int)ceilf(crop->x + crop->w);
        y1 = (int)ceilf(crop->y + crop->h);
    }
    double total = 0.0, sum = 0.0;
    for (int y = y0; y < y1; y++) {
        double wy = weight(crop->y, crop->h, out_height, j, y);
        for (int x = x0; wy > 0.0 && x < x1; x++) {
            double w = wy * weight(crop->x, crop->w, out_width, i, x);
            total += w;
            sum += w * pixel(image, x, y, c);
        }
    }
    return sum / total;
}

/* A block of `bytes` that ends where the process may no longer read or write. */
struct guarded {
    uint8_t *map, *data;
    size_t map_bytes;
};

static struct guarded guarded_make(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct guarded block = {.map_bytes = (bytes / page + 2) * page};
    block.map =
        mmap(NULL, block.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(block.map != MAP_FAILED);
    assert_int_equal(mprotect(block.map + block.map_bytes - page, page, PROT_NONE), 0);
    block.data = block.map + block.map_bytes - page - bytes;
    return block;
}

static uint8_t *apply(const struct image *image, const struct dt_crop *crop,
                      enum dt_resize_edge edge, int out_width, int out_height)
{
    struct dt_rect need;
    assert_int_equal(dt_resize_prepare(resize, &need, crop, edge, image->width, image->height,
                                       out_width, out_height),
                     DT_OK);
    assert_true(need.x >= 0 && need.y >= 0 && need.x + need.w <= image->width &&
                need.y + need.h <= image->height);
    size_t bytes = (size_t)need.w * (size_t)need.h * 3,
           n = (size_t)out_width * (size_t)out_height * 3;
    struct guarded part = guarded_make(bytes + DT_RESIZE_PAD), out = guarded_make(n);
    for (int row = 0; row < need.h; row++)
        memcpy(part.data + row * need.w * 3,
               image->rgb + ((need.y + row) * image->width + need.x) * 3, (size_t)need.w * 3);
    memset(part.data + bytes, 0xff, DT_RESIZE_PAD);
    memset(out.map, 0x5a, (size_t)(out.data - out.map));
    dt_resize_run(resize, out.data, part.data);
    for (const uint8_t *before = out.map; before < out.data; before++)
        assert_int_equal(*before, 0x5a);
    uint8_t *dst = malloc(n);
    memcpy(dst, out.data, n);
    munmap(part.map, part.map_bytes);
    munmap(out.map, out.map_bytes);
    return dst;
}

TEST(against_reference)
{
    static const struct {
        int width, height, out_width, out_height;
        struct dt_crop crop;
        enum dt_resize_edge edge;
    } cases[] = {
        {60, 50, 16, 16, {0, 0, 60, 50, false}, DT_RESIZE_CROP},
        {60, 50, 16, 16, {0, 0, 60, 50, true}, DT_RESIZE_IMAGE},
        {60, 50, 16, 16, {7, 9, 31, 22, false}, DT_RESIZE_CROP},
        {60, 50, 16, 16, {7, 9, 31, 22, true}, DT_RESIZE_IMAGE},
        {60, 50, 16, 16, {7.3f, 9.6f, 31.25f, 22.5f, false}, DT_RESIZE_IMAGE},
        {60, 50, 40, 40, {20, 10, 9, 30, true}, DT_RESIZE_CROP},  /* one side up, one down */
        {60, 50, 40, 40, {20, 10, 5, 3, false}, DT_RESIZE_IMAGE}, /* both up */
        {60, 50, 40, 9, {7, 9, 31, 22, true}, DT_RESIZE_CROP},    /* to a rectangle */
        {60, 50, 9, 50, {0, 0, 60, 50, false}, DT_RESIZE_IMAGE},
        {60, 50, 33, 33, {59, 49, 1, 1, false}, DT_RESIZE_CROP},  /* one pixel */
        {1, 50, 12, 12, {0, 0, 1, 50, true}, DT_RESIZE_CROP},     /* a column */
        {60, 1, 12, 12, {0, 0, 60, 1, true}, DT_RESIZE_IMAGE},    /* a row */
        {60, 50, 1, 1, {0, 0, 60, 50, false}, DT_RESIZE_CROP},    /* to one pixel */
        {60, 50, 16, 16, {-4, 3, 60, 50, false}, DT_RESIZE_CROP}, /* padding left and below */
        {60, 50, 16, 16, {4, -3, 60, 50, true}, DT_RESIZE_CROP},  /* padding right and above */
        {32, 32, 32, 32, {0, 0, 32, 32, true}, DT_RESIZE_CROP},
        {32, 40, 32, 32, {0, 4, 32, 32, false}, DT_RESIZE_IMAGE},
        {4000, 3, 2, 2, {0, 0, 4000, 3, false}, DT_RESIZE_CROP}, /* weights that are mostly below */
        {3, 9000, 1, 1, {0, 0, 3, 9000, true}, DT_RESIZE_IMAGE}, /* or near the smallest one */
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct image image = make_image(cases[k].width, cases[k].height);
        int out_width = cases[k].out_width, out_height = cases[k].out_height;
        uint8_t *dst = apply(&image, &cases[k].crop, cases[k].edge, out_width, out_height);
        for (int i = 0; i < out_width * out_height * 3; i++) {
            int x = i / 3 % out_width, y = i / 3 / out_width;
            double expected =
                reference(&image, &cases[k].crop, cases[k].edge, out_width, out_height,
                          cases[k].crop.flip ? out_width - 1 - x : x, y, i % 3);
            /* Each pass rounds by up to one half, and its weights are rounded. */
            if (!(fabs(dst[i] - expected) <= 1.1))
                fail_msg("case %zu: %d instead of %g at %d,%d", k, dst[i], expected, x, y);
        }
        free(dst);
        free(image.rgb);
    }
}

/* Whole pixels at the same size: an exact copy, black where the crop leaves the image. */
TEST(copy)
{
    struct image image = make_image(32, 32);
    for (int y = -40; y <= 40; y += 4) {
        for (int x = -40; x <= 40; x += 4) {
            struct dt_crop crop = {(float)x, (float)y, 32, 32, (x + y) / 4 % 2 != 0};
            uint8_t *dst = apply(&image, &crop, DT_RESIZE_CROP, 32, 32);
            for (int i = 0; i < 32 * 32 * 3; i++) {
                int column = i / 3 % 32;
                assert_int_equal(dst[i], pixel(&image, x + (crop.flip ? 31 - column : column),
                                               y + i / 3 / 32, i % 3));
            }
            free(dst);
        }
    }
    free(image.rgb);
}

/* In evaluation an image smaller than the crop stands in a black frame with sharp edges. */
TEST(black_frame)
{
    struct image image = make_image(40, 40);
    memset(image.rgb, 255, 40 * 40 * 3);
    struct dt_crop crop = {-10, -10, 60, 60, false}; /* resized to 20, padded to 30 */
    uint8_t *dst = apply(&image, &crop, DT_RESIZE_IMAGE, 30, 30);
    for (int i = 0; i < 30 * 30; i++) {
        bool is_inside = i % 30 >= 5 && i % 30 < 25 && i / 30 >= 5 && i / 30 < 25;
        assert_int_equal(dst[i * 3], is_inside ? 255 : 0);
    }
    free(dst);
    free(image.rgb);
}

static void check_flat(int width, int height, struct dt_crop crop, int size, uint8_t value)
{
    struct image image = make_image(width, height);
    memset(image.rgb, value, (size_t)width * (size_t)height * 3);
    uint8_t *dst = apply(&image, &crop, DT_RESIZE_CROP, size, size);
    for (int i = 0; i < size * size * 3; i++)
        assert_int_equal(dst[i], value);
    free(dst);
    free(image.rgb);
}

TEST(flat_stays_flat)
{
    for (int size = 1; size < 70; size += 3) {
        check_flat(61, 47, (struct dt_crop){3, 5, 50, 40, false}, size, 255);
        check_flat(61, 47, (struct dt_crop){3, 5, 50, 40, true}, size, 1);
    }
    check_flat(30000, 2, (struct dt_crop){0, 0, 30000, 2, false}, 1, 255);
}

static int below(struct dt_rng *rng, int limit)
{
    return (int)(dt_rng_u32(rng) % (uint32_t)limit);
}

/* Crops inside, across the edge and outside; every fourth one at the size of the output. */
static struct dt_crop draw_crop(struct dt_rng *rng, enum dt_resize_edge edge, int size, int width,
                                int height)
{
    struct dt_crop crop = {
        (float)(below(rng, 2 * width) - width / 2), (float)(below(rng, 2 * height) - height / 2),
        (float)(1 + below(rng, width)), (float)(1 + below(rng, height)), below(rng, 2) == 1};
    if (below(rng, 4) == 0)
        crop.w = crop.h = (float)size;
    if (edge == DT_RESIZE_IMAGE) {
        crop.x += (float)below(rng, 8) / 8.0f;
        crop.h += (float)below(rng, 8) / 8.0f;
    }
    return crop;
}

static void check_sets_agree(const struct image *image, const struct dt_crop *crop,
                             enum dt_resize_edge edge, int size)
{
    uint8_t *expected = apply(image, crop, edge, size, size);
    for (int i = 0; dt_resize_kernels(i) != &dt_resize_plain; i++) {
        const struct dt_resize_kernels *set = dt_resize_kernels(i);
        dt_resize_use(resize, set);
        uint8_t *dst = apply(image, crop, edge, size, size);
        if (memcmp(dst, expected, (size_t)size * (size_t)size * 3) != 0)
            fail_msg("%s differs from plain: %d x %d, crop %g %g %g %g to %d", set->name,
                     image->width, image->height, crop->x, crop->y, crop->w, crop->h, size);
        free(dst);
    }
    dt_resize_use(resize, &dt_resize_plain);
    free(expected);
}

TEST(sets_agree)
{
    struct dt_rng rng;
    dt_rng_init(&rng, 5, DT_RNG_SYNTHETIC, 0, 0);
    for (int k = 0; k < 3000; k++) {
        int longest = k % 8 == 0 ? 300 : 40, size = 1 + below(&rng, k % 16 == 0 ? 230 : 45);
        struct image image = make_image(1 + below(&rng, longest), 1 + below(&rng, longest));
        enum dt_resize_edge edge = k % 2 ? DT_RESIZE_CROP : DT_RESIZE_IMAGE;
        struct dt_crop crop = draw_crop(&rng, edge, size, image.width, image.height);
        check_sets_agree(&image, &crop, edge, size);
        free(image.rgb);
    }
}

/* The sets of this machine; the plain one is the last. */
TEST(sets)
{
    int n = 0;
    for (; dt_resize_kernels(n); n++)
        print_message("kernels: %s\n", dt_resize_kernels(n)->name);
    assert_ptr_equal(dt_resize_kernels(n - 1), &dt_resize_plain);
#if defined(__x86_64__)
    assert_int_equal(n, __builtin_cpu_supports("avx2") ? 2 : 1);
#elif defined(__aarch64__)
    assert_int_equal(n, 2);
#endif
}

TEST(wrong_rectangle)
{
    struct dt_rect need;
    struct dt_crop crop = {0, 0, 0, 5, false}, nan = {0, 0, 5, NAN, false};
    assert_int_equal(dt_resize_prepare(resize, &need, &crop, DT_RESIZE_CROP, 9, 9, 4, 4),
                     DT_ERR_INTERNAL);
    assert_int_equal(dt_resize_prepare(resize, &need, &nan, DT_RESIZE_CROP, 9, 9, 4, 4),
                     DT_ERR_INTERNAL);
}

TEST_MAIN(set_up, tear_down)
