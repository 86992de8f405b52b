/* Internals of the CPU backend: device, formats, ports and prepared nodes.
 *
 * Every tensor has one stored format, kept by the device per graph; the first node that touches a
 * tensor chooses it. A node accesses its tensors through ports: if the format or the type that the
 * node wants differs from the stored one, the port copies through scratch before (src) or after
 * (dst) the node runs.
 *
 * With precision bf16 activations, their gradients and the weights that nodes read are stored in
 * bf16; vectors, gradients of parameters and the masters in fp32. */
#ifndef DTRAIN_CPU_CPU_INTERNAL_H
#define DTRAIN_CPU_CPU_INTERNAL_H

#include <math.h>
#include <omp.h>

#include "cpu/dnnl_shim.h"
#include "cpu/isa.h"

/* Channels of a block in memory, and the format of activations in such blocks. */
#ifdef __AVX512F__
enum { DT_CPU_BLOCK = 16 };
#define DT_CPU_BLOCKS dnnl_aBcd16b
#else
enum { DT_CPU_BLOCK = 8 };
#define DT_CPU_BLOCKS dnnl_aBcd8b
#endif

/* The stored formats of one graph; lives as long as any prepared node of that graph. */
struct dt_cpu_format {
    dt_md md;     /* NULL: not chosen yet, or an opaque block of `bytes` */
    dt_md shadow; /* weights in bf16: of the copy that nodes read; md is of the fp32 master */
    int n_dims;
    dnnl_dims_t dims; /* of md; linear weights have the dims of the activation they multiply */
    size_t bytes;     /* if md is NULL: size of an opaque block, 0 = plain */
};

struct dt_cpu_formats {
    struct dt_cpu_formats *next;
    const struct dt_graph *graph;
    enum dt_dtype type;           /* of activations */
    bool nhwc;                    /* of activations: else in blocks of channels */
    struct dt_cpu_format *format; /* one per tensor */
    size_t capacity;
    int n_users;
};

struct dt_device {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    const struct dt_cpu_isa *isa;
    struct dt_device_options options;
    struct dt_scalars scalars;
    struct dt_cpu_formats *formats;
    struct dt_counters counters;
    bool found;         /* a gradient of the current step is not finite */
    int64_t n_in_a_row; /* consecutive steps skipped so far */
    int64_t n_updates;  /* steps that were not skipped */
    float clip;         /* factor on the gradients of the current step */
    uint64_t n_allocs;
};

/* The type of activations. */
static inline enum dt_dtype dt_cpu_type(const struct dt_device *dev)
{
    return dev->options.precision == DT_PRECISION_BF16 ? DT_BF16 : DT_F32;
}

/* --- cpu_format.c --- */

/* Finds or creates the table of a graph and adds a user; release removes one. */
dt_status dt_cpu_formats_acquire(struct dt_device *dev, struct dt_cpu_formats **out,
                                 const struct dt_graph *g);
void dt_cpu_formats_release(struct dt_device *dev, struct dt_cpu_formats *formats);
/* The entry of a tensor; a parameter and its gradient share one. */
struct dt_cpu_format *dt_cpu_format_of(struct dt_cpu_formats *formats, int tensor);
/* Stores a copy of md as the format of a tensor. */
dt_status dt_cpu_format_set(struct dt_cpu_formats *formats, int tensor, dt_md_ref md, int n_dims,
                            const dnnl_dims_t dims);
/* The type in which nodes find a tensor, and in which this node wants it: that of its loops, unless
 * the tensor is always fp32. */
enum dt_dtype dt_cpu_stored_type(const struct dt_cpu_formats *formats, int tensor);
enum dt_dtype dt_cpu_wanted_type(const struct dt_exec *exec, int tensor);
/* The type in which oneDNN multiplies: bf16 where the CPU has instructions for that, since it is
 * several times slower than fp32 elsewhere. */
enum dt_dtype dt_cpu_product_type(const struct dt_exec *exec);
/* The dimensions of a tensor as passed to oneDNN; returns their number, 1 or 4. */
int dt_cpu_dims(dnnl_dims_t dims, const struct dt_tensor *tensor);

size_t dt_cpu_tensor_bytes(struct dt_device *dev, const struct dt_graph *g, int tensor);
/* Whether concatenated tensors lie in their whole. */
bool dt_cpu_shares(const struct dt_device *dev);
dt_status dt_cpu_set_tensor(struct dt_device *dev, const struct dt_graph *g, int tensor, void *dst,
                            const float *src);
dt_status dt_cpu_get_tensor(struct dt_device *dev, const struct dt_graph *g, int tensor, float *dst,
                            const void *src);

/* How our own loops see an activation N x C x H x W: as blocks of adjacent channels, of which those
 * of a pixel lie in a row of H * W pixels. A row is one block (of which the channels vary fastest),
 * or in nhwc all `columns` blocks of 16 of an image side by side, the last one with as many
 * channels as there are left. The rows of an image follow each other, with those of its whole, if
 * it is part of one, between the images. */
struct dt_cpu_rows {
    int n, channels, height, width;
    dnnl_format_tag_t tag;
    int block;        /* channels: 1 (nchw), 8 or 16 */
    int n_blocks;     /* the last one may be padded */
    int columns;      /* blocks of a row */
    int image_blocks; /* from one image to the next in memory */
    size_t row_elements;
};

static inline bool dt_cpu_is_nhwc(const struct dt_cpu_rows *rows)
{
    return rows->tag == dnnl_acdb;
}

/* Offset of a block, in a tensor with so many blocks from one image to the next. */
static inline size_t dt_cpu_block_offset(const struct dt_cpu_rows *rows, int image_blocks,
                                         int image, int block)
{
    const int row = (image * image_blocks + block) / rows->columns;
    return (size_t)row * rows->row_elements + (size_t)(block % rows->columns * rows->block);
}

/* Values of a block in all pixels of a row. */
static inline size_t dt_cpu_block_elements(const struct dt_cpu_rows *rows)
{
    return (size_t)rows->height * (size_t)rows->width * (size_t)rows->block;
}

/* From one pixel of a block to the next. */
static inline int dt_cpu_pixel_step(const struct dt_cpu_rows *rows)
{
    return dt_cpu_is_nhwc(rows) ? rows->channels : rows->block;
}

/* Channels of a block that are in memory. */
static inline int dt_cpu_block_width(const struct dt_cpu_rows *rows, int block)
{
    const int left = rows->channels - block * rows->block;
    return dt_cpu_is_nhwc(rows) && left < rows->block ? left : rows->block;
}

/* So many blocks of a row, as norm_loops.h sees them. */
static inline struct dt_norm_row dt_cpu_norm_row(const struct dt_cpu_rows *rows, int first_block,
                                                 int columns)
{
    if (!dt_cpu_is_nhwc(rows))
        return dt_norm_flat(rows->row_elements);
    return (struct dt_norm_row){.pixels = (size_t)rows->height * (size_t)rows->width,
                                .step = (size_t)rows->channels,
                                .columns = columns,
                                .width = dt_cpu_block_width(rows, first_block + columns - 1),
                                .words = rows->columns};
}

/* Chooses the format in which a loop over rows sees `tensor` (a new md in *md, or NULL): that of
 * `tag`; or, with dnnl_format_tag_any, the stored one if it consists of rows, else the plain one of
 * the graph; with dnnl_format_tag_undef, for loops that cannot take nhwc, the same without it. */
dt_status dt_cpu_rows_choose(struct dt_cpu_rows *rows, dt_md *md, const struct dt_exec *exec,
                             int tensor, dnnl_format_tag_t tag);

/* --- cpu_weights.c --- */

/* A copy of weights from blocks [input][output] of side x side channels. */
struct dt_cpu_relayout {
    enum dt_cpu_relayout_to {
        DT_CPU_PAIRS_OF_INPUTS,  /* [input / 2][output][input % 2], of 16 channels */
        DT_CPU_PAIRS_OF_OUTPUTS, /* [output / 2][input][output % 2] */
        DT_CPU_TRANSPOSED,       /* [output][input] in fp32, of 8 channels */
    } to;
    int side, outputs, inputs, taps; /* outputs, inputs: blocks of channels; side 0: no such copy */
    bool inputs_first;               /* order of the blocks in the copy */
    /* 0: whole blocks. Otherwise the channels that are not paired lie in groups of `wide`:
     * [channel / wide][tap][pair][channel % wide][2]; a pair is two neighbouring channels of the
     * paired side. */
    int wide;
    bool mirrored; /* the last tap first */
};

#define dt_cpu_relayout_weights DT_ISA_NAME(dt_cpu_relayout_weights)
dt_status dt_cpu_relayout_weights(void *dst, const uint16_t *src, const struct dt_cpu_relayout *r);

/* --- port.c --- */

/* Weights of a grouped convolution, for a primitive that sees fewer groups, each of `merged`: those
 * between the groups that it takes for one are 0. */
struct dt_cpu_merge {
    int merged;    /* 1: none */
    int outputs;   /* channels of all groups */
    size_t row;    /* values of one output channel: inputs of a group x H x W */
    int per_group; /* outputs of a group */
};

struct dt_cpu_port {
    int tensor;
    bool is_dst;
    dt_md_ref stored;                /* owned by the table */
    dt_md wanted;                    /* NULL: an opaque block, or as stored */
    dnnl_primitive_t copy;           /* NULL: both formats are the same, or: */
    size_t n_converted;              /* only their types differ: values, padding included */
    struct dt_cpu_relayout relayout; /* of weights in bf16 */
    struct dt_cpu_merge merge;       /* of plain weights, before or after `copy` */
    size_t merge_offset;             /* of the merged weights in plain order, in scratch */
    size_t copy_offset;              /* of the copy in the wanted format, in scratch */
    dnnl_memory_t stored_memory, wanted_memory; /* of `copy` */
    dnnl_memory_t argument;                     /* of the node's primitive */
    void *stored_data;                          /* after bind */
    void *data; /* after bind: memory that the node reads or writes */
};

enum { DT_CPU_MAX_ARGS = DT_MAX_SRC + DT_MAX_DST + 1 };

/* A prepared node. Port i belongs to src[i], port n_src + i to dst[i]. */
struct dt_exec {
    struct dt_device *dev;
    const struct dt_cpu_op *op;
    const struct dt_graph *graph;
    const struct dt_node *node;
    struct dt_cpu_formats *formats;
    enum dt_dtype type; /* of activations in its loops or primitive */
    bool mirrored; /* the gradient of the data as a convolution: inputs and outputs of its weights
                      are exchanged, and its taps in the other order */
    int n_passes;  /* 0: 1; with more the primitive works on an equal part of the images in each,
                      whose conversion stays in a cache (dt_cpu_run_passes) */
    struct dt_cpu_port port[DT_MAX_SRC + DT_MAX_DST];
    int n_ports;
    size_t scratch_bytes;

    /* The oneDNN primitive, if one does the work. */
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arg[DT_CPU_MAX_ARGS];
    int n_args;
    dnnl_memory_t scratchpad;
    size_t scratchpad_offset;

    /* For our own loops. */
    void (*loops)(struct dt_exec *exec); /* of a convolution without a primitive */
    const char *algorithm;               /* their name */
    struct dt_cpu_rows rows;             /* of the first activation */
    size_t n_elements;                   /* of flat loops, padding included */
    size_t work_offset;
    void *work; /* after bind */
};

/* Adds the port of the next tensor of the node that is present: in format `wanted` (which becomes
 * the stored format if the tensor has none), or as an opaque block. Ports are added in the order of
 * the tensors. */
dt_status dt_cpu_port_add(struct dt_exec *exec, dt_md_ref wanted);
/* The same for a tensor that oneDNN sees with dimensions other than its own. */
dt_status dt_cpu_port_add_dims(struct dt_exec *exec, dt_md_ref wanted, int n_dims,
                               const dnnl_dims_t dims);
/* The same for weights that are merged; stored in plain order. */
dt_status dt_cpu_port_add_merged(struct dt_exec *exec, dt_md_ref wanted, const dnnl_dims_t dims,
                                 const struct dt_cpu_merge *merge);
dt_status dt_cpu_port_add_block(struct dt_exec *exec, size_t bytes);
/* Whether weights O I H W can be copied to this format of AMX, which has whole blocks. */
bool dt_cpu_is_wide(int *wide, dt_md_ref md, const dnnl_dims_t dims);
/* Adds the ports of all tensors: activations in a format of rows (nhwc, or blocks of 8 or 16
 * channels), weights in blocks of so many channels: of outputs x of inputs x H x W x inputs x
 * outputs, or with one input each of blocks of outputs x H x W x outputs. */
dt_status dt_cpu_port_add_blocks(struct dt_exec *exec, dnnl_format_tag_t tag, int block);
/* Adds the ports of all tensors, activations, as rows of `tag`; exec->rows describes `own`. */
dt_status dt_cpu_port_add_rows(struct dt_exec *exec, dnnl_format_tag_t tag, int own);
/* Adds plain ports for all tensors of the node that have none yet. */
dt_status dt_cpu_port_add_plain(struct dt_exec *exec);
/* Adds all ports by their letters in the op list: values in format md, which it destroys, a mask as
 * a block of mask_bytes, the others as blocks. */
dt_status dt_cpu_port_add_kinds(struct dt_exec *exec, dt_md md, size_t mask_bytes);
/* Makes the latest port the argument `arg` of the primitive; `md` may describe the same bytes with
 * other dimensions (NULL: the wanted format). */
dt_status dt_cpu_port_argument(struct dt_exec *exec, int arg, dt_md_ref md);
/* Reserves bytes of scratch and returns their offset. */
size_t dt_cpu_reserve(struct dt_exec *exec, size_t bytes);
/* Creates the primitive and its scratchpad. Does not take ownership of pd. */
dt_status dt_cpu_primitive(struct dt_exec *exec, dnnl_primitive_desc_t pd);

dt_status dt_cpu_ports_bind(struct dt_exec *exec, void *const *address, char *scratch);
dt_status dt_cpu_ports_read(struct dt_exec *exec);  /* before the node */
dt_status dt_cpu_ports_write(struct dt_exec *exec); /* after it */
void dt_cpu_exec_destroy(struct dt_exec *exec);

/* Converts activations, runs the primitive, and adds up the gradients of parameters, pass by pass;
 * exec->work has room for these. */
dt_status dt_cpu_run_passes(struct dt_exec *exec);

/* NULL if it is absent. */
static inline void *dt_cpu_src(const struct dt_exec *exec, int i)
{
    return exec->node->src[i] < 0 ? NULL : exec->port[i].data;
}

static inline void *dt_cpu_dst(const struct dt_exec *exec, int i)
{
    return exec->node->dst[i] < 0 ? NULL : exec->port[exec->node->n_src + i].data;
}

/* --- Own loops, inside a parallel region --- */

/* This thread's part of a list of tasks. */
struct dt_cpu_span {
    int begin, end;
};

static inline struct dt_cpu_span dt_cpu_own_span(int n_tasks)
{
    int thread = omp_get_thread_num(), n_threads = omp_get_num_threads();
    return (struct dt_cpu_span){(int)((int64_t)n_tasks * thread / n_threads),
                                (int)((int64_t)n_tasks * (thread + 1) / n_threads)};
}

/* --- cpu_pointwise.c --- */

/* The prepare of flat loops whose values are those of src[0], or src[1] of a gradient. */
#define dt_cpu_prepare_like_value DT_ISA_NAME(dt_cpu_prepare_like_value)
dt_status dt_cpu_prepare_like_value(struct dt_exec *exec);

/* --- winograd.c: 3x3 convolutions and their gradients by our own loops --- */

#define dt_cpu_winograd_pays    DT_ISA_NAME(dt_cpu_winograd_pays)
#define dt_cpu_winograd_prepare DT_ISA_NAME(dt_cpu_winograd_prepare)

/* Whether a convolution or gradient can be done that way, and is then faster. Depends on the shapes
 * alone, so that runs are reproducible. */
bool dt_cpu_winograd_pays(const struct dt_node *node, const struct dt_tensor *src,
                          const struct dt_tensor *weights);
/* The whole of the op's prepare; sets exec->loops. */
dt_status dt_cpu_winograd_prepare(struct dt_exec *exec);

/* --- conv_weights.c: gradients of weights in bf16; the same two functions --- */

#define dt_cpu_weights_bf16_pays    DT_ISA_NAME(dt_cpu_weights_bf16_pays)
#define dt_cpu_weights_bf16_prepare DT_ISA_NAME(dt_cpu_weights_bf16_prepare)

bool dt_cpu_weights_bf16_pays(const struct dt_exec *exec);
dt_status dt_cpu_weights_bf16_prepare(struct dt_exec *exec);

/* --- conv_depthwise.c: gradients of depthwise weights; the same two functions --- */

#define dt_cpu_depthwise_pays    DT_ISA_NAME(dt_cpu_depthwise_pays)
#define dt_cpu_depthwise_prepare DT_ISA_NAME(dt_cpu_depthwise_prepare)

bool dt_cpu_depthwise_pays(const struct dt_exec *exec);
dt_status dt_cpu_depthwise_prepare(struct dt_exec *exec);

/* --- Ops: one row each, in the table of every instruction set --- */

struct dt_cpu_op {
    dt_status (*prepare)(struct dt_exec *exec);
    dt_status (*run)(struct dt_exec *exec);
    bool has_reals; /* it takes activations as real.h says; otherwise in fp32 */
};

#define DT_CPU_OP(name, ...)            const struct dt_cpu_op DT_ISA_NAME(dt_cpu_##name) = {__VA_ARGS__}
#define DT_CPU_DECLARE(NAME, name, ...) extern const struct dt_cpu_op DT_ISA_NAME(dt_cpu_##name);
DT_OP_LIST(DT_CPU_DECLARE)
#undef DT_CPU_DECLARE

/* cpu_norm.c: the second half of a synced node, without its ports. */
#define dt_cpu_run_second_half DT_ISA_NAME(dt_cpu_run_second_half)
dt_status dt_cpu_run_second_half(struct dt_exec *exec);

/* The ranks of a synced batch norm exchange two sums per channel and their numbers of lines, at the
 * start of its scratch. */
static inline size_t dt_cpu_slot_floats(const struct dt_cpu_rows *rows)
{
    return 2 * (size_t)rows->channels + 1;
}
static inline void *dt_cpu_exchange_slots(struct dt_device *dev, const struct dt_exec *exec,
                                          size_t *bytes)
{
    (void)dev;
    *bytes = dt_cpu_slot_floats(&exec->rows) * sizeof(float);
    return exec->work;
}

/* Runs the primitive: `run` of all ops implemented by oneDNN. */
dt_status dt_cpu_run_primitive(struct dt_exec *exec);

/* A loss as a multiple of 2^-24: sums of such numbers below 2^29 are exact in double, so that they
 * have the same bits in any order. */
static inline double dt_cpu_exact(double loss)
{
    return nearbyint(loss * 0x1p24) * 0x1p-24;
}

#endif
