/* Writes one shard, a plain ustar file with members NNNNNN.cls and NNNNNN.jpg, or of COCO
 * <key>.json and <key>.jpg, without times or owners, and its index, both under temporary names. */
#ifndef DTRAIN_PACK_SHARD_H
#define DTRAIN_PACK_SHARD_H

#include <pthread.h>

#include "data/dataset.h"
#include "image/convert.h"
#include "pack/pack.h"

#define DT_SHARD_TEMPORARY ".tmp"

struct dt_packing {
    struct dt_dataset *source;
    const struct dt_coco *coco; /* its boxes; NULL = it has labels */
    const struct dt_shard_options *options;
    uint32_t *order; /* sample at each position */
    uint32_t n, n_shards;
    int shard_digits, sample_digits, n_threads;
    struct dt_convert **converters; /* one per thread */
    /* One per shard written: number of samples, XXH64 of the tar. */
    uint32_t *lengths;
    uint64_t *sums;
    pthread_mutex_t lock; /* guards the members below */
    uint32_t n_done, n_bad, n_turned, counts[DT_N_CONVERSIONS];
    double start_s;
};

/* Path of a shard, and of its index, followed by `ending` ("" or DT_SHARD_TEMPORARY), into
 * out[DT_PATH_MAX]. */
dt_status dt_packing_tar(char *out, const struct dt_packing *packing, uint32_t shard,
                         const char *ending);
dt_status dt_packing_index(char *out, const struct dt_packing *packing, uint32_t shard,
                           const char *ending);
/* A dt_work on struct dt_packing. Names and positions of samples depend on `order` only. An
 * unusable image is DT_ERR_DATA, or with skip_bad a warning and a gap in the names. */
dt_status dt_pack_shard(void *packing, uint32_t shard, int thread);

#endif
