/* Finds the fastest of several ways to do the same work by measuring them. A way is whatever the
 * caller can run: one of cuDNN's candidates for a convolution, or one way to run a fusion of nodes.
 */
#ifndef DTRAIN_CUDA_TUNE_H
#define DTRAIN_CUDA_TUNE_H

#include "base/status.h"

struct dt_tune_work {
    int n_variants;
    /* The device's seconds per run of a way, over n runs one after another. DT_ERR_DEVICE and
     * DT_ERR_MEMORY mean that the way cannot be used; any other error ends the search. */
    dt_status (*time)(void *context, int variant, int n, double *seconds);
    double (*clock_s)(void *context); /* the host's clock, for the budget */
    void *context;
    double budget_s; /* no measurement begins later, but one way is always measured */
};

/* A way and its seconds per run. */
struct dt_tune_rank {
    int variant; /* -1 = none */
    double seconds;
};
enum { DT_TUNE_RANKING = 3 };

/* The fastest ways, best first; of equally fast ones the lower number. After a warm-up every way is
 * measured, but one whose first run is much slower than the best so far is not run again. Then the
 * best are measured again in turns, which spreads slow changes of the clock over all of them. */
dt_status dt_tune(struct dt_tune_rank ranking[DT_TUNE_RANKING], const struct dt_tune_work *work);

/* A budget for the next of n_left searches that share left_s seconds: what one leaves over, the
 * later ones can use. */
double dt_tune_budget(double left_s, int n_left);

#endif
