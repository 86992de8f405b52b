/* A list of strings in one block of memory: names of files; names of classes, and which label a
 * class has. */
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
void dt_names_remove(struct dt_names *names, size_t index);
/* Adds all names of `from` in their order. */
dt_status dt_names_add_all(struct dt_names *names, const struct dt_names *from);
/* Adds each name of `from` once, sorted by bytes. */
dt_status dt_names_add_unique(struct dt_names *names, const struct dt_names *from);
const char *dt_names_get(const struct dt_names *names, size_t index);
void dt_names_sort(struct dt_names *names); /* by bytes */
/* Index of a name that is in a sorted list. */
size_t dt_names_find(const struct dt_names *sorted, const char *name);
/* Adds the entries of a folder, sorted by bytes, but for those that begin with a dot, and those
 * that systems and programs put there: __MACOSX, @eaDir, Thumbs.db, lost+found, ... */
dt_status dt_names_list(struct dt_names *names, const char *folder);
void dt_names_reset(struct dt_names *names);
/* Whether a path stays inside the folder that it is relative to: without a leading slash and
 * without ".."; whether a name has control characters. */
bool dt_name_is_inside(const char *name);
bool dt_name_has_control(const char *name);
/* Whether a file name ends in a suffix such as ".csv", in any case. */
bool dt_name_has_suffix(const char *name, const char *suffix);

/* --- Classes: label i is the i-th name; an empty list means that the classes have no names --- */

/* Labels between the ids of categories have no class; their names begin with this. */
#define DT_CLASSES_GAP "N/A "

/* Position of the name, -1 if it is not listed. */
int dt_classes_find(const struct dt_names *classes, const char *name);
/* Adds one name per line of `text`; `what` names the text in messages. DT_ERR_DATA for an empty
 * line or a name given twice. */
dt_status dt_classes_parse(struct dt_names *classes, const char *text, const char *what);
/* The same for the lines of a file. */
dt_status dt_classes_load(struct dt_names *classes, const char *path);
/* The names with a newline after each; NULL if there are none (classes may be NULL). DT_ERR_DATA
 * for a name that contains one. Caller frees. */
dt_status dt_classes_text(char **text, const struct dt_names *classes);
/* map[i] = position in `classes` of name i of `own`, the classes of the data at `path`; -1 for a
 * class that is not listed, which is DT_ERR_DATA unless `subset`. Classes that the data lack are an
 * error with `all`, else a warning. */
dt_status dt_classes_map(int *map, const struct dt_names *own, const struct dt_names *classes,
                         bool subset, bool all, const char *path);

#endif
