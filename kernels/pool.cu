// Pooling. One thread per 8 channels of one output pixel, forward and backward: a gradient gathers
// from the windows that cover its pixel, so no two threads add to the same place. Overlapping
// windows are re-read from the caches; memory is read once.
#include "kernels/pool.cuh"

// --- Max pooling ---

// Reads src once, writes dst and one byte per element of dst. KERNEL: size of the window; 0:
// s.kernel.
template <typename T, int KERNEL>
static __global__ void max_pool_kernel(T *dst, uint8_t *where, const T *src, struct dt_pool_shape s,
                                       size_t n_packs)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    const struct place at = place_of((unsigned)i, s.cp / DT_CHANNEL_PACK, s.out_h, s.out_w);
    const struct window window = window_at(at, KERNEL > 0 ? KERNEL : s.kernel, s);
    struct maxima m;

    for (int k = 0; k < DT_CHANNEL_PACK; k++) {
        m.best[k] = -INFINITY;
        m.index[k] = pixel_of(window, 0, 0, at, s).index;
    }
    for (int y = 0; y < window.size; y++) {
        for (int x = 0; x < window.size; x++) {
            const struct window_pixel pixel = pixel_of(window, y, x, at, s);
            float v[DT_CHANNEL_PACK];
            dt_load8(v, src + pixel.offset);
            maxima_take(&m, v, pixel.index);
        }
    }
    dt_store8(dst + i * DT_CHANNEL_PACK, m.best);
    if (where)
        store_bytes8(where + i * DT_CHANNEL_PACK, m.index);
}

cudaError_t dt_kernel_max_pool(cudaStream_t stream, enum dt_dtype type, void *dst, uint8_t *where,
                               const void *src, const struct dt_pool_shape *shape)
{
    if (shape->kernel > 16)
        return cudaErrorInvalidValue;
    return DT_BY_TYPE(type,
                      (launch(shape->kernel == 3 ? max_pool_kernel<T, 3> : max_pool_kernel<T, 0>,
                              shape, shape->out_h, shape->out_w, stream, dst, where, src)));
}

// Reads diff_dst and the bytes once, writes diff_src.
template <typename T>
static __global__ void max_pool_bwd_kernel(T *diff_src, const T *diff_dst, const uint8_t *where,
                                           struct dt_pool_shape s, size_t n_packs)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    const struct place at = place_of((unsigned)i, s.cp / DT_CHANNEL_PACK, s.in_h, s.in_w);
    const struct window_range rows = windows_over((int)at.h, s.out_h, s);
    const struct window_range columns = windows_over((int)at.w, s.out_w, s);
    float sum[DT_CHANNEL_PACK] = {0};

    for (int oh = rows.first; oh < rows.end; oh++) {
        for (int ow = columns.first; ow < columns.end; ow++) {
            const size_t from = offset_of(at, oh, ow, s.out_h, s.out_w, s.cp);
            const int mine =
                ((int)at.h + s.pad - oh * s.stride) * s.kernel + (int)at.w + s.pad - ow * s.stride;
            float diff[DT_CHANNEL_PACK];
            int index[DT_CHANNEL_PACK];
            dt_load8(diff, diff_dst + from);
            load_bytes8(index, where + from);
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                sum[k] += index[k] == mine ? diff[k] : 0;
        }
    }
    dt_store8(diff_src + i * DT_CHANNEL_PACK, sum);
}

cudaError_t dt_kernel_max_pool_bwd(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                   const void *diff_dst, const uint8_t *where,
                                   const struct dt_pool_shape *shape)
{
    return DT_BY_TYPE(type, (launch(max_pool_bwd_kernel<T>, shape, shape->in_h, shape->in_w, stream,
                                    diff_src, diff_dst, where)));
}

// --- Adaptive average pooling ---

// Inputs of output `i` of n_out. The outputs whose window covers input `i` are the same with n_in
// and n_out swapped.
static __device__ inline struct window_range window_of(unsigned i, int n_in, int n_out)
{
    return {(int)((int64_t)i * n_in / n_out), (int)(((int64_t)(i + 1) * n_in + n_out - 1) / n_out)};
}

static __device__ inline int length_of(struct window_range r)
{
    return r.end - r.first;
}

// Reads src once, writes dst.
template <typename T>
static __global__ void avg_pool_kernel(T *dst, const T *src, struct dt_pool_shape s, size_t n_packs)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    const struct place at = place_of((unsigned)i, s.cp / DT_CHANNEL_PACK, s.out_h, s.out_w);
    const struct window_range rows = window_of(at.h, s.in_h, s.out_h);
    const struct window_range columns = window_of(at.w, s.in_w, s.out_w);
    const float area = (float)(length_of(rows) * length_of(columns));
    float sum[DT_CHANNEL_PACK] = {0}, v[DT_CHANNEL_PACK];

    for (int h = rows.first; h < rows.end; h++) {
        for (int w = columns.first; w < columns.end; w++) {
            dt_load8(v, src + offset_of(at, h, w, s.in_h, s.in_w, s.cp));
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                sum[k] += v[k];
        }
    }
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        sum[k] /= area;
    dt_store8(dst + i * DT_CHANNEL_PACK, sum);
}

// The same for large windows, such as a whole image: the threads of a block share them. A block
// makes one pixel of dst, of WIDE packs of channels; the order of the additions depends on the
// shape alone.
enum { WIDE = 8, SHARERS = 32, LARGE_WINDOW = 32 };

template <typename T>
static __global__ void __launch_bounds__(WIDE *SHARERS)
    avg_pool_large_kernel(T *dst, const T *src, struct dt_pool_shape s)
{
    __shared__ float sums[SHARERS][WIDE][DT_CHANNEL_PACK];
    const unsigned packs = s.cp / DT_CHANNEL_PACK, pack = blockIdx.y * WIDE + threadIdx.x;
    const size_t i = (size_t)blockIdx.x * packs + pack;
    const struct place at = place_of((unsigned)i, (int)packs, s.out_h, s.out_w);
    const struct window_range rows = window_of(at.h, s.in_h, s.out_h);
    const struct window_range columns = window_of(at.w, s.in_w, s.out_w);
    const int width = length_of(columns), area = length_of(rows) * width;
    float sum[DT_CHANNEL_PACK] = {0}, v[DT_CHANNEL_PACK];

    for (int p = (int)threadIdx.y; pack < packs && p < area; p += SHARERS) {
        const int h = rows.first + p / width, w = columns.first + p % width;
        dt_load8(v, src + offset_of(at, h, w, s.in_h, s.in_w, s.cp));
        for (int k = 0; k < DT_CHANNEL_PACK; k++)
            sum[k] += v[k];
    }
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        sums[threadIdx.y][threadIdx.x][k] = sum[k];
    for (unsigned half = SHARERS / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int k = 0; threadIdx.y < half && k < DT_CHANNEL_PACK; k++)
            sums[threadIdx.y][threadIdx.x][k] += sums[threadIdx.y + half][threadIdx.x][k];
    }
    if (pack >= packs || threadIdx.y > 0)
        return;
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        sum[k] = sums[0][threadIdx.x][k] / (float)area;
    dt_store8(dst + i * DT_CHANNEL_PACK, sum);
}

cudaError_t dt_kernel_avg_pool(cudaStream_t stream, enum dt_dtype type, void *dst, const void *src,
                               const struct dt_pool_shape *shape)
{
    const int window = shape->in_h / shape->out_h * (shape->in_w / shape->out_w);
    const unsigned pixels = (unsigned)(shape->n * shape->out_h * shape->out_w);
    const unsigned columns = (unsigned)(shape->cp / DT_CHANNEL_PACK + WIDE - 1) / WIDE;
    const struct dt_geometry large = {pixels, columns, WIDE, SHARERS};
    if (window >= LARGE_WINDOW)
        return DT_BY_TYPE(type, (dt_launch(avg_pool_large_kernel<T>, large, stream, (T *)dst,
                                           (const T *)src, *shape)));
    return DT_BY_TYPE(
        type, (launch(avg_pool_kernel<T>, shape, shape->out_h, shape->out_w, stream, dst, src)));
}

// Reads diff_dst once, writes diff_src.
template <typename T>
static __global__ void avg_pool_bwd_kernel(T *diff_src, const T *diff_dst, struct dt_pool_shape s,
                                           size_t n_packs)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    const struct place at = place_of((unsigned)i, s.cp / DT_CHANNEL_PACK, s.in_h, s.in_w);
    const struct window_range rows = window_of(at.h, s.out_h, s.in_h);
    const struct window_range columns = window_of(at.w, s.out_w, s.in_w);
    float sum[DT_CHANNEL_PACK] = {0}, v[DT_CHANNEL_PACK];

    for (int oh = rows.first; oh < rows.end; oh++) {
        const int height = length_of(window_of(oh, s.in_h, s.out_h));
        for (int ow = columns.first; ow < columns.end; ow++) {
            const float area = (float)(height * length_of(window_of(ow, s.in_w, s.out_w)));
            dt_load8(v, diff_dst + offset_of(at, oh, ow, s.out_h, s.out_w, s.cp));
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                sum[k] += v[k] / area;
        }
    }
    dt_store8(diff_src + i * DT_CHANNEL_PACK, sum);
}

cudaError_t dt_kernel_avg_pool_bwd(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                   const void *diff_dst, const struct dt_pool_shape *shape)
{
    return DT_BY_TYPE(type, (launch(avg_pool_bwd_kernel<T>, shape, shape->in_h, shape->in_w, stream,
                                    diff_src, diff_dst)));
}

// --- Upsampling: one thread per 8 channels of a pixel of coarse ---

// Offset of pixel `i` of the four over coarse pixel `at`.
static __device__ inline size_t fine_offset(const struct place &at, int i,
                                            const struct dt_pool_shape &s)
{
    return offset_of(at, 2 * at.h + i / 2, 2 * at.w + i % 2, s.in_h, s.in_w, s.cp);
}

// Reads coarse and fine once, writes dst.
template <typename T>
static __global__ void upsample_add_kernel(T *dst, const T *coarse, const T *fine,
                                           struct dt_pool_shape s, size_t n_packs)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    const struct place at = place_of((unsigned)i, s.cp / DT_CHANNEL_PACK, s.out_h, s.out_w);
    float v[DT_CHANNEL_PACK], sum[4][DT_CHANNEL_PACK];

    dt_load8(v, coarse + i * DT_CHANNEL_PACK);
    for (int j = 0; j < 4; j++)
        dt_load8(sum[j], fine + fine_offset(at, j, s));
    for (int j = 0; j < 4; j++) {
        for (int k = 0; k < DT_CHANNEL_PACK; k++)
            sum[j][k] += v[k];
        dt_store8(dst + fine_offset(at, j, s), sum[j]);
    }
}

cudaError_t dt_kernel_upsample_add(cudaStream_t stream, enum dt_dtype type, void *dst,
                                   const void *coarse, const void *fine,
                                   const struct dt_pool_shape *shape)
{
    return DT_BY_TYPE(type, (launch(upsample_add_kernel<T>, shape, shape->out_h, shape->out_w,
                                    stream, dst, coarse, fine)));
}

// Reads diff_dst once, writes diff_coarse.
template <typename T>
static __global__ void upsample_add_bwd_kernel(T *diff_coarse, const T *diff_dst,
                                               struct dt_pool_shape s, size_t n_packs)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    const struct place at = place_of((unsigned)i, s.cp / DT_CHANNEL_PACK, s.out_h, s.out_w);
    float v[4][DT_CHANNEL_PACK];

    for (int j = 0; j < 4; j++)
        dt_load8(v[j], diff_dst + fine_offset(at, j, s));
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        v[0][k] = (v[0][k] + v[1][k]) + (v[2][k] + v[3][k]);
    dt_store8(diff_coarse + i * DT_CHANNEL_PACK, v[0]);
}

cudaError_t dt_kernel_upsample_add_bwd(cudaStream_t stream, enum dt_dtype type, void *diff_coarse,
                                       const void *diff_dst, const struct dt_pool_shape *shape)
{
    return DT_BY_TYPE(type, (launch(upsample_add_bwd_kernel<T>, shape, shape->out_h, shape->out_w,
                                    stream, diff_coarse, diff_dst)));
}
