/* Inside the train module: everything a sub-command uses, opened and closed together. */
#ifndef DTRAIN_TRAIN_SESSION_H
#define DTRAIN_TRAIN_SESSION_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "data/names.h"
#include "detect/average_precision.h"
#include "dtrain/comm.h"
#include "dtrain/config.h"
#include "dtrain/data.h"
#include "dtrain/models.h"
#include "dtrain/plan.h"
#include "dtrain/report.h"
#include "train/devices.h"
#include "train/schedule.h"

struct dt_judging;
struct dt_box_judging;
struct dt_predictions;

/* Data sets and their loaders. */
struct dt_sets {
    struct dt_names classes; /* names in the order of labels; none if the data have none */
    char *classes_text;      /* the same with a newline after each; NULL if none */
    int num_classes;
    int weights_classes; /* of weights that are judged; data without names may show fewer */
    const struct dt_names *images;          /* dtrain predict: instead of data.val; else NULL */
    struct dt_dataset *train_set, *val_set; /* NULL if the sub-command or the config has none */
    struct dt_loader *train, *val;
    float *class_weights;               /* one per class, NULL = none */
    uint32_t n_images[DT_MAX_CANVASES]; /* for training, by canvas; a classifier's in [0] */
    dt_status status;                   /* of a layout without data, and then why: */
    char problem[1024];
};

/* What an evaluation makes of the network's output. */
struct dt_evaluator {
    struct dt_judging *judging;         /* NULL if the device's counters are enough */
    struct dt_box_judging *box_judging; /* of a detector that is evaluated, else NULL */
    struct dt_predictions *predictions; /* table that dtrain eval writes; NULL = none */
};

/* What graph and training loader are built for, all of which follows from the epoch. */
struct dt_stage {
    int64_t epoch;
    int index;      /* of train.stages, -1 = before the first */
    int image_size; /* of training; evaluation takes model.image_size. Not of detectors */
    int global_batch_size, micro_batch_size,
        n_passes;            /* global_batch_size = n_workers * n_passes * micro_batch_size */
    bool is_frozen;          /* optim.freeze applies to the graph */
    int64_t steps_per_epoch; /* 0 = unknown: a layout without data */
};

/* The device and what runs on it. */
struct dt_engine {
    const struct dt_model *model;
    int saved_parts; /* micro-batches per global batch of the resumed run, 0 = none: reused if the
                        ranks can share them */
    int n_threads;
    const struct dt_backend *backend;
    enum dt_plane plane;
    struct dt_device *device;
    struct dt_stage stage;
    struct dt_canvas canvases[DT_MAX_CANVASES];
    int n_canvases; /* 0 = a classifier */
    /* Ids in the graph, by phase and canvas; of a classifier for canvas 0. */
    int program[DT_N_PHASES][DT_MAX_CANVASES];
    struct dt_graph *graph;
    struct dt_plan *plan;
    struct dt_schedule schedule;
    size_t stage_bytes[DT_MAX_STAGES]; /* memory of a rank in each stage */
    char weights[DT_WEIGHTS_TEXT];     /* rank 0: of model.initial_checkpoint; "" = not loaded */
    int64_t last_step;                 /* training ends here: all epochs, or train.max_steps */
};

struct dt_session {
    const struct dt_config *config;
    struct dt_report *report; /* rank 0 of a training run, else NULL */
    struct dt_ranks ranks;
    struct dt_sets sets;
    struct dt_engine engine;
    struct dt_evaluator evaluator;
};

/* The parts that a sub-command needs. */
struct dt_session_needs {
    bool train, eval;      /* phases: graph, data set, loader */
    bool judge;            /* evaluation: also what eval.metrics does not need, see judging.h */
    bool profile;          /* the plan times every action separately */
    bool forward_only;     /* training without gradients and updates */
    bool no_comm;          /* every rank trains on its own: no gradient is summed */
    bool input_only;       /* data sets only: no model, device, plan, loaders */
    bool layout_only;      /* plan without memory, no loaders; missing data go to
                              data_status */
    const char *cache_dir; /* for indices of data sets, NULL = not kept */
};

/* session.c. Collective; on failure all ranks return the same status. dt_session_close takes the
 * status of the work and accepts a partly opened session. */
void dt_session_init(struct dt_session *s, struct dt_comm *comm, const struct dt_config *config);
dt_status dt_session_open(struct dt_session *s, const struct dt_session_needs *needs);
void dt_session_close(struct dt_session *s, dt_status status);
/* session_data.c: the part of dt_session_open that opens the data sets. */
dt_status dt_session_open_data(struct dt_session *s, const struct dt_session_needs *needs);
/* "224 x 224" of a classifier, for images of `side`; else all canvases: "1344 x 800, 800 x 1344".
 */
enum { DT_SIZES_TEXT = 96 };
const char *dt_session_sizes(const struct dt_session *s, int side, char out[DT_SIZES_TEXT]);

/* stages.c. Sets what depends on the epoch, before anything is built. */
void dt_session_enter(struct dt_session *s, int64_t epoch);
/* Whether that epoch needs another graph than the present one. */
bool dt_session_differs(const struct dt_session *s, int64_t epoch);
/* Builds graph, plan and, for another size or batch, training loader anew for that epoch: same
 * weights, statistics and states of the optimizer. The states of what was frozen are 0. Old
 * pointers to them are invalid. Collective. */
dt_status dt_session_rebuild(struct dt_session *s, int64_t epoch);
/* Tries all stages, without memory: sizes, batches, bytes. Collective. */
dt_status dt_session_check_stages(struct dt_session *s, const struct dt_session_needs *needs);
/* The key that the global batch follows from. */
enum { DT_STAGE_KEY = 32 };
const char *dt_session_batch_key(const struct dt_session *s, char out[DT_STAGE_KEY]);

/* Parts of dt_session_open. dt_session_build (session_plan.c), which is collective, builds graph
 * and plan, dt_session_release destroys them. */
dt_status dt_session_split_batch(struct dt_session *s);
dt_status dt_session_build(struct dt_session *s, const struct dt_session_needs *needs);
void dt_session_release(struct dt_session *s);
dt_status dt_session_open_loader(struct dt_session *s, bool train);
void dt_session_close_loader(struct dt_session *s, struct dt_loader **loader);

/* DT_ERR_DATA on all ranks if `n_bad`, summed over them, exceeds the limit of `loader`. */
dt_status dt_session_check_bad(const struct dt_loader *loader, double n_bad);
/* Whether the loss is scaled: in fp16. */
bool dt_session_scales_loss(const struct dt_session *s);
/* Whether the walk's times are meaningful: on a device with queues only in a profile. */
bool dt_session_has_times(const struct dt_session *s);
/* Whether top-5 accuracy is reported: below 6 classes it says nothing. */
bool dt_session_has_top5(const struct dt_session *s);

/* Number of CPUs this rank may use: its own, or its share of those that ranks of the node share. */
int dt_session_cpus(const struct dt_session *s);
/* What the configuration says about the data plane; the caller sets the rest. */
struct dt_comm_options dt_session_comm_options(const struct dt_session *s);
/* The options of the training or validation loader. */
struct dt_loader_options dt_session_loader_options(const struct dt_session *s, bool train);

/* class_weights.c: sets s->sets.class_weights by train.class_weights and the training set.
 * DT_ERR_CONFIG if there is not one weight per class, or a class without images. Local. */
dt_status dt_session_weigh_classes(struct dt_session *s);

/* pass.c: the scalars of update number `step` (from 0); one pass of it over a batch, which is
 * released in any case, or of the evaluation over a batch, which is not. Pass 0 sets the divisor of
 * the scalars to the class weights of the global batch. A device with queues may still be computing
 * on return. */
struct dt_scalars dt_session_scalars(const struct dt_session *s, int64_t step);
dt_status dt_session_pass(struct dt_session *s, const struct dt_batch *batch,
                          struct dt_scalars *scalars, int pass);
dt_status dt_session_eval_pass(struct dt_session *s, const struct dt_batch *batch);

/* summary.c: the schedule and the memory. Rank 0. */
void dt_session_print(const struct dt_session *s, FILE *out);

/* judging.c: whether eval.metrics, the metrics that decide, or eval.tta need s->evaluator.judging;
 * it is created for the validation set once plan and loaders exist. */
bool dt_judging_is_needed(const struct dt_config *config);
dt_status dt_judging_create(struct dt_judging **judging, const struct dt_session *s);
void dt_judging_destroy(struct dt_judging *judging); /* accepts NULL */

/* box_judging.c: for the validation set of a detector. */
dt_status dt_box_judging_create(struct dt_box_judging **judging, const struct dt_session *s);
void dt_box_judging_destroy(struct dt_box_judging *judging); /* accepts NULL */

/* evaluate.c: opens a session with the classes and values of saved weights (dt_weights_find). */
dt_status dt_session_open_weights(struct dt_session *s, const struct dt_session_needs *needs,
                                  const char *weights);
/* Evaluates the validation set once, with rank 0's running statistics, and sums over
 * all ranks. With `stop` (may be NULL) it checks now and then for reasons to stop. */
struct dt_stop;
struct dt_eval_result {
    const char *stop; /* why it stopped early, and then the rest is not set; or NULL */
    int64_t n_images;
    double value[DT_N_METRICS]; /* NaN = not computed */
    double raw[DT_N_METRICS];   /* of the weights, if `value` is of their moving averages; or NaN */
    double coco[DT_N_COCO];     /* of a detector: all its numbers; -1 = undefined */
    int64_t n_found;            /* and detections */
};
dt_status dt_session_evaluate(struct dt_session *s, struct dt_eval_result *result,
                              const struct dt_stop *stop);
/* The same for the weights that eval.weights names, during training; at its end these are in their
 * place in any case. */
dt_status dt_session_validate(struct dt_session *s, struct dt_eval_result *result,
                              const struct dt_stop *stop);
/* Whether the moving averages are the result of the run. */
bool dt_session_judges_ema(const struct dt_session *s);

#endif
