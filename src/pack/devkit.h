/* What ILSVRC2012_devkit_t12.tar.gz says about the validation images. */
#ifndef DTRAIN_PACK_DEVKIT_H
#define DTRAIN_PACK_DEVKIT_H

#include <stdint.h>

#include "data/names.h"

/* Starts as {0}. */
struct dt_devkit {
    struct dt_names wnids; /* of the classes, sorted by bytes: the index is the label */
    int32_t *labels;       /* of validation image i in the order of the file names */
    size_t n;
};

/* `path` is a tar, compressed in any way libarchive knows, with data/meta.mat and
 * data/ILSVRC2012_validation_ground_truth.txt. DT_ERR_DATA if they do not fit together. */
dt_status dt_devkit_load(struct dt_devkit *devkit, const char *path);
void dt_devkit_reset(struct dt_devkit *devkit);

#endif
