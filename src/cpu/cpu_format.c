/* Stored formats of tensors, one table per graph, and conversion to and from logical order.
 *
 * A table is created with the first prepared node of a graph and destroyed with the last, so a
 * later graph at the same address never sees stale formats. Tensors without a chosen format are
 * plain (N C H W, O I H W). */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cpu/cpu_internal.h"

static const dnnl_format_tag_t PLAIN_TAG[] = {
    dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde};

int dt_cpu_dims(dnnl_dims_t dims, const struct dt_tensor *tensor)
{
    memset(dims, 0, sizeof(dnnl_dims_t));
    for (int i = 0; i < 4; i++)
        dims[i] = tensor->dim[i];
    return dt_tensor_is_vector(tensor) ? 1 : 4;
}

static struct dt_cpu_formats *find_table(struct dt_device *dev, const struct dt_graph *g)
{
    struct dt_cpu_formats *table = dev->formats;
    while (table && table->graph != g)
        table = table->next;
    return table;
}

/* oneDNN multiplies by AMX in nhwc only. */
static bool prefers_nhwc(const struct dt_device *dev)
{
    const bool by_amx = dt_cpu_type(dev) == DT_BF16 && dt_cpu_has(dnnl_cpu_isa_avx512_core_amx);
    return dev->options.layout == DT_LAYOUT_NHWC ||
           (by_amx && dev->options.layout == DT_LAYOUT_AUTO);
}

/* In nhwc no tensor can be part of another: DenseNets copy what they concatenate, which takes less
 * time than convolutions without AMX. */
bool dt_cpu_shares(const struct dt_device *dev)
{
    return !prefers_nhwc(dev);
}

static bool is_nhwc(const struct dt_device *dev, const struct dt_graph *g)
{
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensor[i].whole >= 0)
            return false;
    return prefers_nhwc(dev);
}

dt_status dt_cpu_formats_acquire(struct dt_device *dev, struct dt_cpu_formats **out,
                                 const struct dt_graph *g)
{
    struct dt_cpu_formats *table = find_table(dev, g);
    if (!table) {
        DT_TRY(DT_NEW(table, 1));
        table->graph = g;
        table->type = dt_cpu_type(dev);
        table->nhwc = is_nhwc(dev, g);
        table->next = dev->formats;
        dev->formats = table;
    }
    table->n_users++;
    *out = table;
    return DT_GROW(table->format, table->capacity, (size_t)g->n_tensors, "formats of tensors");
}

void dt_cpu_formats_release(struct dt_device *dev, struct dt_cpu_formats *formats)
{
    if (!formats || --formats->n_users > 0)
        return;
    struct dt_cpu_formats **link = &dev->formats;
    while (*link != formats)
        link = &(*link)->next;
    *link = formats->next;
    for (size_t i = 0; i < formats->capacity; i++) {
        dt_md_destroy(formats->format[i].md);
        dt_md_destroy(formats->format[i].shadow);
    }
    free(formats->format);
    free(formats);
}

struct dt_cpu_format *dt_cpu_format_of(struct dt_cpu_formats *formats, int tensor)
{
    const struct dt_tensor *t = &formats->graph->tensor[tensor];
    const bool of_param = t->role == DT_DIFF_PARAM || t->role == DT_DIFF_TERM;
    return &formats->format[of_param && t->diff >= 0 ? t->diff : tensor];
}

enum dt_dtype dt_cpu_stored_type(const struct dt_cpu_formats *formats, int tensor)
{
    const struct dt_tensor *t = &formats->graph->tensor[tensor];
    const bool is_value = t->role == DT_ACT || t->role == DT_DIFF;
    const bool is_weights = t->role == DT_PARAM && !dt_tensor_is_vector(t);
    return t->dtype == DT_F32 && (is_value || is_weights) ? formats->type : t->dtype;
}

enum dt_dtype dt_cpu_wanted_type(const struct dt_exec *exec, int tensor)
{
    const enum dt_dtype stored = dt_cpu_stored_type(exec->formats, tensor);
    return stored == DT_BF16 ? exec->type : stored;
}

enum dt_dtype dt_cpu_product_type(const struct dt_exec *exec)
{
    return dt_cpu_has(dnnl_cpu_isa_avx512_core_bf16) ? exec->type : DT_F32;
}

dt_status dt_cpu_format_set(struct dt_cpu_formats *formats, int tensor, dt_md_ref md, int n_dims,
                            const dnnl_dims_t dims)
{
    struct dt_cpu_format *format = dt_cpu_format_of(formats, tensor);
    const struct dt_tensor *t = &formats->graph->tensor[tensor];
    const int entry = (int)(format - formats->format);
    const enum dt_dtype stored = dt_cpu_stored_type(formats, entry);
    const bool is_weights = formats->graph->tensor[entry].role == DT_PARAM && stored == DT_BF16;
    const enum dt_dtype type = is_weights ? DT_F32 : stored;
    DT_TRY(DT_DNNL(t->name, t->dtype == DT_F32 ? dt_md_retype(&format->md, md, type, n_dims, dims)
                                               : dt_md_clone(&format->md, md)));
    if (is_weights)
        DT_TRY(DT_DNNL(t->name, dt_md_retype(&format->shadow, md, DT_BF16, n_dims, dims)));
    format->n_dims = n_dims;
    memcpy(format->dims, dims, sizeof format->dims);
    return DT_OK;
}

size_t dt_cpu_tensor_bytes(struct dt_device *dev, const struct dt_graph *g, int tensor)
{
    struct dt_cpu_formats *table = find_table(dev, g);
    if (table && (size_t)tensor < table->capacity) {
        const struct dt_cpu_format *format = dt_cpu_format_of(table, tensor);
        if (format->md)
            return dnnl_memory_desc_get_size(format->md);
        if (format->bytes)
            return format->bytes;
    }
    const bool is_param = g->tensor[tensor].role == DT_PARAM; /* the master is meant */
    return dt_tensor_elements(&g->tensor[tensor]) *
           dt_dtype_bytes(table && !is_param ? dt_cpu_stored_type(table, tensor)
                                             : g->tensor[tensor].dtype);
}

/* Copies between stored and logical order; only the destination is written. */
static dt_status convert(struct dt_device *dev, const struct dt_graph *g, int tensor, void *dst,
                         void *src, bool to_logical)
{
    const struct dt_tensor *t = &g->tensor[tensor];
    if (t->dtype != DT_F32)
        DT_FAIL(DT_ERR_INTERNAL, "tensor '%s' is not fp32 and has no logical values", t->name);
    struct dt_cpu_formats *table = find_table(dev, g);
    const struct dt_cpu_format *format =
        table && (size_t)tensor < table->capacity ? dt_cpu_format_of(table, tensor) : NULL;
    const bool is_wide =
        !table || t->role == DT_PARAM || dt_cpu_stored_type(table, tensor) == DT_F32;
    if (is_wide && (!format || !format->md)) {
        memcpy(dst, src, dt_tensor_elements(t) * sizeof(float));
        return DT_OK;
    }
    dnnl_dims_t dims;
    const int n_dims = format->md ? format->n_dims : dt_cpu_dims(dims, t);
    if (format->md)
        memcpy(dims, format->dims, sizeof dims);
    dt_status status = DT_OK;
    dt_md plain = NULL, in_bf16 = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_memory_t memory[2] = {NULL, NULL};
    DT_TRY_OUT(DT_DNNL(t->name, dt_md_create(&plain, DT_F32, n_dims, dims, PLAIN_TAG[n_dims])));
    if (!format->md)
        DT_TRY_OUT(
            DT_DNNL(t->name, dt_md_create(&in_bf16, DT_BF16, n_dims, dims, PLAIN_TAG[n_dims])));
    dt_md_ref stored = format->md ? format->md : in_bf16;
    dt_md_ref from = to_logical ? stored : plain, to = to_logical ? plain : stored;
    DT_TRY_OUT(DT_DNNL(t->name, dnnl_reorder_primitive_desc_create(&pd, from, dev->engine, to,
                                                                   dev->engine, NULL)));
    DT_TRY_OUT(DT_DNNL(t->name, dnnl_primitive_create(&primitive, pd)));
    DT_TRY_OUT(DT_DNNL(t->name, dnnl_memory_create(&memory[0], from, dev->engine, src)));
    DT_TRY_OUT(DT_DNNL(t->name, dnnl_memory_create(&memory[1], to, dev->engine, dst)));
    const dnnl_exec_arg_t arg[2] = {{DNNL_ARG_FROM, memory[0]}, {DNNL_ARG_TO, memory[1]}};
    DT_TRY_OUT(DT_DNNL(t->name, dnnl_primitive_execute(primitive, dev->stream, 2, arg)));
    DT_TRY_OUT(DT_DNNL(t->name, dnnl_stream_wait(dev->stream)));
out:
    dnnl_memory_destroy(memory[0]);
    dnnl_memory_destroy(memory[1]);
    if (primitive)
        dnnl_primitive_destroy(primitive);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    dt_md_destroy(plain);
    dt_md_destroy(in_bf16);
    return status;
}

dt_status dt_cpu_set_tensor(struct dt_device *dev, const struct dt_graph *g, int tensor, void *dst,
                            const float *src)
{
    return convert(dev, g, tensor, dst, (void *)(uintptr_t)src, false);
}

dt_status dt_cpu_get_tensor(struct dt_device *dev, const struct dt_graph *g, int tensor, float *dst,
                            const void *src)
{
    return convert(dev, g, tensor, dst, (void *)(uintptr_t)src, true);
}

dt_status dt_cpu_rows_choose(struct dt_cpu_rows *rows, dt_md *md, const struct dt_exec *exec,
                             int tensor, dnnl_format_tag_t tag)
{
    static const struct {
        int block;
        dnnl_format_tag_t tag;
    } kinds[] = {{16, dnnl_acdb}, {16, dnnl_aBcd16b}, {8, dnnl_aBcd8b}, {1, dnnl_abcd}};
    const struct dt_tensor *t = &exec->graph->tensor[tensor];
    const struct dt_cpu_format *stored = dt_cpu_format_of(exec->formats, tensor);
    const enum dt_dtype type = dt_cpu_stored_type(exec->formats, tensor);
    const bool is_given = tag != dnnl_format_tag_any && tag != dnnl_format_tag_undef;
    const bool may_be_nhwc = exec->formats->nhwc && tag == dnnl_format_tag_any;
    dnnl_dims_t dims;

    dt_cpu_dims(dims, t);
    for (size_t i = !may_be_nhwc && !is_given; i < DT_COUNT(kinds); i++) {
        dt_md candidate = NULL;
        DT_TRY(DT_DNNL(t->name, dt_md_create(&candidate, type, 4, dims, kinds[i].tag)));
        bool matches = is_given     ? kinds[i].tag == tag
                       : stored->md ? dnnl_memory_desc_equal(stored->md, candidate)
                                    : may_be_nhwc;
        dt_md_destroy(candidate);
        if (!matches && kinds[i].block != 1)
            continue;
        if (md)
            DT_TRY(DT_DNNL(t->name, dt_md_create(md, dt_cpu_wanted_type(exec, tensor), 4, dims,
                                                 kinds[i].tag)));
        *rows = (struct dt_cpu_rows){.n = t->dim[0],
                                     .channels = t->dim[1],
                                     .height = t->dim[2],
                                     .width = t->dim[3],
                                     .tag = kinds[i].tag,
                                     .block = kinds[i].block};
        break;
    }
    rows->n_blocks = (rows->channels + rows->block - 1) / rows->block;
    rows->columns = dt_cpu_is_nhwc(rows) ? rows->n_blocks : 1;
    const int in_memory = exec->graph->tensor[dt_tensor_whole(exec->graph, tensor)].dim[1];
    rows->image_blocks = (in_memory + rows->block - 1) / rows->block;
    rows->row_elements = (size_t)(rows->height * rows->width) *
                         (size_t)(dt_cpu_is_nhwc(rows) ? rows->channels : rows->block);
    return DT_OK;
}
