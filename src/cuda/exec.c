/* Scratch and addresses of prepared nodes. */
#include "cuda/cuda_internal.h"

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
