/* The _info.json file next to the shards, as written by timm and `dtrain shard`. */
#ifndef DTRAIN_DATA_SHARD_INFO_H
#define DTRAIN_DATA_SHARD_INFO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/names.h"

/* Starts as {0}; n_splits 0 means that the file does not exist. */
struct dt_shard_info {
    char path[1024]; /* of _info.json */
    int n_splits;
    struct dt_names splits;    /* names */
    int64_t *num_samples;      /* of each split as stated, -1 = not stated */
    struct dt_names filenames; /* of all splits, in order */
    uint32_t *lengths;         /* samples of each file */
    uint32_t *split;           /* of each file */
    size_t n_lengths, cursor;
};

/* A missing file is not an error; a malformed one is DT_ERR_DATA. */
dt_status dt_shard_info_load(struct dt_shard_info *info, const char *folder);
/* True if `name` is listed; sets *length to its number of samples. */
bool dt_shard_info_find(struct dt_shard_info *info, const char *name, uint32_t *length);
void dt_shard_info_reset(struct dt_shard_info *info);

#endif
