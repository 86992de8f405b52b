/* Fusions of nodes (dt_graph_fusions) and whether they run together.
 *
 * The nodes of a fusion keep their place in the order of execution. If they run together, some do
 * more than their node says and others less: each op looks up its partners. What they then touch
 * besides their own tensors, and which tensors nobody uses any more, is in a table in fusion.c. */
#ifndef DTRAIN_CUDA_FUSION_H
#define DTRAIN_CUDA_FUSION_H

#include "cuda/cuda_internal.h"
#include "cuda/dnn_graph.h"

enum { DT_FUSION_TEXT_MAX = 420 };

/* Fusions that take the same time share a task. It lives as long as the device, so that several
 * plans of a network run its fusions in the same way: they share its formats. */
struct dt_fusion_task {
    struct dt_fusion_task *next;
    char text[DT_FUSION_TEXT_MAX]; /* "bn_pair fp16, bn 6>3 256x256x56x56>56x56, ..." */
    bool chosen;
    struct dt_conv_choice choice; /* candidate: one of dt_fusion_variant; tag: its name */
};

struct dt_cuda_fusion {
    struct dt_cuda_fusion *next;
    struct dt_fusion_task *task;
    struct dt_device *dev;
    enum dt_fusion_kind kind;
    int n_nodes;
    struct dt_exec *exec[DT_MAX_FUSED];
    /* Their convolutions when they run together; NULL = there are no more. */
    struct dt_conv_problem *problem[2];
    bool settled;
    struct dt_conv_choice choice; /* the task's if it can run together */
};

/* The slot in which node number `place` of a fusion keeps it. */
static inline int dt_fusion_slot(enum dt_fusion_kind kind, int place)
{
    return 2 * (int)kind + (place > 0);
}

/* Whether it can run together: its convolutions have plans, and the fusions that it builds on run
 * together. */
bool dt_fusion_is_possible(const struct dt_cuda_fusion *fusion);

/* In bn_conv, bn leaves the factors by which the convolutions normalise its src in the place of its
 * dst. */
void *dt_bn_scale_factors(const struct dt_exec *bn);
void *dt_bn_shift_factors(const struct dt_exec *bn);

/* The variants of a fusion. */
enum dt_fusion_variant { DT_FUSION_SEPARATE, DT_FUSION_FUSED, DT_N_FUSION_VARIANTS };

/* The problem of a convolution in the fusions that run together, or else by itself. */
const struct dt_conv_problem *dt_fusion_problem(const struct dt_exec *exec);

/* Makes the nodes run that way. */
void dt_fusion_apply(struct dt_cuda_fusion *fusion, enum dt_fusion_variant variant);

/* --- The time that fusions take (fusion_timer.c) --- */

struct dt_fusion_timer;
/* Memory and copies of the fusion's nodes that work there. DT_ERR_MEMORY if there is not enough. */
dt_status dt_fusion_timer_open(struct dt_fusion_timer **timer, struct dt_device *dev,
                               const struct dt_cuda_fusion *fusion);
/* Seconds per run over n runs of all nodes; a timer of dt_tune. */
dt_status dt_fusion_timer_run(void *timer, int variant, int n, double *seconds);
void dt_fusion_timer_close(struct dt_fusion_timer *timer); /* accepts NULL */

#endif
