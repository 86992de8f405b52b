/* A list of strings in one block of memory: file names of a folder, paths of a pattern. */
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
/* Whether a file name ends in ".tar"; in a suffix such as ".csv", in any case. */
bool dt_is_tar_name(const char *name);
bool dt_name_has_suffix(const char *name, const char *suffix);
/* Whether `path` is a folder of tar shards, or a single shard. */
bool dt_shards_found(const char *path);
/* Adds the paths of the tars in a folder, if any, sorted by bytes. */
dt_status dt_names_list_tars(struct dt_names *names, const char *folder);

/* Expands "a-{00..11}.tar::b-{x,y}.tar" into paths, in order. Zero padding of a range is kept,
 * several braces give all combinations, an existing folder stands for its *.tar files, sorted.
 * Errors: DT_ERR_CONFIG for a malformed pattern, DT_ERR_NO_INPUT for a folder without tar files. */
dt_status dt_brace_expand(struct dt_names *names, const char *pattern);

#endif
