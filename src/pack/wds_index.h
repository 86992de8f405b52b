/* The index that DALI's wds2idx v1.2 makes of a shard: "v1.2 <samples>", then a line for each
 * sample with "<kind> <offset> <bytes> <name>" of each member, blank-separated. */
#ifndef DTRAIN_PACK_WDS_INDEX_H
#define DTRAIN_PACK_WDS_INDEX_H

#include <stdint.h>

#include "data/names.h"

/* Starts as {0}. */
struct dt_wds_index {
    char *text; /* without the first line */
    size_t bytes, capacity;
    uint32_t n;     /* samples */
    char key[1024]; /* of the last sample */
};

/* Adds a member; its data begin at byte `offset` of the shard. Members of no sample are left out.
 */
dt_status dt_wds_index_add(struct dt_wds_index *index, const char *name, uint64_t offset,
                           uint64_t bytes);
/* The whole file, to be freed with free(). */
dt_status dt_wds_index_finish(const struct dt_wds_index *index, char **text, size_t *bytes);
void dt_wds_index_reset(struct dt_wds_index *index);
/* Name of the index of shard "x.tar": "x.idx" into out[DT_PATH_MAX]. */
dt_status dt_wds_index_path(char *out, const char *shard);

#endif
