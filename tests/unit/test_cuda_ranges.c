/* The way from a bucket's segments to the threads of the update kernel: every element of every
 * segment is some thread's, and of one only. */
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_internal.h"
#include "kernels/ranges.h"
#include "test.h"

enum { MAX_SEGMENTS = 400, MAX_ELEMENTS = MAX_SEGMENTS * 64 };

/* Segments of 0, 8, 16, ... 40 elements in turn, gaps of 0, 8 or 16 between them, decay 0 or 1. */
static size_t make_segments(struct dt_segment *segments, int n)
{
    size_t at = 8;
    for (int i = 0; i < n; i++) {
        segments[i] = (struct dt_segment){.first = at,
                                          .count = 8 * (size_t)(i % 6),
                                          .decay = i % 2 ? 1.0f : 0.0f,
                                          .rate = (float)i};
        at += segments[i].count + 8 * (size_t)(i % 3);
    }
    assert_true(at <= MAX_ELEMENTS);
    return at;
}

/* Does what the threads of one launch do: visits[e] += 1 and decay[e], rate[e] = the range's. */
static void walk(const struct dt_range *ranges, int n_ranges, unsigned char *visits, float *decay,
                 float *rate)
{
    struct dt_range_table table;
    memset(&table, 0xa5, sizeof table);
    assert_true(dt_range_table_fill(&table, ranges, n_ranges));
    for (uint32_t pack = 0; pack < table.n_packs; pack++) {
        uint32_t r = dt_range_table_find(&table, pack);
        assert_true(r < table.n_ranges);
        size_t first = ((size_t)table.row[r].first + pack - table.row[r].begin) * DT_CHANNEL_PACK;
        for (size_t e = first; e < first + DT_CHANNEL_PACK; e++) {
            assert_true(e < MAX_ELEMENTS);
            visits[e]++;
            decay[e] = table.row[r].decay;
            rate[e] = table.row[r].rate;
        }
    }
}

static void check(int n_segments, int n_launches)
{
    static struct dt_segment segments[MAX_SEGMENTS];
    static unsigned char visits[MAX_ELEMENTS], wanted[MAX_ELEMENTS];
    static float decay[MAX_ELEMENTS], rate[MAX_ELEMENTS];
    struct dt_range ranges[DT_MAX_RANGES];
    int next = 0, launches = 0, n_ranges;
    size_t end = make_segments(segments, n_segments);

    memset(visits, 0, sizeof visits);
    memset(wanted, 0, sizeof wanted);
    for (; next < n_segments; launches++) {
        assert_int_equal(dt_cuda_cut_ranges(ranges, &n_ranges, segments, n_segments, &next), DT_OK);
        walk(ranges, n_ranges, visits, decay, rate);
    }
    assert_int_equal(launches, n_launches);
    for (int i = 0; i < n_segments; i++) {
        for (size_t e = segments[i].first; e < segments[i].first + segments[i].count; e++) {
            wanted[e] = 1;
            assert_true(decay[e] == segments[i].decay && rate[e] == segments[i].rate);
        }
    }
    assert_memory_equal(visits, wanted, end);
}

TEST(every_element_once)
{
    check(0, 0);
    check(1, 1); /* empty */
    check(2, 1);
    check(7, 1);
    check(DT_MAX_RANGES, 1);
    check(DT_MAX_RANGES + 1, 2);
    check(3 * DT_MAX_RANGES, 3);
    check(MAX_SEGMENTS, 4);
}

TEST(large)
{
    /* 17 G elements: the numbers of packs need 31 bits, those of elements more than 32. */
    const struct dt_range ranges[] = {{1ull << 34, 1ull << 33, 1, 1, 0, false},
                                      {1ull << 33, 1ull << 33, 0, 1, 0, false}};
    struct dt_range_table table;
    assert_true(dt_range_table_fill(&table, ranges, 2));
    assert_true(table.n_packs == 1u << 31);
    assert_int_equal(dt_range_table_find(&table, (1u << 30) - 1), 0);
    assert_int_equal(dt_range_table_find(&table, 1u << 30), 1);
    assert_int_equal(dt_range_table_find(&table, (1u << 31) - 1), 1);
    const struct dt_range too_many = {0, 1ull << 36, 1, 1, 0, false};
    assert_false(dt_range_table_fill(&table, &too_many, 1));
}

TEST(refuses)
{
    const struct dt_segment odd[] = {{0, 8, 1, 1, 0, false}, {8, 12, 1, 1, 1, false}},
                            shifted = {4, 8, 1, 1, 0, false};
    const struct dt_range odd_range = {0, 12, 1, 1, 0, false},
                          many[DT_MAX_RANGES + 1] = {{.first = 0}};
    struct dt_range ranges[DT_MAX_RANGES];
    struct dt_range_table table;
    int n_ranges, next = 0;
    assert_int_equal(dt_cuda_cut_ranges(ranges, &n_ranges, odd, 2, &next), DT_ERR_INTERNAL);
    next = 0;
    assert_int_equal(dt_cuda_cut_ranges(ranges, &n_ranges, &shifted, 1, &next), DT_ERR_INTERNAL);
    assert_false(dt_range_table_fill(&table, &odd_range, 1));
    assert_false(dt_range_table_fill(&table, many, DT_MAX_RANGES + 1));
}

TEST_MAIN(NULL, NULL)
