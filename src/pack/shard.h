/* Writes single shards: plain ustar, members NNNNNN.cls and NNNNNN.jpg, no times and owners, and
 * the index beside it; both under temporary names. */
#ifndef DTRAIN_PACK_SHARD_H
#define DTRAIN_PACK_SHARD_H

#include <pthread.h>

#include "data/dataset.h"
#include "image/convert.h"
#include "pack/pack.h"

#define DT_SHARD_TEMPORARY ".tmp"

struct dt_packing {
    struct dt_dataset *source;
    const struct dt_shard_options *options;
    uint32_t *order; /* sample at each position */
    uint32_t n, n_shards;
    int shard_digits, sample_digits, n_threads;
    struct dt_convert **converters; /* one per thread */
    /* Of each shard that is written: samples in it, XXH64 of the tar. */
    uint32_t *lengths;
    uint64_t *sums;
    pthread_mutex_t lock; /* of what follows */
    uint32_t n_done, n_bad, counts[DT_N_CONVERSIONS];
    double start_s, drawn_s;
};

/* Path of a shard with `ending` behind it ("" or DT_SHARD_TEMPORARY) into out[DT_PATH_MAX], and of
 * its index. */
dt_status dt_packing_tar(char *out, const struct dt_packing *packing, uint32_t shard,
                         const char *ending);
dt_status dt_packing_index(char *out, const struct dt_packing *packing, uint32_t shard,
                           const char *ending);
/* A dt_work on struct dt_packing. Sample names and places depend on `order` only. Images that
 * cannot be used are DT_ERR_DATA, or with skip_bad a warning and a gap in the names. */
dt_status dt_pack_shard(void *packing, uint32_t shard, int thread);

#endif
