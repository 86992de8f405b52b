/* The index of one shard: pairs of image and label, and the file that caches it between runs. The
 * cache stores labels as written, so label_offset and num_classes may change. */
#include "data/tar_index.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "data/dataset.h"
#include "data/wds_keys.h"
#include "data/wds_pair.h"

enum { MAX_LABEL_BYTES = 32, MAX_CACHE_BYTES = 1 << 30 };

/* The sample being assembled. */
struct pairing {
    struct dt_tar_index *index;
    const char *path;
    struct dt_wds_pair pair;
    struct dt_tar_entry entry;
};

static dt_status end_sample(struct pairing *pairing)
{
    const struct dt_wds_pair *pair = &pairing->pair;
    struct dt_tar_index *index = pairing->index;
    void *entries = index->entries;

    if (pair->has_image != pair->has_label)
        DT_FAIL(DT_ERR_DATA,
                "sample %s of shard %s has %s; the .jpg or .jpeg and the .cls of a sample must be "
                "adjacent in the archive",
                pair->key, pairing->path,
                pair->has_image ? "an image but no .cls member"
                                : "a .cls member but no .jpg or .jpeg");
    if (!pair->has_image)
        return DT_OK;
    if (index->n >= DT_MAX_SAMPLES)
        DT_FAIL(DT_ERR_DATA, "shard %s holds more than %d samples", pairing->path, DT_MAX_SAMPLES);
    DT_TRY(
        dt_mem_grow(&entries, &index->capacity, index->n, sizeof *index->entries, "shard index"));
    index->entries = entries;
    pairing->entry.key = dt_wds_hash(dt_file_base(pairing->path), pair->key);
    index->entries[index->n++] = pairing->entry;
    index->hash = XXH64(pair->key, strlen(pair->key), index->hash);
    index->hash = XXH64(&pairing->entry.bytes, sizeof pairing->entry.bytes, index->hash);
    index->hash = XXH64(&pairing->entry.label, sizeof pairing->entry.label, index->hash);
    return DT_OK;
}

dt_status dt_tar_label(int32_t *label, const struct dt_tar_member *member, const char *path)
{
    char text[MAX_LABEL_BYTES + 1] = {0}, *end = text;
    long value = 0;

    if (member->bytes <= MAX_LABEL_BYTES) {
        DT_TRY(dt_file_pread(member->fd, text, (size_t)member->bytes, member->offset, path));
        errno = 0;
        value = strtol(text, &end, 10);
    }
    const bool is_empty = end == text;
    end += strspn(end, " \t\r\n");
    if (is_empty || end != text + member->bytes || errno == ERANGE || value < INT32_MIN ||
        value > INT32_MAX)
        DT_FAIL(DT_ERR_DATA, "label member %s of shard %s at byte %llu is not an integer: '%s'",
                member->name, path, (unsigned long long)member->offset, text);
    *label = (int32_t)value;
    return DT_OK;
}

static dt_status visit_member(void *context, const struct dt_tar_member *member)
{
    struct pairing *pairing = context;

    dt_pulse_beat(&dt_pulse_main); /* the main thread builds the index, which may take long */
    if (!dt_wds_key(member->name))
        return DT_OK;
    if (dt_wds_begins(&pairing->pair, member->name))
        DT_TRY(end_sample(pairing));
    const enum dt_wds_kind kind = dt_wds_add(&pairing->pair, member->name);
    if (kind == DT_WDS_SECOND_IMAGE || kind == DT_WDS_SECOND_LABEL)
        DT_FAIL(DT_ERR_DATA, "member %s of shard %s at byte %llu is a second %s of its sample",
                member->name, pairing->path, (unsigned long long)member->offset,
                kind == DT_WDS_SECOND_IMAGE ? "image" : "label");
    if (kind == DT_WDS_LABEL)
        DT_TRY(dt_tar_label(&pairing->entry.label, member, pairing->path));
    if (kind == DT_WDS_IMAGE) {
        pairing->entry.offset = member->offset;
        /* Larger values do not fit the field, and reading rejects far smaller ones. */
        pairing->entry.bytes = member->bytes < UINT32_MAX ? (uint32_t)member->bytes : UINT32_MAX;
    }
    return DT_OK;
}

dt_status dt_tar_index_build(struct dt_tar_index *index, const char *path)
{
    struct pairing pairing = {.index = index, .path = path};
    int n_skipped;

    index->n = 0;
    index->hash = 0;
    DT_TRY(dt_tar_walk(path, visit_member, &pairing, &n_skipped));
    DT_TRY(end_sample(&pairing));
    if (n_skipped > 0)
        dt_log(DT_LOG_WARNING,
               "shard %s: skipped %d members that are links, devices, FIFOs or sparse files", path,
               n_skipped);
    return DT_OK;
}

void dt_tar_index_reset(struct dt_tar_index *index)
{
    free(index->entries);
    *index = (struct dt_tar_index){0};
}

/* --- The cache: this header, then the entries --- */

struct cache_header {
    char magic[8];
    uint64_t shard_bytes;
    int64_t shard_time_ns;
    uint64_t n, hash;
    uint64_t check; /* hash of everything else in the file */
};
static const char cache_magic[8] = {'D', 'T', 'I', 'N', 'D', 'E', 'X', '2'};

static int64_t time_ns(const struct stat *info)
{
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

static uint64_t checksum_of(const struct cache_header *header, const struct dt_tar_entry *entries)
{
    const uint64_t sum = XXH64(header, offsetof(struct cache_header, check), 0);
    return XXH64(entries, (size_t)header->n * sizeof *entries, sum);
}

/* cache_dir/index/<shard>-<hash of its full path>.index */
static dt_status cache_path(char *out, const char *path, const char *cache_dir)
{
    char *full = realpath(path, NULL);
    const char *key = full ? full : path;
    const XXH128_hash_t hash = XXH3_128bits(key, strlen(key));

    free(full);
    return dt_file_path(out, "%s/index/%.100s-%016llx%016llx.index", cache_dir, dt_file_base(path),
                        (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

/* Fills header and index from the file; false if it is not a complete cache file. */
static bool parse_cache(struct cache_header *header, struct dt_tar_index *index, const char *block,
                        size_t bytes)
{
    if (bytes < sizeof *header)
        return false;
    memcpy(header, block, sizeof *header);
    const size_t entries_bytes = bytes - sizeof *header;
    if (memcmp(header->magic, cache_magic, sizeof cache_magic) != 0 || header->n > DT_MAX_SAMPLES ||
        entries_bytes != header->n * sizeof *index->entries)
        return false;
    if (DT_NEW(index->entries, (size_t)header->n) != DT_OK)
        return false;
    memcpy(index->entries, block + sizeof *header, entries_bytes);
    index->n = index->capacity = (size_t)header->n;
    index->hash = header->hash;
    return header->check == checksum_of(header, index->entries);
}

/* False if the cache is missing, damaged or outdated. */
static bool load_cache(struct dt_tar_index *index, const char *path, const struct stat *shard)
{
    struct cache_header header;
    char *block = NULL;
    size_t bytes = 0;

    if (!dt_file_exists(path))
        return false;
    bool valid = dt_file_load(&block, &bytes, path, MAX_CACHE_BYTES) == DT_OK &&
                 parse_cache(&header, index, block, bytes);
    free(block);
    if (!valid) {
        dt_log(DT_LOG_WARNING,
               "index cache %s is damaged or of another version and will be rebuilt", path);
        dt_error_clear();
    }
    valid = valid && header.shard_bytes == (uint64_t)shard->st_size &&
            header.shard_time_ns == time_ns(shard);
    if (!valid)
        dt_tar_index_reset(index);
    return valid;
}

static dt_status save_cache(const struct dt_tar_index *index, const char *path,
                            const struct stat *shard, const char *cache_dir)
{
    struct cache_header header = {.shard_bytes = (uint64_t)shard->st_size,
                                  .shard_time_ns = time_ns(shard),
                                  .n = index->n,
                                  .hash = index->hash};
    const size_t entries_bytes = index->n * sizeof *index->entries;
    char *block, folder[DT_PATH_MAX];

    DT_TRY(dt_file_path(folder, "%s/index", cache_dir));
    DT_TRY(dt_file_make_folder(folder));
    memcpy(header.magic, cache_magic, sizeof cache_magic);
    header.check = checksum_of(&header, index->entries);
    DT_TRY(DT_NEW(block, sizeof header + entries_bytes));
    memcpy(block, &header, sizeof header);
    if (entries_bytes)
        memcpy(block + sizeof header, index->entries, entries_bytes);
    const dt_status status = dt_file_save(path, block, sizeof header + entries_bytes);
    free(block);
    DT_TRY(status);
    return DT_OK;
}

dt_status dt_tar_index_open(struct dt_tar_index *index, const char *path, const char *cache_dir)
{
    char cache[DT_PATH_MAX];
    struct stat shard;

    if (!cache_dir || !cache_dir[0])
        return dt_tar_index_build(index, path);
    if (stat(path, &shard))
        DT_FAIL(dt_file_input_status(errno), "cannot stat shard %s: %s", path, strerror(errno));
    DT_TRY(cache_path(cache, path, cache_dir));
    if (load_cache(index, cache, &shard))
        return DT_OK;
    DT_TRY(dt_tar_index_build(index, path));
    if (save_cache(index, cache, &shard, cache_dir) != DT_OK) {
        /* Not an error: this only costs time, or another rank was faster with the same file. */
        dt_log(DT_LOG_DEBUG, "the index of shard %s is not cached: %s", path, dt_error_text());
        dt_error_clear();
    }
    return DT_OK;
}
