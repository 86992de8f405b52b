/* The interface to a device. A backend exports one constant struct of functions.
 *
 * Life of a node: prepare, then `autotune` once for all nodes (algorithms; scratch sizes are known
 * afterwards), then the plan lays out memory, then bind (fixes addresses), run (many times),
 * release. Nodes are prepared in graph order. One thread (the main thread) calls these functions;
 * the backend may use more threads internally.
 *
 * A device may work asynchronously: run, update and the like enqueue work in one queue (the compute
 * stream) and return; the work is done in call order. A second queue (the comm stream) carries
 * reductions between ranks. download and sync wait. The CPU backend has no queues: its work is done
 * when a call returns. */
#ifndef DTRAIN_BACKEND_H
#define DTRAIN_BACKEND_H

#include "dtrain/dtype.h"
#include "dtrain/graph.h"
#include "dtrain/optim.h"

struct dt_device;    /* one opened device */
struct dt_exec;      /* one prepared node */
struct dt_recording; /* recorded work, to be replayed as one */

enum { DT_IDENTITY_MAX = 64, DT_MAX_EXTRA_TENSORS = 8 };

struct dt_device_options {
    int threads; /* compute threads of the CPU, >= 1 */
    bool deterministic;
    uint64_t seed; /* for dropout */
    /* Winograd's algorithm for most 3x3 convolutions, if the device supports it: two or three times
     * as fast with stride 1, with rounding errors of about 1e-6 of the largest value, at most 3e-6
     * or those without it. Its use depends only on the shapes. */
    bool winograd;
    enum dt_tensor_layout layout;
    enum dt_precision precision;
    double loss_scale; /* fp16: 0 = dynamic */
    int rank;          /* global rank; rank 0 chooses algorithms for all */
    int n_ranks;
    int local_rank;        /* picks one of the node's devices */
    double timeout_s;      /* limit on waiting for the device, 0 = no limit */
    const char *cache_dir; /* folder that keeps algorithm choices; NULL = none */
    int conv_candidate;    /* number, from 1, of every convolution's algorithm; 0 = the fastest */
    enum dt_fusion_mode fusion; /* whether nodes of a fusion run together */
    /* Collective over the ranks, NULL with one rank: all return the status of the lowest
     * rank whose `mine` is not DT_OK, or DT_OK; on success all have rank 0's data[0 .. bytes). */
    dt_status (*share)(void *context, dt_status mine, void *data, size_t bytes);
    /* Called repeatedly while waiting for the device; a failure ends the wait. May be NULL. */
    dt_status (*poll)(void *context);
    /* Progress of long work: `done` of `total`. May be NULL. */
    void (*progress)(void *context, const char *what, int64_t done, int64_t total);
    void *context; /* passed to the three above */
};

/* Values that change from step to step. */
struct dt_scalars {
    float lr;
    float diff_scale; /* factor on the loss gradient: 1 / images (or their weights) of the update */
    struct dt_optim_options optim;
    float ema_weight; /* of the new values in the moving averages */
    uint32_t step;    /* for dropout */
    /* Position of the pass's first image in the global batch: a dropout mask depends on the image's
     * position there, not on the rank or pass that processes it. */
    uint32_t first_row;
    int slot; /* of `exchange_slots`, which this pass fills */
};

/* Sums since the last download. */
struct dt_counters {
    double loss; /* of softmax_xent, summed over images where it is finite; of focal_loss */
    double box_loss;
    double weight; /* what to divide them by: the sum of those images' class weights, or n_finite if
                      there are none or labels are mixed; of a detector the images or, if its losses
                      are `global`, the foreground anchors */
    int64_t n, n_finite; /* all images; those included in `loss`, of a detector in each level */
    int64_t top1, top5;  /* of all n */
    int64_t n_skipped;   /* steps skipped because a gradient was not finite */
    int64_t n_in_a_row;  /* longest run of skipped steps; one that began earlier counts in full */
};

/* fp16: gradients are multiplied by `scale`, so that small ones do not vanish. If the scale is
 * dynamic, a skipped step halves it and 2000 clean steps in a row double it. */
struct dt_loss_scale {
    float scale;     /* 1 in other precisions */
    int32_t n_clean; /* clean steps since the last change */
};

/* Elements [first, first + count) of the params, shadow, momentum, square and grads arenas, both
 * multiples of 16; gaps between segments are padding. */
struct dt_segment {
    size_t first, count;
    float decay;    /* factor on weight decay: 0 or 1 */
    float rate;     /* factor on the learning rate */
    int first_tile; /* tiles of the segments before it in the bucket */
    bool has_trust; /* one tensor, to which the optimizer's trust ratio applies */
};

/* One bucket's update. The pointers are to where element 0 of the arenas is, or, for grads, would
 * be if all had this type. */
struct dt_update {
    enum dt_optim optim;
    float *params, *momentum;
    float *square; /* NULL if the optimizer has none */
    double *norms; /* scratch, 2 per tile, if the optimizer has a trust ratio */
    void *shadow;  /* 16-bit copy of params, NULL = none */
    const void *grads;
    enum dt_dtype grads_type;
    const struct dt_segment *segments;
    int n_segments;
};

/* The driver's readings of the hardware; NAN = unknown. */
struct dt_sensors {
    double power_w, temperature_c, clock_mhz, memory_clock_mhz;
    double utilisation; /* per cent of the last moment in which it computed */
    double memory_used_bytes;
    double ecc_errors; /* memory errors since boot that could not be corrected */
    double throttle;   /* why clocks are lower: the bits of NVML's nvmlClocksEventReason... */
};

/* The choice of `autotune` for a node, in the words of the library that computes it, or for a
 * fusion whose first node it is. */
struct dt_choice {
    const char *fusion;          /* name of its kind; NULL = the node itself */
    const char *algorithm;       /* both texts are valid until release */
    const char *runner_up;       /* the second fastest, "" = none */
    double seconds, runner_up_s; /* of a run when it was chosen; NAN = not measured */
};

struct dt_backend {
    const char *name;
    dt_status (*open)(struct dt_device **dev, const struct dt_device_options *options);
    void (*close)(struct dt_device *dev); /* accepts NULL */
    /* One line: device, library and version, instruction set or memory, threads. */
    void (*describe)(struct dt_device *dev, char *out, size_t bytes);
    /* A name unique to this piece of hardware ("" = ranks may share it). */
    void (*identity)(struct dt_device *dev, char out[DT_IDENTITY_MAX]);

    /* Memory: zeroed, aligned to 64 bytes. n_allocs is the number of calls so far (for tests);
     * free_bytes is what can still be allocated, 0 = unknown. */
    dt_status (*alloc)(struct dt_device *dev, void **out, size_t bytes);
    void (*free)(struct dt_device *dev, void *memory, size_t bytes);
    uint64_t (*n_allocs)(const struct dt_device *dev);
    size_t (*free_bytes)(struct dt_device *dev);
    dt_status (*zero)(struct dt_device *dev, void *memory, size_t bytes);

    /* Ops. shares: nodes find tensors in the memory of others (dt_graph_share); NULL = never. */
    bool (*shares)(const struct dt_device *dev);
    bool (*supports)(struct dt_device *dev, const struct dt_graph *g, const struct dt_node *node);
    dt_status (*prepare)(struct dt_device *dev, struct dt_exec **exec, const struct dt_graph *g,
                         int node);
    /* Chooses algorithms once all nodes of a plan are prepared; otherwise `prepared` is the error.
     * May take seconds. Collective if options.share is set: a rank that failed to prepare takes
     * part too, and all return its status. */
    dt_status (*autotune)(struct dt_device *dev, dt_status prepared);
    /* After prepare of all nodes and before autotune: proposes a fusion of dt_graph_fusions; exec[]
     * is by node id. Whether the nodes run together is then a choice: they are still run one by
     * one, and each does what is left of its work. NULL for the CPU. */
    dt_status (*propose_fusion)(struct dt_device *dev, const struct dt_fusion *fusion,
                                struct dt_exec *const *exec);
    /* After autotune: the tensors besides its own that a node reads or writes for the others of its
     * fusions, and their number. NULL if there is no propose_fusion. */
    int (*extra_tensors)(const struct dt_exec *exec, int tensor[DT_MAX_EXTRA_TENSORS]);
    /* Choice number i, from 0, that concerns the node; false if there are fewer. */
    bool (*choice_of)(const struct dt_device *dev, const struct dt_exec *exec, int i,
                      struct dt_choice *out);
    size_t (*scratch_bytes)(struct dt_device *dev, const struct dt_exec *exec); /* after autotune */
    /* The type in which a tensor is stored. For a PARAM, the type in which nodes read it: 16-bit
     * parameters are read from the shadow arena, and their master is fp32. All DIFF_PARAM have the
     * same type, except that some may be fp32 where the others are 16-bit. */
    enum dt_dtype (*dtype)(struct dt_device *dev, const struct dt_graph *g, int tensor);
    /* Bytes of a tensor in the format chosen for it; valid once all nodes are prepared. For a
     * PARAM, the bytes of its fp32 master. 0 for a tensor that no node uses because its fusion runs
     * together. A PARAM and its DIFF_PARAM have the same format and
     * number of elements, padding included; padding stays zero. */
    size_t (*tensor_bytes)(struct dt_device *dev, const struct dt_graph *g, int tensor);
    /* address[t] is given for every tensor id t of the graph (NULL if the phase does not use it);
     * scratch holds at least the bytes requested. Addresses stay valid until release. */
    dt_status (*bind)(struct dt_device *dev, struct dt_exec *exec, void *const *address,
                      void *scratch);
    /* Applies to all later runs and updates, until the next call. */
    dt_status (*set_scalars)(struct dt_device *dev, const struct dt_scalars *scalars);
    dt_status (*run)(struct dt_device *dev, struct dt_exec *exec);
    /* A synced node (dt_node_is_synced): run does its first half, which puts *bytes for the other
     * ranks into slot scalars.slot of the memory that `exchange_slots` returns, one slot for every
     * rank (CPUs: or for every slice of a group). Once the slots of the ranks that it is synced
     * with are filled, `run_second_half` does the rest. No other node may run in between. */
    void *(*exchange_slots)(struct dt_device *dev, const struct dt_exec *exec, size_t *bytes);
    dt_status (*run_second_half)(struct dt_device *dev, struct dt_exec *exec);
    void (*release)(struct dt_device *dev, struct dt_exec *exec); /* accepts NULL */
    /* Bytes that a node moves beyond reading or writing once each tensor of its own and each that
     * it touches, because its kernels pass over some again; negative if they leave some out. NULL
     * means 0. */
    int64_t (*again_bytes)(struct dt_device *dev, const struct dt_exec *exec);

    /* One update of the optimizer (optim.h), over segments. grads are unchanged. Nothing happens if
     * `check` found a value that is not finite. fp16: g is first divided by the loss scale. */
    dt_status (*update)(struct dt_device *dev, const struct dt_update *update);
    /* dst = src, or dst += src. Here and below count is a multiple of 16. */
    dt_status (*accumulate)(struct dt_device *dev, float *dst, const void *src,
                            enum dt_dtype src_type, size_t count, bool first);
    /* dst += ema_weight * (src - dst), unless the step is skipped; dt_optim_lerp. */
    dt_status (*lerp)(struct dt_device *dev, float *dst, const float *src, size_t count);
    /* shadow = params, rounded to the type of the shadow arena. */
    dt_status (*refresh)(struct dt_device *dev, void *shadow, const float *params, size_t count);
    /* Looks for values that are not finite. All gradients of a step, summed over the ranks, are
     * checked before its first update, so that the step is skipped entirely and on all ranks, or
     * not at all. norms (NULL: none) gets the sum of squares of every tile. */
    dt_status (*check)(struct dt_device *dev, const void *grads, enum dt_dtype type, size_t count,
                       double *norms);
    /* *count = the sum of from[0 .. n), or *count += it. */
    dt_status (*count)(struct dt_device *dev, float *count, const float *from, int n, bool first);
    /* Before clip: gradients of this step are divided by the sum of counts[0 .. n), if it
     * exceeds 1. */
    dt_status (*divide)(struct dt_device *dev, const float *counts, int n);
    /* After all checks of a step: its updates scale the gradients such that their norm, the root of
     * the sum of norms[0 .. n), is at most optim.clip_norm. fp16: without the loss scale. */
    dt_status (*clip)(struct dt_device *dev, const double *norms, int n);
    /* Called after the updates of a step: counts the step if it was skipped and resets the finding
     * of `check`; fp16: adapts the loss scale. */
    dt_status (*end_step)(struct dt_device *dev);
    /* NULL if there is no fp16; in other precisions the scale is always 1. */
    dt_status (*get_loss_scale)(struct dt_device *dev, struct dt_loss_scale *out); /* waits */
    dt_status (*set_loss_scale)(struct dt_device *dev, const struct dt_loss_scale *in);
    /* Steps so far that were not skipped. */
    dt_status (*get_updates)(struct dt_device *dev, int64_t *n); /* waits */
    dt_status (*set_updates)(struct dt_device *dev, int64_t n);

    /* Data. The host side is in logical order (N C H W, O I H W, plain vectors) and fp32; the
     * device side has the tensor's format and type (always fp32 for a PARAM). The source may be
     * reused at once; get waits. upload and read copy `bytes` unchanged; read waits. */
    dt_status (*upload)(struct dt_device *dev, void *dst, const void *src, size_t bytes);
    dt_status (*read)(struct dt_device *dev, void *dst, const void *src, size_t bytes);
    dt_status (*set_tensor)(struct dt_device *dev, const struct dt_graph *g, int tensor, void *dst,
                            const float *src);
    dt_status (*get_tensor)(struct dt_device *dev, const struct dt_graph *g, int tensor, float *dst,
                            const void *src);
    /* Input of a pass, copied concurrently with the work in progress: src must not change until
     * end_feed returns. open_feed is called once before and sets the most bytes that a pass feeds;
     * it allocates that n_feed_blocks times. */
    int n_feed_blocks;
    dt_status (*open_feed)(struct dt_device *dev, size_t bytes);
    dt_status (*feed)(struct dt_device *dev, void *dst, const void *src, size_t bytes);
    dt_status (*end_feed)(struct dt_device *dev);
    /* Pins host memory that feed reads often, which makes its copies fast. Unpin it before freeing
     * it. */
    dt_status (*pin)(struct dt_device *dev, void *memory, size_t bytes);
    void (*unpin)(struct dt_device *dev, void *memory);
    /* Reads the counters and resets them to zero; waits for all earlier work. */
    dt_status (*download)(struct dt_device *dev, struct dt_counters *out);
    dt_status (*sync)(struct dt_device *dev); /* waits for all work, at most timeout_s */

    /* False if there are none. Takes less than a millisecond. NULL for the CPU. */
    bool (*read_sensors)(struct dt_device *dev, struct dt_sensors *out);

    /* --- Devices with queues; all NULL otherwise. --- */

    /* The comm stream (a cudaStream_t), for the reductions. */
    void *(*comm_stream)(struct dt_device *dev);
    /* fork: later work of the comm stream begins after the work now in the compute stream. mark:
     * records the current end of the comm stream as `mark` (0 .. n - 1, with n from open_marks).
     * join: later work of the compute stream waits for mark `mark`. */
    dt_status (*open_marks)(struct dt_device *dev, int n);
    dt_status (*fork)(struct dt_device *dev);
    dt_status (*mark)(struct dt_device *dev, int mark);
    dt_status (*join)(struct dt_device *dev, int mark);
    /* Between record and end_record, calls put their work into a recording instead of a queue. If
     * end_record fails, nothing was recorded. */
    dt_status (*record)(struct dt_device *dev);
    dt_status (*end_record)(struct dt_device *dev, struct dt_recording **out);
    dt_status (*replay)(struct dt_device *dev, struct dt_recording *recording);
    void (*release_recording)(struct dt_device *dev, struct dt_recording *recording);
    /* Time stamps of the compute or the comm stream: stamp i (0 .. 4095) is taken when the work
     * before it is done; elapsed returns the seconds between two and waits for the second. */
    dt_status (*stamp)(struct dt_device *dev, int i, bool is_comm);
    dt_status (*elapsed)(struct dt_device *dev, int from, int to, double *seconds);
    /* Names what is enqueued in between, for profilers (NVTX); ranges nest. */
    void (*push_range)(const char *name);
    void (*pop_range)(void);
};

extern const struct dt_backend dt_backend_cpu;
extern const struct dt_backend dt_backend_cuda; /* only with DTRAIN_CUDA */

#endif
