#include "cuda/fusion.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

/* A tensor of a fusion: source or destination `index` of node number `place`. */
struct port {
    int place;
    bool dst;
    int index;
};

static size_t inverse_std_bytes(const struct dt_exec *bn)
{
    return (size_t)bn->src[0]->cp * sizeof(float);
}

static size_t factor_bytes(const struct dt_exec *bn)
{
    return dt_cuda_align((size_t)bn->src[0]->cp * dt_dtype_bytes(bn->src[0]->type));
}

static size_t two_factor_bytes(const struct dt_exec *bn)
{
    return 2 * factor_bytes(bn);
}

void *dt_bn_scale_factors(const struct dt_exec *bn)
{
    return bn->dst_data[DT_BN_DST];
}

void *dt_bn_shift_factors(const struct dt_exec *bn)
{
    return (char *)bn->dst_data[DT_BN_DST] + factor_bytes(bn);
}

static size_t two_inverse_std_bytes(const struct dt_exec *bn)
{
    return 2 * inverse_std_bytes(bn);
}

/* clang-format off */
#define SRC(place, operand) {place, false, DT_##operand}
#define DST(place, operand) {place, true, DT_##operand}
/* clang-format on */

/* The changes that a kind of fusion makes when it runs together. */
static const struct kind {
    struct {
        int by; /* a node, and a tensor of another that it touches */
        struct port port;
    } touched[DT_MAX_EXTRA_TENSORS]; /* a tensor of its own: there are no more */
    struct {
        struct port port;
        size_t (*reuse_bytes)(const struct dt_exec *exec); /* NULL: 0 */
    } unused[3]; /* Tensors that no node uses when the fusion runs together. reuse_bytes: how much
                    of such a tensor's memory the node that would have made it uses for something
                    else. A row with a source ends the list. */
    struct {
        int node;
        enum dt_conv_extra extra;
    } conv[2]; /* the convolutions among them; DT_CONV_PLAIN: there are no more */
} kinds[DT_N_FUSION_KINDS] = {
    [DT_FUSION_BN_PAIR] = {.touched = {{1, SRC(0, BN_SRC)},
                                       {1, DST(0, BN_MEAN)},
                                       {1, DST(0, BN_VARIANCE)}},
                           .unused = {{DST(0, BN_DST)}}},
    [DT_FUSION_BN_PAIR_BWD] = {.touched = {{0, SRC(1, BN_BWD_SRC)},
                                           {0, SRC(1, BN_BWD_MEAN)},
                                           {0, SRC(1, BN_BWD_VARIANCE)},
                                           {0, DST(1, BN_BWD_DIFF_SRC)}},
                               .unused = {{DST(0, BN_BWD_DIFF_RESIDUAL)}}},
    [DT_FUSION_BN_POOL] = {.touched = {{1, SRC(0, BN_SRC)},
                                       {1, DST(0, BN_MEAN)},
                                       {1, DST(0, BN_VARIANCE)},
                                       {3, SRC(2, MAX_POOL_BWD_DIFF_DST)},
                                       {3, SRC(2, MAX_POOL_BWD_WORKSPACE)}},
                           .unused = {{DST(0, BN_DST)},
                                      {DST(0, BN_MASK)},
                                      {DST(2, MAX_POOL_BWD_DIFF_SRC)}}},
    [DT_FUSION_CONV_BN] = {.touched = {{1, SRC(0, CONV_SRC)}, {1, SRC(0, CONV_WEIGHTS)}},
                           .conv = {{0, DT_CONV_SUMS}}},
    [DT_FUSION_CONV_BN_BWD] = {.touched = {{2, SRC(1, BWD_DATA_DIFF_DST)},
                                           {2, SRC(1, BWD_DATA_WEIGHTS)}},
                               .unused = {{DST(0, BN_MASK), inverse_std_bytes}},
                               .conv = {{1, DT_CONV_BN_BWD}}},
    [DT_FUSION_CONV_ADD_BN_BWD] = {.touched = {{2, SRC(1, BWD_DATA_DIFF_DST)},
                                               {2, SRC(1, BWD_DATA_WEIGHTS)},
                                               {2, SRC(0, BN_RESIDUAL)}},
                                   .unused = {{DST(0, BN_MASK), inverse_std_bytes},
                                              {DST(1, BWD_DATA_DIFF_SRC)}},
                                   .conv = {{1, DT_CONV_ADD_RESIDUAL_BN_BWD}}},
    [DT_FUSION_BN_CONV] = {.touched = {{2, SRC(0, BN_SRC)}, {3, SRC(0, BN_SRC)}},
                           .unused = {{DST(0, BN_DST), two_factor_bytes}},
                           .conv = {{1, DT_CONV_NORM_SUMS}, {3, DT_CONV_NORM}}},
    [DT_FUSION_CONV_PAIR_BWD] = {.touched = {{0, DST(1, BN_MASK)},
                                             {3, SRC(2, BWD_DATA_DIFF_DST)},
                                             {3, SRC(2, BWD_DATA_WEIGHTS)}},
                                 .unused = {{DST(1, BN_MASK), two_inverse_std_bytes}},
                                 .conv = {{2, DT_CONV_ADD_PAIR_BN_BWD}}},
};

static int tensor_at(const struct dt_cuda_fusion *fusion, struct port port)
{
    const struct dt_node *node = fusion->exec[port.place]->node;
    return port.dst ? node->dst[port.index] : node->src[port.index];
}

int dt_cuda_extra_tensors(const struct dt_exec *exec, int tensor[DT_MAX_EXTRA_TENSORS])
{
    int n = 0;
    for (size_t slot = 0; slot < DT_COUNT(exec->fusion); slot++) {
        const struct dt_cuda_fusion *fusion = exec->fusion[slot];
        const struct kind *kind = fusion ? &kinds[fusion->kind] : NULL;
        for (int i = 0; kind && kind->touched[i].by != kind->touched[i].port.place; i++)
            if (fusion->exec[kind->touched[i].by] == exec)
                tensor[n++] = tensor_at(fusion, kind->touched[i].port);
    }
    return n;
}

const struct dt_exec *dt_cuda_partner(const struct dt_exec *exec, enum dt_fusion_kind kind,
                                      int place, int other)
{
    const struct dt_cuda_fusion *fusion = exec->fusion[dt_fusion_slot(kind, place)];
    return fusion && fusion->exec[place] == exec ? fusion->exec[other] : NULL;
}

/* A later kind builds on the others. */
const struct dt_conv_problem *dt_fusion_problem(const struct dt_exec *exec)
{
    const struct dt_conv_problem *found = exec->problem;
    for (size_t slot = 0; slot < DT_COUNT(exec->fusion); slot++) {
        const struct dt_cuda_fusion *fusion = exec->fusion[slot];
        for (size_t i = 0; fusion && i < DT_COUNT(fusion->problem) && fusion->problem[i]; i++)
            if (fusion->exec[kinds[fusion->kind].conv[i].node] == exec)
                found = fusion->problem[i];
    }
    return found;
}

bool dt_fusion_is_possible(const struct dt_cuda_fusion *fusion)
{
    for (size_t i = 0; i < DT_COUNT(fusion->problem) && fusion->problem[i]; i++)
        if (fusion->problem[i]->refused)
            return false;
    /* cuDNN has such convolutions with sums only, and our own gradient of bn needs its mask. */
    if (fusion->kind == DT_FUSION_BN_CONV)
        return dt_cuda_partner(fusion->exec[2], DT_FUSION_CONV_BN, 1, 0) &&
               dt_cuda_partner(fusion->exec[0], DT_FUSION_CONV_BN_BWD, 0, 2);
    if (fusion->kind == DT_FUSION_BN_POOL)
        return fusion->exec[1]->node->attr.pool.kernel <= DT_BN_POOL_MAX_KERNEL;
    return fusion->kind != DT_FUSION_CONV_PAIR_BWD ||
           dt_cuda_partner(fusion->exec[3], DT_FUSION_BN_PAIR_BWD, 0, 1);
}

static dt_status find_task(struct dt_device *dev, struct dt_cuda_fusion *fusion)
{
    char text[DT_FUSION_TEXT_MAX];
    struct dt_fusion_task **end = &dev->fusion_tasks;
    struct dt_text line = dt_text_in(text, DT_FUSION_TEXT_MAX);
    const struct dt_device_options *options = &fusion->dev->options;
    dt_text_add(&line, "%s %s%s%s", dt_fusion_name(fusion->kind),
                dt_precision_name(options->precision), options->winograd ? " winograd" : "",
                options->n_ranks > 1 ? " several ranks" : "");
    for (int i = 0; i < fusion->n_nodes; i++) {
        const struct dt_exec *exec = fusion->exec[i];
        const struct dt_node *node = exec->node;
        const struct dt_cuda_format *src = exec->src[0], *dst = exec->dst[0];
        dt_text_add(&line, ", %s%s %d>%d %dx%dx%dx%d>%dx%d", dt_op_name(node->op),
                    node->activation == DT_RELU ? "+relu" : "", node->n_src, node->n_dst, src->n,
                    src->cp, src->h, src->w, dst->h, dst->w);
        if (exec->problem)
            dt_text_add(&line, " window %dx%d stride %d pad %d", exec->problem->task.r,
                        exec->problem->task.s, node->attr.conv.stride, node->attr.conv.pad);
        if (exec->problem && exec->problem->task.groups * exec->problem->task.dilation > 1)
            dt_text_add(&line, " groups %d dilation %d", exec->problem->task.groups,
                        exec->problem->task.dilation);
        if (node->op == DT_OP_MAX_POOL)
            dt_text_add(&line, " window %d stride %d pad %d", node->attr.pool.kernel,
                        node->attr.pool.stride, node->attr.pool.pad);
    }
    while (*end && strcmp((*end)->text, text) != 0)
        end = &(*end)->next;
    if (!*end) {
        DT_TRY(DT_NEW(*end, 1));
        memcpy((*end)->text, text, sizeof text);
    }
    fusion->task = *end;
    return DT_OK;
}

void dt_cuda_fusion_tasks_destroy(struct dt_device *dev)
{
    while (dev->fusion_tasks) {
        struct dt_fusion_task *next = dev->fusion_tasks->next;
        free(dev->fusion_tasks);
        dev->fusion_tasks = next;
    }
}

dt_status dt_cuda_propose_fusion(struct dt_device *dev, const struct dt_fusion *fusion,
                                 struct dt_exec *const *exec)
{
    const struct kind *kind = &kinds[fusion->kind];
    struct dt_cuda_fusion **end = &dev->fusions;
    if (dev->options.fusion == DT_FUSION_OFF)
        return DT_OK;
    while (*end)
        end = &(*end)->next;
    DT_TRY(DT_NEW(*end, 1));
    struct dt_cuda_fusion *added = *end;
    added->dev = dev;
    added->kind = fusion->kind;
    added->n_nodes = fusion->n_nodes;
    for (int i = 0; i < fusion->n_nodes; i++)
        added->exec[i] = exec[fusion->node[i]];
    for (size_t i = 0; i < DT_COUNT(kind->conv) && kind->conv[i].extra != DT_CONV_PLAIN; i++) {
        struct dt_conv_task task = added->exec[kind->conv[i].node]->problem->task;
        task.extra = kind->conv[i].extra;
        DT_TRY(dt_conv_find_problem(&added->problem[i], dev, &task));
    }
    return find_task(dev, added);
}

static bool has_member(const struct dt_cuda_fusion *fusion, const struct dt_exec *exec)
{
    for (int i = 0; i < fusion->n_nodes; i++)
        if (fusion->exec[i] == exec)
            return true;
    return false;
}

void dt_cuda_leave_fusions(struct dt_device *dev, const struct dt_exec *exec)
{
    for (struct dt_cuda_fusion **link = &dev->fusions; *link;) {
        struct dt_cuda_fusion *fusion = *link;
        if (!has_member(fusion, exec)) {
            link = &fusion->next;
            continue;
        }
        for (int i = 0; i < fusion->n_nodes; i++)
            fusion->exec[i]->fusion[dt_fusion_slot(fusion->kind, i)] = NULL;
        *link = fusion->next;
        free(fusion);
    }
}

void dt_fusion_apply(struct dt_cuda_fusion *fusion, enum dt_fusion_variant variant)
{
    const struct kind *kind = &kinds[fusion->kind];
    fusion->settled = true;
    if (variant == DT_FUSION_SEPARATE)
        return;
    for (int i = 0; i < fusion->n_nodes; i++)
        fusion->exec[i]->fusion[dt_fusion_slot(fusion->kind, i)] = fusion;
    for (size_t i = 0; i < DT_COUNT(kind->unused) && kind->unused[i].port.dst; i++) {
        const struct dt_exec *exec = fusion->exec[kind->unused[i].port.place];
        dt_cuda_format_drop(fusion->dev, exec->graph, tensor_at(fusion, kind->unused[i].port),
                            kind->unused[i].reuse_bytes ? kind->unused[i].reuse_bytes(exec) : 0);
    }
}
