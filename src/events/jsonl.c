/* metrics.jsonl in the run folder: one JSON object per line. A resumed run first removes a partial
 * line left by a crash. */
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "events/events_internal.h"

static bool count_damaged(void *n_damaged, const char *line)
{
    struct dt_json_doc *doc = NULL;
    *(int *)n_damaged += dt_json_parse(&doc, line, strlen(line), "", NULL) != DT_OK;
    dt_json_destroy(doc);
    return false;
}

static dt_status open_jsonl(void *state, const struct dt_events_options *options)
{
    struct dt_append *file = state;
    int n_damaged = 0;
    DT_TRY(dt_append_open(file, options->dir, "metrics.jsonl", options->append));
    DT_TRY(dt_append_cut(file, count_damaged, &n_damaged));
    if (n_damaged > 0)
        dt_log(DT_LOG_WARNING, "%s has %d damaged line%s, which reports will skip", file->path,
               n_damaged, DT_S(n_damaged));
    dt_error_restore(); /* dt_events_open keeps it */
    return DT_OK;
}

static dt_status event_jsonl(void *state, const struct dt_event *event)
{
    struct dt_jsonw w = {0};
    char time[DT_CLOCK_UTC];
    struct dt_append *file = state;
    /* An event before a checkpoint is as durable as the checkpoint. */
    file->is_vital |= strcmp(event->name, "checkpoint") == 0 || strcmp(event->name, "run_end") == 0;
    dt_jsonw_add(&w, "{ts: %s, event: %s", dt_clock_utc(time), event->name);
    for (int i = 0; i < event->n_fields; i++)
        dt_field_put(&w, &event->fields[i]);
    dt_jsonw_close(&w, '}');
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK) {
        w.text[w.bytes] = '\n'; /* in place of its end */
        status = dt_append_write(file, w.text, w.bytes + 1);
    }
    dt_jsonw_reset(&w);
    return status;
}

const struct dt_sink dt_sink_jsonl = {
    .title = "metrics.jsonl",
    .in_folder = true,
    .state_bytes = sizeof(struct dt_append),
    .open = open_jsonl,
    .event = event_jsonl,
    .flush = dt_append_flush,
    .close = dt_append_close,
};

static dt_status open_mlperf(void *state, const struct dt_events_options *options)
{
    (void)state;
    (void)options;
    DT_FAIL(DT_ERR_USAGE, "scripts/mlperf_log.py makes it from metrics.jsonl");
}

/* A name that configurations and runs of earlier versions have. */
const struct dt_sink dt_sink_mlperf = {
    .title = "mlperf.log", .in_folder = true, .state_bytes = 1, .open = open_mlperf};
