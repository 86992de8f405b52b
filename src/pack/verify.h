/* Inside `dtrain verify` for shards: what is known about them, in three files. A fault is a line
 * that belongs to its shard and stops nothing; only what keeps the check itself from going on
 * (memory, the output) is a failure of these functions. */
#ifndef DTRAIN_PACK_VERIFY_H
#define DTRAIN_PACK_VERIFY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/file.h"
#include "data/dataset.h"
#include "data/names.h"
#include "data/shard_info.h"
#include "data/wds_pair.h"
#include "pack/checksums.h"
#include "pack/wds_index.h"

/* A JPEG member. */
struct dt_shard_image {
    uint64_t offset;
    uint32_t bytes;
    uint32_t name; /* of the member, in names */
};

struct dt_shard_check {
    const char *path, *base;
    uint64_t bytes;
    struct dt_names findings, names, keys; /* lines; members of the images; keys of all samples */
    struct dt_shard_image *images;
    size_t n, capacity;
    uint32_t n_samples;
    uint64_t first; /* images in the shards before */
    struct dt_wds_pair pair;
    struct dt_wds_index index;
    bool is_whole; /* the walk came to its end */
    bool is_done;
};

struct dt_verify_tool {
    struct dt_jpeg *jpeg;
    struct dt_sample sample;
    uint8_t *pixels;
    size_t capacity;
};

struct dt_verify {
    const char *path;
    char folder[DT_PATH_MAX];
    bool is_folder; /* all of it is looked at, not one shard */
    struct dt_names paths;
    struct dt_shard_check *shards;
    uint32_t n;
    struct dt_names findings; /* of no shard that is there */
    struct dt_shard_info info;
    struct dt_checksums sums;
    int n_classes; /* -1 = not known */
    bool has_indices;
    uint64_t n_images, n_samples, bytes;
    int64_t n_decode;
    int n_threads;
    struct dt_verify_tool *tools;
    FILE *out;
    pthread_mutex_t lock; /* of what follows */
    uint32_t n_printed, n_walked;
    uint64_t n_findings, n_decoded, bytes_done;
    double start_s, drawn_s;
};

/* One line for people, made harmless for a terminal. */
dt_status dt_finding_add(struct dt_names *findings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A failed call as a fault of the thing `what`, unless memory has run out. */
dt_status dt_finding_of(struct dt_names *findings, const char *what, dt_status status);

/* First pass, a dt_work on struct dt_verify: the headers of a shard, the pairs, the labels, the
 * .idx. */
dt_status dt_shard_walk(void *verify, uint32_t index, int thread);
/* Between the passes: _info.json, what is missing, keys that are there twice. */
dt_status dt_shards_compare(struct dt_verify *verify);
/* Number of the line that byte `bytes` of the text is in, from 1. */
size_t dt_line_at(const char *text, size_t bytes);

#endif
