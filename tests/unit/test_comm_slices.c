/* The tree of additions over slices: the parts of ranks, joined in their order, give the bits of a
 * recursion over the whole tree, for all numbers of slices and ranks; other orders do not. */
#include <stdlib.h>

#include "dtrain/split.h"
#include "test.h"

enum { MAX = 67 };

static float values[DT_MAX_SLICES];

/* The node of level `level` that begins at `begin`. */
static float sum_node(int level, int begin, int n_slices)
{
    if (level == 0)
        return values[begin];
    const int middle = begin + (1 << (level - 1));
    const float left = sum_node(level - 1, begin, n_slices);
    return middle < n_slices ? left + sum_node(level - 1, middle, n_slices) : left;
}

static float expected_of(int n_slices)
{
    int level = 0;
    while (1 << level < n_slices)
        level++;
    return sum_node(level, 0, n_slices);
}

static void add(struct dt_slice_parts *parts, float *sums, int begin, int end, float value,
                int n_slices)
{
    sums[parts->n] = value;
    dt_slices_add(parts, begin, end);
    while (dt_slices_join(parts, n_slices))
        sums[parts->n - 1] += sums[parts->n];
}

static float sum_on_ranks(int n_slices, int n_ranks)
{
    struct dt_slice_parts all = {0};
    float all_sums[DT_SLICE_PARTS];
    for (int r = 0; r < n_ranks; r++) {
        struct dt_slice_parts own = {0};
        float sums[DT_SLICE_PARTS];
        const int begin = dt_slices_first(n_slices, 1, n_ranks, r);
        const int end = dt_slices_first(n_slices, 1, n_ranks, r + 1);
        int max, n_max = 0;
        const struct dt_slice_parts parts = dt_slices_of(n_slices, begin, end, &max);
        for (int s = begin; s < end; s++) {
            add(&own, sums, s, s + 1, values[s], n_slices);
            n_max = own.n > n_max ? own.n : n_max;
        }
        assert_true(own.n == parts.n && n_max == max && max < DT_SLICE_PARTS);
        for (int p = 0; p < own.n; p++)
            add(&all, all_sums, own.part[p].begin, own.part[p].end, sums[p], n_slices);
    }
    assert_true(all.n == 1 && all.part[0].begin == 0 && all.part[0].end == n_slices);
    return all_sums[0];
}

static void set_values(int n)
{
    for (int i = 0; i < n; i++)
        values[i] = 1.0F / (float)(3 + 7 * (i * 31 % 101));
}

TEST(every_rank_count)
{
    set_values(MAX);
    for (int n_slices = 1; n_slices <= MAX; n_slices++) {
        const float expected = expected_of(n_slices);
        for (int n_ranks = 1; n_ranks <= n_slices; n_ranks++)
            assert_true(sum_on_ranks(n_slices, n_ranks) == expected);
    }
    set_values(DT_MAX_SLICES);
    for (int n_ranks = 1; n_ranks < DT_MAX_SLICES; n_ranks = n_ranks * 3 + 1)
        assert_true(sum_on_ranks(DT_MAX_SLICES, n_ranks) == expected_of(DT_MAX_SLICES));
}

/* One by one is another order: the test would find it. */
TEST(other_order)
{
    float sum = 0;
    set_values(MAX);
    for (int i = 0; i < MAX; i++)
        sum += values[i];
    assert_true(sum != expected_of(MAX));
}

/* A part where each rank has a power of two of slices, and at most two per level elsewhere. */
TEST(parts)
{
    int max;
    assert_int_equal(dt_slices_of(16, 4, 8, &max).n, 1);
    assert_int_equal(max, 2);
    assert_int_equal(dt_slices_of(16, 5, 10, &max).n, 3);
    assert_int_equal(dt_slices_of(5, 4, 5, &max).n, 1);
    assert_int_equal(dt_slices_of(7, 4, 7, &max).n, 1); /* all that are left */
    assert_int_equal(dt_slices_of(4096, 1, 4095, &max).n, 22);
}

/* Ranks follow each other; each has slices, those of whole groups or of a part of one. */
TEST(groups)
{
    static const int cases[][2] = {{12, 1}, {12, 4}, {16, 4}, {16, 16}, {35, 5}, {4096, 64}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int n_slices = cases[c][0], group = cases[c][1];
        for (int n = 1; n <= n_slices; n++) {
            assert_int_equal(dt_slices_first(n_slices, group, n, 0), 0);
            assert_int_equal(dt_slices_first(n_slices, group, n, n), n_slices);
            for (int r = 0; r < n; r++) {
                const int begin = dt_slices_first(n_slices, group, n, r);
                const int end = dt_slices_first(n_slices, group, n, r + 1);
                assert_true(begin < end);
                assert_true((begin % group == 0 && end % group == 0) ||
                            begin / group == (end - 1) / group);
            }
        }
    }
}

TEST_MAIN(NULL, NULL)
