/* The gradient of the weights of 1x1 and strided convolutions in bf16, by the instruction of
 * AVX-512 BF16 that adds two products: oneDNN 2.6's own code reaches a third to a half of its rate,
 * with AMX too where it is 1x1.
 *
 * Of every tap, sum[output][input] = the sum over all pixels p of diff_dst[p][output] * src[pixel
 * of p and the tap][input]. A chunk of pixels is copied by all threads with each pair of pixels
 * next to each other, so that it stays in the caches; then the threads share the pairs of blocks of
 * channels. Each sum belongs to one thread and is added up in the order of the pixels, so the
 * results do not depend on the threads. */
#include <omp.h>
#include <string.h>

#include "cpu/cpu_internal.h"

#if defined(DT_REAL_BF16) && defined(__AVX512F__)
#include <immintrin.h>

#define WITH_BF16 __attribute__((target("avx512bf16")))

enum {
    BLOCK = 16,             /* channels */
    SQUARE = BLOCK * BLOCK, /* sums of a pair of blocks */
    SIDE = 8,               /* inputs whose sums are in registers, of */
    WIDE = 2,               /* so many blocks of outputs */
    CHUNK_BYTES = 1 << 20,  /* of all channels */
};

/* The matrix of one operand: N x blocks x H x W x BLOCK. */
struct side {
    const real *data;
    int blocks, height, width;
    int stride, y, x; /* from a pixel that is used to the next; the first one, perhaps outside */
    uint32_t *pairs;  /* of a chunk: [block][pair][channel] */
};

struct products {
    struct side in, out;
    int images, height, width, pairs; /* of the result; the last pair of an image may be half */
    int room;                         /* pairs in a chunk */
    int side, pad;                    /* of the window */
    float *sums;                      /* [block of outputs][of inputs][tap][input][output] */
};

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
    p.in = (struct side){.blocks = (src->dim[1] + BLOCK - 1) / BLOCK,
                         .height = src->dim[2],
                         .width = src->dim[3],
                         .stride = exec->node->attr.conv.stride};
    p.out = (struct side){.blocks = (dst->dim[1] + BLOCK - 1) / BLOCK,
                          .height = dst->dim[2],
                          .width = dst->dim[3],
                          .stride = 1};
    const int n = CHUNK_BYTES / ((p.in.blocks + p.out.blocks) * BLOCK * (int)sizeof(uint32_t));
    p.room = n < 32 ? 32 : n;
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
    const real *pixel = image + (ptrdiff_t)(y * side->width + x) * BLOCK;
    if (++at->x == p->width)
        *at = (struct place){at->y + 1, 0};
    return is_inside ? load(pixel) : _mm512_setzero_si512();
}

/* The operand has the result's pixels: n pairs from `pixel` on, of which the last may be half. */
static void copy_same(uint32_t *to, const struct products *p, const real *image, int pixel, int n)
{
    const real *from = image + (size_t)pixel * BLOCK;
    const bool is_half = pixel + 2 * n > p->height * p->width;
    for (int i = 0; i < n - is_half; i++, to += BLOCK, from += 2 * BLOCK)
        store_pair(to, load(from), load(from + BLOCK));
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
static void copy_pairs(const struct products *p, const struct side *side, int block, int first,
                       int n)
{
    const size_t plane = (size_t)side->height * (size_t)side->width * BLOCK;
    uint32_t *to = side->pairs + (size_t)block * (size_t)p->room * BLOCK;
    for (int past = first + n; first < past;) {
        const int image = first / p->pairs, end = (image + 1) * p->pairs;
        const int count = (end < past ? end : past) - first, pixel = 2 * (first - image * p->pairs);
        const real *data = side->data + (size_t)(image * side->blocks + block) * plane;
        if (side->stride == 1 && side->y == 0 && side->x == 0)
            copy_same(to, p, data, pixel, count);
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
        struct side in = p.in;
        in.y = tap / p.side - p.pad;
        in.x = tap % p.side - p.pad;
        /* The chunk of the gradient serves all taps. */
        struct dt_cpu_span own = dt_cpu_own_span(p.in.blocks + (tap == 0 ? p.out.blocks : 0));
        for (int i = own.begin; i < own.end; i++) {
            const bool is_in = i < p.in.blocks;
            copy_pairs(&p, is_in ? &in : &p.out, is_in ? i : i - p.in.blocks, first, n);
        }
#pragma omp barrier
        own = dt_cpu_own_span((p.out.blocks + WIDE - 1) / WIDE * p.in.blocks * 2);
        for (int i = own.begin; i < own.end; i++)
            run_task(&p, tap, i, n, first == 0);
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
    const bool is_strided = weights->dim[2] == weights->dim[3] && node->attr.conv.stride > 1 &&
                            !dt_cpu_has(dnnl_cpu_isa_avx512_core_amx);
    return (is_1x1 || is_strided) && weights->dim[0] >= BLOCK && weights->dim[1] >= BLOCK &&
           dt_cpu_product_type(exec) == DT_BF16;
}

dt_status dt_cpu_weights_bf16_prepare(struct dt_device *dev, struct dt_exec *exec)
{
    const struct products p = products_of(exec);
    DT_TRY(dt_cpu_port_add_blocks(dev, exec, BLOCK));
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
