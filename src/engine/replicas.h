/* Checks that all ranks have the same weights. Collective. */
#ifndef DTRAIN_ENGINE_REPLICAS_H
#define DTRAIN_ENGINE_REPLICAS_H

#include "engine/engine.h"

/* Compares hashes of weights and momentum, whose values must all be finite. DT_ERR_DIVERGED or
 * DT_ERR_NUMERICAL with the same text on all ranks: which rank and host differ from the majority
 * (with two ranks, which have no majority, both are named), at which step, and `last_good` (a path
 * or ""). Waits for the device. */
dt_status dt_replicas_compare(struct dt_engine *engine, int64_t step, const char *last_good);

#endif
