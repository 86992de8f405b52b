/* qsort with its comparison, Student's t, and a hash table. */
#include "base/sort.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

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

/* The 97.5 % quantile of Student's t distribution: a table, then its expansion around the normal
 * distribution (Abramowitz and Stegun, 26.7.5), which errs by less than 0.2 %. */
static double student(size_t freedom)
{
    static const double table[] = {NAN, 12.7062, 4.3027, 3.1824, 2.7764};
    const double z = 1.959964, z2 = z * z, f = (double)freedom;
    if (freedom < sizeof table / sizeof *table)
        return table[freedom];
    return z + z * (z2 + 1) / (4 * f) + z * ((5 * z2 + 16) * z2 + 3) / (96 * f * f) +
           z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * f * f * f);
}

double dt_interval95_f64(const double *values, size_t n)
{
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        mean += values[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    return n < 2 ? NAN : student(n - 1) * sqrt(squares / (double)(n - 1) / (double)n);
}

size_t dt_find_last(const uint32_t *ascending, size_t n, uint32_t value)
{
    size_t low = 0, high = n;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(ascending[middle] <= value ? &low : &high) = middle;
    }
    return low;
}

static dt_status begin_list(uint32_t **first, size_t n)
{
    DT_TRY(DT_NEW(*first, n));
    for (size_t i = 0; i < n; i++)
        (*first)[i] = (uint32_t)i;
    return DT_OK;
}

/* A hash table with open addressing, at most half full. */
dt_status dt_find_repeated(uint32_t **first, const uint64_t *keys, size_t n)
{
    uint32_t *table; /* 1 + index of the first key of each value; 0 = free */
    size_t size = 2;
    while (size < 2 * n)
        size *= 2;
    *first = NULL;
    DT_TRY(DT_NEW(table, size));
    dt_status status = DT_OK;
    for (size_t i = 0; i < n && status == DT_OK; i++) {
        size_t slot = keys[i] % size;
        while (table[slot] && keys[table[slot] - 1] != keys[i])
            slot = (slot + 1) % size;
        if (table[slot] && !*first)
            status = begin_list(first, n);
        table[slot] = table[slot] ? table[slot] : (uint32_t)i + 1;
        if (*first)
            (*first)[i] = table[slot] - 1;
    }
    free(table);
    return status;
}
