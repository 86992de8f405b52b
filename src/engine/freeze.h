/* optim.freeze: parameters that a run leaves as they are. */
#ifndef DTRAIN_ENGINE_FREEZE_H
#define DTRAIN_ENGINE_FREEZE_H

#include <stddef.h>

#include "dtrain/graph.h"

/* Freezes the modules (names, a newline after each) in a graph that is built but not fused.
 * DT_ERR_CONFIG if the model has no such module, or if nothing is left to train. */
dt_status dt_freeze(struct dt_graph *g, const char *modules);
/* "12 of 62 parameters for 5 epochs; the backward pass ends at layer2.0.conv1"; "" if none is
 * frozen. */
void dt_freeze_describe(char *out, size_t bytes, const struct dt_graph *g, int unfreeze_epoch);

#endif
