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

static int blocks_of(const struct dt_exec *exec, int tensor)
{
    return (exec->graph->tensor[tensor].dim[1] + exec->rows.block - 1) / exec->rows.block;
}

/* Between the blocks of channels of two tensors, of all images; nothing where a part lies in its
 * whole. */
static void copy_blocks(const struct dt_exec *exec, real *dst, int to, const real *src, int from,
                        int n_blocks)
{
    const struct dt_graph *g = exec->graph;
    const size_t row = exec->rows.row_elements;
    const size_t dst_image = row * (size_t)blocks_of(exec, dt_tensor_whole(g, to));
    const size_t src_image = row * (size_t)blocks_of(exec, dt_tensor_whole(g, from));
    if (dst == src)
        return;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < exec->rows.n * n_blocks; i++) {
        const size_t image = (size_t)(i / n_blocks), block = (size_t)(i % n_blocks);
        memcpy(dst + image * dst_image + block * row, src + image * src_image + block * row,
               row * sizeof(real));
    }
}

static dt_status run_concat(struct dt_device *dev, struct dt_exec *exec,
                            const struct dt_scalars *scalars)
{
    (void)dev, (void)scalars;
    const struct dt_node *node = exec->node;
    real *dst = dt_cpu_dst(exec, 0);
    for (int i = 0; i < node->n_src; i++) {
        const int n_blocks = blocks_of(exec, node->src[i]);
        copy_blocks(exec, dst, node->dst[0], dt_cpu_src(exec, i), node->src[i], n_blocks);
        dst += (size_t)n_blocks * exec->rows.row_elements;
    }
    return DT_OK;
}

static dt_status run_concat_bwd(struct dt_device *dev, struct dt_exec *exec,
                                const struct dt_scalars *scalars)
{
    (void)dev, (void)scalars;
    const struct dt_node *node = exec->node;
    const size_t first = (size_t)(node->attr.concat.first / exec->rows.block);
    const real *diff_dst = (const real *)dt_cpu_src(exec, 0) + first * exec->rows.row_elements;
    copy_blocks(exec, dt_cpu_dst(exec, 0), node->dst[0], diff_dst, node->src[0],
                blocks_of(exec, node->dst[0]));
    return DT_OK;
}

const struct dt_cpu_op DT_ISA_NAME(dt_cpu_concat) = {prepare_concat, run_concat, true};
const struct dt_cpu_op DT_ISA_NAME(dt_cpu_concat_bwd) = {prepare_concat, run_concat_bwd, true};
