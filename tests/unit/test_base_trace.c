/* The recorder of timelines: nothing is recorded before and after, threads record into their own
 * rows at once, a full block drops and counts. */
#include <stdlib.h>
#include <string.h>

#include <pthread.h>

#include "base/clock.h"
#include "base/trace.h"
#include "test.h"

enum { THREADS = 4, PER_THREAD = 1000, CAPACITY = THREADS * PER_THREAD };

struct seen {
    int per_lane[THREADS], n;
    struct dt_trace_span last;
};

static void see(void *context, const struct dt_trace_span *span)
{
    struct seen *seen = context;
    assert_true(span->end_s >= span->begin_s && span->begin_s >= dt_trace_begin_s());
    assert_in_range(span->index, 0, THREADS - 1);
    seen->per_lane[span->index] += span->row == DT_TRACE_LOADER;
    seen->n++;
    memcpy(&seen->last, span, sizeof seen->last);
}

static void *record(void *argument)
{
    int index = *(int *)argument;
    dt_trace_set_row(DT_TRACE_LOADER, index);
    for (int i = 0; i < PER_THREAD; i++) {
        double begin_s = dt_trace_now();
        dt_trace_span("row", NULL, NULL, begin_s, dt_trace_now());
    }
    return NULL;
}

TEST(off)
{
    struct seen seen = {0};
    assert_false(dt_trace_is_on());
    assert_true(dt_trace_now() == 0);
    dt_trace_span("row", NULL, NULL, 1, 2);
    dt_trace_list(see, &seen);
    assert_int_equal(seen.n, 0);
}

TEST(threads)
{
    struct seen seen = {0};
    pthread_t threads[THREADS];
    int index[THREADS];
    int64_t n, n_dropped;
    char text[2 * DT_TRACE_VALUE];
    assert_int_equal(dt_trace_begin(CAPACITY + 2), DT_OK);
    assert_int_equal(dt_trace_begin(1), DT_ERR_INTERNAL);
    for (int i = 0; i < THREADS; i++) {
        index[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, record, &index[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    dt_trace_span("before", NULL, NULL, 0, dt_clock_s());     /* it began when tracing was off */
    dt_trace_span("over", NULL, NULL, 1e-9, 2e-9);            /* it ended before tracing began */
    dt_trace_span("clipped", NULL, NULL, 1e-9, dt_clock_s()); /* it began before tracing did */
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    dt_trace_span("long", "layer", text, dt_trace_begin_s(), dt_trace_now());
    dt_trace_span("dropped", NULL, NULL, dt_trace_begin_s(), dt_trace_now());
    dt_trace_end();
    dt_trace_span("after", NULL, NULL, dt_clock_s(), dt_clock_s());
    dt_trace_count(&n, &n_dropped);
    assert_int_equal(n, CAPACITY + 2);
    assert_int_equal(n_dropped, 1);
    dt_trace_list(see, &seen);
    assert_int_equal(seen.n, CAPACITY + 2);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(seen.per_lane[i], PER_THREAD);
    assert_string_equal(seen.last.name, "long");
    assert_int_equal(seen.last.row, DT_TRACE_MAIN);
    assert_int_equal(strlen(seen.last.value), DT_TRACE_VALUE - 1);
}

TEST_MAIN(NULL, NULL)
