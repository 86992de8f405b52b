/* The op of activations. */
#include "cpu/activation_kinds.h"
#include "cpu/cpu_internal.h"

CONSTANT_KIND void values(enum dt_activation kind, real *dst, const real *src, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dst[i] = to_real(dt_activate(kind, from_real(src[i])));
}

CONSTANT_KIND void gradients(enum dt_activation kind, real *diff_src, const real *diff_dst,
                             const real *diff_dst2, const real *src, size_t n)
{
    if (diff_dst2) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            diff_src[i] = to_real(dt_through_activation(
                kind, from_real(diff_dst[i]) + from_real(diff_dst2[i]), from_real(src[i])));
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            diff_src[i] =
                to_real(dt_through_activation(kind, from_real(diff_dst[i]), from_real(src[i])));
    }
}

static void activate(enum dt_activation kind, real *dst, const real *src, size_t n)
{
#define LOOP_OF(kind) values(kind, dst, src, n)
    FOR_KIND(kind)
#undef LOOP_OF
}

static void activation_bwd(enum dt_activation kind, real *diff_src, const real *diff_dst,
                           const real *diff_dst2, const real *src, size_t n)
{
#define LOOP_OF(kind) gradients(kind, diff_src, diff_dst, diff_dst2, src, n)
    FOR_KIND(kind)
#undef LOOP_OF
}

/* --- The op --- */

enum { CHUNK = 4096 };

/* Padding stays 0. */
static dt_status prepare_activation(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    if (dt_activate(node->activation, 0) == 0)
        return dt_cpu_prepare_like_value(exec);
    exec->n_elements = dt_tensor_elements(&exec->graph->tensor[node->src[0]]);
    return dt_cpu_port_add_plain(exec);
}

static dt_status run_activation(struct dt_exec *exec)
{
    const real *src = dt_cpu_src(exec, 0);
    real *dst = dt_cpu_dst(exec, 0);
    const size_t n = exec->n_elements;
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < n; first += CHUNK)
        activate(exec->node->activation, dst + first, src + first,
                 n - first < CHUNK ? n - first : CHUNK);
    return DT_OK;
}

static dt_status run_activation_bwd(struct dt_exec *exec)
{
    const real *src = dt_cpu_src(exec, DT_ACTIVATION_BWD_SRC);
    const real *diff_dst = dt_cpu_src(exec, DT_ACTIVATION_BWD_DIFF_DST);
    const real *diff_dst2 = dt_cpu_src(exec, DT_ACTIVATION_BWD_DIFF_DST2);
    real *diff_src = dt_cpu_dst(exec, 0);
    const size_t n = exec->n_elements;
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < n; first += CHUNK)
        activation_bwd(exec->node->activation, diff_src + first, diff_dst + first,
                       diff_dst2 ? diff_dst2 + first : NULL, src + first,
                       n - first < CHUNK ? n - first : CHUNK);
    return DT_OK;
}

DT_CPU_OP(activation, prepare_activation, run_activation, true);
DT_CPU_OP(activation_bwd, prepare_activation, run_activation_bwd, true);
