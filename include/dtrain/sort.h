/* Numbers in order. */
#ifndef DTRAIN_SORT_H
#define DTRAIN_SORT_H

#include <stddef.h>

void dt_sort_f64(double *values, size_t n); /* ascending, in place */

#endif
