/* Keys of samples that occur twice, not in adjacent members: for `dtrain verify` a fault, for
 * training a notice, since such samples can be used. */
#ifndef DTRAIN_DATA_WDS_KEYS_H
#define DTRAIN_DATA_WDS_KEYS_H

#include "dtrain/data.h"

/* Hash of what must be unique: a key, together with its split, which is the base name of the shard
 * up to the last '-'. */
uint64_t dt_wds_hash(const char *shard, const char *key);
/* Calls `found` for every hash keys[at] that already occurs as keys[before]. Returns its first
 * failure, or DT_ERR_MEMORY. */
typedef dt_status (*dt_wds_found)(void *context, size_t at, size_t before);
dt_status dt_wds_find_repeated(const uint64_t *keys, size_t n, dt_wds_found found, void *context);
/* Logs how many there are among all samples of a data set that was opened from `path`. */
dt_status dt_wds_tell_repeated(const struct dt_dataset *dataset, const uint64_t *keys, size_t n,
                               const char *path);

#endif
