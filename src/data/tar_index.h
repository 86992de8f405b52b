/* The positions of the samples in one tar shard. */
#ifndef DTRAIN_DATA_TAR_INDEX_H
#define DTRAIN_DATA_TAR_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "boxes/wds_boxes.h"
#include "data/sample.h"

/* A regular file in a tar, valid during the visit; fd allows pread at `offset`. */
struct dt_tar_member {
    const char *name;
    uint64_t offset, bytes;
    int fd;
};
typedef dt_status (*dt_tar_visit)(void *context, const struct dt_tar_member *member);
/* Visits the regular files of a plain tar (ustar, pax, GNU) in order and counts those it skips:
 * links, devices and FIFOs. A compressed, damaged or truncated archive, sparse files and unsafe
 * names are DT_ERR_DATA with the byte offset. Limits: 20 M members, names of 1,024 bytes, members
 * of 8 GiB, 64 KiB of headers per member. */
dt_status dt_tar_walk(const char *path, dt_tar_visit visit, void *context, int *n_skipped);
/* The same for a tar inside a file: a member of another tar. Offsets are relative to the file. */
struct dt_tar_range {
    uint64_t offset, bytes;
};
dt_status dt_tar_walk_range(const char *path, const struct dt_tar_range *range, dt_tar_visit visit,
                            void *context, int *n_skipped);

/* The number in a .cls member; DT_ERR_DATA names shard and member. */
dt_status dt_tar_label(int32_t *label, const struct dt_tar_member *member, const char *path);

/* Keeps the text of a .json member, in which the label of sample `key`, without .cls, is the
 * integer `label_key`; DT_ERR_DATA names the keys that are there. */
dt_status dt_tar_json_keep(struct dt_sample *json, const struct dt_tar_member *member,
                           const char *path);
dt_status dt_tar_json_label(int32_t *label, const struct dt_sample *json, const char *label_key,
                            const char *key, const char *path);

/* Appends the boxes in a .json member, which `json` keeps. */
dt_status dt_tar_boxes(struct dt_wds_boxes *boxes, struct dt_sample *json,
                       const struct dt_tar_member *member, const char *path);

struct dt_tar_entry {
    uint64_t offset; /* of the image data */
    uint32_t bytes;
    int32_t label; /* as written in the .cls or .json member; 0 of a detector */
    uint64_t key;  /* dt_wds_hash */
};

/* Starts as {0}. */
struct dt_tar_index {
    struct dt_tar_entry *entries;
    size_t n, capacity;
    struct dt_wds_boxes boxes; /* one image per entry; without .json members none */
    uint64_t hash;             /* of names, sizes and labels or boxes */
    char *block;               /* that has the arrays, of a file; NULL = they are their own */
};

/* Pairs images with labels by the rules in wds_pair.h; `label_key` is that of dt_tar_json_label, or
 * NULL for a detector, whose labels are boxes (wds_boxes.h). DT_ERR_DATA names shard and member. */
dt_status dt_tar_index_build(struct dt_tar_index *index, const char *path, const char *label_key);
/* Loads the index from cache_dir/index if the shard's size and time match those
 * recorded; otherwise builds it and stores it there. cache_dir NULL: always builds. */
dt_status dt_tar_index_open(struct dt_tar_index *index, const char *path, const char *label_key,
                            const char *cache_dir);
void dt_tar_index_reset(struct dt_tar_index *index);

/* For messages: name of the member whose data begin at `offset`, found by reading the headers
 * again; "byte N" if no member does. */
void dt_tar_member_name(const char *path, uint64_t offset, char *out, size_t bytes);

#endif
