/* Crops: inside their bounds, pure, distributed as asked, and torchvision's numbers for evaluation.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dtrain/data.h"
#include "test.h"

static struct dt_crop draw(enum dt_augment augment, uint64_t seed, uint32_t epoch, uint32_t id,
                           int width, int height)
{
    struct dt_crop crop;
    const struct dt_config_data data = {.augment = augment};
    dt_crop_draw(&crop, &data, true, seed, epoch, id, width, height, 224);
    return crop;
}

static bool is_same(struct dt_crop a, struct dt_crop b)
{
    return a.x == b.x && a.y == b.y && a.w == b.w && a.h == b.h && a.flip == b.flip;
}

static void check_inside(const struct dt_crop *crop, int width, int height)
{
    assert_true(crop->x == floorf(crop->x) && crop->y == floorf(crop->y));
    assert_true(crop->w == floorf(crop->w) && crop->h == floorf(crop->h));
    assert_true(crop->w >= 1.0f && crop->h >= 1.0f && crop->x >= 0.0f && crop->y >= 0.0f);
    assert_true(crop->x + crop->w <= (float)width && crop->y + crop->h <= (float)height);
}

TEST(bounds)
{
    static const int sizes[][2] = {{500, 375},  {375, 500}, {64, 64},     {1, 1},
                                   {2, 1},      {1, 300},   {300, 1},     {7, 5},
                                   {4000, 300}, {3, 90},    {65500, 1500}};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        for (uint32_t id = 0; id < 500; id++) {
            struct dt_crop crop = draw(DT_AUGMENT_IMAGENET, 1, 0, id, sizes[k][0], sizes[k][1]);
            check_inside(&crop, sizes[k][0], sizes[k][1]);
        }
    }
}

TEST(pure)
{
    const enum dt_augment kinds[] = {DT_AUGMENT_IMAGENET, DT_AUGMENT_CIFAR};
    for (size_t k = 0; k < 2; k++) {
        int n_seed = 0, n_epoch = 0, n_id = 0;
        for (uint32_t id = 0; id < 1000; id++) {
            struct dt_crop crop = draw(kinds[k], 7, 3, id, 500, 375);
            assert_true(is_same(crop, draw(kinds[k], 7, 3, id, 500, 375)));
            n_seed += is_same(crop, draw(kinds[k], 8, 3, id, 500, 375));
            n_epoch += is_same(crop, draw(kinds[k], 7, 4, id, 500, 375));
            n_id += is_same(crop, draw(kinds[k], 7, 3, id + 1, 500, 375));
        }
        /* CIFAR has 162 outcomes, so about 6 of 1000 agree by chance. */
        assert_true(n_seed < 25 && n_epoch < 25 && n_id < 25);
    }
}

static void check_rate(int n, int total, double expected)
{
    double sigma = sqrt(expected * (1.0 - expected) / total);
    double rate = (double)n / total;
    if (fabs(rate - expected) > 4.0 * sigma)
        fail_msg("%d of %d, expected a share of %g", n, total, expected);
}

/* On a square, no draw of an area below one half is rejected, so there the area is uniform and the
 * logarithm of the ratio too. */
TEST(distribution)
{
    enum { N = 20000, SIDE = 2000 };
    int n_flip = 0, n_small = 0, n_lower = 0, n_narrow = 0, n_tall = 0, n_left = 0;
    for (uint32_t id = 0; id < N; id++) {
        struct dt_crop crop = draw(DT_AUGMENT_IMAGENET, 11, 2, id, SIDE, SIDE);
        double area = (double)crop.w * crop.h / (SIDE * (double)SIDE),
               ratio = (double)crop.w / crop.h;
        assert_true(area > 0.0795 && area <= 1.0);
        assert_true(ratio > 0.748 && ratio < 1.336);
        n_flip += crop.flip;
        if (area >= 0.5)
            continue;
        n_small++;
        n_lower += area < 0.29;
        n_tall += ratio < 1.0;
        n_narrow += log(ratio) < 0.5 * log(0.75);
        n_left += crop.x < (SIDE - crop.w) / 2.0f;
    }
    check_rate(n_flip, N, 0.5);
    check_rate(n_lower, n_small, 0.5);
    check_rate(n_tall, n_small, 0.5);
    check_rate(n_narrow, n_small, 0.25);
    check_rate(n_left, n_small, 0.5);
}

TEST(fallback)
{
    struct dt_crop crop = draw(DT_AUGMENT_IMAGENET, 1, 0, 0, 6000, 30);
    assert_true(crop.w == 40.0f && crop.h == 30.0f && crop.x == 2980.0f && crop.y == 0.0f);
    crop = draw(DT_AUGMENT_IMAGENET, 1, 0, 0, 30, 6000);
    assert_true(crop.w == 30.0f && crop.h == 40.0f && crop.x == 0.0f && crop.y == 2980.0f);
}

TEST(cifar)
{
    enum { N = 20000 };
    int counts[2][9] = {{0}}, n_flip = 0;
    for (uint32_t id = 0; id < N; id++) {
        struct dt_crop crop = draw(DT_AUGMENT_CIFAR, 5, 1, id, 32, 32);
        assert_true(crop.w == 32.0f && crop.h == 32.0f);
        assert_true(crop.x >= -4.0f && crop.x <= 4.0f && crop.x == floorf(crop.x));
        assert_true(crop.y >= -4.0f && crop.y <= 4.0f && crop.y == floorf(crop.y));
        counts[0][(int)crop.x + 4]++;
        counts[1][(int)crop.y + 4]++;
        n_flip += crop.flip;
    }
    for (int i = 0; i < 18; i++)
        check_rate(counts[i / 9][i % 9], N, 1.0 / 9.0);
    check_rate(n_flip, N, 0.5);
}

/* Worked by hand from torchvision's Resize and CenterCrop. */
TEST(evaluation)
{
    static const struct {
        int width, height, size, resize;
        double x, y, w, h;
    } cases[] = {
        {500, 375, 224, 256, 58 * 500.0 / 341, 16 * 375.0 / 256, 224 * 500.0 / 341,
         224 * 375.0 / 256},
        {375, 500, 224, 256, 16 * 375.0 / 256, 58 * 500.0 / 341, 224 * 375.0 / 256,
         224 * 500.0 / 341},
        {256, 256, 224, 256, 16, 16, 224, 224},
        {32, 32, 32, 32, 0, 0, 32, 32},
        {256, 259, 224, 256, 16, 18, 224, 224}, /* 17.5 rounds to even */
        {64, 64, 48, 32, -16, -16, 96, 96},     /* resized below the crop: padded */
    };
    const enum dt_augment kinds[] = {DT_AUGMENT_NONE, DT_AUGMENT_IMAGENET, DT_AUGMENT_CIFAR};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        for (int a = 0; a < 4; a++) { /* the fourth: no augmentation while training */
            struct dt_crop crop;
            const struct dt_config_data data = {.augment = kinds[a % 3],
                                                .val_resize = cases[k].resize};
            dt_crop_draw(&crop, &data, a == 3, 1, 2, 3, cases[k].width, cases[k].height,
                         cases[k].size);
            assert_false(crop.flip);
            assert_true(fabs(crop.x - cases[k].x) < 1e-4 && fabs(crop.y - cases[k].y) < 1e-4);
            assert_true(fabs(crop.w - cases[k].w) < 1e-4 && fabs(crop.h - cases[k].h) < 1e-4);
        }
    }
}

TEST_MAIN(NULL, NULL)
