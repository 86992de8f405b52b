/* Inside the reader of runs: the lines of metrics.jsonl, one after the other. */
#ifndef DTRAIN_PAGE_EVENTS_H
#define DTRAIN_PAGE_EVENTS_H

#include "page/run.h"

enum { DT_RATES_MOST = 1 << 16 };

struct dt_events {
    struct dt_run *run;
    int line;
    size_t curve_capacity, note_capacity;
    double rates[DT_RATES_MOST]; /* images/s of every rate_stride-th step event */
    size_t n_rates;
    int64_t n_steps, rate_stride;
    double offset_s, begin_s;  /* elapsed before the last run_start, and when that was */
    struct dt_json_doc *event; /* of this line, NULL once the run has it */
};

/* Adds the next line to the run. DT_ERR_DATA names file and line. */
dt_status dt_events_add(struct dt_events *events, const char *text, size_t bytes);

#endif
