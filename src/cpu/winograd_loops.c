/* The transforms and products of Winograd's algorithm on GNU C vectors of one block of channels.
 * The two products keep their sums in registers: every loop over them is unrolled. */
#include "cpu/winograd.h"

#include <string.h>

enum {
    BLOCK = DT_WINO_BLOCK,
    STEP = DT_WINO_STEP,
    SIDE = DT_WINO_SIDE,
    WIDE = DT_WINO_WIDE,
    TILE = DT_WINO_TILE,
    PATCH = DT_WINO_PATCH,
    TAPS = DT_WINO_TAPS,
};

#define UNROLL _Pragma("GCC unroll 36")

#define SPREAD(x) ((x) - (vec){0}) /* to all lanes; adding 0 would change -0 */
#define INLINE    static inline __attribute__((always_inline))

/* The points at which the polynomials are multiplied: 0, +-P, +-Q and infinity. */
#define P  0.75f
#define Q  1.5f
#define P2 (P * P)
#define Q2 (Q * Q)
#define NP (1 / (2 * P2 * (P2 - Q2)))
#define NQ (1 / (2 * Q2 * (Q2 - P2)))
#define N0 (1 / (P2 * Q2))

static const float NOTHING[BLOCK];

/* --- The matrices (winograd.c) times one line of values: out[i * to] from d[i * from] --- */

typedef void line_fn(vec *out, size_t to, const vec *d, size_t from);

/* B': 6 from 6 */
static inline void patch_line(vec *out, size_t to, const vec *d, size_t from)
{
    vec d0 = d[0], d1 = d[from], d2 = d[2 * from], d3 = d[3 * from], d4 = d[4 * from],
        d5 = d[5 * from];
    vec even = d4 - Q2 * d2, odd = d3 - Q2 * d1;
    out[to] = even + P * odd;
    out[2 * to] = even - P * odd;
    even = d4 - P2 * d2;
    odd = d3 - P2 * d1;
    out[3 * to] = even + Q * odd;
    out[4 * to] = even - Q * odd;
    out[0] = d4 - (P2 + Q2) * d2 + P2 * Q2 * d0;
    out[5 * to] = d5 - (P2 + Q2) * d3 + P2 * Q2 * d1;
}

/* A': 4 from 6 */
static inline void output_line(vec *out, size_t to, const vec *m, size_t from)
{
    vec p = m[from] + m[2 * from], q = m[3 * from] + m[4 * from];
    out[0] = m[0] + p + q;
    out[2 * to] = P2 * p + Q2 * q;
    p = P * (m[from] - m[2 * from]);
    q = Q * (m[3 * from] - m[4 * from]);
    out[to] = p + q;
    out[3 * to] = P2 * p + Q2 * q + m[5 * from];
}

/* A: 6 from 4 */
static inline void tile_line(vec *out, size_t to, const vec *d, size_t from)
{
    vec d0 = d[0], d1 = d[from], d2 = d[2 * from], d3 = d[3 * from];
    vec even = d0 + P2 * d2, odd = P * (d1 + P2 * d3);
    out[0] = d0;
    out[to] = even + odd;
    out[2 * to] = even - odd;
    even = d0 + Q2 * d2;
    odd = Q * (d1 + Q2 * d3);
    out[3 * to] = even + odd;
    out[4 * to] = even - odd;
    out[5 * to] = d3;
}

/* G: 6 from 3 */
static inline void weights_line(vec *out, size_t to, const vec *g, size_t from)
{
    vec g0 = g[0], g1 = g[from], g2 = g[2 * from];
    vec even = NP * g0 + NP * P2 * g2, odd = NP * P * g1;
    out[0] = N0 * g0;
    out[to] = even + odd;
    out[2 * to] = even - odd;
    even = NQ * g0 + NQ * Q2 * g2;
    odd = NQ * Q * g1;
    out[3 * to] = even + odd;
    out[4 * to] = even - odd;
    out[5 * to] = g2;
}

/* G': 3 from 6 */
static inline void gradient_line(vec *out, size_t to, const vec *m, size_t from)
{
    vec p = NP * (m[from] + m[2 * from]), q = NQ * (m[3 * from] + m[4 * from]);
    out[0] = N0 * m[0] + p + q;
    out[2 * to] = P2 * p + Q2 * q + m[5 * from];
    out[to] = NP * P * (m[from] - m[2 * from]) + NQ * Q * (m[3 * from] - m[4 * from]);
}

/* --- Squares: the matrix from both sides --- */

/* From size x size values to all positions, which are `plane` floats apart. */
INLINE void widen(float *to, size_t plane, const vec *d, const size_t size, line_fn *line_of)
{
    vec half[PATCH * PATCH];
    UNROLL
    for (size_t x = 0; x < size; x++)
        line_of(half + x, size, d + x, size);
    UNROLL
    for (size_t y = 0; y < PATCH; y++) {
        vec line[PATCH];
        line_of(line, 1, half + y * size, 1);
        UNROLL
        for (size_t x = 0; x < PATCH; x++)
            STORE(to + (y * PATCH + x) * plane, line[x]);
    }
}

/* The other way round. */
INLINE void narrow(vec *out, const float *m, size_t plane, const size_t size, line_fn *line_of)
{
    vec half[PATCH * PATCH];
    UNROLL
    for (size_t x = 0; x < PATCH; x++) {
        vec column[PATCH];
        UNROLL
        for (size_t y = 0; y < PATCH; y++)
            column[y] = LOAD(m + (y * PATCH + x) * plane);
        line_of(half + x, PATCH, column, 1);
    }
    UNROLL
    for (size_t y = 0; y < size; y++)
        line_of(out + y * size, 1, half + y * PATCH, 1);
}

/* --- Tiles --- */

struct corner {
    int image, y, x; /* of a tile's first pixel */
};

static inline struct corner corner_of(const struct dt_wino_image *image, int tile)
{
    int per_image = image->down * image->across, in_image = tile % per_image;
    return (struct corner){tile / per_image, in_image / image->across * TILE,
                           in_image % image->across * TILE};
}

/* Of the first pixel of an image. */
static inline size_t offset_of(const struct dt_wino_image *image, int in_batch, int block)
{
    return (size_t)(in_batch * image->blocks + block) * (size_t)image->height *
           (size_t)image->width * BLOCK;
}

/* What the tile below will need first: rows are too short for the hardware's prefetching. */
static inline void prefetch_below(const float *pixels, const struct dt_wino_image *image,
                                  struct corner at)
{
    for (int i = 1; i <= TILE; i++) {
        const float *row = pixels + (ptrdiff_t)((at.y + TILE + i) * image->width + at.x) * BLOCK;
        UNROLL
        for (int j = 0; j < TILE * BLOCK; j += 16)
            __builtin_prefetch(row + j);
    }
}

/* size x size pixels from (y, x). */
INLINE void load_square(vec *out, const int size, const float *pixels,
                        const struct dt_wino_image *image, int y, int x)
{
    UNROLL
    for (int i = 0; i < size; i++) {
        bool row_is_inside = y + i >= 0 && y + i < image->height;
        const float *row = pixels + (ptrdiff_t)((y + i) * image->width + x) * BLOCK;
        UNROLL
        for (int j = 0; j < size; j++) {
            bool is_inside = row_is_inside && x + j >= 0 && x + j < image->width;
            out[i * size + j] = LOAD(is_inside ? row + j * BLOCK : NOTHING);
        }
    }
}

/* Squares that begin `margin` pixels before the tiles. */
INLINE void widen_tiles(float *v, const struct dt_wino_chunk *chunk, const float *src,
                        const struct dt_wino_image *image, const int size, const int margin,
                        line_fn *line_of)
{
    for (int block = 0; block < image->blocks; block++) {
        for (int t = 0; t < chunk->n; t++) {
            struct corner at = corner_of(image, chunk->first + t);
            const float *pixels = src + offset_of(image, at.image, block);
            vec d[PATCH * PATCH];
            prefetch_below(pixels, image, at);
            load_square(d, size, pixels, image, at.y - margin, at.x - margin);
            widen(v + (size_t)(block * chunk->room + t) * BLOCK, chunk->plane, d, (size_t)size,
                  line_of);
        }
    }
}

static void patches(float *v, const struct dt_wino_chunk *chunk, const float *src,
                    const struct dt_wino_image *image)
{
    widen_tiles(v, chunk, src, image, PATCH, 1, patch_line);
}

static void tiles(float *v, const struct dt_wino_chunk *chunk, const float *src,
                  const struct dt_wino_image *image)
{
    widen_tiles(v, chunk, src, image, TILE, 0, tile_line);
}

static void output(float *dst, const struct dt_wino_image *image, int block, const float *m,
                   const struct dt_wino_chunk *chunk, const float *bias, bool relu)
{
    const vec shift = LOAD(bias);
    for (int t = 0; t < chunk->n; t++, m += BLOCK) {
        struct corner at = corner_of(image, chunk->first + t);
        float *pixels = dst + offset_of(image, at.image, block);
        vec y[TILE * TILE];
        narrow(y, m, chunk->plane, TILE, output_line);
        for (int i = 0; i < TILE && at.y + i < image->height; i++) {
            UNROLL
            for (int j = 0; j < TILE; j++) {
                vec value = y[i * TILE + j] + shift;
                if (relu) /* "not <= 0", so that NaN passes through */
                    value = (vec)((ivec)value & ~(value <= 0));
                if (at.x + j < image->width)
                    STORE(pixels + ((at.y + i) * image->width + at.x + j) * BLOCK, value);
            }
        }
    }
}

/* Per row of pixels in fp32, then in fp64. */
static void add(double *total, const float *src, const struct dt_wino_image *image)
{
    for (int y = 0; y < image->height; y++) {
        vec sum = {0};
        for (int x = 0; x < image->width; x++, src += BLOCK)
            sum += LOAD(src);
        for (int lane = 0; lane < BLOCK; lane++)
            total[lane] += (double)sum[lane];
    }
}

/* --- Weights: transposed in between, so that a vector has the outputs of one input --- */

typedef float taps[TAPS][BLOCK][BLOCK];

static void weights(float *u, size_t plane, const float *w, const struct dt_wino_weights *layout)
{
    taps g;
    memset(g, 0, sizeof g);
    for (int o = 0; o < BLOCK && o < layout->out; o++) {
        for (int i = 0; i < BLOCK && i < layout->in; i++) {
            const float *from = w + (size_t)o * layout->out_stride + (size_t)i * layout->in_stride;
            UNROLL
            for (int tap = 0; tap < TAPS; tap++)
                g[tap][i][o] = from[layout->rotated ? TAPS - 1 - tap : tap];
        }
    }
    for (int i = 0; i < BLOCK; i++, u += BLOCK) {
        vec all[TAPS];
        UNROLL
        for (int tap = 0; tap < TAPS; tap++)
            all[tap] = LOAD(g[tap][i]);
        widen(u, plane, all, 3, weights_line);
    }
}

static void gradient(float *w, const struct dt_wino_weights *layout, const float *m)
{
    taps g;
    for (int i = 0; i < BLOCK; i++, m += BLOCK) {
        vec all[TAPS];
        narrow(all, m, BLOCK * BLOCK, 3, gradient_line);
        UNROLL
        for (int tap = 0; tap < TAPS; tap++)
            STORE(g[tap][i], all[tap]);
    }
    for (int o = 0; o < BLOCK && o < layout->out; o++) {
        for (int i = 0; i < BLOCK && i < layout->in; i++) {
            float *to = w + (size_t)o * layout->out_stride + (size_t)i * layout->in_stride;
            UNROLL
            for (int tap = 0; tap < TAPS; tap++)
                to[tap] = g[tap][i][o];
        }
    }
}

/* --- Products --- */

/* m (+)= the sum over some blocks. */
INLINE void product_step(float *m, size_t m_block, const float *v, size_t v_block, int n_blocks,
                         const float *u, size_t u_block, const int wide, bool first)
{
    vec sum[STEP][WIDE] = {{{0}}};
    for (int b = 0; b < n_blocks; b++, v += v_block) {
        for (int c = 0; c < BLOCK; c++, u += BLOCK) {
            vec factor[WIDE];
            UNROLL
            for (int k = 0; k < wide; k++)
                factor[k] = LOAD(u + (size_t)k * u_block);
            UNROLL
            for (int t = 0; t < STEP; t++) {
                vec x = SPREAD(v[t * BLOCK + c]);
                UNROLL
                for (int k = 0; k < wide; k++)
                    sum[t][k] += x * factor[k];
            }
        }
    }
    UNROLL
    for (int k = 0; k < wide; k++) {
        UNROLL
        for (int t = 0; t < STEP; t++) {
            float *to = m + (size_t)k * m_block + t * BLOCK;
            STORE(to, first ? sum[t][k] : LOAD(to) + sum[t][k]);
        }
    }
}

static void product(float *m, size_t m_block, const float *v, const struct dt_wino_chunk *chunk,
                    int n_blocks, const float *u, size_t u_block, int wide)
{
    enum { SUMMED = 32 / BLOCK }; /* sums of 32 channels are added: half the error of one sum */
    const size_t v_block = (size_t)chunk->room * BLOCK;
    for (int t = 0; t < chunk->n; t += STEP) {
        /* The last step overlaps the one before it. */
        size_t at = (size_t)(t + STEP > chunk->n && t > 0 ? chunk->n - STEP : t) * BLOCK;
        for (int b = 0; b < n_blocks; b += SUMMED) {
            int n = n_blocks - b < SUMMED ? n_blocks - b : SUMMED;
            const float *v_at = v + at + (size_t)b * v_block, *u_at = u + b * BLOCK * BLOCK;
            if (wide == WIDE)
                product_step(m + at, m_block, v_at, v_block, n, u_at, u_block, WIDE, b == 0);
            else
                product_step(m + at, m_block, v_at, v_block, n, u_at, u_block, 1, b == 0);
        }
    }
}

INLINE void outer_side(float *sum, size_t sum_block, const float *v, const float *y, size_t y_block,
                       int n, const int wide, bool first)
{
    vec s[SIDE][WIDE] = {{{0}}};
    for (int t = 0; t < n; t++, v += BLOCK, y += BLOCK) {
        vec factor[WIDE];
        UNROLL
        for (int k = 0; k < wide; k++)
            factor[k] = LOAD(y + (size_t)k * y_block);
        UNROLL
        for (int c = 0; c < SIDE; c++) {
            vec x = SPREAD(v[c]);
            UNROLL
            for (int k = 0; k < wide; k++)
                s[c][k] += x * factor[k];
        }
    }
    UNROLL
    for (int k = 0; k < wide; k++) {
        UNROLL
        for (int c = 0; c < SIDE; c++) {
            float *to = sum + (size_t)k * sum_block + c * BLOCK;
            STORE(to, first ? s[c][k] : LOAD(to) + s[c][k]);
        }
    }
}

static void outer(float *sum, size_t sum_block, const float *v, const float *y, size_t y_block,
                  int n, int wide, bool first)
{
    for (int c = 0; c < BLOCK; c += SIDE) {
        if (wide == WIDE)
            outer_side(sum + c * BLOCK, sum_block, v + c, y, y_block, n, WIDE, first);
        else
            outer_side(sum + c * BLOCK, sum_block, v + c, y, y_block, n, 1, first);
    }
}

const struct dt_wino_loops dt_wino = {.patches = patches,
                                      .tiles = tiles,
                                      .weights = weights,
                                      .product = product,
                                      .output = output,
                                      .outer = outer,
                                      .gradient = gradient,
                                      .add = add};
