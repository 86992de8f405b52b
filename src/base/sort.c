/* qsort with its comparison. */
#include "dtrain/sort.h"

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
