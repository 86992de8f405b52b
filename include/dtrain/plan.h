/* The plan: a graph compiled once into flat lists of steps over a few fixed memory arenas.
 *
 *   params | grads | momentum | stats   parameters lie in the order in which their gradients get
 *                                       ready; the first three share their offsets
 *   accum                               sums of gradients over passes, only with accumulation
 *   work                                inputs, activations and scratch, shared by lifetime
 *
 * A bucket is a range of the grads arena that is summed over the ranks in one piece: REDUCE
 * directly after its last writer, WAIT and UPDATE after the backward pass. Nothing is allocated
 * after dt_plan_build. Training is the list: forward, loss, backward, reduce, update are entries in
 * it. */
#ifndef DTRAIN_PLAN_H
#define DTRAIN_PLAN_H

#include <stdint.h>
#include <stdio.h>

#include "dtrain/backend.h"
#include "dtrain/comm.h"
#include "dtrain/graph.h"

enum dt_step_kind { DT_STEP_OP, DT_STEP_ACCUMULATE, DT_STEP_REDUCE, DT_STEP_WAIT, DT_STEP_UPDATE };

struct dt_step {
    enum dt_step_kind kind;
    int node;   /* OP: node id, else -1 */
    int bucket; /* ACCUMULATE, REDUCE, WAIT, UPDATE: bucket, else -1 */
};

struct dt_bucket {
    size_t first, count; /* floats in the grads arena */
    struct dt_segment *segments;
    int n_segments;
    int last_writer; /* node id */
};

enum dt_arena {
    DT_ARENA_NONE = -1,
    DT_ARENA_PARAMS,
    DT_ARENA_GRADS,
    DT_ARENA_MOMENTUM,
    DT_ARENA_ACCUM,
    DT_ARENA_STATS,
    DT_ARENA_WORK,
    DT_N_ARENAS
};

/* Where a tensor lives. */
struct dt_place {
    enum dt_arena arena;
    size_t offset, bytes;
    int first_use[DT_N_PHASES], last_use[DT_N_PHASES]; /* node ids, -1 = not in this phase */
};

struct dt_plan_options {
    size_t bucket_bytes, last_bucket_bytes;
    int n_ranks;          /* 1: no REDUCE and WAIT at all */
    bool ring;            /* sum in a fixed order, see dt_comm_options */
    bool accumulate;      /* several passes per update */
    bool decay_norm_bias; /* weight decay on batch norm and bias too */
    size_t max_bytes;     /* dt_plan_build fails with DT_ERR_MEMORY above it; 0 = no limit */
};

/* Seconds of the main thread since dt_plan_reset_times. */
struct dt_plan_times {
    double compute_s;      /* OP and ACCUMULATE */
    double update_s;       /* UPDATE */
    double comm_s;         /* exposed: REDUCE, polls and WAIT */
    double op_s[DT_N_OPS]; /* compute_s by op */
};

struct dt_plan {
    const struct dt_graph *graph; /* kept until dt_plan_destroy */
    const struct dt_backend *backend;
    struct dt_device *device;
    struct dt_comm *comm; /* NULL with one rank */
    struct dt_plan_options options;
    struct dt_step *steps[DT_N_PHASES];
    int n_steps[DT_N_PHASES];
    struct dt_bucket *buckets;
    int n_buckets;
    struct dt_place *place; /* one per tensor */
    size_t arena_bytes[DT_N_ARENAS];
    void *arena[DT_N_ARENAS];
    struct dt_exec **exec;                  /* one per node */
    size_t *scratch_offset, *scratch_bytes; /* one per node, in the work arena while it runs */
    size_t sum_bytes;                       /* what the work arena would need without any sharing */
    struct dt_plan_times times;
};

/* Prepares every node, lays out memory, allocates, binds. The graph is complete (differentiated).
 * `comm` may be NULL for one rank. Opens the reduce plane of `comm` as needed: collective. */
dt_status dt_plan_build(struct dt_plan **plan, const struct dt_graph *graph,
                        const struct dt_backend *backend, struct dt_device *device,
                        struct dt_comm *comm, const struct dt_plan_options *options);
void dt_plan_destroy(struct dt_plan *plan); /* accepts NULL */

/* Layout only (steps, places, buckets; no memory, no bind), for dry runs and tests. Same arguments.
 */
dt_status dt_plan_layout(struct dt_plan **plan, const struct dt_graph *graph,
                         const struct dt_backend *backend, struct dt_device *device,
                         const struct dt_plan_options *options);

/* Copies one batch into the inputs of a phase: pixels u8 N,H,W,C; labels i32, -1 = ignore. */
dt_status dt_plan_feed(struct dt_plan *plan, enum dt_phase phase, const uint8_t *pixels,
                       const int32_t *labels);
/* Walks the training list. pass 0 .. n_passes-1: all but the last only accumulate. */
dt_status dt_plan_train(struct dt_plan *plan, const struct dt_scalars *scalars, int pass,
                        int n_passes);
dt_status dt_plan_eval(struct dt_plan *plan);

/* Sets every PARAM and STAT to its initial value (a function of seed and name); momentum to 0. */
dt_status dt_plan_init_params(struct dt_plan *plan, uint64_t seed);
/* Copies rank 0's params, momentum and stats to all ranks. Collective. */
dt_status dt_plan_broadcast(struct dt_plan *plan);
/* Replaces the running statistics by their mean over the ranks. Collective. */
dt_status dt_plan_average_stats(struct dt_plan *plan);
/* Logical fp32 values of a tensor. For PARAM, `arena` PARAMS, GRADS or MOMENTUM; for STAT, STATS.
 */
dt_status dt_plan_get(struct dt_plan *plan, enum dt_arena arena, int tensor, float *out);
dt_status dt_plan_set(struct dt_plan *plan, enum dt_arena arena, int tensor, const float *in);

void dt_plan_reset_times(struct dt_plan *plan);
void dt_plan_get_times(const struct dt_plan *plan, struct dt_plan_times *out);

/* The step list with shape, bytes, flops, offset, bucket; then a summary of arenas and buckets. */
void dt_plan_print(const struct dt_plan *plan, FILE *out);

#endif
