/* How the hardware does: memory and load of the host, sensors of the GPU. Now and then rank 0 sends
 * an event; every rank warns of its own GPU, once for each reason. No communication. */
#ifndef DTRAIN_TRAIN_TELEMETRY_H
#define DTRAIN_TRAIN_TELEMETRY_H

#include "engine/engine.h"

struct dt_telemetry {
    double next_s;           /* when the next event is due; 0 = at the first call */
    unsigned long long told; /* reasons for throttling that this rank has warned of */
    double ecc_errors;       /* that it has warned of */
};

/* Call after each step. Does nothing until it is due: every output.telemetry_s. */
void dt_telemetry_step(struct dt_telemetry *telemetry, const struct dt_engine *engine,
                       int64_t step);

#endif
