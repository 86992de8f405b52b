/* Sorting and percentiles of doubles. */
#ifndef DTRAIN_BASE_SORT_H
#define DTRAIN_BASE_SORT_H

#include <stddef.h>

void dt_sort_f64(double *values, size_t n); /* ascending, in place */
/* The quantile `part` (0 .. 1) of n >= 1 sorted values, by linear interpolation. */
double dt_percentile_f64(const double *sorted, size_t n, double part);

#endif
