/* How much of the time of sums is behind computing, for spans that overlap, nest and touch. */

#include "base/mem.h"
#include "base/trace.h"
#include "test.h"
#include "trace/timeline.h"

static const struct {
    enum dt_trace_row row;
    int index;
    const char *name;
    double begin_s, end_s;
} spans[] = {
    /* sums: 1 to 5, 7 to 8, 10 to 12 */
    {DT_TRACE_REDUCTION, 1, "reduction", 7, 8},
    {DT_TRACE_REDUCTION, 0, "reduction", 1, 4},
    {DT_TRACE_REDUCTION, 1, "reduction", 2, 3},
    {DT_TRACE_REDUCTION, 2, "reduction", 3.5, 5},
    {DT_TRACE_REDUCTION, 0, "reduction", 10, 12},
    /* of these computed: 1.5 to 3, 3.5 to 4.5, 11 to 11.25, 11.75 to 12 */
    {DT_TRACE_COMPUTE, 0, "conv", 0, 1},
    {DT_TRACE_COMPUTE, 0, "sync", 1, 1.5},
    {DT_TRACE_COMPUTE, 0, "conv", 1.5, 3},
    {DT_TRACE_COMPUTE, 0, "poll", 3, 3.5},
    {DT_TRACE_COMPUTE, 0, "conv_bwd_weights", 3.5, 4.5},
    {DT_TRACE_COMPUTE, 0, "wait", 4.5, 7},
    {DT_TRACE_COMPUTE, 0, "wait", 7, 8},
    {DT_TRACE_COMPUTE, 0, "update", 8, 9},
    {DT_TRACE_COMPUTE, 0, "reduce", 10, 11},
    {DT_TRACE_COMPUTE, 0, "check", 11, 11.25},
    {DT_TRACE_COMPUTE, 0, "update", 11.75, 13},
    /* another thread's, which hide nothing */
    {DT_TRACE_MAIN, 0, "step", 0, 20},
    {DT_TRACE_LOADER, 1, "decode", 7, 8},
};

TEST(overlap)
{
    struct dt_overlap overlap;
    assert_int_equal(dt_overlap_find(&overlap), DT_OK);
    assert_true(overlap.sums_s == 0 && overlap.computed_s == 0);
    assert_int_equal(dt_trace_begin(DT_COUNT(spans)), DT_OK);
    for (size_t i = 0; i < DT_COUNT(spans); i++)
        dt_trace_add(spans[i].row, spans[i].index, spans[i].name, NULL, NULL,
                     dt_trace_begin_s() + spans[i].begin_s, dt_trace_begin_s() + spans[i].end_s);
    dt_trace_end();
    assert_int_equal(dt_overlap_find(&overlap), DT_OK);
    assert_float_equal(overlap.sums_s, 7, 1e-6);
    assert_float_equal(overlap.computed_s, 3, 1e-6);
}

TEST_MAIN(NULL, NULL)
