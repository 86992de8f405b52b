/* The first event of a run. */
#ifndef DTRAIN_TRAIN_ANNOUNCE_H
#define DTRAIN_TRAIN_ANNOUNCE_H

#include "train/engine.h"

int64_t dt_engine_parameters(const struct dt_engine *engine);
/* Sends run_start; `config_json` is the complete configuration. Collective. */
dt_status dt_announce_start(struct dt_engine *engine, struct dt_sets *sets, const char *config_json,
                            int64_t start_step);

#endif
