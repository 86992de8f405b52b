/* `dtrain bench --allreduce`: the table, the comparison of the ring with MPI's own, and JSON. */
#include "bench/allreduce.h"

#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "dtrain/comm.h"

enum { COMPARED_BYTES = 1 << 20 }; /* the ratio of the ring and MPI counts from here on */

static const char *const names[DT_N_SUM_KINDS] = {"ring", "MPI_Iallreduce", "MPI_Allreduce",
                                                  "NCCL"};

void dt_allreduce_print_row(const struct dt_allreduce_result *r, const struct dt_sum_row *row)
{
    double n = r->n_ranks, factor = 2 * (n - 1) / n;
    printf("%12zu %12zu %7s %6s %-15s", row->bytes, row->bytes / sizeof(float), "float", "sum",
           names[row->kind]);
    for (enum dt_sum_place place = DT_OUT_OF_PLACE; place < DT_N_SUM_PLACES; place++) {
        double gb_per_s = (double)row->bytes / row->s[place] / 1e9;
        if (row->s[place] > 0)
            printf(" %10.1f %7.2f %7.2f", 1e6 * row->s[place], gb_per_s, gb_per_s * factor);
        else
            printf(" %10s %7s %7s", "-", "-", "-");
    }
    if (isnan(row->n_wrong))
        printf(" %6s", "N/A");
    else
        printf(" %6.0f", row->n_wrong);
    printf("%s\n", row->is_bucket ? "  bucket" : "");
    fflush(stdout);
}

void dt_allreduce_print_head(const struct dt_allreduce_result *r)
{
    char mpi[128], nccl[128];
    dt_comm_describe_plane(DT_PLANE_MPI, mpi, sizeof mpi);
    dt_comm_describe_plane(DT_PLANE_NCCL, nccl, sizeof nccl);
    printf("# dtrain %s, %d rank(s), %d on this node; %s%s%s\n", DTRAIN_VERSION, r->n_ranks,
           r->n_local_ranks, mpi, nccl[0] ? ", " : "", nccl);
    printf("# %58s %26s %27s\n", "", "out-of-place", "in-place");
    printf("%12s %12s %7s %6s %-15s %10s %7s %7s %10s %7s %7s %6s\n", "size", "count", "type",
           "redop", "by", "time", "algbw", "busbw", "time", "algbw", "busbw", "#wrong");
    printf("%12s %12s %7s %6s %-15s %10s %7s %7s %10s %7s %7s\n", "(B)", "(elements)", "", "", "",
           "(us)", "(GB/s)", "(GB/s)", "(us)", "(GB/s)", "(GB/s)");
}

/* Ratio of the ring's time to that of the faster one of MPI's own, over the sizes that count. */
static int compare(const struct dt_allreduce_result *r, double *mean, double *worst)
{
    double logs = 0;
    int n = 0;
    *worst = 0;
    for (int i = 0; i + DT_SUM_ALLREDUCE < r->n_rows && r->rows[i].kind == DT_SUM_RING;
         i += DT_SUM_ALLREDUCE + 1) {
        const struct dt_sum_row *row = r->rows + i;
        double own_s =
            fmin(row[DT_SUM_IALLREDUCE].s[DT_IN_PLACE], row[DT_SUM_ALLREDUCE].s[DT_IN_PLACE]);
        if (row->bytes < COMPARED_BYTES || r->n_ranks == 1)
            continue;
        *worst = fmax(*worst, row->s[DT_IN_PLACE] / own_s);
        logs += log(row->s[DT_IN_PLACE] / own_s);
        n++;
    }
    *mean = n > 0 ? exp(logs / n) : 0;
    return n;
}

static void print_foot(const struct dt_allreduce_result *r)
{
    double mean, worst;
    printf("# Sums are in place. Out of place copies the values to the result first. busbw is "
           "algbw x 2 (n - 1) / n.\n");
    if (r->rows[r->n_rows - 1].kind == DT_SUM_NCCL)
        printf("# NCCL sums in GPU memory; dtrain train compares its sums before it starts.\n");
    if (compare(r, &mean, &worst) > 0)
        printf("# Time of the ring : MPI's faster one, in place, from 1 MiB: %.2f (geometric "
               "mean), %.2f (worst)\n",
               mean, worst);
}

static void write_rows(const struct dt_allreduce_result *r, struct dt_jsonw *w)
{
    static const char *const keys[DT_N_SUM_PLACES] = {"out_of_place_s", "in_place_s"};
    dt_jsonw_begin(w, "rows", '[');
    for (int i = 0; i < r->n_rows; i++) {
        const struct dt_sum_row *row = &r->rows[i];
        dt_jsonw_begin(w, NULL, '{');
        dt_jsonw_string(w, "by", names[row->kind]);
        dt_jsonw_integer(w, "bytes", (int64_t)row->bytes);
        dt_jsonw_string(w, "type", "float");
        dt_jsonw_bool(w, "is_bucket", row->is_bucket);
        for (enum dt_sum_place place = DT_OUT_OF_PLACE; place < DT_N_SUM_PLACES; place++)
            if (row->s[place] > 0)
                dt_jsonw_number(w, keys[place], row->s[place]);
        dt_jsonw_number(w, "n_wrong", row->n_wrong);
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
}

static dt_status save_json(const struct dt_allreduce_result *r, const char *path)
{
    struct dt_jsonw w;
    double mean, worst;
    dt_jsonw_init(&w, true);
    dt_jsonw_begin(&w, NULL, '{');
    dt_jsonw_string(&w, "dtrain", DTRAIN_VERSION);
    dt_jsonw_string(&w, "model", r->model);
    dt_jsonw_integer(&w, "ranks", r->n_ranks);
    if (compare(r, &mean, &worst) > 0) {
        dt_jsonw_number(&w, "ring_to_mpi_mean", mean);
        dt_jsonw_number(&w, "ring_to_mpi_worst", worst);
    }
    write_rows(r, &w);
    dt_jsonw_close(&w, '}');
    return dt_jsonw_save(&w, path);
}

dt_status dt_allreduce_report(const struct dt_allreduce_result *r, const char *json_path)
{
    double n_wrong = 0;
    print_foot(r);
    if (fflush(stdout) != 0)
        DT_FAIL(DT_ERR_IO, "cannot write the result to standard output");
    if (json_path)
        DT_TRY(save_json(r, json_path));
    for (int i = 0; i < r->n_rows; i++)
        n_wrong += r->rows[i].n_wrong > 0 ? r->rows[i].n_wrong : 0;
    if (n_wrong > 0)
        DT_FAIL(DT_ERR_DEVICE, "%.0f sums are wrong; the network or the MPI library is faulty",
                n_wrong);
    return DT_OK;
}
