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

/* Bytes of the work arena if no two tensors shared memory. */
static inline size_t bytes_without_sharing(const struct dt_plan *plan)
{
    enum { ALIGN = 256 }; /* of tensors, src/plan/plan_internal.h */
    size_t bytes = 0;
    for (int t = 0; t < plan->graph->n_tensors; t++)
        if (plan->place[t].arena == DT_ARENA_WORK)
            bytes += (plan->place[t].bytes + ALIGN - 1) / ALIGN * ALIGN;
    return bytes;
}

static inline void close_net(const struct dt_backend *backend, struct net *net)
{
    dt_plan_destroy(net->plan);
    dt_graph_destroy(net->g);
    backend->close(net->dev);
}

/* Adds the squares of differences and of values of tensor t; INFINITY if it cannot be read. */
static inline void add_squares(double sum[2], const struct net *a, const struct net *b,
                               enum dt_arena arena, int t)
{
    const size_t count = dt_tensor_elements(&a->g->tensor[t]);
    float *x = malloc(count * sizeof *x), *y = malloc(count * sizeof *y);
    if (!x || !y || dt_plan_get(a->plan, arena, t, x) != DT_OK ||
        dt_plan_get(b->plan, arena, t, y) != DT_OK)
        sum[0] = INFINITY;
    for (size_t i = 0; i < count && isfinite(sum[0]); i++) {
        sum[0] += pow((double)x[i] - (double)y[i], 2);
        sum[1] += (double)y[i] * (double)y[i];
    }
    free(x);
    free(y);
}

static inline double relative(const double sum[2])
{
    const double result = sqrt(sum[0] / fmax(sum[1], 1e-30));
    return isnan(result) ? INFINITY : result;
}

/* The largest difference of a tensor with the role, relative to its norm; INFINITY if it cannot be
 * read or is not a number. The tensors together: *all, unless it is NULL. */
static inline double differences(double *all, const struct net *a, const struct net *b,
                                 enum dt_role role, enum dt_arena arena)
{
    double worst = 0, total[2] = {0, 0};
    for (int t = 0; t < a->g->n_tensors; t++) {
        double sum[2] = {0, 0};
        if (a->g->tensor[t].role != role || (a->g->tensor[t].frozen && arena == DT_ARENA_GRADS))
            continue;
        add_squares(sum, a, b, arena, t);
        worst = fmax(worst, relative(sum));
        total[0] += sum[0];
        total[1] += sum[1];
    }
    if (all)
        *all = relative(total);
    return worst;
}

static inline double difference(const struct net *a, const struct net *b, enum dt_role role,
                                enum dt_arena arena)
{
    return differences(NULL, a, b, role, arena);
}

#endif
