/* Inside the data module: what every kind of data set provides, and how the loader reads samples.
 *
 * A new kind of data set: one file with its struct dt_dataset_kind and a row of DT_SOURCE_LIST in
 * config.h. */
#ifndef DTRAIN_DATA_DATASET_H
#define DTRAIN_DATA_DATASET_H

#include "dtrain/data.h"

/* A growing buffer owned by one worker thread; start from {0}, release with free(data). */
struct dt_sample {
    uint8_t *data;
    size_t bytes, capacity;
};

/* Encoded bytes of sample `id` (a JPEG file), or, if dt_dataset_is_raw, finished pixels: image_size
 * x image_size x 3 u8 RGB. Thread-safe. DT_ERR_DATA if this one sample cannot be read as indexed.
 */
dt_status dt_dataset_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample);
/* A hint that the sample will be read soon. */
void dt_dataset_will_need(const struct dt_dataset *dataset, uint32_t id);
bool dt_dataset_is_raw(const struct dt_dataset *dataset);

/* Limits of foreign data. */
enum { DT_MAX_SAMPLES = 20000000, DT_MAX_ENCODED_BYTES = 50000000 };

/* One kind of data set. `open` fills state, n and fingerprint; after a failed open, `close` is
 * called with what there is (state may be NULL). The other functions are thread-safe. */
struct dt_dataset_kind {
    bool raw;
    dt_status (*open)(struct dt_dataset *dataset, const struct dt_dataset_options *options);
    dt_status (*read)(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample);
    /* dt_dataset_will_need and dt_dataset_forget; may be NULL. */
    void (*will_need)(const struct dt_dataset *dataset, uint32_t id);
    void (*forget)(const struct dt_dataset *dataset);
    int (*label)(const struct dt_dataset *dataset, uint32_t id);
    void (*name)(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes);
    /* Name of a class; NULL past the last, and for all where they have none. May be NULL: none. */
    const char *(*class_name)(const struct dt_dataset *dataset, int label);
    void (*close)(struct dt_dataset *dataset);
};

struct dt_cache;

struct dt_dataset {
    const struct dt_dataset_kind *kind;
    void *state;
    struct dt_cache *cache; /* NULL = none */
    uint32_t n;
    uint64_t fingerprint;
};

#define DT_DATASET_KIND(upper, lower) extern const struct dt_dataset_kind dt_dataset_##lower;
DT_SOURCE_LIST(DT_DATASET_KIND)
#undef DT_DATASET_KIND
/* The folder with .png files too: for `dtrain shard`, which makes JPEG files of them. */
extern const struct dt_dataset_kind dt_dataset_folder_png;

/* Encoded samples in memory, at most `limit` bytes, never dropped. Thread-safe after create. */
dt_status dt_cache_create(struct dt_cache **cache, uint32_t n_samples, uint64_t limit);
void dt_cache_destroy(struct dt_cache *cache); /* accepts NULL */
/* Copies sample `id` into `sample`; *found is false if it is not there. */
dt_status dt_cache_get(const struct dt_cache *cache, uint32_t id, struct dt_sample *sample,
                       bool *found);
/* Keeps a copy if there is room for it. */
void dt_cache_put(struct dt_cache *cache, uint32_t id, const struct dt_sample *sample);
bool dt_cache_has(const struct dt_cache *cache, uint32_t id);

/* Makes room for `bytes` and sets sample->bytes. */
dt_status dt_sample_reserve(struct dt_sample *sample, size_t bytes);
/* reserve + exact read; an empty or too large file is DT_ERR_DATA. */
dt_status dt_sample_read(struct dt_sample *sample, int fd, uint64_t offset, uint64_t bytes,
                         const char *path);
/* True for .jpg and .jpeg in any case. */
bool dt_is_jpeg_suffix(const char *suffix);

#endif
