// Two batch norms whose results are added: one that ends a residual block and the one of its
// projection shortcut. Neither the normalised shortcut nor its gradient is ever in memory.
#include "kernels/norm.cuh"

// Backward, a thread keeps 40 (sums) or 48 values (coefficients) and reads up to 4 tensors, too
// much for 64 registers. Two blocks per SM, in two waves, with more rows ahead have as many bytes
// in flight.
enum { PAIR_BLOCKS_PER_SM = 2 };
template <typename T> static constexpr int PAIR_ROWS_AHEAD = 6 / (int)sizeof(T);

// dst may be src1 or src2.
template <typename T>
static __global__ void __launch_bounds__(DT_BLOCK_THREADS, BLOCKS_PER_SM)
    bn_pair_apply_kernel(T *dst, uint8_t *mask, const T *src1, const T *src2,
                         struct dt_bn_vectors in1, struct dt_bn_vectors in2, float lowest,
                         unsigned rows, int cp, float eps, unsigned cuts)
{
    constexpr int AHEAD = ROWS_AHEAD<T, 2>;
    const struct walk w = walk_of_part(rows, cp, cuts);
    if (w.c >= cp)
        return;
    float a1[DT_CHANNEL_PACK], a2[DT_CHANNEL_PACK], b[DT_CHANNEL_PACK], b2[DT_CHANNEL_PACK];
    forward_coefs(a1, b, in1, eps, w.c);
    forward_coefs(a2, b2, in2, eps, w.c);
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        b[k] += b2[k];
    for (unsigned row = w.first; row < w.rows; row += AHEAD * w.step) {
        raw8<T> raw1[AHEAD], raw2[AHEAD];
        for (int i = 0; i < AHEAD; i++) {
            const unsigned r = row + i * w.step;
            const size_t at = at_row(w, r < w.rows ? r : row);
            raw1[i] = read8(src1 + at);
            raw2[i] = read8(src2 + at);
        }
        for (int i = 0; i < AHEAD; i++) {
            if (row + i * w.step >= w.rows)
                break;
            float y[DT_CHANNEL_PACK], x2[DT_CHANNEL_PACK];
            unpack8(y, raw1[i]);
            unpack8(x2, raw2[i]);
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                y[k] = fmaf(y[k], a1[k], fmaf(x2[k], a2[k], b[k]));
            store_activation(dst, mask, at_row(w, row + i * w.step), y, lowest);
        }
    }
}

template <typename T> struct bn_pair_row {
    bn_bwd_row<T> first;
    raw8<T> src2;
};

template <typename T, bool TWO>
static __device__ inline void read_pair(bn_pair_row<T> *row, const bn_bwd_src<T> &in, const T *src2,
                                        size_t at)
{
    read_bwd<T, TWO>(&row->first, in, at);
    row->src2 = read8(src2 + at);
}

// Sums of g, of g * (src1 - mean1) and of g * (src2 - mean2), and the coefficients; the partial
// results of both have the first sum. Rows past the end repeat `row` with an empty mask.
template <typename T, bool TWO>
static __global__ void __launch_bounds__(DT_SUM_THREADS,
                                         PAIR_BLOCKS_PER_SM *DT_BLOCK_THREADS / DT_SUM_THREADS)
    bn_pair_bwd_sums_kernel(struct dt_bn_sums out1, struct dt_bn_sums out2, bn_bwd_src<T> in,
                            const T *src2, struct dt_bn_vectors bn1, struct dt_bn_vectors bn2,
                            struct dt_norm_args args)
{
    constexpr int AHEAD = PAIR_ROWS_AHEAD<T>;
    const unsigned rows = (unsigned)args.rows;
    const int cp = args.cp;
    const struct walk w = walk_of(rows, cp);
    float sum[DT_CHANNEL_PACK] = {}, product1[DT_CHANNEL_PACK] = {}, product2[DT_CHANNEL_PACK] = {},
          sum2[DT_CHANNEL_PACK];

    if (w.c < cp) {
        float mean1[DT_CHANNEL_PACK], mean2[DT_CHANNEL_PACK];
        dt_load8(mean1, bn1.mean + w.c);
        dt_load8(mean2, bn2.mean + w.c);
        for (unsigned row = w.first; row < rows; row += AHEAD * w.step) {
            bn_pair_row<T> next[AHEAD];
            for (int i = 0; i < AHEAD; i++) {
                const unsigned r = row + i * w.step;
                read_pair<T, TWO>(&next[i], in, src2, at_row_from_end(w, r < rows ? r : row));
                if (r >= rows)
                    next[i].first.bits = 0;
            }
            for (int i = 0; i < AHEAD; i++) {
                float x1[DT_CHANNEL_PACK], x2[DT_CHANNEL_PACK], g[DT_CHANNEL_PACK];
                unpack_bwd<T, TWO>(x1, g, next[i].first);
                unpack8(x2, next[i].src2);
                for (int k = 0; k < DT_CHANNEL_PACK; k++) {
                    sum[k] += g[k];
                    product1[k] = fmaf(g[k], x1[k] - mean1[k], product1[k]);
                    product2[k] = fmaf(g[k], x2[k] - mean2[k], product2[k]);
                }
            }
        }
    }
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        sum2[k] = sum[k];
    store_partial(out1.partial, w, sum, product1);
    store_partial(out2.partial, w, sum2, product2);
    if (is_last_block(args.tickets)) {
        finalize_bwd_sums(out1, bn1, args);
        finalize_bwd_sums(out2, bn2, args);
    }
}

// diff_src1 and diff_src2 may be the gradients that are read.
template <typename T, bool TWO>
static __global__ void __launch_bounds__(DT_BLOCK_THREADS, PAIR_BLOCKS_PER_SM)
    bn_pair_bwd_apply_kernel(T *diff_src1, T *diff_src2, bn_bwd_src<T> in, const T *src2,
                             const float *coefs1, const float *coefs2, unsigned rows, int cp,
                             unsigned cuts)
{
    constexpr int AHEAD = PAIR_ROWS_AHEAD<T>;
    const struct walk w = walk_of_part(rows, cp, cuts);
    if (w.c >= cp)
        return;
    struct bwd_channels c1, c2;
    load_bwd_channels(&c1, coefs1, w.c, cp);
    load_bwd_channels(&c2, coefs2, w.c, cp);
    for (unsigned row = w.first; row < w.rows; row += AHEAD * w.step) {
        bn_pair_row<T> next[AHEAD];
        for (int i = 0; i < AHEAD; i++) {
            const unsigned r = row + i * w.step;
            read_pair<T, TWO>(&next[i], in, src2, at_row(w, r < w.rows ? r : row));
        }
        for (int i = 0; i < AHEAD; i++) {
            if (row + i * w.step >= w.rows)
                break;
            const size_t at = at_row(w, row + i * w.step);
            float x1[DT_CHANNEL_PACK], x2[DT_CHANNEL_PACK], g[DT_CHANNEL_PACK];
            unpack_bwd<T, TWO>(x1, g, next[i].first);
            unpack8(x2, next[i].src2);
            for (int k = 0; k < DT_CHANNEL_PACK; k++) {
                x1[k] = fmaf(c1.g[k], g[k], fmaf(c1.x[k], x1[k], c1.one[k]));
                x2[k] = fmaf(c2.g[k], g[k], fmaf(c2.x[k], x2[k], c2.one[k]));
            }
            dt_store8(diff_src1 + at, x1);
            dt_store8(diff_src2 + at, x2);
        }
    }
}

// --- Launchers ---

cudaError_t dt_kernel_bn_pair_apply(cudaStream_t stream, enum dt_dtype type, void *dst,
                                    uint8_t *mask, const void *src1, const void *src2,
                                    const struct dt_bn_vectors *bn1,
                                    const struct dt_bn_vectors *bn2, bool relu,
                                    const struct dt_norm_args *args)
{
    unsigned cuts;
    const struct dt_geometry g = parts_geometry(args, &cuts);
    const float lowest = relu ? 0 : -INFINITY;
    return DT_BY_TYPE(type, (dt_launch(bn_pair_apply_kernel<T>, g, stream, dst, mask, src1, src2,
                                       *bn1, *bn2, lowest, args->rows, args->cp, args->eps, cuts)));
}

cudaError_t dt_kernel_bn_pair_bwd_sums(cudaStream_t stream, enum dt_dtype type,
                                       const struct dt_bn_sums out[2], const void *src1,
                                       const void *src2, const void *diff_dst,
                                       const void *diff_dst2, const uint8_t *mask,
                                       const struct dt_bn_vectors bn[2],
                                       const struct dt_norm_args *args)
{
    const struct dt_geometry g = dt_sums_geometry(args->rows, args->cp);
    if (g.grid_x > DT_MAX_TICKETS)
        return cudaErrorInvalidValue;
    return DT_BY_TYPE(
        type,
        (dt_launch(diff_dst2 ? bn_pair_bwd_sums_kernel<T, true> : bn_pair_bwd_sums_kernel<T, false>,
                   g, stream, out[0], out[1], bwd_src<T>(src1, diff_dst, diff_dst2, mask), src2,
                   bn[0], bn[1], *args)));
}

cudaError_t dt_kernel_bn_pair_bwd_apply(cudaStream_t stream, enum dt_dtype type, void *diff_src1,
                                        void *diff_src2, const void *src1, const void *src2,
                                        const void *diff_dst, const void *diff_dst2,
                                        const uint8_t *mask, const float *coefs1,
                                        const float *coefs2, const struct dt_norm_args *args)
{
    unsigned cuts;
    const struct dt_geometry g = parts_geometry(args, &cuts);
    return DT_BY_TYPE(type, (dt_launch(diff_dst2 ? bn_pair_bwd_apply_kernel<T, true>
                                                 : bn_pair_bwd_apply_kernel<T, false>,
                                       g, stream, diff_src1, diff_src2,
                                       bwd_src<T>(src1, diff_dst, diff_dst2, mask), src2, coefs1,
                                       coefs2, args->rows, args->cp, cuts)));
}
