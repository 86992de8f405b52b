/* metrics.csv in the run folder: one row per step or eval event, for spreadsheets and pandas. What
 * an event does not have is empty. A resumed run removes the rows that it writes again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "events/events_internal.h"

#define METRIC(NAME, name, ...) #name,
#define RAW(NAME, name, ...)    #name "_raw",
static const char *const columns[] = {
    "step",         "epoch",         DT_METRIC_LIST(METRIC) "lr",
    "images_per_s", "data_wait_s",   "comm_s",
    "loss_scale",   "skipped_steps", "elapsed_s",
    "images",       "step_s",        "compute_s",
    "sync_s",       "other_s",       DT_METRIC_LIST(RAW) "class_loss",
    "box_loss"};

/* Rows begin with the event and the step. */
static bool is_repeated(void *context, const char *line)
{
    const char *comma = strchr(line, ',');
    return comma && strtoll(comma + 1, NULL, 10) >= *(const int64_t *)context;
}

static dt_status open_csv(void *state, const struct dt_events_options *options)
{
    struct dt_append *file = state;
    char line[1024];
    struct dt_text text = dt_text_in(line, sizeof line);
    int64_t from_step =
        options->from_step > 0 ? options->from_step : 1; /* the header counts as 0 */
    DT_TRY(dt_append_open(file, options->dir, "metrics.csv", options->append));
    DT_TRY(dt_append_cut(file, is_repeated, &from_step));
    if (file->end > 0)
        return DT_OK;
    dt_text_add(&text, "event");
    for (size_t i = 0; i < DT_COUNT(columns); i++)
        dt_text_add(&text, ",%s", columns[i]);
    dt_text_add(&text, "\n");
    return dt_append_write(file, line, text.used);
}

static dt_status event_csv(void *state, const struct dt_event *event)
{
    char line[1024];
    struct dt_text text = dt_text_in(line, sizeof line);
    if (strcmp(event->name, "step") != 0 && strcmp(event->name, "eval") != 0)
        return DT_OK;
    dt_text_add(&text, "%s", event->name);
    for (size_t i = 0; i < DT_COUNT(columns); i++) {
        double value = dt_field_number(event, columns[i]);
        dt_text_add(&text, isfinite(value) ? ",%.10g" : ",", value);
    }
    dt_text_add(&text, "\n");
    return dt_append_write(state, line, text.used);
}

const struct dt_sink dt_sink_csv = {
    .title = "metrics.csv",
    .in_folder = true,
    .state_bytes = sizeof(struct dt_append),
    .open = open_csv,
    .event = event_csv,
    .flush = dt_append_flush,
    .close = dt_append_close,
};
