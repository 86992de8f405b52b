/* Labels of the ILSVRC2012 validation images, from ILSVRC2012_devkit_t12.tar.gz. */
#ifndef DTRAIN_PACK_DEVKIT_H
#define DTRAIN_PACK_DEVKIT_H

#include <stdint.h>

#include "data/names.h"

/* Starts as {0}. */
struct dt_devkit {
    struct dt_names wnids; /* WordNet IDs of the classes, sorted bytewise; index = label */
    int32_t *labels;       /* one per validation image, in order of file name */
    size_t n;
};

/* `path` is a tar, plain or gzipped, with data/meta.mat and
 * data/ILSVRC2012_validation_ground_truth.txt. DT_ERR_DATA if the two are inconsistent. */
dt_status dt_devkit_load(struct dt_devkit *devkit, const char *path);
void dt_devkit_reset(struct dt_devkit *devkit);

#endif
