/* The evaluation of a network on the validation set. */
#ifndef DTRAIN_EVAL_EVALUATOR_H
#define DTRAIN_EVAL_EVALUATOR_H

#include <stdio.h>

#include "boxes/average_precision.h"
#include "engine/engine.h"

struct dt_class_results;
struct dt_box_results;
struct dt_jsonw;
struct dt_predictions;
struct dt_stop;

/* The task of the configured model. */
const struct dt_task *dt_task_of(const struct dt_config *config);

struct dt_evaluator {
    struct dt_engine *engine;
    struct dt_sets *sets;
    /* NULL if the device's counters are enough: in training only above 1,000 classes, and if
     * neither eval.metrics nor eval.tta need more. With 1,000 classes an image takes 20 us of the
     * host, of 50,000 images on 8 GPUs 0.1 s, and the sum of the matrix has 8 MB. Loss and accuracy
     * are those of the device unless eval.tta changes them. */
    struct dt_class_results *classes;
    struct dt_box_results *boxes;       /* of a detector, else NULL */
    struct dt_predictions *predictions; /* table that is written meanwhile; NULL = none */
    struct dt_jsonw *json;              /* of dtrain predict: an array; NULL = none */
};

struct dt_eval_result {
    const char *stop; /* why it stopped early, and then the rest is not set; or NULL */
    int64_t n_images;
    double value[DT_N_METRICS]; /* NaN = not computed */
    double raw[DT_N_METRICS];   /* of the weights, if `value` is of their moving averages; or NaN */
    double coco[DT_N_COCO];     /* of a detector: all its numbers; -1 = undefined */
    int64_t n_found;            /* and detections */
};

/* For an engine that evaluates, once it is open; both are kept. `all`: every metric that is
 * defined, and logits for a table. Collective. */
dt_status dt_evaluator_open(struct dt_evaluator *evaluator, struct dt_engine *engine,
                            struct dt_sets *sets, bool all);
void dt_evaluator_close(struct dt_evaluator *evaluator);
/* Evaluates the validation set once, with rank 0's running statistics, and sums over all ranks.
 * With `stop` (may be NULL) it checks now and then for reasons to stop. Collective. */
dt_status dt_evaluator_run(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                           const struct dt_stop *stop);
/* The same for the weights that eval.weights names, during training; at its end these are in their
 * place in any case. */
dt_status dt_evaluator_validate(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                                const struct dt_stop *stop);

/* Saves what is printed under that name in the run folder, as dt_file_save. Rank 0. */
dt_status dt_evaluator_save(const struct dt_evaluator *evaluator, const char *name,
                            void (*print)(FILE *, const struct dt_evaluator *));

/* Opens sets and engine with the classes and values of saved weights (dt_weights_find). Collective.
 */
dt_status dt_engine_open_weights(struct dt_engine *engine, struct dt_sets *sets,
                                 const struct dt_engine_options *options, const char *weights);

#endif
