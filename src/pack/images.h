/* Images that lie inside larger files, with labels and class names: what the sources of `dtrain
 * shard` other than a folder are. About 32 bytes and a name for each. */
#ifndef DTRAIN_PACK_IMAGES_H
#define DTRAIN_PACK_IMAGES_H

#include <stdint.h>

#include "data/dataset.h"
#include "data/names.h"
#include "pack/pack.h"

struct dt_image {
    uint64_t offset; /* of the encoded image in its file */
    uint32_t bytes;
    uint32_t file;
    uint32_t name;          /* in names */
    uint32_t before, after; /* bytes of the record around it; read and checked with it */
    int32_t label;
};

/* Starts as {0}; state of the data set. */
struct dt_images {
    struct dt_names files, names, classes;
    struct dt_image *image;
    size_t n, capacity;
};

/* The place of an image named `name`; file and label are taken from the caller. Too large for
 * .bytes becomes UINT32_MAX, which reading refuses. DT_ERR_DATA above DT_MAX_SAMPLES. */
dt_status dt_images_add(struct dt_images *images, const char *name, uint64_t offset, uint64_t bytes,
                        uint32_t file, int32_t label);
/* Images first .. n-1 by the bytes of their names; two of the same name are DT_ERR_DATA. */
dt_status dt_images_sort(struct dt_images *images, size_t first);

/* The functions of a struct dt_dataset_kind, but for open. */
dt_status dt_images_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample);
int dt_images_label(const struct dt_dataset *dataset, uint32_t id);
void dt_images_name(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes);
const char *dt_images_class(const struct dt_dataset *dataset, int label);
void dt_images_close(struct dt_dataset *dataset);
#define DT_IMAGES_FUNCTIONS                                                          \
    .label = dt_images_label, .name = dt_images_name, .class_name = dt_images_class, \
    .close = dt_images_close

/* --- Sources of `dtrain shard` --- */

/* Opens what options->src names (data.h), by looking at it. */
dt_status dt_source_open(struct dt_dataset **dataset, const struct dt_shard_options *options);

/* Each fills dataset->state and n; after a failure the kind's close releases what there is. */
dt_status dt_ilsvrc_open_train(struct dt_dataset *dataset, const struct dt_shard_options *options);
dt_status dt_ilsvrc_open_val(struct dt_dataset *dataset, const struct dt_shard_options *options);
dt_status dt_tfrecord_open(struct dt_dataset *dataset, const struct dt_shard_options *options);
dt_status dt_reshard_open(struct dt_dataset *dataset, const struct dt_shard_options *options);
extern const struct dt_dataset_kind dt_dataset_reshard;
/* dt_images_read with the check sum of the record. */
dt_status dt_tfrecord_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample);
/* Whether the file begins like TFRecord: a length with its check sum. */
bool dt_tfrecord_found(const char *path);

#endif
