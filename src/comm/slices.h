/* What the data planes of slices share: the parts of all ranks, counted from rank 0's first one on,
 * and the additions that make one of them. */
#ifndef DTRAIN_COMM_SLICES_H
#define DTRAIN_COMM_SLICES_H

#include "comm/comm_internal.h"

enum { DT_SLICE_ALIGN = 16 }; /* floats to which portions are cut */

struct dt_slice_table {
    int *n_parts; /* of every rank */
    int n;        /* of all */
    int first;    /* this rank's first part */
    int n_others; /* n without this rank's */
    struct dt_slice_join {
        int to, from;
    } * joins;   /* n - 1 additions in their order: the sum is then in part 0 */
    size_t slot; /* floats from a part of this rank to the next */
};

/* `table` starts as {0}. */
dt_status dt_slice_table_make(struct dt_slice_table *table, const struct dt_comm *comm,
                              const struct dt_comm_options *options);
void dt_slice_table_free(struct dt_slice_table *table);

/* The floats from *first on of which a rank makes the sum; their number. */
size_t dt_slice_portion(size_t *first, const struct dt_comm *comm, size_t count, int rank);

/* This rank's portion, of `count` floats from `first` on, of a part: its own are in `buffer`, the
 * others' have arrived one after the other. */
static inline float *dt_slice_values(const struct dt_slice_table *t, int part, float *buffer,
                                     float *arrived, size_t first, size_t count)
{
    const int own = t->n - t->n_others, i = part - t->first;
    if (i >= 0 && i < own)
        return buffer + (size_t)i * t->slot + first;
    return arrived + (size_t)(i < 0 ? part : part - own) * count;
}

#endif
