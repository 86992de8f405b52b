#include "data/sample.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/mem.h"
#include "image/image_file.h"

dt_status dt_sample_reserve(struct dt_sample *sample, size_t bytes)
{
    if (bytes > sample->capacity)
        DT_TRY(DT_GROW(sample->data, sample->capacity, bytes - 1, "sample"));
    sample->bytes = bytes;
    return DT_OK;
}

dt_status dt_sample_read(struct dt_sample *sample, int fd, uint64_t offset, uint64_t bytes,
                         const char *path)
{
    if (bytes < 1 || bytes > DT_MAX_ENCODED_BYTES)
        DT_FAIL(DT_ERR_DATA, "image at byte %llu of %s has %llu bytes; 1 to %d are allowed",
                (unsigned long long)offset, path, (unsigned long long)bytes, DT_MAX_ENCODED_BYTES);
    DT_TRY(dt_sample_reserve(sample, (size_t)bytes));
    DT_TRY(dt_file_pread(fd, sample->data, (size_t)bytes, offset, path));
    return DT_OK;
}

bool dt_is_jpeg_suffix(const char *suffix)
{
    return !strcasecmp(suffix, "jpg") || !strcasecmp(suffix, "jpeg");
}

const char *dt_suffix_needs(const char *suffix)
{
    const struct dt_image_format *format = dt_image_format_of_suffix(suffix);
    if (dt_is_jpeg_suffix(suffix) || (format && format->header))
        return "";
    return format ? format->library : NULL;
}

bool dt_is_image_suffix(const char *suffix)
{
    const char *library = dt_suffix_needs(suffix);
    return library && !*library;
}

/* --- The cache --- */

/* Each sample has a pointer that is set once from NULL to its block; samples that no longer fit are
 * always read from the files. In a random order each sample is read once per epoch, so no eviction
 * policy would achieve more hits. */
struct block {
    size_t bytes;
    uint8_t data[];
};

struct dt_cache {
    _Atomic(struct block *) *blocks;
    uint32_t n;
    uint64_t limit;
    atomic_uint_fast64_t used;
};

dt_status dt_cache_create(struct dt_cache **cache, uint32_t n_samples, uint64_t limit)
{
    dt_status status = DT_OK;
    struct dt_cache *made = NULL;
    *cache = NULL;
    DT_TRY(DT_NEW(made, 1));
    made->n = n_samples;
    made->limit = limit;
    DT_TRY_OUT(DT_NEW(made->blocks, n_samples));
    *cache = made;
    return DT_OK;
out:
    dt_cache_destroy(made);
    return status;
}

void dt_cache_destroy(struct dt_cache *cache)
{
    if (!cache)
        return;
    for (uint32_t i = 0; cache->blocks && i < cache->n; i++)
        free(atomic_load(&cache->blocks[i]));
    free(cache->blocks);
    free(cache);
}

bool dt_cache_has(const struct dt_cache *cache, uint32_t id)
{
    return atomic_load(&cache->blocks[id]) != NULL;
}

dt_status dt_cache_get(const struct dt_cache *cache, uint32_t id, struct dt_sample *sample,
                       bool *found)
{
    const struct block *block = atomic_load(&cache->blocks[id]);
    *found = block != NULL;
    if (!block)
        return DT_OK;
    DT_TRY(dt_sample_reserve(sample, block->bytes));
    memcpy(sample->data, block->data, block->bytes);
    return DT_OK;
}

void dt_cache_put(struct dt_cache *cache, uint32_t id, const struct dt_sample *sample)
{
    size_t bytes = sizeof(struct block) + sample->bytes;
    struct block *none = NULL, *block = NULL;
    if (atomic_fetch_add(&cache->used, bytes) + bytes <= cache->limit)
        block = malloc(bytes);
    if (block) {
        block->bytes = sample->bytes;
        memcpy(block->data, sample->data, sample->bytes);
    }
    /* Two threads may have read the same sample. */
    if (!block || !atomic_compare_exchange_strong(&cache->blocks[id], &none, block)) {
        atomic_fetch_sub(&cache->used, bytes);
        free(block);
    }
}
