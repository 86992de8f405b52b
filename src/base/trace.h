/* Spans of time for a timeline of this process: what each thread did from when to when. Tracing
 * begins once per process and ends once. Before and after, each call costs one relaxed load.
 *
 * All threads claim records of one block with an atomic counter. A full block drops further spans
 * and counts them. The block is kept until the process ends, because a thread may still be
 * recording when tracing ends. */
#ifndef DTRAIN_BASE_TRACE_H
#define DTRAIN_BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A row of the timeline. Spans of one row nest; those of different rows may overlap. */
#define DT_TRACE_ROW_LIST(ONE, SEVERAL)      \
    ONE(MAIN, "main thread")                 \
    ONE(COMPUTE, "compute")                  \
    SEVERAL(REDUCTION, "reduction")          \
    SEVERAL(LOADER, "loader")                \
    SEVERAL(VAL_LOADER, "validation loader") \
    ONE(WRITER, "checkpoint writer")
#define DT_TRACE_ID(id, name) DT_TRACE_##id,
enum dt_trace_row { DT_TRACE_ROW_LIST(DT_TRACE_ID, DT_TRACE_ID) DT_N_TRACE_ROWS };
#undef DT_TRACE_ID

enum { DT_TRACE_VALUE = 40 };

struct dt_trace_span {
    const char *name, *key;     /* literals; key: NULL or what `value` is, "layer" */
    char value[DT_TRACE_VALUE]; /* truncated if longer */
    enum dt_trace_row row;
    int index;             /* of several such rows: "loader 3" */
    double begin_s, end_s; /* dt_clock_s */
    atomic_bool is_done;
};

/* Main thread. `begin` allocates; DT_ERR_MEMORY, or DT_ERR_INTERNAL if tracing has begun before.
 * `end` does nothing if it has not. */
dt_status dt_trace_begin(size_t n_spans);
void dt_trace_end(void);
/* After the end: calls `each` for every span, in the order in which they ended. */
void dt_trace_list(void (*each)(void *context, const struct dt_trace_span *span), void *context);
void dt_trace_count(int64_t *n_spans, int64_t *n_dropped);
double dt_trace_begin_s(void);

extern atomic_bool dt_trace_flag;
static inline bool dt_trace_is_on(void)
{
    return atomic_load_explicit(&dt_trace_flag, memory_order_relaxed);
}

/* Any thread. The row of the calling thread's spans; at first it is MAIN. */
void dt_trace_set_row(enum dt_trace_row row, int index);
/* dt_clock_s, or 0 when tracing is off. */
double dt_trace_now(void);
/* Records a span in the calling thread's row, unless begin_s is 0. `key` and `value` may be NULL.
 * One that began before tracing is recorded from there on, one that ended before not at all. */
void dt_trace_span(const char *name, const char *key, const char *value, double begin_s,
                   double end_s);
/* The same in any row. */
void dt_trace_add(enum dt_trace_row row, int index, const char *name, const char *key,
                  const char *value, double begin_s, double end_s);

#endif
