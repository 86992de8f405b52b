/* `dtrain bench --allreduce`: interface between allreduce.c, which measures, and
 * allreduce_report.c. */
#ifndef DTRAIN_BENCH_ALLREDUCE_H
#define DTRAIN_BENCH_ALLREDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* What sums: the ring and both ways of MPI in host memory, NCCL in the GPUs'. */
enum dt_sum_kind { DT_SUM_RING, DT_SUM_IALLREDUCE, DT_SUM_ALLREDUCE, DT_SUM_NCCL, DT_N_SUM_KINDS };
enum dt_sum_place { DT_OUT_OF_PLACE, DT_IN_PLACE, DT_N_SUM_PLACES };

struct dt_sum_row {
    enum dt_sum_kind kind;
    size_t bytes;
    bool is_bucket;            /* of the plan; else a power of two */
    double s[DT_N_SUM_PLACES]; /* per sum; 0 = not measured */
    double n_wrong;            /* elements, of all ranks and both places; NaN = not compared */
};

struct dt_allreduce_result {
    const char *model; /* borrowed */
    int n_ranks, n_local_ranks;
    struct dt_sum_row *rows;
    int n_rows;
};

/* The table on stdout: before the first row, and a row. */
void dt_allreduce_print_head(const struct dt_allreduce_result *result);
void dt_allreduce_print_row(const struct dt_allreduce_result *result, const struct dt_sum_row *row);
/* The lines below the table and, if json_path is not NULL, everything as JSON. */
dt_status dt_allreduce_report(const struct dt_allreduce_result *result, const char *json_path);

#endif
