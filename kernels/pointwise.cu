// Elementwise kernels over rows x cp, ingest from bytes, and the sum over rows of a bias gradient.
// One thread per 8 elements. Sources and destinations may be the same memory except in ingest.
#include "kernels/partials.cuh"

#include <Random123/philox.h>
#include <stdint.h>

#include "base/rng.h"

static __device__ inline void relu8(float v[DT_CHANNEL_PACK])
{
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        v[k] = dt_relu(v[k]);
}

// --- Flat loops. Bytes per element: activation reads 1 and writes 1 element, add and
// activation_bwd read 2 (or 3, with diff_dst2) and write 1. ---

template <typename T>
static __global__ void add_kernel(T *dst, const T *a, const T *b, size_t n_packs, bool relu)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    float sum[DT_CHANNEL_PACK], v[DT_CHANNEL_PACK];
    dt_load8(sum, a + i * DT_CHANNEL_PACK);
    dt_load8(v, b + i * DT_CHANNEL_PACK);
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        sum[k] += v[k];
    if (relu)
        relu8(sum);
    dt_store8(dst + i * DT_CHANNEL_PACK, sum);
}

cudaError_t dt_kernel_add(cudaStream_t stream, enum dt_dtype type, void *dst, const void *a,
                          const void *b, size_t count, bool relu)
{
    return DT_BY_TYPE(type, (dt_launch(add_kernel<T>, dt_flat_geometry(count), stream, dst, a, b,
                                       count / DT_CHANNEL_PACK, relu)));
}

template <typename T>
static __global__ void activation_kernel(enum dt_activation kind, T *dst, const T *src,
                                         size_t n_packs, unsigned c, unsigned cp)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    const unsigned channel = c < cp ? (unsigned)(i * DT_CHANNEL_PACK % cp) : 0;
    float v[DT_CHANNEL_PACK];
    dt_load8(v, src + i * DT_CHANNEL_PACK);
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        v[k] = channel + (unsigned)k < c ? dt_activate(kind, v[k]) : 0;
    dt_store8(dst + i * DT_CHANNEL_PACK, v);
}

cudaError_t dt_kernel_activation(cudaStream_t stream, enum dt_dtype type, enum dt_activation kind,
                                 void *dst, const void *src, size_t count, int c, int cp)
{
    return DT_BY_TYPE(type,
                      (dt_launch(activation_kernel<T>, dt_flat_geometry(count), stream, kind, dst,
                                 src, count / DT_CHANNEL_PACK, (unsigned)c, (unsigned)cp)));
}

template <typename T>
static __global__ void activation_bwd_kernel(enum dt_activation kind, T *diff_src,
                                             const T *diff_dst, const T *diff_dst2, const T *src,
                                             size_t n_packs)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    float diff[DT_CHANNEL_PACK], v[DT_CHANNEL_PACK];
    dt_load8(diff, diff_dst + i * DT_CHANNEL_PACK);
    if (diff_dst2) {
        dt_load8(v, diff_dst2 + i * DT_CHANNEL_PACK);
        for (int k = 0; k < DT_CHANNEL_PACK; k++)
            diff[k] += v[k];
    }
    dt_load8(v, src + i * DT_CHANNEL_PACK);
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        diff[k] = dt_through_activation(kind, diff[k], v[k]);
    dt_store8(diff_src + i * DT_CHANNEL_PACK, diff);
}

cudaError_t dt_kernel_activation_bwd(cudaStream_t stream, enum dt_dtype type,
                                     enum dt_activation kind, void *diff_src, const void *diff_dst,
                                     const void *diff_dst2, const void *src, size_t count)
{
    return DT_BY_TYPE(type,
                      (dt_launch(activation_bwd_kernel<T>, dt_flat_geometry(count), stream, kind,
                                 diff_src, diff_dst, diff_dst2, src, count / DT_CHANNEL_PACK)));
}

template <typename T> struct sum_terms {
    const T *at[DT_MAX_TERMS];
};

// Reads every term once, writes 1 element.
template <typename T>
static __global__ void sum_kernel(T *dst, struct sum_terms<T> terms, int n_terms, size_t n_packs)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    float sum[DT_CHANNEL_PACK], v[DT_CHANNEL_PACK];
    dt_load8(sum, terms.at[0] + i * DT_CHANNEL_PACK);
    for (int j = 1; j < n_terms; j++) {
        dt_load8(v, terms.at[j] + i * DT_CHANNEL_PACK);
        for (int k = 0; k < DT_CHANNEL_PACK; k++)
            sum[k] += v[k];
    }
    dt_store8(dst + i * DT_CHANNEL_PACK, sum);
}

template <typename T>
static cudaError_t sum(cudaStream_t stream, void *dst, const void *const *terms, int n_terms,
                       size_t count)
{
    struct sum_terms<T> by_type = {
    };
    for (int j = 0; j < n_terms; j++)
        by_type.at[j] = static_cast<const T *>(terms[j]);
    return dt_launch(sum_kernel<T>, dt_flat_geometry(count), stream, dst, by_type, n_terms,
                     count / DT_CHANNEL_PACK);
}

cudaError_t dt_kernel_sum(cudaStream_t stream, enum dt_dtype type, void *dst,
                          const void *const *terms, int n_terms, size_t count)
{
    if (n_terms > DT_MAX_TERMS)
        return cudaErrorInvalidValue;
    return DT_BY_TYPE(type, sum<T>(stream, dst, terms, n_terms, count));
}

// --- Bias ---

// Reads and writes each element once; the bias stays in the caches.
template <typename T>
static __global__ void bias_kernel(T *dst, const float *bias, size_t n_packs, unsigned cp,
                                   bool relu)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    float v[DT_CHANNEL_PACK], b[DT_CHANNEL_PACK];
    dt_load8(v, dst + i * DT_CHANNEL_PACK);
    if (bias) {
        dt_load8(b, bias + (unsigned)i % (cp / DT_CHANNEL_PACK) * DT_CHANNEL_PACK);
        for (int k = 0; k < DT_CHANNEL_PACK; k++)
            v[k] += b[k];
    }
    if (relu)
        relu8(v);
    dt_store8(dst + i * DT_CHANNEL_PACK, v);
}

cudaError_t dt_kernel_bias(cudaStream_t stream, enum dt_dtype type, void *dst, const float *bias,
                           size_t rows, int cp, bool relu)
{
    const size_t count = rows * (size_t)cp;
    if (!bias && !relu)
        return cudaSuccess;
    if (count / DT_CHANNEL_PACK > UINT32_MAX)
        return cudaErrorInvalidValue;
    return DT_BY_TYPE(type, (dt_launch(bias_kernel<T>, dt_flat_geometry(count), stream, dst, bias,
                                       count / DT_CHANNEL_PACK, cp, relu)));
}

// Reads each element once. A thread sums the rows of its pack of channels.
template <typename T>
static __global__ void bias_sums_kernel(float *partial, const T *diff_dst, size_t rows, int cp)
{
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x) * DT_CHANNEL_PACK;
    float sum[DT_CHANNEL_PACK] = {0}, v[DT_CHANNEL_PACK];

    if (c < cp) {
        const size_t step = (size_t)gridDim.y * blockDim.y;
        for (size_t row = (size_t)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += step) {
            dt_load8(v, diff_dst + row * cp + c);
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                sum[k] += v[k];
        }
    }
    store_partial_sums(partial, sum, c, cp);
}

cudaError_t dt_kernel_bias_bwd(cudaStream_t stream, enum dt_dtype type, float *diff_bias,
                               float *partial, const void *diff_dst, size_t rows, int cp)
{
    const struct dt_geometry sums = dt_channel_geometry(rows, cp);
    cudaError_t error = DT_BY_TYPE(
        type, (dt_launch(bias_sums_kernel<T>, sums, stream, partial, diff_dst, rows, cp)));
    if (error == cudaSuccess)
        error = add_partials<float>(stream, diff_bias, partial, 1, sums.grid_y, cp);
    return error;
}

// --- Dropout ---

struct dropout_args {
    unsigned channels, plane, packs; // plane: height * width; packs of 8 channels in a row
    uint32_t stream, threshold;
    uint64_t seed;
    float scale;
};

// Words 4 * block .. 4 * block + 3 of the stream, as dt_rng_fill makes them.
static __device__ inline philox4x32_ctr_t random_block(const struct dropout_args &a, uint32_t step,
                                                       uint32_t block)
{
    const philox4x32_ctr_t counter = {{block, a.stream, step, DT_RNG_DROPOUT}};
    const philox4x32_key_t key = {{(uint32_t)a.seed, (uint32_t)(a.seed >> 32)}};
    return philox4x32(counter, key);
}

// Reads and writes each element once. Adjacent elements in memory are a plane apart in the stream,
// which costs one block of random numbers per element, or two per 8 elements if the plane is 1 x 1.
template <typename T>
static __global__ void dropout_kernel(T *dst, const T *src, size_t n_packs, struct dropout_args a,
                                      const struct dt_step_values *step)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    const unsigned row = (unsigned)i / a.packs, image = row / a.plane;
    const unsigned first = ((unsigned)i - row * a.packs) * DT_CHANNEL_PACK;
    const uint32_t step_number = step->step;
    uint64_t word = (((uint64_t)step->first_row + image) * a.channels + first) * a.plane +
                    (row - image * a.plane);
    uint32_t block = (uint32_t)(word / 4);
    philox4x32_ctr_t random = random_block(a, step_number, block);
    float v[DT_CHANNEL_PACK];

    dt_load8(v, src + i * DT_CHANNEL_PACK);
    for (unsigned k = 0; k < DT_CHANNEL_PACK; k++, word += a.plane) {
        if (first + k >= a.channels) {
            v[k] = 0;
            continue;
        }
        if ((uint32_t)(word / 4) != block) {
            block = (uint32_t)(word / 4);
            random = random_block(a, step_number, block);
        }
        const unsigned lane = (unsigned)word % 4;
        const uint32_t low = lane & 1 ? random.v[1] : random.v[0];
        const uint32_t high = lane & 1 ? random.v[3] : random.v[2];
        v[k] = (lane & 2 ? high : low) >= a.threshold ? v[k] * a.scale : 0;
    }
    dt_store8(dst + i * DT_CHANNEL_PACK, v);
}

cudaError_t dt_kernel_dropout(cudaStream_t stream, enum dt_dtype type, void *dst, const void *src,
                              int n, int channels, int height, int width, int cp, float p,
                              uint64_t seed, uint32_t dropout_stream,
                              const struct dt_step_values *step)
{
    const double limit = (double)p * 4294967296.0;
    const size_t plane = (size_t)height * (size_t)width;
    const size_t count = (size_t)n * plane * (size_t)cp;
    struct dropout_args a;
    if (count / DT_CHANNEL_PACK > UINT32_MAX)
        return cudaErrorInvalidValue;
    a.channels = (unsigned)channels;
    a.plane = (unsigned)plane;
    a.packs = (unsigned)cp / DT_CHANNEL_PACK;
    a.stream = dropout_stream;
    a.threshold = limit < 4294967296.0 ? (uint32_t)limit : UINT32_MAX;
    a.seed = seed;
    a.scale = p < 1 ? (float)(1 / (1 - (double)p)) : 0;
    return DT_BY_TYPE(type, (dt_launch(dropout_kernel<T>, dt_flat_geometry(count), stream, dst, src,
                                       count / DT_CHANNEL_PACK, a, step)));
}

// --- Ingest ---

enum { INGEST_PIXELS = 4 };

static __device__ inline bool is_inside(const struct dt_ingest &a, unsigned row)
{
    const unsigned line = row / a.width, image = line / a.height;
    const int32_t *size = a.sizes + 2 * image;
    return (int)(line - image * a.height) < size[0] && (int)(row - line * a.width) < size[1];
}

// Pixels `first` .. `first` + 3 as 4 values each, zero for missing channels or pixels. Four pixels
// are CHANNELS words of 32 bits.
template <int CHANNELS>
static __device__ inline void read_pixels(float v[INGEST_PIXELS * 4], const uint8_t *src,
                                          size_t first, size_t rows, const struct dt_ingest &a)
{
    uint8_t byte[INGEST_PIXELS * CHANNELS] = {0};
    const uint8_t *from = src + first * CHANNELS;
    if (first + INGEST_PIXELS <= rows) {
        for (int i = 0; i < CHANNELS; i++) {
            const uint32_t word = reinterpret_cast<const uint32_t *>(from)[i];
            for (int k = 0; k < 4; k++)
                byte[4 * i + k] = (uint8_t)(word >> (8 * k));
        }
    } else {
        for (size_t i = 0; i < INGEST_PIXELS * CHANNELS; i++)
            byte[i] = i < (rows - first) * CHANNELS ? from[i] : 0;
    }
    for (int i = 0; i < INGEST_PIXELS; i++) {
        const bool inside = !a.sizes || (first + i < rows && is_inside(a, (unsigned)(first + i)));
        for (int c = 0; c < 4; c++)
            v[4 * i + c] = c < CHANNELS && inside
                               ? byte[i * CHANNELS + c % CHANNELS] * a.scale[c] + a.shift[c]
                               : 0;
    }
}

// One thread per 4 pixels. Per pixel: reads `channels` bytes, writes cp elements (3 + 8 bytes in 16
// bits).
template <typename T, int CHANNELS>
static __global__ void ingest_kernel(T *dst, const uint8_t *src, size_t rows, struct dt_ingest a)
{
    const size_t first = dt_flat_pack() * INGEST_PIXELS;
    if (first >= rows)
        return;
    float v[INGEST_PIXELS * 4];
    T *to = dst + first * a.cp;
    read_pixels<CHANNELS>(v, src, first, rows, a);
    if (a.cp == 4 && first + INGEST_PIXELS <= rows) {
        dt_store8(to, v);
        dt_store8(to + DT_CHANNEL_PACK, v + DT_CHANNEL_PACK);
        return;
    }
    for (int i = 0; i < INGEST_PIXELS && first + i < rows; i++, to += a.cp)
        for (int c = 0; c < a.cp; c++)
            dt_store1(to + c, c < 4 ? v[4 * i + c] : 0);
}

template <typename T>
static cudaError_t ingest(cudaStream_t stream, void *dst, const uint8_t *src,
                          const struct dt_ingest &a)
{
    const size_t rows = (size_t)a.n * a.height * a.width;
    const size_t threads = (rows + INGEST_PIXELS - 1) / INGEST_PIXELS;
    const struct dt_geometry geometry = dt_flat_geometry(threads * DT_CHANNEL_PACK);
    if (rows > UINT32_MAX)
        return cudaErrorInvalidValue;
    return a.channels == 3   ? dt_launch(ingest_kernel<T, 3>, geometry, stream, dst, src, rows, a)
           : a.channels == 2 ? dt_launch(ingest_kernel<T, 2>, geometry, stream, dst, src, rows, a)
           : a.channels == 1 ? dt_launch(ingest_kernel<T, 1>, geometry, stream, dst, src, rows, a)
                             : cudaErrorInvalidValue;
}

cudaError_t dt_kernel_ingest(cudaStream_t stream, enum dt_dtype type, void *dst, const uint8_t *src,
                             const struct dt_ingest *args)
{
    return DT_BY_TYPE(type, (ingest<T>(stream, dst, src, *args)));
}
