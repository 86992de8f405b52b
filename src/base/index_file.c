/* A header, then the contents. */
#include "base/index_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "base/log.h"
#include "base/mem.h"

struct header {
    struct dt_index_stamp stamp;
    uint64_t check; /* hash of everything else in the file */
};

dt_status dt_index_file_of(struct dt_index_file *file, const char *input, const char *cache_dir,
                           const char magic[8])
{
    struct stat info;
    if (stat(input, &info) != 0)
        DT_FAIL(dt_file_input_status(errno), "cannot read %s: %s", input, strerror(errno));
    memcpy(file->stamp.magic, magic, sizeof file->stamp.magic);
    file->stamp.bytes = (uint64_t)info.st_size;
    file->stamp.time_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;

    char *full = realpath(input, NULL);
    const char *key = full ? full : input;
    const XXH128_hash_t hash = XXH3_128bits(key, strlen(key));
    free(full);
    return dt_file_path(file->path, "%s/index/%.100s-%016llx%016llx.index", cache_dir,
                        dt_file_base(input), (unsigned long long)hash.high64,
                        (unsigned long long)hash.low64);
}

static uint64_t hash_stamp(const struct dt_index_stamp *stamp)
{
    return XXH64(stamp, sizeof *stamp, 0);
}

void dt_index_file_refuse(const struct dt_index_file *file)
{
    dt_log(DT_LOG_WARNING, "index cache %s is damaged or of another version and will be rebuilt",
           file->path);
}

/* Moves the contents to the beginning of the block. */
static bool parse(char *block, size_t *bytes, struct header *header,
                  const struct dt_index_file *file)
{
    if (*bytes < sizeof *header)
        return false;
    memcpy(header, block, sizeof *header);
    *bytes -= sizeof *header;
    memmove(block, block + sizeof *header, *bytes);
    return memcmp(header->stamp.magic, file->stamp.magic, sizeof file->stamp.magic) == 0 &&
           header->check == XXH64(block, *bytes, hash_stamp(&header->stamp));
}

char *dt_index_file_load(const struct dt_index_file *file, size_t *bytes)
{
    struct header header;
    char *block = NULL;

    if (!dt_file_exists(file->path))
        return NULL;
    const bool valid = dt_file_load(&block, bytes, file->path, DT_INDEX_MAX_BYTES) == DT_OK &&
                       parse(block, bytes, &header, file);
    if (!valid) {
        dt_index_file_refuse(file);
        dt_error_clear();
    }
    if (valid && header.stamp.bytes == file->stamp.bytes &&
        header.stamp.time_ns == file->stamp.time_ns)
        return block;
    free(block);
    return NULL;
}

static dt_status make_header(struct header *header, const struct dt_index_file *file,
                             const struct dt_index_part *parts, size_t n_parts)
{
    size_t bytes = 0;
    XXH64_state_t *hash = XXH64_createState();

    if (!hash)
        DT_FAIL(DT_ERR_MEMORY, "out of memory for a checksum");
    XXH64_reset(hash, hash_stamp(&file->stamp));
    for (size_t i = 0; i < n_parts; bytes += parts[i++].bytes)
        XXH64_update(hash, parts[i].data, parts[i].bytes);
    *header = (struct header){.stamp = file->stamp, .check = XXH64_digest(hash)};
    XXH64_freeState(hash);
    if (bytes > DT_INDEX_MAX_BYTES - sizeof *header)
        DT_FAIL(DT_ERR_CREATE, "%zu bytes are more than an index may have", bytes);
    return DT_OK;
}

static dt_status write_file(const struct dt_index_file *file, const char *cache_dir,
                            const struct dt_index_part *parts, size_t n_parts)
{
    struct header header;
    struct dt_new_file new = {.fd = -1};
    char folder[DT_PATH_MAX];

    DT_TRY(make_header(&header, file, parts, n_parts));
    DT_TRY(dt_file_path(folder, "%s/index", cache_dir));
    DT_TRY(dt_file_make_folder(folder));
    DT_TRY(dt_file_begin(&new, file->path));
    dt_status status = dt_file_write(new.fd, &header, sizeof header, new.temporary);
    for (size_t i = 0; i < n_parts && status == DT_OK; i++)
        status = dt_file_write(new.fd, parts[i].data, parts[i].bytes, new.temporary);
    return dt_file_end(&new, status);
}

void dt_index_file_save(const struct dt_index_file *file, const char *cache_dir,
                        const struct dt_index_part *parts, size_t n_parts)
{
    if (write_file(file, cache_dir, parts, n_parts) == DT_OK)
        return;
    dt_log(DT_LOG_DEBUG, "%s is not written: %s", file->path, dt_error_text());
    dt_error_clear();
}
