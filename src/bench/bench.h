/* Inside the bench room: one measurement of training or of the forward pass, shared by the files
 * that make it (sizes.c, train.c, peak.c) and those that show it (result.c, profile.c). Functions
 * are collective unless said otherwise. */
#ifndef DTRAIN_BENCH_BENCH_H
#define DTRAIN_BENCH_BENCH_H

#include "base/host.h"
#include "base/json.h"
#include "dtrain/bench.h"
#include "eval/evaluator.h"
#include "trace/timeline.h"

/* The measurements of one rank; NaN = unknown. Seconds are per step. */
struct dt_bench_rank {
    double step_s, step_median_s, wait_s, compute_s, comm_s;
    double queued_s;                           /* of the main thread, for a CPU */
    double peak_flops_per_s, copy_bytes_per_s; /* peak.c */
    double rss_bytes;                          /* peak */
};
enum { DT_BENCH_NUMBERS = sizeof(struct dt_bench_rank) / sizeof(double) };

/* The result that --compare names. */
struct dt_bench_old {
    struct dt_json_doc *doc;   /* owned by the caller of load, NULL at first */
    double images_per_s, ci95; /* ci95: 0 if unknown */
    double tolerance;          /* fraction */
};

struct dt_bench {
    struct dt_sets sets;
    struct dt_engine engine;
    const struct dt_bench_options *options;
    const struct dt_bench_old *old; /* rank 0 with --compare, else NULL */
    enum dt_phase phase;            /* DT_EVAL: --forward-only */
    double images;                  /* per rank and step; where they differ the mean */
    int n_steps;                    /* measured */
    struct dt_loader *loader;       /* of the phase */
    uint32_t epoch;
    int64_t step;                      /* steps done, with the warm-up */
    struct dt_timeline timeline;       /* of the measured steps, if options->trace */
    double begin_s, said_s;            /* dt_clock_s of the first step, of the last output */
    int64_t n_passes[DT_MAX_PROGRAMS]; /* done, by program */
    double *step_s;       /* per measured step: of the slowest rank; sorted by dt_bench_sum_up */
    double *images_per_s; /* per round: of one rank */
    char (*hosts)[DT_HOST_MAX]; /* of all ranks */
    struct dt_bench_rank own, *ranks;
    int peak_size; /* of the fastest matrix product */

    /* dt_bench_sum_up: */
    double mean, spread, ci95; /* images_per_s: mean, 1.96 standard deviations, and half the 95 %
                                  interval of the mean, NaN with one round */
    double flops, flops_per_s; /* per rank: of a step */
    double mfu;                /* of the measured peak */
    double step_mean_s;        /* of the slowest rank */
    struct dt_bench_rank all;  /* means over the ranks, but the largest rss_bytes */
};

/* train.c: begin sets up the configuration for `per_rank` images per step (0: as configured), end
 * releases everything. Between them, measure opens sets and engine, measures, prints and appends
 * the result to `w`: DT_ERR_MEMORY if it does not fit. */
dt_status dt_bench_begin(struct dt_bench *b, struct dt_comm *comm, const struct dt_config *config,
                         const struct dt_bench_options *options, int per_rank);
/* Opens sets and engine for the phase. */
dt_status dt_bench_open(struct dt_bench *b, bool is_layout);
/* Images of a data set of which a batch can consist: all, or those of the commonest canvas. */
uint32_t dt_bench_max_images(const struct dt_sets *sets, const struct dt_dataset *set);
dt_status dt_bench_measure(struct dt_bench *b, struct dt_jsonw *w);
/* The parts of measure, for b->n_steps after the warm-up: start the loader, then make one step
 * each.
 */
dt_status dt_bench_start(struct dt_bench *b);
dt_status dt_bench_step(struct dt_bench *b);
void dt_bench_end(struct dt_bench *b, dt_status status);

/* peak.c: sets the peaks in b->own and peak_size; unknown if the memory is too small. */
dt_status dt_bench_peaks(struct dt_bench *b);
/* The peak of the data sheet, dense, in FLOP/s; NaN = unknown. Local. */
double dt_bench_paper_flops(const struct dt_bench *b);

/* result.c, local. "1.23 T", "45.6 G" into out[bytes]. */
const char *dt_bench_format_rate(char *out, size_t bytes, double value);
void dt_bench_print_header(const struct dt_bench *b);
void dt_bench_sum_up(struct dt_bench *b);
void dt_bench_print(const struct dt_bench *b);
/* Members of an open object; identity: what must be equal for two results to be compared. */
void dt_bench_write_identity(const struct dt_bench *b, struct dt_jsonw *w);
dt_status dt_bench_write(const struct dt_bench *b, struct dt_jsonw *w);

/* profile.c, local: time, bytes and flops by op and by layer, with conclusions; write as above. */
dt_status dt_bench_print_profile(const struct dt_bench *b);
dt_status dt_bench_write_profile(const struct dt_bench *b, struct dt_jsonw *w);

/* sizes.c, local: DT_ERR_CONFIG if `b` measures something else than b->old. */
dt_status dt_bench_check_old(const struct dt_bench *b);

/* input.c: the folder of the index that a training run has kept, NULL if there is none. */
dt_status dt_bench_find_index(const struct dt_config *config, const struct dt_ranks *ranks,
                              const char **dir);

#endif
