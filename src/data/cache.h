#ifndef DTRAIN_DATA_CACHE_H
#define DTRAIN_DATA_CACHE_H

#include "data/sample.h"

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
