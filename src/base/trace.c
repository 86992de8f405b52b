#include "base/trace.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"

static struct {
    struct dt_trace_span *spans;
    int64_t capacity;
    double begin_s;
    _Atomic int64_t n_claimed;
} trace;

atomic_bool dt_trace_flag;

static _Thread_local struct {
    enum dt_trace_row row;
    int index;
} own;

dt_status dt_trace_begin(size_t n_spans)
{
    if (trace.spans)
        DT_FAIL(DT_ERR_INTERNAL, "tracing can begin only once");
    DT_TRY(DT_NEW(trace.spans, n_spans));
    trace.capacity = (int64_t)n_spans;
    trace.begin_s = dt_clock_s();
    atomic_store_explicit(&dt_trace_flag, true, memory_order_release);
    return DT_OK;
}

void dt_trace_end(void)
{
    atomic_store_explicit(&dt_trace_flag, false, memory_order_relaxed);
}

double dt_trace_begin_s(void)
{
    return trace.begin_s;
}

void dt_trace_set_row(enum dt_trace_row row, int index)
{
    own.row = row;
    own.index = index;
}

double dt_trace_now(void)
{
    return dt_trace_is_on() ? dt_clock_s() : 0;
}

void dt_trace_span(const char *name, const char *key, const char *value, double begin_s,
                   double end_s)
{
    dt_trace_add(own.row, own.index, name, key, value, begin_s, end_s);
}

void dt_trace_add(enum dt_trace_row row, int index, const char *name, const char *key,
                  const char *value, double begin_s, double end_s)
{
    if (!atomic_load_explicit(&dt_trace_flag, memory_order_acquire) || begin_s <= 0 ||
        end_s < trace.begin_s) /* it ended just before tracing began */
        return;
    int64_t i = atomic_fetch_add_explicit(&trace.n_claimed, 1, memory_order_relaxed);
    if (i >= trace.capacity)
        return;
    struct dt_trace_span *span = &trace.spans[i];
    span->name = name;
    span->key = key;
    snprintf(span->value, sizeof span->value, "%s", value ? value : "");
    span->row = row;
    span->index = index;
    span->begin_s = begin_s > trace.begin_s ? begin_s : trace.begin_s;
    span->end_s = end_s;
    atomic_store_explicit(&span->is_done, true, memory_order_release);
}

void dt_trace_list(void (*each)(void *context, const struct dt_trace_span *span), void *context)
{
    int64_t n, n_dropped;
    dt_trace_count(&n, &n_dropped);
    for (int64_t i = 0; i < n; i++)
        if (atomic_load_explicit(&trace.spans[i].is_done, memory_order_acquire))
            each(context, &trace.spans[i]);
}

void dt_trace_count(int64_t *n_spans, int64_t *n_dropped)
{
    int64_t n = atomic_load_explicit(&trace.n_claimed, memory_order_relaxed);
    *n_spans = n < trace.capacity ? n : trace.capacity;
    *n_dropped = n - *n_spans;
}
