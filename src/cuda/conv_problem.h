/* The distinct convolutions of a device, and the plan chosen for each. */
#ifndef DTRAIN_CUDA_CONV_PROBLEM_H
#define DTRAIN_CUDA_CONV_PROBLEM_H

#include "cuda/dnn_graph.h"
#include "dtrain/backend.h"

/* The chosen candidate: its index in the offer, the tag of its plan as a check, what was measured.
 */
struct dt_conv_choice {
    int64_t candidate;
    char tag[DT_DNN_TAG_MAX], runner_up[DT_DNN_TAG_MAX]; /* runner_up: "" = none */
    double seconds, runner_up_s;                         /* of a run; NAN = not measured */
};

/* Nodes with equal tasks share a problem. It lives as long as the device, so a later plan of the
 * same network finds it already chosen. */
struct dt_conv_problem {
    struct dt_conv_problem *next;
    struct dt_conv_task task;
    struct dt_dnn_exec plan; /* empty before choose, and if refused */
    struct dt_conv_choice choice;
    bool refused; /* a task with extras that has no plan */
};
/* Finds the problem of a task or adds it at the end. All ranks do so for the same tasks in the same
 * order, so they have the same list. */
dt_status dt_conv_find_problem(struct dt_conv_problem **out, struct dt_device *dev,
                               const struct dt_conv_task *task);

#endif
