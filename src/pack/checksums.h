/* checksums.xxh64 in the folder of the shards: one line "<16 hex digits>  <file name>" per shard,
 * as `xxhsum -H64` writes and `xxhsum -c` reads it. */
#ifndef DTRAIN_PACK_CHECKSUMS_H
#define DTRAIN_PACK_CHECKSUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "data/names.h"

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

#endif
