// Batch norm, ReLU and max pooling in one, as in the stem of a residual network. The normalised
// tensor and its gradient, the largest of all, are never in memory, nor is the mask of the ReLU:
// `where` says that a window has no gradient.
//
// Bytes moved, of N elements of src in windows with stride s; diff_dst and dst have N / s^2:
//   bn_max_pool        reads N e, writes dst and where, 1 byte per element of dst
//   bn_pool_bwd_sums   reads N e, diff_dst and where
//   bn_pool_bwd_apply  reads N e, diff_dst and where, writes N e
// A pixel is in several windows (in 3 x 3 with stride 2 in 2.25), so instructions count here. The
// sums go over the windows, not over the pixels, and a thread makes the gradient of a square of
// pixels, which share their windows and the divisions that find them. Per 8 channels of a pixel in
// 16 bits, that is about 120 instructions for 22 bytes and 230 for 38, which an H100 executes in
// somewhat less time than it moves the bytes. Forward, 200 for 22 bytes take somewhat more.
#include "kernels/norm.cuh"
#include "kernels/pool.cuh"

enum {
    NO_GRADIENT = 255, // no pixel of a window of DT_BN_POOL_MAX_KERNEL has that index
    SQUARE = 2,
    POOL_BLOCKS_PER_SM = 2, // backward, for the registers of its reads in flight
};

// For the usual windows, the compiler unrolls the loops and divides by shifts.
static bool is_stem(const struct dt_pool_shape *s)
{
    return s->kernel == 3 && s->stride == 2;
}

template <bool STEM> static __device__ inline void assume_stem(struct dt_pool_shape *s)
{
    if (STEM) {
        s->kernel = 3;
        s->stride = 2;
    }
}

template <typename T> static __device__ inline void round8(float v[DT_CHANNEL_PACK])
{
    raw8<T> raw;
    dt_store8(reinterpret_cast<T *>(&raw), v);
    unpack8(v, raw);
}

// y = a * x + b of the pixel.
template <typename T>
static __device__ inline void normalise(float y[DT_CHANNEL_PACK], const T *x,
                                        const float a[DT_CHANNEL_PACK],
                                        const float b[DT_CHANNEL_PACK])
{
    dt_load8(y, x);
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        y[k] = fmaf(y[k], a[k], b[k]);
}

// One thread per 8 channels of an output. The ReLU comes after the maximum: where that is not
// positive, all values become 0, of which the first is taken.
template <typename T, bool STEM>
static __global__ void bn_max_pool_kernel(T *dst, uint8_t *where, const T *src,
                                          struct dt_bn_vectors in, float eps,
                                          struct dt_pool_shape s, size_t n_packs)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    assume_stem<STEM>(&s);
    const struct place at = place_of((unsigned)i, s.cp / DT_CHANNEL_PACK, s.out_h, s.out_w);
    const struct window window = window_at(at, s.kernel, s);
    const struct window_pixel first = pixel_of(window, 0, 0, at, s);
    float a[DT_CHANNEL_PACK], b[DT_CHANNEL_PACK], y0[DT_CHANNEL_PACK];
    struct maxima m;

    forward_coefs(a, b, in, eps, (int)at.pack * DT_CHANNEL_PACK);
    for (int k = 0; k < DT_CHANNEL_PACK; k++) {
        m.best[k] = -INFINITY;
        m.index[k] = first.index;
    }
    for (int y = 0; y < window.size; y++) {
        for (int x = 0; x < window.size; x++) {
            const struct window_pixel pixel = pixel_of(window, y, x, at, s);
            float v[DT_CHANNEL_PACK];
            normalise(v, src + pixel.offset, a, b);
            round8<T>(v);
            maxima_take(&m, v, pixel.index);
        }
    }
    normalise(y0, src + first.offset, a, b);
    for (int k = 0; k < DT_CHANNEL_PACK; k++) {
        if (m.best[k] <= 0) {
            m.best[k] = y0[k] < 0 ? 0 : y0[k];
            m.index[k] = y0[k] <= 0 ? NO_GRADIENT : m.index[k]; // > 0 has been rounded
        }
    }
    dt_store8(dst + i * DT_CHANNEL_PACK, m.best);
    if (where)
        store_bytes8(where + i * DT_CHANNEL_PACK, m.index);
}

// The pixel of src that each of the 8 channels of an output has taken. Unrolled, the reads do not
// wait for each other.
template <typename T>
static __device__ inline void load_taken(float taken[DT_CHANNEL_PACK],
                                         const int index[DT_CHANNEL_PACK], const T *src,
                                         const struct place &at, const struct dt_pool_shape &s)
{
    const struct window window = window_at(at, s.kernel, s);
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        taken[k] = 0;
#pragma unroll
    for (int y = 0; y < window.size; y++) {
        for (int x = 0; x < window.size; x++) {
            const struct window_pixel pixel = pixel_of(window, y, x, at, s);
            float v[DT_CHANNEL_PACK];
            dt_load8(v, src + pixel.offset);
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                taken[k] = index[k] == pixel.index ? v[k] : taken[k];
        }
    }
}

// The sums of bn_bwd_sums: only the pixels that windows have taken add to them.
template <typename T, bool STEM>
static __global__ void __launch_bounds__(DT_SUM_THREADS,
                                         POOL_BLOCKS_PER_SM *DT_BLOCK_THREADS / DT_SUM_THREADS)
    bn_pool_bwd_sums_kernel(struct dt_bn_sums out, const T *src, const T *diff_dst,
                            const uint8_t *where, struct dt_bn_vectors bn, struct dt_norm_args args,
                            struct dt_pool_shape s)
{
    assume_stem<STEM>(&s);
    const struct walk w = walk_of((unsigned)s.n * s.out_h * s.out_w, s.cp);
    float sum[DT_CHANNEL_PACK] = {}, product[DT_CHANNEL_PACK] = {};

    if (w.c < w.cp) {
        float mean[DT_CHANNEL_PACK];
        dt_load8(mean, bn.mean + w.c);
        for (unsigned row = w.first; row < w.rows; row += w.step) {
            const unsigned pixel = w.rows - 1 - row;
            const struct place at = place_of_pixel(pixel, w.c / DT_CHANNEL_PACK, s.out_h, s.out_w);
            float g[DT_CHANNEL_PACK], taken[DT_CHANNEL_PACK];
            int index[DT_CHANNEL_PACK];
            load_bytes8(index, where + at_row(w, pixel));
            dt_load8(g, diff_dst + at_row(w, pixel));
            load_taken(taken, index, src, at, s);
            for (int k = 0; k < DT_CHANNEL_PACK; k++) {
                g[k] = index[k] == NO_GRADIENT ? 0 : g[k];
                sum[k] += g[k];
                product[k] = fmaf(g[k], taken[k] - mean[k], product[k]);
            }
        }
    }
    store_partial(out.partial, w, sum, product);
    if (is_last_block(args.tickets))
        finalize_bwd_sums(out, bn, args);
}

// Adds the gradient of output (oh, ow) to that of the pixels of a square which it has taken.
template <typename T>
static __device__ inline void scatter(float g[SQUARE][SQUARE][DT_CHANNEL_PACK], const T *diff_dst,
                                      const uint8_t *where, int oh, int ow, const struct place &at,
                                      const struct dt_pool_shape &s)
{
    const size_t from = offset_of(at, oh, ow, s.out_h, s.out_w, s.cp);
    const int top = (int)at.h * SQUARE + s.pad - oh * s.stride;
    const int left = (int)at.w * SQUARE + s.pad - ow * s.stride;
    float diff[DT_CHANNEL_PACK];
    int index[DT_CHANNEL_PACK];

    dt_load8(diff, diff_dst + from);
    load_bytes8(index, where + from);
    for (int y = 0; y < SQUARE; y++) {
        for (int x = 0; x < SQUARE; x++) {
            const bool inside = (unsigned)(top + y) < (unsigned)s.kernel &&
                                (unsigned)(left + x) < (unsigned)s.kernel;
            const int mine = inside ? (top + y) * s.kernel + left + x : -1;
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                g[y][x][k] += index[k] == mine ? diff[k] : 0;
        }
    }
}

static DT_HOST_DEVICE inline int squares(int n)
{
    return (n + SQUARE - 1) / SQUARE;
}

// One thread per 8 channels of a square of pixels of src; diff_src may be src.
template <typename T, bool STEM>
static __global__ void __launch_bounds__(DT_BLOCK_THREADS, POOL_BLOCKS_PER_SM)
    bn_pool_bwd_apply_kernel(T *diff_src, const T *src, const T *diff_dst, const uint8_t *where,
                             const float *coefs, struct dt_pool_shape s, size_t n_packs)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    assume_stem<STEM>(&s);
    const struct place at =
        place_of((unsigned)i, s.cp / DT_CHANNEL_PACK, squares(s.in_h), squares(s.in_w));
    const int h = (int)at.h * SQUARE, w = (int)at.w * SQUARE;
    const int oh_end = windows_over(h + SQUARE - 1, s.out_h, s).end;
    const int ow_end = windows_over(w + SQUARE - 1, s.out_w, s).end;
    float g[SQUARE][SQUARE][DT_CHANNEL_PACK] = {};
    raw8<T> raw[SQUARE][SQUARE];
    struct bwd_channels c;

    for (int y = 0; y < SQUARE; y++)
        for (int x = 0; x < SQUARE; x++)
            raw[y][x] = read8(src + offset_of(at, clamp(h + y, s.in_h), clamp(w + x, s.in_w),
                                              s.in_h, s.in_w, s.cp));
    for (int oh = windows_over(h, s.out_h, s).first; oh < oh_end; oh++)
        for (int ow = windows_over(w, s.out_w, s).first; ow < ow_end; ow++)
            scatter(g, diff_dst, where, oh, ow, at, s);
    load_bwd_channels(&c, coefs, (int)at.pack * DT_CHANNEL_PACK, s.cp);
    for (int y = 0; y < SQUARE; y++) {
        for (int x = 0; x < SQUARE; x++) {
            if (h + y >= s.in_h || w + x >= s.in_w)
                continue;
            float v[DT_CHANNEL_PACK];
            unpack8(v, raw[y][x]);
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                v[k] = fmaf(c.g[k], g[y][x][k], fmaf(c.x[k], v[k], c.one[k]));
            dt_store8(diff_src + offset_of(at, h + y, w + x, s.in_h, s.in_w, s.cp), v);
        }
    }
}

// --- Launchers ---

cudaError_t dt_kernel_bn_max_pool(cudaStream_t stream, enum dt_dtype type, void *dst,
                                  uint8_t *where, const void *src, const struct dt_bn_vectors *bn,
                                  float eps, const struct dt_pool_shape *shape)
{
    if (shape->kernel > DT_BN_POOL_MAX_KERNEL)
        return cudaErrorInvalidValue;
    return DT_BY_TYPE(
        type, (launch(is_stem(shape) ? bn_max_pool_kernel<T, true> : bn_max_pool_kernel<T, false>,
                      shape, shape->out_h, shape->out_w, stream, dst, where, src, *bn, eps)));
}

cudaError_t dt_kernel_bn_pool_bwd_sums(cudaStream_t stream, enum dt_dtype type,
                                       const struct dt_bn_sums *out, const void *src,
                                       const void *diff_dst, const uint8_t *where,
                                       const struct dt_bn_vectors *bn,
                                       const struct dt_norm_args *args,
                                       const struct dt_pool_shape *shape)
{
    const struct dt_geometry g = dt_sums_geometry(args->rows, args->cp);
    if (g.grid_x > DT_MAX_TICKETS)
        return cudaErrorInvalidValue;
    return DT_BY_TYPE(type, (dt_launch(is_stem(shape) ? bn_pool_bwd_sums_kernel<T, true>
                                                      : bn_pool_bwd_sums_kernel<T, false>,
                                       g, stream, *out, src, diff_dst, where, *bn, *args, *shape)));
}

cudaError_t dt_kernel_bn_pool_bwd_apply(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                        const void *src, const void *diff_dst, const uint8_t *where,
                                        const float *coefs, const struct dt_pool_shape *shape)
{
    return DT_BY_TYPE(type, (launch(is_stem(shape) ? bn_pool_bwd_apply_kernel<T, true>
                                                   : bn_pool_bwd_apply_kernel<T, false>,
                                    shape, squares(shape->in_h), squares(shape->in_w), stream,
                                    diff_src, src, diff_dst, where, coefs)));
}
