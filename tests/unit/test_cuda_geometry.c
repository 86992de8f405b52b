/* Launch geometry: every row and every group of channels is taken exactly once, the limits of the
 * hardware hold, and the count of a block's rows, which statistics rest on, is right. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/geometry.h"
#include "test.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Limits of sm_70 and newer. */
enum { MAX_THREADS = 1024, MAX_GRID_Y = 65535 };

/* Pixels along a side and channels of every activation of ResNet-50 that is normalised. */
static const struct {
    int size, channels;
} RESNET50[] = {{112, 64}, {56, 64},  {56, 128},  {56, 256}, {28, 128}, {28, 256},
                {28, 512}, {14, 256}, {14, 1024}, {14, 512}, {7, 512},  {7, 2048}};

static size_t resnet50_rows(size_t i, int batch)
{
    return (size_t)batch * (size_t)RESNET50[i].size * (size_t)RESNET50[i].size;
}

static bool is_power_of_two(unsigned x)
{
    return x > 0 && (x & (x - 1)) == 0;
}

static void check_bounds_of(struct dt_geometry g, size_t rows, int cp, unsigned n_threads)
{
    unsigned groups = (unsigned)cp / DT_CHANNEL_PACK;
    assert_true(is_power_of_two(g.block_x) && g.block_x <= 32);
    assert_int_equal(g.block_x * g.block_y, n_threads);
    assert_in_range(g.block_x * g.block_y, 32, MAX_THREADS);
    assert_in_range(g.grid_y, 1, MAX_GRID_Y);
    assert_true(g.grid_x * g.grid_y * n_threads <= DT_MAX_BLOCKS * DT_BLOCK_THREADS ||
                g.grid_y == 1);
    /* Groups: the last block has one, the blocks have all. */
    assert_true((g.grid_x - 1) * g.block_x < groups && groups <= g.grid_x * g.block_x);
    /* Rows: the first row of the last block exists; threads are not left with too little. */
    assert_true((size_t)(g.grid_y - 1) * g.block_y < rows);
    if (g.grid_y > 1)
        assert_true((size_t)(g.grid_y - 1) * g.block_y * DT_MIN_ROWS_PER_THREAD < rows);
}

/* Properties for any rows and cp; cheap. */
static void check_bounds(size_t rows, int cp)
{
    const struct dt_geometry g = dt_channel_geometry(rows, cp), sums = dt_sums_geometry(rows, cp);
    check_bounds_of(g, rows, cp, DT_BLOCK_THREADS);
    check_bounds_of(sums, rows, cp, DT_SUM_THREADS);
    assert_true(sums.block_x <= 8);
    assert_int_equal(dt_channel_partial_bytes(rows, cp, 1), g.grid_y * (size_t)cp * sizeof(float));
    assert_int_equal(dt_sums_partial_bytes(rows, cp, 2),
                     sums.grid_y * 2 * (size_t)cp * sizeof(float));
}

/* Walks as the kernels do and counts. */
static void check_cover_of(struct dt_geometry g, size_t rows, int cp)
{
    uint8_t *n_row = calloc(rows, 1), *n_group = calloc((size_t)cp / DT_CHANNEL_PACK, 1);
    assert_non_null(n_row);
    assert_non_null(n_group);
    for (unsigned b = 0; b < g.grid_y; b++) {
        size_t n_block = 0;
        for (unsigned y = 0; y < g.block_y; y++) {
            for (size_t r = (size_t)b * g.block_y + y; r < rows; r += g.grid_y * g.block_y) {
                n_row[r]++;
                n_block++;
            }
        }
        assert_true(n_block > 0);
        assert_int_equal(dt_channel_block_rows((unsigned)rows, b, g.grid_y, g.block_y), n_block);
    }
    for (unsigned x = 0; x < g.grid_x * g.block_x; x++) {
        if ((int)x * DT_CHANNEL_PACK < cp)
            n_group[x]++;
    }
    bool once = true;
    for (size_t r = 0; r < rows; r++)
        once = once && n_row[r] == 1;
    for (int i = 0; i < cp / DT_CHANNEL_PACK; i++)
        once = once && n_group[i] == 1;
    assert_true(once);
    free(n_row);
    free(n_group);
}

static void check_cover(size_t rows, int cp)
{
    check_cover_of(dt_channel_geometry(rows, cp), rows, cp);
    check_cover_of(dt_sums_geometry(rows, cp), rows, cp);
}

/* With cuts, every row is taken once too, and parts are in order. */
static void check_cuts(size_t rows, int cp)
{
    struct dt_geometry g = dt_channel_geometry(rows, cp);
    unsigned cuts = dt_channel_cuts(rows, g), n_blocks = g.grid_y * cuts, end = 0;
    uint8_t *n_row = calloc(rows, 1);
    assert_non_null(n_row);
    assert_in_range(cuts, 1, DT_MAX_CUTS);
    assert_true(n_blocks <= MAX_GRID_Y);
    for (unsigned b = 0; b < n_blocks; b++) {
        const struct dt_cut cut = dt_channel_cut((unsigned)rows, b, n_blocks, cuts);
        assert_int_equal(cut.n_blocks, g.grid_y);
        assert_int_equal(cut.begin, b % g.grid_y == 0 ? end : cut.begin);
        assert_true(cut.begin < cut.end && cut.end <= rows);
        end = cut.end;
        for (unsigned y = 0; y < g.block_y; y++)
            for (size_t r = (size_t)cut.begin + cut.block * g.block_y + y; r < cut.end;
                 r += cut.n_blocks * g.block_y)
                n_row[r]++;
    }
    assert_int_equal(end, rows);
    bool once = true;
    for (size_t r = 0; r < rows; r++)
        once = once && n_row[r] == 1;
    assert_true(once);
    free(n_row);
}

TEST(resnet50)
{
    for (size_t i = 0; i < COUNT(RESNET50); i++) {
        for (int batch = 1; batch <= 400; batch++)
            check_bounds(resnet50_rows(i, batch), RESNET50[i].channels);
        for (int batch = 1; batch <= 400; batch = batch * 3 + 1)
            check_cover(resnet50_rows(i, batch), RESNET50[i].channels);
        check_cuts(resnet50_rows(i, 3), RESNET50[i].channels);
        check_cuts(resnet50_rows(i, 64), RESNET50[i].channels);
    }
    check_cover(resnet50_rows(0, 256), 64);
    check_cover(resnet50_rows(COUNT(RESNET50) - 1, 400), 2048);
}

/* A batch that is worth a large GPU fills it, with no thread left without channels. */
TEST(resnet50_fills_the_gpu)
{
    for (size_t i = 0; i < COUNT(RESNET50); i++) {
        struct dt_geometry g = dt_channel_geometry(resnet50_rows(i, 256), RESNET50[i].channels);
        assert_int_equal(g.grid_x * g.grid_y, DT_MAX_BLOCKS);
        assert_int_equal(g.grid_x * g.block_x * DT_CHANNEL_PACK, RESNET50[i].channels);
        /* In the large layers NCCL waits for a quarter of a kernel. */
        if (RESNET50[i].size >= 28)
            assert_int_equal(dt_channel_cuts(resnet50_rows(i, 256), g), DT_MAX_CUTS);
        const struct dt_geometry sums =
            dt_sums_geometry(resnet50_rows(i, 256), RESNET50[i].channels);
        assert_in_range(sums.grid_x * sums.grid_y, 256, 264);
        assert_int_equal(sums.grid_x * sums.block_x * DT_CHANNEL_PACK, RESNET50[i].channels);
        /* What a last block reads. */
        assert_true(dt_sums_partial_bytes(resnet50_rows(i, 256), RESNET50[i].channels, 2) /
                        sums.grid_x <=
                    264 * 512);
    }
}

TEST(odd_shapes)
{
    static const int cps[] = {8,   16,  24,  32,  40,  48,  56,   64,   72,   96,   104,
                              192, 264, 288, 320, 384, 768, 1000, 1032, 1536, 4096, 9216};
    static const size_t rows[] = {1,    2,     3,     7,     8,     9,     31,     32,    33,
                                  255,  256,   257,   1023,  1024,  1025,  4095,   4096,  4097,
                                  9999, 16895, 16896, 16897, 67584, 67585, 135169, 540673};
    for (size_t i = 0; i < COUNT(cps); i++) {
        for (size_t k = 0; k < COUNT(rows); k++) {
            check_bounds(rows[k], cps[i]);
            check_cover(rows[k], cps[i]);
            check_cuts(rows[k], cps[i]);
        }
        check_bounds(INT32_MAX, cps[i]);
    }
    check_bounds(1, 8 * DT_CHANNEL_PACK * 32 *
                        DT_MAX_BLOCKS); /* more blocks side by side than usual */
}

/* The blocks of every image are as many, and not too many together. */
TEST(images)
{
    static const int n[] = {1, 16, 373, 1338, MAX_GRID_Y};
    for (size_t i = 0; i < COUNT(n); i++) {
        const struct dt_geometry g = dt_images_geometry(dt_channel_geometry(150 * 150, 40), n[i]);
        assert_in_range(g.grid_y, (unsigned)n[i], MAX_GRID_Y);
        assert_int_equal(g.grid_y % (unsigned)n[i], 0);
    }
}

TEST(idle_threads)
{
    /* 12 groups: three times 4 side by side, rather than 16 with a quarter of them idle. */
    struct dt_geometry g = dt_channel_geometry(100000, 96);
    assert_int_equal(g.block_x, 4);
    assert_int_equal(g.grid_x, 3);
    /* 24: three times 8. 3: rather one idle than reading 16 bytes of a row at a time. */
    g = dt_channel_geometry(100000, 192);
    assert_int_equal(g.block_x, 8);
    assert_int_equal(g.grid_x, 3);
    g = dt_channel_geometry(100000, 24);
    assert_int_equal(g.block_x, 4);
    assert_int_equal(g.grid_x, 1);
}

/* The threads of a row hold all its channels, and most of them have some. */
TEST(whole_rows)
{
    for (int cp = 8; cp <= DT_ROW_CHANNELS; cp += 8) {
        for (size_t rows = 1; rows < 1000000; rows = rows * 3 + 1) {
            const struct dt_geometry g = dt_whole_rows_geometry(rows, cp);
            assert_true(is_power_of_two(g.block_x) && g.block_x * g.block_y == DT_BLOCK_THREADS);
            assert_true(g.block_x * DT_ROW_PACKS * DT_CHANNEL_PACK >= (unsigned)cp);
            assert_true(g.block_x == 1 ||
                        g.block_x * DT_ROW_PACKS * DT_CHANNEL_PACK < 2 * (unsigned)cp);
            assert_true(g.grid_x == 1 && g.grid_y >= 1 && g.grid_y <= DT_MAX_BLOCKS);
            assert_true((size_t)(g.grid_y - 1) * g.block_y < rows);
        }
    }
}

TEST(flat)
{
    static const size_t groups[] = {1, 2, 255, 256, 257, 511, 512, 513, 100000, (size_t)1 << 33};
    assert_int_equal(dt_flat_geometry(0).grid_x, 0);
    for (size_t i = 0; i < COUNT(groups); i++) {
        struct dt_geometry g = dt_flat_geometry(groups[i] * DT_CHANNEL_PACK);
        assert_int_equal(g.block_x, DT_BLOCK_THREADS);
        assert_int_equal(g.grid_y * g.block_y, 1);
        assert_true(g.grid_x <= INT32_MAX);
        assert_true((size_t)g.grid_x * g.block_x >= groups[i]);
        assert_true((size_t)(g.grid_x - 1) * g.block_x < groups[i]);
    }
}

TEST_MAIN(NULL, NULL)
