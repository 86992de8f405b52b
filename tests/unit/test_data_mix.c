/* Colour jitter, erasing, mixup and CutMix against plain loops in double, and what is drawn for
 * them against the distributions asked for. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "data/dataset.h"
#include "data/mix.h"
#include "data/row.h"
#include "image/colour.h"
#include "test.h"

static const struct dt_config_data synthetic_data = {.source = DT_SOURCE_SYNTHETIC};

enum { SIZE = 224, BYTES = SIZE * SIZE * 3 };

static uint8_t g_a[BYTES], g_b[BYTES], g_old_a[BYTES], g_old_b[BYTES];

static size_t bytes_of(int size)
{
    return (size_t)size * (size_t)size * 3;
}

/* Smooth parts, noise, and both ends of the range. */
static void fill(uint8_t *pixels, int size, uint32_t id)
{
    uint32_t words[BYTES / 4 + 1];
    size_t n = bytes_of(size);
    dt_rng_fill(words, n / 4 + 1, 3, DT_RNG_SYNTHETIC, 0, id, 0);
    memcpy(pixels, words, n);
    for (size_t i = 0; i < n / 2; i++)
        pixels[i] = (uint8_t)(i / 3 * (i % 3 + 1) % 256);
}

static void fill_both(int size, uint32_t id)
{
    fill(g_a, size, 2 * id);
    fill(g_b, size, 2 * id + 1);
    memcpy(g_old_a, g_a, sizeof g_a);
    memcpy(g_old_b, g_b, sizeof g_b);
}

static void check_near(double value, double expected, double limit, const char *what)
{
    if (!(fabs(value - expected) <= limit))
        fail_msg("%s: %g, expected %g within %g", what, value, expected, limit);
}

/* --- Reference of the jitter --- */

static int plain_luma(const uint8_t *rgb)
{
    return (19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16;
}

static int plain_mean(const uint8_t *pixels, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i += 3)
        sum += plain_luma(pixels + i);
    return (int)(sum / (double)(n / 3) + 0.5);
}

static void plain_adjust(uint8_t *pixels, size_t n, enum dt_colour colour, double factor)
{
    int mean = plain_mean(pixels, n);
    for (size_t i = 0; i < n; i += 3) {
        int grey[DT_COLOURS] = {0, mean, plain_luma(pixels + i)};
        for (size_t k = i; k < i + 3; k++) {
            double value = grey[colour] + factor * (pixels[k] - grey[colour]);
            pixels[k] = (uint8_t)fmin(fmax(value, 0), 255);
        }
    }
}

static void plain_erase(uint8_t *pixels, const struct dt_rect *rect, const double *mean, int size)
{
    for (int i = 0; i < size * size * 3; i++) {
        int x = i / 3 % size - rect->x, y = i / 3 / size - rect->y;
        if (x >= 0 && x < rect->w && y >= 0 && y < rect->h)
            pixels[i] = (uint8_t)floor(255 * mean[i % 3] + 0.5);
    }
}

static void check_recolour(const struct dt_config_data *data, uint32_t id, int size)
{
    struct dt_colour_change drawn;
    fill_both(size, id);
    dt_colour_draw(&drawn, data, 7, 2, id, size, size);
    dt_colour_apply(g_a, 3 * (size_t)size, size, size, data, 7, 2, id);
    for (int i = 0; i < DT_COLOURS && data->color_jitter > 0; i++)
        plain_adjust(g_old_a, bytes_of(size), drawn.order[i], drawn.factors[i]);
    plain_erase(g_old_a, &drawn.erased, data->mean, size);
    for (size_t i = 0; i < bytes_of(size); i++)
        if (abs(g_a[i] - g_old_a[i]) > (data->color_jitter > 0))
            fail_msg("sample %u of size %d: byte %zu is %d, expected %d", id, size, i, g_a[i],
                     g_old_a[i]);
    /* Nothing is written after the row. */
    assert_memory_equal(g_a + bytes_of(size), g_old_a + bytes_of(size), BYTES - bytes_of(size));
}

TEST(recolour_equals_plain)
{
    static const struct dt_config_data all[] = {
        {.color_jitter = 0.4},
        {.color_jitter = 1.0},
        {.random_erasing = 1.0, .mean = {0.485, 0.456, 0.406}},
        {.color_jitter = 0.4, .random_erasing = 0.5, .mean = {1 / 255.0, 2 / 255.0, 3 / 255.0}},
    };
    static const int sizes[] = {1, 2, 7, 16, 33, SIZE};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (uint32_t id = 0; id < 12; id++)
                check_recolour(&all[k], id, sizes[s]);
}

/* --- What is drawn --- */

TEST(factors_and_orders)
{
    enum { DRAWS = 30000 };
    const struct dt_config_data data = {.color_jitter = 0.4};
    int orders[27] = {0}, n_orders = 0;
    double sum[3] = {0}, squares[3] = {0};
    for (uint32_t id = 0; id < DRAWS; id++) {
        struct dt_colour_change drawn;
        dt_colour_draw(&drawn, &data, 7, 0, id, SIZE, SIZE);
        assert_int_equal(1 << drawn.order[0] | 1 << drawn.order[1] | 1 << drawn.order[2], 7);
        orders[drawn.order[0] * 9 + drawn.order[1] * 3 + drawn.order[2]]++;
        for (int i = 0; i < 3; i++) {
            double factor = drawn.factors[i] - 1.0;
            assert_true(fabs(factor) < 0.4 + 1e-6);
            sum[i] += factor;
            squares[i] += factor * factor;
        }
    }
    for (int i = 0; i < 27; i++) {
        n_orders += orders[i] > 0;
        if (orders[i] > 0)
            check_near(orders[i], DRAWS / 6.0, 4 * sqrt(DRAWS * 5 / 36.0), "one order");
    }
    assert_int_equal(n_orders, 6);
    for (int i = 0; i < 3; i++) {
        check_near(sum[i] / DRAWS, 0, 4 * 0.4 / sqrt(3.0 * DRAWS), "mean factor");
        check_near(squares[i] / DRAWS, 0.16 / 3, 0.02 * 0.16, "its variance");
    }
}

TEST(rectangles)
{
    enum { DRAWS = 20000 };
    const struct dt_config_data data = {.random_erasing = 0.25};
    double n = 0, area = 0, log_ratio = 0;
    for (uint32_t id = 0; id < DRAWS; id++) {
        struct dt_colour_change drawn;
        dt_colour_draw(&drawn, &data, 7, 0, id, SIZE, SIZE);
        const struct dt_rect *rect = &drawn.erased;
        if (rect->w == 0)
            continue;
        double share = (double)rect->w * rect->h / (SIZE * SIZE);
        assert_true(rect->x >= 0 && rect->x + rect->w <= SIZE && rect->w < SIZE);
        assert_true(rect->y >= 0 && rect->y + rect->h <= SIZE && rect->h < SIZE);
        assert_true(share > 0.019 && share < 0.335);
        n++;
        area += share;
        log_ratio += log((double)rect->h / rect->w);
    }
    check_near(n / DRAWS, 0.25, 4 * sqrt(0.25 * 0.75 / DRAWS), "share of erased images");
    check_near(area / n, 0.175, 0.006, "mean area");
    /* log(0.3) and log(3.3) are not quite symmetric. */
    check_near(log_ratio / n, (log(0.3) + log(3.3)) / 2, 0.045, "mean log ratio");
}

TEST(pure)
{
    const struct dt_config_data data = {.color_jitter = 0.4, .random_erasing = 1, .mixup = 1};
    static const uint32_t keys[][3] = {{7, 2, 5}, {8, 2, 5}, {7, 3, 5}, {7, 2, 6}};
    float share = 0;
    for (size_t k = 0; k < 4; k++) {
        fill_both(32, 0);
        dt_colour_apply(g_a, 96, 32, 32, &data, 7, 2, 5);
        dt_colour_apply(g_b, 96, 32, 32, &data, keys[k][0], keys[k][1], keys[k][2]);
        dt_colour_apply(g_old_b, 96, 32, 32, &data, 7, 2, 5);
        assert_true((memcmp(g_b, g_old_b, bytes_of(32)) == 0) == (k == 0));
        float drawn = dt_mix_pair(g_a, g_b, &data, keys[k][0], keys[k][1], keys[k][2], 32);
        assert_true(k == 0 || drawn != share);
        share = k == 0 ? drawn : share;
        assert_true(dt_mix_pair(g_a, g_b, &data, 7, 2, 5, 32) == share);
    }
}

TEST(off_changes_nothing)
{
    const struct dt_config_data data = {.mean = {1 / 255.0, 2 / 255.0, 3 / 255.0}};
    fill_both(SIZE, 0);
    for (uint32_t id = 0; id < 10; id++) {
        dt_colour_apply(g_a, 3 * SIZE, SIZE, SIZE, &data, 7, 0, id);
        assert_true(dt_mix_pair(g_a, g_b, &data, 7, 0, id, SIZE) == 1.0f);
    }
    assert_memory_equal(g_a, g_old_a, BYTES);
    assert_memory_equal(g_b, g_old_b, BYTES);
    assert_false(dt_mix_is_on(&data));
    assert_true(dt_mix_is_on(&(struct dt_config_data){.mixup = 0.2}));
    assert_true(dt_mix_is_on(&(struct dt_config_data){.cutmix = 1}));
}

/* --- Pairs --- */

static void check_mixed(const uint8_t *row, const uint8_t *own, const uint8_t *other, double share,
                        int size)
{
    for (size_t i = 0; i < bytes_of(size); i++) {
        double exact = share * own[i] + (1 - share) * other[i];
        if (row[i] != (int)floor(exact + 0.5))
            fail_msg("byte %zu is %d, expected %g", i, row[i], exact);
    }
}

TEST(mixup_equals_plain)
{
    const struct dt_config_data data = {.mixup = 1};
    static const int sizes[] = {1, 7, 33, SIZE};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (uint32_t id = 0; id < 20; id++) {
            fill_both(sizes[s], id);
            double share = (double)dt_mix_pair(g_a, g_b, &data, 7, 1, id, sizes[s]);
            assert_true(share >= 0.5 && share <= 1 && share * 256 == floor(share * 256));
            check_mixed(g_a, g_old_a, g_old_b, share, sizes[s]);
            check_mixed(g_b, g_old_b, g_old_a, share, sizes[s]);
            assert_memory_equal(g_a + bytes_of(sizes[s]), g_old_a + bytes_of(sizes[s]),
                                BYTES - bytes_of(sizes[s]));
        }
}

/* How many pixels of row a are its own (own) or the other's, and whether they fill a rectangle. */
static int count_pixels(bool *is_rectangle, bool own, int size)
{
    int n = 0, left = size, right = -1, top = size, bottom = -1;
    for (int i = 0; i < size * size; i++) {
        if ((memcmp(g_a + 3 * i, g_old_a + 3 * i, 3) == 0) != own)
            continue;
        int x = i % size, y = i / size;
        n++;
        left = x < left ? x : left;
        right = x > right ? x : right;
        top = y < top ? y : top;
        bottom = y > bottom ? y : bottom;
    }
    *is_rectangle = n == 0 || n == (right - left + 1) * (bottom - top + 1);
    return n;
}

/* Pixels are moved whole: each pair of pixels is the old one, perhaps exchanged. */
static void check_union(int size)
{
    for (int i = 0; i < size * size * 3; i += 3) {
        bool stays = memcmp(g_a + i, g_old_a + i, 3) == 0;
        assert_memory_equal(g_a + i, (stays ? g_old_a : g_old_b) + i, 3);
        assert_memory_equal(g_b + i, (stays ? g_old_b : g_old_a) + i, 3);
    }
}

static void check_cut(uint32_t id, int size)
{
    bool in, out;
    const struct dt_config_data data = {.cutmix = 1};
    fill_both(size, id);
    for (size_t i = 0; i < BYTES; i++) /* no pixel is the same in both */
        g_b[i] = g_old_b[i] = (uint8_t)(g_a[i] + 1 + g_b[i] % 255);
    float share = dt_mix_pair(g_a, g_b, &data, 7, 1, id, size);
    check_union(size);
    int kept = count_pixels(&in, true, size), given = count_pixels(&out, false, size);
    assert_true(in || out);
    assert_true(share == (float)(kept / (double)(size * size)));
    assert_true(kept >= given);
    assert_memory_equal(g_a + bytes_of(size), g_old_a + bytes_of(size), BYTES - bytes_of(size));
    assert_memory_equal(g_b + bytes_of(size), g_old_b + bytes_of(size), BYTES - bytes_of(size));
}

TEST(cutmix_moves_rectangles)
{
    static const int sizes[] = {1, 2, 7, 33, SIZE};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (uint32_t id = 0; id < 40; id++)
            check_cut(id, sizes[s]);
}

/* Mean share of the other image over draws, of mixup: the mean of min(l, 1 - l) of Beta(a, a) is
 * 1/2 - 4^-a / (a B(a, a)). */
static void check_mixup_mean(double alpha)
{
    enum { DRAWS = 20000 };
    const struct dt_config_data data = {.mixup = alpha};
    double log_beta = 2 * lgamma(alpha) - lgamma(2 * alpha);
    double expected = 0.5 - exp(-alpha * log(4) - log_beta) / alpha;
    double sum = 0;
    uint8_t a[3] = {0}, b[3] = {0};
    for (uint32_t id = 0; id < DRAWS; id++)
        sum += 1 - (double)dt_mix_pair(a, b, &data, 7, 0, id, 1);
    check_near(sum / DRAWS, expected, 4 * 0.17 / sqrt(DRAWS), "mean share of the other");
}

TEST(mixup_shares)
{
    check_mixup_mean(0.2); /* 0.092 */
    check_mixup_mean(1);   /* 0.25 */
    check_mixup_mean(100);
    check_mixup_mean(1e-6);
}

/* With both on a pair gets one of them. Black and white: grey pixels are mixup's. */
TEST(one_of_both)
{
    enum { DRAWS = 2000, SMALL = 16 };
    const struct dt_config_data data = {.mixup = 1, .cutmix = 1};
    int n_mixed = 0, n_cut = 0;
    for (uint32_t id = 0; id < DRAWS; id++) {
        memset(g_a, 0, bytes_of(SMALL));
        memset(g_b, 255, bytes_of(SMALL));
        if (dt_mix_pair(g_a, g_b, &data, 7, 0, id, SMALL) == 1.0f)
            continue;
        n_mixed += g_a[0] != 0 && g_a[0] != 255;
        n_cut += g_a[0] == 0 || g_a[0] == 255;
    }
    /* 1 in 256 mixups and 1 in 64 CutMixes (a rectangle of less than 2 pixels) change nothing. */
    check_near(n_mixed, DRAWS / 2.0, 4 * sqrt(DRAWS / 4.0), "pairs mixed");
    check_near(n_cut, DRAWS / 2.0 * 63 / 64, 4 * sqrt(DRAWS / 4.0), "pairs cut");
}

/* --- Where it is called --- */

static void read_row(uint8_t *pixels, const struct dt_dataset *dataset, bool train,
                     const struct dt_config_data *data)
{
    struct dt_row_reader *reader;
    struct dt_crop crop;
    const struct dt_loader_options options = {
        .train = train, .data = data, .canvases = {{{32, 32}}, 1}, .seed = 7};
    assert_int_equal(dt_row_reader_create(&reader, dataset, &options), DT_OK);
    assert_int_equal(dt_row_read(reader, pixels, &crop, 3, 5), DT_OK);
    dt_row_reader_destroy(reader);
}

TEST(rows_are_recoloured)
{
    const struct dt_config_data off = {0}, on = {.color_jitter = 0.4, .random_erasing = 1};
    const struct dt_dataset_options options = {.data = &synthetic_data,
                                               .num_classes = 10,
                                               .synthetic_images = 10,
                                               .canvases = {{{32, 32}}, 1},
                                               .seed = 1};
    struct dt_dataset *dataset;
    assert_int_equal(dt_dataset_open(&dataset, &options), DT_OK);
    read_row(g_old_a, dataset, true, &off);
    read_row(g_a, dataset, false, &on);
    assert_memory_equal(g_a, g_old_a, bytes_of(32));
    read_row(g_a, dataset, true, &on);
    assert_memory_not_equal(g_a, g_old_a, bytes_of(32));
    dt_colour_apply(g_old_a, 96, 32, 32, &on, 7, 3, 5);
    assert_memory_equal(g_a, g_old_a, bytes_of(32));
    dt_dataset_close(dataset);
}

TEST_MAIN(NULL, NULL)
