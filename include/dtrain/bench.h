/* dtrain bench. Collective over the ranks of `comm`; failures as in train.h. */
#ifndef DTRAIN_BENCH_H
#define DTRAIN_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "dtrain/comm.h"
#include "dtrain/config.h"

struct dt_bench_options {
    const char *json_path;   /* NULL = no file */
    bool profile;            /* also tables of the time of every op */
    bool real_data;          /* of the configuration, not synthetic */
    bool forward_only;       /* evaluation list instead of training */
    bool no_comm;            /* no gradients are summed */
    const char *batch_sizes; /* images per rank: "32,64,128" or "auto"; NULL = as configured */
    const char *compare;     /* JSON file of an earlier result, NULL = none */
    const char *tolerance;   /* "5%"; NULL: that */
    const char *trace;       /* file for a timeline of the measured steps, NULL = none */
};
/* dtrain bench: warm-up, rounds, images/s. With `compare`, DT_ERR_DISAGREE if it is slower than
 * before by more than the tolerance and by more than the noise of both. */
dt_status dt_bench(struct dt_comm *comm, const struct dt_config *config,
                   const struct dt_bench_options *options);

struct dt_allreduce_options {
    const char *json_path; /* NULL = no file */
    size_t min_bytes;
    size_t max_bytes; /* 0 = 256 MiB, or what memory allows */
};
/* dtrain bench --allreduce: time and bandwidth of sums over the ranks by size, of every data plane
 * that this build and these devices have and of MPI's own, as a table on stdout. DT_ERR_DEVICE if a
 * sum is wrong. */
dt_status dt_bench_allreduce(struct dt_comm *comm, const struct dt_config *config,
                             const struct dt_allreduce_options *options);

/* dtrain bench --input: how many images/s the input pipeline produces on its own, per stage and for
 * 1, 2, 4 ... workers, from disk and from memory, and what limits it; as text on stdout and, if
 * json_path is not NULL, as JSON. Reads only the data section, the image size and bench.rounds of
 * config. */
dt_status dt_bench_input(struct dt_comm *comm, const struct dt_config *config,
                         const char *json_path);

#endif
