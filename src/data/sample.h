/* The encoded bytes of samples: a buffer for one, and a cache of many. */
#ifndef DTRAIN_DATA_SAMPLE_H
#define DTRAIN_DATA_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { DT_MAX_ENCODED_BYTES = 50000000 };

/* A growing buffer owned by one worker thread; starts as {0}, released with free(data). */
struct dt_sample {
    uint8_t *data;
    size_t bytes, capacity;
};

/* Makes room for `bytes` and sets sample->bytes. */
dt_status dt_sample_reserve(struct dt_sample *sample, size_t bytes);
/* Reserves and reads exactly `bytes`; an empty or too large sample is DT_ERR_DATA. */
dt_status dt_sample_read(struct dt_sample *sample, int fd, uint64_t offset, uint64_t bytes,
                         const char *path);
/* True for .jpg and .jpeg in any case. */
bool dt_is_jpeg_suffix(const char *suffix);
/* The package without which this build cannot read such image files, as "libwebp-dev" for webp; ""
 * if it can; NULL if dtrain cannot, or they are no images. */
const char *dt_suffix_needs(const char *suffix);
/* Whether this build can read them. */
bool dt_is_image_suffix(const char *suffix);

struct dt_cache;
/* Cache of encoded samples, at most `limit` bytes, without eviction. Thread-safe after create. */
dt_status dt_cache_create(struct dt_cache **cache, uint32_t n_samples, uint64_t limit);
void dt_cache_destroy(struct dt_cache *cache); /* accepts NULL */
/* Copies sample `id` into `sample`; *found is false if it is not cached. */
dt_status dt_cache_get(const struct dt_cache *cache, uint32_t id, struct dt_sample *sample,
                       bool *found);
/* Keeps a copy if there is room for it. */
void dt_cache_put(struct dt_cache *cache, uint32_t id, const struct dt_sample *sample);
bool dt_cache_has(const struct dt_cache *cache, uint32_t id);

#endif
