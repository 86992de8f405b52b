// State of a step rather than of a tensor: its values, whether it counts, the loss scale. The
// values are passed as kernel parameters, not in host memory, which a later step could overwrite
// too early.
#include "kernels/device.cuh"

static const struct dt_geometry ONE_THREAD = {1, 1, 1, 1};

static __global__ void set_step_kernel(struct dt_step_values *step, struct dt_step_values values,
                                       const struct dt_scale_state *state)
{
    dt_optim_unbias(&values.unbias1, &values.unbias2, state->n_updates + 1, &values.optim);
    *step = values;
}

static __global__ void set_scale_kernel(struct dt_scale_state *state, struct dt_scale_state values)
{
    *state = values;
}

static __global__ void settle_kernel(struct dt_scale_state *state,
                                     struct dt_step_counters *counters)
{
    dt_scale_state_advance(state, counters);
}

// Reads each element once, writes nothing as long as all are finite.
template <typename T>
static __global__ void check_kernel(struct dt_scale_state *state, const T *src, size_t n_packs)
{
    const size_t i = dt_flat_pack();
    if (i >= n_packs)
        return;
    float v[DT_CHANNEL_PACK];
    bool finite = true;
    dt_load8(v, src + i * DT_CHANNEL_PACK);
    for (int k = 0; k < DT_CHANNEL_PACK; k++)
        finite = finite && isfinite(v[k]);
    if (!finite)
        atomicOr(&state->found, 1);
}

cudaError_t dt_kernel_set_step(cudaStream_t stream, struct dt_step_values *step,
                               const struct dt_step_values *values,
                               const struct dt_scale_state *state)
{
    return dt_launch(set_step_kernel, ONE_THREAD, stream, step, *values, state);
}

cudaError_t dt_kernel_set_scale(cudaStream_t stream, struct dt_scale_state *state,
                                const struct dt_scale_state *values)
{
    return dt_launch(set_scale_kernel, ONE_THREAD, stream, state, *values);
}

cudaError_t dt_kernel_check(cudaStream_t stream, struct dt_scale_state *state, enum dt_dtype type,
                            const void *src, size_t count)
{
    return DT_BY_TYPE(type, (dt_launch(check_kernel<T>, dt_flat_geometry(count), stream, state, src,
                                       count / DT_CHANNEL_PACK)));
}

// One block per tile. Reads each element once.
template <typename T>
static __global__ void check_norms_kernel(struct dt_scale_state *state, const T *src,
                                          size_t n_packs, double *norms)
{
    const size_t tile = DT_TILE / DT_CHANNEL_PACK, first = blockIdx.x * tile;
    const size_t end = n_packs - first < tile ? n_packs : first + tile;
    double sum = 0;
    for (size_t i = first + threadIdx.x; i < end; i += DT_BLOCK_THREADS) {
        float v[DT_CHANNEL_PACK];
        dt_load8(v, src + i * DT_CHANNEL_PACK);
        for (int k = 0; k < DT_CHANNEL_PACK; k++)
            sum += (double)v[k] * (double)v[k];
    }
    sum = dt_fold_sum(sum);
    if (threadIdx.x != 0)
        return;
    norms[blockIdx.x] = sum;
    if (!isfinite(sum))
        atomicOr(&state->found, 1);
}

static __global__ void clip_kernel(struct dt_scale_state *state, const struct dt_step_values *step,
                                   const double *norms, int n)
{
    double sum = 0;
    for (int i = (int)threadIdx.x; i < n; i += DT_BLOCK_THREADS)
        sum += norms[i];
    sum = dt_fold_sum(sum);
    if (threadIdx.x == 0)
        state->clip *= dt_optim_clip(sqrt(sum) * (double)state->clip / (double)state->scale,
                                     step->optim.clip_norm);
}

static __device__ inline float add_up(const float *from, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += from[i];
    return sum;
}

static __global__ void count_kernel(float *count, const float *from, int n, bool first)
{
    const float sum = add_up(from, n);
    *count = first ? sum : *count + sum;
}

static __global__ void divide_kernel(struct dt_scale_state *state, const float *counts, int n)
{
    state->clip = 1 / fmaxf(add_up(counts, n), 1);
}

cudaError_t dt_kernel_check_norms(cudaStream_t stream, struct dt_scale_state *state,
                                  enum dt_dtype type, const void *src, size_t count, double *norms)
{
    const struct dt_geometry tiles = {(unsigned)dt_tiles(count), 1, DT_BLOCK_THREADS, 1};
    return DT_BY_TYPE(type, (dt_launch(check_norms_kernel<T>, tiles, stream, state, src,
                                       count / DT_CHANNEL_PACK, norms)));
}

cudaError_t dt_kernel_clip(cudaStream_t stream, struct dt_scale_state *state,
                           const struct dt_step_values *step, const double *norms, int n)
{
    const struct dt_geometry one_block = {1, 1, DT_BLOCK_THREADS, 1};
    return dt_launch(clip_kernel, one_block, stream, state, step, norms, n);
}

cudaError_t dt_kernel_count(cudaStream_t stream, float *count, const float *from, int n, bool first)
{
    return dt_launch(count_kernel, ONE_THREAD, stream, count, from, n, first);
}

cudaError_t dt_kernel_divide(cudaStream_t stream, struct dt_scale_state *state, const float *counts,
                             int n)
{
    return dt_launch(divide_kernel, ONE_THREAD, stream, state, counts, n);
}

cudaError_t dt_kernel_settle(cudaStream_t stream, struct dt_scale_state *state,
                             struct dt_step_counters *counters)
{
    return dt_launch(settle_kernel, ONE_THREAD, stream, state, counters);
}
