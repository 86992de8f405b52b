#include "page/events.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

enum { NOTES_MOST = 200, CURVES_MOST = 100 };

/* --- Curves --- */

static dt_status add_point(struct dt_events *e, const char *event, const char *key, double value)
{
    struct dt_run *run = e->run;
    char name[DT_CURVE_NAME];
    void *block = run->curves;
    snprintf(name, sizeof name, "%s.%s", event, key);
    size_t i = 0;
    while (i < run->n_curves && strcmp(run->curves[i].name, name) != 0)
        i++;
    if (i == CURVES_MOST)
        return DT_OK;
    if (i == run->n_curves) {
        DT_TRY(dt_mem_grow(&block, &e->curve_capacity, i, sizeof *run->curves, "curves"));
        run->curves = block;
        memcpy(run->curves[run->n_curves++].name, name, sizeof name);
    }
    dt_curve_add(&run->curves[i], &(struct dt_point){run->step, run->elapsed_s, value});
    return DT_OK;
}

/* Every number but those that only say where it belongs. */
static dt_status add_numbers(struct dt_events *e, const char *event)
{
    static const char *const places[] = {"step",      "total_steps", "epoch",       "elapsed_s",
                                         "images",    "eta_s",       "data_wait_s", "comm_s",
                                         "compute_s", "sync_s",      "other_s"};
    for (const struct dt_json *f = dt_json_root(e->event)->child; f; f = f->next) {
        bool is_value = f->type == DT_JSON_NUMBER;
        for (size_t i = 0; i < DT_COUNT(places); i++)
            is_value &= strcmp(f->key, places[i]) != 0;
        if (is_value)
            DT_TRY(add_point(e, event, f->key, f->number));
    }
    return DT_OK;
}

/* Seconds per step as per cent of the step. */
static dt_status add_share(struct dt_events *e, const char *key, const char *name)
{
    double share = 100 * dt_event_number(e->event, key) / dt_event_number(e->event, "step_s");
    return isfinite(share) ? add_point(e, "step", name, share) : DT_OK;
}

/* When the room is full, every second one is dropped, now and from then on. */
static void add_rate(struct dt_events *e)
{
    double rate = dt_event_number(e->event, "images_per_s");
    if (!isfinite(rate) || e->n_steps++ % e->rate_stride != 0)
        return;
    if (e->n_rates == DT_RATES_MOST) {
        for (e->n_rates = 0; e->n_rates < DT_RATES_MOST / 2; e->n_rates++)
            e->rates[e->n_rates] = e->rates[2 * e->n_rates];
        e->rate_stride *= 2;
    }
    e->rates[e->n_rates++] = rate;
}

/* --- Events --- */

static dt_status add_note(struct dt_events *e, bool is_restart, const char *text)
{
    struct dt_run *run = e->run;
    void *block = run->notes;
    *(is_restart ? &run->n_restarts : &run->n_warnings) += 1;
    if (run->n_notes == NOTES_MOST)
        return DT_OK;
    DT_TRY(dt_mem_grow(&block, &e->note_capacity, run->n_notes, sizeof *run->notes, "notes"));
    run->notes = block;
    struct dt_note *note = &run->notes[run->n_notes];
    *note = (struct dt_note){.is_restart = is_restart, run->step, run->elapsed_s};
    dt_event_time(note->time, e->event);
    DT_TRY(dt_mem_copy_text(&note->text, text));
    run->n_notes++;
    return DT_OK;
}

/* What came after the checkpoint that this start resumes from is going to be repeated. */
static dt_status on_restart(struct dt_events *e, int64_t step)
{
    struct dt_run *run = e->run;
    char text[128];
    snprintf(text, sizeof text, "restart from step %" PRId64 ", %" PRId64 " steps repeated: %s%s",
             step, run->step > step ? run->step - step : 0,
             run->end ? "the run had ended with " : "the run had been killed",
             dt_event_text(run->end, "status"));
    run->step = step;
    for (size_t i = 0; i < run->n_curves; i++)
        dt_curve_cut(&run->curves[i], step);
    return add_note(e, true, text);
}

/* The run keeps the event. */
static void keep(struct dt_json_doc **place, struct dt_events *e)
{
    dt_json_destroy(*place);
    *place = e->event;
    e->event = NULL;
}

static bool get_step(int64_t *step, const struct dt_events *e, const char *key)
{
    const int64_t most = INT64_C(1) << 53;
    return dt_json_integer(dt_json_get(dt_json_root(e->event), key), 0, most, step);
}

static dt_status on_run_start(struct dt_events *e, const char *event)
{
    struct dt_run *run = e->run;
    int64_t step = 0;
    (void)event;
    get_step(&step, e, "start_step");
    if (run->start)
        DT_TRY(on_restart(e, step));
    run->step = step;
    dt_json_destroy(run->end);
    run->end = NULL;
    keep(&run->start, e);
    return DT_OK;
}

static dt_status on_step(struct dt_events *e, const char *event)
{
    get_step(&e->run->total_steps, e, "total_steps");
    add_rate(e);
    DT_TRY(add_share(e, "data_wait_s", "data wait"));
    DT_TRY(add_share(e, "comm_s", "exposed communication"));
    DT_TRY(add_share(e, "compute_s", "compute"));
    DT_TRY(add_share(e, "sync_s", "sync"));
    return add_numbers(e, event);
}

static dt_status on_warning(struct dt_events *e, const char *event)
{
    (void)event;
    return add_note(e, false, dt_event_text(e->event, "text"));
}

static dt_status on_run_end(struct dt_events *e, const char *event)
{
    (void)event;
    keep(&e->run->end, e);
    return DT_OK;
}

static const struct {
    const char *event;
    bool has_step;
    dt_status (*handle)(struct dt_events *e, const char *event);
} handlers[] = {
    {"run_start", false, on_run_start}, {"step", true, on_step},
    {"eval", true, add_numbers},        {"telemetry", false, add_numbers},
    {"warning", false, on_warning},     {"run_end", false, on_run_end},
};

/* Moves the clock of the run to this event; between two starts it stands still. */
static void advance(struct dt_events *e, bool is_start)
{
    struct tm utc = {0};
    const char *rest = strptime(dt_event_text(e->event, "ts"), "%Y-%m-%dT%H:%M:%S", &utc);
    if (!rest)
        return;
    double now_s = (double)timegm(&utc) + strtod(rest, NULL);
    if (is_start || isnan(e->begin_s)) {
        e->offset_s = e->run->elapsed_s;
        e->begin_s = now_s;
    }
    e->run->elapsed_s = fmax(e->run->elapsed_s, e->offset_s + now_s - e->begin_s);
}

static dt_status on_event(struct dt_events *e)
{
    const char *event = dt_event_text(e->event, "event");
    size_t h = 0;
    while (h < DT_COUNT(handlers) && strcmp(handlers[h].event, event) != 0)
        h++;
    advance(e, strcmp(event, "run_start") == 0);
    if (!event[0])
        DT_FAIL(DT_ERR_DATA, "%s:%d: not an event of a run", e->run->path, e->line);
    if (h == DT_COUNT(handlers))
        return DT_OK;
    if (!get_step(&e->run->step, e, "step") && handlers[h].has_step)
        DT_FAIL(DT_ERR_DATA, "%s:%d: the event \"%s\" has no step", e->run->path, e->line, event);
    return handlers[h].handle(e, event);
}

dt_status dt_events_add(struct dt_events *e, const char *text, size_t bytes)
{
    char what[256];
    e->line++;
    if (dt_json_parse(&e->event, text, bytes, "", NULL) != DT_OK) { /* ":1:column: what" */
        snprintf(what, sizeof what, "%s", dt_error_text() + strlen(":1:"));
        DT_FAIL(DT_ERR_DATA, "%s:%d:%s", e->run->path, e->line, what);
    }
    dt_status status = on_event(e);
    dt_json_destroy(e->event);
    e->event = NULL;
    return status;
}
