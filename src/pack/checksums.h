/* checksums.xxh64 beside the shards: "<16 hex digits>  <file name>" a line, what `xxhsum -H64`
 * writes and `xxhsum -c` checks. */
#ifndef DTRAIN_PACK_CHECKSUMS_H
#define DTRAIN_PACK_CHECKSUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "data/names.h"

#define DT_CHECKSUMS_NAME "checksums.xxh64"

/* Starts as {0}. */
struct dt_checksums {
    bool found; /* there is such a file */
    struct dt_names files;
    uint64_t *sums; /* of each */
    size_t capacity;
    size_t bad_line; /* the first that is no check sum, from 1; 0 = none */
};

/* Lines that cannot be read are left out, see bad_line. A missing file is no error. */
dt_status dt_checksums_load(struct dt_checksums *sums, const char *folder);
dt_status dt_checksums_add(struct dt_checksums *sums, const char *file, uint64_t sum);
bool dt_checksums_find(const struct dt_checksums *sums, const char *file, uint64_t *sum);
dt_status dt_checksums_save(const struct dt_checksums *sums, const char *folder);
void dt_checksums_reset(struct dt_checksums *sums);

#endif
