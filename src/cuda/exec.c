/* Formats, scratch and addresses of prepared nodes. */
#include "cuda/cuda_internal.h"

/* Bit i of a mask belongs to element i of the activation. */
static bool is_kind(const struct dt_cuda_format *f, const struct dt_cuda_format *like, char kind,
                    size_t n_groups)
{
    if (kind == 'a')
        return f->layout == DT_LAYOUT_ACTIVATION && f->type == like->type && f->cp == like->cp &&
               f->elements == like->elements && f->cp % DT_CHANNEL_PACK == 0;
    if (kind == 'i')
        return f->layout == DT_LAYOUT_ACTIVATION && f->type == like->type && f->cp == like->cp &&
               f->elements == (size_t)like->n * (size_t)like->cp;
    return kind == 'v'   ? f->layout == DT_LAYOUT_VECTOR && f->cp == like->cp
           : kind == 'w' ? f->layout == DT_LAYOUT_BITS && f->elements == like->elements / 8
                         : f->type == DT_F32 && f->elements == n_groups;
}

dt_status dt_cuda_check_kinds(const struct dt_exec *exec, const char *src_kinds,
                              const char *dst_kinds, size_t n_groups)
{
    const struct dt_node *node = exec->node;
    for (int i = 0; i < node->n_src + node->n_dst; i++) {
        const int d = i - node->n_src;
        const struct dt_cuda_format *f = d < 0 ? exec->src[i] : exec->dst[d];
        if (f && !is_kind(f, exec->src[0], d < 0 ? src_kinds[i] : dst_kinds[d], n_groups))
            DT_FAIL(DT_ERR_INTERNAL, "the tensors of node '%s' differ in layout (%s %d)",
                    node->name, d < 0 ? "source" : "destination", d < 0 ? i : d);
    }
    return DT_OK;
}

/* The op's scratch, plus what is needed to align it. */
size_t dt_cuda_scratch_bytes(struct dt_device *dev, const struct dt_exec *exec)
{
    (void)dev;
    size_t bytes = exec->op->scratch_bytes ? exec->op->scratch_bytes(exec) : exec->scratch_bytes;
    return bytes > 0 ? bytes + DT_CUDA_ALIGN - 1 : 0;
}

static dt_status bind_tensors(struct dt_exec *exec, void **data, const int *tensor, int n,
                              void *const *address)
{
    for (int i = 0; i < n; i++) {
        data[i] = tensor[i] < 0 ? NULL : address[tensor[i]];
        if (!data[i] && tensor[i] >= 0)
            DT_FAIL(DT_ERR_INTERNAL, "node '%s' (%s) has no memory for tensor '%s'",
                    exec->node->name, dt_op_name(exec->node->op),
                    exec->graph->tensor[tensor[i]].name);
    }
    return DT_OK;
}

dt_status dt_cuda_bind(struct dt_device *dev, struct dt_exec *exec, void *const *address,
                       void *scratch)
{
    const struct dt_node *node = exec->node;
    size_t bytes = dt_cuda_scratch_bytes(dev, exec);
    if (!scratch && bytes > 0)
        DT_FAIL(DT_ERR_INTERNAL, "node '%s' needs %zu bytes of scratch but got none", node->name,
                bytes);
    exec->scratch = (char *)dt_cuda_align((uintptr_t)scratch);
    DT_TRY(bind_tensors(exec, exec->src_data, node->src, node->n_src, address));
    DT_TRY(bind_tensors(exec, exec->dst_data, node->dst, node->n_dst, address));
    if (exec->op->bind)
        DT_TRY(exec->op->bind(dev, exec));
    return DT_OK;
}
