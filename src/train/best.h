/* Which evaluation was the best so far, and whether training should end early. All ranks count rank
 * 0's values, so they decide alike; the state is part of the checkpoint. */
#ifndef DTRAIN_TRAIN_BEST_H
#define DTRAIN_TRAIN_BEST_H

#include "checkpoint/checkpoint.h"
#include "dtrain/comm.h"

/* No evaluation yet; metrics as configured. */
void dt_best_init(struct dt_checkpoint *at, const struct dt_config *config);
/* Takes over what a saved run found, as far as the configuration still asks for those metrics. */
void dt_best_adopt(struct dt_checkpoint *at, const struct dt_checkpoint *saved);
/* Counts an evaluation with these values, NaN = not computed, in the place `at`; *is_best: the best
 * so far by checkpoint.best_metric. Collective. */
dt_status dt_best_count(bool *is_best, struct dt_checkpoint *at, const struct dt_config *config,
                        struct dt_comm *comm, double value[DT_N_METRICS]);
/* The key by which early_stop ends the run; NULL if it does not. */
const char *dt_best_ends(const struct dt_checkpoint *at, const struct dt_config *config);
/* Why a run is complete, as a sentence: `key` is the one to raise in order to continue. */
void dt_best_explain(char *out, size_t bytes, const struct dt_checkpoint *at,
                     const struct dt_config *config, const char *key);
/* "best top1 76.100 in epoch 7" into out[bytes]; "" if there is none. */
void dt_best_describe(char *out, size_t bytes, const struct dt_checkpoint *at);

#endif
