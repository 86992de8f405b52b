/* metrics.jsonl in the run folder: one JSON object per line. A resumed run first removes a partial
 * line left by a crash. */
#include "base/clock.h"
#include "base/json.h"
#include "events/append.h"
#include "events/events_internal.h"

static dt_status open_jsonl(void *state, const struct dt_events_options *options)
{
    DT_TRY(dt_append_open(state, options->dir, "metrics.jsonl", options->append));
    return dt_append_cut(state, NULL, NULL);
}

static dt_status event_jsonl(void *state, const struct dt_event *event)
{
    struct dt_jsonw w = {0};
    char time[DT_CLOCK_UTC];
    dt_jsonw_add(&w, "{ts: %s, event: %s", dt_clock_utc(time), event->name);
    for (int i = 0; i < event->n_fields; i++)
        dt_field_put(&w, &event->fields[i]);
    dt_jsonw_close(&w, '}');
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK)
        status = dt_append_line(state, "", w.text);
    dt_jsonw_reset(&w);
    return status;
}

const struct dt_sink dt_sink_jsonl = {
    .title = "metrics.jsonl",
    .in_folder = true,
    .state_bytes = sizeof(struct dt_append),
    .open = open_jsonl,
    .event = event_jsonl,
    .close = dt_append_close,
};
