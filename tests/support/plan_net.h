/* Networks that are planned and trained, to compare what two of them learned. */
#ifndef DTRAIN_TESTS_PLAN_NET_H
#define DTRAIN_TESTS_PLAN_NET_H

#include <math.h>
#include <stdlib.h>

#include "dtrain/plan.h"

struct net {
    struct dt_device *dev;
    struct dt_graph *g;
    struct dt_plan *plan;
    size_t allocated; /* by building the plan, where a test asks */
};

static inline void close_net(const struct dt_backend *backend, struct net *net)
{
    dt_plan_destroy(net->plan);
    dt_graph_destroy(net->g);
    backend->close(net->dev);
}

/* The largest difference of a tensor with the role, relative to its norm; INFINITY if it cannot be
 * read or is not a number. */
static inline double difference(const struct net *a, const struct net *b, enum dt_role role,
                                enum dt_arena arena)
{
    double worst = 0;
    size_t most = dt_graph_largest(a->g, role);
    float *x = malloc(most * sizeof *x), *y = malloc(most * sizeof *y);
    for (int t = 0; t < a->g->n_tensors; t++) {
        double squares = 0, norm = 0;
        if (a->g->tensor[t].role != role || (a->g->tensor[t].frozen && arena == DT_ARENA_GRADS))
            continue;
        if (dt_plan_get(a->plan, arena, t, x) != DT_OK ||
            dt_plan_get(b->plan, arena, t, y) != DT_OK)
            squares = INFINITY;
        for (size_t i = 0; i < dt_tensor_elements(&a->g->tensor[t]); i++) {
            squares += pow((double)x[i] - (double)y[i], 2);
            norm += (double)y[i] * (double)y[i];
        }
        double relative = sqrt(squares / fmax(norm, 1e-30));
        worst = fmax(worst, isnan(relative) ? INFINITY : relative);
    }
    free(x);
    free(y);
    return worst;
}

#endif
