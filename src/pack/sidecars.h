/* The files next to the shards that programs other than dtrain read too: checksums and indices. */
#ifndef DTRAIN_PACK_SIDECARS_H
#define DTRAIN_PACK_SIDECARS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/names.h"

/* checksums.xxh64 in the folder of the shards: one line "<16 hex digits>  <file name>" per shard,
 * as `xxhsum -H64` writes and `xxhsum -c` reads it. */
#define DT_CHECKSUMS_NAME "checksums.xxh64"

/* Starts as {0}. */
struct dt_checksums {
    bool found; /* the file exists */
    struct dt_names files;
    uint64_t *sums; /* one per file */
    size_t capacity;
    size_t bad_line; /* first malformed line, counted from 1; 0 = none */
};

/* Skips malformed lines, see bad_line. A missing file is not an error. */
dt_status dt_checksums_load(struct dt_checksums *sums, const char *folder);
dt_status dt_checksums_add(struct dt_checksums *sums, const char *file, uint64_t sum);
bool dt_checksums_find(const struct dt_checksums *sums, const char *file, uint64_t *sum);
dt_status dt_checksums_save(const struct dt_checksums *sums, const char *folder);
void dt_checksums_reset(struct dt_checksums *sums);

/* The index of a shard as written by DALI's wds2idx v1.2: "v1.2 <samples>", then one line per
 * sample with "<kind> <offset> <bytes> <name>" for each member, separated by spaces. Starts as {0}.
 */
struct dt_wds_index {
    char *text; /* without the first line */
    size_t bytes, capacity;
    uint32_t n;     /* samples */
    char key[1024]; /* key of the last sample */
};

/* Adds a member whose data begin at byte `offset` of the shard; ignores members of no sample. */
dt_status dt_wds_index_add(struct dt_wds_index *index, const char *name, uint64_t offset,
                           uint64_t bytes);
/* The whole file, to be freed with free(). */
dt_status dt_wds_index_finish(const struct dt_wds_index *index, char **text, size_t *bytes);
void dt_wds_index_reset(struct dt_wds_index *index);
/* Name of the index ("x.idx" for shard "x.tar") into out[DT_PATH_MAX]. */
dt_status dt_wds_index_path(char *out, const char *shard);

#endif
