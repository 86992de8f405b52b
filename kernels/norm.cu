// Batch norm, forward: statistics, normalisation.
#include "kernels/norm.cuh"

static __device__ inline void store_statistics(const struct dt_bn_statistics &out, int c,
                                               double mean, double m2, double n,
                                               const struct dt_norm_args &args)
{
    const double momentum = (double)args.momentum;
    out.mean[c] = (float)mean;
    out.variance[c] = (float)(m2 / n);
    if (out.inverse_std)
        out.inverse_std[c] = (float)(1 / sqrt(m2 / n + (double)args.eps));
    const float running_mean =
        (float)((1 - momentum) * (double)out.running_mean[c] + momentum * mean);
    const float running_var =
        (float)((1 - momentum) * (double)out.running_var[c] + momentum * m2 / (n > 1 ? n - 1 : 1));
    if (isfinite(running_mean) && isfinite(running_var)) { // otherwise they would never recover
        out.running_mean[c] = running_mean;
        out.running_var[c] = running_var;
    }
}

// In the last block of a column: the statistics of all rows by those of the blocks. They are taken
// relative to the mean of the first block. With a slot, mean and sum of squared deviations go there
// instead.
static __device__ inline void finalize_statistics(const struct dt_bn_statistics &out,
                                                  const struct dt_norm_args &args)
{
    const struct spot at = spot_in_sums();
    const struct walk w = walk_of_partials(at, args.cp);
    const double rows = (double)args.rows;
    double sum[FINAL_CHANNELS] = {}, square[FINAL_CHANNELS] = {};
    float origin[FINAL_CHANNELS];

    if (w.c < w.cp) {
        load_partial(origin, out.partial + w.c);
        for_partials(out.partial, w, [&](const float *mean, const float *m2, unsigned block) {
            const double n = dt_channel_block_rows(args.rows, block, gridDim.y, blockDim.y);
            for (int k = 0; k < FINAL_CHANNELS; k++) {
                const double d = (double)mean[k] - (double)origin[k], weighted = n * d;
                sum[k] += weighted;
                square[k] += (double)m2[k] + weighted * d;
            }
        });
    }
    fold_columns<FINAL_CHANNELS>(sum, square, at);
    if (w.c < w.cp && at.y == 0) {
        for (int k = 0; k < FINAL_CHANNELS; k++) {
            const double delta = sum[k] / rows, mean = (double)origin[k] + delta;
            double m2 = square[k] - sum[k] * delta;
            m2 = m2 < 0 ? 0 : m2; // lets NaN through
            if (out.slot) {
                out.slot[w.c + k] = (float)mean;
                out.slot[w.cp + w.c + k] = (float)m2;
                if (w.c + k == 0)
                    out.slot[2 * w.cp] = (float)args.rows;
            } else {
                store_statistics(out, w.c + k, mean, m2, rows, args);
            }
        }
    }
}

// Mean and sum of squared deviations of every block's rows, then of all.
template <typename T>
static __global__ void __launch_bounds__(DT_SUM_THREADS, SUM_BLOCKS_PER_SM)
    bn_stats_kernel(struct dt_bn_statistics out, const T *src, struct dt_norm_args args)
{
    const unsigned rows = args.rows;
    store_moments(out.partial, src, walk_of(rows, args.cp),
                  dt_channel_block_rows(rows, blockIdx.y, gridDim.y, blockDim.y));
    if (is_last_block(args.tickets))
        finalize_statistics(out, args);
}

// A thread for a channel; the ranks' rows combined in their order (Chan et al.).
static __global__ void bn_combine_kernel(struct dt_bn_statistics out, const float *slots,
                                         int n_slots, struct dt_norm_args args)
{
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x), cp = args.cp;
    double mean = 0, m2 = 0, n = 0;

    if (c >= cp)
        return;
    for (int i = 0; i < n_slots; i++) {
        const float *slot = slots + i * DT_BN_SLOT_FLOATS(cp);
        const double rows = (double)slot[2 * cp], weight = rows / (n + rows);
        const double delta = (double)slot[c] - mean;
        mean += delta * weight;
        m2 += (double)slot[cp + c] + delta * delta * n * weight;
        n += rows;
    }
    store_statistics(out, c, mean, m2, n, args);
}

// Sums of a channel and of its squares, as mean and sum of squared deviations.
struct bn_moments {
    double mean, m2;
};

static __device__ inline struct bn_moments moments_of(const float *sums, int c,
                                                      const struct dt_norm_args &args)
{
    const double n = (double)args.rows, mean = (double)sums[c] / n;
    const double m2 = (double)sums[args.cp + c] - n * mean * mean;
    return {mean, m2 < 0 ? 0 : m2}; // lets NaN through
}

// forward_coefs where the statistics are still sums; the first block of a column stores them.
static __device__ inline void finalize_sums(float a[DT_CHANNEL_PACK], float b[DT_CHANNEL_PACK],
                                            const struct dt_bn_statistics &out, const float *sums,
                                            const struct dt_bn_vectors &in,
                                            const struct dt_norm_args &args, int c)
{
    float mean[DT_CHANNEL_PACK], variance[DT_CHANNEL_PACK];
    for (int k = 0; k < DT_CHANNEL_PACK; k++) {
        const struct bn_moments m = moments_of(sums, c + k, args);
        mean[k] = (float)m.mean;
        variance[k] = (float)(m.m2 / (double)args.rows);
        if (blockIdx.y == 0 && threadIdx.y == 0)
            store_statistics(out, c + k, m.mean, m.m2, (double)args.rows, args);
    }
    dt_load8(a, in.scale + c);
    dt_load8(b, in.shift + c);
    make_coefs(a, b, mean, variance, args.eps);
}

// dst may be src. With sums, their statistics go to `out`.
template <typename T, bool RESIDUAL>
static __global__ void __launch_bounds__(DT_BLOCK_THREADS, BLOCKS_PER_SM)
    bn_apply_kernel(T *dst, uint8_t *mask, const T *src, const T *residual, struct dt_bn_vectors in,
                    struct dt_bn_statistics out, const float *sums, float lowest,
                    struct dt_norm_args args, unsigned cuts)
{
    constexpr int N_TENSORS = RESIDUAL ? 2 : 1, AHEAD = ROWS_AHEAD<T, N_TENSORS>;
    const struct walk w = walk_of_part((unsigned)args.rows, args.cp, cuts);
    if (w.c >= w.cp)
        return;
    float a[DT_CHANNEL_PACK], b[DT_CHANNEL_PACK];
    if (sums)
        finalize_sums(a, b, out, sums, in, args, w.c);
    else
        forward_coefs(a, b, in, args.eps, w.c);
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
            float y[DT_CHANNEL_PACK], r[DT_CHANNEL_PACK];
            unpack8(y, raw[i]);
            if (RESIDUAL)
                unpack8(r, raw_residual[i]);
            for (int k = 0; k < DT_CHANNEL_PACK; k++) {
                y[k] = fmaf(y[k], a[k], b[k]);
                if (RESIDUAL)
                    y[k] += r[k];
            }
            store_activation(dst, mask, at_row(w, row + i * w.step), y, lowest);
        }
    }
}

// A thread for 8 channels. scale may be NULL.
template <typename T>
static __global__ void bn_finalize_sums_kernel(T *scale, T *shift, struct dt_bn_statistics out,
                                               const float *sums, struct dt_bn_vectors in,
                                               struct dt_norm_args args)
{
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x) * DT_CHANNEL_PACK;
    float a[DT_CHANNEL_PACK], b[DT_CHANNEL_PACK];
    if (c >= args.cp)
        return;
    finalize_sums(a, b, out, sums, in, args, c);
    if (scale) {
        dt_store8(scale + c, a);
        dt_store8(shift + c, b);
    }
}

// A thread for 8 channels.
template <typename T>
static __global__ void bn_scale_shift_kernel(T *scale, T *shift, struct dt_bn_vectors in, int cp,
                                             float eps)
{
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x) * DT_CHANNEL_PACK;
    float a[DT_CHANNEL_PACK], b[DT_CHANNEL_PACK];
    if (c >= cp)
        return;
    forward_coefs(a, b, in, eps, c);
    dt_store8(scale + c, a);
    dt_store8(shift + c, b);
}

// --- Launchers ---

cudaError_t dt_kernel_bn_scale_shift(cudaStream_t stream, enum dt_dtype type, void *scale,
                                     void *shift, const struct dt_bn_vectors *bn,
                                     const struct dt_norm_args *args)
{
    return DT_BY_TYPE(
        type, (dt_launch(bn_scale_shift_kernel<T>, combine_geometry(args->cp / DT_CHANNEL_PACK),
                         stream, scale, shift, *bn, args->cp, args->eps)));
}

cudaError_t dt_kernel_bn_stats(cudaStream_t stream, enum dt_dtype type,
                               const struct dt_bn_statistics *out, const void *src,
                               const struct dt_norm_args *args)
{
    const struct dt_geometry g = dt_sums_geometry(args->rows, args->cp);
    if (g.grid_x > DT_MAX_TICKETS)
        return cudaErrorInvalidValue;
    return DT_BY_TYPE(type, (dt_launch(bn_stats_kernel<T>, g, stream, *out, src, *args)));
}

cudaError_t dt_kernel_bn_finalize_sums(cudaStream_t stream, enum dt_dtype type, void *scale,
                                       void *shift, const struct dt_bn_statistics *out,
                                       const float *sums, const struct dt_bn_vectors *bn,
                                       const struct dt_norm_args *args)
{
    return DT_BY_TYPE(
        type, (dt_launch(bn_finalize_sums_kernel<T>, combine_geometry(args->cp / DT_CHANNEL_PACK),
                         stream, scale, shift, *out, sums, *bn, *args)));
}

cudaError_t dt_kernel_bn_combine(cudaStream_t stream, const struct dt_bn_statistics *out,
                                 const float *slots, int n_slots, const struct dt_norm_args *args)
{
    return dt_launch(bn_combine_kernel, combine_geometry(args->cp), stream, *out, slots, n_slots,
                     *args);
}

template <typename T>
static cudaError_t bn_apply(cudaStream_t stream, void *dst, uint8_t *mask, const void *src,
                            const void *residual, const struct dt_bn_vectors &in,
                            const struct dt_bn_statistics &out, const float *sums, bool relu,
                            const struct dt_norm_args &args)
{
    unsigned cuts;
    const struct dt_geometry g = parts_geometry(&args, &cuts);
    const float lowest = relu ? 0 : -INFINITY;
    return dt_launch(residual ? bn_apply_kernel<T, true> : bn_apply_kernel<T, false>, g, stream,
                     dst, mask, src, residual, in, out, sums, lowest, args, cuts);
}

cudaError_t dt_kernel_bn_apply(cudaStream_t stream, enum dt_dtype type, void *dst, uint8_t *mask,
                               const void *src, const void *residual, const float *scale,
                               const float *shift, const float *mean, const float *variance,
                               bool relu, const struct dt_norm_args *args)
{
    const struct dt_bn_vectors in = {scale, shift, mean, variance};
    return DT_BY_TYPE(type,
                      bn_apply<T>(stream, dst, mask, src, residual, in, {}, NULL, relu, *args));
}

cudaError_t dt_kernel_bn_apply_sums(cudaStream_t stream, enum dt_dtype type, void *dst,
                                    uint8_t *mask, const void *src, const void *residual,
                                    const float *scale, const float *shift,
                                    const struct dt_bn_statistics *out, const float *sums,
                                    bool relu, const struct dt_norm_args *args)
{
    const struct dt_bn_vectors in = {scale, shift, NULL, NULL};
    return DT_BY_TYPE(type,
                      bn_apply<T>(stream, dst, mask, src, residual, in, *out, sums, relu, *args));
}
