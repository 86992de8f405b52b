// Batch norm over rows x cp: what its forward (norm.cu) and backward kernels (norm_bwd.cu), those
// of two at once (norm_pair.cu) and those with a pooling (norm_pool.cu) share. A thread keeps the
// values for 8 channels in registers and loops over the rows; it reads the next rows of all tensors
// (64 to 96 bytes) before processing them, so that enough bytes are in flight. Sums over rows are
// in fp32 within a thread and a block (a tree). The last block of a column to finish adds up the
// results of all of them in fp64. All of it is in a fixed order, which does not depend on which
// block that is.
//
// Bytes moved, of N = rows * cp elements of e bytes:
//   bn_stats           reads N e
//   bn_apply           reads N e (with residual 2 N e), writes N e and for the mask N / 8
//   bn_bwd_sums        reads 2 N e (with diff_dst2 3 N e) and the mask, writes diff_residual N e
//   bn_bwd_apply       reads as bn_bwd_sums, writes N e
//   bn_pair_apply      reads 2 N e, writes N e and the mask
//   bn_pair_bwd_sums   reads 3 N e (with diff_dst2 4 N e) and the mask
//   bn_pair_bwd_apply  reads as bn_pair_bwd_sums, writes 2 N e
//   the last blocks    read 8 * cp bytes per row of blocks, from L2
//   combine            reads 8 * cp bytes per rank that exchanges
// The first kernel that reads a tensor loops from the last row to the first, the next one the other
// way: each begins with the rows touched last, which may still be in the L2 cache.
#ifndef DTRAIN_KERNELS_NORM_CUH
#define DTRAIN_KERNELS_NORM_CUH

#include "kernels/device.cuh"

enum {
    BLOCKS_PER_SM = 4, // matches DT_MAX_BLOCKS: at most 64 registers
    SUM_BLOCKS_PER_SM = BLOCKS_PER_SM * DT_BLOCK_THREADS / DT_SUM_THREADS,
    FINAL_CHANNELS = 2, // channels per thread when the last block adds up
    PARTIALS_AHEAD = 6, // rows of partial results that it reads ahead
};

// Number of rows that a thread reads ahead in each of N tensors.
template <typename T, int N>
static constexpr int ROWS_AHEAD = (N == 1 ? 4 : 2) * 2 / (int)sizeof(T);

// 8 elements as stored: half the registers of 8 floats while they only wait.
template <typename T> struct raw8 {
    uint4 part[1];
};
template <> struct raw8<float> {
    float4 part[2];
};

template <typename T> static __device__ inline raw8<T> read8(const T *p)
{
    return *reinterpret_cast<const raw8<T> *>(p);
}

template <typename T>
static __device__ inline void unpack8(float v[DT_CHANNEL_PACK], const raw8<T> &raw)
{
    dt_load8(v, reinterpret_cast<const T *>(&raw));
}

// The part of a matrix that a thread processes, as defined by dt_rows_geometry: rows first,
// first + step, ... of channels c .. c + 7. Threads with c >= cp are idle.
struct walk {
    unsigned first, step, rows;
    int c, cp;
};

static __device__ inline struct walk walk_of(unsigned rows, int cp)
{
    return {blockIdx.y * blockDim.y + threadIdx.y, gridDim.y * blockDim.y, rows,
            (int)(blockIdx.x * blockDim.x + threadIdx.x) * DT_CHANNEL_PACK, cp};
}

// The same in one of the parts of dt_channel_cuts: w.rows is its end.
static __device__ inline struct walk walk_of_part(unsigned rows, int cp, unsigned cuts)
{
    const struct dt_cut cut = dt_channel_cut(rows, blockIdx.y, gridDim.y, cuts);
    return {cut.begin + cut.block * blockDim.y + threadIdx.y, cut.n_blocks * blockDim.y, cut.end,
            (int)(blockIdx.x * blockDim.x + threadIdx.x) * DT_CHANNEL_PACK, cp};
}

// Offset of the thread's elements in a row; rows are counted from the first or from the last.
static __device__ inline size_t at_row(const struct walk &w, unsigned row)
{
    return (size_t)row * w.cp + w.c;
}

static __device__ inline size_t at_row_from_end(const struct walk &w, unsigned row)
{
    return (size_t)(w.rows - 1 - row) * w.cp + w.c;
}

// The place of a thread in a block: columns of threads have the same channels.
struct spot {
    unsigned x, y, n_x, n_y;
};

// Parameters of fold_columns, the same for all types.
static __device__ inline void *fold_memory()
{
    alignas(16) __shared__ char memory[DT_CHANNEL_PACK * sizeof(float) * DT_SUM_THREADS];
    return memory;
}

// Sums a and b over the threads with the same x; those with y == 0 get the results. All threads
// take part.
template <int N, typename T>
static __device__ inline void fold_columns(T a[N], T b[N], const struct spot &at)
{
    T(*const other)[DT_SUM_THREADS / 2] = static_cast<T(*)[DT_SUM_THREADS / 2]>(fold_memory());

    for (unsigned half = at.n_y / 2; half > 0; half /= 2) {
        const unsigned slot = (at.y % half) * at.n_x + at.x;
        if (at.y >= half && at.y < 2 * half) {
            for (int k = 0; k < N; k++) {
                other[k][slot] = a[k];
                other[N + k][slot] = b[k];
            }
        }
        __syncthreads();
        if (at.y < half) {
            for (int k = 0; k < N; k++) {
                a[k] += other[k][slot];
                b[k] += other[N + k][slot];
            }
        }
        __syncthreads();
    }
}

// Sums a and b over the threads of a block that have the same channels; the threads with
// threadIdx.y == 0 get the results. All threads take part.
static __device__ inline void fold_block(float a[DT_CHANNEL_PACK], float b[DT_CHANNEL_PACK])
{
    fold_columns<DT_CHANNEL_PACK>(a, b, {threadIdx.x, threadIdx.y, blockDim.x, blockDim.y});
}

// Stores the sums of a and b over the block in partial, floats [grid_y][2][cp]. All threads take
// part.
static __device__ inline void store_partial(float *partial, const struct walk &w,
                                            float a[DT_CHANNEL_PACK], float b[DT_CHANNEL_PACK])
{
    fold_block(a, b);
    if (w.c < w.cp && threadIdx.y == 0) {
        float *out = partial + (size_t)blockIdx.y * 2 * w.cp + w.c;
        dt_store8(out, a);
        dt_store8(out + w.cp, b);
    }
}

// Stores mean and sum of squared deviations of the block's n_rows rows likewise. Values are taken
// relative to the block's first row, so that a mean far from zero costs no precision. Rows past the
// end read that row again, which adds nothing and avoids a branch between the reads.
template <typename T>
static __device__ inline void store_moments(float *partial, const T *src, const struct walk &w,
                                            unsigned n_rows)
{
    constexpr int AHEAD = ROWS_AHEAD<T, 1>;
    const unsigned row0 = w.first - threadIdx.y;
    float origin[DT_CHANNEL_PACK], sum[DT_CHANNEL_PACK] = {}, square[DT_CHANNEL_PACK] = {};

    if (w.c < w.cp) {
        dt_load8(origin, src + at_row_from_end(w, row0));
        for (unsigned row = w.first; row < w.rows; row += AHEAD * w.step) {
            raw8<T> raw[AHEAD];
            for (int i = 0; i < AHEAD; i++) {
                const unsigned r = row + i * w.step;
                raw[i] = read8(src + at_row_from_end(w, r < w.rows ? r : row0));
            }
            for (int i = 0; i < AHEAD; i++) {
                float x[DT_CHANNEL_PACK];
                unpack8(x, raw[i]);
                for (int k = 0; k < DT_CHANNEL_PACK; k++) {
                    const float d = x[k] - origin[k];
                    sum[k] += d;
                    square[k] = fmaf(d, d, square[k]);
                }
            }
        }
    }
    fold_block(sum, square);
    if (w.c < w.cp && threadIdx.y == 0) {
        const float n = (float)n_rows;
        float *to = partial + (size_t)blockIdx.y * 2 * w.cp + w.c;
        for (int k = 0; k < DT_CHANNEL_PACK; k++) {
            const float mean = sum[k] / n, m2 = fmaf(-mean, sum[k], square[k]);
            sum[k] = origin[k] + mean;
            square[k] = m2 < 0 ? 0 : m2; // lets NaN through
        }
        dt_store8(to, sum);
        dt_store8(to + w.cp, square);
    }
}

// --- The last block of a column (blockIdx.x) adds up what all its blocks have left in memory ---

// Whether the block is the last of its column to get here: then its threads may read, past the L1
// cache (__ldcg), what the threads of the others wrote before. All threads take part.
static __device__ inline bool is_last_block(unsigned *tickets)
{
    __shared__ bool last;

    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        __threadfence(); // the block's results come before its ticket,
        last = atomicInc(&tickets[blockIdx.x], gridDim.y - 1) == gridDim.y - 1; // ends at 0 again
        __threadfence(); // and all tickets before what follows
    }
    __syncthreads();
    return last;
}

// How a block's threads share the column's partial results, floats [gridDim.y][2][cp]: a thread has
// FINAL_CHANNELS channels, and again rows first, first + step, ...
static __device__ inline struct spot spot_in_sums()
{
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
    const unsigned n_x = blockDim.x * (DT_CHANNEL_PACK / FINAL_CHANNELS);
    return {thread % n_x, thread / n_x, n_x, blockDim.x * blockDim.y / n_x};
}

static __device__ inline struct walk walk_of_partials(const struct spot &at, int cp)
{
    return {at.y, at.n_y, gridDim.y, (int)(blockIdx.x * at.n_x + at.x) * FINAL_CHANNELS, cp};
}

static __device__ inline void load_partial(float v[FINAL_CHANNELS], const float *p)
{
    const float2 raw = __ldcg(reinterpret_cast<const float2 *>(p));
    v[0] = raw.x, v[1] = raw.y;
}

// Calls add(first, second, row), floats [FINAL_CHANNELS] each, for all rows of a thread's partial
// results. Several rows are read before any is used, because this is bound by memory latency.
template <typename F>
static __device__ inline void for_partials(const float *partial, const struct walk &w, F add)
{
    for (unsigned row = w.first; row < w.rows; row += PARTIALS_AHEAD * w.step) {
        float first[PARTIALS_AHEAD][FINAL_CHANNELS], second[PARTIALS_AHEAD][FINAL_CHANNELS];
        for (int i = 0; i < PARTIALS_AHEAD; i++) {
            const unsigned r = row + i * w.step;
            const float *at = partial + (size_t)(r < w.rows ? r : row) * 2 * w.cp + w.c;
            load_partial(first[i], at);
            load_partial(second[i], at + w.cp);
        }
        for (int i = 0; i < PARTIALS_AHEAD; i++) {
            if (row + i * w.step < w.rows)
                add(first[i], second[i], row + i * w.step);
        }
    }
}

// With S1 = sum of g and S2 = sum of g * (x - mean) over the n rows:
//   diff_src = a * (g - S1 / n - (x - mean) * S2 / (n * (variance + eps)))
// with a = scale / sqrt(variance + eps), which is coefs[0] * g + coefs[1] * x + coefs[2].
static __device__ inline void bwd_coefs(float *coefs, int c, int cp, double s1, double s2, double n,
                                        double inverse, const struct dt_bn_vectors &bn)
{
    const double a = (double)bn.scale[c] * inverse;
    const double b = -a * s2 * inverse * inverse / n;
    coefs[c] = (float)a;
    coefs[cp + c] = (float)b;
    coefs[2 * cp + c] = (float)(-a * s1 / n - b * (double)bn.mean[c]);
}

static __device__ inline double inverse_std(const struct dt_bn_vectors &bn, int c, float eps)
{
    return 1 / sqrt((double)bn.variance[c] + (double)eps);
}

static __device__ inline void store_bwd_sums(const struct dt_bn_sums &out, int c, double s1,
                                             double s2, const struct dt_bn_vectors &bn,
                                             const struct dt_norm_args &args)
{
    const double inverse = inverse_std(bn, c, args.eps);
    out.diff_scale[c] = (float)(s2 * inverse);
    out.diff_shift[c] = (float)s1;
    if (out.slot) {
        out.slot[c] = (float)s1;
        out.slot[args.cp + c] = (float)s2;
        if (c == 0)
            out.slot[2 * args.cp] = (float)args.rows;
    } else {
        bwd_coefs(out.coefs, c, args.cp, s1, s2, (double)args.rows, inverse, bn);
    }
}

// In the last block of a column: all that a batch norm's backward pass makes of the partial sums of
// g and g * (src - mean). All threads take part.
static __device__ inline void finalize_bwd_sums(const struct dt_bn_sums &out,
                                                const struct dt_bn_vectors &bn,
                                                const struct dt_norm_args &args)
{
    const struct spot at = spot_in_sums();
    const struct walk w = walk_of_partials(at, args.cp);
    double s1[FINAL_CHANNELS] = {}, s2[FINAL_CHANNELS] = {};

    if (w.c < w.cp) {
        for_partials(out.partial, w, [&](const float *first, const float *second, unsigned) {
            for (int k = 0; k < FINAL_CHANNELS; k++) {
                s1[k] += (double)first[k];
                s2[k] += (double)second[k];
            }
        });
    }
    fold_columns<FINAL_CHANNELS>(s1, s2, at);
    if (w.c < w.cp && at.y == 0) {
        for (int k = 0; k < FINAL_CHANNELS; k++)
            store_bwd_sums(out, w.c + k, s1[k], s2[k], bn, args);
    }
}

// --- Coefficients, and reads and stores of rows ---

// y = a * x + b, from scale in a and shift in b. Padding has scale = shift = 0, so y is 0 there for
// any eps > 0.
static __device__ inline void make_coefs(float a[DT_CHANNEL_PACK], float b[DT_CHANNEL_PACK],
                                         const float mean[DT_CHANNEL_PACK],
                                         const float variance[DT_CHANNEL_PACK], float eps)
{
    for (int k = 0; k < DT_CHANNEL_PACK; k++) {
        a[k] *= rsqrtf(variance[k] + eps);
        b[k] = fmaf(-mean[k], a[k], b[k]);
    }
}

static __device__ inline void forward_coefs(float a[DT_CHANNEL_PACK], float b[DT_CHANNEL_PACK],
                                            const struct dt_bn_vectors &in, float eps, int c)
{
    float mean[DT_CHANNEL_PACK] = {0}, variance[DT_CHANNEL_PACK];
    dt_load8(a, in.scale + c);
    dt_load8(variance, in.variance + c);
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        b[k] = 0;
    if (in.shift) {
        dt_load8(b, in.shift + c);
        dt_load8(mean, in.mean + c);
    }
    make_coefs(a, b, mean, variance, eps);
}

// dst = y, at least `lowest`: 0 for ReLU, else minus infinity. mask (may be NULL): what was
// positive.
template <typename T>
static __device__ inline void store_activation(T *dst, uint8_t *mask, size_t at,
                                               float y[DT_CHANNEL_PACK], float lowest)
{
    unsigned bits = 0;
    for (int k = 0; k < DT_CHANNEL_PACK; k++) {
        bits |= y[k] <= 0 ? 0 : 1u << k; // NaN counts as positive
        y[k] = y[k] < lowest ? lowest : y[k];
    }
    dt_store8(dst + at, y);
    if (mask)
        mask[at / DT_CHANNEL_PACK] = (uint8_t)bits;
}

template <typename T> struct bn_bwd_src {
    const T *src, *diff_dst, *diff_dst2;
    const uint8_t *mask; // may be NULL
};

template <typename T>
static bn_bwd_src<T> bwd_src(const void *src, const void *diff_dst, const void *diff_dst2,
                             const uint8_t *mask)
{
    return {static_cast<const T *>(src), static_cast<const T *>(diff_dst),
            static_cast<const T *>(diff_dst2), mask};
}

// The values read from a row.
template <typename T> struct bn_bwd_row {
    raw8<T> src, diff, diff2;
    unsigned bits;
};

template <typename T, bool TWO>
static __device__ inline void read_bwd(bn_bwd_row<T> *row, const bn_bwd_src<T> &in, size_t at)
{
    row->bits = in.mask ? in.mask[at / DT_CHANNEL_PACK] : 0xff;
    row->src = read8(in.src + at);
    row->diff = read8(in.diff_dst + at);
    if (TWO)
        row->diff2 = read8(in.diff_dst2 + at);
}

// x = src, g = (diff_dst [+ diff_dst2]) where the mask has ones.
template <typename T, bool TWO>
static __device__ inline void unpack_bwd(float x[DT_CHANNEL_PACK], float g[DT_CHANNEL_PACK],
                                         const bn_bwd_row<T> &row)
{
    unpack8(x, row.src);
    unpack8(g, row.diff);
    if (TWO) {
        float g2[DT_CHANNEL_PACK];
        unpack8(g2, row.diff2);
        for (int k = 0; k < DT_CHANNEL_PACK; k++)
            g[k] += g2[k];
    }
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        g[k] = row.bits >> k & 1 ? g[k] : 0;
}

// A thread's part of the coefs of dt_bn_sums: factors of g, of src, and 1.
struct bwd_channels {
    float g[DT_CHANNEL_PACK], x[DT_CHANNEL_PACK], one[DT_CHANNEL_PACK];
};

static __device__ inline void load_bwd_channels(struct bwd_channels *out, const float *coefs, int c,
                                                int cp)
{
    dt_load8(out->g, coefs + c);
    dt_load8(out->x, coefs + cp + c);
    dt_load8(out->one, coefs + 2 * cp + c);
}

// --- Launching ---

// Parameters of a kernel that walks with walk_of_part.
static inline struct dt_geometry parts_geometry(const struct dt_norm_args *args, unsigned *cuts)
{
    struct dt_geometry g = dt_channel_geometry(args->rows, args->cp);
    *cuts = args->yields ? dt_channel_cuts(args->rows, g) : 1;
    g.grid_y *= *cuts;
    return g;
}

static inline struct dt_geometry combine_geometry(int cp)
{
    const unsigned threads = 64; // several blocks, for their latency
    return {((unsigned)cp + threads - 1) / threads, 1, threads, 1};
}

#endif
