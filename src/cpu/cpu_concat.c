/* Concatenation along the channels, and its gradient: copies of whole blocks of channels. */
#include <string.h>

#include "cpu/cpu_internal.h"

/* Whether every tensor of the node is a number of whole blocks within the largest one, but for the
 * last, whose padding is that one's. */
static bool is_in_blocks(const struct dt_exec *exec, int whole, int block)
{
    const struct dt_node *node = exec->node;
    const struct dt_tensor *t = exec->graph->tensor;
    int first = node->op == DT_OP_CONCAT ? 0 : node->attr.concat.first;
    int tensor[DT_MAX_SRC + DT_MAX_DST], n = dt_node_tensors(node, tensor);
    for (int i = 0; i < n; i++) {
        if (tensor[i] == whole)
            continue;
        const int end = first + t[tensor[i]].dim[1];
        if (first % block != 0 || (end % block != 0 && end != t[whole].dim[1]))
            return false;
        first = end;
    }
    return true;
}

/* All tensors take the row format of src[0], or plain order where a block would be divided. */
static dt_status prepare_concat(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const int whole = node->op == DT_OP_CONCAT ? node->dst[0] : node->src[0];
    struct dt_cpu_rows rows;
    dt_md md = NULL;

    DT_TRY(dt_cpu_rows_choose(&rows, &md, exec, node->src[0], 0));
    dt_md_destroy(md);
    const int block = is_in_blocks(exec, whole, rows.block) ? rows.block : 1;
    int tensor[DT_MAX_SRC + DT_MAX_DST], n = dt_node_tensors(node, tensor);
    for (int i = 0; i < n; i++) {
        DT_TRY(dt_cpu_rows_choose(&rows, &md, exec, tensor[i], block));
        dt_status status = dt_cpu_port_add(dev, exec, md);
        dt_md_destroy(md);
        DT_TRY(status);
        if (tensor[i] == whole)
            exec->rows = rows;
    }
    return DT_OK;
}

/* Blocks of channels of all images, between the rows of two tensors. */
static void copy_blocks(real *dst, int dst_blocks, const real *src, int src_blocks, int n_blocks,
                        const struct dt_cpu_rows *rows)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows->n * n_blocks; i++) {
        const size_t image = (size_t)(i / n_blocks), block = (size_t)(i % n_blocks);
        memcpy(dst + (image * (size_t)dst_blocks + block) * rows->row_elements,
               src + (image * (size_t)src_blocks + block) * rows->row_elements,
               rows->row_elements * sizeof(real));
    }
}

static int blocks_of(const struct dt_exec *exec, int tensor)
{
    return (exec->graph->tensor[tensor].dim[1] + exec->rows.block - 1) / exec->rows.block;
}

static dt_status run_concat(struct dt_device *dev, struct dt_exec *exec,
                            const struct dt_scalars *scalars)
{
    (void)dev, (void)scalars;
    const struct dt_cpu_rows *rows = &exec->rows;
    real *dst = dt_cpu_dst(exec, 0);
    for (int i = 0; i < exec->node->n_src; i++) {
        const int n_blocks = blocks_of(exec, exec->node->src[i]);
        copy_blocks(dst, rows->n_blocks, dt_cpu_src(exec, i), n_blocks, n_blocks, rows);
        dst += (size_t)n_blocks * rows->row_elements;
    }
    return DT_OK;
}

static dt_status run_concat_bwd(struct dt_device *dev, struct dt_exec *exec,
                                const struct dt_scalars *scalars)
{
    (void)dev, (void)scalars;
    const struct dt_cpu_rows *rows = &exec->rows;
    const size_t first = (size_t)(exec->node->attr.concat.first / rows->block);
    const real *diff_dst = dt_cpu_src(exec, 0);
    const int n_blocks = blocks_of(exec, exec->node->dst[0]);
    copy_blocks(dt_cpu_dst(exec, 0), n_blocks, diff_dst + first * rows->row_elements,
                rows->n_blocks, n_blocks, rows);
    return DT_OK;
}

const struct dt_cpu_op DT_ISA_NAME(dt_cpu_concat) = {prepare_concat, run_concat, true};
const struct dt_cpu_op DT_ISA_NAME(dt_cpu_concat_bwd) = {prepare_concat, run_concat_bwd, true};
