/* The index of a shard between runs, in cache_dir/index/<name>-<hash of the full path>.index: a
 * header, the entries, and of a detector the images and their boxes. Labels are stored as written,
 * so label_offset and num_classes may change. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/dataset.h"
#include "data/tar_index.h"

enum { MAX_BYTES = 1 << 30 };

struct header {
    struct stamp {
        char magic[8];
        uint64_t bytes;
        int64_t time_ns;
    } stamp;        /* of the shard when it was read */
    uint64_t check; /* hash of the stamp and of what follows */
    uint64_t n, hash;
};

struct index_file {
    char path[DT_PATH_MAX];
    struct stamp stamp; /* of the shard as it is now */
    bool has_boxes;
};

static dt_status find_file(struct index_file *file, const char *shard, const char *cache_dir)
{
    static const char magic[][9] = {"DTINDEX3", "DTBOXES1"}; /* by has_boxes */
    struct stat info;
    if (stat(shard, &info) != 0)
        DT_FAIL(dt_file_input_status(errno), "cannot read %s: %s", shard, strerror(errno));
    memcpy(file->stamp.magic, magic[file->has_boxes], sizeof file->stamp.magic);
    file->stamp.bytes = (uint64_t)info.st_size;
    file->stamp.time_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;

    char *full = realpath(shard, NULL);
    const char *key = full ? full : shard;
    const XXH128_hash_t hash = XXH3_128bits(key, strlen(key));
    free(full);
    return dt_file_path(file->path, "%s/index/%.100s-%016llx%016llx.index", cache_dir,
                        dt_file_base(shard), (unsigned long long)hash.high64,
                        (unsigned long long)hash.low64);
}

static uint64_t hash_file(const char *block, size_t bytes)
{
    const size_t after_check = offsetof(struct header, n);
    return XXH64(block + after_check, bytes - after_check, XXH64(block, sizeof(struct stamp), 0));
}

/* --- Reading --- */

/* The part of the file that has not been taken yet. */
struct rest {
    const char *at;
    size_t bytes;
};

/* A copy of the next `count` elements; NULL if there are not as many. */
static void *take(struct rest *rest, size_t count, size_t size)
{
    void *copy = count <= rest->bytes / size ? dt_mem_alloc(count, size, "shard index") : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, rest->at, count * size);
    rest->at += count * size;
    rest->bytes -= count * size;
    return copy;
}

/* False if there is not as much behind the header as it says. */
static bool take_index(struct dt_tar_index *index, const struct header *header, const char *block,
                       size_t bytes, bool has_boxes)
{
    struct rest rest = {block + sizeof *header, bytes - sizeof *header};
    struct dt_wds_boxes *boxes = &index->boxes;
    if (header->n > DT_MAX_SAMPLES)
        return false;
    index->entries = take(&rest, (size_t)header->n, sizeof *index->entries);
    if (!index->entries)
        return false;
    index->n = index->capacity = (size_t)header->n;
    index->hash = header->hash;
    if (!has_boxes)
        return rest.bytes == 0;
    boxes->images = take(&rest, index->n, sizeof *boxes->images);
    if (!boxes->images)
        return false;
    boxes->n = boxes->capacity = index->n;
    for (size_t i = 0; i < boxes->n; i++)
        boxes->n_truths += boxes->images[i].n_truths;
    boxes->truth_capacity = boxes->n_truths;
    boxes->truths = take(&rest, boxes->n_truths, sizeof *boxes->truths);
    return boxes->truths && rest.bytes == 0;
}

/* False if there is no such file, or it is of no use; a damaged one is logged. */
static bool load(struct dt_tar_index *index, const struct index_file *file)
{
    struct header header = {0};
    size_t bytes = 0;
    char *block = NULL;

    if (!dt_file_exists(file->path))
        return false;
    const bool is_read = dt_file_load(&block, &bytes, file->path, MAX_BYTES) == DT_OK;
    if (is_read && bytes >= sizeof header)
        memcpy(&header, block, sizeof header);
    const bool is_intact =
        is_read && bytes >= sizeof header && header.check == hash_file(block, bytes) &&
        memcmp(header.stamp.magic, file->stamp.magic, sizeof header.stamp.magic) == 0;
    const bool is_current =
        is_intact && memcmp(&header.stamp, &file->stamp, sizeof header.stamp) == 0;
    const bool is_used = is_current && take_index(index, &header, block, bytes, file->has_boxes);
    if (!is_used)
        dt_tar_index_reset(index);
    if (!is_intact || (is_current && !is_used)) {
        dt_log(DT_LOG_WARNING,
               "index cache %s is damaged or of another version and will be rebuilt", file->path);
        dt_error_clear();
    }
    free(block);
    return is_used;
}

/* --- Writing --- */

static dt_status write_file(const struct dt_tar_index *index, const struct index_file *file,
                            const char *cache_dir)
{
    const struct dt_wds_boxes *boxes = &index->boxes;
    struct header header = {.stamp = file->stamp, .n = index->n, .hash = index->hash};
    const struct {
        const void *data;
        size_t bytes;
    } parts[] = {{&header, sizeof header},
                 {index->entries, index->n * sizeof *index->entries},
                 {boxes->images, boxes->n * sizeof *boxes->images},
                 {boxes->truths, boxes->n_truths * sizeof *boxes->truths}};
    char folder[DT_PATH_MAX], *block = NULL;
    size_t bytes = 0, at = 0;

    DT_TRY(dt_file_path(folder, "%s/index", cache_dir));
    DT_TRY(dt_file_make_folder(folder));
    for (size_t i = 0; i < DT_COUNT(parts); i++)
        bytes += parts[i].bytes;
    if (bytes > MAX_BYTES)
        DT_FAIL(DT_ERR_CREATE, "%zu bytes are more than an index may have", bytes);
    DT_TRY(DT_NEW(block, bytes));
    for (size_t i = 0; i < DT_COUNT(parts); at += parts[i++].bytes)
        if (parts[i].bytes > 0)
            memcpy(block + at, parts[i].data, parts[i].bytes);
    header.check = hash_file(block, bytes);
    memcpy(block, &header, sizeof header);
    const dt_status status = dt_file_save(file->path, block, bytes);
    free(block);
    return status;
}

dt_status dt_tar_index_open(struct dt_tar_index *index, const char *path, bool has_boxes,
                            const char *cache_dir)
{
    struct index_file file = {.has_boxes = has_boxes};

    if (!cache_dir || !cache_dir[0])
        return dt_tar_index_build(index, path, has_boxes);
    DT_TRY(find_file(&file, path, cache_dir));
    if (load(index, &file))
        return DT_OK;
    DT_TRY(dt_tar_index_build(index, path, has_boxes));
    /* It only costs time, or another rank was faster with the same file. */
    if (write_file(index, &file, cache_dir) != DT_OK) {
        dt_log(DT_LOG_DEBUG, "%s is not written: %s", file.path, dt_error_text());
        dt_error_clear();
    }
    return DT_OK;
}
