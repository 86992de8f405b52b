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
static dt_status prepare_concat(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const int whole = node->op == DT_OP_CONCAT ? node->dst[0] : node->src[0];
    struct dt_cpu_rows rows;
    DT_TRY(dt_cpu_rows_choose(&rows, NULL, exec, node->src[0], dnnl_format_tag_any));
    const bool as_stored = dt_cpu_is_nhwc(&rows) || is_in_blocks(exec, whole, rows.block);
    return dt_cpu_port_add_rows(exec, as_stored ? rows.tag : dnnl_abcd, whole);
}

/* Values of a tensor of so many channels in a piece: all those of an image, or in nhwc of a pixel.
 */
static size_t piece(const struct dt_cpu_rows *rows, int channels)
{
    if (dt_cpu_is_nhwc(rows))
        return (size_t)channels;
    return (size_t)((channels + rows->block - 1) / rows->block) * rows->row_elements;
}

static size_t whole_piece(const struct dt_exec *exec, int tensor)
{
    const struct dt_graph *g = exec->graph;
    return piece(&exec->rows, g->tensor[dt_tensor_whole(g, tensor)].dim[1]);
}

/* Between the pieces of two tensors; nothing where a part lies in its whole. */
static void copy_pieces(const struct dt_exec *exec, real *dst, int to, const real *src, int from,
                        size_t n)
{
    const struct dt_cpu_rows *rows = &exec->rows;
    const size_t dst_piece = whole_piece(exec, to), src_piece = whole_piece(exec, from);
    const int n_parts = dt_cpu_is_nhwc(rows) ? 1 : (int)(n / rows->row_elements);
    const int n_pieces = rows->n * (dt_cpu_is_nhwc(rows) ? rows->height * rows->width : 1);
    const size_t part = n / (size_t)n_parts;
    if (dst == src)
        return;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < n_pieces * n_parts; i++) {
        const size_t at = (size_t)(i / n_parts), first = (size_t)(i % n_parts) * part;
        memcpy(dst + at * dst_piece + first, src + at * src_piece + first, part * sizeof(real));
    }
}

static dt_status run_concat(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    real *dst = dt_cpu_dst(exec, 0);
    for (int i = 0; i < node->n_src; i++) {
        const size_t n = piece(&exec->rows, exec->graph->tensor[node->src[i]].dim[1]);
        copy_pieces(exec, dst, node->dst[0], dt_cpu_src(exec, i), node->src[i], n);
        dst += n;
    }
    return DT_OK;
}

static dt_status run_concat_bwd(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const real *diff_dst = dt_cpu_src(exec, 0);
    copy_pieces(exec, dt_cpu_dst(exec, 0), node->dst[0],
                diff_dst + piece(&exec->rows, node->attr.concat.first), node->src[0],
                piece(&exec->rows, exec->graph->tensor[node->dst[0]].dim[1]));
    return DT_OK;
}

DT_CPU_OP(concat, prepare_concat, run_concat, true);
DT_CPU_OP(concat_bwd, prepare_concat, run_concat_bwd, true);
