/* Names of classes, and which label a class has. Label i is the i-th name of a list; an empty list
 * means that classes have no names. */
#ifndef DTRAIN_BASE_CLASSES_H
#define DTRAIN_BASE_CLASSES_H

#include "base/names.h"

/* How names begin of labels that no class has: those between the ids of categories. */
#define DT_CLASSES_GAP "N/A "

/* Position of the name, -1 if it is not listed. */
int dt_classes_find(const struct dt_names *classes, const char *name);
/* Adds one name per line of `text`; `what` names the text in messages. DT_ERR_DATA for an empty
 * line or a name given twice. */
dt_status dt_classes_parse(struct dt_names *classes, const char *text, const char *what);
/* The same of a file. */
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
