// The parameter side of a step: the optimizers, sums of gradients over passes, 16-bit copies. One
// thread per 8 elements; all ranges of an update in one launch.
#include "kernels/device.cuh"
#include "kernels/ranges.h"

struct values {
    float w[DT_CHANNEL_PACK], m[DT_CHANNEL_PACK], v[DT_CHANNEL_PACK], g[DT_CHANNEL_PACK];
};

static __device__ inline struct dt_optim_step step_of(enum dt_optim optim,
                                                      const struct dt_step_values *step,
                                                      const struct dt_range_row &row)
{
    return dt_optim_step_of(optim, step->lr * row.rate, step->optim.weight_decay * row.decay,
                            step->unbias1, step->unbias2, &step->optim);
}

template <typename G>
static __device__ inline void load_gradient(struct values &a, const struct dt_update_memory &memory,
                                            size_t at, const struct dt_step_values *step,
                                            const struct dt_scale_state *scale)
{
    const float factor = scale->clip / scale->scale;
    dt_load8(a.g, static_cast<const G *>(memory.grads) + at);
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        a.g[k] = dt_optim_gradient(a.g[k], factor, step->optim.clip_value);
}

static __device__ inline void load_states(struct values &a, const struct dt_update_memory &memory,
                                          size_t at)
{
    dt_load8(a.w, memory.params + at);
    dt_load8(a.m, memory.momentum + at);
    if (memory.square)
        dt_load8(a.v, memory.square + at);
}

static __device__ inline void advance(enum dt_optim optim, struct values &a,
                                      const struct dt_update_memory &memory, size_t at,
                                      const struct dt_optim_step &s)
{
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        dt_optim_advance(optim, a.w[k], a.g[k], &a.m[k], &a.v[k], &s);
    dt_store8(memory.momentum + at, a.m);
    if (memory.square)
        dt_store8(memory.square + at, a.v);
}

// Per element: reads params, states and the gradient, writes params, states and the shadow: with
// one state 16 bytes + gradient + shadow (20 with 16-bit gradients and shadow, also 20 in fp32), 8
// more with two. After measure_kernel, lamb reads no gradient and writes no state.
template <typename G, typename S>
static __global__ void update_kernel(enum dt_optim optim, struct dt_update_memory memory,
                                     struct dt_range_table table, const struct dt_step_values *step,
                                     const struct dt_scale_state *scale)
{
    const size_t i = dt_flat_pack();
    if (i >= table.n_packs || scale->found)
        return;
    const struct dt_range_row &row = table.row[dt_range_table_find(&table, (uint32_t)i)];
    const size_t at = (row.first + (i - row.begin)) * DT_CHANNEL_PACK;
    const enum dt_trust trust = dt_optim_trust(optim);
    struct dt_optim_step s = step_of(optim, step, row);
    struct values a = {};
    if (trust != DT_TRUST_NONE && row.has_trust) {
        const float ratio = (float)memory.norms[2 * row.first_tile];
        (trust == DT_TRUST_GRADIENT ? s.inner : s.outer) *= ratio;
    }
    load_states(a, memory, at);
    if (trust != DT_TRUST_DIRECTION) {
        load_gradient<G>(a, memory, at, step, scale);
        advance(optim, a, memory, at, s);
    }
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        a.w[k] -= s.outer * dt_optim_direction(optim, a.w[k], a.g[k], a.m[k], a.v[k], &s);
    dt_store8(memory.params + at, a.w);
    if (memory.shadow)
        dt_store8(static_cast<S *>(memory.shadow) + at, a.w);
}

// One block per tile: the squared norms of its parameters and of their gradients (lars) or
// directions (lamb, whose states it advances). Per element: reads params and the gradient; lamb
// also reads and writes the states.
template <typename G>
static __global__ void measure_kernel(enum dt_optim optim, struct dt_update_memory memory,
                                      struct dt_range_table table,
                                      const struct dt_step_values *step,
                                      const struct dt_scale_state *scale)
{
    const uint32_t tile = table.row[0].first_tile + blockIdx.x;
    const uint32_t number = dt_range_table_find_tile(&table, tile);
    const struct dt_range_row &row = table.row[number];
    const bool moves = dt_optim_trust(optim) == DT_TRUST_DIRECTION;
    if (scale->found || (!moves && !row.has_trust))
        return;
    const struct dt_optim_step s = step_of(optim, step, row);
    const uint32_t first = (tile - row.first_tile) * (DT_TILE / DT_CHANNEL_PACK);
    const uint32_t left = dt_range_row_packs(&table, number) - first;
    const uint32_t n = left < DT_TILE / DT_CHANNEL_PACK ? left : DT_TILE / DT_CHANNEL_PACK;
    double w2 = 0, x2 = 0;
    for (uint32_t i = threadIdx.x; i < n; i += DT_BLOCK_THREADS) {
        const size_t at = ((size_t)row.first + first + i) * DT_CHANNEL_PACK;
        struct values a = {};
        load_gradient<G>(a, memory, at, step, scale);
        if (moves) {
            load_states(a, memory, at);
            advance(optim, a, memory, at, s);
        } else {
            dt_load8(a.w, memory.params + at);
        }
        for (int k = 0; k < DT_CHANNEL_PACK; k++) {
            const float x =
                moves ? dt_optim_direction(optim, a.w[k], a.g[k], a.m[k], a.v[k], &s) : a.g[k];
            w2 += (double)a.w[k] * (double)a.w[k];
            x2 += (double)x * (double)x;
        }
    }
    w2 = dt_fold_sum(w2);
    x2 = dt_fold_sum(x2);
    if (threadIdx.x == 0) {
        memory.norms[2 * (size_t)tile] = w2;
        memory.norms[2 * (size_t)tile + 1] = x2;
    }
}

// One block per range: its factor on the learning rate replaces the first sum.
static __global__ void ratio_kernel(enum dt_optim optim, struct dt_update_memory memory,
                                    struct dt_range_table table, const struct dt_step_values *step)
{
    const struct dt_range_row &row = table.row[blockIdx.x];
    double *norms = memory.norms + 2 * (size_t)row.first_tile, w2 = 0, x2 = 0;
    const uint32_t n = dt_range_row_tiles(&table, blockIdx.x);
    if (!row.has_trust)
        return;
    for (uint32_t t = threadIdx.x; t < n; t += DT_BLOCK_THREADS) {
        w2 += norms[2 * t];
        x2 += norms[2 * t + 1];
    }
    w2 = dt_fold_sum(w2);
    x2 = dt_fold_sum(x2);
    if (threadIdx.x == 0)
        norms[0] = (double)dt_optim_ratio(optim, w2, x2, step->optim.weight_decay * row.decay,
                                          &step->optim);
}

static cudaError_t find_ratios(cudaStream_t stream, enum dt_optim optim,
                               const struct dt_update_memory &memory, enum dt_dtype grads_type,
                               const struct dt_range_table &table,
                               const struct dt_step_values *step,
                               const struct dt_scale_state *scale)
{
    const uint32_t last = table.n_ranges - 1;
    const unsigned n_tiles =
        table.row[last].first_tile + dt_range_row_tiles(&table, last) - table.row[0].first_tile;
    const struct dt_geometry tiles = {n_tiles, 1, DT_BLOCK_THREADS, 1};
    const struct dt_geometry ranges = {table.n_ranges, 1, DT_BLOCK_THREADS, 1};
    cudaError_t code = DT_BY_TYPE(grads_type, (dt_launch(measure_kernel<T>, tiles, stream, optim,
                                                         memory, table, step, scale)));
    return code != cudaSuccess
               ? code
               : dt_launch(ratio_kernel, ranges, stream, optim, memory, table, step);
}

template <typename G>
static cudaError_t update(cudaStream_t stream, enum dt_optim optim,
                          const struct dt_update_memory &memory, enum dt_dtype shadow_type,
                          const struct dt_range_table &table, const struct dt_step_values *step,
                          const struct dt_scale_state *scale)
{
    const struct dt_geometry geometry = dt_flat_geometry((size_t)table.n_packs * DT_CHANNEL_PACK);
    return DT_BY_TYPE(shadow_type, (dt_launch(update_kernel<G, T>, geometry, stream, optim, memory,
                                              table, step, scale)));
}

cudaError_t dt_kernel_update(cudaStream_t stream, enum dt_optim optim,
                             const struct dt_update_memory *memory, enum dt_dtype shadow_type,
                             enum dt_dtype grads_type, const struct dt_range *ranges, int n_ranges,
                             const struct dt_step_values *step, const struct dt_scale_state *scale)
{
    struct dt_range_table table;
    if (!dt_range_table_fill(&table, ranges, n_ranges))
        return cudaErrorInvalidValue;
    if (table.n_ranges == 0)
        return cudaSuccess;
    if (dt_optim_trust(optim) != DT_TRUST_NONE) {
        const cudaError_t code =
            find_ratios(stream, optim, *memory, grads_type, table, step, scale);
        if (code != cudaSuccess)
            return code;
    }
    return DT_BY_TYPE(grads_type,
                      (update<T>(stream, optim, *memory, memory->shadow ? shadow_type : DT_F32,
                                 table, step, scale)));
}

// Per element: reads 8 bytes, writes 4.
static __global__ void lerp_kernel(float *dst, const float *src, size_t n_packs,
                                   const struct dt_step_values *step,
                                   const struct dt_scale_state *scale)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs || scale->found)
        return;
    float average[DT_CHANNEL_PACK], v[DT_CHANNEL_PACK];
    dt_load8(average, dst + i * DT_CHANNEL_PACK);
    dt_load8(v, src + i * DT_CHANNEL_PACK);
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        average[k] = dt_optim_lerp(average[k], v[k], step->ema_weight);
    dt_store8(dst + i * DT_CHANNEL_PACK, average);
}

cudaError_t dt_kernel_lerp(cudaStream_t stream, float *dst, const float *src, size_t count,
                           const struct dt_step_values *step, const struct dt_scale_state *scale)
{
    return dt_launch(lerp_kernel, dt_flat_geometry(count), stream, dst, src,
                     count / DT_CHANNEL_PACK, step, scale);
}

// Per element: reads the source, writes 4 bytes; reads 4 more if it adds.
template <typename T>
static __global__ void accumulate_kernel(float *dst, const T *src, size_t n_packs, bool first)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    float sum[DT_CHANNEL_PACK], v[DT_CHANNEL_PACK];
    dt_load8(sum, src + i * DT_CHANNEL_PACK);
    if (!first) {
        dt_load8(v, dst + i * DT_CHANNEL_PACK);
        for (int k = 0; k < DT_CHANNEL_PACK; k++)
            sum[k] += v[k];
    }
    dt_store8(dst + i * DT_CHANNEL_PACK, sum);
}

cudaError_t dt_kernel_accumulate(cudaStream_t stream, float *dst, enum dt_dtype type,
                                 const void *src, size_t count, bool first)
{
    return DT_BY_TYPE(type, (dt_launch(accumulate_kernel<T>, dt_flat_geometry(count), stream, dst,
                                       src, count / DT_CHANNEL_PACK, first)));
}

// Per element: reads 4 bytes, writes one element of the type.
template <typename T>
static __global__ void convert_kernel(T *dst, const float *src, size_t n_packs)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    float v[DT_CHANNEL_PACK];
    dt_load8(v, src + i * DT_CHANNEL_PACK);
    dt_store8(dst + i * DT_CHANNEL_PACK, v);
}

cudaError_t dt_kernel_convert(cudaStream_t stream, enum dt_dtype type, void *dst, const float *src,
                              size_t count)
{
    return DT_BY_TYPE(type, (dt_launch(convert_kernel<T>, dt_flat_geometry(count), stream, dst, src,
                                       count / DT_CHANNEL_PACK)));
}
