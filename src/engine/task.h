/* The purpose of a network. All that differs between a classifier and a detector is in the
 * instances of dt_task (classifier.c, detector.c); the loop, the engine and the reports ask them.
 */
#ifndef DTRAIN_ENGINE_TASK_H
#define DTRAIN_ENGINE_TASK_H

#include "base/file.h"
#include "dtrain/backend.h"
#include "dtrain/data.h"
#include "dtrain/events.h"

struct dt_engine;
struct dt_eval_options;
struct dt_eval_result;
struct dt_evaluator;
struct dt_jsonw;
struct dt_predict_options;
struct dt_sets;

/* The files that --confusion and --predictions name; fd -1 = none. Rank 0. */
struct dt_eval_files {
    struct dt_new_file confusion, predictions;
    bool as_picture; /* confusion */
};

/* NULL where a task has nothing to do: warn, warn_of_data, add_loss, add_results, draw,
 * check_options and begin_table. The others must be there. */
struct dt_task {
    enum dt_sample_column targets; /* what the network learns */
    int min_classes;
    int min_per_gpu;   /* images of a micro-batch below which a GPU mostly waits */
    double min_weight; /* losses are divided by their weight, but at least by this */

    /* Warns of the configuration; then, once the data are open, of them. Rank 0. */
    void (*warn)(const struct dt_engine *engine);
    void (*warn_of_data)(const struct dt_engine *engine, const struct dt_sets *sets);
    /* The inputs of a program besides pixels and labels, and what follows the model. */
    dt_status (*add_inputs)(struct dt_engine *engine, const struct dt_sets *sets,
                            enum dt_phase phase);
    void (*add_loss)(struct dt_engine *engine, enum dt_phase phase, int logits);
    /* Fields of the step event from the counters of all ranks, whose weight is at least
     * min_weight; add_details returns how many. */
    struct dt_field (*headline)(const struct dt_counters *all);
    int (*add_details)(struct dt_field *fields, const struct dt_sets *sets,
                       const struct dt_counters *all);

    /* An evaluation: open and close with the evaluator; clear before the first batch, add after the
     * pass over each, which is not yet released, and sum at the end, which sets *result. add is
     * local, sum collective; `own` are the counters of this rank. */
    dt_status (*open)(struct dt_evaluator *evaluator, bool all);
    void (*close)(struct dt_evaluator *evaluator);
    void (*clear)(struct dt_evaluator *evaluator);
    dt_status (*add)(struct dt_evaluator *evaluator, const struct dt_batch *batch);
    dt_status (*sum)(struct dt_evaluator *evaluator, struct dt_eval_result *result,
                     struct dt_counters *own);
    const char *why_undefined; /* a metric may be NaN */
    /* Fields of the eval event that are no metrics, returns how many. Tables and pictures in the
     * run folder, of which a failure is only warned; rank 0. */
    int (*add_results)(struct dt_field *fields, const struct dt_eval_result *result);
    dt_status (*draw)(const struct dt_evaluator *evaluator);

    /* dtrain eval, rank 0: whether its options make sense, what they write, and the members of the
     * line with the result. begin_table: of a table that is written batch by batch; collective. */
    dt_status (*check_options)(const struct dt_eval_options *options);
    dt_status (*begin_table)(struct dt_evaluator *evaluator, const struct dt_eval_files *files,
                             const struct dt_eval_options *options);
    dt_status (*write)(const struct dt_evaluator *evaluator, const struct dt_eval_files *files);
    void (*print_classes)(FILE *out, const struct dt_evaluator *evaluator);
    void (*put_result)(struct dt_jsonw *w, const struct dt_eval_result *result);
    /* dtrain predict. */
    dt_status (*predict)(struct dt_evaluator *evaluator, const struct dt_predict_options *options);
};

extern const struct dt_task dt_classifier, dt_detector;

#endif
