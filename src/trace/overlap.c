/* A sum is hidden while the rank's compute row is in an action that is no communication. With R
 * the times of sums and C those of computing, |R and C| = |R| + |C| - |R or C|. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sort.h"
#include "base/trace.h"
#include "trace/timeline.h"

struct times {
    bool of_sums; /* or of computing */
    double *begin_s, *end_s;
    size_t n;
};

static bool is_computing(const struct dt_trace_span *span)
{
    static const char *const communication[] = {"reduce", "wait", "poll", "sync"};
    for (size_t i = 0; i < DT_COUNT(communication); i++)
        if (strcmp(span->name, communication[i]) == 0)
            return false;
    return span->row == DT_TRACE_COMPUTE;
}

static void add(void *context, const struct dt_trace_span *span)
{
    struct times *times = context;
    if (times->of_sums ? span->row != DT_TRACE_REDUCTION : !is_computing(span))
        return;
    times->begin_s[times->n] = span->begin_s;
    times->end_s[times->n++] = span->end_s;
}

/* Time covered by at least one span. Before a gap, as many spans have ended as have begun. */
static double covered_s(double *begin_s, double *end_s, size_t n)
{
    double sum_s = 0;
    dt_sort_f64(begin_s, n);
    dt_sort_f64(end_s, n);
    for (size_t i = 0; i < n; i++)
        sum_s += end_s[i] - (i > 0 ? fmax(begin_s[i], end_s[i - 1]) : begin_s[i]);
    return sum_s;
}

dt_status dt_overlap_find(struct dt_overlap *out)
{
    dt_status status = DT_OK;
    struct times times = {.of_sums = true};
    int64_t n_spans, n_dropped;
    dt_trace_count(&n_spans, &n_dropped);
    DT_TRY_OUT(DT_NEW(times.begin_s, (size_t)n_spans));
    DT_TRY_OUT(DT_NEW(times.end_s, (size_t)n_spans));
    dt_trace_list(add, &times);
    const size_t n_sums = times.n;
    times.of_sums = false;
    dt_trace_list(add, &times);
    out->sums_s = covered_s(times.begin_s, times.end_s, n_sums);
    const double computing_s =
        covered_s(times.begin_s + n_sums, times.end_s + n_sums, times.n - n_sums);
    const double both_s =
        out->sums_s + computing_s - covered_s(times.begin_s, times.end_s, times.n);
    out->computed_s = fmin(fmax(both_s, 0), out->sums_s); /* rounding */
out:
    free(times.begin_s);
    free(times.end_s);
    return status;
}
