/* The time of a training step on many ranks, from the times on one: an alpha-beta model, in which a
 * message of B bytes takes latency_s + B / bytes_per_s. Pure functions, but the last.
 *
 * Buckets are summed one after the other, each as soon as the one before is done and its last
 * gradient is ready; what ends after the backward pass is exposed. Every rank has the same work
 * (weak scaling), at the speed it has alone: the model does not see ranks that wait for the
 * slowest, share memory bandwidth or lose time to the network's interrupts. */
#ifndef DTRAIN_BENCH_FORECAST_H
#define DTRAIN_BENCH_FORECAST_H

#include <stdbool.h>

#include "dtrain/comm.h"
#include "dtrain/config.h"

struct dt_forecast_bucket {
    double bytes;   /* as sent */
    double ready_s; /* from the start of the step until its last gradient is computed */
};

struct dt_forecast_network {
    struct dt_link link;  /* of a node to the others */
    struct dt_link local; /* between ranks of a node; unused if ranks_per_node is 1 */
    int ranks_per_node;
    int ring_ranks; /* on more ranks the library may choose trees instead of the ring */
};

struct dt_forecast_step {
    const struct dt_forecast_bucket *buckets; /* in order of readiness */
    int n_buckets;
    double compute_s; /* forward and backward pass */
    double rest_s;    /* update, waiting for data */
    /* Sums overlap the backward pass, as on GPUs. Otherwise they take the time of the threads
     * that compute, and none is hidden. */
    bool overlaps;
};

/* Ring: 2 (n - 1) messages of bytes / n. Tree: up and down in `log2 n` levels, in as many pieces as
 * are best. */
double dt_forecast_sum_s(double bytes, int n, const struct dt_link *link, bool has_trees);
/* One ring through all ranks, whose messages between nodes set the pace; on more than ring_ranks,
 * if that is faster, within the nodes, where each rank gets the sum of its part, and then between
 * them. */
double dt_forecast_reduce_s(double bytes, int n_ranks, const struct dt_forecast_network *network);
/* Puts buckets in the order of readiness. */
void dt_forecast_sort(struct dt_forecast_bucket *buckets, int n);
/* Communication that the step waits for. */
double dt_forecast_exposed_s(const struct dt_forecast_step *step, int n_ranks,
                             const struct dt_forecast_network *network);
double dt_forecast_step_s(const struct dt_forecast_step *step, int n_ranks,
                          const struct dt_forecast_network *network);
/* Step time on one rank, divided by that on n_ranks. */
double dt_forecast_efficiency(const struct dt_forecast_step *step, int n_ranks,
                              const struct dt_forecast_network *network);
/* The first power of two of ranks (times ranks_per_node) with a lower efficiency; 0 = none up to
 * 2^20. */
int dt_forecast_limit(const struct dt_forecast_step *step, double efficiency,
                      const struct dt_forecast_network *network);

/* The link that explains the times s[0 .. n) of ring sums of bytes[0 .. n) on n_ranks >= 2 ranks
 * with the smallest relative squares. */
struct dt_link dt_forecast_fit(const double *bytes, const double *s, int n, int n_ranks);

/* --- `dtrain forecast`: forecast_run.c --- */

enum { DT_MAX_FORECAST_RANKS = 16 };

struct dt_forecast_options {
    int ranks[DT_MAX_FORECAST_RANKS], n_ranks;
    struct dt_forecast_network network; /* ring_ranks follows from the configuration */
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

#endif
