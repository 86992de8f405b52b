// Concatenation along the channels, and its gradient, which is one part of diff_dst: one thread per
// 8 channels of dst. Reads and writes each element once; a part that does not begin with a pack of
// 8 is read by element.
#include "kernels/device.cuh"

template <typename T>
static __global__ void concat_kernel(T *dst, struct dt_parts parts, unsigned packs, size_t n_packs)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    const size_t row = i / packs;
    int at = (int)(i - row * packs) * DT_CHANNEL_PACK; // in part j
    float v[DT_CHANNEL_PACK] = {0};
    for (int j = 0; j < parts.n; at -= parts.channels[j++]) {
        const T *src = static_cast<const T *>(parts.at[j]) + row * parts.cp[j];
        const bool is_aligned = (uintptr_t)(src + at) % (DT_CHANNEL_PACK * sizeof(T)) == 0;
        if (at >= 0 && at + DT_CHANNEL_PACK <= parts.channels[j] && is_aligned) {
            dt_load8(v, src + at);
            continue;
        }
        for (int k = 0; k < DT_CHANNEL_PACK; k++)
            if (at + k >= 0 && at + k < parts.channels[j])
                v[k] = static_cast<float>(src[at + k]);
    }
    dt_store8(dst + i * DT_CHANNEL_PACK, v);
}

cudaError_t dt_kernel_concat(cudaStream_t stream, enum dt_dtype type, void *dst, size_t rows,
                             int cp, const struct dt_parts *parts)
{
    const size_t count = rows * (size_t)cp;
    return DT_BY_TYPE(type, (dt_launch(concat_kernel<T>, dt_flat_geometry(count), stream, dst,
                                       *parts, cp / DT_CHANNEL_PACK, count / DT_CHANNEL_PACK)));
}
