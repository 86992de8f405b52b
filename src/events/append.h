/* A file of records, each written whole by one write(2), so that a reader never sees half a record
 * of a live run. What the disk has no room for is kept in memory until it has. */
#ifndef DTRAIN_EVENTS_APPEND_H
#define DTRAIN_EVENTS_APPEND_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/file.h"

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
