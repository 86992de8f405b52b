/* Class weights: given, or balanced by the training set. */
#include <stdlib.h>

#include "base/mem.h"
#include "train/sets.h"

static dt_status use_list(struct dt_sets *sets)
{
    const struct dt_config_train *train = &sets->config->train;
    if (train->n_class_weights != sets->num_classes)
        DT_FAIL(DT_ERR_CONFIG, "train.class_weights: %d weights for %d classes; list one per class",
                train->n_class_weights, sets->num_classes);
    for (int c = 0; c < train->n_class_weights; c++)
        sets->class_weights[c] = (float)train->class_weights[c];
    return DT_OK;
}

/* As scikit-learn's compute_class_weight("balanced"): with equal shares all weights are 1. */
static dt_status balance(struct dt_sets *sets)
{
    const int n_classes = sets->num_classes;
    const uint32_t n_images = dt_dataset_size(sets->train_set);
    uint32_t *counts = NULL;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(counts, (size_t)n_classes));
    for (uint32_t id = 0; id < n_images; id++)
        counts[dt_dataset_label(sets->train_set, id)]++;
    for (int c = 0; c < n_classes; c++) {
        const char *name = dt_dataset_class(sets->train_set, c);
        if (counts[c] == 0)
            DT_TRY_OUT(DT_ERROR(DT_ERR_CONFIG,
                                "train.class_weights: no training image is of class %d%s%s%s, so "
                                "\"balanced\" gives it no weight; list the weights",
                                c, name ? " (" : "", name ? name : "", name ? ")" : ""));
        sets->class_weights[c] = (float)((double)n_images / ((double)n_classes * counts[c]));
    }
out:
    free(counts);
    return status;
}

dt_status dt_sets_weigh_classes(struct dt_sets *sets)
{
    const int n = sets->config->train.n_class_weights;
    if (n == 0 || !sets->train_set)
        return DT_OK;
    DT_TRY(DT_NEW(sets->class_weights, (size_t)sets->num_classes));
    return n == DT_CLASS_WEIGHTS_BALANCED ? balance(sets) : use_list(sets);
}
