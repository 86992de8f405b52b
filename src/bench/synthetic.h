/* Inside the bench module: the same model and batch with synthetic data. */
#ifndef DTRAIN_BENCH_SYNTHETIC_H
#define DTRAIN_BENCH_SYNTHETIC_H

#include "dtrain/config.h"

/* 32 images per rank unless the configuration says, as in Horovod's benchmark. */
void dt_bench_use_synthetic(struct dt_config *own, const struct dt_config *config);

#endif
