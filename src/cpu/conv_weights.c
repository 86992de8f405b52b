/* The gradient of the weights of 1x1 and strided convolutions in bf16, by AMX or the instruction of
 * AVX-512 BF16 that adds two products: oneDNN 2.6's own code reaches a third to a half of the rate
 * of either.
 *
 * Of every tap, sum[output][input] = the sum over all pixels p of diff_dst[p][output] * src[pixel
 * of p and the tap][input]. A chunk of pixels is copied by all threads with each pair of pixels
 * next to each other, so that it stays in the caches; then the threads share the pairs of blocks of
 * channels. AMX takes the inputs channel by channel. Each sum belongs to one thread and is added up
 * in the order of the pixels, so the results do not depend on the threads. */
#include <omp.h>
#include <string.h>

#include "cpu/cpu_internal.h"

#if defined(DT_REAL_BF16) && defined(__AVX512F__)
#include <immintrin.h>

#define WITH_BF16 __attribute__((target("avx512bf16")))
#define WITH_AMX  __attribute__((target("amx-tile,amx-bf16")))

enum {
    BLOCK = 16,             /* channels */
    SQUARE = BLOCK * BLOCK, /* sums of a pair of blocks */
    SIDE = 8,               /* inputs whose sums are in registers, of */
    WIDE = 2,               /* so many blocks of outputs */
    CHUNK_BYTES = 1 << 20,  /* of all channels */
};

/* The matrix of one operand. */
struct side {
    const real *data;
    int blocks, height, width;
    bool is_transposed;      /* each tile of pairs */
    int step;                /* from a pixel to the next in memory, */
    size_t next_block, next; /* a block, an image */
    int stride, y, x; /* from a pixel that is used to the next; the first one, perhaps outside */
    uint32_t *pairs;  /* of a chunk: [block][pair][channel] */
};

struct products {
    struct side in, out;
    int images, height, width, pairs; /* of the result; the last pair of an image may be half */
    int room;                         /* pairs in a chunk; a multiple of TILE */
    bool by_amx;
    int side, pad; /* of the window */
    float *sums;   /* [block of outputs][of inputs][tap][input][output] */
};

static struct side side_of(const struct dt_exec *exec, const struct dt_tensor *t, int stride)
{
    const size_t pixels = (size_t)t->dim[2] * (size_t)t->dim[3];
    const int blocks = (t->dim[1] + BLOCK - 1) / BLOCK;
    const bool nhwc = exec->formats->nhwc;
    return (struct side){.blocks = blocks,
                         .height = t->dim[2],
                         .width = t->dim[3],
                         .step = nhwc ? t->dim[1] : BLOCK,
                         .next_block = nhwc ? BLOCK : pixels * BLOCK,
                         .next = pixels * (size_t)(nhwc ? t->dim[1] : blocks * BLOCK),
                         .stride = stride};
}

static struct products products_of(const struct dt_exec *exec)
{
    const struct dt_tensor *tensor = exec->graph->tensor;
    const struct dt_tensor *src = &tensor[exec->node->src[DT_BWD_WEIGHTS_SRC]];
    const struct dt_tensor *dst = &tensor[exec->node->src[DT_BWD_WEIGHTS_DIFF_DST]];
    struct products p = {.images = dst->dim[0],
                         .width = dst->dim[3],
                         .height = dst->dim[2],
                         .side = tensor[exec->node->dst[DT_BWD_DIFF_WEIGHTS]].dim[2],
                         .pad = exec->node->attr.conv.pad};
    p.pairs = (p.height * p.width + 1) / 2;
    p.in = side_of(exec, src, exec->node->attr.conv.stride);
    p.out = side_of(exec, dst, 1);
    const int n = CHUNK_BYTES / ((p.in.blocks + p.out.blocks) * BLOCK * (int)sizeof(uint32_t));
    p.room = n < 32 ? 32 : n / 16 * 16;
    p.by_amx = dt_cpu_has(dnnl_cpu_isa_avx512_core_amx);
    p.in.is_transposed = p.by_amx;
    return p;
}

static __m512i load(const real *pixel)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)pixel));
}

static void store_pair(uint32_t *to, __m512i low, __m512i high)
{
    _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

/* A pixel of the result: as a place, since divisions for every pixel would take longer than the
 * products. */
struct place {
    int y, x;
};

/* Loads the operand's pixel of a place and goes on to the next; 0 outside of the image, and beyond
 * the result's last pixel. */
static __m512i load_next(const struct products *p, const struct side *side, const real *image,
                         struct place *at)
{
    const int y = at->y * side->stride + side->y, x = at->x * side->stride + side->x;
    const bool is_inside =
        at->y < p->height && y >= 0 && y < side->height && x >= 0 && x < side->width;
    const real *pixel = image + (ptrdiff_t)(y * side->width + x) * side->step;
    if (++at->x == p->width)
        *at = (struct place){at->y + 1, 0};
    return is_inside ? load(pixel) : _mm512_setzero_si512();
}

/* The operand has the result's pixels: n pairs from `pixel` on, of which the last may be half. */
static void copy_same(uint32_t *to, const struct products *p, const struct side *side,
                      const real *image, int pixel, int n)
{
    const real *from = image + (size_t)pixel * (size_t)side->step;
    const bool is_half = pixel + 2 * n > p->height * p->width;
    for (int i = 0; i < n - is_half; i++, to += BLOCK, from += 2 * side->step)
        store_pair(to, load(from), load(from + side->step));
    if (is_half)
        store_pair(to, load(from), _mm512_setzero_si512());
}

static void copy_places(uint32_t *to, const struct products *p, const struct side *side,
                        const real *image, int pixel, int n)
{
    struct place at = {pixel / p->width, pixel % p->width};
    for (int i = 0; i < n; i++, to += BLOCK) {
        const __m512i low = load_next(p, side, image, &at);
        store_pair(to, low, load_next(p, side, image, &at));
    }
}

/* Pairs first .. first + n of a block. */
static void copy_pairs(const struct products *p, const struct side *side, uint32_t *to, int block,
                       int first, int n)
{
    for (int past = first + n; first < past;) {
        const int image = first / p->pairs, end = (image + 1) * p->pairs;
        const int count = (end < past ? end : past) - first, pixel = 2 * (first - image * p->pairs);
        const real *data =
            side->data + (size_t)image * side->next + (size_t)block * side->next_block;
        if (side->stride == 1 && side->y == 0 && side->x == 0)
            copy_same(to, p, side, data, pixel, count);
        else
            copy_places(to, p, side, data, pixel, count);
        first += count;
        to += count * BLOCK;
    }
}

/* --- By AMX: products of tiles of 16 channels x 16 pairs and 16 pairs x 16 channels --- */

enum { TILE = 16, TILE_BYTES = 64 /* of a row */ };

static void transpose(uint32_t tile[TILE * TILE])
{
    __m512i a[TILE], b[TILE];
    for (int i = 0; i < TILE; i++)
        a[i] = _mm512_loadu_si512(tile + i * TILE);
    for (int i = 0; i < TILE; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < TILE; i += 4) {
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        b[i] = _mm512_shuffle_i32x4(a[i], a[4 + i], 0x88);
        b[4 + i] = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0x88);
        b[8 + i] = _mm512_shuffle_i32x4(a[i], a[4 + i], 0xdd);
        b[12 + i] = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512(tile + i * TILE, _mm512_shuffle_i32x4(b[i], b[4 + i], 0x88));
        _mm512_storeu_si512(tile + (4 + i) * TILE, _mm512_shuffle_i32x4(b[8 + i], b[12 + i], 0x88));
        _mm512_storeu_si512(tile + (8 + i) * TILE, _mm512_shuffle_i32x4(b[i], b[4 + i], 0xdd));
        _mm512_storeu_si512(tile + (12 + i) * TILE,
                            _mm512_shuffle_i32x4(b[8 + i], b[12 + i], 0xdd));
    }
}

WITH_AMX static void begin_tiles(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = TILE_BYTES;
        config.rows[i] = TILE;
    }
    _tile_loadconfig(&config);
}

/* One or two blocks of inputs and of outputs, whose sums are as far apart as next_in, next_out. */
static inline __attribute__((always_inline)) void multiply_tiles(
    float *sums, size_t next_in, size_t next_out, const uint32_t *in, const uint32_t *out,
    size_t room, int n, bool two_in, bool two_out, bool is_first)
{
    float *next = sums + next_in;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!is_first) {
        _tile_loadd(0, sums, TILE_BYTES);
        if (two_out)
            _tile_loadd(1, sums + next_out, TILE_BYTES);
        if (two_in)
            _tile_loadd(2, next, TILE_BYTES);
        if (two_in && two_out)
            _tile_loadd(3, next + next_out, TILE_BYTES);
    }
    for (int i = 0; i < n; i += TILE, in += TILE * BLOCK, out += TILE * BLOCK) {
        _tile_loadd(4, in, TILE_BYTES);
        _tile_loadd(6, out, TILE_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (two_out) {
            _tile_loadd(7, out + room, TILE_BYTES);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (two_in) {
            _tile_loadd(5, in + room, TILE_BYTES);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (two_in && two_out)
            _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, TILE_BYTES);
    if (two_out)
        _tile_stored(1, sums + next_out, TILE_BYTES);
    if (two_in)
        _tile_stored(2, next, TILE_BYTES);
    if (two_in && two_out)
        _tile_stored(3, next + next_out, TILE_BYTES);
}

/* Of a tap, task i of all pairs of `wide` blocks of inputs and of outputs. */
WITH_AMX static void run_tile_task(const struct products *p, int tap, int i, int wide, int n,
                                   bool is_first)
{
    const int taps = p->side * p->side, per_in = (p->out.blocks + wide - 1) / wide;
    const int in = i / per_in * wide, out = i % per_in * wide;
    const size_t room = (size_t)p->room * BLOCK, next_in = (size_t)taps * SQUARE,
                 next_out = (size_t)p->in.blocks * next_in;
    float *sums = p->sums + (size_t)out * next_out + (size_t)in * next_in + (size_t)tap * SQUARE;
    const uint32_t *from = p->in.pairs + (size_t)in * room;
    const uint32_t *by = p->out.pairs + (size_t)out * room;
    const bool two_in = wide == 2 && in + 1 < p->in.blocks;
    const bool two_out = wide == 2 && out + 1 < p->out.blocks;
    if (two_in && two_out)
        multiply_tiles(sums, next_in, next_out, from, by, room, n, true, true, is_first);
    else
        multiply_tiles(sums, next_in, next_out, from, by, room, n, two_in, two_out, is_first);
}

/* SIDE inputs of one block, `wide` blocks of outputs. */
WITH_BF16 static inline __attribute__((always_inline)) void multiply(float *sums, size_t next,
                                                                     const uint32_t *in,
                                                                     const uint32_t *out,
                                                                     size_t out_block, int n,
                                                                     const int wide, bool is_first)
{
    __m512 sum[SIDE][WIDE];
#pragma GCC unroll 8
    for (int i = 0; i < SIDE; i++)
#pragma GCC unroll 2
        for (int k = 0; k < wide; k++)
            sum[i][k] = is_first ? _mm512_setzero_ps()
                                 : _mm512_loadu_ps(sums + (size_t)k * next + i * BLOCK);
    for (int pair = 0; pair < n; pair++, in += BLOCK, out += BLOCK) {
        __m512i factor[WIDE];
#pragma GCC unroll 2
        for (int k = 0; k < wide; k++)
            factor[k] = _mm512_loadu_si512(out + (size_t)k * out_block);
#pragma GCC unroll 8
        for (int i = 0; i < SIDE; i++) {
            const __m512i x = _mm512_set1_epi32((int)in[i]);
#pragma GCC unroll 2
            for (int k = 0; k < wide; k++)
                sum[i][k] = _mm512_dpbf16_ps(sum[i][k], (__m512bh)x, (__m512bh)factor[k]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < SIDE; i++)
#pragma GCC unroll 2
        for (int k = 0; k < wide; k++)
            _mm512_storeu_ps(sums + (size_t)k * next + i * BLOCK, sum[i][k]);
}

/* Of a tap, task i of the halves of all pairs of a block of inputs and WIDE blocks of outputs. */
WITH_BF16 static void run_task(const struct products *p, int tap, int i, int n, bool is_first)
{
    const int taps = p->side * p->side;
    const size_t room = (size_t)p->room * BLOCK, next = (size_t)(p->in.blocks * taps) * SQUARE;
    const int half = i % 2, in = i / 2 % p->in.blocks, out = i / 2 / p->in.blocks * WIDE;
    float *sums =
        p->sums + (size_t)((out * p->in.blocks + in) * taps + tap) * SQUARE + half * SIDE * BLOCK;
    const uint32_t *from = p->in.pairs + (size_t)in * room + half * SIDE;
    const uint32_t *by = p->out.pairs + (size_t)out * room;
    if (out + WIDE <= p->out.blocks)
        multiply(sums, next, from, by, room, n, WIDE, is_first);
    else
        multiply(sums, next, from, by, room, n, 1, is_first);
}

enum { GROUP = 64 }; /* pairs, whose copies are one task */

/* Pairs of a group of a block; those beyond the n pairs of the chunk are 0. */
static void copy_group(const struct products *p, const struct side *side, int block, int group,
                       int first, int n)
{
    const int begin = group * GROUP, room = p->room - begin < GROUP ? p->room - begin : GROUP;
    const int count = n - begin < room ? n - begin : room;
    uint32_t *to = side->pairs + ((size_t)block * (size_t)p->room + (size_t)begin) * BLOCK;
    copy_pairs(p, side, to, block, first + begin, count);
    if (!p->by_amx)
        return;
    memset(to + count * BLOCK, 0, (size_t)(room - count) * BLOCK * sizeof *to);
    for (int i = 0; side->is_transposed && i < count; i += TILE)
        transpose(to + i * BLOCK);
}

WITH_AMX static void run_products(const struct products *p, int tap, int n, bool is_first)
{
    if (!p->by_amx) {
        struct dt_cpu_span own =
            dt_cpu_own_span((p->out.blocks + WIDE - 1) / WIDE * p->in.blocks * 2);
        for (int i = own.begin; i < own.end; i++)
            run_task(p, tap, i, n, is_first);
        return;
    }
    const int fewest = ((p->in.blocks + 1) / 2) * ((p->out.blocks + 1) / 2);
    const int wide = fewest < omp_get_num_threads() ? 1 : 2;
    struct dt_cpu_span own = dt_cpu_own_span(wide == 2 ? fewest : p->in.blocks * p->out.blocks);
    begin_tiles();
    for (int i = own.begin; i < own.end; i++)
        run_tile_task(p, tap, i, wide, n, is_first);
    _tile_release();
}

static void run(struct dt_exec *exec)
{
    struct products p = products_of(exec);
    p.in.data = dt_cpu_src(exec, DT_BWD_WEIGHTS_SRC);
    p.out.data = dt_cpu_src(exec, DT_BWD_WEIGHTS_DIFF_DST);
    p.sums = dt_cpu_dst(exec, DT_BWD_DIFF_WEIGHTS);
    p.in.pairs = exec->work;
    p.out.pairs = p.in.pairs + (size_t)p.in.blocks * (size_t)p.room * BLOCK;
    const int n_pairs = p.images * p.pairs, taps = p.side * p.side;
#pragma omp parallel
    for (int step = 0; step < (n_pairs + p.room - 1) / p.room * taps; step++) {
        const int first = step / taps * p.room, tap = step % taps;
        const int n = n_pairs - first < p.room ? n_pairs - first : p.room;
        /* The chunk of the gradient serves all taps. */
        const int blocks = p.in.blocks + (tap == 0 ? p.out.blocks : 0);
        struct side in = p.in;
        in.y = tap / p.side - p.pad;
        in.x = tap % p.side - p.pad;
        struct dt_cpu_span own = dt_cpu_own_span((n + GROUP - 1) / GROUP * blocks);
        for (int i = own.begin; i < own.end; i++) {
            const int block = i % blocks;
            if (block < in.blocks)
                copy_group(&p, &in, block, i / blocks, first, n);
            else
                copy_group(&p, &p.out, block - in.blocks, i / blocks, first, n);
        }
#pragma omp barrier
        run_products(&p, tap, n, first == 0);
#pragma omp barrier
    }
}

bool dt_cpu_weights_bf16_pays(const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    if (node->op != DT_OP_CONV_BWD_WEIGHTS || node->dst[DT_BWD_DIFF_BIAS] >= 0)
        return false;
    const struct dt_tensor *weights = &exec->graph->tensor[node->dst[DT_BWD_DIFF_WEIGHTS]];
    const bool is_1x1 = weights->dim[2] == 1 && weights->dim[3] == 1;
    const bool is_strided = weights->dim[2] == weights->dim[3] && node->attr.conv.stride > 1;
    const bool is_whole = weights->dim[0] % BLOCK == 0 && weights->dim[1] % BLOCK == 0;
    return (is_1x1 || is_strided) && weights->dim[0] >= BLOCK && weights->dim[1] >= BLOCK &&
           (is_whole || !exec->formats->nhwc) && dt_cpu_product_type(exec) == DT_BF16;
}

dt_status dt_cpu_weights_bf16_prepare(struct dt_device *dev, struct dt_exec *exec)
{
    const struct products p = products_of(exec);
    DT_TRY(
        dt_cpu_port_add_blocks(dev, exec, exec->formats->nhwc ? dnnl_acdb : dnnl_aBcd16b, BLOCK));
    exec->loops = run;
    exec->work_offset = dt_cpu_reserve(exec, (size_t)(p.in.blocks + p.out.blocks) * (size_t)p.room *
                                                 BLOCK * sizeof(uint32_t));
    return DT_OK;
}

#else

bool dt_cpu_weights_bf16_pays(const struct dt_exec *exec)
{
    (void)exec;
    return false;
}

dt_status dt_cpu_weights_bf16_prepare(struct dt_device *dev, struct dt_exec *exec)
{
    (void)dev, (void)exec;
    return DT_ERR_INTERNAL;
}

#endif
