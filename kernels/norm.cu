// Batch norm, forward: statistics, normalisation.
#include "kernels/norm.cuh"

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
                    float lowest, unsigned rows, int cp, float eps, unsigned cuts)
{
    constexpr int N_TENSORS = RESIDUAL ? 2 : 1, AHEAD = ROWS_AHEAD<T, N_TENSORS>;
    const struct walk w = walk_of_part(rows, cp, cuts);
    if (w.c >= cp)
        return;
    float a[DT_GROUP], b[DT_GROUP];
    forward_coefs(a, b, in, eps, w.c);
    for (unsigned row = w.first; row < w.rows; row += AHEAD * w.step) {
        raw8<T> raw[AHEAD], raw_residual[AHEAD];
        for (int i = 0; i < AHEAD; i++) {
            const unsigned r = row + i * w.step;
            const size_t at = at_row(w, r < w.rows ? r : row);
            raw[i] = read8(src + at);
            if (RESIDUAL)
                raw_residual[i] = read8(residual + at);
        }
        for (int i = 0; i < AHEAD; i++) {
            if (row + i * w.step >= w.rows)
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

// --- Launchers ---

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
    unsigned cuts;
    const struct dt_geometry g = parts_geometry(args, &cuts);
    const float lowest = relu ? 0 : -INFINITY;
    return dt_launch(residual ? bn_apply_kernel<T, true> : bn_apply_kernel<T, false>, g, stream,
                     dst, mask, src, residual, in, lowest, args->rows, args->cp, args->eps, cuts);
}

cudaError_t dt_kernel_bn_apply(cudaStream_t stream, enum dt_dtype type, void *dst, uint8_t *mask,
                               const void *src, const void *residual, const float *scale,
                               const float *shift, const float *mean, const float *variance,
                               bool relu, const struct dt_norm_args *args)
{
    const struct bn_channels in = {scale, shift, mean, variance};
    return DT_BY_TYPE(type, bn_apply<T>(stream, dst, mask, src, residual, in, relu, args));
}
