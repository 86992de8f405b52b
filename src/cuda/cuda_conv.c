/* Convolution and its two gradients by cuDNN, with the plans chosen by autotune.c.
 *
 * Bias and ReLU follow as one in-place kernel; the gradient of the bias is a sum over the rows of
 * diff_dst. The addresses of a node never change, so cuDNN gets them once, in bind. */
#include "cuda/cuda_conv.h"

#include "cuda/fusion.h"

/* The positions of the task's x, weights and y in a node's sources or destinations. */
struct place {
    bool dst;
    int index;
};
static const struct {
    enum dt_conv_kind kind;
    struct place x, w, y;
} layouts[DT_N_OPS] = {
    [DT_OP_CONV] = {DT_CONV_FORWARD, {false, DT_CONV_SRC}, {false, DT_CONV_WEIGHTS}, {true, 0}},
    [DT_OP_CONV_BWD_DATA] = {DT_CONV_BWD_DATA,
                             {true, 0},
                             {false, DT_BWD_DATA_WEIGHTS},
                             {false, DT_BWD_DATA_DIFF_DST}},
    [DT_OP_CONV_BWD_WEIGHTS] = {DT_CONV_BWD_WEIGHTS,
                                {false, DT_BWD_WEIGHTS_SRC},
                                {true, DT_BWD_DIFF_WEIGHTS},
                                {false, DT_BWD_WEIGHTS_DIFF_DST}},
};

static const struct dt_cuda_format *format_at(const struct dt_exec *exec, struct place place)
{
    return place.dst ? exec->dst[place.index] : exec->src[place.index];
}

static void *data_at(const struct dt_exec *exec, struct place place)
{
    return place.dst ? exec->dst_data[place.index] : exec->src_data[place.index];
}

/* The padding of the channels keeps the groups: there is none, or every channel is a group. */
static bool is_grouped_evenly(const struct dt_exec *exec, const struct dt_cuda_format *x,
                              const struct dt_cuda_format *y)
{
    const bool depthwise = dt_conv_groups(exec->graph, exec->node) == x->c && x->c == y->c;
    return depthwise || (x->c == x->cp && y->c == y->cp);
}

static dt_status prepare_conv(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_cuda_format *x = format_at(exec, layouts[node->op].x);
    const struct dt_cuda_format *w = format_at(exec, layouts[node->op].w);
    const struct dt_cuda_format *y = format_at(exec, layouts[node->op].y);
    const struct dt_conv_task task = {
        .kind = layouts[node->op].kind,
        .type = x->type,
        .n = x->n,
        .c = x->cp,
        .h = x->h,
        .w = x->w,
        .k = w->np,
        .r = w->h,
        .s = w->w,
        .stride = node->attr.conv.stride,
        .pad = node->attr.conv.pad,
        .dilation = node->attr.conv.dilation,
        .groups = x->cp / w->cp,
    };
    if (w->cp != x->cp && !is_grouped_evenly(exec, x, y))
        DT_FAIL(
            DT_ERR_CONFIG,
            "convolution '%s' has %d to %d channels in groups of %d; on a GPU a group must have a "
            "multiple of 8 of both, or every channel be a group",
            node->name, x->c, y->c, w->c);
    if (x->cp % w->cp != 0 || w->np != y->cp || w->type != x->type || y->type != x->type ||
        y->n != x->n || y->h != dt_conv_out_h(&task) || y->w != dt_conv_out_w(&task))
        DT_FAIL(DT_ERR_INTERNAL, "the formats of convolution '%s' are inconsistent", node->name);
    return dt_conv_find_problem(&exec->problem, dev, &task);
}

bool dt_conv_runs_elsewhere(const struct dt_exec *exec)
{
    return dt_cuda_partner(exec, DT_FUSION_CONV_BN, 0, 1) ||
           dt_cuda_partner(exec, DT_FUSION_CONV_BN_BWD, 1, 2) ||
           dt_cuda_partner(exec, DT_FUSION_CONV_ADD_BN_BWD, 1, 2) ||
           dt_cuda_partner(exec, DT_FUSION_CONV_PAIR_BWD, 2, 3);
}

static size_t scratch_bytes(const struct dt_exec *exec)
{
    const struct dt_conv_task *task = &exec->problem->task;
    const size_t rows = (size_t)task->n * (size_t)dt_conv_out_h(task) * (size_t)dt_conv_out_w(task);
    const size_t workspace = dt_fusion_problem(exec)->exec.workspace_bytes;
    size_t partial = 0;
    if (dt_conv_runs_elsewhere(exec))
        return 0;
    /* Partial sums of the bias gradient reuse the workspace, which is free again by then. */
    if (exec->node->op == DT_OP_CONV_BWD_WEIGHTS && exec->dst[DT_BWD_DIFF_BIAS])
        partial = dt_channel_partial_bytes(rows, task->k, 1);
    return workspace > partial ? workspace : partial;
}

void dt_conv_release(struct dt_device *dev, struct dt_exec *exec)
{
    (void)dev;
    dt_dnn_pack_destroy(exec->own);
    exec->own = NULL;
}

dt_status dt_conv_bind(struct dt_device *dev, struct dt_exec *exec,
                       const struct dt_dnn_memory *memory)
{
    cudnnBackendDescriptor_t pack = NULL;
    dt_conv_release(dev, exec);
    DT_TRY(dt_dnn_pack_create(&pack, memory));
    exec->own = pack;
    return DT_OK;
}

struct dt_dnn_memory dt_conv_memory(const struct dt_exec *exec)
{
    const enum dt_op op = exec->node->op;
    return (struct dt_dnn_memory){.at = {[DT_DNN_X] = data_at(exec, layouts[op].x),
                                         [DT_DNN_W] = data_at(exec, layouts[op].w),
                                         [DT_DNN_Y] = data_at(exec, layouts[op].y)}};
}

void dt_conv_place_factors(struct dt_dnn_memory *memory, const struct dt_exec *bn)
{
    if (!bn)
        return;
    memory->at[DT_DNN_X] = bn->src_data[DT_BN_SRC];
    memory->at[DT_DNN_SCALE] = dt_bn_scale_factors(bn);
    memory->at[DT_DNN_SHIFT] = dt_bn_shift_factors(bn);
}

static dt_status bind(struct dt_device *dev, struct dt_exec *exec)
{
    if (dt_conv_runs_elsewhere(exec))
        return DT_OK;
    if (!exec->problem->exec.plan)
        DT_FAIL(DT_ERR_INTERNAL, "no plan was chosen for convolution '%s'", exec->node->name);
    struct dt_dnn_memory memory = dt_conv_memory(exec);
    if (dt_fusion_problem(exec)->exec.workspace_bytes > 0)
        memory.workspace = exec->scratch;
    dt_conv_place_factors(&memory, dt_cuda_partner(exec, DT_FUSION_BN_CONV, 3, 0));
    return dt_conv_bind(dev, exec, &memory);
}

static dt_status run_conv(struct dt_device *dev, struct dt_exec *exec)
{
    if (dt_conv_runs_elsewhere(exec))
        return DT_OK;
    const struct dt_cuda_format *dst = exec->dst[0];
    const float *bias = exec->src_data[DT_CONV_BIAS];
    size_t rows = (size_t)dst->n * (size_t)dst->h * (size_t)dst->w;
    DT_TRY(dt_dnn_run(dev->dnn, &dt_fusion_problem(exec)->exec, exec->own));
    if (bias || exec->node->activation)
        DT_TRY(DT_CUDA("adding the bias of a convolution",
                       dt_kernel_bias(dev->compute, dst->type, exec->dst_data[0], bias, rows,
                                      dst->cp, exec->node->activation == DT_RELU)));
    return DT_OK;
}

static dt_status run_bwd_data(struct dt_device *dev, struct dt_exec *exec)
{
    if (dt_conv_runs_elsewhere(exec))
        return DT_OK;
    return dt_dnn_run(dev->dnn, &dt_fusion_problem(exec)->exec, exec->own);
}

static dt_status run_bwd_weights(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_cuda_format *diff_dst = exec->src[DT_BWD_WEIGHTS_DIFF_DST];
    size_t rows = (size_t)diff_dst->n * (size_t)diff_dst->h * (size_t)diff_dst->w;
    DT_TRY(dt_dnn_run(dev->dnn, &dt_fusion_problem(exec)->exec, exec->own));
    if (exec->dst[DT_BWD_DIFF_BIAS])
        DT_TRY(DT_CUDA("summing the gradient of a bias",
                       dt_kernel_bias_bwd(dev->compute, diff_dst->type,
                                          exec->dst_data[DT_BWD_DIFF_BIAS], (void *)exec->scratch,
                                          exec->src_data[DT_BWD_WEIGHTS_DIFF_DST], rows,
                                          diff_dst->cp)));
    return DT_OK;
}

const struct dt_cuda_op dt_cuda_conv = {run_conv, prepare_conv,    scratch_bytes,
                                        bind,     dt_conv_release, NULL};
const struct dt_cuda_op dt_cuda_conv_bwd_data = {run_bwd_data, prepare_conv,    scratch_bytes,
                                                 bind,         dt_conv_release, NULL};
const struct dt_cuda_op dt_cuda_conv_bwd_weights = {
    run_bwd_weights, prepare_conv, scratch_bytes, bind, dt_conv_release, NULL};
