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
    TILE = 16,              /* pairs that are copied at a time: AMX's tiles have 16 rows */
    CHUNK_BYTES = 1 << 20,  /* of all channels */
    MANY = 256,             /* channels of larger windows, from which on AMX is faster here */
};

/* The matrix of one operand. */
struct side {
    const real *data;
    int blocks, height, width;
    bool is_transposed;      /* every tile of pairs */
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
    p.room = n < 2 * TILE ? 2 * TILE : n / TILE * TILE;
    p.by_amx = dt_cpu_has(dnnl_cpu_isa_avx512_core_amx);
    p.in.is_transposed = p.by_amx && p.side == 1 && p.in.blocks <= p.out.blocks;
    p.out.is_transposed = p.by_amx && !p.in.is_transposed;
    return p;
}

static size_t pairs_bytes(const struct dt_exec *exec)
{
    const struct products p = products_of(exec);
    return (size_t)((p.in.blocks + p.out.blocks) * p.room * BLOCK) * sizeof(uint32_t);
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
        if (side->stride == 1 && side->y == 0 && side->x == 0 && side->height == p->height &&
            side->width == p->width)
            copy_same(to, p, side, data, pixel, count);
        else
            copy_places(to, p, side, data, pixel, count);
        first += count;
        to += count * BLOCK;
    }
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

/* Runs task i of a tap: the halves of all pairs of a block of inputs and WIDE blocks of outputs. */
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

/* --- By AMX: products of tiles of 16 channels x 16 pairs and 16 pairs x 16 channels --- */

enum { TILE_BYTES = 64 }; /* of a row */

static void transpose(uint32_t tile[TILE * TILE])
{
    __m512i a[TILE], b[TILE];
#pragma GCC unroll 16
    for (int i = 0; i < TILE; i++)
        a[i] = _mm512_loadu_si512(tile + i * TILE);
#pragma GCC unroll 16
    for (int i = 0; i < TILE; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < TILE; i += 4) {
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        b[i] = _mm512_shuffle_i32x4(a[i], a[4 + i], 0x88);
        b[4 + i] = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0x88);
        b[8 + i] = _mm512_shuffle_i32x4(a[i], a[4 + i], 0xdd);
        b[12 + i] = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0xdd);
    }
#pragma GCC unroll 16
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
    __asm__ volatile("" : : "m"(config) : "memory"); /* gcc 12 takes no note of all that is read */
    _tile_loadconfig(&config);
}

/* One or two blocks of either side, whose sums are as far apart as `next` says. */
WITH_AMX static inline __attribute__((always_inline)) void multiply_tiles(
    float *sums, const size_t next[2], const uint32_t *rows, const uint32_t *columns, size_t room,
    int n, bool two_rows, bool two_columns, bool is_first)
{
    float *below = sums + next[0];
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!is_first) {
        _tile_loadd(0, sums, TILE_BYTES);
        if (two_columns)
            _tile_loadd(1, sums + next[1], TILE_BYTES);
        if (two_rows)
            _tile_loadd(2, below, TILE_BYTES);
        if (two_rows && two_columns)
            _tile_loadd(3, below + next[1], TILE_BYTES);
    }
    for (int i = 0; i < n; i += TILE, rows += TILE * BLOCK, columns += TILE * BLOCK) {
        _tile_loadd(4, rows, TILE_BYTES);
        _tile_loadd(6, columns, TILE_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (two_columns) {
            _tile_loadd(7, columns + room, TILE_BYTES);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (two_rows) {
            _tile_loadd(5, rows + room, TILE_BYTES);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (two_rows && two_columns)
            _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, TILE_BYTES);
    if (two_columns)
        _tile_stored(1, sums + next[1], TILE_BYTES);
    if (two_rows)
        _tile_stored(2, below, TILE_BYTES);
    if (two_rows && two_columns)
        _tile_stored(3, below + next[1], TILE_BYTES);
}

/* Runs task i of a tap: all pairs of `wide` blocks of either side. The transposed side gives the
 * rows of the sums; in the end these are the inputs. */
WITH_AMX static void run_tile_task(const struct products *p, int tap, int i, int wide, int n,
                                   bool is_first, bool is_last)
{
    const bool by_inputs = p->in.is_transposed;
    const struct side *side[2] = {by_inputs ? &p->in : &p->out, by_inputs ? &p->out : &p->in};
    const size_t room = (size_t)p->room * BLOCK, next_in = (size_t)(p->side * p->side) * SQUARE,
                 next_out = (size_t)p->in.blocks * next_in;
    const size_t next[2] = {by_inputs ? next_in : next_out, by_inputs ? next_out : next_in};
    const int per_row = (side[1]->blocks + wide - 1) / wide;
    const int row = i / per_row * wide, column = i % per_row * wide;
    const int rows = wide == 2 && row + 1 < side[0]->blocks ? 2 : 1;
    const int columns = wide == 2 && column + 1 < side[1]->blocks ? 2 : 1;
    const uint32_t *from = side[0]->pairs + (size_t)row * room;
    const uint32_t *by = side[1]->pairs + (size_t)column * room;
    float *sums = p->sums + (size_t)row * next[0] + (size_t)column * next[1] + (size_t)tap * SQUARE;
    if (rows == 2 && columns == 2)
        multiply_tiles(sums, next, from, by, room, n, true, true, is_first);
    else
        multiply_tiles(sums, next, from, by, room, n, rows == 2, columns == 2, is_first);
    for (int k = 0; is_last && !by_inputs && k < rows * columns; k++)
        transpose(
            (void *)(sums + (size_t)(k / columns) * next[0] + (size_t)(k % columns) * next[1]));
}

/* A tile of pairs of a block, first of the chunk's n; those beyond are 0. */
static void copy_tile(const struct products *p, const struct side *side, int block, int tile,
                      int first, int n)
{
    const int begin = tile * TILE, count = n - begin < TILE ? n - begin : TILE;
    uint32_t *to = side->pairs + ((size_t)block * (size_t)p->room + (size_t)begin) * BLOCK;
    copy_pairs(p, side, to, block, first + begin, count);
    memset(to + count * BLOCK, 0, (size_t)(TILE - count) * BLOCK * sizeof *to);
    if (side->is_transposed)
        transpose(to);
}

WITH_AMX static void run_products(const struct products *p, int tap, int n, bool is_first,
                                  bool is_last)
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
        run_tile_task(p, tap, i, wide, n, is_first, is_last);
    _tile_release();
}

/* The sums of the gradient of every image, in scratch, and then of all of them in their order. */
static void sum_bias(const struct dt_exec *exec, float *bias)
{
    const struct dt_cpu_rows *rows = &exec->rows;
    const real *diff_dst = dt_cpu_src(exec, DT_BWD_WEIGHTS_DIFF_DST);
    struct dt_norm_sums *sums = (void *)((char *)exec->work + pairs_bytes(exec));
    static const struct dt_norm_coefs none;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int i = 0; i < rows->n * rows->n_blocks; i++) {
            const int image = i / rows->n_blocks, block = i % rows->n_blocks;
            const struct dt_norm_row row = dt_cpu_norm_row(rows, block, 1);
            const real *from =
                diff_dst + dt_cpu_block_offset(rows, rows->image_blocks, image, block);
            dt_norm_rows.bwd_sums(&sums[i], from, NULL, from, NULL, DT_NO_ACTIVATION, &none, &none,
                                  &row);
        }
#pragma omp for schedule(static)
        for (int c = 0; c < rows->channels; c++) {
            double sum = 0;
            for (int image = 0; image < rows->n; image++)
                sum += (double)sums[image * rows->n_blocks + c / BLOCK].first[c % BLOCK];
            bias[c] = (float)sum;
        }
    }
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
        struct dt_cpu_span own = dt_cpu_own_span((n + TILE - 1) / TILE * blocks);
        for (int i = own.begin; i < own.end; i++) {
            const int block = i % blocks;
            if (block < in.blocks)
                copy_tile(&p, &in, block, i / blocks, first, n);
            else
                copy_tile(&p, &p.out, block - in.blocks, i / blocks, first, n);
        }
#pragma omp barrier
        run_products(&p, tap, n, first == 0, first + n == n_pairs);
#pragma omp barrier
    }
    if (dt_cpu_dst(exec, DT_BWD_DIFF_BIAS))
        sum_bias(exec, dt_cpu_dst(exec, DT_BWD_DIFF_BIAS));
}

bool dt_cpu_weights_bf16_pays(const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    if (node->op != DT_OP_CONV_BWD_WEIGHTS)
        return false;
    const struct dt_tensor *weights = &exec->graph->tensor[node->dst[DT_BWD_DIFF_WEIGHTS]];
    const bool is_1x1 = weights->dim[2] == 1 && weights->dim[3] == 1;
    const bool by_amx = dt_cpu_has(dnnl_cpu_isa_avx512_core_amx);
    const bool is_better = weights->dim[2] == weights->dim[3] &&
                           (node->attr.conv.stride > 1 || (by_amx && weights->dim[0] >= MANY));
    const bool is_whole = weights->dim[0] % BLOCK == 0 && weights->dim[1] % BLOCK == 0;
    return (is_1x1 || is_better) && weights->dim[0] >= BLOCK && weights->dim[1] >= BLOCK &&
           (is_whole || !exec->formats->nhwc) && dt_cpu_product_type(exec) == DT_BF16;
}

dt_status dt_cpu_weights_bf16_prepare(struct dt_exec *exec)
{
    const struct products p = products_of(exec);
    const dnnl_format_tag_t tag = exec->formats->nhwc ? dnnl_acdb : dnnl_aBcd16b;
    DT_TRY(
        dt_cpu_rows_choose(&exec->rows, NULL, exec, exec->node->src[DT_BWD_WEIGHTS_DIFF_DST], tag));
    DT_TRY(dt_cpu_port_add_blocks(exec, tag, BLOCK));
    exec->loops = run;
    exec->algorithm = p.by_amx ? "products of pairs of pixels, AMX" : "products of pairs of pixels";
    size_t bytes = pairs_bytes(exec);
    if (exec->node->dst[DT_BWD_DIFF_BIAS] >= 0)
        bytes += (size_t)(p.images * p.out.blocks) * sizeof(struct dt_norm_sums);
    exec->work_offset = dt_cpu_reserve(exec, bytes);
    return DT_OK;
}

#else

bool dt_cpu_weights_bf16_pays(const struct dt_exec *exec)
{
    (void)exec;
    return false;
}

dt_status dt_cpu_weights_bf16_prepare(struct dt_exec *exec)
{
    (void)exec;
    return DT_ERR_INTERNAL;
}

#endif
