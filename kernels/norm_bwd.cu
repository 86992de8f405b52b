// Batch norm, backward: sums over the rows, gradients.
#include "kernels/norm.cuh"

// Sums of g and of g * (src - mean) over every block's rows. diff_residual = g, unless it is NULL.
// Rows past the end repeat `row` with an empty mask.
template <typename T, bool TWO>
static __global__ void __launch_bounds__(DT_SUM_THREADS, SUM_BLOCKS_PER_SM)
    bn_bwd_sums_kernel(struct dt_bn_sums out, T *diff_residual, bn_bwd_src<T> in,
                       struct dt_bn_vectors bn, struct dt_norm_args args)
{
    constexpr int AHEAD = ROWS_AHEAD<T, 2>;
    const unsigned rows = args.rows;
    const int cp = args.cp;
    const struct walk w = walk_of(rows, cp);
    float sum[DT_CHANNEL_PACK] = {}, product[DT_CHANNEL_PACK] = {};

    if (w.c < cp) {
        float mean[DT_CHANNEL_PACK];
        dt_load8(mean, bn.mean + w.c);
        for (unsigned row = w.first; row < rows; row += AHEAD * w.step) {
            bn_bwd_row<T> next[AHEAD];
            for (int i = 0; i < AHEAD; i++) {
                const unsigned r = row + i * w.step;
                read_bwd<T, TWO>(&next[i], in, at_row_from_end(w, r < rows ? r : row));
                if (r >= rows)
                    next[i].bits = 0;
            }
            for (int i = 0; i < AHEAD; i++) {
                float x[DT_CHANNEL_PACK], g[DT_CHANNEL_PACK];
                unpack_bwd<T, TWO>(x, g, next[i]);
                for (int k = 0; k < DT_CHANNEL_PACK; k++) {
                    sum[k] += g[k];
                    product[k] = fmaf(g[k], x[k] - mean[k], product[k]);
                }
                if (diff_residual && row + i * w.step < rows)
                    dt_store8(diff_residual + at_row_from_end(w, row + i * w.step), g);
            }
        }
    }
    store_partial(out.partial, w, sum, product);
    if (is_last_block(args.tickets))
        finalize_bwd_sums(out, bn, args);
}

// As bn_combine_kernel.
static __global__ void bn_bwd_combine_kernel(float *coefs, const float *slots, int n_slots,
                                             struct dt_bn_vectors bn, struct dt_norm_args args)
{
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x), cp = args.cp;
    double s1 = 0, s2 = 0, n = 0;

    if (c >= cp)
        return;
    for (int i = 0; i < n_slots; i++) {
        const float *slot = slots + i * DT_BN_SLOT_FLOATS(cp);
        s1 += (double)slot[c];
        s2 += (double)slot[cp + c];
        n += (double)slot[2 * cp];
    }
    bwd_coefs(coefs, c, cp, s1, s2, n, inverse_std(bn, c, args.eps), bn);
}

// diff_src may be diff_dst or addend, which may be NULL.
template <typename T, bool TWO>
static __global__ void __launch_bounds__(DT_BLOCK_THREADS, BLOCKS_PER_SM)
    bn_bwd_apply_kernel(T *diff_src, const T *addend, bn_bwd_src<T> in, const float *coefs,
                        unsigned rows, int cp, unsigned cuts)
{
    constexpr int AHEAD = ROWS_AHEAD<T, 2>;
    const struct walk w = walk_of_part(rows, cp, cuts);
    if (w.c >= cp)
        return;
    struct bwd_channels c;
    load_bwd_channels(&c, coefs, w.c, cp);
    for (unsigned row = w.first; row < w.rows; row += AHEAD * w.step) {
        bn_bwd_row<T> next[AHEAD];
        for (int i = 0; i < AHEAD; i++) {
            const unsigned r = row + i * w.step;
            read_bwd<T, TWO>(&next[i], in, at_row(w, r < w.rows ? r : row));
        }
        for (int i = 0; i < AHEAD; i++) {
            if (row + i * w.step >= w.rows)
                break;
            float x[DT_CHANNEL_PACK], g[DT_CHANNEL_PACK];
            unpack_bwd<T, TWO>(x, g, next[i]);
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                g[k] = fmaf(c.g[k], g[k], fmaf(c.x[k], x[k], c.one[k]));
            if (addend) {
                dt_load8(x, addend + at_row(w, row + i * w.step));
                for (int k = 0; k < DT_CHANNEL_PACK; k++)
                    g[k] += x[k];
            }
            dt_store8(diff_src + at_row(w, row + i * w.step), g);
        }
    }
}

// --- Launchers ---

cudaError_t dt_kernel_bn_bwd_sums(cudaStream_t stream, enum dt_dtype type,
                                  const struct dt_bn_sums *out, void *diff_residual,
                                  const void *src, const void *diff_dst, const void *diff_dst2,
                                  const uint8_t *mask, const struct dt_bn_vectors *bn,
                                  const struct dt_norm_args *args)
{
    const struct dt_geometry g = dt_sums_geometry(args->rows, args->cp);
    if (g.grid_x > DT_MAX_TICKETS)
        return cudaErrorInvalidValue;
    return DT_BY_TYPE(
        type, (dt_launch(diff_dst2 ? bn_bwd_sums_kernel<T, true> : bn_bwd_sums_kernel<T, false>, g,
                         stream, *out, diff_residual, bwd_src<T>(src, diff_dst, diff_dst2, mask),
                         *bn, *args)));
}

cudaError_t dt_kernel_bn_bwd_combine(cudaStream_t stream, float *coefs, const float *slots,
                                     int n_slots, const struct dt_bn_vectors *bn,
                                     const struct dt_norm_args *args)
{
    return dt_launch(bn_bwd_combine_kernel, combine_geometry(args->cp), stream, coefs, slots,
                     n_slots, *bn, *args);
}

cudaError_t dt_kernel_bn_bwd_apply(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                   const void *addend, const void *src, const void *diff_dst,
                                   const void *diff_dst2, const uint8_t *mask, const float *coefs,
                                   const struct dt_norm_args *args)
{
    unsigned cuts;
    const struct dt_geometry g = parts_geometry(args, &cuts);
    return DT_BY_TYPE(
        type, (dt_launch(diff_dst2 ? bn_bwd_apply_kernel<T, true> : bn_bwd_apply_kernel<T, false>,
                         g, stream, diff_src, addend, bwd_src<T>(src, diff_dst, diff_dst2, mask),
                         coefs, args->rows, args->cp, cuts)));
}
