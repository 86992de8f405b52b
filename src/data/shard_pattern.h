/* Which files are shards: tars by name, in a folder, or by a pattern of names. */
#ifndef DTRAIN_DATA_SHARD_PATTERN_H
#define DTRAIN_DATA_SHARD_PATTERN_H

#include "base/names.h"

/* Whether a file name ends in ".tar". */
bool dt_is_tar_name(const char *name);
/* Whether `path` is a folder of tar shards, or a single shard. */
bool dt_shards_found(const char *path);
/* Adds the paths of the tars in a folder, if any, sorted by bytes. */
dt_status dt_names_list_tars(struct dt_names *names, const char *folder);

/* Expands "a-{00..11}.tar::b-{x,y}.tar" into paths, in order. Zero padding of a range is kept,
 * several braces give all combinations, an existing folder stands for its *.tar files, sorted.
 * Errors: DT_ERR_CONFIG for a malformed pattern, DT_ERR_NO_INPUT for a folder without tar files. */
dt_status dt_brace_expand(struct dt_names *names, const char *pattern);

#endif
