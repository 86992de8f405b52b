/* Internals of the events room: the interface of an event sink. */
#ifndef DTRAIN_EVENTS_EVENTS_INTERNAL_H
#define DTRAIN_EVENTS_EVENTS_INTERNAL_H

#include "dtrain/config.h"
#include "dtrain/events.h"

struct dt_event {
    const char *name; /* "step" */
    const struct dt_field *fields;
    int n_fields;
};

struct dt_sink {
    const char *title; /* for messages */
    bool in_folder;    /* needs the run folder */
    size_t state_bytes;
    /* `state` is zeroed and freed by the caller; close is also called after a failed open. */
    dt_status (*open)(void *state, const struct dt_events_options *options);
    dt_status (*event)(void *state, const struct dt_event *event);
    dt_status (*flush)(void *state); /* writes what it keeps of the events; or NULL */
    void (*progress)(void *state, const char *what, int64_t done, int64_t total); /* or NULL */
    void (*close)(void *state);                                                   /* or NULL */
};

/* src/events/<name>.c defines dt_sink_<name> for each name of DT_SINK_LIST. */
#define DT_SINK(name) extern const struct dt_sink dt_sink_##name;
DT_SINK_LIST(DT_SINK)
#undef DT_SINK

/* The field of that name, NULL if the event has none. */
const struct dt_field *dt_field_find(const struct dt_event *event, const char *key);
/* The value of an integer or number field, NAN if the event has none; the text of a field, "" if
 * the event has none. */
double dt_field_number(const struct dt_event *event, const char *key);
const char *dt_field_text(const struct dt_event *event, const char *key);
/* The number of an integer or number field that is finite and measures something, unlike a step or
 * a number of images; NAN of any other. */
double dt_field_measured(const struct dt_field *field);
/* Writes a field with its name and value. */
struct dt_jsonw;
void dt_field_put(struct dt_jsonw *w, const struct dt_field *field);

#endif
