// The parameter side of a step: momentum SGD, sums of gradients over passes, 16-bit copies. One
// thread per 8 elements; all ranges of an update in one launch.
#include "kernels/device.cuh"
#include "kernels/ranges.h"

struct update_memory {
    float *params, *momentum;
    void *shadow; // may be NULL
    const void *grads;
};

struct sgd {
    float lr, momentum, decay, grad_scale;
    bool nesterov;
};

static __device__ inline void sgd8(float w[DT_GROUP], float m[DT_GROUP], const float grad[DT_GROUP],
                                   const struct sgd &s)
{
    for (int k = 0; k < DT_GROUP; k++) {
        const float g = grad[k] * s.grad_scale + s.decay * w[k];
        m[k] = s.momentum * m[k] + g;
        w[k] -= s.lr * (s.nesterov ? g + s.momentum * m[k] : m[k]);
    }
}

// Per element: reads params, momentum and the gradient, writes params, momentum and the shadow:
// 16 bytes + gradient + shadow (20 with 16-bit gradients and shadow, also 20 in fp32).
template <typename G, typename S>
static __global__ void update_kernel(struct update_memory memory, struct dt_range_table table,
                                     const struct dt_step_values *step,
                                     const struct dt_scale_state *scale)
{
    const size_t i = dt_flat_group();
    if (i >= table.n_groups || scale->found)
        return;
    const struct dt_range_row &row = table.row[dt_range_table_find(&table, (uint32_t)i)];
    const size_t at = (row.first + (i - row.begin)) * DT_GROUP;
    const struct sgd s = {step->lr * row.rate, step->momentum, step->weight_decay * row.decay,
                          1 / scale->scale, step->nesterov != 0};
    float w[DT_GROUP], m[DT_GROUP], g[DT_GROUP];
    dt_load8(w, memory.params + at);
    dt_load8(m, memory.momentum + at);
    dt_load8(g, static_cast<const G *>(memory.grads) + at);
    sgd8(w, m, g, s);
    dt_store8(memory.params + at, w);
    dt_store8(memory.momentum + at, m);
    if (memory.shadow)
        dt_store8(static_cast<S *>(memory.shadow) + at, w);
}

template <typename G>
static cudaError_t update(cudaStream_t stream, const struct update_memory &memory,
                          enum dt_dtype shadow_type, const struct dt_range_table &table,
                          const struct dt_step_values *step, const struct dt_scale_state *scale)
{
    const struct dt_geometry geometry = dt_flat_geometry((size_t)table.n_groups * DT_GROUP);
    return DT_BY_TYPE(shadow_type, (dt_launch(update_kernel<G, T>, geometry, stream, memory, table,
                                              step, scale)));
}

cudaError_t dt_kernel_update(cudaStream_t stream, float *params, float *momentum, void *shadow,
                             enum dt_dtype shadow_type, const void *grads, enum dt_dtype grads_type,
                             const struct dt_range *ranges, int n_ranges,
                             const struct dt_step_values *step, const struct dt_scale_state *scale)
{
    struct dt_range_table table;
    const struct update_memory memory = {params, momentum, shadow, grads};
    if (!dt_range_table_fill(&table, ranges, n_ranges))
        return cudaErrorInvalidValue;
    return DT_BY_TYPE(
        grads_type, (update<T>(stream, memory, shadow ? shadow_type : DT_F32, table, step, scale)));
}

// Per element: reads the source, writes 4 bytes; reads 4 more if it adds.
template <typename T>
static __global__ void accumulate_kernel(float *dst, const T *src, size_t n_groups, bool first)
{
    const size_t i = dt_flat_group();
    if (i >= n_groups)
        return;
    float sum[DT_GROUP], v[DT_GROUP];
    dt_load8(sum, src + i * DT_GROUP);
    if (!first) {
        dt_load8(v, dst + i * DT_GROUP);
        for (int k = 0; k < DT_GROUP; k++)
            sum[k] += v[k];
    }
    dt_store8(dst + i * DT_GROUP, sum);
}

cudaError_t dt_kernel_accumulate(cudaStream_t stream, float *dst, enum dt_dtype type,
                                 const void *src, size_t count, bool first)
{
    return DT_BY_TYPE(type, (dt_launch(accumulate_kernel<T>, dt_flat_geometry(count), stream, dst,
                                       src, count / DT_GROUP, first)));
}

// Per element: reads 4 bytes, writes one element of the type.
template <typename T>
static __global__ void convert_kernel(T *dst, const float *src, size_t n_groups)
{
    const size_t i = dt_flat_group();
    if (i >= n_groups)
        return;
    float v[DT_GROUP];
    dt_load8(v, src + i * DT_GROUP);
    dt_store8(dst + i * DT_GROUP, v);
}

cudaError_t dt_kernel_convert(cudaStream_t stream, enum dt_dtype type, void *dst, const float *src,
                              size_t count)
{
    return DT_BY_TYPE(type, (dt_launch(convert_kernel<T>, dt_flat_geometry(count), stream, dst, src,
                                       count / DT_GROUP)));
}
