// Batch norm over rows x cp. A thread keeps the values for 8 channels in registers and loops over
// the rows; it reads the next rows of all tensors (64 to 96 bytes) before processing them, so that
// enough bytes are in flight. Sums over rows are in fp32 within a thread and a block (a tree) and
// in fp64 over the blocks (the finalize kernels), all in a fixed order.
//
// Bytes moved, of N = rows * cp elements of e bytes:
//   bn_stats      reads N e
//   bn_apply      reads N e (with residual 2 N e), writes N e and for the mask N / 8
//   bn_bwd_sums   reads 2 N e (with diff_dst2 3 N e) and the mask, writes N e for diff_residual
//   bn_bwd_apply  reads as bn_bwd_sums, writes N e
//   finalize      reads 8 * cp bytes per row of blocks of the kernel before it, about 1 MB at most
//   combine       reads 8 * cp bytes per rank of the group
// The first kernel that reads a tensor loops from the last row to the first, the next one the other
// way: each begins with the rows touched last, which may still be in the L2 cache.
#include "kernels/device.cuh"

enum {
    BLOCKS_PER_SM = 4,   // matches DT_MAX_BLOCKS: at most 64 registers
    FINALIZE_LANES = 64, // threads that share the partial results of a channel
    PARTIALS_PER_LANE = (DT_MAX_BLOCKS + FINALIZE_LANES - 1) / FINALIZE_LANES, // at most
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

template <typename T> static __device__ inline void unpack8(float v[DT_GROUP], const raw8<T> &raw)
{
    dt_load8(v, reinterpret_cast<const T *>(&raw));
}

// The part of a matrix that a thread processes, as defined by dt_channel_geometry: rows first,
// first + step, ... of channels c .. c + 7. Threads with c >= cp are idle.
struct walk {
    unsigned first, step, rows;
    int c, cp;
};

static __device__ inline struct walk walk_of(unsigned rows, int cp)
{
    return {blockIdx.y * blockDim.y + threadIdx.y, gridDim.y * blockDim.y, rows,
            (int)(blockIdx.x * blockDim.x + threadIdx.x) * DT_GROUP, cp};
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

// Sums a and b over the threads of a block that have the same channels; the threads with
// threadIdx.y == 0 get the results. All threads take part.
static __device__ inline void fold_block(float a[DT_GROUP], float b[DT_GROUP])
{
    __shared__ float other[2 * DT_GROUP][DT_BLOCK_THREADS / 2];
    const unsigned y = threadIdx.y;

    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
        const unsigned slot = (y % half) * blockDim.x + threadIdx.x;
        if (y >= half && y < 2 * half) {
            for (int k = 0; k < DT_GROUP; k++) {
                other[k][slot] = a[k];
                other[DT_GROUP + k][slot] = b[k];
            }
        }
        __syncthreads();
        if (y < half) {
            for (int k = 0; k < DT_GROUP; k++) {
                a[k] += other[k][slot];
                b[k] += other[DT_GROUP + k][slot];
            }
        }
        __syncthreads();
    }
}

// The sum of v over the FINALIZE_LANES threads of a channel, for all of them.
static __device__ inline double fold_lanes(double v)
{
    __shared__ double sum[FINALIZE_LANES][DT_GROUP];

    sum[threadIdx.y][threadIdx.x] = v;
    for (unsigned half = FINALIZE_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half)
            sum[threadIdx.y][threadIdx.x] += sum[threadIdx.y + half][threadIdx.x];
    }
    __syncthreads();
    v = sum[0][threadIdx.x];
    __syncthreads();
    return v;
}

// A lane's share of the n partial results of channel c: numbers y, y + FINALIZE_LANES, ... All are
// read before any is used, because these small kernels are bound by memory latency; there is no
// branch between the reads. Values past the end are zero.
struct lane_partials {
    float first[PARTIALS_PER_LANE], second[PARTIALS_PER_LANE];
};

static __device__ inline void read_partials(struct lane_partials *out, const float *partial, int c,
                                            int cp, unsigned n)
{
    for (int k = 0; k < PARTIALS_PER_LANE; k++) {
        const unsigned i = threadIdx.y + k * FINALIZE_LANES;
        const float *at = partial + (size_t)(i < n ? i : 0) * 2 * cp + c;
        out->first[k] = at[0];
        out->second[k] = at[cp];
    }
    for (int k = 0; k < PARTIALS_PER_LANE; k++) {
        if (threadIdx.y + k * FINALIZE_LANES >= n)
            out->first[k] = out->second[k] = 0;
    }
}

// --- Forward ---

// Mean and sum of squared deviations of every block's rows. Values are taken relative to the
// block's first row, so that a mean far from zero costs no precision. Rows past the end read that
// row again, which adds nothing and avoids a branch between the reads.
template <typename T>
static __global__ void __launch_bounds__(DT_BLOCK_THREADS, BLOCKS_PER_SM)
    bn_stats_kernel(float *partial, const T *src, unsigned rows, int cp)
{
    constexpr int AHEAD = ROWS_AHEAD<T, 1>;
    const struct walk w = walk_of(rows, cp);
    const unsigned row0 = w.first - threadIdx.y;
    float origin[DT_GROUP], sum[DT_GROUP] = {}, square[DT_GROUP] = {};

    if (w.c < cp) {
        dt_load8(origin, src + at_row_from_end(w, row0));
        for (unsigned row = w.first; row < rows; row += AHEAD * w.step) {
            raw8<T> raw[AHEAD];
            for (int i = 0; i < AHEAD; i++) {
                const unsigned r = row + i * w.step;
                raw[i] = read8(src + at_row_from_end(w, r < rows ? r : row0));
            }
            for (int i = 0; i < AHEAD; i++) {
                float x[DT_GROUP];
                unpack8(x, raw[i]);
                for (int k = 0; k < DT_GROUP; k++) {
                    const float d = x[k] - origin[k];
                    sum[k] += d;
                    square[k] = fmaf(d, d, square[k]);
                }
            }
        }
    }
    fold_block(sum, square);
    if (w.c < cp && threadIdx.y == 0) {
        const float n = (float)dt_channel_block_rows(rows, blockIdx.y, gridDim.y, blockDim.y);
        float *out = partial + (size_t)blockIdx.y * 2 * cp + w.c;
        for (int k = 0; k < DT_GROUP; k++) {
            const float mean = sum[k] / n, m2 = fmaf(-mean, sum[k], square[k]);
            sum[k] = origin[k] + mean;
            square[k] = m2 < 0 ? 0 : m2; // lets NaN through
        }
        dt_store8(out, sum);
        dt_store8(out + cp, square);
    }
}

struct bn_statistics {
    float *mean, *variance, *running_mean, *running_var;
};

static __device__ inline void store_statistics(const struct bn_statistics &out, int c, double mean,
                                               double m2, double n, double momentum)
{
    out.mean[c] = (float)mean;
    out.variance[c] = (float)(m2 / n);
    const float running_mean =
        (float)((1 - momentum) * (double)out.running_mean[c] + momentum * mean);
    const float running_var =
        (float)((1 - momentum) * (double)out.running_var[c] + momentum * m2 / (n > 1 ? n - 1 : 1));
    if (isfinite(running_mean) && isfinite(running_var)) { // otherwise they would never recover
        out.running_mean[c] = running_mean;
        out.running_var[c] = running_var;
    }
}

// A block for 8 channels. With a slot, mean and sum of squared deviations go there instead.
static __global__ void bn_finalize_kernel(struct bn_statistics out, float *slot,
                                          const float *partial, struct dt_norm_args args,
                                          unsigned n_partials, unsigned rows_at_once)
{
    const int c = (int)(blockIdx.x * DT_GROUP + threadIdx.x), cp = args.cp;
    double n_rows[PARTIALS_PER_LANE], sum = 0, m2 = 0;
    struct lane_partials own;

    read_partials(&own, partial, c, cp, n_partials);
    for (int k = 0; k < PARTIALS_PER_LANE; k++) {
        const unsigned i = threadIdx.y + k * FINALIZE_LANES;
        const unsigned n = dt_channel_block_rows(args.rows, i, n_partials, rows_at_once);
        n_rows[k] = i < n_partials ? (double)n : 0;
        sum += n_rows[k] * (double)own.first[k];
    }
    const double mean = fold_lanes(sum) / (double)args.rows;
    for (int k = 0; k < PARTIALS_PER_LANE; k++) {
        const double delta = n_rows[k] > 0 ? (double)own.first[k] - mean : 0;
        m2 += (double)own.second[k] + n_rows[k] * delta * delta;
    }
    m2 = fold_lanes(m2);
    if (threadIdx.y == 0 && slot) {
        slot[c] = (float)mean;
        slot[cp + c] = (float)m2;
    } else if (threadIdx.y == 0) {
        store_statistics(out, c, mean, m2, (double)args.rows, (double)args.momentum);
    }
}

// A thread for a channel; n_slots ranks with args.rows rows each, combined in their order (Chan et
// al.).
static __global__ void bn_combine_kernel(struct bn_statistics out, const float *slots, int n_slots,
                                         struct dt_norm_args args)
{
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x), cp = args.cp;
    const double rows = (double)args.rows;
    double mean = 0, m2 = 0;

    if (c >= cp)
        return;
    for (int i = 0; i < n_slots; i++) {
        const float *slot = slots + (size_t)i * 2 * cp + c;
        const double delta = (double)slot[0] - mean, weight = 1.0 / (i + 1);
        mean += delta * weight;
        m2 += (double)slot[cp] + delta * delta * rows * i * weight;
    }
    store_statistics(out, c, mean, m2, n_slots * rows, (double)args.momentum);
}

struct bn_channels {
    const float *scale, *shift, *mean, *variance;
};

// y = a * x + b. Padding has scale = shift = 0, so y is 0 there for any eps > 0.
static __device__ inline void forward_coefs(float a[DT_GROUP], float b[DT_GROUP],
                                            const struct bn_channels &in, float eps, int c)
{
    float mean[DT_GROUP] = {0}, variance[DT_GROUP];
    dt_load8(a, in.scale + c);
    dt_load8(variance, in.variance + c);
    for (int k = 0; k < DT_GROUP; k++)
        b[k] = 0;
    if (in.shift) {
        dt_load8(b, in.shift + c);
        dt_load8(mean, in.mean + c);
    }
    for (int k = 0; k < DT_GROUP; k++) {
        a[k] *= rsqrtf(variance[k] + eps);
        b[k] = fmaf(-mean[k], a[k], b[k]);
    }
}

// dst may be src. lowest: 0 for ReLU, else minus infinity.
template <typename T, bool RESIDUAL>
static __global__ void __launch_bounds__(DT_BLOCK_THREADS, BLOCKS_PER_SM)
    bn_apply_kernel(T *dst, uint8_t *mask, const T *src, const T *residual, struct bn_channels in,
                    float lowest, unsigned rows, int cp, float eps)
{
    constexpr int N_TENSORS = RESIDUAL ? 2 : 1, AHEAD = ROWS_AHEAD<T, N_TENSORS>;
    const struct walk w = walk_of(rows, cp);
    if (w.c >= cp)
        return;
    float a[DT_GROUP], b[DT_GROUP];
    forward_coefs(a, b, in, eps, w.c);
    for (unsigned row = w.first; row < rows; row += AHEAD * w.step) {
        raw8<T> raw[AHEAD], raw_residual[AHEAD];
        for (int i = 0; i < AHEAD; i++) {
            const unsigned r = row + i * w.step;
            const size_t at = at_row(w, r < rows ? r : row);
            raw[i] = read8(src + at);
            if (RESIDUAL)
                raw_residual[i] = read8(residual + at);
        }
        for (int i = 0; i < AHEAD; i++) {
            if (row + i * w.step >= rows)
                break;
            float y[DT_GROUP], r[DT_GROUP];
            unsigned bits = 0;
            unpack8(y, raw[i]);
            if (RESIDUAL)
                unpack8(r, raw_residual[i]);
            for (int k = 0; k < DT_GROUP; k++) {
                y[k] = fmaf(y[k], a[k], b[k]);
                if (RESIDUAL)
                    y[k] += r[k];
                bits |= y[k] <= 0 ? 0 : 1u << k; // NaN counts as positive
                y[k] = y[k] < lowest ? lowest : y[k];
            }
            const size_t at = at_row(w, row + i * w.step);
            dt_store8(dst + at, y);
            if (mask)
                mask[at / DT_GROUP] = (uint8_t)bits;
        }
    }
}

// --- Backward ---

template <typename T> struct bn_bwd_src {
    const T *src, *diff_dst, *diff_dst2;
    const uint8_t *mask; // may be NULL
};

// The values read from a row.
template <typename T> struct bn_bwd_row {
    raw8<T> src, diff, diff2;
    unsigned bits;
};

template <typename T, bool TWO>
static __device__ inline void read_bwd(bn_bwd_row<T> *row, const bn_bwd_src<T> &in, size_t at)
{
    row->bits = in.mask ? in.mask[at / DT_GROUP] : 0xff;
    row->src = read8(in.src + at);
    row->diff = read8(in.diff_dst + at);
    if (TWO)
        row->diff2 = read8(in.diff_dst2 + at);
}

// x = src, g = (diff_dst [+ diff_dst2]) where the mask has ones.
template <typename T, bool TWO>
static __device__ inline void unpack_bwd(float x[DT_GROUP], float g[DT_GROUP],
                                         const bn_bwd_row<T> &row)
{
    unpack8(x, row.src);
    unpack8(g, row.diff);
    if (TWO) {
        float g2[DT_GROUP];
        unpack8(g2, row.diff2);
        for (int k = 0; k < DT_GROUP; k++)
            g[k] += g2[k];
    }
    for (int k = 0; k < DT_GROUP; k++)
        g[k] = row.bits >> k & 1 ? g[k] : 0;
}

// Sums of g and of g * (src - mean) over every block's rows. diff_residual = g, unless it is NULL.
// Rows past the end repeat `row` with an empty mask.
template <typename T, bool TWO>
static __global__ void __launch_bounds__(DT_BLOCK_THREADS, BLOCKS_PER_SM)
    bn_bwd_sums_kernel(float *partial, T *diff_residual, bn_bwd_src<T> in, const float *means,
                       unsigned rows, int cp)
{
    constexpr int AHEAD = ROWS_AHEAD<T, 2>;
    const struct walk w = walk_of(rows, cp);
    float sum[DT_GROUP] = {}, product[DT_GROUP] = {};

    if (w.c < cp) {
        float mean[DT_GROUP];
        dt_load8(mean, means + w.c);
        for (unsigned row = w.first; row < rows; row += AHEAD * w.step) {
            bn_bwd_row<T> next[AHEAD];
            for (int i = 0; i < AHEAD; i++) {
                const unsigned r = row + i * w.step;
                read_bwd<T, TWO>(&next[i], in, at_row_from_end(w, r < rows ? r : row));
                if (r >= rows)
                    next[i].bits = 0;
            }
            for (int i = 0; i < AHEAD; i++) {
                float x[DT_GROUP], g[DT_GROUP];
                unpack_bwd<T, TWO>(x, g, next[i]);
                for (int k = 0; k < DT_GROUP; k++) {
                    sum[k] += g[k];
                    product[k] = fmaf(g[k], x[k] - mean[k], product[k]);
                }
                if (diff_residual && row + i * w.step < rows)
                    dt_store8(diff_residual + at_row_from_end(w, row + i * w.step), g);
            }
        }
    }
    fold_block(sum, product);
    if (w.c < cp && threadIdx.y == 0) {
        float *out = partial + (size_t)blockIdx.y * 2 * cp + w.c;
        dt_store8(out, sum);
        dt_store8(out + cp, product);
    }
}

// With S1 = sum of g and S2 = sum of g * (x - mean) over the n rows:
//   diff_src = a * (g - S1 / n - (x - mean) * S2 / (n * (variance + eps)))
// with a = scale / sqrt(variance + eps), which is coefs[0] * g + coefs[1] * x + coefs[2].
static __device__ inline void bwd_coefs(float *coefs, int c, int cp, double s1, double s2, double n,
                                        double inverse, const struct bn_channels &in)
{
    const double a = (double)in.scale[c] * inverse;
    const double b = -a * s2 * inverse * inverse / n;
    coefs[c] = (float)a;
    coefs[cp + c] = (float)b;
    coefs[2 * cp + c] = (float)(-a * s1 / n - b * (double)in.mean[c]);
}

static __device__ inline double inverse_std(const struct bn_channels &in, int c, float eps)
{
    return 1 / sqrt((double)in.variance[c] + (double)eps);
}

// A block for 8 channels. With a slot, the sums go there instead of into coefs.
template <typename D>
static __global__ void bn_bwd_finalize_kernel(D *diff_scale, D *diff_shift, float *coefs,
                                              float *slot, const float *partial,
                                              struct bn_channels in, struct dt_norm_args args,
                                              unsigned n_partials)
{
    const int c = (int)(blockIdx.x * DT_GROUP + threadIdx.x), cp = args.cp;
    struct lane_partials own;
    double s1 = 0, s2 = 0;

    read_partials(&own, partial, c, cp, n_partials);
    for (int k = 0; k < PARTIALS_PER_LANE; k++) {
        s1 += (double)own.first[k];
        s2 += (double)own.second[k];
    }
    s1 = fold_lanes(s1);
    s2 = fold_lanes(s2);
    if (threadIdx.y == 0) {
        const double inverse = inverse_std(in, c, args.eps);
        dt_store1(diff_scale + c, (float)(s2 * inverse));
        dt_store1(diff_shift + c, (float)s1);
        if (slot) {
            slot[c] = (float)s1;
            slot[cp + c] = (float)s2;
        } else {
            bwd_coefs(coefs, c, cp, s1, s2, (double)args.rows, inverse, in);
        }
    }
}

// As bn_combine_kernel.
static __global__ void bn_bwd_combine_kernel(float *coefs, const float *slots, int n_slots,
                                             struct bn_channels in, struct dt_norm_args args)
{
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x), cp = args.cp;
    double s1 = 0, s2 = 0;

    if (c >= cp)
        return;
    for (int i = 0; i < n_slots; i++) {
        s1 += (double)slots[(size_t)i * 2 * cp + c];
        s2 += (double)slots[(size_t)i * 2 * cp + cp + c];
    }
    bwd_coefs(coefs, c, cp, s1, s2, n_slots * (double)args.rows, inverse_std(in, c, args.eps), in);
}

// diff_src may be diff_dst.
template <typename T, bool TWO>
static __global__ void __launch_bounds__(DT_BLOCK_THREADS, BLOCKS_PER_SM)
    bn_bwd_apply_kernel(T *diff_src, bn_bwd_src<T> in, const float *coefs, unsigned rows, int cp)
{
    constexpr int AHEAD = ROWS_AHEAD<T, 2>;
    const struct walk w = walk_of(rows, cp);
    if (w.c >= cp)
        return;
    float a[DT_GROUP], b[DT_GROUP], d[DT_GROUP];
    dt_load8(a, coefs + w.c);
    dt_load8(b, coefs + cp + w.c);
    dt_load8(d, coefs + 2 * cp + w.c);
    for (unsigned row = w.first; row < rows; row += AHEAD * w.step) {
        bn_bwd_row<T> next[AHEAD];
        for (int i = 0; i < AHEAD; i++) {
            const unsigned r = row + i * w.step;
            read_bwd<T, TWO>(&next[i], in, at_row(w, r < rows ? r : row));
        }
        for (int i = 0; i < AHEAD; i++) {
            if (row + i * w.step >= rows)
                break;
            float x[DT_GROUP], g[DT_GROUP];
            unpack_bwd<T, TWO>(x, g, next[i]);
            for (int k = 0; k < DT_GROUP; k++)
                g[k] = fmaf(a[k], g[k], fmaf(b[k], x[k], d[k]));
            dt_store8(diff_src + at_row(w, row + i * w.step), g);
        }
    }
}

// --- Launchers ---

static struct dt_geometry finalize_geometry(int cp)
{
    return {(unsigned)cp / DT_GROUP, 1, DT_GROUP, FINALIZE_LANES};
}

static struct dt_geometry combine_geometry(int cp)
{
    const unsigned threads = 64; // several blocks, for their latency
    return {((unsigned)cp + threads - 1) / threads, 1, threads, 1};
}

cudaError_t dt_kernel_bn_stats(cudaStream_t stream, enum dt_dtype type, float *partial,
                               const void *src, const struct dt_norm_args *args)
{
    const struct dt_geometry g = dt_channel_geometry(args->rows, args->cp);
    return DT_BY_TYPE(
        type, (dt_launch(bn_stats_kernel<T>, g, stream, partial, src, args->rows, args->cp)));
}

cudaError_t dt_kernel_bn_finalize(cudaStream_t stream, float *mean, float *variance,
                                  float *running_mean, float *running_var, float *slot,
                                  const float *partial, const struct dt_norm_args *args)
{
    const struct dt_geometry g = dt_channel_geometry(args->rows, args->cp);
    const struct bn_statistics out = {mean, variance, running_mean, running_var};
    return dt_launch(bn_finalize_kernel, finalize_geometry(args->cp), stream, out, slot, partial,
                     *args, g.grid_y, g.block_y);
}

cudaError_t dt_kernel_bn_combine(cudaStream_t stream, float *mean, float *variance,
                                 float *running_mean, float *running_var, const float *slots,
                                 int n_slots, const struct dt_norm_args *args)
{
    const struct bn_statistics out = {mean, variance, running_mean, running_var};
    return dt_launch(bn_combine_kernel, combine_geometry(args->cp), stream, out, slots, n_slots,
                     *args);
}

template <typename T>
static cudaError_t bn_apply(cudaStream_t stream, void *dst, uint8_t *mask, const void *src,
                            const void *residual, const struct bn_channels &in, bool relu,
                            const struct dt_norm_args *args)
{
    const struct dt_geometry g = dt_channel_geometry(args->rows, args->cp);
    const float lowest = relu ? 0 : -INFINITY;
    return dt_launch(residual ? bn_apply_kernel<T, true> : bn_apply_kernel<T, false>, g, stream,
                     dst, mask, src, residual, in, lowest, args->rows, args->cp, args->eps);
}

cudaError_t dt_kernel_bn_apply(cudaStream_t stream, enum dt_dtype type, void *dst, uint8_t *mask,
                               const void *src, const void *residual, const float *scale,
                               const float *shift, const float *mean, const float *variance,
                               bool relu, const struct dt_norm_args *args)
{
    const struct bn_channels in = {scale, shift, mean, variance};
    return DT_BY_TYPE(type, bn_apply<T>(stream, dst, mask, src, residual, in, relu, args));
}

template <typename T>
static bn_bwd_src<T> bwd_src(const void *src, const void *diff_dst, const void *diff_dst2,
                             const uint8_t *mask)
{
    return {static_cast<const T *>(src), static_cast<const T *>(diff_dst),
            static_cast<const T *>(diff_dst2), mask};
}

template <typename T>
static cudaError_t bn_bwd_sums(cudaStream_t stream, float *partial, void *diff_residual,
                               const bn_bwd_src<T> &in, const float *mean,
                               const struct dt_norm_args *args)
{
    const struct dt_geometry g = dt_channel_geometry(args->rows, args->cp);
    return dt_launch(in.diff_dst2 ? bn_bwd_sums_kernel<T, true> : bn_bwd_sums_kernel<T, false>, g,
                     stream, partial, diff_residual, in, mean, args->rows, args->cp);
}

cudaError_t dt_kernel_bn_bwd_sums(cudaStream_t stream, enum dt_dtype type, float *partial,
                                  void *diff_residual, const void *src, const void *diff_dst,
                                  const void *diff_dst2, const uint8_t *mask, const float *mean,
                                  const struct dt_norm_args *args)
{
    return DT_BY_TYPE(type, bn_bwd_sums<T>(stream, partial, diff_residual,
                                           bwd_src<T>(src, diff_dst, diff_dst2, mask), mean, args));
}

cudaError_t dt_kernel_bn_bwd_finalize(cudaStream_t stream, enum dt_dtype diff_type,
                                      void *diff_scale, void *diff_shift, float *coefs, float *slot,
                                      const float *partial, const float *scale, const float *mean,
                                      const float *variance, const struct dt_norm_args *args)
{
    const struct bn_channels in = {scale, NULL, mean, variance};
    const unsigned n_partials = dt_channel_geometry(args->rows, args->cp).grid_y;
    return DT_BY_TYPE(diff_type, (dt_launch(bn_bwd_finalize_kernel<T>, finalize_geometry(args->cp),
                                            stream, diff_scale, diff_shift, coefs, slot, partial,
                                            in, *args, n_partials)));
}

cudaError_t dt_kernel_bn_bwd_combine(cudaStream_t stream, float *coefs, const float *slots,
                                     int n_slots, const float *scale, const float *mean,
                                     const float *variance, const struct dt_norm_args *args)
{
    const struct bn_channels in = {scale, NULL, mean, variance};
    return dt_launch(bn_bwd_combine_kernel, combine_geometry(args->cp), stream, coefs, slots,
                     n_slots, in, *args);
}

template <typename T>
static cudaError_t bn_bwd_apply(cudaStream_t stream, void *diff_src, const bn_bwd_src<T> &in,
                                const float *coefs, const struct dt_norm_args *args)
{
    const struct dt_geometry g = dt_channel_geometry(args->rows, args->cp);
    return dt_launch(in.diff_dst2 ? bn_bwd_apply_kernel<T, true> : bn_bwd_apply_kernel<T, false>, g,
                     stream, diff_src, in, coefs, args->rows, args->cp);
}

cudaError_t dt_kernel_bn_bwd_apply(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                   const void *src, const void *diff_dst, const void *diff_dst2,
                                   const uint8_t *mask, const float *coefs,
                                   const struct dt_norm_args *args)
{
    return DT_BY_TYPE(
        type,
        bn_bwd_apply<T>(stream, diff_src, bwd_src<T>(src, diff_dst, diff_dst2, mask), coefs, args));
}
