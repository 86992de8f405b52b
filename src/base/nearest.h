/* "Did you mean": the nearest of a list of names. */
#ifndef DTRAIN_BASE_NEAREST_H
#define DTRAIN_BASE_NEAREST_H

#include <stddef.h>

/* The nearest of `names` that is at most two edits away and at most one edit per three letters of
 * `name`; else the first one that shares a prefix of three letters or more; else NULL. Swapping two
 * adjacent letters is one edit; case is ignored. */
const char *dt_nearest(const char *name, const char *const *names, size_t n_names);

#endif
