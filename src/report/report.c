/* Passes every event to every sink in the table. A sink that fails warns once and is disabled. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "report/internal.h"

#define ROW(name) &dt_sink_##name,
static const struct dt_sink *const sinks[] = {DT_SINK_LIST(ROW)};

struct dt_report {
    void *states[DT_COUNT(sinks)]; /* NULL: unused or disabled */
};

dt_status dt_report_open(struct dt_report **report, const struct dt_report_options *options)
{
    struct dt_report *made = NULL;
    dt_status status = DT_OK;
    DT_TRY_OUT(DT_NEW(made, 1));
    for (size_t i = 0; i < DT_COUNT(sinks); i++)
        DT_TRY_OUT(sinks[i]->open(&made->states[i], options));
    *report = made;
    made = NULL;
out:
    dt_report_close(made);
    return status;
}

void dt_report_close(struct dt_report *report)
{
    if (!report)
        return;
    for (size_t i = DT_COUNT(sinks); i-- > 0;)
        if (report->states[i])
            sinks[i]->close(report->states[i]);
    free(report);
}

void dt_report_event(struct dt_report *report, const char *event, const struct dt_field *fields,
                     int n_fields)
{
    for (size_t i = 0; report && i < DT_COUNT(sinks); i++) {
        void *state = report->states[i];
        if (!state || sinks[i]->event(state, event, fields, n_fields) == DT_OK)
            continue;
        dt_log(DT_LOG_WARNING, "no more events are written to %s: %s", sinks[i]->name,
               dt_error_text());
        sinks[i]->close(state);
        report->states[i] = NULL;
    }
}

void dt_report_progress(struct dt_report *report, const char *what, int64_t done, int64_t total)
{
    for (size_t i = 0; report && i < DT_COUNT(sinks); i++)
        if (report->states[i] && sinks[i]->progress)
            sinks[i]->progress(report->states[i], what, done, total);
}

const struct dt_field *dt_field_find(const struct dt_field *fields, int n_fields, const char *key)
{
    for (int i = 0; i < n_fields; i++)
        if (strcmp(fields[i].key, key) == 0)
            return &fields[i];
    return NULL;
}

double dt_field_number(const struct dt_field *fields, int n_fields, const char *key)
{
    const struct dt_field *field = dt_field_find(fields, n_fields, key);
    if (field && field->kind == DT_FIELD_INT)
        return (double)field->integer;
    return field && field->kind == DT_FIELD_NUMBER ? field->number : NAN;
}

const char *dt_field_text(const struct dt_field *fields, int n_fields, const char *key)
{
    const struct dt_field *field = dt_field_find(fields, n_fields, key);
    return field && field->kind == DT_FIELD_TEXT && field->text ? field->text : "";
}
