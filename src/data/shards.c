/* WebDataset tar shards with random access.
 *
 * For a detector the boxes of all samples are part of the index. The order of the samples is that
 * of the shards: the one of the ids of images, as with annotations in one file, if `dtrain shard`
 * has packed them.
 *
 * Opening: expand the pattern, build or load the index of every shard, compare with _info.json,
 * check keys and labels. After that a sample is 24 bytes in one array; its shard is found by
 * bisection. Reading is one pread on a descriptor kept open; with more shards than descriptors the
 * least recently used one is closed. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/pulse.h"
#include "base/sort.h"
#include "base/text.h"
#include "boxes/wds_boxes.h"
#include "data/coco_set.h"
#include "data/dataset.h"
#include "data/shard_list.h"
#include "data/tar_index.h"
#include "data/wds_pair.h"

enum { MAX_LISTED = 20, MIN_OPEN = 8, MAX_OPEN = 1024 };

struct shard {
    int fd; /* -1: closed */
    unsigned n_users;
    uint64_t used_at; /* n_reads at the last use, for closing the oldest */
};

struct shards {
    struct dt_names paths, classes; /* of classes.txt, if there is one */
    struct shard *shard;
    uint32_t *first; /* id of the first sample of each */
    size_t n;
    struct dt_tar_entry *entries;
    size_t n_entries, capacity;
    struct dt_wds_boxes boxes; /* of a detector, until they are moved to set.coco */
    struct dt_coco_set set;
    bool has_lock;
    /* Guards shard[].fd, n_users, used_at and the two counters. It is held while a shard is opened
     * or closed, never while one is read: n_users keeps its descriptor open meanwhile. */
    pthread_mutex_t lock;
    size_t n_open, max_open;
    uint64_t n_reads;
};

static const char *path_of(const struct shards *shards, size_t index)
{
    return dt_names_get(&shards->paths, index);
}

/* --- Opening --- */

static dt_status check_missing(const struct shards *shards)
{
    char list[MAX_LISTED * 128];
    struct stat info;
    size_t n_missing = 0;
    struct dt_text text = dt_text_in(list, sizeof list);
    for (size_t i = 0; i < shards->n; i++) {
        const char *path = path_of(shards, i);
        if (!stat(path, &info) || (errno != ENOENT && errno != ENOTDIR))
            continue; /* other errors are reported when the shard is opened */
        if (n_missing++ < MAX_LISTED)
            dt_text_add(&text, "%s%s", n_missing > 1 ? ", " : "",
                        n_missing > 1 ? dt_file_base(path) : path);
    }
    if (n_missing)
        DT_FAIL(DT_ERR_NO_INPUT, "%zu of %zu shards are missing: %s%s%s", n_missing, shards->n,
                list, n_missing > MAX_LISTED ? ", ..." : "",
                strchr(list, '*') ? "; write a range like {0000..0009} instead of *" : "");
    return DT_OK;
}

/* A folder stands for all its tars, which must not mix training and test splits. */
static dt_status check_folder(struct shards *shards, struct dt_shard_info *info, const char *folder)
{
    uint32_t length;
    if (info->n_splits > 1)
        DT_FAIL(DT_ERR_CONFIG,
                "folder %s holds %d splits (%s, %s, ...): give the shards of one of them, such as "
                "%s/name-{0000..0009}.tar",
                folder, info->n_splits, dt_names_get(&info->splits, 0),
                dt_names_get(&info->splits, 1), folder);
    size_t n_found = 0;
    for (size_t i = 0; i < shards->n; i++)
        n_found += dt_shard_info_find(info, dt_file_base(path_of(shards, i)), &length);
    if (n_found < info->filenames.n)
        DT_FAIL(DT_ERR_NO_INPUT, "%s lists %zu shards, but %zu of them are missing", info->path,
                info->filenames.n, info->filenames.n - n_found);
    return DT_OK;
}

static dt_status add_shard(struct shards *shards, struct dt_dataset *dataset, size_t i,
                           struct dt_shard_info *info, const struct dt_dataset_options *options)
{
    dt_status status = DT_OK;
    struct dt_tar_index index = {0};
    const char *path = path_of(shards, i), *base = dt_file_base(path);
    const char *label_key = dataset->set ? NULL : options->data->label_key;
    uint32_t length;
    DT_TRY_OUT(dt_tar_index_open(&index, path, label_key, options->cache_dir));
    if (dt_shard_info_find(info, base, &length) && length != index.n)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA,
                            "shard %s holds %zu samples, but %s says %u; one of them is "
                            "outdated",
                            path, index.n, info->path, (unsigned)length));
    if (shards->n_entries + index.n > DT_MAX_SAMPLES)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "the shards up to %s hold more than %d samples", path,
                            DT_MAX_SAMPLES));
    shards->first[i] = (uint32_t)shards->n_entries;
    if (index.n) {
        DT_TRY_OUT(DT_GROW(shards->entries, shards->capacity, shards->n_entries + index.n - 1,
                           "sample index"));
        memcpy(shards->entries + shards->n_entries, index.entries, index.n * sizeof *index.entries);
        shards->n_entries += index.n;
        DT_TRY_OUT(dt_wds_boxes_append(&shards->boxes, &index.boxes));
    }
    dataset->fingerprint = XXH64(base, strlen(base), dataset->fingerprint);
    dataset->fingerprint = XXH64(&index.hash, sizeof index.hash, dataset->fingerprint);
out:
    dt_tar_index_reset(&index);
    return status;
}

/* Reads classes.txt of the folder. Folders that are joined must agree on it. */
static dt_status read_classes(struct shards *shards, const char *folder, bool is_first)
{
    dt_status status = DT_OK;
    struct dt_names here = {0};
    char path[DT_PATH_MAX];
    DT_TRY(dt_file_path(path, "%s/classes.txt", folder));
    if (dt_file_exists(path))
        DT_TRY_OUT(dt_classes_load(&here, path));
    if (is_first) {
        shards->classes = here;
        return DT_OK;
    }
    if (here.bytes != shards->classes.bytes ||
        (here.bytes && memcmp(here.text, shards->classes.text, here.bytes) != 0))
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA,
                            "%s differs from the classes.txt next to %s, so the labels would mean "
                            "different things",
                            path, path_of(shards, 0)));
out:
    dt_names_reset(&here);
    return status;
}

static dt_status build_index(struct shards *shards, struct dt_dataset *dataset,
                             const struct dt_dataset_options *options)
{
    dt_status status = DT_OK;
    struct dt_shard_info info = {0};
    char folder[DT_PATH_MAX], last_folder[DT_PATH_MAX] = "";
    const double start_s = dt_clock_s();
    const bool is_folder = dt_file_is_folder(options->path);
    for (size_t i = 0; i < shards->n; i++) {
        DT_TRY_OUT(dt_file_folder(folder, path_of(shards, i)));
        if (strcmp(folder, last_folder) != 0) {
            memcpy(last_folder, folder, sizeof last_folder);
            dt_shard_info_reset(&info);
            DT_TRY_OUT(dt_shard_info_load(&info, folder));
            DT_TRY_OUT(dataset->set ? dt_wds_categories_join(&shards->set.coco, folder)
                                    : read_classes(shards, folder, i == 0));
            if (is_folder)
                DT_TRY_OUT(check_folder(shards, &info, folder));
        }
        DT_TRY_OUT(add_shard(shards, dataset, i, &info, options));
        dt_log_progress_of("indexing", i + 1, shards->n, "shards", start_s);
        dt_pulse_beat(&dt_pulse_main);
    }
out:
    dt_log_progress("");
    dt_shard_info_reset(&info);
    return status;
}

static size_t shard_of(const struct shards *shards, uint32_t id)
{
    return dt_find_last(shards->first, shards->n, id);
}

/* The limit of labels: n classes, named or configured; 0 = none. */
static dt_status refuse_label(const struct shards *shards, size_t i,
                              const struct dt_dataset_options *options, int n_classes)
{
    char name[DT_PATH_MAX];
    const struct dt_tar_entry *entry = &shards->entries[i];
    const char *path = path_of(shards, shard_of(shards, (uint32_t)i));
    const long long first = options->data->label_offset;
    dt_tar_member_name(path, entry->offset, name, sizeof name);
    DT_FAIL(DT_ERR_DATA,
            "label %d of %s in shard %s is out of range: with data.label_offset %lld%s labels must "
            "be %lld to %lld",
            (int)entry->label, name, path, first,
            shards->classes.n > 0 ? " and the classes in classes.txt"
            : n_classes > 0       ? " and model.num_classes"
                                  : "",
            first, first + (n_classes > 0 ? n_classes : DT_MAX_CLASSES) - 1);
}

static dt_status check_labels(const struct shards *shards, int *n_classes,
                              const struct dt_dataset_options *options)
{
    const int n_named = (int)shards->classes.n;
    const int limit = n_named > 0 ? n_named : dt_dataset_label_limit(options);
    *n_classes = n_named;
    for (size_t i = 0; i < shards->n_entries; i++) {
        struct dt_tar_entry *entry = &shards->entries[i];
        const int64_t label = (int64_t)entry->label - options->data->label_offset;
        if (label < 0 || label >= (limit > 0 ? limit : DT_MAX_CLASSES))
            return refuse_label(shards, i, options, limit);
        entry->label = (int32_t)label;
        if (label >= *n_classes)
            *n_classes = (int)label + 1;
    }
    return DT_OK;
}

static dt_status check_keys(const struct dt_dataset *dataset, const char *path)
{
    const struct shards *shards = dataset->state;
    uint64_t *keys;
    DT_TRY(DT_NEW(keys, shards->n_entries));
    for (size_t i = 0; i < shards->n_entries; i++)
        keys[i] = shards->entries[i].key;
    dt_status status = dt_wds_tell_repeated(dataset, keys, shards->n_entries, path);
    free(keys);
    return status;
}

/* All shards are closed. */
static dt_status make_descriptors(struct shards *shards)
{
    struct rlimit limit;
    DT_TRY(DT_NEW(shards->shard, shards->n));
    for (size_t i = 0; i < shards->n; i++)
        shards->shard[i].fd = -1;
    if (pthread_mutex_init(&shards->lock, NULL))
        DT_FAIL(DT_ERR_MEMORY, "out of memory: cannot create a lock for the shards");
    shards->has_lock = true;
    /* A quarter of the limit: the training set shares it with the validation set and MPI. */
    shards->max_open = MAX_OPEN;
    if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur / 4 < MAX_OPEN)
        shards->max_open = limit.rlim_cur / 4 > MIN_OPEN ? (size_t)limit.rlim_cur / 4 : MIN_OPEN;
    return DT_OK;
}

static dt_status open_shards(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    struct shards *shards;
    DT_TRY(DT_NEW(shards, 1));
    dataset->state = shards;
    dataset->classes = &shards->classes;
    dataset->set = options->targets == DT_COLUMN_BOXES ? &shards->set : NULL;
    DT_TRY(dt_brace_expand(&shards->paths, options->path));
    shards->n = shards->paths.n;
    DT_TRY(DT_NEW(shards->first, shards->n));
    DT_TRY(make_descriptors(shards));
    DT_TRY(check_missing(shards));
    DT_TRY(build_index(shards, dataset, options));
    if (dataset->set) {
        struct dt_coco *coco = &shards->set.coco;
        DT_TRY(dt_wds_boxes_move(coco, &shards->boxes, options->path));
        coco->fingerprint = dt_wds_categories_hash(coco, dataset->fingerprint);
        DT_TRY(dt_coco_set_use(&shards->set, dataset, options));
    } else {
        DT_TRY(check_labels(shards, &dataset->n_classes, options));
    }
    DT_TRY(check_keys(dataset, options->path));
    dataset->n = (uint32_t)shards->n_entries;
    dataset->n_files = (uint32_t)shards->n;
    return DT_OK;
}

static dt_status share_shards(struct dt_block *block, struct dt_dataset *dataset)
{
    struct shards *shards = dataset->state;
    if (block->use == DT_BLOCK_READ)
        dataset->classes = &shards->classes;
    DT_BLOCK_VALUE(block, shards->n);
    DT_BLOCK_VALUE(block, shards->n_entries);
    dt_block_names(block, &shards->paths);
    dt_block_names(block, &shards->classes);
    DT_BLOCK_ARRAY(block, shards->first, shards->n);
    DT_BLOCK_ARRAY(block, shards->entries, shards->n_entries);
    if (dataset->max_boxes > 0)
        DT_TRY(dt_coco_set_share(block, &shards->set, dataset));
    return block->use == DT_BLOCK_READ ? make_descriptors(shards) : DT_OK;
}

static void close_shards(struct dt_dataset *dataset)
{
    struct shards *shards = dataset->state;
    for (size_t i = 0; shards->shard && i < shards->n; i++)
        if (shards->shard[i].fd >= 0)
            close(shards->shard[i].fd);
    if (shards->has_lock)
        pthread_mutex_destroy(&shards->lock);
    dt_names_reset(&shards->paths);
    dt_names_reset(&shards->classes);
    dt_wds_boxes_reset(&shards->boxes);
    dt_coco_set_reset(&shards->set);
    free(shards->shard);
    free(shards->first);
    free(shards->entries);
    free(shards);
}

/* --- Reading --- */

static void close_oldest(struct shards *shards)
{
    struct shard *oldest = NULL;
    for (size_t i = 0; i < shards->n; i++) {
        struct shard *shard = &shards->shard[i];
        if (shard->fd >= 0 && !shard->n_users && (!oldest || shard->used_at < oldest->used_at))
            oldest = shard;
    }
    if (!oldest)
        return;
    close(oldest->fd);
    oldest->fd = -1;
    shards->n_open--;
}

/* Opens the shard if it is closed, and keeps it open until release_shard. */
static dt_status acquire_shard(struct shards *shards, size_t index)
{
    struct shard *shard = &shards->shard[index];
    dt_status status = DT_OK;
    uint64_t bytes;
    pthread_mutex_lock(&shards->lock);
    if (shard->fd < 0) {
        if (shards->n_open >= shards->max_open)
            close_oldest(shards);
        status = dt_file_open(&shard->fd, &bytes, path_of(shards, index));
        shards->n_open += status == DT_OK;
        if (status == DT_OK) /* read-ahead would read data that is not needed */
            (void)posix_fadvise(shard->fd, 0, 0, POSIX_FADV_RANDOM);
    }
    if (status == DT_OK)
        shard->n_users++;
    shard->used_at = shards->n_reads++;
    pthread_mutex_unlock(&shards->lock);
    return status;
}

static void release_shard(struct shards *shards, size_t index)
{
    pthread_mutex_lock(&shards->lock);
    shards->shard[index].n_users--;
    pthread_mutex_unlock(&shards->lock);
}

static dt_status read_shards(const struct dt_dataset *dataset, uint32_t id,
                             struct dt_sample *sample)
{
    struct shards *shards = dataset->state;
    const struct dt_tar_entry *entry = &shards->entries[id];
    const size_t index = shard_of(shards, id);
    DT_TRY(acquire_shard(shards, index));
    const dt_status status = dt_sample_read(sample, shards->shard[index].fd, entry->offset,
                                            entry->bytes, path_of(shards, index));
    release_shard(shards, index);
    return status;
}

static void advise(struct shards *shards, size_t index, uint64_t offset, uint64_t bytes, int advice)
{
    if (acquire_shard(shards, index) != DT_OK)
        return; /* the following read reports the error */
    (void)posix_fadvise(shards->shard[index].fd, (off_t)offset, (off_t)bytes, advice);
    release_shard(shards, index);
}

static void will_need_shards(const struct dt_dataset *dataset, uint32_t id)
{
    struct shards *shards = dataset->state;
    const struct dt_tar_entry *entry = &shards->entries[id];
    advise(shards, shard_of(shards, id), entry->offset, entry->bytes, POSIX_FADV_WILLNEED);
}

static void forget_shards(const struct dt_dataset *dataset)
{
    struct shards *shards = dataset->state;
    for (size_t i = 0; i < shards->n; i++)
        advise(shards, i, 0, 0, POSIX_FADV_DONTNEED);
}

static int label_shards(const struct dt_dataset *dataset, uint32_t id)
{
    return ((const struct shards *)dataset->state)->entries[id].label;
}

static void name_shards(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    const struct shards *shards = dataset->state;
    const char *path = path_of(shards, shard_of(shards, id));
    char member[DT_PATH_MAX + 1];
    dt_tar_member_name(path, shards->entries[id].offset, member, sizeof member);
    snprintf(out, bytes, "%s: %s", path, member);
}

static void file_shards(const struct dt_dataset *dataset, uint32_t index, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", path_of(dataset->state, index));
}

/* A hash of the id of the image, as with annotations in one file; without boxes of shard name and
 * position, as the members' names are not kept. */
static uint64_t key_shards(const struct dt_dataset *dataset, uint32_t id, uint64_t seed)
{
    const struct shards *shards = dataset->state;
    if (dataset->set)
        return dt_coco_set_key(dataset, id, seed);
    const char *base = dt_file_base(path_of(shards, shard_of(shards, id)));
    const uint64_t offset = shards->entries[id].offset;
    return XXH64(&offset, sizeof offset, XXH64(base, strlen(base), seed));
}

static bool is_shards(const char *path)
{
    const bool is_pattern = dt_is_tar_name(path) || strchr(path, '{');
    return dt_shards_found(path) || (is_pattern && !dt_file_exists(path));
}

const struct dt_dataset_kind dt_dataset_shards = {
    .recognises = is_shards,
    .open = open_shards,
    .read = read_shards,
    .will_need = will_need_shards,
    .forget = forget_shards,
    .label = label_shards,
    .truths = dt_coco_set_truths,
    .image = dt_coco_set_image,
    .name = name_shards,
    .file = file_shards,
    .key = key_shards,
    .share = share_shards,
    .state_bytes = sizeof(struct shards),
    .close = close_shards,
};
