/* Winograd's algorithm for 3x3 convolutions of stride 1 and padding 1 (Lavin & Gray, "Fast
 * Algorithms for Convolutional Neural Networks", 2015): F(4x4, 3x3) forward and for the gradient of
 * the data, and with the same matrices F(3x3, 4x4) for the gradient of the weights.
 *
 * For a patch d of 6x6 pixels, weights g and a tile y of 4x4 pixels of the result
 *
 *     y = A' [GgG' * B'dB] A        gradient of g = G' [AyA' * B'dB] G,  y: gradient of the tile
 *
 * where * multiplies at each of 36 positions. Summed over channels (or tiles) these are 36 products
 * of matrices, with 36 multiplications where the definition has 144. The gradient of the data is
 * the convolution of y with the weights rotated by 180 degrees and their channels exchanged.
 *
 * Row i of the transposes A' and G' is the i-th power at the points 0, +-p, +-q, infinity (the last
 * column is 1 in the last row), G's divided by n(0) = p^2 q^2, n(p) = 2 p^2 (p^2 - q^2) and n(q) =
 * 2 q^2 (q^2 - p^2); and
 *
 *          p^2 q^2        0  -p^2 - q^2           0  1  0
 *                0  -+p q^2        -q^2         +-p  1  0      (two rows)
 *     B' =       0  -+q p^2        -p^2         +-q  1  0      (two rows)
 *                0  p^2 q^2           0  -p^2 - q^2  0  1
 *
 * p = 3/4 and q = 3/2 have exact constants, and a fifth of the rounding errors of the usual 1 and
 * 2: about 1e-6 of the largest value (the tests of tests/ops/conv.h print them).
 *
 * Activations keep their blocks of channels, and a transform of a block is vertical operations on
 * vectors. Each thread takes a part of the tiles, in chunks whose transformed patches stay in its
 * cache: patches, then for a few blocks of the result 36 products and the tiles, so that only
 * source and result go through memory. The transformed weights are shared. Where they are larger
 * than all patches, and all threads have a part of the result's blocks, it is the other way round:
 * the patches are shared, and each thread transforms the weights of its blocks when it needs them.
 * For the gradient of the weights the threads transform a chunk together and then share the 36
 * products of all pairs of blocks: each sum belongs to one thread, and no copies have to be added.
 * The order of the additions depends on the shapes alone, so the results are the same for any
 * number of threads. All choices were measured on one and two threads.
 *
 * An infinite or NaN pixel spoils its whole tiles, and the padding of the last block of channels,
 * which is 0 otherwise. */
#include <omp.h>
#include <string.h>

#include "cpu/internal.h"
#include "cpu/winograd.h"

enum {
    BLOCK = DT_WINO_BLOCK,
    SQUARE = BLOCK * BLOCK, /* pairs of channels in a pair of blocks */
    POSITIONS = DT_WINO_POSITIONS,
    /* Tiles in a chunk: those whose patches take CACHED bytes, but enough to read the weights only
     * a few times, and no more than pay off. */
    CACHED = 768 << 10,
    MIN_TILES = 48,
    MAX_TILES = 96,
    GRADIENT_TILES = 128, /* the sums are read and written once per chunk */
};

/* One run, from the shapes alone. For the gradient of the weights, `to` is the gradient of dst. */
struct wino {
    struct dt_wino_image from, to;
    int n_tiles;
    bool by_blocks;                      /* how the threads share the work */
    struct dt_wino_chunk patches, tiles; /* the room for a chunk of either */
    size_t plane;                        /* of the weights; floats */
    size_t shared, own;                  /* floats of scratch: together, and of each thread */
};

static struct dt_wino_image image_of(const struct dt_tensor *t)
{
    return (struct dt_wino_image){.n = t->dim[0],
                                  .blocks = (t->dim[1] + BLOCK - 1) / BLOCK,
                                  .height = t->dim[2],
                                  .width = t->dim[3],
                                  .down = (t->dim[2] + DT_WINO_TILE - 1) / DT_WINO_TILE,
                                  .across = (t->dim[3] + DT_WINO_TILE - 1) / DT_WINO_TILE};
}

/* As measured, a tile takes the time of 4.5 pixels of oneDNN's direct convolution, and the
 * transform of the weights that of 36 tiles. */
bool dt_cpu_winograd_pays(const struct dt_node *node, const struct dt_tensor *src,
                          const struct dt_tensor *weights)
{
    enum { LEAST_CHANNELS = 16 };
    const int least_block = 8; /* shorter vectors are slower than oneDNN */
    const struct dt_wino_image image = image_of(src);
    int64_t tiles = (int64_t)image.n * image.down * image.across;
    int64_t pixels = (int64_t)image.n * image.height * image.width;
    return BLOCK >= least_block && weights->dim[2] == 3 && weights->dim[3] == 3 &&
           node->attr.conv.stride == 1 && node->attr.conv.pad == 1 &&
           weights->dim[0] >= LEAST_CHANNELS && weights->dim[1] >= LEAST_CHANNELS &&
           tiles <= INT32_MAX && 2 * pixels >= 9 * (tiles + 36);
}

static int at_most(int n, int limit)
{
    return n < limit ? n : limit;
}

/* A cache line more than the vectors need: positions a power of two apart would compete for the
 * same lines of the cache. */
static size_t plane_of(int n_vectors)
{
    return (size_t)n_vectors * BLOCK + 16;
}

static bool is_gradient(const struct dt_exec *exec)
{
    return exec->node->op == DT_OP_CONV_BWD_WEIGHTS;
}

/* Of the result's blocks. */
static int n_groups(const struct dt_wino_image *to)
{
    return (to->blocks + DT_WINO_WIDE - 1) / DT_WINO_WIDE;
}

static int tiles_per_chunk(const struct dt_exec *exec, const struct wino *w)
{
    int n = CACHED / (POSITIONS * w->from.blocks * BLOCK * (int)sizeof(float));
    n = is_gradient(exec) ? GRADIENT_TILES : n > MIN_TILES ? at_most(n, MAX_TILES) : MIN_TILES;
    n = w->by_blocks ? w->n_tiles : at_most(n, w->n_tiles);
    return (n + DT_WINO_STEP - 1) / DT_WINO_STEP * DT_WINO_STEP;
}

static struct wino wino_of(const struct dt_exec *exec)
{
    const struct dt_tensor *tensor = exec->graph->tensor;
    const struct dt_node *node = exec->node;
    struct wino w = {.from = image_of(&tensor[node->src[0]]),
                     .to = image_of(&tensor[is_gradient(exec) ? node->src[1] : node->dst[0]])};
    w.n_tiles = w.from.n * w.from.down * w.from.across;
    w.by_blocks = !is_gradient(exec) && w.n_tiles < w.to.blocks * BLOCK &&
                  n_groups(&w.to) >= omp_get_max_threads();
    int room = tiles_per_chunk(exec, &w);
    w.patches = (struct dt_wino_chunk){.room = room, .plane = plane_of(w.from.blocks * room)};
    w.tiles = (struct dt_wino_chunk){
        .room = room, .plane = plane_of((is_gradient(exec) ? w.to.blocks : DT_WINO_WIDE) * room)};
    w.plane = plane_of(w.from.blocks * BLOCK);
    size_t patch = POSITIONS * w.patches.plane, tile = POSITIONS * w.tiles.plane;
    if (is_gradient(exec))
        w.shared = (size_t)(w.to.blocks * w.from.blocks) * POSITIONS * SQUARE + patch + tile;
    else
        w.shared = w.by_blocks ? patch : (size_t)w.to.blocks * POSITIONS * w.plane;
    if (!is_gradient(exec))
        w.own = tile + (w.by_blocks ? DT_WINO_WIDE * POSITIONS * w.plane : patch);
    return w;
}

/* The part of a layout from channel `out` and `in` on, and where it begins. */
static struct dt_wino_weights part_of(const struct dt_wino_weights *all, int out, int in,
                                      size_t *offset)
{
    struct dt_wino_weights part = *all;
    part.out -= out;
    part.in -= in;
    *offset = (size_t)out * all->out_stride + (size_t)in * all->in_stride;
    return part;
}

/* --- Forward, and the gradient of the data --- */

struct convolution {
    struct wino w;
    const float *src, *weights, *bias;
    float *dst, *shared;
    struct dt_wino_weights layout;
    bool relu;
};

static size_t u_block_of(const struct convolution *x)
{
    return POSITIONS * x->w.plane;
}

static void transform_weights(const struct convolution *x, float *u, int out, int in)
{
    size_t offset;
    struct dt_wino_weights part = part_of(&x->layout, out * BLOCK, in * BLOCK, &offset);
    dt_wino.weights(u + (size_t)in * SQUARE, x->w.plane, x->weights + offset, &part);
}

static void store_tiles(const struct convolution *x, int block, const float *m,
                        const struct dt_wino_chunk *tiles)
{
    float bias[BLOCK] = {0};
    int channel = block * BLOCK;
    if (x->bias)
        memcpy(bias, x->bias + channel,
               (size_t)at_most(x->layout.out - channel, BLOCK) * sizeof(float));
    dt_wino.output(x->dst, &x->w.to, block, m, tiles, bias, x->relu);
}

/* The tiles of `wide` blocks of the result. */
static void multiply(const struct convolution *x, int block, int wide, const float *u,
                     const float *v, const struct dt_wino_chunk *patches, float *m)
{
    struct dt_wino_chunk tiles = x->w.tiles;
    const size_t m_block = (size_t)tiles.room * BLOCK;
    tiles.first = patches->first;
    tiles.n = patches->n;
    for (size_t p = 0; p < POSITIONS; p++)
        dt_wino.product(m + p * tiles.plane, m_block, v + p * patches->plane, patches,
                        x->w.from.blocks, u + p * x->w.plane, u_block_of(x), wide);
    for (int k = 0; k < wide; k++)
        store_tiles(x, block + k, m + (size_t)k * m_block, &tiles);
}

static void convolve_by_tiles(const struct convolution *x, float *v)
{
    const int from_blocks = x->w.from.blocks, to_blocks = x->w.to.blocks;
    float *m = v + POSITIONS * x->w.patches.plane;
    struct dt_wino_chunk patches = x->w.patches;
    struct dt_cpu_span own = dt_cpu_own_span(to_blocks * from_blocks);

    for (int i = own.begin; i < own.end; i++) {
        int out = i / from_blocks;
        transform_weights(x, x->shared + (size_t)out * u_block_of(x), out, i % from_blocks);
    }
#pragma omp barrier
    own = dt_cpu_own_span(x->w.n_tiles);
    for (int first = own.begin; first < own.end; first += patches.room) {
        patches.first = first;
        patches.n = at_most(own.end - first, patches.room);
        dt_wino.patches(v, &patches, x->src, &x->w.from);
        for (int block = 0; block < to_blocks; block += DT_WINO_WIDE)
            multiply(x, block, at_most(to_blocks - block, DT_WINO_WIDE),
                     x->shared + (size_t)block * u_block_of(x), v, &patches, m);
    }
}

static void convolve_by_blocks(const struct convolution *x, float *u)
{
    const int from_blocks = x->w.from.blocks, to_blocks = x->w.to.blocks;
    float *m = u + DT_WINO_WIDE * u_block_of(x);
    struct dt_wino_chunk patches = x->w.patches;
    struct dt_cpu_span own = dt_cpu_own_span(x->w.n_tiles);

    patches.first = own.begin;
    patches.n = own.end - own.begin;
    dt_wino.patches(x->shared + own.begin * BLOCK, &patches, x->src, &x->w.from);
#pragma omp barrier
    patches.first = 0;
    patches.n = x->w.n_tiles;
    own = dt_cpu_own_span(n_groups(&x->w.to));
    for (int block = own.begin * DT_WINO_WIDE; block < own.end * DT_WINO_WIDE;
         block += DT_WINO_WIDE) {
        int wide = at_most(to_blocks - block, DT_WINO_WIDE);
        for (int i = 0; i < wide * from_blocks; i++)
            transform_weights(x, u + (size_t)(i / from_blocks) * u_block_of(x),
                              block + i / from_blocks, i % from_blocks);
        multiply(x, block, wide, u, x->shared, &patches, m);
    }
}

static void run_convolution(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const int *dim = exec->graph->tensor[node->src[1]].dim;
    const size_t o_stride = (size_t)dim[1] * DT_WINO_TAPS;
    struct convolution x = {.w = wino_of(exec),
                            .src = dt_cpu_src(exec, 0),
                            .weights = dt_cpu_src(exec, 1),
                            .bias = node->n_src > 2 ? dt_cpu_src(exec, 2) : NULL,
                            .dst = dt_cpu_dst(exec, 0),
                            .shared = exec->work,
                            .relu = node->relu};
    x.layout = node->op == DT_OP_CONV
                   ? (struct dt_wino_weights){o_stride, DT_WINO_TAPS, dim[0], dim[1], false}
                   : (struct dt_wino_weights){DT_WINO_TAPS, o_stride, dim[1], dim[0], true};
#pragma omp parallel
    {
        float *own = x.shared + x.w.shared + (size_t)omp_get_thread_num() * x.w.own;
        (x.w.by_blocks ? convolve_by_blocks : convolve_by_tiles)(&x, own);
    }
}

/* --- The gradient of the weights --- */

struct gradient {
    struct wino w;
    const float *src, *diff_dst;
    float *diff_weights, *diff_bias;
    struct dt_wino_weights layout;
    float *sums; /* [block of outputs][block of inputs][position][input], vectors of outputs */
    float *v, *y;
};

static void transform_chunk(const struct gradient *x, int first, int n)
{
    struct dt_cpu_span own = dt_cpu_own_span(n);
    struct dt_wino_chunk patches = x->w.patches, tiles = x->w.tiles;
    patches.first = tiles.first = first + own.begin;
    patches.n = tiles.n = own.end - own.begin;
    dt_wino.patches(x->v + own.begin * BLOCK, &patches, x->src, &x->w.from);
    dt_wino.tiles(x->y + own.begin * BLOCK, &tiles, x->diff_dst, &x->w.to);
}

static void add_products(const struct gradient *x, int n, bool is_first)
{
    const struct wino *w = &x->w;
    const size_t block = (size_t)w->patches.room * BLOCK; /* from one to the next in a chunk */
    const size_t sum_block = (size_t)w->from.blocks * POSITIONS * SQUARE;
    struct dt_cpu_span own = dt_cpu_own_span(n_groups(&w->to) * POSITIONS * w->from.blocks);

    for (int i = own.begin; i < own.end; i++) {
        size_t in = (size_t)(i % w->from.blocks), p = (size_t)(i / w->from.blocks % POSITIONS);
        int out = i / w->from.blocks / POSITIONS * DT_WINO_WIDE;
        dt_wino.outer(x->sums + (size_t)out * sum_block + (in * POSITIONS + p) * SQUARE, sum_block,
                      x->v + p * w->patches.plane + in * block,
                      x->y + p * w->tiles.plane + (size_t)out * block, block, n,
                      at_most(w->to.blocks - out, DT_WINO_WIDE), is_first);
    }
}

static void store_gradient(const struct gradient *x)
{
    const int from_blocks = x->w.from.blocks;
    struct dt_cpu_span own = dt_cpu_own_span(from_blocks * x->w.to.blocks);
    for (int i = own.begin; i < own.end; i++) {
        size_t offset;
        struct dt_wino_weights part =
            part_of(&x->layout, i / from_blocks * BLOCK, i % from_blocks * BLOCK, &offset);
        dt_wino.gradient(x->diff_weights + offset, &part, x->sums + (size_t)i * POSITIONS * SQUARE);
    }
}

static void store_bias_gradient(const struct gradient *x)
{
    const struct dt_wino_image *to = &x->w.to;
    const size_t image = (size_t)to->height * (size_t)to->width * BLOCK;
    struct dt_cpu_span own = dt_cpu_own_span(to->blocks);
    for (int block = own.begin; block < own.end; block++) {
        double total[BLOCK] = {0};
        for (int n = 0; n < to->n; n++)
            dt_wino.add(total, x->diff_dst + (size_t)(n * to->blocks + block) * image, to);
        for (int i = 0; i < BLOCK && block * BLOCK + i < x->layout.out; i++)
            x->diff_bias[block * BLOCK + i] = (float)total[i];
    }
}

static void run_gradient(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const int *dim = exec->graph->tensor[node->dst[0]].dim;
    struct gradient x = {
        .w = wino_of(exec),
        .src = dt_cpu_src(exec, 0),
        .diff_dst = dt_cpu_src(exec, 1),
        .diff_weights = dt_cpu_dst(exec, 0),
        .diff_bias = node->n_dst > 1 ? dt_cpu_dst(exec, 1) : NULL,
        .layout = {(size_t)dim[1] * DT_WINO_TAPS, DT_WINO_TAPS, dim[0], dim[1], false},
        .sums = exec->work};
    x.v = x.sums + (size_t)(x.w.to.blocks * x.w.from.blocks) * POSITIONS * SQUARE;
    x.y = x.v + POSITIONS * x.w.patches.plane;
#pragma omp parallel
    {
        for (int first = 0; first < x.w.n_tiles; first += x.w.patches.room) {
            int n = at_most(x.w.n_tiles - first, x.w.patches.room);
            transform_chunk(&x, first, n);
#pragma omp barrier
            add_products(&x, n, first == 0);
#pragma omp barrier
        }
        store_gradient(&x);
        if (x.diff_bias)
            store_bias_gradient(&x);
    }
}

/* --- Nodes --- */

static dt_status add_port(struct dt_device *dev, struct dt_exec *exec, const struct dt_tensor *t)
{
    bool is_weights = t->role == DT_PARAM || t->role == DT_DIFF_PARAM;
    dnnl_dims_t dims;
    dt_md md = NULL;
    int n_dims = dt_cpu_dims(dims, t);
    dnnl_format_tag_t tag = BLOCK == 16 ? dnnl_aBcd16b : dnnl_aBcd8b;
    tag = n_dims == 1 ? dnnl_a : is_weights ? dnnl_abcd : tag;
    DT_TRY(DT_DNNL(t->name, dt_md_create(&md, n_dims, dims, tag)));
    dt_status status = dt_cpu_port_add(dev, exec, md);
    dt_md_destroy(md);
    DT_TRY(status);
    return DT_OK;
}

dt_status dt_cpu_winograd_prepare(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_tensor *tensor = exec->graph->tensor;
    const struct dt_node *node = exec->node;
    const struct wino w = wino_of(exec);

    for (int i = 0; i < node->n_src; i++)
        DT_TRY(add_port(dev, exec, &tensor[node->src[i]]));
    for (int i = 0; i < node->n_dst; i++)
        DT_TRY(add_port(dev, exec, &tensor[node->dst[i]]));
    exec->work_offset =
        dt_cpu_reserve(exec, (w.shared + (size_t)dev->options.threads * w.own) * sizeof(float));
    return DT_OK;
}

dt_status dt_cpu_winograd_run(struct dt_exec *exec)
{
    (is_gradient(exec) ? run_gradient : run_convolution)(exec);
    return DT_OK;
}
