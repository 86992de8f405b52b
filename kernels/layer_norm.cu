// Layer norm over the channels of each row of rows x cp. The threads of a row hold all of it in
// registers (dt_whole_rows_geometry), so that it is read once: first its mean, then the squared
// deviations. A block loops over rows; the sums of a thread's channels for the gradients of weight
// and bias stay in registers until the end.
//
// Bytes moved, of N = rows * cp elements of e bytes:
//   layer_norm      reads N e, writes N e and 8 per row
//   layer_norm_bwd  reads 2 N e and 8 per row, writes N e; add_partials reads 8 * cp bytes per
//                   block, from L2
#include "kernels/norm.cuh"
#include "kernels/partials.cuh"

// The sum of v over the threads of a row, for all of them. All threads of the block take part.
static __device__ inline float sum_of_row(float v)
{
    __shared__ float of_warp[DT_BLOCK_THREADS / 32];
    const unsigned n_warps = blockDim.x / 32, thread = threadIdx.y * blockDim.x + threadIdx.x;
    for (unsigned half = (n_warps > 0 ? 32 : blockDim.x) / 2; half > 0; half /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, (int)half);
    if (n_warps <= 1)
        return v;
    __syncthreads(); // others may still read the sums of the call before
    if (threadIdx.x % 32 == 0)
        of_warp[thread / 32] = v;
    __syncthreads();
    v = 0;
    for (unsigned i = 0; i < n_warps; i++)
        v += of_warp[threadIdx.y * n_warps + i];
    return v;
}

// The channel of a thread's pack j; past the end of the row there is none.
static __device__ inline int channel_of(int j)
{
    return (int)(threadIdx.x + j * blockDim.x) * DT_CHANNEL_PACK;
}

// The thread's packs of a row, and 0 where there is none or no row.
template <typename T>
static __device__ inline void read_row(raw8<T> raw[DT_ROW_PACKS], const T *src, size_t row,
                                       const struct dt_layer_norm &a)
{
    for (int j = 0; j < DT_ROW_PACKS; j++)
        raw[j] = row < a.rows && channel_of(j) < a.cp ? read8(src + row * a.cp + channel_of(j))
                                                      : raw8<T>{};
}

// dst may be src.
template <typename T>
static __global__ void __launch_bounds__(DT_BLOCK_THREADS)
    layer_norm_kernel(T *dst, float *mean, float *inverse_std, const T *src, const float *scale,
                      const float *shift, struct dt_layer_norm a)
{
    const size_t step = (size_t)gridDim.y * blockDim.y;
    for (size_t first = (size_t)blockIdx.y * blockDim.y; first < a.rows; first += step) {
        const size_t row = first + threadIdx.y;
        raw8<T> raw[DT_ROW_PACKS];
        float x[DT_CHANNEL_PACK], sum = 0, square = 0;
        read_row(raw, src, row, a);
        for (int j = 0; j < DT_ROW_PACKS; j++) {
            unpack8(x, raw[j]);
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                sum += x[k];
        }
        const float m = sum_of_row(sum) / (float)a.channels;
        for (int j = 0; j < DT_ROW_PACKS; j++) {
            unpack8(x, raw[j]);
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                square += channel_of(j) + k < a.channels ? (x[k] - m) * (x[k] - m) : 0;
        }
        const float inverse = 1 / sqrtf(sum_of_row(square) / (float)a.channels + a.eps);
        for (int j = 0; j < DT_ROW_PACKS && row < a.rows; j++) {
            const int c = channel_of(j);
            float factor[DT_CHANNEL_PACK], y[DT_CHANNEL_PACK];
            if (c >= a.cp)
                break;
            dt_load8(factor, scale + c);
            dt_load8(y, shift + c);
            unpack8(x, raw[j]);
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                y[k] = fmaf((x[k] - m) * inverse, factor[k], y[k]);
            dt_store8(dst + row * a.cp + c, y);
        }
        if (mean && row < a.rows && threadIdx.x == 0) {
            mean[row] = m;
            inverse_std[row] = inverse;
        }
    }
}

// With x = (src - mean) * inverse_std, g = diff_dst and means over the channels:
//   diff_src = (scale * g - mean(scale * g) - x * mean(scale * g * x)) * inverse_std
// partial: sums of g, floats [gridDim.y][cp], then of g * x. diff_src may be diff_dst.
template <typename T>
static __global__ void __launch_bounds__(DT_BLOCK_THREADS, 2)
    layer_norm_bwd_kernel(T *diff_src, float *partial, const T *src, const T *diff_dst,
                          const float *scale, const float *mean, const float *inverse_std,
                          struct dt_layer_norm a)
{
    float sums[DT_ROW_PACKS][DT_CHANNEL_PACK] = {}, products[DT_ROW_PACKS][DT_CHANNEL_PACK] = {};
    const size_t step = (size_t)gridDim.y * blockDim.y;
    for (size_t first = (size_t)blockIdx.y * blockDim.y; first < a.rows; first += step) {
        const size_t row = first + threadIdx.y;
        const float m = row < a.rows ? mean[row] : 0, inverse = row < a.rows ? inverse_std[row] : 0;
        raw8<T> raw[DT_ROW_PACKS], raw_diff[DT_ROW_PACKS];
        float x[DT_CHANNEL_PACK], g[DT_CHANNEL_PACK], factor[DT_CHANNEL_PACK], s1 = 0, s2 = 0;
        read_row(raw, src, row, a);
        read_row(raw_diff, diff_dst, row, a);
        for (int j = 0; j < DT_ROW_PACKS; j++) {
            if (channel_of(j) >= a.cp)
                break;
            dt_load8(factor, scale + channel_of(j));
            unpack8(x, raw[j]);
            unpack8(g, raw_diff[j]);
            for (int k = 0; k < DT_CHANNEL_PACK; k++) {
                const float product = g[k] * ((x[k] - m) * inverse);
                sums[j][k] += g[k];
                products[j][k] += product;
                s1 = fmaf(factor[k], g[k], s1);
                s2 = fmaf(factor[k], product, s2);
            }
        }
        s1 = sum_of_row(s1) / (float)a.channels;
        s2 = sum_of_row(s2) / (float)a.channels;
        for (int j = 0; j < DT_ROW_PACKS && row < a.rows; j++) {
            const int c = channel_of(j);
            if (c >= a.cp)
                break;
            dt_load8(factor, scale + c);
            unpack8(x, raw[j]);
            unpack8(g, raw_diff[j]);
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                g[k] = c + k < a.channels
                           ? (fmaf(factor[k], g[k], -s1) - (x[k] - m) * inverse * s2) * inverse
                           : 0;
            dt_store8(diff_src + row * a.cp + c, g);
        }
    }
    for (int j = 0; j < DT_ROW_PACKS; j++) {
        store_partial_sums(partial, sums[j], channel_of(j), a.cp);
        store_partial_sums(partial + (size_t)gridDim.y * a.cp, products[j], channel_of(j), a.cp);
    }
}

cudaError_t dt_kernel_layer_norm(cudaStream_t stream, enum dt_dtype type, void *dst, float *mean,
                                 float *inverse_std, const void *src, const float *scale,
                                 const float *shift, const struct dt_layer_norm *args)
{
    return DT_BY_TYPE(type,
                      (dt_launch(layer_norm_kernel<T>, dt_whole_rows_geometry(args->rows, args->cp),
                                 stream, dst, mean, inverse_std, src, scale, shift, *args)));
}

cudaError_t dt_kernel_layer_norm_bwd(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                     float *diff_scale, float *diff_shift, float *partial,
                                     const void *src, const void *diff_dst, const float *scale,
                                     const float *mean, const float *inverse_std,
                                     const struct dt_layer_norm *args)
{
    const struct dt_geometry g = dt_whole_rows_geometry(args->rows, args->cp);
    cudaError_t error =
        DT_BY_TYPE(type, (dt_launch(layer_norm_bwd_kernel<T>, g, stream, diff_src, partial, src,
                                    diff_dst, scale, mean, inverse_std, *args)));
    if (error == cudaSuccess && diff_scale)
        error = add_partials<float>(stream, diff_shift, partial, 1, g.grid_y, args->cp);
    if (error == cudaSuccess && diff_scale)
        error = add_partials<float>(stream, diff_scale, partial + (size_t)g.grid_y * args->cp, 1,
                                    g.grid_y, args->cp);
    return error;
}
