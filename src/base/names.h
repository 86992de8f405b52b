/* A list of strings in one block of memory: names of files, of classes. */
#ifndef DTRAIN_BASE_NAMES_H
#define DTRAIN_BASE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Starts as {0}. */
struct dt_names {
    char *text;
    size_t bytes, capacity;
    uint32_t *offset; /* of each name in `text` */
    size_t n, n_capacity;
};

dt_status dt_names_add(struct dt_names *names, const char *text, size_t bytes);
/* Adds a name before the one at `index`. */
dt_status dt_names_insert(struct dt_names *names, size_t index, const char *text, size_t bytes);
/* Adds all names of `from` in their order. */
dt_status dt_names_add_all(struct dt_names *names, const struct dt_names *from);
/* Adds each name of `from` once, sorted by bytes. */
dt_status dt_names_add_unique(struct dt_names *names, const struct dt_names *from);
const char *dt_names_get(const struct dt_names *names, size_t index);
void dt_names_sort(struct dt_names *names); /* by bytes */
/* Index of a name that is in a sorted list. */
size_t dt_names_find(const struct dt_names *sorted, const char *name);
/* Adds the entries of a folder, sorted by bytes; names that begin with a dot are skipped. */
dt_status dt_names_list(struct dt_names *names, const char *folder);
void dt_names_reset(struct dt_names *names);
/* Whether a path stays inside the folder that it is relative to: without a leading slash and
 * without ".."; whether a name has control characters. */
bool dt_name_is_inside(const char *name);
bool dt_name_has_control(const char *name);
/* Whether a file name ends in a suffix such as ".csv", in any case. */
bool dt_name_has_suffix(const char *name, const char *suffix);

#endif
