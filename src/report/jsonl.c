/* metrics.jsonl in the run folder: one JSON object per line. A resumed run first removes a partial
 * line left by a crash. */
#include <stdio.h>
#include <time.h>

#include "base/json.h"
#include "report/append.h"
#include "report/internal.h"

static dt_status open_jsonl(void *state, const struct dt_report_options *options)
{
    DT_TRY(dt_append_open(state, options->dir, "metrics.jsonl", options->append));
    return dt_append_cut(state, NULL, NULL);
}

/* "2025-01-31T12:00:00.123Z". */
static void put_time(struct dt_jsonw *w)
{
    struct timespec now = {0};
    struct tm utc = {0};
    char seconds[32] = "", text[48];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text, sizeof(text), "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));
    dt_jsonw_string(w, "ts", text);
}

static dt_status event_jsonl(void *state, const char *event, const struct dt_field *fields,
                             int n_fields)
{
    struct dt_jsonw w;
    dt_jsonw_init(&w, false);
    dt_jsonw_begin(&w, NULL, '{');
    put_time(&w);
    dt_jsonw_string(&w, "event", event);
    for (int i = 0; i < n_fields; i++)
        dt_field_put(&w, &fields[i]);
    dt_jsonw_close(&w, '}');
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK)
        status = dt_append_line(state, "", w.text);
    dt_jsonw_reset(&w);
    return status;
}

static void close_jsonl(void *state)
{
    dt_append_close(state);
}

const struct dt_sink dt_sink_jsonl = {
    .title = "metrics.jsonl",
    .in_folder = true,
    .state_bytes = sizeof(struct dt_append),
    .open = open_jsonl,
    .event = event_jsonl,
    .close = close_jsonl,
};
