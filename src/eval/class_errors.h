/* A classifier's worst errors: the images with the highest probability of a wrong class. */
#ifndef DTRAIN_EVAL_CLASS_ERRORS_H
#define DTRAIN_EVAL_CLASS_ERRORS_H

#include "engine/sets.h"

enum { DT_WORST_ERRORS = 12 };

struct dt_class_errors {
    struct dt_class_error {
        double probability; /* of the prediction */
        uint32_t image;
        int32_t label, prediction;
    } worst[DT_WORST_ERRORS]; /* the worst first, of equal ones the first image */
    int32_t n;
};

/* Keeps it if it is one of the worst so far. */
void dt_class_errors_add(struct dt_class_errors *errors, const struct dt_class_error *error);
/* CSV: file, label, prediction, probability. */
void dt_class_errors_print(FILE *out, const struct dt_class_errors *errors,
                           const struct dt_dataset *dataset, const char *const *names);
/* The images with label, prediction and its probability; without errors there is no such file. */
dt_status dt_class_errors_save(const char *path, const struct dt_class_errors *errors,
                               const struct dt_dataset *dataset, const char *const *names);

#endif
