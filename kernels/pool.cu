// Pooling. One thread per 8 channels of one output pixel, forward and backward: a gradient gathers
// from the windows that cover its pixel, so no two threads add to the same place. Overlapping
// windows are re-read from the caches; memory is read once.
#include "kernels/device.cuh"

struct place {
    unsigned group, w, h, n;
};

// Position of group `i` in the matrix (n, height, width) x groups.
static __device__ inline struct place place_of(unsigned i, unsigned groups, unsigned height,
                                               unsigned width)
{
    const unsigned pixel = i / groups, line = pixel / width;
    return {i - pixel * groups, pixel - line * width, line % height, line / height};
}

// Element of channel 8 * group at pixel (n, h, w).
static __device__ inline size_t offset_of(const struct place &at, int h, int w, int height,
                                          int width, int cp)
{
    return (((size_t)at.n * height + h) * width + w) * cp + at.group * DT_GROUP;
}

// One thread per group of the matrix (n, height, width) x groups: `kernel` gets `args`, then the
// shape and the number of groups.
template <typename... P, typename... A>
static cudaError_t launch(void (*kernel)(P...), const struct dt_pool_shape *s, int height,
                          int width, cudaStream_t stream, A... args)
{
    const size_t n_groups =
        (size_t)s->n * (size_t)height * (size_t)width * ((size_t)s->cp / DT_GROUP);
    if (n_groups > UINT32_MAX)
        return cudaErrorInvalidValue;
    return dt_launch(kernel, dt_flat_geometry(n_groups * DT_GROUP), stream, args..., *s, n_groups);
}

// One byte each, the first in the lowest bits.
static __device__ inline void store_bytes8(uint8_t *p, const int v[DT_GROUP])
{
    *reinterpret_cast<uint2 *>(p) =
        make_uint2((unsigned)(v[0] | v[1] << 8 | v[2] << 16) | (unsigned)v[3] << 24,
                   (unsigned)(v[4] | v[5] << 8 | v[6] << 16) | (unsigned)v[7] << 24);
}

static __device__ inline void load_bytes8(int v[DT_GROUP], const uint8_t *p)
{
    const uint2 raw = *reinterpret_cast<const uint2 *>(p);
    for (int k = 0; k < 4; k++) {
        v[k] = (int)((raw.x >> (8 * k)) & 255);
        v[k + 4] = (int)((raw.y >> (8 * k)) & 255);
    }
}

// --- Max pooling ---

struct maxima {
    float best[DT_GROUP];
    int index[DT_GROUP]; // in the window
};

static __device__ inline void maxima_take(struct maxima *m, const float v[DT_GROUP], int index)
{
    for (int k = 0; k < DT_GROUP; k++) {
        // Larger or NaN, unless the maximum is already NaN.
        if (!(v[k] <= m->best[k]) && m->best[k] == m->best[k]) {
            m->best[k] = v[k];
            m->index[k] = index;
        }
    }
}

static __device__ inline int clamp(int i, int n)
{
    return min(max(i, 0), n - 1);
}

// Reads src once, writes dst and one byte per element of dst. Positions beyond the edge read the
// edge pixel again, which changes nothing, so there is no branch between the reads if the compiler
// knows the window size (KERNEL; 0: s.kernel).
template <typename T, int KERNEL>
static __global__ void max_pool_kernel(T *dst, uint8_t *where, const T *src, struct dt_pool_shape s,
                                       size_t n_groups)
{
    const size_t i = dt_flat_group();
    if (i >= n_groups)
        return;
    const struct place at = place_of((unsigned)i, s.cp / DT_GROUP, s.out_h, s.out_w);
    const int top = (int)at.h * s.stride - s.pad, left = (int)at.w * s.stride - s.pad;
    const int kernel = KERNEL > 0 ? KERNEL : s.kernel;
    struct maxima m;

    for (int k = 0; k < DT_GROUP; k++) {
        m.best[k] = -INFINITY;
        m.index[k] = (clamp(top, s.in_h) - top) * kernel + clamp(left, s.in_w) - left;
    }
    for (int y = 0; y < kernel; y++) {
        for (int x = 0; x < kernel; x++) {
            const int h = clamp(top + y, s.in_h), w = clamp(left + x, s.in_w);
            float v[DT_GROUP];
            dt_load8(v, src + offset_of(at, h, w, s.in_h, s.in_w, s.cp));
            maxima_take(&m, v, (h - top) * kernel + w - left);
        }
    }
    dt_store8(dst + i * DT_GROUP, m.best);
    if (where)
        store_bytes8(where + i * DT_GROUP, m.index);
}

template <typename T>
static cudaError_t max_pool(cudaStream_t stream, void *dst, uint8_t *where, const void *src,
                            const struct dt_pool_shape *shape)
{
    return launch(shape->kernel == 3 ? max_pool_kernel<T, 3> : max_pool_kernel<T, 0>, shape,
                  shape->out_h, shape->out_w, stream, dst, where, src);
}

cudaError_t dt_kernel_max_pool(cudaStream_t stream, enum dt_dtype type, void *dst, uint8_t *where,
                               const void *src, const struct dt_pool_shape *shape)
{
    if (shape->kernel > 16)
        return cudaErrorInvalidValue;
    return DT_BY_TYPE(type, max_pool<T>(stream, dst, where, src, shape));
}

// Outputs whose window covers input `i`.
struct window_range {
    int first, end;
};

static __device__ inline struct window_range windows_over(int i, int n_out,
                                                          const struct dt_pool_shape &s)
{
    const int last = i + s.pad, past = last - s.kernel;
    return {past < 0 ? 0 : past / s.stride + 1, min(n_out, last / s.stride + 1)};
}

// Reads diff_dst and the bytes once, writes diff_src.
template <typename T>
static __global__ void max_pool_bwd_kernel(T *diff_src, const T *diff_dst, const uint8_t *where,
                                           struct dt_pool_shape s, size_t n_groups)
{
    const size_t i = dt_flat_group();
    if (i >= n_groups)
        return;
    const struct place at = place_of((unsigned)i, s.cp / DT_GROUP, s.in_h, s.in_w);
    const struct window_range rows = windows_over((int)at.h, s.out_h, s);
    const struct window_range columns = windows_over((int)at.w, s.out_w, s);
    float sum[DT_GROUP] = {0};

    for (int oh = rows.first; oh < rows.end; oh++) {
        for (int ow = columns.first; ow < columns.end; ow++) {
            const size_t from = offset_of(at, oh, ow, s.out_h, s.out_w, s.cp);
            const int mine =
                ((int)at.h + s.pad - oh * s.stride) * s.kernel + (int)at.w + s.pad - ow * s.stride;
            float diff[DT_GROUP];
            int index[DT_GROUP];
            dt_load8(diff, diff_dst + from);
            load_bytes8(index, where + from);
            for (int k = 0; k < DT_GROUP; k++)
                sum[k] += index[k] == mine ? diff[k] : 0;
        }
    }
    dt_store8(diff_src + i * DT_GROUP, sum);
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
static __global__ void avg_pool_kernel(T *dst, const T *src, struct dt_pool_shape s,
                                       size_t n_groups)
{
    const size_t i = dt_flat_group();
    if (i >= n_groups)
        return;
    const struct place at = place_of((unsigned)i, s.cp / DT_GROUP, s.out_h, s.out_w);
    const struct window_range rows = window_of(at.h, s.in_h, s.out_h);
    const struct window_range columns = window_of(at.w, s.in_w, s.out_w);
    const float area = (float)(length_of(rows) * length_of(columns));
    float sum[DT_GROUP] = {0}, v[DT_GROUP];

    for (int h = rows.first; h < rows.end; h++) {
        for (int w = columns.first; w < columns.end; w++) {
            dt_load8(v, src + offset_of(at, h, w, s.in_h, s.in_w, s.cp));
            for (int k = 0; k < DT_GROUP; k++)
                sum[k] += v[k];
        }
    }
    for (int k = 0; k < DT_GROUP; k++)
        sum[k] /= area;
    dt_store8(dst + i * DT_GROUP, sum);
}

cudaError_t dt_kernel_avg_pool(cudaStream_t stream, enum dt_dtype type, void *dst, const void *src,
                               const struct dt_pool_shape *shape)
{
    return DT_BY_TYPE(
        type, (launch(avg_pool_kernel<T>, shape, shape->out_h, shape->out_w, stream, dst, src)));
}

// Reads diff_dst once, writes diff_src.
template <typename T>
static __global__ void avg_pool_bwd_kernel(T *diff_src, const T *diff_dst, struct dt_pool_shape s,
                                           size_t n_groups)
{
    const size_t i = dt_flat_group();
    if (i >= n_groups)
        return;
    const struct place at = place_of((unsigned)i, s.cp / DT_GROUP, s.in_h, s.in_w);
    const struct window_range rows = window_of(at.h, s.out_h, s.in_h);
    const struct window_range columns = window_of(at.w, s.out_w, s.in_w);
    float sum[DT_GROUP] = {0}, v[DT_GROUP];

    for (int oh = rows.first; oh < rows.end; oh++) {
        const int height = length_of(window_of(oh, s.in_h, s.out_h));
        for (int ow = columns.first; ow < columns.end; ow++) {
            const float area = (float)(height * length_of(window_of(ow, s.in_w, s.out_w)));
            dt_load8(v, diff_dst + offset_of(at, oh, ow, s.out_h, s.out_w, s.cp));
            for (int k = 0; k < DT_GROUP; k++)
                sum[k] += v[k] / area;
        }
    }
    dt_store8(diff_src + i * DT_GROUP, sum);
}

cudaError_t dt_kernel_avg_pool_bwd(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                   const void *diff_dst, const struct dt_pool_shape *shape)
{
    return DT_BY_TYPE(type, (launch(avg_pool_bwd_kernel<T>, shape, shape->in_h, shape->in_w, stream,
                                    diff_src, diff_dst)));
}
