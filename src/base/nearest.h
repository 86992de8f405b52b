/* "Did you mean": the nearest of a list of names. */
#ifndef DTRAIN_BASE_NEAREST_H
#define DTRAIN_BASE_NEAREST_H

#include <stddef.h>

/* The one of `names` that is at most two edits away, and at most one per three letters of `name`;
 * else the first one with the same beginning of three letters or more; else NULL. A swap of two
 * neighbours is one edit; upper and lower case are equal. */
const char *dt_nearest(const char *name, const char *const *names, size_t n_names);

#endif
