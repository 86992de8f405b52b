/* The interface to a device. A backend exports one constant struct of functions.
 *
 * Life of a node: prepare (choose the algorithm and the memory formats, report scratch), then the
 * plan lays out memory, then bind (fix addresses), run (many times), release. Nodes are prepared in
 * graph order, all of them before the first bind. One thread (the main thread) calls these
 * functions; the backend may use more threads inside. Tensors are fp32 unless their dtype says
 * otherwise. */
#ifndef DTRAIN_BACKEND_H
#define DTRAIN_BACKEND_H

#include "dtrain/graph.h"

struct dt_device; /* one opened device */
struct dt_exec;   /* one prepared node */

struct dt_device_options {
    int threads; /* compute threads, >= 1 */
    bool deterministic;
    uint64_t seed; /* of dropout */
    /* Winograd's algorithm for large 3x3 convolutions, where the device has it: nearly twice as
     * fast, rounding errors about 5 times as large (3e-6 of the largest value). The shapes alone
     * decide where it is used. */
    bool winograd;
};

/* Values that change from step to step. */
struct dt_scalars {
    float lr, momentum, weight_decay;
    float diff_scale; /* the loss gradient is multiplied by this: 1 / global batch */
    bool nesterov;
    uint32_t step; /* of dropout */
    /* Place of the pass's first image in the global batch: a dropout mask depends on the image's
     * place there, not on which rank or pass takes the image. */
    uint32_t first_row;
};

/* Sums since the last download. */
struct dt_counters {
    double loss; /* cross entropy with label smoothing, summed over images */
    int64_t n, top1, top5;
};

/* Elements [first, first + count) of the params, grads and momentum arenas; gaps between segments
 * are padding. */
struct dt_segment {
    size_t first, count;
    float decay; /* factor on the weight decay: 0 or 1 */
};

struct dt_backend {
    const char *name;
    dt_status (*open)(struct dt_device **dev, const struct dt_device_options *options);
    void (*close)(struct dt_device *dev); /* accepts NULL */
    /* One line: device, library and version, instruction set, threads. */
    void (*describe)(struct dt_device *dev, char *out, size_t bytes);

    /* Memory: zeroed, aligned to 64 bytes. n_allocs counts calls so far (for a test). */
    dt_status (*alloc)(struct dt_device *dev, void **out, size_t bytes);
    void (*free)(struct dt_device *dev, void *memory, size_t bytes);
    uint64_t (*n_allocs)(const struct dt_device *dev);

    /* Ops. */
    bool (*supports)(struct dt_device *dev, const struct dt_graph *g, const struct dt_node *node);
    dt_status (*prepare)(struct dt_device *dev, struct dt_exec **exec, size_t *scratch_bytes,
                         const struct dt_graph *g, int node);
    /* Bytes of a tensor in the format chosen for it; valid when all nodes are prepared. A PARAM and
     * its DIFF_PARAM have the same format and size, a multiple of 4 bytes; padding stays zero. */
    size_t (*tensor_bytes)(struct dt_device *dev, const struct dt_graph *g, int tensor);
    /* address[t] for every tensor id t of the graph (NULL where the phase does not use it); scratch
     * holds at least the bytes asked for. Addresses stay valid until release. */
    dt_status (*bind)(struct dt_device *dev, struct dt_exec *exec, void *const *address,
                      void *scratch);
    dt_status (*run)(struct dt_device *dev, struct dt_exec *exec, const struct dt_scalars *scalars);
    void (*release)(struct dt_device *dev, struct dt_exec *exec); /* accepts NULL */

    /* Momentum SGD over segments, as PyTorch's: g += decay * weight_decay * w; m = momentum * m +
     * g; w -= lr * (nesterov ? g + momentum * m : m). grads are unchanged. */
    dt_status (*update)(struct dt_device *dev, float *params, float *momentum, const float *grads,
                        const struct dt_segment *segments, int n_segments,
                        const struct dt_scalars *scalars);
    /* dst[i] += src[i] */
    dt_status (*accumulate)(struct dt_device *dev, float *dst, const float *src, size_t count);

    /* Data. Host side is logical order (N C H W, O I H W, plain vectors); the device side has the
     * tensor's format. upload is for INPUT tensors (plain copies of `bytes`). */
    dt_status (*upload)(struct dt_device *dev, void *dst, const void *src, size_t bytes);
    dt_status (*set_tensor)(struct dt_device *dev, const struct dt_graph *g, int tensor, void *dst,
                            const float *src);
    dt_status (*get_tensor)(struct dt_device *dev, const struct dt_graph *g, int tensor, float *dst,
                            const void *src);
    /* Reads the counters and sets them to zero; waits for the work before it. */
    dt_status (*download)(struct dt_device *dev, struct dt_counters *out);
};

extern const struct dt_backend dt_backend_cpu;

#endif
