#include "cuda/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

/* A tensor of a group: source or destination `index` of node number `place`. */
struct port {
    int place;
    bool dst;
    int index;
};
#define SRC(place, index)   \
    {                       \
        place, false, index \
    }
#define DST(place, index)  \
    {                      \
        place, true, index \
    }

/* For groups that run together. */
static const struct kind {
    struct {
        int by; /* a node, and a tensor of another that it touches */
        struct port port;
    } touched[DT_MAX_TOUCHED];
    int n_touched;
    struct port unused[3]; /* tensors that no node uses then */
    int n_unused;
    enum dt_conv_extra extra; /* of node 0, a convolution */
} kinds[DT_N_GROUP_KINDS] = {
    [DT_GROUP_BN_PAIR] = {.touched = {{1, SRC(0, 0)}, {1, DST(0, 1)}, {1, DST(0, 2)}},
                          .n_touched = 3,
                          .unused = {DST(0, 0)},
                          .n_unused = 1},
    [DT_GROUP_BN_PAIR_BWD] =
        {.touched = {{0, SRC(1, 0)}, {0, SRC(1, 4)}, {0, SRC(1, 5)}, {0, DST(1, 0)}},
         .n_touched = 4,
         .unused = {DST(0, 3)},
         .n_unused = 1},
    [DT_GROUP_BN_POOL] = {.touched = {{1, SRC(0, 0)},
                                      {1, DST(0, 1)},
                                      {1, DST(0, 2)},
                                      {3, SRC(2, 0)},
                                      {3, SRC(2, 1)}},
                          .n_touched = 5,
                          .unused = {DST(0, 0), DST(0, 3), DST(2, 0)},
                          .n_unused = 3},
    [DT_GROUP_CONV_BN] = {.touched = {{1, SRC(0, 0)}, {1, SRC(0, 1)}},
                          .n_touched = 2,
                          .extra = DT_CONV_SUMS},
};

static int tensor_at(const struct dt_cuda_group *group, struct port port)
{
    const struct dt_node *node = group->exec[port.place]->node;
    return port.dst ? node->dst[port.index] : node->src[port.index];
}

int dt_cuda_touches(const struct dt_exec *exec, int tensor[DT_MAX_TOUCHED])
{
    int n = 0;
    for (int kind = 0; kind < DT_N_GROUP_KINDS; kind++) {
        const struct dt_cuda_group *group = exec->group[kind];
        for (int i = 0; group && i < kinds[kind].n_touched; i++)
            if (group->exec[kinds[kind].touched[i].by] == exec)
                tensor[n++] = tensor_at(group, kinds[kind].touched[i].port);
    }
    return n;
}

const struct dt_exec *dt_cuda_partner(const struct dt_exec *exec, enum dt_group_kind kind,
                                      int place, int other)
{
    const struct dt_cuda_group *group = exec->group[kind];
    return group && group->exec[place] == exec ? group->exec[other] : NULL;
}

static dt_status find_problem(struct dt_device *dev, struct dt_cuda_group *group)
{
    const enum dt_conv_extra extra = kinds[group->kind].extra;
    if (extra == DT_CONV_PLAIN)
        return DT_OK;
    struct dt_conv_task task = group->exec[0]->problem->task;
    task.extra = extra;
    return dt_conv_find_problem(&group->problem, dev, &task);
}

dt_status dt_cuda_offer(struct dt_device *dev, const struct dt_group *group,
                        struct dt_exec *const *exec)
{
    struct dt_cuda_group **end = &dev->groups;
    if (dev->options.fusion == DT_FUSION_OFF)
        return DT_OK;
    while (*end)
        end = &(*end)->next;
    DT_TRY(DT_NEW(*end, 1));
    (*end)->dev = dev;
    (*end)->kind = group->kind;
    (*end)->n_nodes = group->n_nodes;
    for (int i = 0; i < group->n_nodes; i++)
        (*end)->exec[i] = exec[group->node[i]];
    return find_problem(dev, *end);
}

static bool has_member(const struct dt_cuda_group *group, const struct dt_exec *exec)
{
    for (int i = 0; i < group->n_nodes; i++)
        if (group->exec[i] == exec)
            return true;
    return false;
}

void dt_cuda_leave_groups(struct dt_device *dev, const struct dt_exec *exec)
{
    for (struct dt_cuda_group **link = &dev->groups; *link;) {
        struct dt_cuda_group *group = *link;
        if (!has_member(group, exec)) {
            link = &group->next;
            continue;
        }
        for (int i = 0; i < group->n_nodes; i++)
            group->exec[i]->group[group->kind] = NULL;
        *link = group->next;
        free(group);
    }
}

static void add_node(struct dt_text *text, const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_cuda_format *in = exec->src[0], *out = exec->dst[0];
    dt_text_add(text, ", %s%s %d>%d %dx%dx%dx%d>%dx%d", dt_op_name(node->op),
                node->relu ? "+relu" : "", node->n_src, node->n_dst, in->n, in->cp, in->h, in->w,
                out->h, out->w);
    if (node->op == DT_OP_MAX_POOL)
        dt_text_add(text, " window %d stride %d pad %d", node->attr.pool.kernel,
                    node->attr.pool.stride, node->attr.pool.pad);
}

const char *dt_group_text(char out[DT_GROUP_TEXT_MAX], const struct dt_cuda_group *group)
{
    struct dt_text text = dt_text_in(out, DT_GROUP_TEXT_MAX);
    dt_text_add(&text, "%s %s", dt_group_name(group->kind),
                dt_precision_name(group->dev->options.precision));
    for (int i = 0; i < group->n_nodes; i++)
        add_node(&text, group->exec[i]);
    return out;
}

void dt_group_settle(struct dt_cuda_group *group, enum dt_group_way way)
{
    const struct kind *kind = &kinds[group->kind];
    group->chosen = true;
    if (way == DT_GROUP_APART)
        return;
    for (int i = 0; i < group->n_nodes; i++)
        group->exec[i]->group[group->kind] = group;
    for (int i = 0; i < kind->n_unused; i++)
        dt_cuda_format_drop(group->dev, group->exec[0]->graph, tensor_at(group, kind->unused[i]));
}
