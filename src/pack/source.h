/* Images stored inside larger files, with labels and class names: every source of `dtrain shard`
 * except folders. Takes about 32 bytes plus a name per image. */
#ifndef DTRAIN_PACK_SOURCE_H
#define DTRAIN_PACK_SOURCE_H

#include <stdint.h>

#include "base/names.h"
#include "boxes/coco.h"
#include "data/dataset.h"
#include "pack/pack.h"

struct dt_image {
    uint64_t offset; /* encoded image in its file */
    uint32_t bytes;
    uint32_t file;
    uint32_t name;          /* index in names */
    uint32_t before, after; /* bytes of the enclosing record, read and checked too */
    int32_t label;
};

/* State of the data set; starts as {0}. */
struct dt_images {
    struct dt_names files, names, classes;
    struct dt_image *image;
    size_t n, capacity;
};

/* Appends an image. Sizes that do not fit into .bytes become UINT32_MAX, which dt_images_read
 * rejects. DT_ERR_DATA above DT_MAX_SAMPLES. */
dt_status dt_images_add(struct dt_images *images, const char *name, uint64_t offset, uint64_t bytes,
                        uint32_t file, int32_t label);
/* Sorts images first .. n-1 bytewise by name; DT_ERR_DATA if two share a name. */
dt_status dt_images_sort(struct dt_images *images, size_t first);

/* The functions of a struct dt_dataset_kind, except open. */
dt_status dt_images_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample);
int dt_images_label(const struct dt_dataset *dataset, uint32_t id);
void dt_images_name(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes);
void dt_images_close(struct dt_dataset *dataset);
#define DT_IMAGES_FUNCTIONS \
    .label = dt_images_label, .name = dt_images_name, .close = dt_images_close

/* --- Sources of `dtrain shard` --- */

/* Opens options->src (pack.h), detecting its kind from its contents. */
dt_status dt_source_open(struct dt_dataset **dataset, const struct dt_shard_options *options);

/* Each fills in dataset->state and n; after a failure the kind's close releases everything. */
dt_status dt_ilsvrc_open_train(struct dt_dataset *dataset, const struct dt_shard_options *options);
dt_status dt_ilsvrc_open_val(struct dt_dataset *dataset, const struct dt_shard_options *options);
dt_status dt_tfrecord_open(struct dt_dataset *dataset, const struct dt_shard_options *options);
/* dt_images_read, and verifies the checksum of the record. */
dt_status dt_tfrecord_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample);
/* Whether the file begins with a TFRecord header: a length and its checksum. */
bool dt_tfrecord_found(const char *path);

/* arrays.c: CIFAR and MNIST; options->test chooses the part. */
bool dt_arrays_found(const char *path);
dt_status dt_arrays_open(struct dt_dataset *dataset, const struct dt_shard_options *options);
extern const struct dt_dataset_kind dt_arrays;

/* --- A COCO file and the folder of its images --- */

/* Fills in dataset->state, n and classes. DT_ERR_DATA for images that would have the same key. */
dt_status dt_coco_source_open(struct dt_dataset *dataset, const struct dt_shard_options *options);
extern const struct dt_dataset_kind dt_coco_source;

/* The annotations; NULL if the source is another one. */
const struct dt_coco *dt_coco_source_annotations(const struct dt_dataset *dataset);
/* Key of an image in its shard: its file name without folder and ending, '_' for other dots, which
 * would end the key. */
const char *dt_coco_source_key(const struct dt_dataset *dataset, uint32_t id);

#endif
