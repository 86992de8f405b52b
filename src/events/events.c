/* Passes every event to the sinks of output.sinks. One that cannot write tries again with the next
 * event. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "events/events_internal.h"

#define ROW(name) {#name, &dt_sink_##name},
static const struct {
    const char *name;
    const struct dt_sink *sink;
} rows[] = {DT_SINK_LIST(ROW)};

struct dt_events {
    void *states[DT_COUNT(rows)]; /* NULL: unused */
    bool is_failing[DT_COUNT(rows)];
};

/* Without a configuration, only the console. */
static bool is_listed(const char *name, const struct dt_events_options *options)
{
    char listed[DT_CONFIG_NAME_MAX];
    const char *rest = options->config ? options->config->output.sinks : "console\n";
    while ((rest = dt_config_names_next(rest, listed, sizeof listed)))
        if (strcmp(listed, name) == 0)
            return true;
    return false;
}

static void close_sink(struct dt_events *report, size_t i)
{
    if (report->states[i] && rows[i].sink->close)
        rows[i].sink->close(report->states[i]);
    free(report->states[i]);
    report->states[i] = NULL;
}

dt_status dt_events_open(struct dt_events **report, const struct dt_events_options *options)
{
    DT_TRY(DT_NEW(*report, 1));
    dt_error_keep();
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        const struct dt_sink *sink = rows[i].sink;
        if (!is_listed(rows[i].name, options) || (sink->in_folder && !options->dir))
            continue;
        void *state = (*report)->states[i] = dt_mem_alloc(1, sink->state_bytes, sink->title);
        const dt_status status = state ? sink->open(state, options) : DT_ERR_MEMORY;
        if (status == DT_OK)
            continue;
        close_sink(*report, i);
        if (status == DT_ERR_PERMISSION)
            return dt_error_pass(status, __func__, __FILE__, __LINE__);
        dt_log(DT_LOG_WARNING, "no events are written to %s: %s", sink->title, dt_error_text());
        dt_error_restore();
    }
    return DT_OK;
}

void dt_events_close(struct dt_events *report)
{
    dt_error_keep();
    for (size_t i = DT_COUNT(rows); report && i-- > 0;)
        close_sink(report, i);
    dt_error_restore();
    free(report);
}

/* Says when a sink begins to fail, and when it no longer does. */
static void note(struct dt_events *report, size_t i, bool fails)
{
    const char *title = rows[i].sink->title;
    if (fails && !report->is_failing[i])
        dt_log(DT_LOG_WARNING, "no events are written to %s until this works again: %s", title,
               dt_error_text());
    else if (!fails && report->is_failing[i])
        dt_log(DT_LOG_INFO, "events are written to %s again", title);
    report->is_failing[i] = fails;
}

void dt_events_emit(struct dt_events *report, const char *event, const struct dt_field *fields,
                    int n_fields)
{
    const struct dt_event all = {event, fields, n_fields};
    bool is_shown = !report || strcmp(event, "warning") != 0;
    dt_error_keep();
    for (size_t i = 0; report && i < DT_COUNT(rows); i++) {
        const struct dt_sink *sink = rows[i].sink;
        void *state = report->states[i];
        if (!state)
            continue;
        dt_status status = sink->event(state, &all);
        if (status == DT_OK && sink->flush)
            status = sink->flush(state);
        note(report, i, status != DT_OK);
        dt_error_restore();
        is_shown |= sink == &dt_sink_console;
    }
    if (!is_shown) /* otherwise the console has logged it */
        dt_log_record(DT_LOG_WARNING, dt_field_text(&all, "text"));
}

void dt_events_progress(struct dt_events *report, const char *what, int64_t done, int64_t total)
{
    for (size_t i = 0; report && i < DT_COUNT(rows); i++)
        if (report->states[i] && rows[i].sink->progress)
            rows[i].sink->progress(report->states[i], what, done, total);
}

const struct dt_field *dt_field_find(const struct dt_event *event, const char *key)
{
    for (int i = 0; i < event->n_fields; i++)
        if (strcmp(event->fields[i].key, key) == 0)
            return &event->fields[i];
    return NULL;
}

static double number_of(const struct dt_field *field)
{
    if (field && field->kind == DT_FIELD_INT)
        return (double)field->integer;
    return field && field->kind == DT_FIELD_NUMBER ? field->number : NAN;
}

double dt_field_number(const struct dt_event *event, const char *key)
{
    return number_of(dt_field_find(event, key));
}

double dt_field_measured(const struct dt_field *field)
{
    static const char *const counts[] = {"step", "epoch", "images"};
    for (size_t i = 0; i < DT_COUNT(counts); i++)
        if (strcmp(field->key, counts[i]) == 0)
            return NAN;
    return isfinite(number_of(field)) ? number_of(field) : NAN;
}

const char *dt_field_text(const struct dt_event *event, const char *key)
{
    const struct dt_field *field = dt_field_find(event, key);
    return field && field->kind == DT_FIELD_TEXT && field->text ? field->text : "";
}

void dt_field_put(struct dt_jsonw *w, const struct dt_field *field)
{
    switch (field->kind) {
    case DT_FIELD_INT:
        dt_jsonw_integer(w, field->key, field->integer);
        break;
    case DT_FIELD_NUMBER: /* null if not finite */
        dt_jsonw_number(w, field->key, field->number);
        break;
    case DT_FIELD_TEXT:
        dt_jsonw_string(w, field->key, field->text ? field->text : "");
        break;
    case DT_FIELD_JSON:
        dt_jsonw_raw(w, field->key, field->text ? field->text : "null");
    }
}
