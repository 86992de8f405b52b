/* The transforms and products of Winograd's algorithm on GNU C vectors of one block of channels.
 * The two products keep their sums in registers: every loop over them is unrolled. */
#include "cpu/winograd.h"

enum {
    BLOCK = DT_WINO_BLOCK,
    SQUARE = BLOCK * BLOCK,
    STEP = DT_WINO_STEP,
    SIDE = DT_WINO_SIDE,
    WIDE = DT_WINO_WIDE,
    TILE = DT_WINO_TILE,
    PATCH = 6,
    PHASE_PATCH = DT_WINO_PHASE_PATCH,
    TAPS = DT_WINO_TAPS,
};

#define UNROLL _Pragma("GCC unroll 36")

#define SPREAD(x) ((x) - (vec){0}) /* to all lanes; adding 0 would change -0 */
#define INLINE    static inline __attribute__((always_inline))

/* The points at which the polynomials are multiplied: 0, +-P, +-Q and infinity; with stride 2 +-R,
 * +-S and infinity. */
#define P  0.75f
#define Q  1.5f
#define P2 (P * P)
#define Q2 (Q * Q)
#define NP (1 / (2 * P2 * (P2 - Q2)))
#define NQ (1 / (2 * Q2 * (Q2 - P2)))
#define N0 (1 / (P2 * Q2))
#define R  0.5f
#define S  1.5f
#define NR (1 / (2 * R * (R * R - S * S)))
#define NS (1 / (2 * S * (S * S - R * R)))

static const real NOTHING[BLOCK];

/* --- The matrices (winograd.c) times one line of values: out[i * to] from d[i * from] --- */

typedef void line_fn(vec *out, size_t to, const vec *d, size_t from);

/* The rows of B' for +-p, +-q and infinity, without the column of the point 0. */
INLINE void patch_pairs(vec *out, size_t to, const vec *d, size_t from, const float p,
                        const float q)
{
    vec d0 = d[0], d1 = d[from], d2 = d[2 * from], d3 = d[3 * from], d4 = d[4 * from];
    vec even = d3 - q * q * d1, odd = d2 - q * q * d0;
    out[0] = even + p * odd;
    out[to] = even - p * odd;
    even = d3 - p * p * d1;
    odd = d2 - p * p * d0;
    out[2 * to] = even + q * odd;
    out[3 * to] = even - q * odd;
    out[4 * to] = d4 - (p * p + q * q) * d2 + p * p * q * q * d0;
}

/* B': 6 from 6 */
static inline void patch_line(vec *out, size_t to, const vec *d, size_t from)
{
    patch_pairs(out + to, to, d + from, from, P, Q);
    out[0] = d[4 * from] - (P2 + Q2) * d[2 * from] + P2 * Q2 * d[0];
}

/* 5 from 5, of a phase */
static inline void phase_patch_line(vec *out, size_t to, const vec *d, size_t from)
{
    patch_pairs(out, to, d, from, R, S);
}

/* The columns of A' for +-p, +-q and infinity. */
INLINE void output_pairs(vec *out, size_t to, const vec *m, size_t from, const float p,
                         const float q)
{
    vec plus = m[0] + m[from], more = m[2 * from] + m[3 * from];
    out[0] = plus + more;
    out[2 * to] = p * p * plus + q * q * more;
    plus = p * (m[0] - m[from]);
    more = q * (m[2 * from] - m[3 * from]);
    out[to] = plus + more;
    out[3 * to] = p * p * plus + q * q * more + m[4 * from];
}

/* A': 4 from 6 */
static inline void output_line(vec *out, size_t to, const vec *m, size_t from)
{
    output_pairs(out, to, m + from, from, P, Q);
    out[0] += m[0];
}

/* 4 from 5 */
static inline void phase_output_line(vec *out, size_t to, const vec *m, size_t from)
{
    output_pairs(out, to, m, from, R, S);
}

/* The rows of A for +-p, +-q and infinity. */
INLINE void tile_pairs(vec *out, size_t to, const vec *d, size_t from, const float p, const float q)
{
    vec d0 = d[0], d1 = d[from], d2 = d[2 * from], d3 = d[3 * from];
    vec even = d0 + p * p * d2, odd = p * (d1 + p * p * d3);
    out[0] = even + odd;
    out[to] = even - odd;
    even = d0 + q * q * d2;
    odd = q * (d1 + q * q * d3);
    out[2 * to] = even + odd;
    out[3 * to] = even - odd;
    out[4 * to] = d3;
}

/* A: 6 from 4 */
static inline void tile_line(vec *out, size_t to, const vec *d, size_t from)
{
    tile_pairs(out + to, to, d, from, P, Q);
    out[0] = d[0];
}

/* 5 from 4 */
static inline void phase_tile_line(vec *out, size_t to, const vec *d, size_t from)
{
    tile_pairs(out, to, d, from, R, S);
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

/* 5 from 2 */
static inline void phase_weights_line(vec *out, size_t to, const vec *g, size_t from)
{
    vec g0 = g[0], g1 = g[from];
    out[0] = NR * R * g1 + NR * g0;
    out[to] = NR * R * g1 - NR * g0;
    out[2 * to] = NS * S * g1 + NS * g0;
    out[3 * to] = NS * S * g1 - NS * g0;
    out[4 * to] = g1;
}

/* G': 3 from 6 */
static inline void gradient_line(vec *out, size_t to, const vec *m, size_t from)
{
    vec p = NP * (m[from] + m[2 * from]), q = NQ * (m[3 * from] + m[4 * from]);
    out[0] = N0 * m[0] + p + q;
    out[2 * to] = P2 * p + Q2 * q + m[5 * from];
    out[to] = NP * P * (m[from] - m[2 * from]) + NQ * Q * (m[3 * from] - m[4 * from]);
}

/* 2 from 5 */
static inline void phase_gradient_line(vec *out, size_t to, const vec *m, size_t from)
{
    out[0] = NR * (m[0] - m[from]) + NS * (m[2 * from] - m[3 * from]);
    out[to] = NR * R * (m[0] + m[from]) + NS * S * (m[2 * from] + m[3 * from]) + m[4 * from];
}

/* --- Squares: the matrix from both sides --- */

/* The positions of a square: side x side, of which only the first rows x columns are used. */
struct square {
    int side, rows, columns;
};
#define FULL       ((struct square){PATCH, PATCH, PATCH})
#define FULL_PHASE ((struct square){PHASE_PATCH, PHASE_PATCH, PHASE_PATCH})

/* Transforms size x size values into all positions, which are `plane` floats apart. */
INLINE void to_winograd(float *to, size_t plane, const vec *d, const int size,
                        const struct square square, line_fn *line_of)
{
    vec half[PATCH * PATCH];
    UNROLL
    for (int x = 0; x < size; x++)
        line_of(half + x, (size_t)size, d + x, (size_t)size);
    UNROLL
    for (int y = 0; y < square.rows; y++) {
        vec line[PATCH];
        line_of(line, 1, half + y * size, 1);
        UNROLL
        for (int x = 0; x < square.columns; x++)
            STORE(to + (size_t)(y * square.side + x) * plane, line[x]);
    }
}

/* The other way round. */
INLINE void from_winograd(vec *out, const float *m, size_t plane, const int size,
                          const struct square square, line_fn *line_of)
{
    vec half[PATCH * PATCH];
    UNROLL
    for (int x = 0; x < square.side; x++) {
        vec column[PATCH];
        UNROLL
        for (int y = 0; y < square.side; y++) {
            bool is_used = x < square.columns && y < square.rows;
            column[y] = is_used ? LOAD(m + (size_t)(y * square.side + x) * plane) : (vec){0};
        }
        line_of(half + x, PATCH, column, 1);
    }
    UNROLL
    for (int y = 0; y < size; y++)
        line_of(out + y * size, 1, half + y * PATCH, 1);
}

/* --- Phases --- */

/* Directions in which a phase has the odd pixels. */
struct odd {
    bool y, x;
};
#define ODD_OF(phase) ((struct odd){(phase) == 1 || (phase) == 2, (phase) < 2})

INLINE struct square phase_square(const struct odd odd)
{
    return (struct square){PHASE_PATCH, PHASE_PATCH - !odd.y, PHASE_PATCH - !odd.x};
}

/* --- Tiles --- */

/* The first pixel of a tile in its image or phase. */
struct corner {
    int image, y, x;
};

static inline struct corner corner_of(const struct dt_wino_image *image, int tile)
{
    int per_image = image->down * image->across, in_image = tile % per_image;
    return (struct corner){tile / per_image, in_image / image->across * TILE,
                           in_image % image->across * TILE};
}

/* The offset of the first pixel of an image. */
static inline size_t offset_of(const struct dt_wino_image *image, int in_batch, int block)
{
    return (size_t)(in_batch * image->blocks + block) * (size_t)image->height *
           (size_t)image->width * BLOCK;
}

/* Prefetches the rows that the tile below needs first: rows are too short for the hardware's
 * prefetching. */
INLINE void prefetch_below(const real *pixels, const struct dt_wino_image *image, struct corner at,
                           const int step)
{
    for (int i = 1; i <= TILE * step; i++) {
        int y = (at.y + TILE) * step + i;
        const real *row = pixels + (ptrdiff_t)(y * image->width + at.x * step) * BLOCK;
        UNROLL
        for (int j = 0; j < TILE * step * BLOCK; j += 64 / (int)sizeof(real))
            __builtin_prefetch(row + j);
    }
}

/* size x size pixels from (y, x), `step` apart. */
INLINE void load_square(vec *out, const int size, const real *pixels,
                        const struct dt_wino_image *image, int y, int x, const int step)
{
    UNROLL
    for (int i = 0; i < size; i++) {
        int row_y = y + i * step;
        bool row_is_inside = row_y >= 0 && row_y < image->height;
        const real *row = pixels + (ptrdiff_t)(row_y * image->width + x) * BLOCK;
        UNROLL
        for (int j = 0; j < size; j++) {
            bool is_inside = row_is_inside && x + j * step >= 0 && x + j * step < image->width;
            out[i * size + j] = load_real(is_inside ? row + j * step * BLOCK : NOTHING);
        }
    }
}

/* Squares that begin `margin` pixels before the tiles. */
INLINE void tiles_to_winograd(float *v, const struct dt_wino_chunk *chunk, const real *src,
                              const struct dt_wino_image *image, const int size, const int margin,
                              const struct square square, line_fn *line_of)
{
    for (int block = 0; block < image->blocks; block++) {
        for (int t = 0; t < chunk->n; t++) {
            struct corner at = corner_of(image, chunk->first + t);
            const real *pixels = src + offset_of(image, at.image, block);
            vec d[PATCH * PATCH];
            prefetch_below(pixels, image, at, 1);
            load_square(d, size, pixels, image, at.y - margin, at.x - margin, 1);
            to_winograd(v + (size_t)(block * chunk->room + t) * BLOCK, chunk->plane, d, size,
                        square, line_of);
        }
    }
}

static void patches(float *v, const struct dt_wino_chunk *chunk, const real *src,
                    const struct dt_wino_image *image)
{
    tiles_to_winograd(v, chunk, src, image, PATCH, 1, FULL, patch_line);
}

static void tiles(float *v, const struct dt_wino_chunk *chunk, const real *src,
                  const struct dt_wino_image *image)
{
    tiles_to_winograd(v, chunk, src, image, TILE, 0, FULL, tile_line);
}

static void phase_tiles(float *v, const struct dt_wino_chunk *chunk, const real *src,
                        const struct dt_wino_image *image)
{
    tiles_to_winograd(v, chunk, src, image, TILE, 0, FULL_PHASE, phase_tile_line);
}

/* In an odd direction a patch begins a pixel of its phase before the tile. */
INLINE void phase_to_winograd(float *v, size_t plane, const real *pixels,
                              const struct dt_wino_image *image, struct corner at,
                              const struct odd odd)
{
    vec d[PHASE_PATCH * PHASE_PATCH];
    load_square(d, PHASE_PATCH, pixels, image, 2 * at.y - odd.y, 2 * at.x - odd.x, 2);
    to_winograd(v, plane, d, PHASE_PATCH, phase_square(odd), phase_patch_line);
}

static void phase_patches(float *v, const struct dt_wino_chunk *chunk, const real *src,
                          const struct dt_wino_image *image)
{
    const size_t v_phase = (size_t)(image->blocks * chunk->room) * BLOCK;
    if (image->phases == 1) {
        tiles_to_winograd(v, chunk, src, image, PHASE_PATCH, 0, FULL_PHASE, phase_patch_line);
        return;
    }
    for (int block = 0; block < image->blocks; block++) {
        for (int t = 0; t < chunk->n; t++) {
            struct corner at = corner_of(image, chunk->first + t);
            const real *pixels = src + offset_of(image, at.image, block);
            float *to = v + (size_t)(block * chunk->room + t) * BLOCK;
            prefetch_below(pixels, image, at, 2);
            phase_to_winograd(to, chunk->plane, pixels, image, at, ODD_OF(0));
            phase_to_winograd(to + v_phase, chunk->plane, pixels, image, at, ODD_OF(1));
            phase_to_winograd(to + 2 * v_phase, chunk->plane, pixels, image, at, ODD_OF(2));
            phase_to_winograd(to + 3 * v_phase, chunk->plane, pixels, image, at, ODD_OF(3));
        }
    }
}

/* Into pixels `step` apart. */
INLINE void tiles_from_winograd(real *dst, const struct dt_wino_image *image, int block,
                                const float *m, const struct dt_wino_chunk *chunk,
                                const float *bias, bool relu, const struct square square,
                                line_fn *line_of, const int step, const struct odd odd)
{
    const vec shift = LOAD(bias);
    for (int t = 0; t < chunk->n; t++, m += BLOCK) {
        struct corner at = corner_of(image, chunk->first + t);
        real *pixels = dst + offset_of(image, at.image, block);
        vec y[TILE * TILE];
        from_winograd(y, m, chunk->plane, TILE, square, line_of);
        for (int i = 0; i < TILE; i++) {
            int to_y = (at.y + i) * step + odd.y;
            if (to_y >= image->height)
                break;
            UNROLL
            for (int j = 0; j < TILE; j++) {
                int to_x = (at.x + j) * step + odd.x;
                vec value = y[i * TILE + j] + shift;
                if (relu) /* "not <= 0", so that NaN passes through */
                    value = (vec)((ivec)value & ~(value <= 0));
                if (to_x < image->width)
                    store_real(pixels + (to_y * image->width + to_x) * BLOCK, value);
            }
        }
    }
}

static void output(real *dst, const struct dt_wino_image *image, int phase, int block,
                   const float *m, const struct dt_wino_chunk *chunk, const float *bias, bool relu)
{
    (void)phase;
    tiles_from_winograd(dst, image, block, m, chunk, bias, relu, FULL, output_line, 1,
                        (struct odd){0});
}

#define NARROW_PHASE(odd)                                                           \
    tiles_from_winograd(dst, image, block, m, chunk, bias, relu, phase_square(odd), \
                        phase_output_line, 2, odd)

static void phase_output(real *dst, const struct dt_wino_image *image, int phase, int block,
                         const float *m, const struct dt_wino_chunk *chunk, const float *bias,
                         bool relu)
{
    if (image->phases == 1)
        tiles_from_winograd(dst, image, block, m, chunk, bias, relu, FULL_PHASE, phase_output_line,
                            1, (struct odd){0});
    else if (phase == 0)
        NARROW_PHASE(ODD_OF(0));
    else if (phase == 1)
        NARROW_PHASE(ODD_OF(1));
    else if (phase == 2)
        NARROW_PHASE(ODD_OF(2));
    else
        NARROW_PHASE(ODD_OF(3));
}

/* Per row of pixels in fp32, then in fp64. */
static void add(double *total, const real *src, const struct dt_wino_image *image)
{
    for (int y = 0; y < image->height; y++) {
        vec sum = {0};
        for (int x = 0; x < image->width; x++, src += BLOCK)
            sum += load_real(src);
        for (int lane = 0; lane < BLOCK; lane++)
            total[lane] += (double)sum[lane];
    }
}

/* --- Weights: values [tap][input], vectors of outputs --- */

/* The same with inputs and outputs exchanged, and the taps in reverse order. */
static const real *rotate(real *g, const real *w)
{
    for (int tap = 0; tap < TAPS; tap++, w += SQUARE) {
        for (int i = 0; i < BLOCK; i++)
            for (int o = 0; o < BLOCK; o++)
                g[(TAPS - 1 - tap) * SQUARE + o * BLOCK + i] = w[i * BLOCK + o];
    }
    return g;
}

static void weights(float *u, size_t plane, size_t u_phase, const real *w, bool rotated)
{
    real rotation[TAPS * SQUARE];
    const real *g = rotated ? rotate(rotation, w) : w;
    (void)u_phase;
    for (int i = 0; i < BLOCK; i++, u += BLOCK, g += BLOCK) {
        vec all[TAPS];
        UNROLL
        for (int tap = 0; tap < TAPS; tap++)
            all[tap] = load_real(g + tap * SQUARE);
        to_winograd(u, plane, all, 3, FULL, weights_line);
    }
}

static void gradient(float *w, const float *m)
{
    for (int i = 0; i < BLOCK; i++, m += BLOCK, w += BLOCK) {
        vec all[TAPS];
        from_winograd(all, m, SQUARE, 3, FULL, gradient_line);
        UNROLL
        for (int tap = 0; tap < TAPS; tap++)
            STORE(w + tap * SQUARE, all[tap]);
    }
}

/* Offset of tap y, x of the 2x2 of a phase; in an even direction there is only the first. */
INLINE int tap_of(const struct odd odd, const int y, const int x)
{
    return ((odd.y ? 2 * y : 1) * 3 + (odd.x ? 2 * x : 1)) * SQUARE;
}

INLINE void taps_to_winograd(float *u, size_t plane, const real *g, const struct odd odd)
{
    for (int i = 0; i < BLOCK; i++, u += BLOCK, g += BLOCK) {
        const vec none = {0};
        vec square[4] = {load_real(g + tap_of(odd, 0, 0)),
                         odd.x ? load_real(g + tap_of(odd, 0, 1)) : none,
                         odd.y ? load_real(g + tap_of(odd, 1, 0)) : none,
                         odd.x && odd.y ? load_real(g + tap_of(odd, 1, 1)) : none};
        to_winograd(u, plane, square, 2, phase_square(odd), phase_weights_line);
    }
}

INLINE void taps_from_winograd(float *w, const float *m, const struct odd odd)
{
    for (int i = 0; i < BLOCK; i++, m += BLOCK, w += BLOCK) {
        vec square[4];
        from_winograd(square, m, SQUARE, 2, phase_square(odd), phase_gradient_line);
        for (int y = 0; y < 1 + odd.y; y++) {
            for (int x = 0; x < 1 + odd.x; x++)
                STORE(w + tap_of(odd, y, x), square[2 * y + x]);
        }
    }
}

static void phase_weights(float *u, size_t plane, size_t u_phase, const real *w, bool rotated)
{
    real rotation[TAPS * SQUARE];
    const real *g = rotated ? rotate(rotation, w) : w;
    taps_to_winograd(u, plane, g, ODD_OF(0));
    taps_to_winograd(u + u_phase, plane, g, ODD_OF(1));
    taps_to_winograd(u + 2 * u_phase, plane, g, ODD_OF(2));
    taps_to_winograd(u + 3 * u_phase, plane, g, ODD_OF(3));
}

static void phase_gradient(float *w, const float *m)
{
    enum { M_PHASE = PHASE_PATCH * PHASE_PATCH * SQUARE };
    taps_from_winograd(w, m, ODD_OF(0));
    taps_from_winograd(w, m + M_PHASE, ODD_OF(1));
    taps_from_winograd(w, m + 2 * M_PHASE, ODD_OF(2));
    taps_from_winograd(w, m + 3 * M_PHASE, ODD_OF(3));
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

const struct dt_wino_loops dt_wino[] = {{.positions = PATCH * PATCH,
                                         .patches = patches,
                                         .tiles = tiles,
                                         .weights = weights,
                                         .product = product,
                                         .output = output,
                                         .outer = outer,
                                         .gradient = gradient,
                                         .add = add},
                                        {.positions = PHASE_PATCH * PHASE_PATCH,
                                         .patches = phase_patches,
                                         .tiles = phase_tiles,
                                         .weights = phase_weights,
                                         .product = product,
                                         .output = phase_output,
                                         .outer = outer,
                                         .gradient = phase_gradient,
                                         .add = add}};
