/* A COCO file and the folder of its images as a source of `dtrain shard`. */
#ifndef DTRAIN_PACK_COCO_SOURCE_H
#define DTRAIN_PACK_COCO_SOURCE_H

#include "data/coco.h"
#include "data/dataset.h"
#include "pack/pack.h"

/* Fills in dataset->state, n and classes. DT_ERR_DATA for images that would have the same key. */
dt_status dt_coco_source_open(struct dt_dataset *dataset, const struct dt_shard_options *options);
extern const struct dt_dataset_kind dt_coco_source;

/* The annotations; NULL if the source is another one. */
const struct dt_coco *dt_coco_source_annotations(const struct dt_dataset *dataset);
/* Key of an image in its shard: its file name without folder and ending, '_' for other dots, which
 * would end the key. */
const char *dt_coco_source_key(const struct dt_dataset *dataset, uint32_t id);

#endif
