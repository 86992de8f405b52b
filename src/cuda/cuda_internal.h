/* Internals of the CUDA backend: device, formats, prepared nodes, wrappers for library calls.
 *
 * Activations are NHWC with channels padded to a multiple of 8 (for ingest's output: 4);
 * convolution weights are O R S I, linear weights O x (H W C), both padded likewise; vectors of
 * channels are padded to 8. Padding is zero everywhere and stays zero. `type` is the type of
 * activations and their gradients, of the shadow copy of weights, and of the gradients of weights;
 * everything else, vectors and their gradients too, is fp32. */
#ifndef DTRAIN_CUDA_CUDA_INTERNAL_H
#define DTRAIN_CUDA_CUDA_INTERNAL_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "dtrain/backend.h"
#include "kernels/kernels.h"

/* --- Library calls: DT_TRY(DT_CUDA("what it does", cudaCall(...))) --- */
/* DT_OK, or DT_ERR_DEVICE (memory: DT_ERR_MEMORY) with `what`, the library's name for the error and
 * its text. */
dt_status dt_cuda_status(const char *what, cudaError_t code, const char *file, int line);
dt_status dt_cudnn_status(const char *what, cudnnStatus_t code, const char *file, int line);
dt_status dt_cublas_status(const char *what, cublasStatus_t code, const char *file, int line);
#define DT_CUDA(what, call)   dt_cuda_status((what), (call), __FILE__, __LINE__)
#define DT_CUDNN(what, call)  dt_cudnn_status((what), (call), __FILE__, __LINE__)
#define DT_CUBLAS(what, call) dt_cublas_status((what), (call), __FILE__, __LINE__)

/* --- Formats (cuda_format.c) --- */

enum dt_layout {
    DT_LAYOUT_PLAIN,          /* as on the host: pixels, labels */
    DT_LAYOUT_VECTOR,         /* fp32 or `type`, channels padded to 8 */
    DT_LAYOUT_ACTIVATION,     /* rows x cp */
    DT_LAYOUT_BITS,           /* one bit per element of rows x cp: workspace of bn */
    DT_LAYOUT_BYTES,          /* one byte per element of rows x cp: workspace of max_pool */
    DT_LAYOUT_CONV_WEIGHTS,   /* op x R x S x ip */
    DT_LAYOUT_LINEAR_WEIGHTS, /* op x (H W ip) */
};

struct dt_cuda_format {
    enum dt_layout layout;
    enum dt_dtype type; /* type in which nodes read and write it */
    int n, c, h, w;     /* logical; weights: O, I, R, S (linear: of the activation it multiplies) */
    int cp;             /* c padded */
    int np;             /* weights: n padded to 8; else n */
    size_t elements;    /* padding included; bits: rounded up to whole bytes by rows * cp / 8 */
    bool unused;        /* its fusion runs together without it */
    size_t reuse_bytes; /* if unused, the bytes that its place still has, for something else */
};

/* The formats of one graph, made when its first node is prepared; the graph must be complete by
 * then. They are destroyed with the last node, so a later graph at the same address never sees
 * stale ones. */
struct dt_cuda_formats {
    struct dt_cuda_formats *next;
    const struct dt_graph *graph;
    struct dt_cuda_format *format; /* one per tensor */
    int n_tensors;
    int n_users; /* prepared nodes */
};

/* Adds a node of `g` as a user of its formats; release removes one. DT_ERR_MEMORY. */
dt_status dt_cuda_formats_acquire(struct dt_device *dev, const struct dt_graph *g);
void dt_cuda_formats_release(struct dt_device *dev, const struct dt_graph *g);
/* The format of a tensor. If no node is prepared, the formats are made again and are valid until
 * the next call of a function of cuda_format.c. DT_ERR_MEMORY. */
dt_status dt_cuda_format(struct dt_device *dev, const struct dt_cuda_format **out,
                         const struct dt_graph *g, int tensor);
/* Marks a tensor as unused. */
void dt_cuda_format_drop(struct dt_device *dev, const struct dt_graph *g, int tensor,
                         size_t reuse_bytes);
enum dt_dtype dt_cuda_dtype(struct dt_device *dev, const struct dt_graph *g, int tensor);
size_t dt_cuda_tensor_bytes(struct dt_device *dev, const struct dt_graph *g, int tensor);
dt_status dt_cuda_set_tensor(struct dt_device *dev, const struct dt_graph *g, int tensor, void *dst,
                             const float *src);
dt_status dt_cuda_get_tensor(struct dt_device *dev, const struct dt_graph *g, int tensor,
                             float *dst, const void *src);
void dt_cuda_formats_destroy(struct dt_cuda_formats *formats);

/* --- Device --- */

enum {
    DT_CUDA_FEED_SLOTS = 2,
    DT_CUDA_MAX_STAMPS = 4096,
    DT_CUDA_ALIGN = 256,         /* bytes: the best alignment for the libraries */
    DT_CUDA_PINNED_BYTES = 4096, /* size of dt_device.pinned */
};

struct dt_conv_problem; /* cuda_conv.h */

struct dt_device {
    struct dt_device_options options;
    char cache_dir[1024]; /* copy of options.cache_dir, "" = none */
    int index;
    char name[64], identity[DT_IDENTITY_MAX];
    int capability; /* 90 */
    enum dt_dtype type;
    cudaStream_t compute, comm, copy;
    cudnnHandle_t dnn;
    cublasLtHandle_t blas;
    struct dt_cuda_formats *formats;
    struct dt_conv_problem *problems;
    struct dt_cuda_fusion *fusions;
    struct dt_fusion_task *fusion_tasks;
    uint64_t n_allocs;
    bool hung; /* a wait timed out: freeing might block forever and is skipped */

    /* Device memory: state that kernels keep between launches. */
    struct dt_step_values *step;
    struct dt_scale_state *scale;
    struct dt_step_counters *counters;
    unsigned *tickets; /* of dt_norm_args */
    void *pinned;      /* host memory for small downloads */

    cudaEvent_t fork, wait;
    cudaEvent_t *mark; /* marks of the comm stream */
    int n_marks;
    /* Feeding: a pass's input goes to device memory `feed_memory[i]` on the copy stream and from
     * there to its tensors on the compute stream; the slots alternate from pass to pass. */
    char *feed_memory[DT_CUDA_FEED_SLOTS];
    size_t feed_bytes, feed_used;
    int feed_slot;
    cudaEvent_t fed[DT_CUDA_FEED_SLOTS], taken[DT_CUDA_FEED_SLOTS];
    bool told_unpinned;        /* has warned that host memory could not be pinned */
    struct dt_cuda_nvml *nvml; /* NULL: no sensors */
    cudaEvent_t *stamp;        /* DT_CUDA_MAX_STAMPS, created as needed */
};

static inline size_t dt_cuda_align(size_t bytes)
{
    return (bytes + DT_CUDA_ALIGN - 1) / DT_CUDA_ALIGN * DT_CUDA_ALIGN;
}

/* Waits for an event, polling, for at most options.timeout_s; `what` ("the training step") is for
 * the message of DT_ERR_HANG. */
dt_status dt_cuda_wait(struct dt_device *dev, cudaEvent_t event, const char *what);
/* Waits likewise for all work now in a stream. */
dt_status dt_cuda_wait_stream(struct dt_device *dev, cudaStream_t stream, const char *what);

/* cuda_probe.c: explains why no GPU can be used; `code` is the result of cudaGetDeviceCount. */
void dt_cuda_explain(char *out, size_t bytes, cudaError_t code);
/* "13.0" from 13000. */
void dt_cuda_format_version(char *out, size_t bytes, int version);
/* Hexadecimal, 33 bytes. */
void dt_cuda_format_uuid(char *out, size_t bytes, const cudaUUID_t *uuid);

/* --- Nodes --- */

struct dt_cuda_op;
struct dt_cuda_fusion; /* fusion.h */

struct dt_exec {
    const struct dt_cuda_op *op;
    const struct dt_graph *graph;
    const struct dt_node *node;
    /* NULL where absent; the addresses are set by bind. */
    const struct dt_cuda_format *src[DT_MAX_SRC], *dst[DT_MAX_DST];
    void *src_data[DT_MAX_SRC], *dst_data[DT_MAX_DST];
    char *scratch; /* after bind: aligned to DT_CUDA_ALIGN */
    size_t scratch_bytes;
    struct dt_conv_problem *problem; /* convolutions */
    void *own;                       /* private to the op */
    /* The fusions of each kind that run together with this node as the first, and as another;
     * NULL = none. */
    struct dt_cuda_fusion *fusion[2 * DT_N_FUSION_KINDS];
};

struct dt_cuda_op {
    dt_status (*run)(struct dt_device *dev, struct dt_exec *exec);
    /* May be NULL: */
    /* src and dst (formats) are set. Sets scratch_bytes if it is already known. */
    dt_status (*prepare)(struct dt_device *dev, struct dt_exec *exec);
    size_t (*scratch_bytes)(
        const struct dt_exec *exec); /* called after autotune; NULL: exec's field */
    dt_status (*bind)(struct dt_device *dev, struct dt_exec *exec); /* addresses are set */
    void (*release)(struct dt_device *dev, struct dt_exec *exec); /* also after a failed prepare */
    dt_status (*run_second_half)(struct dt_device *dev,
                                 struct dt_exec *exec); /* synced: the second half */
};

/* exec.c */
size_t dt_cuda_scratch_bytes(struct dt_device *dev, const struct dt_exec *exec);
dt_status dt_cuda_bind(struct dt_device *dev, struct dt_exec *exec, void *const *address,
                       void *scratch);

/* Launches a kernel of a node in the compute stream; its other arguments follow. */
#define DT_KERNEL(dev, exec, kernel, ...) \
    DT_CUDA((exec)->node->name, kernel((dev)->compute, __VA_ARGS__))

/* One per op of the op list, in the file of its family. */
#define DT_CUDA_DECLARE(NAME, name, ...) extern const struct dt_cuda_op dt_cuda_##name;
DT_OP_LIST(DT_CUDA_DECLARE)
#undef DT_CUDA_DECLARE

/* cuda_norm.c, for cuda_norm_bwd.c and others */
/* `prepare` of the three ops. */
dt_status dt_bn_prepare(struct dt_device *dev, struct dt_exec *exec);
/* The coefficients of the gradient in a scratch. */
float *dt_bn_coefs(const struct dt_exec *exec, char *scratch);
/* If synced, the slot of this rank; else NULL. */
float *dt_bn_own_slot(const struct dt_device *dev, const struct dt_exec *exec);
/* The slots of the ranks of its group. */
const float *dt_bn_rank_slots(const struct dt_device *dev, const struct dt_exec *exec);
/* The arguments of all launches. */
struct dt_norm_args dt_bn_args(const struct dt_device *dev, const struct dt_exec *exec);
struct dt_bn_vectors dt_cuda_bn_vectors(const struct dt_exec *exec); /* of bn */
void *dt_cuda_exchange_slots(struct dt_device *dev, const struct dt_exec *exec, size_t *bytes);

/* cuda_pool.c */
struct dt_pool_shape dt_cuda_pool_bwd_shape(const struct dt_exec *exec);

/* cuda_update.c */
dt_status dt_cuda_set_scalars(struct dt_device *dev, const struct dt_scalars *scalars);
dt_status dt_cuda_update(struct dt_device *dev, const struct dt_update *update);
/* Turns segments from *next on into ranges[0 .. DT_MAX_RANGES) of one launch and advances *next. */
dt_status dt_cuda_cut_ranges(struct dt_range *ranges, int *n_ranges,
                             const struct dt_segment *segments, int n_segments, int *next);
dt_status dt_cuda_lerp(struct dt_device *dev, float *dst, const float *src, size_t count);
dt_status dt_cuda_accumulate(struct dt_device *dev, float *dst, const void *src,
                             enum dt_dtype src_type, size_t count, bool first);
dt_status dt_cuda_refresh(struct dt_device *dev, void *shadow, const float *params, size_t count);
dt_status dt_cuda_check(struct dt_device *dev, const void *grads, enum dt_dtype type, size_t count,
                        double *norms);
dt_status dt_cuda_count(struct dt_device *dev, float *count, const float *from, int n, bool first);
dt_status dt_cuda_divide(struct dt_device *dev, const float *counts, int n);
dt_status dt_cuda_clip(struct dt_device *dev, const double *norms, int n);
dt_status dt_cuda_end_step(struct dt_device *dev);
dt_status dt_cuda_get_loss_scale(struct dt_device *dev, struct dt_loss_scale *out);
dt_status dt_cuda_set_loss_scale(struct dt_device *dev, const struct dt_loss_scale *in);
dt_status dt_cuda_get_updates(struct dt_device *dev, int64_t *n);
dt_status dt_cuda_set_updates(struct dt_device *dev, int64_t n);
dt_status dt_cuda_download(struct dt_device *dev, struct dt_counters *out); /* cuda_loss.c */

/* feed.c */
dt_status dt_cuda_upload(struct dt_device *dev, void *dst, const void *src, size_t bytes);
dt_status dt_cuda_read(struct dt_device *dev, void *dst, const void *src, size_t bytes);
dt_status dt_cuda_open_feed(struct dt_device *dev, size_t bytes);
void dt_cuda_close_feed(struct dt_device *dev);
dt_status dt_cuda_feed(struct dt_device *dev, void *dst, const void *src, size_t bytes);
dt_status dt_cuda_end_feed(struct dt_device *dev);
dt_status dt_cuda_pin(struct dt_device *dev, void *memory, size_t bytes);
void dt_cuda_unpin(struct dt_device *dev, void *memory);

/* stream.c: order of the streams, recordings, stamps. */
dt_status dt_cuda_open_streams(struct dt_device *dev);
void dt_cuda_close_streams(struct dt_device *dev); /* even if only partly open */
void *dt_cuda_comm_stream(struct dt_device *dev);
dt_status dt_cuda_open_marks(struct dt_device *dev, int n);
dt_status dt_cuda_fork(struct dt_device *dev);
dt_status dt_cuda_mark(struct dt_device *dev, int mark);
dt_status dt_cuda_join(struct dt_device *dev, int mark);
dt_status dt_cuda_record(struct dt_device *dev);
dt_status dt_cuda_end_record(struct dt_device *dev, struct dt_recording **out);
dt_status dt_cuda_replay(struct dt_device *dev, struct dt_recording *recording);
void dt_cuda_release_recording(struct dt_device *dev, struct dt_recording *recording);
dt_status dt_cuda_stamp(struct dt_device *dev, int i, bool is_comm);
dt_status dt_cuda_elapsed(struct dt_device *dev, int from, int to, double *seconds);
void dt_cuda_push_range(const char *name);
void dt_cuda_pop_range(void);
dt_status dt_cuda_sync(struct dt_device *dev);

/* nvml.c */
void dt_cuda_open_nvml(struct dt_device *dev); /* uses dev->identity */
void dt_cuda_close_nvml(struct dt_device *dev);
bool dt_cuda_read_sensors(struct dt_device *dev, struct dt_sensors *out);

/* traffic.c */
int64_t dt_cuda_again_bytes(struct dt_device *dev, const struct dt_exec *exec);

/* autotune.c */
dt_status dt_cuda_autotune(struct dt_device *dev, dt_status prepared);
bool dt_cuda_choice(const struct dt_device *dev, const struct dt_exec *exec, int i,
                    struct dt_choice *out);
void dt_cuda_problems_destroy(struct dt_device *dev); /* dnn_graph.c */

/* fusion.c */
dt_status dt_cuda_propose_fusion(struct dt_device *dev, const struct dt_fusion *fusion,
                                 struct dt_exec *const *exec);
int dt_cuda_extra_tensors(const struct dt_exec *exec, int tensor[DT_MAX_EXTRA_TENSORS]);
/* Forgets the fusions of a node that is released. */
void dt_cuda_leave_fusions(struct dt_device *dev, const struct dt_exec *exec);
void dt_cuda_fusion_tasks_destroy(struct dt_device *dev);
/* If the node is number `place` of a fusion that runs together, the one that is number `other`;
 * else NULL. */
const struct dt_exec *dt_cuda_partner(const struct dt_exec *exec, enum dt_fusion_kind kind,
                                      int place, int other);

#endif
