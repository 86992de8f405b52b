/* Statistics of doubles: sorting, percentiles, the interval of a mean; keys that are repeated. */
#ifndef DTRAIN_BASE_SORT_H
#define DTRAIN_BASE_SORT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

void dt_sort_f64(double *values, size_t n); /* ascending, in place */
/* The quantile `part` (0 .. 1) of n >= 1 sorted values, by linear interpolation. */
double dt_percentile_f64(const double *sorted, size_t n, double part);
/* Half the 95 % confidence interval of the mean of n values, by Student's t distribution; NaN if n
 * < 2. */
double dt_interval95_f64(const double *values, size_t n);

/* The last of n >= 1 ascending numbers that is at most `value`, if the first one is. */
size_t dt_find_last(const uint32_t *ascending, size_t n, uint32_t value);
/* (*first)[i] = the least j with keys[j] == keys[i], which is i if the key is new. Caller frees.
 * *first is NULL if all keys differ. */
dt_status dt_find_repeated(uint32_t **first, const uint64_t *keys, size_t n);

#endif
