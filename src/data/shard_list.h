/* Which files are shards: tars by name, in a folder, by a pattern of names, or in _info.json. */
#ifndef DTRAIN_DATA_SHARD_LIST_H
#define DTRAIN_DATA_SHARD_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/names.h"

/* Whether a file name ends in ".tar", or like a compressed tar, which dt_tar_walk refuses. */
bool dt_is_tar_name(const char *name);
/* Whether `path` is a folder of tar shards, or a single shard. */
bool dt_shards_found(const char *path);
/* Adds the paths of the tars in a folder, if any, sorted by bytes: compressed ones if there are
 * no others. */
dt_status dt_names_list_tars(struct dt_names *names, const char *folder);

/* Expands "a-{00..11}.tar::b-{x,y}.tar" into paths, in order. Zero padding of a range is kept,
 * several braces give all combinations, an existing folder stands for its *.tar files, sorted.
 * Errors: DT_ERR_CONFIG for a malformed pattern, DT_ERR_NO_INPUT for a folder without tar files. */
dt_status dt_brace_expand(struct dt_names *names, const char *pattern);

/* The _info.json file next to the shards, as written by timm and `dtrain shard`. Starts as {0};
 * n_splits 0 means that the file does not exist. */
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
