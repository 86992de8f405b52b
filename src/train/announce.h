/* The first event of a run. */
#ifndef DTRAIN_TRAIN_ANNOUNCE_H
#define DTRAIN_TRAIN_ANNOUNCE_H

#include "train/session.h"

int64_t dt_session_parameters(const struct dt_session *s);
/* Sends run_start; `config_json` is the complete configuration. Collective. */
dt_status dt_session_announce(struct dt_session *s, const char *config_json, int64_t start_step);

#endif
