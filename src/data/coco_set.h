/* Common to data sets whose boxes come from the tables of struct dt_coco: sample i of the
 * kind is image i of the tables, wherever its file is. */
#ifndef DTRAIN_DATA_COCO_SET_H
#define DTRAIN_DATA_COCO_SET_H

#include "boxes/coco.h"
#include "data/dataset.h"

/* Finds the folder of the images of a file of annotations, into out[DT_PATH_MAX]: ../X for
 * instances_X.json, otherwise the folder of the file. */
dt_status dt_coco_images_folder(char *out, const char *path);

/* Starts as {0}. */
struct dt_coco_set {
    struct dt_coco coco;     /* from dt_coco_set_use on its labels are those of the data set */
    struct dt_names classes; /* by label; the ids of the labels that are no category are "N/A 12" */
    int64_t *categories;     /* id by label, -1 for a class that the file does not have */
};

/* Call it in a kind's open when set->coco is filled: sets set, n, n_classes, classes,
 * categories, max_boxes and fingerprint of the data set.
 *
 * Labels are the positions of the categories in the order of their ids; or, if options->num_classes
 * is larger than their number and than every id, the ids (torchvision's 91 outputs); or, if
 * options->classes are given, the positions of their names there. With options->subset the boxes of
 * categories that are not listed there are skipped, otherwise they are DT_ERR_DATA. */
dt_status dt_coco_set_use(struct dt_coco_set *set, struct dt_dataset *dataset,
                          const struct dt_dataset_options *options);
void dt_coco_set_reset(struct dt_coco_set *set);
/* For a kind's share: what dt_coco_set_use has set. */
dt_status dt_coco_set_share(struct dt_block *block, struct dt_coco_set *set,
                            struct dt_dataset *dataset);

/* For the struct dt_dataset_kind of a kind. */
int dt_coco_set_truths(const struct dt_dataset *dataset, uint32_t id, struct dt_truth *out);
void dt_coco_set_image(const struct dt_dataset *dataset, uint32_t id, struct dt_image_info *out);
uint64_t dt_coco_set_key(const struct dt_dataset *dataset, uint32_t id, uint64_t seed);
/* The name of the image's file as the annotations have it. */
const char *dt_coco_set_file(const struct dt_dataset *dataset, uint32_t id);

#endif
