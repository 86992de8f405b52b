/* Asynchronous training: rank 0 keeps the weights and serves, the other ranks work. A worker
 * computes gradients of its own images, pushes them with the version of the weights they belong to,
 * and pulls the new weights; it waits for rank 0, but not for other workers. A version is the
 * number of updates before it, and the staleness of an update is the number of versions that came
 * between: stale synchronous parallel (Ho et al. 2013) bounds it. Rank 0 takes no push after
 * which the others, pushing in the order of age, would exceed comm.max_staleness; the one that is
 * ahead waits. With W workers staleness is about W - 1, and with a bound of at least that the
 * oldest gradient is always acceptable, so nobody waits for ever.
 *
 * An update has 1 / W of the images of a synchronous step, and 1 / W of its learning rate.
 *
 * Ranks meet every train.sync_every steps: only there do they agree on anything, evaluate and save.
 * Not deterministic. */
#ifndef DTRAIN_TRAIN_ASYNC_H
#define DTRAIN_TRAIN_ASYNC_H

#include "train/engine.h"

enum { DT_STALENESS_ROWS = 64 };

struct dt_async {
    int64_t version;                      /* of this rank's weights */
    int64_t n_updates[DT_STALENESS_ROWS]; /* rank 0: by staleness; the last row: or more */
    int64_t *based_on;                    /* rank 0: version with which a rank computes */
    bool *waits;                          /* rank 0: to push */
};

dt_status dt_async_init(struct dt_async *async, const struct dt_ranks *ranks);
void dt_async_reset(struct dt_async *async);
/* Rank 0: serves until every worker has called dt_async_leave. `step` steps were done before. */
dt_status dt_async_serve(struct dt_async *async, struct dt_engine *engine, int64_t step);
/* A worker, after the last pass of a step: pushes the gradients and pulls the weights. */
dt_status dt_async_push(struct dt_async *async, struct dt_engine *engine);
dt_status dt_async_leave(const struct dt_ranks *ranks);
/* All ranks get the same weights and statistics. Collective. */
dt_status dt_async_meet(struct dt_async *async, struct dt_engine *engine);
/* Sends the event of staleness; the last time it is logged too. */
void dt_async_report(const struct dt_async *async, const struct dt_ranks *ranks,
                     struct dt_report *report, int64_t step, bool is_last);

#endif
