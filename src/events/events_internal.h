/* Internals of the events room: the interface of an event sink, and the files that they append to.
 */
#ifndef DTRAIN_EVENTS_EVENTS_INTERNAL_H
#define DTRAIN_EVENTS_EVENTS_INTERNAL_H

#include <sys/types.h>

#include "base/file.h"
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

/* --- append.c: a file of records, each written whole by one write(2), so that a reader never sees
 * half a record of a live run. What the disk has no room for is kept in memory until it has --- */

struct dt_append {
    int fd;
    off_t end;             /* of the last complete record */
    bool is_torn;          /* there is something behind it */
    char *kept;            /* the records that are not in the file yet */
    size_t used, capacity; /* bytes of `kept` */
    int64_t n_kept, n_lost;
    bool is_vital; /* the next flush also makes all records durable */
    char path[DT_PATH_MAX];
};

/* Opens dir/name, empty unless `keep`. DT_ERR_CREATE or DT_ERR_IO; DT_ERR_PERMISSION if it is not a
 * regular file. */
dt_status dt_append_open(struct dt_append *file, const char *dir, const char *name, bool keep);
/* Keeps a record until the next flush. If there are others, at most 1 MiB of them is kept, and what
 * is too much is lost. */
dt_status dt_append_write(struct dt_append *file, const void *data, size_t bytes);
/* Writes what is kept, all of it or nothing; `file` as for dt_append_close. */
dt_status dt_append_flush(void *file);
/* Cuts a file of lines before the first one that a crash left incomplete or that is stale, because
 * a resumed run writes it again (is_stale may be NULL). */
typedef bool dt_append_stale(void *context, const char *line);
dt_status dt_append_cut(struct dt_append *file, dt_append_stale *is_stale, void *context);
/* `file`: a struct dt_append, or a state that begins with one; it need not be open. Flushes it, and
 * warns of records that are not in it. */
void dt_append_close(void *file);

#endif
