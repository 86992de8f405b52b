/* The plan: a graph compiled once into flat lists of actions over a few fixed memory arenas.
 *
 *   params | grads | momentum | square  parameters lie in the order in which their gradients get
 *                                       ready, then the frozen ones, which have neither gradient
 *                                       nor momentum; element i of each belongs together. In mixed
 *                                       precision those with gradients in fp32 come first
 *   outer | anchor                      local SGD with outer momentum, see src/plan/modes.c
 *   stats                               running statistics
 *   ema | ema_stats                     moving averages of params and of stats
 *   norms                               partial sums of squares, for optimizers and clipping
 *   counts                              of every rank, what the gradients are divided by
 *   shadow                              16-bit copy of params, in mixed precision
 *   accum                               fp32 sums of gradients: over micro-batches, and between
 *                                       ranks where 16-bit gradients are exchanged in 32 bits
 *   work                                inputs, activations and scratch, shared by lifetime
 *   lanes                               work, grads and stats of further slices that are computed
 *                                       at the same time
 *
 * A bucket is a range of elements that is summed over the ranks in one piece, in the grads arena
 * or, with accumulation, in accum: REDUCE comes directly after its last writer, WAIT and UPDATE
 * after the backward pass. If a program has a divisor, COUNT adds it up in every pass, and DIVIDE
 * shares the counts of the ranks before the first CHECK. All buckets are checked (CHECK) before the
 * first UPDATE, CLIP limits the norm of all gradients, and SETTLE follows the last UPDATE: a step
 * whose summed gradients are not finite changes no parameter on any rank. Nothing is allocated
 * after dt_plan_build. Training is the list: forward, loss, backward, reduce and update are entries
 * in it. If the device supports it, the list is recorded once and replayed.
 */
#ifndef DTRAIN_PLAN_H
#define DTRAIN_PLAN_H

#include <stdint.h>
#include <stdio.h>

#include "dtrain/backend.h"
#include "dtrain/comm.h"
#include "dtrain/graph.h"

/* X(NAME, name, clock in struct dt_plan_times, only in the last pass of an update). */
#define DT_ACTION_LIST(X)                       \
    X(OP, op, compute_s, false)                 \
    X(SYNC, sync, comm_s, false)                \
    X(COUNT, count, compute_s, false)           \
    X(ACCUMULATE, accumulate, compute_s, false) \
    X(REDUCE, reduce, comm_s, true)             \
    X(WAIT, wait, comm_s, true)                 \
    X(DIVIDE, divide, update_s, true)           \
    X(CHECK, check, update_s, true)             \
    X(CLIP, clip, update_s, true)               \
    X(UPDATE, update, update_s, true)           \
    X(EMA, ema, update_s, true)                 \
    X(SETTLE, settle, update_s, true)           \
    X(SHARE, share, update_s, true)
#define DT_ACTION_VALUE(NAME, ...) DT_ACTION_##NAME,
enum dt_action_kind { DT_ACTION_LIST(DT_ACTION_VALUE) DT_N_ACTION_KINDS };
#undef DT_ACTION_VALUE

struct dt_action {
    enum dt_action_kind kind;
    int node;         /* OP, SYNC, COUNT: node id, else -1 */
    int bucket;       /* ACCUMULATE, REDUCE, WAIT, CHECK, UPDATE: bucket, else -1 */
    bool second_half; /* OP: the second half of a synced node */
};

struct dt_bucket {
    size_t first, count; /* elements */
    struct dt_segment *segments;
    int n_segments;
    int first_tile; /* in the norms arena, when its gradients are measured for clipping */
    int last_writer[DT_MAX_PROGRAMS]; /* node ids, -1 = not in this program */
};

/* kept_stats: the running statistics as this rank's first slice of a step leaves them; ACCUMULATE
 * restores them after each later slice. */
#define DT_ARENA_LIST(X)  \
    X(PARAMS, params)     \
    X(SHADOW, shadow)     \
    X(GRADS, grads)       \
    X(MOMENTUM, momentum) \
    X(SQUARE, square)     \
    X(OUTER, outer)       \
    X(ANCHOR, anchor)     \
    X(NORMS, norms)       \
    X(COUNTS, counts)     \
    X(ACCUM, accum)       \
    X(STATS, stats)       \
    X(KEPT_STATS, kept_stats) X(EMA, ema) X(EMA_STATS, ema_stats) X(WORK, work) X(LANES, lanes)
#define DT_ARENA_VALUE(NAME, name) DT_ARENA_##NAME,
enum dt_arena { DT_ARENA_NONE = -1, DT_ARENA_LIST(DT_ARENA_VALUE) DT_N_ARENAS };
#undef DT_ARENA_VALUE

/* The memory of a tensor. */
struct dt_place {
    enum dt_arena arena;
    size_t offset, bytes;
    int first_use[DT_MAX_PROGRAMS], last_use[DT_MAX_PROGRAMS]; /* node ids, -1 = not used there */
};

/* How ranks train together, see src/plan/modes.c. Without any of these they sum their gradients in
 * every step. */
struct dt_plan_parallel {
    bool sums_nothing;          /* nothing is summed: each rank works on its own for some steps */
    bool is_central;            /* sums arise on rank 0, which sends its weights to all */
    bool rank0_updates;         /* only rank 0 updates */
    bool local_optimizer_state; /* the optimizer's states are different on each rank */
};

struct dt_plan_options {
    size_t bucket_bytes, last_bucket_bytes;
    int n_ranks; /* 1: no REDUCE or WAIT */
    struct dt_comm_options
        comm; /* plane, sum, link, wire, timeout_s and share; the plan sets the rest */
    struct dt_plan_parallel parallel;
    bool is_server;        /* rank 0 */
    bool outer;            /* momentum of weights that are averaged */
    struct dt_split split; /* of a global batch; groups of slices are in src/plan/lanes.c */
    bool accumulate;       /* several passes per update, or 16-bit gradients summed in fp32 */
    bool record;           /* record the training list and replay it, if the device can */
    bool profile;          /* time every action (dt_plan_times); disables recording */
    enum dt_optim optim;
    bool clip;            /* limit the norm of all gradients: optim.clip_norm */
    bool decay_norm_bias; /* weight decay on batch norm and bias too */
    bool ema;             /* keep moving averages: once per update, EMA follows the last UPDATE */
    size_t max_bytes;     /* above it dt_plan_build fails with DT_ERR_MEMORY; 0 = no limit. A
                             layout takes this rank's share of the copy away from it */
    bool is_host_memory;  /* max_bytes is what there is of it */
    int copy_ranks;       /* share the memory for one copy of what is saved; 0: there is none */
};

/* Seconds since dt_plan_reset_times; DT_ACTION_LIST names the clock of each action. On a device
 * with queues they are device times with options.profile or in a timeline (comm_s: of WAIT);
 * otherwise they are the time the main thread takes to enqueue the work, and mean little. */
struct dt_plan_times {
    double compute_s;      /* OP, COUNT and ACCUMULATE */
    double update_s;       /* DIVIDE, CHECK, CLIP, UPDATE, EMA, SETTLE and SHARE */
    double comm_s;         /* exposed: SYNC, REDUCE, polls, WAIT and dt_plan_average */
    double op_s[DT_N_OPS]; /* the part of OP in compute_s, by op */
};

/* A pass is recorded once for each kind, since kinds differ in what they do with the buckets.
 * Without slices there are four kinds: the only pass of a step, the first, a middle one, the last.
 * With slices each pass of a step is a kind; if ranks have more, nothing is recorded
 * (engine_plan.c). */
enum { DT_N_PASS_KINDS = 16 };

struct dt_plan {
    const struct dt_graph *graph; /* kept until dt_plan_destroy */
    const struct dt_backend *backend;
    struct dt_device *device;
    struct dt_comm *comm; /* NULL with one rank */
    struct dt_plan_options options;
    struct dt_action *actions[DT_MAX_PROGRAMS];
    int n_actions[DT_MAX_PROGRAMS];
    struct dt_bucket *buckets;
    int n_buckets;
    struct dt_place *place; /* one per tensor */
    size_t arena_bytes[DT_N_ARENAS];
    void *arena[DT_N_ARENAS];
    struct dt_comm_memory sums;             /* the arena in which ranks sum in host memory */
    struct dt_exec **exec;                  /* one per node */
    size_t *scratch_offset, *scratch_bytes; /* one per node, in the work arena while it runs */
    size_t feed_bytes;                      /* the most that a pass feeds */
    struct dt_lane *lane; /* n_lanes of them: slices that are walked in turn, from SYNC to SYNC */
    int n_lanes, at_lane; /* at_lane: whose memory is in use; between passes, the next to be fed */
    size_t train_bytes;   /* of the work arena, in training programs */
    int n_slots;          /* sums of slices that the accum arena has room for */
    enum dt_dtype grads_type; /* of the grads arena, but ... */
    size_t n_wide; /* ... its first n_wide elements are fp32: they are the last bucket. Else 0 */
    struct dt_recording *recording[DT_MAX_PROGRAMS][DT_N_PASS_KINDS];
    int n_warm[DT_MAX_PROGRAMS][DT_N_PASS_KINDS]; /* passes walked before the recording */
    bool record;                                  /* cleared when recording fails */
    struct dt_plan_times times;
    double *node_s; /* with options.profile: seconds by node, else NULL */
};

/* Prepares every node, lays out memory, allocates, binds. The graph must be complete
 * (differentiated). `comm` may be NULL for one rank. Opens the data plane of `comm` as needed:
 * collective. */
dt_status dt_plan_build(struct dt_plan **plan, const struct dt_graph *graph,
                        const struct dt_backend *backend, struct dt_device *device,
                        struct dt_comm *comm, const struct dt_plan_options *options);
void dt_plan_destroy(struct dt_plan *plan); /* accepts NULL */

/* Layout only (actions, places, buckets; no memory, no bind), for dry runs and tests. */
dt_status dt_plan_layout(struct dt_plan **plan, const struct dt_graph *graph,
                         const struct dt_backend *backend, struct dt_device *device,
                         const struct dt_plan_options *options);

/* One batch, borrowed: the inputs of dt_program. Those that no node reads may be NULL. */
struct dt_feed {
    DT_COLUMN_MEMBERS(DT_COLUMN_BORROWED, const void *);
    const float *class_weights;
};
/* Copies a batch into the inputs of a program. The device may read it until dt_plan_end_feed, which
 * is called after the walk has started. */
dt_status dt_plan_feed(struct dt_plan *plan, int program, const struct dt_feed *batch);
dt_status dt_plan_end_feed(struct dt_plan *plan);
/* Walks the list of a training program. `pass` is 0 .. n_passes-1; all passes but the last only
 * accumulate. On a device with queues the work is only started. */
dt_status dt_plan_train(struct dt_plan *plan, int program, const struct dt_scalars *scalars,
                        int pass, int n_passes);
dt_status dt_plan_eval(struct dt_plan *plan, int program);
/* After a walk: the bytes of an OUTPUT. Waits. */
dt_status dt_plan_read(struct dt_plan *plan, int tensor, void *out);

/* Whether the optimizer keeps a value per parameter in the arena, MOMENTUM or SQUARE. */
bool dt_plan_has_state(const struct dt_plan *plan, enum dt_arena arena);
/* "momentum" */
const char *dt_arena_name(enum dt_arena arena);
/* Sets every PARAM and STAT to its initial value (a function of seed and name); the optimizer's
 * states to 0. */
dt_status dt_plan_init_params(struct dt_plan *plan, uint64_t seed);
/* Whether the plan has moving averages. */
bool dt_plan_has_ema(const struct dt_plan *plan);
/* Sets the moving averages to the current values; nothing if there are none. */
dt_status dt_plan_start_ema(struct dt_plan *plan);
/* Exchanges params and stats with their moving averages: before an evaluation of these, and again
 * after it. Uses the work arena. */
dt_status dt_plan_swap_ema(struct dt_plan *plan);
/* Copies rank 0's params, states of the optimizer, stats and their averages to all ranks.
 * Collective. */
dt_status dt_plan_broadcast(struct dt_plan *plan);
/* Sums known values over the ranks in the first and the last bucket, which are zero afterwards.
 * *result is DT_ERR_DEVICE if a sum is wrong. Collective, but both statuses are local: ranks must
 * agree on *result. Call before training. */
dt_status dt_plan_test_reduce(struct dt_plan *plan, dt_status *result);
/* Copies rank 0's running statistics, which come from its own images, and their averages to all
 * ranks. Rank 0's never depend on when this is called, so an interrupted run continues
 * bit-identically. Collective. */
dt_status dt_plan_broadcast_stats(struct dt_plan *plan);
/* Logical fp32 values of a tensor. For a PARAM, `arena` is PARAMS, GRADS (the gradients of the last
 * update, not yet divided; fp16: times the loss scale), MOMENTUM, SQUARE or EMA; for a STAT it is
 * STATS or EMA_STATS. Setting PARAMS refreshes the shadow. The states of a frozen parameter are 0;
 * setting them does nothing. For the logits it is WORK, until the next pass. */
dt_status dt_plan_get(struct dt_plan *plan, enum dt_arena arena, int tensor, float *out);
dt_status dt_plan_set(struct dt_plan *plan, enum dt_arena arena, int tensor, const float *in);
/* Refreshes the shadow, if there is one: call when the arena of the params has been written. */
dt_status dt_plan_refresh(struct dt_plan *plan);

/* --- Parallel modes other than allreduce; all ranks on CPUs. --- */

/* Whether all ranks have the same values in the arena; in local and async mode, right after
 * dt_plan_average or dt_plan_sync_weights. */
bool dt_plan_is_replicated(const struct dt_plan *plan, enum dt_arena arena);
/* LOCAL: params and, where options say so, states become their mean over the ranks; with
 * options.outer and the mean change d since the last call, outer = outer_momentum outer + d, and
 * params move by that (SlowMo with alpha 1, Wang et al. 2019; plain heavy-ball DiLoCo, Douillard et
 * al. 2023). Collective. */
dt_status dt_plan_average(struct dt_plan *plan, float outer_momentum);
/* Keeps the present params as the point from which dt_plan_average measures the change. Call it
 * when params have been set. Does nothing without options.outer. */
void dt_plan_anchor(struct dt_plan *plan);
/* The action SHARE of central mode: gives all ranks the trained params of rank 0, and the number of
 * its updates, from which they see whether it has skipped the step. Collective. */
dt_status dt_plan_share(struct dt_plan *plan);
/* ASYNC: the trained part of the params begins at their arena; rank 0 updates with the gradients
 * that have been put into dt_plan_gradients, which has as many bytes. dt_plan_sync_weights is
 * collective: params of rank 0 and statistics of rank 1, the first that computes, for all. */
size_t dt_plan_trained_bytes(const struct dt_plan *plan);
void *dt_plan_gradients(const struct dt_plan *plan);
dt_status dt_plan_apply(struct dt_plan *plan, const struct dt_scalars *scalars);
dt_status dt_plan_sync_weights(struct dt_plan *plan);

void dt_plan_reset_times(struct dt_plan *plan);
void dt_plan_get_times(const struct dt_plan *plan, struct dt_plan_times *out);

/* Bytes that dt_plan_build allocates on the device: all arenas, and on a GPU two blocks for input,
 * each 2 KB larger than counted here. Without what libraries take for themselves, NCCL's buffers,
 * and recordings. */
size_t dt_plan_bytes(const struct dt_plan *plan);
/* Advice for a plan that takes more than there is: "raise train.virtual_ranks". */
const char *dt_plan_advice(const struct dt_plan *plan);
/* DT_ERR_MEMORY if it is more than options.max_bytes. */
dt_status dt_plan_check_memory(const struct dt_plan *plan);
/* Bytes that a node of the graph reads and writes in one pass: each tensor in its stored type, as
 * often as the device passes over it. */
double dt_plan_node_bytes(const struct dt_plan *plan, const struct dt_node *node);
/* Whether a bucket's gradients are fp32 where the others' are 16-bit. */
static inline bool dt_plan_is_wide(const struct dt_plan *plan, const struct dt_bucket *bucket)
{
    return bucket->first < plan->n_wide;
}
/* Bytes of a bucket in the type in which it is summed. */
size_t dt_plan_bucket_bytes(const struct dt_plan *plan, int bucket);
/* Bytes that CHECK and UPDATE of all buckets read and write, without what norms of tensors need. */
double dt_plan_update_bytes(const struct dt_plan *plan);

/* Prints a summary of arenas and buckets; the action lists with shape, bytes, flops, offset and
 * bucket. */
void dt_plan_print_memory(const struct dt_plan *plan, FILE *out);
void dt_plan_print_actions(const struct dt_plan *plan, FILE *out);

#endif
