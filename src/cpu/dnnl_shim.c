/* One set of functions over both APIs of oneDNN: 2.x fills an operation descriptor and creates a
 * primitive descriptor from it; 3.x creates it directly. Both copy the descriptors passed in, so
 * the caller may destroy them afterwards. */
#include "cpu/dnnl_shim.h"

#include <stdlib.h>

#include "base/mem.h"

static dnnl_data_type_t data_type(enum dt_dtype type)
{
    return type == DT_BF16 ? dnnl_bf16 : dnnl_f32;
}

dt_status dt_dnnl_check(dnnl_status_t status, const char *call, const char *name)
{
    static const char *const texts[] = {
        [dnnl_out_of_memory] = "out of memory",
        [dnnl_invalid_arguments] = "invalid arguments",
        [dnnl_unimplemented] = "not implemented for these shapes and formats",
    };
    if (status == dnnl_success)
        return DT_OK;
    const char *text = (size_t)status < DT_COUNT(texts) ? texts[status] : NULL;
    dt_status code = status == dnnl_out_of_memory ? DT_ERR_MEMORY : DT_ERR_DEVICE;
    DT_FAIL(code, "oneDNN failed for '%s': %s (status %d) from %s", name,
            text ? text : "runtime error", (int)status, call);
}

dnnl_status_t dt_attr_create(dnnl_primitive_attr_t *attr, bool relu)
{
    dnnl_status_t status = dnnl_primitive_attr_create(attr);
    if (status != dnnl_success)
        return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    dnnl_post_ops_t ops = NULL;
    if (status == dnnl_success && relu) {
        status = dnnl_post_ops_create(&ops);
        if (status == dnnl_success)
#if DNNL_VERSION_MAJOR >= 3
            status = dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0.0f, 0.0f);
#else
            status = dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
#endif
        if (status == dnnl_success)
            status = dnnl_primitive_attr_set_post_ops(*attr, ops);
        dnnl_post_ops_destroy(ops);
    }
    if (status != dnnl_success) {
        dnnl_primitive_attr_destroy(*attr);
        *attr = NULL;
    }
    return status;
}

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t dt_md_create(dt_md *md, enum dt_dtype type, int n_dims, const dnnl_dims_t dims,
                           dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(md, n_dims, dims, data_type(type), tag);
}

dnnl_status_t dt_md_retype(dt_md *md, dt_md_ref other, enum dt_dtype type, int n_dims,
                           const dnnl_dims_t dims)
{
    static const dnnl_format_tag_t tags[] = {
        dnnl_aBcd16b,     dnnl_aBcd8b,      dnnl_acdb,        dnnl_ABcd16b16a, dnnl_ABcd8b8a,
        dnnl_Abcd16a,     dnnl_Acdb16a,     dnnl_Acdb8a,      dnnl_ABcd16a16b, dnnl_ABcd8a8b,
        dnnl_ABcd8b16a2b, dnnl_ABcd8a16b2a, dnnl_Acdb32a,     dnnl_ABcd16b64a, dnnl_ABcd16b32a,
        dnnl_Acdb64a,     dnnl_ABcd16b48a,  dnnl_cdba,        dnnl_Abcde16a,   dnnl_Abcde8a,
        dnnl_aBCde16c16b, dnnl_aBCde8c8b,   dnnl_aBCde16b16c, dnnl_aBCde8b8c,  dnnl_aBCde8c16b2c};
    static const dnnl_format_tag_t plain[] = {
        dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde};
    const dnnl_data_type_t types[] = {dnnl_f32, dnnl_bf16};
    dnnl_dims_t *own = NULL;
    dnnl_status_t found = dnnl_memory_desc_query(other, dnnl_query_dims, &own);
    if (found != dnnl_success)
        return found;
    for (size_t i = 0; i < 2 * DT_COUNT(tags); i++) {
        dt_md as_is = NULL;
        if (dnnl_memory_desc_create_with_tag(&as_is, n_dims, *own, types[i % 2], tags[i / 2]) !=
            dnnl_success)
            continue; /* of other dimensions */
        const bool is_it = dnnl_memory_desc_equal(as_is, other);
        dt_md_destroy(as_is);
        if (is_it)
            return dt_md_create(md, type, n_dims, dims, tags[i / 2]);
    }
    return dt_md_create(md, type, n_dims, dims, plain[n_dims]);
}

dnnl_status_t dt_md_clone(dt_md *md, dt_md_ref other)
{
    return dnnl_memory_desc_clone(md, other);
}

void dt_md_destroy(dt_md md)
{
    if (md)
        dnnl_memory_desc_destroy(md);
}

dnnl_status_t dt_pd_conv(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dt_md_ref src,
                         dt_md_ref weights, dt_md_ref bias, dt_md_ref dst,
                         const struct dt_window *window, const_dnnl_primitive_attr_t attr)
{
    return dnnl_convolution_forward_primitive_desc_create(
        pd, engine, dnnl_forward_training, dnnl_convolution_direct, src, weights, bias, dst,
        window->stride, window->gap, window->pad, window->pad, attr);
}

dnnl_status_t dt_pd_conv_bwd_data(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                  dt_md_ref diff_src, dt_md_ref weights, dt_md_ref diff_dst,
                                  const struct dt_window *window, const_dnnl_primitive_desc_t hint,
                                  const_dnnl_primitive_attr_t attr)
{
    return dnnl_convolution_backward_data_primitive_desc_create(
        pd, engine, dnnl_convolution_direct, diff_src, weights, diff_dst, window->stride,
        window->gap, window->pad, window->pad, hint, attr);
}

dnnl_status_t dt_pd_conv_bwd_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dt_md_ref src,
                                     dt_md_ref diff_weights, dt_md_ref diff_bias,
                                     dt_md_ref diff_dst, const struct dt_window *window,
                                     const_dnnl_primitive_desc_t hint,
                                     const_dnnl_primitive_attr_t attr)
{
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, engine, dnnl_convolution_direct, src, diff_weights, diff_bias, diff_dst, window->stride,
        window->gap, window->pad, window->pad, hint, attr);
}

dnnl_status_t dt_pd_max_pool(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, bool train,
                             dt_md_ref src, dt_md_ref dst, const struct dt_window *window,
                             const_dnnl_primitive_attr_t attr)
{
    return dnnl_pooling_forward_primitive_desc_create(
        pd, engine, train ? dnnl_forward_training : dnnl_forward_inference, dnnl_pooling_max, src,
        dst, window->stride, window->kernel, window->gap, window->pad, window->pad_end, attr);
}

dnnl_status_t dt_pd_max_pool_bwd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                 dt_md_ref diff_src, dt_md_ref diff_dst,
                                 const struct dt_window *window, const_dnnl_primitive_desc_t hint,
                                 const_dnnl_primitive_attr_t attr)
{
    return dnnl_pooling_backward_primitive_desc_create(
        pd, engine, dnnl_pooling_max, diff_src, diff_dst, window->stride, window->kernel,
        window->gap, window->pad, window->pad_end, hint, attr);
}

dnnl_status_t dt_pd_linear(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dt_md_ref src,
                           dt_md_ref weights, dt_md_ref bias, dt_md_ref dst,
                           const_dnnl_primitive_attr_t attr)
{
    return dnnl_inner_product_forward_primitive_desc_create(pd, engine, dnnl_forward_training, src,
                                                            weights, bias, dst, attr);
}

dnnl_status_t dt_pd_linear_bwd_data(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                    dt_md_ref diff_src, dt_md_ref weights, dt_md_ref diff_dst,
                                    const_dnnl_primitive_desc_t hint,
                                    const_dnnl_primitive_attr_t attr)
{
    return dnnl_inner_product_backward_data_primitive_desc_create(pd, engine, diff_src, weights,
                                                                  diff_dst, hint, attr);
}

dnnl_status_t dt_pd_linear_bwd_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                       dt_md_ref src, dt_md_ref diff_weights, dt_md_ref diff_bias,
                                       dt_md_ref diff_dst, const_dnnl_primitive_desc_t hint,
                                       const_dnnl_primitive_attr_t attr)
{
    return dnnl_inner_product_backward_weights_primitive_desc_create(
        pd, engine, src, diff_weights, diff_bias, diff_dst, hint, attr);
}

#else

dnnl_status_t dt_md_create(dt_md *md, enum dt_dtype type, int n_dims, const dnnl_dims_t dims,
                           dnnl_format_tag_t tag)
{
    dt_md created = dt_mem_alloc(1, sizeof *created, "oneDNN memory descriptor");
    if (!created)
        return dnnl_out_of_memory;
    dnnl_status_t status =
        dnnl_memory_desc_init_by_tag(created, n_dims, dims, data_type(type), tag);
    if (status != dnnl_success) {
        free(created);
        return status;
    }
    *md = created;
    return dnnl_success;
}

dnnl_status_t dt_md_clone(dt_md *md, dt_md_ref other)
{
    dt_md created = dt_mem_alloc(1, sizeof *created, "oneDNN memory descriptor");
    if (!created)
        return dnnl_out_of_memory;
    *created = *other;
    *md = created;
    return dnnl_success;
}

dnnl_status_t dt_md_retype(dt_md *md, dt_md_ref other, enum dt_dtype type, int n_dims,
                           const dnnl_dims_t dims)
{
    (void)n_dims;
    dnnl_status_t status = dt_md_clone(md, other);
    if (status != dnnl_success)
        return status;
    (*md)->data_type = data_type(type);
    if ((*md)->dims[0] != dims[0])
        (*md)->dims[0] = (*md)->padded_dims[0] = dims[0];
    return dnnl_success;
}

void dt_md_destroy(dt_md md)
{
    free(md);
}

dnnl_status_t dt_pd_conv(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dt_md_ref src,
                         dt_md_ref weights, dt_md_ref bias, dt_md_ref dst,
                         const struct dt_window *window, const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &op, dnnl_forward_training, dnnl_convolution_direct, src, weights, bias, dst,
        window->stride, window->gap, window->pad, window->pad);
    return status ? status : dnnl_primitive_desc_create(pd, &op, attr, engine, NULL);
}

dnnl_status_t dt_pd_conv_bwd_data(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                  dt_md_ref diff_src, dt_md_ref weights, dt_md_ref diff_dst,
                                  const struct dt_window *window, const_dnnl_primitive_desc_t hint,
                                  const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_backward_data_desc_init(
        &op, dnnl_convolution_direct, diff_src, weights, diff_dst, window->stride, window->gap,
        window->pad, window->pad);
    return status ? status : dnnl_primitive_desc_create(pd, &op, attr, engine, hint);
}

dnnl_status_t dt_pd_conv_bwd_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dt_md_ref src,
                                     dt_md_ref diff_weights, dt_md_ref diff_bias,
                                     dt_md_ref diff_dst, const struct dt_window *window,
                                     const_dnnl_primitive_desc_t hint,
                                     const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(
        &op, dnnl_convolution_direct, src, diff_weights, diff_bias, diff_dst, window->stride,
        window->gap, window->pad, window->pad);
    return status ? status : dnnl_primitive_desc_create(pd, &op, attr, engine, hint);
}

dnnl_status_t dt_pd_max_pool(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, bool train,
                             dt_md_ref src, dt_md_ref dst, const struct dt_window *window,
                             const_dnnl_primitive_attr_t attr)
{
    dnnl_pooling_desc_t op;
    dnnl_status_t status = dnnl_pooling_forward_desc_init(
        &op, train ? dnnl_forward_training : dnnl_forward_inference, dnnl_pooling_max, src, dst,
        window->stride, window->kernel, window->pad, window->pad_end);
    return status ? status : dnnl_primitive_desc_create(pd, &op, attr, engine, NULL);
}

dnnl_status_t dt_pd_max_pool_bwd(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                 dt_md_ref diff_src, dt_md_ref diff_dst,
                                 const struct dt_window *window, const_dnnl_primitive_desc_t hint,
                                 const_dnnl_primitive_attr_t attr)
{
    dnnl_pooling_desc_t op;
    dnnl_status_t status =
        dnnl_pooling_backward_desc_init(&op, dnnl_pooling_max, diff_src, diff_dst, window->stride,
                                        window->kernel, window->pad, window->pad_end);
    return status ? status : dnnl_primitive_desc_create(pd, &op, attr, engine, hint);
}

dnnl_status_t dt_pd_linear(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dt_md_ref src,
                           dt_md_ref weights, dt_md_ref bias, dt_md_ref dst,
                           const_dnnl_primitive_attr_t attr)
{
    dnnl_inner_product_desc_t op;
    dnnl_status_t status =
        dnnl_inner_product_forward_desc_init(&op, dnnl_forward_training, src, weights, bias, dst);
    return status ? status : dnnl_primitive_desc_create(pd, &op, attr, engine, NULL);
}

dnnl_status_t dt_pd_linear_bwd_data(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                    dt_md_ref diff_src, dt_md_ref weights, dt_md_ref diff_dst,
                                    const_dnnl_primitive_desc_t hint,
                                    const_dnnl_primitive_attr_t attr)
{
    dnnl_inner_product_desc_t op;
    dnnl_status_t status =
        dnnl_inner_product_backward_data_desc_init(&op, diff_src, weights, diff_dst);
    return status ? status : dnnl_primitive_desc_create(pd, &op, attr, engine, hint);
}

dnnl_status_t dt_pd_linear_bwd_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                       dt_md_ref src, dt_md_ref diff_weights, dt_md_ref diff_bias,
                                       dt_md_ref diff_dst, const_dnnl_primitive_desc_t hint,
                                       const_dnnl_primitive_attr_t attr)
{
    dnnl_inner_product_desc_t op;
    dnnl_status_t status =
        dnnl_inner_product_backward_weights_desc_init(&op, src, diff_weights, diff_bias, diff_dst);
    return status ? status : dnnl_primitive_desc_create(pd, &op, attr, engine, hint);
}

#endif
