/* The configuration of a measurement. */
#include "bench/synthetic.h"

void dt_bench_use_synthetic(struct dt_config *own, const struct dt_config *config)
{
    enum { PER_RANK = 32 };
    *own = *config;
    own->data.source = DT_SOURCE_SYNTHETIC;
    own->data.class_map[0] = '\0';
    own->train.n_class_weights = 0; /* those of the real data */
    if (own->train.global_batch_size == 0 && own->train.batch_size_per_rank == 0)
        own->train.batch_size_per_rank = PER_RANK;
}
