/* Statistics of doubles: sorting, percentiles, the interval of a mean. */
#ifndef DTRAIN_BASE_SORT_H
#define DTRAIN_BASE_SORT_H

#include <stddef.h>

void dt_sort_f64(double *values, size_t n); /* ascending, in place */
/* The quantile `part` (0 .. 1) of n >= 1 sorted values, by linear interpolation. */
double dt_percentile_f64(const double *sorted, size_t n, double part);
/* Half the 95 % confidence interval of the mean of n values, by Student's t distribution; NaN if n
 * < 2. */
double dt_interval95_f64(const double *values, size_t n);

#endif
