// State of a step rather than of a tensor: its values, whether it counts, the loss scale. The
// values are passed as kernel parameters, not in host memory, which a later step could overwrite
// too early.
#include "kernels/device.cuh"

static const struct dt_geometry ONE_THREAD = {1, 1, 1, 1};

static __global__ void set_step_kernel(struct dt_step_values *step, struct dt_step_values values)
{
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
static __global__ void check_kernel(struct dt_scale_state *state, const T *src, size_t n_groups)
{
    const size_t i = dt_flat_group();
    if (i >= n_groups)
        return;
    float v[DT_GROUP];
    bool finite = true;
    dt_load8(v, src + i * DT_GROUP);
    for (int k = 0; k < DT_GROUP; k++)
        finite = finite && isfinite(v[k]);
    if (!finite)
        atomicOr(&state->found, 1);
}

cudaError_t dt_kernel_set_step(cudaStream_t stream, struct dt_step_values *step,
                               const struct dt_step_values *values)
{
    return dt_launch(set_step_kernel, ONE_THREAD, stream, step, *values);
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
                                       count / DT_GROUP)));
}

cudaError_t dt_kernel_settle(cudaStream_t stream, struct dt_scale_state *state,
                             struct dt_step_counters *counters)
{
    return dt_launch(settle_kernel, ONE_THREAD, stream, state, counters);
}
