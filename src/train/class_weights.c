/* Class weights: given, or balanced by the training set. */
#include <stdlib.h>

#include "base/mem.h"
#include "train/session.h"

static dt_status use_list(struct dt_session *s)
{
    const struct dt_config_train *train = &s->config->train;
    if (train->n_class_weights != s->sets.num_classes)
        DT_FAIL(DT_ERR_CONFIG, "train.class_weights: %d weights for %d classes; list one per class",
                train->n_class_weights, s->sets.num_classes);
    for (int c = 0; c < train->n_class_weights; c++)
        s->sets.class_weights[c] = (float)train->class_weights[c];
    return DT_OK;
}

/* As scikit-learn's compute_class_weight("balanced"): with equal shares all weights are 1. */
static dt_status balance(struct dt_session *s)
{
    const int n_classes = s->sets.num_classes;
    const uint32_t n_images = dt_dataset_size(s->sets.train_set);
    uint32_t *counts = NULL;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(counts, (size_t)n_classes));
    for (uint32_t id = 0; id < n_images; id++)
        counts[dt_dataset_label(s->sets.train_set, id)]++;
    for (int c = 0; c < n_classes; c++) {
        const char *name = dt_dataset_class(s->sets.train_set, c);
        if (counts[c] == 0)
            DT_TRY_OUT(DT_ERROR(DT_ERR_CONFIG,
                                "train.class_weights: no training image is of class %d%s%s%s, so "
                                "\"balanced\" gives it no weight; list the weights",
                                c, name ? " (" : "", name ? name : "", name ? ")" : ""));
        s->sets.class_weights[c] = (float)((double)n_images / ((double)n_classes * counts[c]));
    }
out:
    free(counts);
    return status;
}

dt_status dt_session_weigh_classes(struct dt_session *s)
{
    const int n = s->config->train.n_class_weights;
    if (n == 0 || !s->sets.train_set)
        return DT_OK;
    DT_TRY(DT_NEW(s->sets.class_weights, (size_t)s->sets.num_classes));
    return n == DT_CLASS_WEIGHTS_BALANCED ? balance(s) : use_list(s);
}
