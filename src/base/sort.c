/* qsort with its comparison. */
#include "base/sort.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void dt_sort_f64(double *values, size_t n)
{
    qsort(values, n, sizeof *values, ascending);
}

double dt_percentile_f64(const double *sorted, size_t n, double part)
{
    double at = part * (double)(n - 1);
    size_t low = (size_t)at, high = low + 1 < n ? low + 1 : low;
    return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}
