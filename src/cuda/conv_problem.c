#include "cuda/conv_problem.h"

#include <stdlib.h>

#include "base/mem.h"
#include "cuda/cuda_internal.h"

dt_status dt_conv_find_problem(struct dt_conv_problem **out, struct dt_device *dev,
                               const struct dt_conv_task *task)
{
    struct dt_conv_problem **end = &dev->problems;
    while (*end && !dt_conv_equal(&(*end)->task, task))
        end = &(*end)->next;
    if (!*end) {
        DT_TRY(DT_NEW(*end, 1));
        (*end)->task = *task;
    }
    *out = *end;
    return DT_OK;
}

void dt_cuda_problems_destroy(struct dt_device *dev)
{
    while (dev->problems) {
        struct dt_conv_problem *next = dev->problems->next;
        dt_dnn_exec_destroy(&dev->problems->plan);
        free(dev->problems);
        dev->problems = next;
    }
}
