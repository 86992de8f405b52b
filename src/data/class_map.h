/* What the labels of a data set mean: the one place where names and numbers of two sets meet. */
#ifndef DTRAIN_DATA_CLASS_MAP_H
#define DTRAIN_DATA_CLASS_MAP_H

#include "data/dataset.h"

/* Turns the kind's own labels into those of options->classes: names by name, numbers as the class
 * map names them or, where all classes are called by numbers, as the class of that number. What
 * only a guess could pair is DT_ERR_DATA; a pairing of names with numbers is told. */
dt_status dt_dataset_map_classes(struct dt_dataset *dataset,
                                 const struct dt_dataset_options *options);
/* The label of the kind's sample `id`; -1: of a class that is not listed. */
int dt_dataset_label_of(const struct dt_dataset *dataset, uint32_t id);
bool dt_dataset_has_names(const struct dt_dataset *dataset);
/* How many classes labels without names may be of; 0: any number. */
int dt_dataset_label_limit(const struct dt_dataset_options *options);

#endif
