// Shared by the kernels of pooling (pool.cu, norm_pool.cu): places, windows, maxima.
#ifndef DTRAIN_KERNELS_POOL_CUH
#define DTRAIN_KERNELS_POOL_CUH

#include "kernels/device.cuh"

struct place {
    unsigned pack, w, h, n;
};

static __device__ inline struct place place_of_pixel(unsigned pixel, unsigned pack, unsigned height,
                                                     unsigned width)
{
    const unsigned line = pixel / width;
    return {pack, pixel - line * width, line % height, line / height};
}

// Position of pack `i` in the matrix (n, height, width) x packs.
static __device__ inline struct place place_of(unsigned i, unsigned packs, unsigned height,
                                               unsigned width)
{
    const unsigned pixel = i / packs;
    return place_of_pixel(pixel, i - pixel * packs, height, width);
}

// Element of channel 8 * pack at pixel (n, h, w).
static __device__ inline size_t offset_of(const struct place &at, int h, int w, int height,
                                          int width, int cp)
{
    return (((size_t)at.n * height + h) * width + w) * cp + at.pack * DT_CHANNEL_PACK;
}

// One thread per pack of the matrix (n, height, width) x packs: `kernel` gets `args`, then the
// shape and the number of packs.
template <typename... P, typename... A>
static cudaError_t launch(void (*kernel)(P...), const struct dt_pool_shape *s, int height,
                          int width, cudaStream_t stream, A... args)
{
    const size_t n_packs =
        (size_t)s->n * (size_t)height * (size_t)width * ((size_t)s->cp / DT_CHANNEL_PACK);
    if (n_packs > UINT32_MAX)
        return cudaErrorInvalidValue;
    return dt_launch(kernel, dt_flat_geometry(n_packs * DT_CHANNEL_PACK), stream, args..., *s,
                     n_packs);
}

// One byte each, the first in the lowest bits.
static __device__ inline void store_bytes8(uint8_t *p, const int v[DT_CHANNEL_PACK])
{
    *reinterpret_cast<uint2 *>(p) =
        make_uint2((unsigned)(v[0] | v[1] << 8 | v[2] << 16) | (unsigned)v[3] << 24,
                   (unsigned)(v[4] | v[5] << 8 | v[6] << 16) | (unsigned)v[7] << 24);
}

static __device__ inline void load_bytes8(int v[DT_CHANNEL_PACK], const uint8_t *p)
{
    const uint2 raw = *reinterpret_cast<const uint2 *>(p);
    for (int k = 0; k < 4; k++) {
        v[k] = (int)((raw.x >> (8 * k)) & 255);
        v[k + 4] = (int)((raw.y >> (8 * k)) & 255);
    }
}

struct maxima {
    float best[DT_CHANNEL_PACK];
    int index[DT_CHANNEL_PACK]; // in the window
};

static __device__ inline void maxima_take(struct maxima *m, const float v[DT_CHANNEL_PACK],
                                          int index)
{
    for (int k = 0; k < DT_CHANNEL_PACK; k++) {
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

// The window of an output. With a `size` that the compiler knows, there is no branch between the
// reads of a kernel.
struct window {
    int top, left, size;
};

static __device__ inline struct window window_at(const struct place &at, int size,
                                                 const struct dt_pool_shape &s)
{
    return {(int)at.h * s.stride - s.pad, (int)at.w * s.stride - s.pad, size};
}

struct window_pixel {
    int index; // in the window
    size_t offset;
};

// A position beyond the edge stands for the edge pixel, which is then seen more than once.
static __device__ inline struct window_pixel pixel_of(const struct window &window, int y, int x,
                                                      const struct place &at,
                                                      const struct dt_pool_shape &s)
{
    const int h = clamp(window.top + y, s.in_h), w = clamp(window.left + x, s.in_w);
    return {(h - window.top) * window.size + w - window.left,
            offset_of(at, h, w, s.in_h, s.in_w, s.cp)};
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

#endif
