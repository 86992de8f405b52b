// Gate and scaled_add over rows x cp: rows times a factor of their image and channel. A thread
// keeps the factors of its 8 channels and loops over rows of one image: blockIdx.y is the number of
// the image and of the block's part of it.
//
// Bytes moved, of N = rows * cp elements of e bytes:
//   branch      reads N e (with residual 2 N e), writes N e
//   branch_bwd  reads 2 N e, writes N e; add_partials reads 4 * cp bytes per block, from L2
#include "kernels/partials.cuh"

#include <Random123/philox.h>

#include "base/rng.h"

// By the word of the image in the global batch, as dt_rng_fill makes it.
static __device__ inline float keep_image(const struct dt_branch &b, unsigned image,
                                          const struct dt_step_values *step)
{
    const uint64_t at = (uint64_t)step->first_row + image;
    const philox4x32_ctr_t counter = {{(uint32_t)(at / 4), b.stream, step->step, DT_RNG_DROPOUT}};
    const philox4x32_key_t key = {{(uint32_t)b.seed, (uint32_t)(b.seed >> 32)}};
    const uint32_t word = philox4x32(counter, key).v[at % 4];
    return word >= (uint32_t)((double)b.p * 4294967296.0) ? (float)(1 / (1 - (double)b.p)) : 0;
}

// dst = factor * src [+ other]; backward, dst = factor * src and partial = sums of src * other.
template <typename T, bool IS_BACKWARD>
static __global__ void branch_kernel(T *dst, float *partial, const T *src, const T *other,
                                     struct dt_branch b, const struct dt_step_values *step)
{
    const unsigned parts = gridDim.y / b.n, image = blockIdx.y / parts;
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x) * DT_CHANNEL_PACK;
    const float keep = keep_image(b, image, step);
    float factor[DT_CHANNEL_PACK], sum[DT_CHANNEL_PACK] = {0};

    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        factor[k] = 1;
    if (c < b.cp && b.factor)
        dt_load8(factor, static_cast<const T *>(b.factor) + (size_t)image * b.cp + c);
    else if (c < b.cp && b.scale)
        dt_load8(factor, b.scale + c);
    unsigned row = blockIdx.y % parts * blockDim.y + threadIdx.y;
    for (; c < b.cp && row < (unsigned)b.pixels; row += parts * blockDim.y) {
        const size_t at = ((size_t)image * b.pixels + row) * b.cp + c;
        float v[DT_CHANNEL_PACK], w[DT_CHANNEL_PACK] = {0};
        dt_load8(v, src + at);
        if (other)
            dt_load8(w, other + at);
        for (int k = 0; k < DT_CHANNEL_PACK; k++) {
            sum[k] = fmaf(v[k], w[k], sum[k]);
            v[k] = fmaf(keep * factor[k], v[k], IS_BACKWARD ? 0 : w[k]);
        }
        dt_store8(dst + at, v);
    }
    if (IS_BACKWARD) {
        for (int k = 0; k < DT_CHANNEL_PACK; k++)
            sum[k] *= keep;
        store_partial_sums(partial, sum, c, b.cp);
    }
}

static struct dt_geometry geometry_of(const struct dt_branch *b)
{
    return dt_images_geometry(dt_channel_geometry((size_t)b->pixels, b->cp), b->n);
}

cudaError_t dt_kernel_branch(cudaStream_t stream, enum dt_dtype type, void *dst, const void *src,
                             const void *residual, const struct dt_branch *branch,
                             const struct dt_step_values *step)
{
    float *none = NULL;
    return DT_BY_TYPE(type, (dt_launch(branch_kernel<T, false>, geometry_of(branch), stream, dst,
                                       none, src, residual, *branch, step)));
}

cudaError_t dt_kernel_branch_bwd(cudaStream_t stream, enum dt_dtype type, void *diff_src,
                                 void *diff_factor, float *partial, const void *diff_dst,
                                 const void *src, const struct dt_branch *branch,
                                 const struct dt_step_values *step)
{
    const struct dt_geometry g = geometry_of(branch);
    const unsigned n = (unsigned)branch->n;
    cudaError_t error = DT_BY_TYPE(type, (dt_launch(branch_kernel<T, true>, g, stream, diff_src,
                                                    partial, diff_dst, src, *branch, step)));
    if (error == cudaSuccess && branch->factor)
        error = DT_BY_TYPE(
            type, (add_partials<T>(stream, diff_factor, partial, n, g.grid_y / n, branch->cp)));
    else if (error == cudaSuccess)
        error = add_partials<float>(stream, diff_factor, partial, 1, g.grid_y, branch->cp);
    return error;
}
