/* Everything that differs between oneDNN 2.x and 3.x: memory descriptors (a plain struct in 2.x, an
 * opaque handle in 3.x) and the creation of primitive descriptors (through operation descriptors in
 * 2.x, directly in 3.x). All other files of this folder use only calls that both versions have. */
#ifndef DTRAIN_CPU_DNNL_SHIM_H
#define DTRAIN_CPU_DNNL_SHIM_H

#include <stdbool.h>

#include <dnnl.h>

#include "base/status.h"
#include "dtrain/dtype.h"

/* A memory descriptor on the heap, owned (dt_md) or borrowed (dt_md_ref). */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t dt_md;
typedef const_dnnl_memory_desc_t dt_md_ref;
#else
typedef dnnl_memory_desc_t *dt_md;
typedef const dnnl_memory_desc_t *dt_md_ref;
#endif

/* Whether this CPU has an instruction set, and oneDNN may use it. */
static inline bool dt_cpu_has(dnnl_cpu_isa_t isa)
{
    return (dnnl_get_effective_cpu_isa() & isa) == isa;
}

/* Converts a status to a dt_status; the text names the call and `name` (a node, a tensor). */
dt_status dt_dnnl_check(dnnl_status_t status, const char *call, const char *name);
#define DT_DNNL(name, call) dt_dnnl_check((call), #call, (name))

/* Descriptors of DT_F32 or DT_BF16. Destroy accepts NULL. retype: the layout of `other` with
 * another type, and for activations dims[0] images; plain order where oneDNN 3.x gives no way to
 * name that layout. */
dnnl_status_t dt_md_create(dt_md *md, enum dt_dtype type, int n_dims, const dnnl_dims_t dims,
                           dnnl_format_tag_t tag);
dnnl_status_t dt_md_clone(dt_md *md, dt_md_ref other);
dnnl_status_t dt_md_retype(dt_md *md, dt_md_ref other, enum dt_dtype type, int n_dims,
                           const dnnl_dims_t dims);
void dt_md_destroy(dt_md md);

/* Attributes: the caller provides the scratchpad; `relu` appends a ReLU. */
dnnl_status_t dt_attr_create(dnnl_primitive_attr_t *attr, bool relu);

/* Primitive descriptors. A convolution or a max pooling moves a window over H and W; the padding is
 * the same on both sides. `bias` and `diff_bias` may be NULL. */
struct dt_window {
    dnnl_dims_t kernel, stride, pad; /* convolutions take the kernel from the weights */
    dnnl_dims_t gap;                 /* pixels between the taps: dilation - 1 */
    dnnl_dims_t pad_end;             /* of pooling */
};

dnnl_status_t dt_pd_conv(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dt_md_ref src,
                         dt_md_ref weights, dt_md_ref bias, dt_md_ref dst,
                         const struct dt_window *window, const_dnnl_primitive_attr_t attr);
dnnl_status_t dt_pd_conv_bwd_data(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                  dt_md_ref diff_src, dt_md_ref weights, dt_md_ref diff_dst,
                                  const struct dt_window *window, const_dnnl_primitive_desc_t hint,
                                  const_dnnl_primitive_attr_t attr);
dnnl_status_t dt_pd_conv_bwd_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dt_md_ref src,
                                     dt_md_ref diff_weights, dt_md_ref diff_bias,
                                     dt_md_ref diff_dst, const struct dt_window *window,
                                     const_dnnl_primitive_desc_t hint,
                                     const_dnnl_primitive_attr_t attr);

/* `train` asks for a workspace. */
dnnl_status_t dt_pd_max_pool(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, bool train,
                             dt_md_ref src, dt_md_ref dst, const struct dt_window *window,
                             const_dnnl_primitive_attr_t attr);
dnnl_status_t dt_pd_max_pool_bwd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                 dt_md_ref diff_src, dt_md_ref diff_dst,
                                 const struct dt_window *window, const_dnnl_primitive_desc_t hint,
                                 const_dnnl_primitive_attr_t attr);

dnnl_status_t dt_pd_linear(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dt_md_ref src,
                           dt_md_ref weights, dt_md_ref bias, dt_md_ref dst,
                           const_dnnl_primitive_attr_t attr);
dnnl_status_t dt_pd_linear_bwd_data(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                    dt_md_ref diff_src, dt_md_ref weights, dt_md_ref diff_dst,
                                    const_dnnl_primitive_desc_t hint,
                                    const_dnnl_primitive_attr_t attr);
dnnl_status_t dt_pd_linear_bwd_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                       dt_md_ref src, dt_md_ref diff_weights, dt_md_ref diff_bias,
                                       dt_md_ref diff_dst, const_dnnl_primitive_desc_t hint,
                                       const_dnnl_primitive_attr_t attr);

#endif
