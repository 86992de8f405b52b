/* What kinds of data sets have in common whose samples are single files: the name of a sample is
 * the path of its file. Functions of a struct dt_dataset_kind. */
#ifndef DTRAIN_DATA_FILES_H
#define DTRAIN_DATA_FILES_H

#include "data/dataset.h"

dt_status dt_files_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample);
void dt_files_forget(const struct dt_dataset *dataset);
/* Whether the name ends like that of an image which this build can decode. */
bool dt_files_is_image(const char *name);

#endif
