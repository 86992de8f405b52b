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
/* Whether early_stop ends the run; then `key` is the key to raise in order to continue, and
 * why[bytes] the reason as a sentence. */
bool dt_best_ends(const struct dt_checkpoint *at, const struct dt_config *config, const char **key,
                  char *why, size_t bytes);
/* "best top1 76.100 in epoch 7" into out[bytes]; "" if there is none. */
void dt_best_describe(char *out, size_t bytes, const struct dt_checkpoint *at);

#endif
