// Group norm over rows x cp. As in batch norm, a thread keeps the values for 8 channels in
// registers and loops over rows, but only those of one image: blockIdx.y is the number of the image
// and of the block's part of it. The blocks leave sums per channel; a small kernel with one block
// per image and group adds up its channels in fp64, in a fixed order.
//
// Bytes moved, of N = rows * cp elements of e bytes:
//   group_norm_stats      reads N e
//   group_norm_apply      reads N e, writes N e
//   group_norm_bwd_sums   reads 2 N e
//   group_norm_bwd_apply  reads 2 N e, writes N e
//   the others            read 8 * cp bytes per block, from L2
// The first kernel begins with the end of the last image, the next one with the first row.
#include "kernels/norm.cuh"

// The partial sums of an image: floats [parts][2][cp].
static __device__ inline const float *partials_of(const float *partial, int image, int parts,
                                                  const struct dt_group_norm &a)
{
    return partial + (size_t)(a.n - 1 - image) * parts * 2 * a.cp;
}

// A thread's part of the block's image.
static __device__ inline struct walk walk_of_image(const struct dt_group_norm &a)
{
    const unsigned parts = gridDim.y / a.n;
    return {blockIdx.y % parts * blockDim.y + threadIdx.y, parts * blockDim.y, (unsigned)a.pixels,
            (int)(blockIdx.x * blockDim.x + threadIdx.x) * DT_CHANNEL_PACK, a.cp};
}

static __device__ inline int image_of(const struct dt_group_norm &a)
{
    return (int)(blockIdx.y / (gridDim.y / a.n));
}

static __device__ inline size_t image_offset(const struct dt_group_norm &a, int image)
{
    return (size_t)image * a.pixels * a.cp;
}

// Index of the group of a channel. Groups of padding channels exist and hold zeros.
static __device__ inline size_t group_of(const struct dt_group_norm &a, int image, int c)
{
    return (size_t)image * a.groups_padded + c / a.size;
}

// --- Forward ---

template <typename T>
static __global__ void __launch_bounds__(DT_SUM_THREADS, SUM_BLOCKS_PER_SM)
    group_norm_stats_kernel(float *partial, const T *src, struct dt_group_norm a)
{
    const unsigned parts = gridDim.y / a.n;
    const T *from = src + image_offset(a, a.n - 1 - image_of(a));
    const unsigned n = dt_channel_block_rows(a.pixels, blockIdx.y % parts, parts, blockDim.y);
    store_moments(partial, from, walk_of_image(a), n);
}

// A block for a group (blockIdx.x) of an image (blockIdx.y). The means of the blocks are taken
// relative to that of the first.
static __global__ void group_norm_finalize_kernel(float *mean, float *inverse_std,
                                                  const float *partial, struct dt_group_norm a,
                                                  unsigned parts, unsigned block_y)
{
    const int group = (int)blockIdx.x, image = (int)blockIdx.y, first = group * a.size;
    const float *from = partials_of(partial, image, parts, a);
    const bool exists = group < a.groups;
    const double origin = exists ? (double)from[first] : 0, n = (double)a.pixels * a.size;
    double sum = 0, square = 0;

    for (unsigned i = threadIdx.x; exists && i < parts * a.size; i += blockDim.x) {
        const unsigned part = i / a.size;
        const float *at = from + (size_t)part * 2 * a.cp + first + i % a.size;
        const double rows = dt_channel_block_rows(a.pixels, part, parts, block_y);
        const double d = (double)at[0] - origin;
        sum += rows * d;
        square += (double)at[a.cp] + rows * d * d;
    }
    sum = dt_fold_sum(sum);
    square = dt_fold_sum(square);
    if (threadIdx.x == 0) {
        const size_t at = (size_t)image * a.groups_padded + group;
        const double delta = sum / n, m2 = square - sum * delta;
        const double variance = (m2 < 0 ? 0 : m2) / n; // lets NaN through
        mean[at] = (float)(origin + delta);
        inverse_std[at] = exists ? (float)(1 / sqrt(variance + (double)a.eps)) : 0;
    }
}

// dst may be src.
template <typename T>
static __global__ void __launch_bounds__(DT_BLOCK_THREADS, BLOCKS_PER_SM)
    group_norm_apply_kernel(T *dst, const T *src, const float *scale, const float *shift,
                            const float *mean, const float *inverse_std, struct dt_group_norm a)
{
    constexpr int AHEAD = ROWS_AHEAD<T, 1>;
    const struct walk w = walk_of_image(a);
    const int image = image_of(a);
    const size_t first = image_offset(a, image);
    if (w.c >= w.cp)
        return;
    float factor[DT_CHANNEL_PACK], offset[DT_CHANNEL_PACK];
    dt_load8(factor, scale + w.c);
    dt_load8(offset, shift + w.c);
    for (int k = 0; k < DT_CHANNEL_PACK; k++) {
        const size_t group = group_of(a, image, w.c + k);
        factor[k] *= inverse_std[group];
        offset[k] = fmaf(-mean[group], factor[k], offset[k]);
    }
    for (unsigned row = w.first; row < w.rows; row += AHEAD * w.step) {
        raw8<T> raw[AHEAD];
        for (int i = 0; i < AHEAD; i++) {
            const unsigned r = row + i * w.step;
            raw[i] = read8(src + first + at_row(w, r < w.rows ? r : row));
        }
        for (int i = 0; i < AHEAD; i++) {
            if (row + i * w.step >= w.rows)
                break;
            float y[DT_CHANNEL_PACK];
            unpack8(y, raw[i]);
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                y[k] = fmaf(y[k], factor[k], offset[k]);
            dt_store8(dst + first + at_row(w, row + i * w.step), y);
        }
    }
}

// --- Backward ---

// Calls add(x, g, row) for the thread's rows of an image, counted from its first or last row.
template <typename T, typename F>
static __device__ inline void for_bwd_rows(const T *src, const T *diff_dst, const struct walk &w,
                                           bool from_end, F add)
{
    constexpr int AHEAD = ROWS_AHEAD<T, 2>;
    for (unsigned row = w.first; row < w.rows; row += AHEAD * w.step) {
        raw8<T> raw[AHEAD], raw_diff[AHEAD];
        for (int i = 0; i < AHEAD; i++) {
            const unsigned next = row + i * w.step, r = next < w.rows ? next : row;
            const size_t at = from_end ? at_row_from_end(w, r) : at_row(w, r);
            raw[i] = read8(src + at);
            raw_diff[i] = read8(diff_dst + at);
        }
        for (int i = 0; i < AHEAD; i++) {
            if (row + i * w.step >= w.rows)
                break;
            float x[DT_CHANNEL_PACK], g[DT_CHANNEL_PACK];
            unpack8(x, raw[i]);
            unpack8(g, raw_diff[i]);
            add(x, g, row + i * w.step);
        }
    }
}

// Sums of g = diff_dst and of g * (src - mean) over every block's rows.
template <typename T>
static __global__ void __launch_bounds__(DT_SUM_THREADS, SUM_BLOCKS_PER_SM)
    group_norm_bwd_sums_kernel(float *partial, const T *src, const T *diff_dst, const float *mean,
                               struct dt_group_norm a)
{
    const struct walk w = walk_of_image(a);
    const int image = a.n - 1 - image_of(a);
    const size_t first = image_offset(a, image);
    float sum[DT_CHANNEL_PACK] = {}, product[DT_CHANNEL_PACK] = {};

    if (w.c < w.cp) {
        float center[DT_CHANNEL_PACK];
        for (int k = 0; k < DT_CHANNEL_PACK; k++)
            center[k] = mean[group_of(a, image, w.c + k)];
        for_bwd_rows(src + first, diff_dst + first, w, true,
                     [&](const float *x, const float *g, unsigned) {
                         for (int k = 0; k < DT_CHANNEL_PACK; k++) {
                             sum[k] += g[k];
                             product[k] = fmaf(g[k], x[k] - center[k], product[k]);
                         }
                     });
    }
    store_partial(partial, w, sum, product);
}

// With S1 = sum of scale * g and S2 = sum of scale * g * (src - mean) over the n values of a group:
//   diff_src = (scale * g - S1 / n - (src - mean) * S2 * inverse_std^2 / n) * inverse_std
// of which this makes the factors of src, floats [n][groups_padded], and then those of 1. A block
// for a group (blockIdx.x) of an image (blockIdx.y).
static __global__ void group_norm_coefs_kernel(float *coefs, const float *partial,
                                               const float *scale, const float *mean,
                                               const float *inverse_std, struct dt_group_norm a,
                                               unsigned parts)
{
    const int group = (int)blockIdx.x, image = (int)blockIdx.y, first = group * a.size;
    const float *from = partials_of(partial, image, parts, a);
    const double n = (double)a.pixels * a.size;
    double s1 = 0, s2 = 0;

    for (unsigned i = threadIdx.x; group < a.groups && i < parts * a.size; i += blockDim.x) {
        const int c = first + (int)(i % a.size);
        const float *at = from + (size_t)(i / a.size) * 2 * a.cp + c;
        s1 += (double)scale[c] * (double)at[0];
        s2 += (double)scale[c] * (double)at[a.cp];
    }
    s1 = dt_fold_sum(s1);
    s2 = dt_fold_sum(s2);
    if (threadIdx.x == 0) {
        const size_t at = (size_t)image * a.groups_padded + group;
        const double inverse = (double)inverse_std[at];
        const double factor = -inverse * inverse * inverse * s2 / n;
        coefs[at] = (float)factor;
        coefs[(size_t)a.n * a.groups_padded + at] =
            (float)(-inverse * s1 / n - factor * (double)mean[at]);
    }
}

enum { VECTOR_ADDERS = DT_BLOCK_THREADS / DT_CHANNEL_PACK }; // threads that share a channel

// diff_scale and diff_shift of 8 channels per block, over all images.
static __global__ void group_norm_vectors_kernel(float *diff_scale, float *diff_shift,
                                                 const float *partial, const float *inverse_std,
                                                 struct dt_group_norm a, int parts)
{
    const int c = (int)(blockIdx.x * DT_CHANNEL_PACK + threadIdx.x);
    double s1[1] = {0}, s2[1] = {0};
    for (int i = (int)threadIdx.y; i < a.n * parts; i += VECTOR_ADDERS) {
        const float *at = partial + (size_t)i * 2 * a.cp + c;
        s1[0] += (double)at[0];
        s2[0] += (double)at[a.cp] * (double)inverse_std[group_of(a, a.n - 1 - i / parts, c)];
    }
    fold_columns<1>(s1, s2, {threadIdx.x, threadIdx.y, DT_CHANNEL_PACK, VECTOR_ADDERS});
    if (threadIdx.y == 0) {
        diff_shift[c] = (float)s1[0];
        diff_scale[c] = (float)s2[0];
    }
}

// diff_src may be diff_dst.
template <typename T>
static __global__ void __launch_bounds__(DT_BLOCK_THREADS, BLOCKS_PER_SM)
    group_norm_bwd_apply_kernel(T *diff_src, const T *src, const T *diff_dst, const float *scale,
                                const float *inverse_std, const float *coefs,
                                struct dt_group_norm a)
{
    const struct walk w = walk_of_image(a);
    const int image = image_of(a);
    const size_t first = image_offset(a, image);
    if (w.c >= w.cp)
        return;
    struct bwd_channels c;
    dt_load8(c.g, scale + w.c);
    for (int k = 0; k < DT_CHANNEL_PACK; k++) {
        const size_t group = group_of(a, image, w.c + k);
        c.g[k] *= inverse_std[group];
        c.x[k] = coefs[group];
        c.one[k] = coefs[(size_t)a.n * a.groups_padded + group];
    }
    for_bwd_rows(src + first, diff_dst + first, w, false,
                 [&](const float *x, const float *g, unsigned row) {
                     float d[DT_CHANNEL_PACK];
                     for (int k = 0; k < DT_CHANNEL_PACK; k++)
                         d[k] = fmaf(c.g[k], g[k], fmaf(c.x[k], x[k], c.one[k]));
                     dt_store8(diff_src + first + at_row(w, row), d);
                 });
}

// --- Launchers ---

static struct dt_geometry sums_geometry(const struct dt_group_norm &a)
{
    return dt_images_geometry(dt_sums_geometry((size_t)a.pixels, a.cp), a.n);
}

static struct dt_geometry apply_geometry(const struct dt_group_norm &a)
{
    return dt_images_geometry(dt_channel_geometry((size_t)a.pixels, a.cp), a.n);
}

static struct dt_geometry group_geometry(const struct dt_group_norm &a)
{
    return {(unsigned)a.groups_padded, (unsigned)a.n, DT_BLOCK_THREADS, 1};
}

template <typename T>
static cudaError_t group_norm(cudaStream_t stream, void *dst,
                              const struct dt_group_norm_statistics &out, const void *src,
                              const float *scale, const float *shift, const struct dt_group_norm &a)
{
    const struct dt_geometry sums = sums_geometry(a), apply = apply_geometry(a);
    const unsigned parts = sums.grid_y / (unsigned)a.n;
    cudaError_t error = dt_launch(group_norm_stats_kernel<T>, sums, stream, out.partial, src, a);
    if (error == cudaSuccess)
        error = dt_launch(group_norm_finalize_kernel, group_geometry(a), stream, out.mean,
                          out.inverse_std, out.partial, a, parts, sums.block_y);
    if (error == cudaSuccess)
        error = dt_launch(group_norm_apply_kernel<T>, apply, stream, dst, src, scale, shift,
                          out.mean, out.inverse_std, a);
    return error;
}

cudaError_t dt_kernel_group_norm(cudaStream_t stream, enum dt_dtype type, void *dst,
                                 const struct dt_group_norm_statistics *out, const void *src,
                                 const float *scale, const float *shift,
                                 const struct dt_group_norm *args)
{
    return DT_BY_TYPE(type, group_norm<T>(stream, dst, *out, src, scale, shift, *args));
}

template <typename T>
static cudaError_t group_norm_bwd(cudaStream_t stream, const struct dt_group_norm_gradients &out,
                                  const void *src, const void *diff_dst, const float *scale,
                                  const float *mean, const float *inverse_std,
                                  const struct dt_group_norm &a)
{
    const struct dt_geometry sums = sums_geometry(a), apply = apply_geometry(a);
    const unsigned parts = sums.grid_y / (unsigned)a.n;
    const struct dt_geometry vectors = {(unsigned)a.cp / DT_CHANNEL_PACK, 1, DT_CHANNEL_PACK,
                                        VECTOR_ADDERS};
    cudaError_t error =
        dt_launch(group_norm_bwd_sums_kernel<T>, sums, stream, out.partial, src, diff_dst, mean, a);
    if (error == cudaSuccess && out.diff_scale)
        error = dt_launch(group_norm_vectors_kernel, vectors, stream, out.diff_scale,
                          out.diff_shift, out.partial, inverse_std, a, parts);
    if (error == cudaSuccess)
        error = dt_launch(group_norm_coefs_kernel, group_geometry(a), stream, out.coefs,
                          out.partial, scale, mean, inverse_std, a, parts);
    if (error == cudaSuccess)
        error = dt_launch(group_norm_bwd_apply_kernel<T>, apply, stream, out.diff_src, src,
                          diff_dst, scale, inverse_std, out.coefs, a);
    return error;
}

cudaError_t dt_kernel_group_norm_bwd(cudaStream_t stream, enum dt_dtype type,
                                     const struct dt_group_norm_gradients *out, const void *src,
                                     const void *diff_dst, const float *scale, const float *mean,
                                     const float *inverse_std, const struct dt_group_norm *args)
{
    return DT_BY_TYPE(
        type, group_norm_bwd<T>(stream, *out, src, diff_dst, scale, mean, inverse_std, *args));
}
