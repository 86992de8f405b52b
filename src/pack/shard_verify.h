/* Internals of `dtrain verify` for shards, shared by three files. A fault is recorded as a line of
 * its shard and does not stop the check; these functions fail only if the check itself cannot
 * continue (memory, output). */
#ifndef DTRAIN_PACK_SHARD_VERIFY_H
#define DTRAIN_PACK_SHARD_VERIFY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/file.h"
#include "base/names.h"
#include "boxes/wds_boxes.h"
#include "data/dataset.h"
#include "data/shard_list.h"
#include "data/wds_pair.h"
#include "pack/sidecars.h"

/* A JPEG member. */
struct dt_shard_image {
    uint64_t offset;
    uint32_t bytes;
    uint32_t name;         /* index of the member's name in names */
    int32_t width, height; /* by the annotations; 0 = unknown */
};

struct dt_shard_check {
    const char *path, *base;
    uint64_t bytes;
    struct dt_names findings, names, keys; /* lines; members of the images; keys of all samples */
    struct dt_shard_image *images;
    size_t n, capacity;
    struct dt_wds_boxes boxes; /* of a detector: ids and sizes of the images, in order */
    uint32_t n_samples;
    uint64_t first;           /* images in all earlier shards */
    bool has_size, has_image; /* of the sample being walked: the last of boxes, of images */
    struct dt_wds_pair pair;
    struct dt_sample json; /* of that sample */
    struct dt_wds_index index;
    bool is_whole; /* the walk reached the end */
    bool is_done;
};

struct dt_verify_tool {
    struct dt_decoder *decoder;
    struct dt_sample sample;
};

struct dt_verify {
    const char *path;
    const struct dt_config_data *data;
    char folder[DT_PATH_MAX];
    bool is_folder; /* the whole folder is checked, not one shard */
    struct dt_names paths;
    struct dt_shard_check *shards;
    uint32_t n;
    struct dt_names findings; /* faults that belong to no existing shard */
    struct dt_shard_info info;
    struct dt_checksums sums;
    int n_classes; /* -1 = unknown */
    enum dt_wds_kind label;
    struct dt_coco coco; /* has the categories */
    bool has_indices;
    uint64_t n_images, n_samples, bytes;
    int64_t n_decode;
    int n_threads;
    struct dt_verify_tool *tools;
    FILE *out;
    pthread_mutex_t lock; /* guards the members below */
    uint32_t n_printed, n_walked;
    uint64_t n_findings, bytes_done;
    struct dt_image_notes notes; /* n: decoded */
    uint64_t *hashes;            /* of each image that is decoded */
    double start_s;              /* of the pass */
};

/* Adds one line of text, escaped so that it is safe to print on a terminal. */
dt_status dt_finding_add(struct dt_names *findings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Records a failed call as a fault of `what`, unless memory has run out. */
dt_status dt_finding_of(struct dt_names *findings, const char *what, dt_status status);

/* First pass, a dt_work on struct dt_verify: checks headers, pairs, labels and .idx of a shard. */
dt_status dt_shard_walk(void *verify, uint32_t index, int thread);
/* Between the passes: checks _info.json, missing files and duplicate keys. */
dt_status dt_shards_compare(struct dt_verify *verify);

#endif
