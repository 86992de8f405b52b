/* `dtrain plan`: interface between the command line, forecast_run.c, which measures, and
 * forecast_report.c. */
#ifndef DTRAIN_BENCH_FORECAST_RUN_H
#define DTRAIN_BENCH_FORECAST_RUN_H

#include "bench/forecast.h"
#include "dtrain/comm.h"
#include "dtrain/config.h"

enum { DT_FORECAST_RANKS_MOST = 16 };

struct dt_forecast_options {
    int ranks[DT_FORECAST_RANKS_MOST], n_ranks;
    struct dt_forecast_network network; /* has_trees follows from the configuration */
    bool measure_link;                  /* network.link is that of the ring between these ranks */
    double step_s;                      /* step time on one rank, 0 = measure it here */
    const char *json_path;              /* NULL = no file */
};

/* Predicts step time, exposed communication and images/s of the configured training on those
 * numbers of ranks, with the plan's own buckets, and prints a table and advice. The measured ones
 * are the ranks of comm, on synthetic data; with step_s nothing runs, the time is spread over the
 * ops by their flops, and a configuration for a GPU needs none. Collective. */
dt_status dt_forecast_run(struct dt_comm *comm, const struct dt_config *config,
                          const struct dt_forecast_options *options);

struct dt_forecast_result {
    const char *model; /* borrowed */
    int n_ranks;       /* that ran this */
    int images;        /* per rank */
    double cap_mb;     /* configured; the buckets are cut by it */
    struct dt_forecast_network network;
    struct dt_forecast_step step;
    double measured_s;          /* step on n_ranks; 0 = not measured */
    double best_cap_mb, best_s; /* for the most ranks */
};

/* forecast_report.c: on stdout and, if asked for, as JSON. */
dt_status dt_forecast_report(const struct dt_forecast_result *result,
                             const struct dt_forecast_options *options);

#endif
