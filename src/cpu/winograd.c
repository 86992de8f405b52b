/* Winograd's algorithm for 3x3 convolutions of stride 1 or 2 and padding 1 (Lavin & Gray, "Fast
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
 * With stride 2 a convolution is the sum of four of stride 1, over the pixels with even and odd
 * rows and columns (winograd.h): F(4x4, 2x2) at the points +-r, +-s and infinity, r = 1/2 and s =
 * 3/2, where n(r) = 2 r (r^2 - s^2) and n(s) = 2 s (s^2 - r^2). In an even direction there is one
 * weight, the polynomial is constant, and its product at infinity is 0: 81 multiplications (16 + 20
 * + 20 + 25) where the definition has 144. To the loops the phases are more blocks of channels, of
 * the source forward and of the result for the gradient of the data.
 *
 * Activations keep their blocks of channels, and a transform of a block is vertical operations on
 * vectors. Each thread takes a part of the tiles, in chunks whose transformed patches stay in its
 * cache: patches, products, tiles of the result; only source and result go through memory. The
 * transformed weights are shared. Where they are larger than all patches, these have one phase, and
 * all threads have a part of the result's blocks, it is the other way round: the patches are
 * shared, and each thread transforms the weights of its blocks when it needs them. For the gradient
 * of the weights the threads transform a chunk together and then share the products of all pairs of
 * blocks: each sum belongs to one thread, and no copies have to be added. The order of the
 * additions depends on the shapes alone, so the results are the same for any number of threads. All
 * choices were measured on one and two threads.
 *
 * An infinite or NaN pixel spoils its whole tiles, and the padding of the last block of channels,
 * which is 0 otherwise. */
#include <omp.h>
#include <string.h>

#include "cpu/cpu_internal.h"
#include "cpu/winograd.h"

enum {
    BLOCK = DT_WINO_BLOCK,
    SQUARE = BLOCK * BLOCK, /* pairs of channels in a pair of blocks */
    /* Tiles in a chunk: those whose patches take CACHED bytes, but enough to read the weights only
     * a few times, and no more than pay off. */
    CACHED = 768 << 10,
    MIN_TILES = 48,
    MAX_TILES = 96,
    /* The sums, of which there are more with phases, are read and written once per chunk. */
    GRADIENT_TILES = 128,
};

/* One run, from the shapes and the number of threads. For the gradient of the weights, `to` is the
 * gradient of dst. */
struct wino {
    const struct dt_wino_loops *loops;
    struct dt_wino_image from, to;
    int n_tiles;
    bool by_blocks;                      /* how the threads share the work */
    struct dt_wino_chunk patches, tiles; /* the room for a chunk of either */
    size_t plane;                        /* of the weights; floats */
    size_t shared, own;                  /* floats of scratch: together, and of each thread */
};

/* `step`: the stride, if this is the larger image. */
static struct dt_wino_image image_of(const struct dt_tensor *t, int step)
{
    const int side = DT_WINO_TILE * step;
    return (struct dt_wino_image){.n = t->dim[0],
                                  .channels = t->dim[1],
                                  .blocks = (t->dim[1] + BLOCK - 1) / BLOCK,
                                  .height = t->dim[2],
                                  .width = t->dim[3],
                                  .phases = step > 1 ? DT_WINO_PHASES : 1,
                                  .down = (t->dim[2] + side - 1) / side,
                                  .across = (t->dim[3] + side - 1) / side};
}

/* As measured, a tile takes the time of 4.5 pixels of oneDNN's direct convolution, and the
 * transform of the weights that of 36 tiles. With stride 2 these are 10 pixels, and 40 tiles
 * forward or 10 backward; with few channels the transforms of phases cost more than they save. */
bool dt_cpu_winograd_pays(const struct dt_node *node, const struct dt_tensor *src,
                          const struct dt_tensor *weights)
{
    const int min_block = 8; /* shorter vectors are slower than oneDNN */
    const int stride = node->attr.conv.stride, min_channels = stride == 1 ? 16 : 64;
    if (BLOCK < min_block || weights->dim[2] != 3 || weights->dim[3] != 3 || stride > 2 ||
        node->attr.conv.pad != 1 || weights->dim[0] < min_channels ||
        weights->dim[1] < min_channels)
        return false;
    const struct dt_wino_image image = image_of(src, stride);
    const int overhead = stride == 1 ? 36 : node->op == DT_OP_CONV ? 40 : 10;
    int64_t tiles = (int64_t)image.n * image.down * image.across;
    int64_t pixels = (int64_t)image.n * ((image.height + stride - 1) / stride) *
                     ((image.width + stride - 1) / stride);
    return tiles <= INT32_MAX && 2 * pixels >= (stride == 1 ? 9 : 20) * (tiles + overhead);
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

/* Blocks of channels, those of all phases together. */
static int blocks_of(const struct dt_wino_image *image)
{
    return image->phases * image->blocks;
}

/* The phases that use a position. */
static struct dt_cpu_span phases_at(const struct dt_wino_image *image, size_t position)
{
    enum { LAST = DT_WINO_PHASE_PATCH - 1 };
    bool last_y = position / DT_WINO_PHASE_PATCH == LAST;
    bool last_x = position % DT_WINO_PHASE_PATCH == LAST;
    if (image->phases == 1)
        return (struct dt_cpu_span){0, 1};
    return (struct dt_cpu_span){last_y, last_x ? 2 : last_y ? 3 : DT_WINO_PHASES};
}

/* Groups of the result's blocks. */
static int n_groups(const struct dt_wino_image *to)
{
    return (to->blocks + DT_WINO_WIDE - 1) / DT_WINO_WIDE;
}

/* Transformed weights of one block of the result, in all its phases. */
static size_t u_block_of(const struct wino *w)
{
    return (size_t)w->to.phases * w->loops->positions * w->plane;
}

static struct wino wino_of(const struct dt_exec *exec)
{
    const struct dt_tensor *tensor = exec->graph->tensor;
    const struct dt_node *node = exec->node;
    const int stride = node->attr.conv.stride;
    const bool is_bwd_data = node->op == DT_OP_CONV_BWD_DATA;
    struct wino w = {.loops = &dt_wino[stride - 1],
                     .from = image_of(&tensor[node->src[0]], is_bwd_data ? 1 : stride),
                     .to = image_of(&tensor[is_gradient(exec) ? node->src[1] : node->dst[0]],
                                    is_bwd_data ? stride : 1)};
    const size_t positions = w.loops->positions;
    w.n_tiles = w.from.n * w.from.down * w.from.across;
    w.by_blocks = !is_gradient(exec) && w.from.phases == 1 &&
                  w.n_tiles < blocks_of(&w.to) * BLOCK && n_groups(&w.to) >= omp_get_max_threads();
    int n = CACHED / ((int)w.loops->positions * blocks_of(&w.from) * BLOCK * (int)sizeof(float));
    n = is_gradient(exec) ? GRADIENT_TILES * w.from.phases
        : n > MIN_TILES   ? at_most(n, MAX_TILES)
                          : MIN_TILES;
    n = w.by_blocks ? w.n_tiles : at_most(n, w.n_tiles);
    int room = (n + DT_WINO_STEP - 1) / DT_WINO_STEP * DT_WINO_STEP;
    w.patches = (struct dt_wino_chunk){.room = room, .plane = plane_of(blocks_of(&w.from) * room)};
    w.tiles = (struct dt_wino_chunk){
        .room = room, .plane = plane_of((is_gradient(exec) ? w.to.blocks : DT_WINO_WIDE) * room)};
    w.plane = plane_of(blocks_of(&w.from) * BLOCK);
    size_t patch = positions * w.patches.plane, tile = positions * w.tiles.plane;
    if (is_gradient(exec))
        w.shared = (size_t)(w.to.blocks * blocks_of(&w.from)) * positions * SQUARE + patch + tile;
    else
        w.shared = w.by_blocks ? patch : (size_t)w.to.blocks * u_block_of(&w);
    if (!is_gradient(exec))
        w.own = tile + (w.by_blocks ? DT_WINO_WIDE * u_block_of(&w) : patch);
    return w;
}

/* --- Forward, and the gradient of the data --- */

struct convolution {
    struct wino w;
    const real *src, *weights;
    const float *bias;
    real *dst;
    float *shared;
    bool relu, is_bwd_data;
};

static void transform_weights(const struct convolution *x, float *u, int out, int in)
{
    const struct wino *w = &x->w;
    size_t u_phase =
        w->from.phases > 1 ? (size_t)w->from.blocks * SQUARE : w->loops->positions * w->plane;
    int pair = x->is_bwd_data ? in * w->to.blocks + out : out * w->from.blocks + in;
    w->loops->weights(u + (size_t)in * SQUARE, w->plane, u_phase,
                      x->weights + (size_t)pair * DT_WINO_TAPS * SQUARE, x->is_bwd_data);
}

static void store_tiles(const struct convolution *x, int phase, int block, const float *m,
                        const struct dt_wino_chunk *tiles)
{
    float bias[BLOCK] = {0};
    int channel = block * BLOCK;
    if (x->bias)
        memcpy(bias, x->bias + channel,
               (size_t)at_most(x->w.to.channels - channel, BLOCK) * sizeof(float));
    x->w.loops->output(x->dst, &x->w.to, phase, block, m, tiles, bias, x->relu);
}

/* One position of `wide` blocks of the result, in one phase. */
static void multiply_position(const struct convolution *x, size_t p, int phase, int wide,
                              const float *u, const float *v, const struct dt_wino_chunk *patches,
                              float *m)
{
    const struct wino *w = &x->w;
    struct dt_cpu_span to = phases_at(&w->to, p), from = phases_at(&w->from, p);
    size_t first = (size_t)(from.begin * w->from.blocks);
    if (phase < to.begin || phase >= to.end)
        return;
    w->loops->product(m + p * w->tiles.plane, (size_t)w->tiles.room * BLOCK,
                      v + p * patches->plane + first * (size_t)patches->room * BLOCK, patches,
                      (from.end - from.begin) * w->from.blocks,
                      u + ((size_t)phase * w->loops->positions + p) * w->plane + first * SQUARE,
                      u_block_of(w), wide);
}

/* The tiles of `wide` blocks of the result. */
static void multiply(const struct convolution *x, int block, int wide, const float *u,
                     const float *v, const struct dt_wino_chunk *patches, float *m)
{
    struct dt_wino_chunk tiles = x->w.tiles;
    tiles.first = patches->first;
    tiles.n = patches->n;
    for (int phase = 0; phase < x->w.to.phases; phase++) {
        for (size_t p = 0; p < x->w.loops->positions; p++)
            multiply_position(x, p, phase, wide, u, v, patches, m);
        for (int k = 0; k < wide; k++)
            store_tiles(x, phase, block + k, m + (size_t)(k * tiles.room) * BLOCK, &tiles);
    }
}

static void convolve_by_tiles(const struct convolution *x, float *v)
{
    const int from_blocks = x->w.from.blocks, to_blocks = x->w.to.blocks;
    float *m = v + x->w.loops->positions * x->w.patches.plane;
    struct dt_wino_chunk patches = x->w.patches;
    struct dt_cpu_span own = dt_cpu_own_span(to_blocks * from_blocks);

    for (int i = own.begin; i < own.end; i++) {
        int out = i / from_blocks;
        transform_weights(x, x->shared + (size_t)out * u_block_of(&x->w), out, i % from_blocks);
    }
#pragma omp barrier
    own = dt_cpu_own_span(x->w.n_tiles);
    for (int first = own.begin; first < own.end; first += patches.room) {
        patches.first = first;
        patches.n = at_most(own.end - first, patches.room);
        x->w.loops->patches(v, &patches, x->src, &x->w.from);
        for (int block = 0; block < to_blocks; block += DT_WINO_WIDE)
            multiply(x, block, at_most(to_blocks - block, DT_WINO_WIDE),
                     x->shared + (size_t)block * u_block_of(&x->w), v, &patches, m);
    }
}

static void convolve_by_blocks(const struct convolution *x, float *u)
{
    const int from_blocks = x->w.from.blocks, to_blocks = x->w.to.blocks;
    float *m = u + DT_WINO_WIDE * u_block_of(&x->w);
    struct dt_wino_chunk patches = x->w.patches;
    struct dt_cpu_span own = dt_cpu_own_span(x->w.n_tiles);

    patches.first = own.begin;
    patches.n = own.end - own.begin;
    x->w.loops->patches(x->shared + own.begin * BLOCK, &patches, x->src, &x->w.from);
#pragma omp barrier
    patches.first = 0;
    patches.n = x->w.n_tiles;
    own = dt_cpu_own_span(n_groups(&x->w.to));
    for (int block = own.begin * DT_WINO_WIDE; block < own.end * DT_WINO_WIDE;
         block += DT_WINO_WIDE) {
        int wide = at_most(to_blocks - block, DT_WINO_WIDE);
        for (int i = 0; i < wide * from_blocks; i++)
            transform_weights(x, u + (size_t)(i / from_blocks) * u_block_of(&x->w),
                              block + i / from_blocks, i % from_blocks);
        multiply(x, block, wide, u, x->shared, &patches, m);
    }
}

static void run_convolution(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    struct convolution x = {.w = wino_of(exec),
                            .src = dt_cpu_src(exec, DT_CONV_SRC),
                            .weights = dt_cpu_src(exec, DT_CONV_WEIGHTS),
                            .bias = dt_cpu_src(exec, DT_CONV_BIAS),
                            .dst = dt_cpu_dst(exec, 0),
                            .shared = exec->work,
                            .relu = node->activation == DT_RELU,
                            .is_bwd_data = node->op == DT_OP_CONV_BWD_DATA};
#pragma omp parallel
    {
        float *own = x.shared + x.w.shared + (size_t)omp_get_thread_num() * x.w.own;
        (x.w.by_blocks ? convolve_by_blocks : convolve_by_tiles)(&x, own);
    }
}

/* --- The gradient of the weights --- */

struct gradient {
    struct wino w;
    const real *src, *diff_dst;
    float *diff_weights, *diff_bias;
    float *sums; /* [block of outputs][block of inputs][phase][position][input], of outputs */
    float *v, *y;
};

static void add_products(const struct gradient *x, int n, bool is_first)
{
    const struct wino *w = &x->w;
    const size_t block = (size_t)w->patches.room * BLOCK; /* from one to the next in a chunk */
    const size_t sum_block = (size_t)blocks_of(&w->from) * w->loops->positions * SQUARE;
    const int n_in = w->from.blocks;
    int per_group = 0, end = 0;
    for (size_t p = 0; p < w->loops->positions; p++)
        per_group += (phases_at(&w->from, p).end - phases_at(&w->from, p).begin) * n_in;
    struct dt_cpu_span own = dt_cpu_own_span(n_groups(&w->to) * per_group);

    for (int out = 0; out < w->to.blocks; out += DT_WINO_WIDE) {
        for (size_t p = 0; p < w->loops->positions; p++) {
            struct dt_cpu_span used = phases_at(&w->from, p);
            int begin = end;
            end += (used.end - used.begin) * n_in;
            for (int i = begin > own.begin ? begin : own.begin; i < at_most(end, own.end); i++) {
                int in = (i - begin) % n_in, phase = used.begin + (i - begin) / n_in;
                size_t square = (size_t)(in * w->from.phases + phase) * w->loops->positions + p;
                w->loops->outer(x->sums + (size_t)out * sum_block + square * SQUARE, sum_block,
                                x->v + p * w->patches.plane + (size_t)(phase * n_in + in) * block,
                                x->y + p * w->tiles.plane + (size_t)out * block, block, n,
                                at_most(w->to.blocks - out, DT_WINO_WIDE), is_first);
            }
        }
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
            x->w.loops->add(total, x->diff_dst + (size_t)(n * to->blocks + block) * image, to);
        for (int i = 0; i < BLOCK && block * BLOCK + i < to->channels; i++)
            x->diff_bias[block * BLOCK + i] = (float)total[i];
    }
}

static void run_gradient(struct dt_exec *exec)
{
    struct gradient x = {.w = wino_of(exec),
                         .src = dt_cpu_src(exec, DT_BWD_WEIGHTS_SRC),
                         .diff_dst = dt_cpu_src(exec, DT_BWD_WEIGHTS_DIFF_DST),
                         .diff_weights = dt_cpu_dst(exec, DT_BWD_DIFF_WEIGHTS),
                         .diff_bias = dt_cpu_dst(exec, DT_BWD_DIFF_BIAS),
                         .sums = exec->work};
    x.v = x.sums + (size_t)(x.w.to.blocks * blocks_of(&x.w.from)) * x.w.loops->positions * SQUARE;
    x.y = x.v + x.w.loops->positions * x.w.patches.plane;
#pragma omp parallel
    {
        for (int first = 0; first < x.w.n_tiles; first += x.w.patches.room) {
            int n = at_most(x.w.n_tiles - first, x.w.patches.room);
            struct dt_cpu_span share = dt_cpu_own_span(n);
            struct dt_wino_chunk patches = x.w.patches, tiles = x.w.tiles;
            patches.first = tiles.first = first + share.begin;
            patches.n = tiles.n = share.end - share.begin;
            x.w.loops->patches(x.v + share.begin * BLOCK, &patches, x.src, &x.w.from);
            x.w.loops->tiles(x.y + share.begin * BLOCK, &tiles, x.diff_dst, &x.w.to);
#pragma omp barrier
            add_products(&x, n, first == 0);
#pragma omp barrier
        }
        const int from_blocks = x.w.from.blocks;
        const size_t pair = (size_t)x.w.from.phases * x.w.loops->positions * SQUARE;
        struct dt_cpu_span own = dt_cpu_own_span(from_blocks * x.w.to.blocks);
        for (int i = own.begin; i < own.end; i++)
            x.w.loops->gradient(x.diff_weights + (size_t)(i * DT_WINO_TAPS) * SQUARE,
                                x.sums + (size_t)i * pair);
        if (x.diff_bias)
            store_bias_gradient(&x);
    }
}

/* --- Nodes --- */

dt_status dt_cpu_winograd_prepare(struct dt_exec *exec)
{
    const struct wino w = wino_of(exec);

    exec->algorithm = "Winograd";
    DT_TRY(dt_cpu_port_add_blocks(exec, DT_CPU_BLOCKS, BLOCK));
    exec->loops = is_gradient(exec) ? run_gradient : run_convolution;
    exec->work_offset = dt_cpu_reserve(
        exec, (w.shared + (size_t)exec->dev->options.threads * w.own) * sizeof(float));
    return DT_OK;
}
