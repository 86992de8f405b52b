/* Layout of tensors in device memory, one table per graph, and conversion to and from logical
 * order.
 *
 * Everything but inputs and workspaces is a matrix N H W C: activations, weights (O R S I) and,
 * with N = H = W = 1, vectors. C is padded, and for weights also N. The conversion runs on the
 * host: it is for checkpoints and tests. */
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "cuda/cuda_internal.h"

static int round8(int value)
{
    return (value + 7) / 8 * 8;
}

static enum dt_dtype type_of(const struct dt_device *dev, const struct dt_tensor *t)
{
    switch (t->role) {
    case DT_ACT:
    case DT_DIFF:
        return dev->type;
    case DT_DIFF_TERM:
    case DT_DIFF_PARAM: /* sums over all pixels: those of vectors would be the first to overflow */
    case DT_PARAM:
        return dt_tensor_is_vector(t) ? DT_F32 : dev->type;
    default:
        return t->dtype;
    }
}

/* --- The table --- */

static struct dt_cuda_format finish_format(struct dt_cuda_format f)
{
    f.elements = (size_t)f.np * (size_t)f.h * (size_t)f.w * (size_t)f.cp;
    if (f.layout == DT_LAYOUT_BITS)
        f.elements /= 8;
    return f;
}

/* The format that follows from the tensor alone; for weights it comes from the nodes using them.
 */
static struct dt_cuda_format plain_format(const struct dt_device *dev, const struct dt_tensor *t)
{
    struct dt_cuda_format f = {.layout = DT_LAYOUT_ACTIVATION,
                               .type = type_of(dev, t),
                               .n = t->dim[0],
                               .c = t->dim[1],
                               .h = t->dim[2],
                               .w = t->dim[3]};
    if (t->role == DT_INPUT || t->role == DT_OUTPUT || t->dtype == DT_I32)
        f.layout = DT_LAYOUT_PLAIN;
    else if (dt_tensor_is_vector(t))
        f = (struct dt_cuda_format){DT_LAYOUT_VECTOR, f.type, .n = 1, .c = f.n, .h = 1, .w = 1};
    else if (t->dtype == DT_U8)
        f.layout = DT_LAYOUT_BYTES;
    f.cp = f.layout == DT_LAYOUT_PLAIN ? f.c : round8(f.c);
    f.np = f.n;
    return finish_format(f);
}

/* Only convolutions read rows of 4 channels. */
static bool feeds_convolutions_only(const struct dt_graph *g, int tensor)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        if (node->op == DT_OP_CONV || node->op == DT_OP_CONV_BWD_WEIGHTS)
            continue;
        for (int k = 0; k < node->n_src; k++)
            if (node->src[k] == tensor)
                return false;
    }
    return true;
}

/* The pixels as the first convolutions need them: 3 channels in rows of 4, not 8. */
static void set_ingest(struct dt_cuda_format *format, const struct dt_graph *g,
                       const struct dt_node *node)
{
    const int t = node->dst[0];
    if (node->op != DT_OP_INGEST || format[t].c > 4 || !feeds_convolutions_only(g, t))
        return;
    format[t].cp = 4;
    format[t] = finish_format(format[t]);
}

/* Weights have the layout of the activation they multiply; those of a group are not padded. */
static void set_weights(struct dt_cuda_format *weights, bool linear,
                        const struct dt_cuda_format *src)
{
    const bool is_grouped = !linear && weights->c != src->c;
    weights->layout = linear ? DT_LAYOUT_LINEAR_WEIGHTS : DT_LAYOUT_CONV_WEIGHTS;
    weights->cp = is_grouped ? weights->c : src->cp;
    if (linear) {
        weights->c = src->c;
        weights->h = src->h;
        weights->w = src->w;
    }
    weights->np = round8(weights->n);
    *weights = finish_format(*weights);
}

static void set_used(struct dt_cuda_format *format, const struct dt_node *node)
{
    const int *src = node->src, *dst = node->dst;
    switch (node->op) {
    case DT_OP_CONV:
    case DT_OP_LINEAR:
        set_weights(&format[src[DT_CONV_WEIGHTS]], node->op == DT_OP_LINEAR, &format[src[0]]);
        break;
    case DT_OP_CONV_BWD_DATA:
    case DT_OP_LINEAR_BWD_DATA:
        set_weights(&format[src[DT_BWD_DATA_WEIGHTS]], node->op == DT_OP_LINEAR_BWD_DATA,
                    &format[dst[0]]);
        break;
    case DT_OP_CONV_BWD_WEIGHTS:
    case DT_OP_LINEAR_BWD_WEIGHTS:
        set_weights(&format[dst[DT_BWD_DIFF_WEIGHTS]], node->op == DT_OP_LINEAR_BWD_WEIGHTS,
                    &format[src[DT_BWD_WEIGHTS_SRC]]);
        break;
    default:
        break;
    }
    for (int i = 0; i < node->n_src + node->n_dst; i++) {
        const int t = i < node->n_src ? src[i] : dst[i - node->n_src];
        if (t < 0 || dt_node_kind(node, i) != 'w')
            continue;
        format[t].layout = DT_LAYOUT_BITS;
        format[t] = finish_format(format[t]);
    }
}

/* A gradient and its terms have the layout of their parameter, even if a node uses only one of
 * them. */
static void share_with_gradients(struct dt_cuda_format *format, const struct dt_graph *g)
{
    for (int t = 0; t < g->n_tensors; t++) {
        const enum dt_role role = g->tensor[t].role;
        int param = role == DT_DIFF_PARAM || role == DT_DIFF_TERM ? g->tensor[t].diff : -1;
        if (param < 0)
            continue;
        bool known = format[param].layout != DT_LAYOUT_ACTIVATION;
        struct dt_cuda_format *to = known ? &format[t] : &format[param];
        enum dt_dtype type = to->type;
        *to = known ? format[param] : format[t];
        to->type = type;
    }
}

static void formats_destroy(struct dt_cuda_formats *table)
{
    if (table)
        free(table->format);
    free(table);
}

static struct dt_cuda_formats **find_link(struct dt_device *dev, const struct dt_graph *g)
{
    struct dt_cuda_formats **link = &dev->formats;
    while (*link && (*link)->graph != g)
        link = &(*link)->next;
    return link;
}

static void drop_table(struct dt_cuda_formats **link)
{
    struct dt_cuda_formats *table = *link;
    *link = table->next;
    formats_destroy(table);
}

/* A table without users may belong to an earlier graph at this address. */
static dt_status fresh_table(struct dt_device *dev, struct dt_cuda_formats **out,
                             const struct dt_graph *g)
{
    struct dt_cuda_formats **link = find_link(dev, g), *table = NULL;
    dt_status status = DT_OK;
    *out = *link;
    if (*link && (*link)->n_users > 0)
        return DT_OK;
    if (*link)
        drop_table(link);
    DT_TRY(DT_NEW(table, 1));
    table->graph = g;
    table->n_tensors = g->n_tensors;
    DT_TRY_OUT(DT_NEW(table->format, (size_t)g->n_tensors));
    for (int t = 0; t < g->n_tensors; t++)
        table->format[t] = plain_format(dev, &g->tensor[t]);
    for (int i = 0; i < g->n_nodes; i++)
        set_ingest(table->format, g, &g->node[i]);
    for (int i = 0; i < g->n_nodes; i++)
        set_used(table->format, &g->node[i]);
    share_with_gradients(table->format, g);
    table->next = dev->formats;
    dev->formats = table;
    *out = table;
    table = NULL;
out:
    formats_destroy(table);
    return status;
}

dt_status dt_cuda_formats_acquire(struct dt_device *dev, const struct dt_graph *g)
{
    struct dt_cuda_formats *table;
    DT_TRY(fresh_table(dev, &table, g));
    table->n_users++;
    return DT_OK;
}

void dt_cuda_formats_release(struct dt_device *dev, const struct dt_graph *g)
{
    struct dt_cuda_formats **link = find_link(dev, g);
    if (*link && --(*link)->n_users <= 0)
        drop_table(link);
}

void dt_cuda_formats_destroy(struct dt_cuda_formats *formats)
{
    while (formats)
        drop_table(&formats);
}

dt_status dt_cuda_format(struct dt_device *dev, const struct dt_cuda_format **out,
                         const struct dt_graph *g, int tensor)
{
    struct dt_cuda_formats *table;
    DT_TRY(fresh_table(dev, &table, g));
    if (tensor < 0 || tensor >= table->n_tensors)
        DT_FAIL(DT_ERR_INTERNAL, "tensor %d was added to the graph after its nodes were prepared",
                tensor);
    *out = &table->format[tensor];
    return DT_OK;
}

enum dt_dtype dt_cuda_dtype(struct dt_device *dev, const struct dt_graph *g, int tensor)
{
    return type_of(dev, &g->tensor[tensor]);
}

void dt_cuda_format_drop(struct dt_device *dev, const struct dt_graph *g, int tensor,
                         size_t reuse_bytes)
{
    struct dt_cuda_format *format = &(*find_link(dev, g))->format[tensor];
    format->unused = true;
    format->reuse_bytes = reuse_bytes;
}

static size_t stored_bytes(const struct dt_cuda_format *format, const struct dt_tensor *t)
{
    enum dt_dtype type = t->role == DT_PARAM ? DT_F32 : format->type;
    return format->unused ? format->reuse_bytes : format->elements * dt_dtype_bytes(type);
}

size_t dt_cuda_tensor_bytes(struct dt_device *dev, const struct dt_graph *g, int tensor)
{
    const struct dt_cuda_format *format = NULL;
    if (dt_cuda_format(dev, &format, g, tensor) != DT_OK)
        return 0; /* no node of the graph is prepared yet */
    return stored_bytes(format, &g->tensor[tensor]);
}

/* --- Values --- */

static float load_element(enum dt_dtype type, const void *memory, size_t i)
{
    if (type == DT_F16)
        return dt_fp16_to_float(((const uint16_t *)memory)[i]);
    if (type == DT_BF16)
        return dt_bf16_to_float(((const uint16_t *)memory)[i]);
    return ((const float *)memory)[i];
}

static void store_element(enum dt_dtype type, void *memory, size_t i, float value)
{
    if (type == DT_F16)
        ((uint16_t *)memory)[i] = dt_float_to_fp16(value);
    else if (type == DT_BF16)
        ((uint16_t *)memory)[i] = dt_float_to_bf16(value);
    else
        ((float *)memory)[i] = value;
}

/* Between N C H W in fp32 and N H W cp in `type`; the padding of `stored` is not touched. */
static void permute(const struct dt_cuda_format *f, enum dt_dtype type, float *logical,
                    void *stored, bool to_logical)
{
    const bool plain = f->layout == DT_LAYOUT_PLAIN;
    size_t c = plain ? 1 : (size_t)f->c, cp = plain ? 1 : (size_t)f->cp;
    size_t area = f->elements / (size_t)f->np / cp;
    for (size_t n = 0; n < (size_t)f->n; n++)
        for (size_t i = 0; i < c; i++)
            for (size_t p = 0; p < area; p++) {
                size_t from = (n * c + i) * area + p, to = (n * area + p) * cp + i;
                if (to_logical)
                    logical[from] = load_element(type, stored, to);
                else
                    store_element(type, stored, to, logical[from]);
            }
}

/* A copy of one tensor on the host. */
struct image {
    const struct dt_cuda_format *format;
    enum dt_dtype type;
    void *memory;
    size_t bytes;
};

static dt_status image_create(struct dt_device *dev, struct image *image, const struct dt_graph *g,
                              int tensor)
{
    const struct dt_tensor *t = &g->tensor[tensor];
    if (t->dtype != DT_F32)
        DT_FAIL(DT_ERR_INTERNAL, "tensor '%s' is not fp32 and has no logical values", t->name);
    DT_TRY(dt_cuda_format(dev, &image->format, g, tensor));
    image->type = t->role == DT_PARAM ? DT_F32 : image->format->type;
    image->bytes = stored_bytes(image->format, t);
    image->memory = dt_mem_alloc(image->bytes, 1, "the host copy of a tensor");
    return image->memory ? DT_OK : DT_ERR_MEMORY;
}

dt_status dt_cuda_set_tensor(struct dt_device *dev, const struct dt_graph *g, int tensor, void *dst,
                             const float *src)
{
    struct image image;
    DT_TRY(image_create(dev, &image, g, tensor));
    permute(image.format, image.type, (float *)(uintptr_t)src, image.memory, false);
    dt_status status = dt_cuda_upload(dev, dst, image.memory, image.bytes);
    free(image.memory);
    return status;
}

dt_status dt_cuda_get_tensor(struct dt_device *dev, const struct dt_graph *g, int tensor,
                             float *dst, const void *src)
{
    struct image image;
    DT_TRY(image_create(dev, &image, g, tensor));
    dt_status status = dt_cuda_read(dev, image.memory, src, image.bytes);
    if (status == DT_OK)
        permute(image.format, image.type, dst, image.memory, true);
    free(image.memory);
    return status;
}
