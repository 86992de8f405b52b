/* Finds the fastest of several variants of the same work by measuring them: whatever the caller can
 * run, such as cuDNN's candidates for a convolution, or a fusion and its separate nodes. */
#ifndef DTRAIN_CUDA_TUNE_H
#define DTRAIN_CUDA_TUNE_H

#include "base/status.h"

struct dt_tune_work {
    int n_variants;
    /* The device's seconds per run of a variant, over n runs one after another. DT_ERR_DEVICE and
     * DT_ERR_MEMORY mean that the variant cannot be used; any other error ends the search. */
    dt_status (*time)(void *context, int variant, int n, double *seconds);
    double (*clock_s)(void *context); /* the host's clock, for the budget */
    void *context;
    double budget_s; /* no measurement begins later, but one variant is always measured */
};

/* A variant and its seconds per run. */
struct dt_tune_rank {
    int variant; /* -1 = none */
    double seconds;
};
enum { DT_TUNE_RANKING = 3 };

/* The fastest variants, best first; of equally fast ones the lower number. After a warm-up every
 * variant is measured, but one whose first run is much slower than the best so far is not run
 * again. Then the best are measured again in turns, which spreads slow changes of the clock over
 * all of them. */
dt_status dt_tune(struct dt_tune_rank ranking[DT_TUNE_RANKING], const struct dt_tune_work *work);

/* A budget for the next of n_left searches that share left_s seconds: what one leaves over, the
 * later ones can use. */
double dt_tune_budget(double left_s, int n_left);

#endif
