/* The index of a shard as written by DALI's wds2idx v1.2: "v1.2 <samples>", then one line per
 * sample with "<kind> <offset> <bytes> <name>" for each member, separated by spaces. */
#ifndef DTRAIN_PACK_WDS_INDEX_H
#define DTRAIN_PACK_WDS_INDEX_H

#include <stdint.h>

#include "data/names.h"

/* Starts as {0}. */
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
