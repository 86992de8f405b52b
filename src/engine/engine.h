/* The device of a rank and what runs on it: graph, plan, schedule, and passes over batches. Main
 * thread only. */
#ifndef DTRAIN_ENGINE_ENGINE_H
#define DTRAIN_ENGINE_ENGINE_H

#include "checkpoint/weights.h"
#include "dtrain/comm.h"
#include "dtrain/models.h"
#include "dtrain/plan.h"
#include "engine/devices.h"
#include "engine/schedule.h"
#include "engine/sets.h"

/* Graph and training loader are built for a stage, all of which follows from the epoch. */
struct dt_stage {
    int64_t epoch;
    int index;               /* of train.stages, -1 = before the first */
    int image_size;          /* of training; evaluation takes model.image_size. Not of detectors */
    struct dt_split split;   /* of a global batch */
    bool is_frozen;          /* optim.freeze applies to the graph */
    int64_t steps_per_epoch; /* 0 = unknown: a layout without data */
};

enum { DT_SPLIT_TEXT = 48, DT_BATCH_TEXT = 128 };

struct dt_task;
struct dt_parallel;

/* The use that a command makes of the network. */
struct dt_engine_options {
    bool train, eval;  /* phases: of the graph, and loaders */
    bool forward_only; /* training without gradients and updates */
    bool no_comm;      /* every rank trains on its own: no gradient is summed */
    bool profile;      /* the plan times every action separately */
    bool layout_only;  /* plan without memory, no loaders */
};

/* The device and what runs on it. */
struct dt_engine {
    const struct dt_config *config; /* of the caller; with train.precision auto, once the device is
                                       chosen, `resolved`, a copy that says what that means */
    struct dt_config resolved;
    int saved_precision; /* enum dt_precision of the resumed run, -1 = none: auto keeps it */
    struct dt_ranks ranks;
    struct dt_events *events; /* gets events and progress; NULL = nobody. The caller sets it */
    struct dt_engine_options options;
    const struct dt_task *task;
    const struct dt_parallel *parallel;
    const struct dt_model *model;
    int saved_parts, saved_batch; /* of the resumed run: micro-batches in a global batch, and images
                                     in it. The division is kept if the ranks can share those
                                     micro-batches evenly. 0 = none */
    int n_threads;
    const struct dt_backend *backend;
    const char *no_gpu; /* why device.kind auto is the CPU in a build with CUDA, else NULL */
    enum dt_plane plane;
    struct dt_link link; /* between nodes, 0 until it is measured */
    const char *run_dir; /* where rank 0 keeps it, NULL = nowhere */
    struct dt_device *device;
    struct dt_stage stage;
    bool has_copy;    /* of what is saved: available memory is what there is beside it */
    int n_copy_ranks; /* share the memory for that copy; 0 = it needs none */
    uint32_t n_images[DT_MAX_CANVASES]; /* for training, by canvas; a classifier's in [0] */
    /* Ids in the graph, by phase and canvas; of a classifier for canvas 0. `smaller`: in training
     * for the smaller micro-batches; the same if all are alike. */
    int program[DT_N_PHASES][DT_MAX_CANVASES], smaller[DT_MAX_CANVASES];
    struct dt_graph *graph;
    struct dt_plan *plan;
    struct dt_schedule schedule;
    size_t stage_bytes[DT_MAX_STAGES]; /* memory of a rank in each stage */
    char weights[DT_WEIGHTS_TEXT];     /* rank 0: of model.initial_checkpoint; "" = not loaded */
    int64_t last_step;                 /* training ends here: all epochs, or train.max_steps */
};

/* For the configuration, ranks and task of the sets. Enters epoch 0. */
void dt_engine_init(struct dt_engine *engine, const struct dt_sets *sets);
/* Chooses device and model and splits the batch, opens the sets of the options' phases, then the
 * device, steps and stages, plan and loaders. With layout_only missing data go to sets->status.
 * cache_dir: as in dt_sets_options. Collective; on failure all ranks return the same status. */
dt_status dt_engine_open(struct dt_engine *engine, struct dt_sets *sets,
                         const struct dt_engine_options *options, const char *cache_dir);
/* Closes loaders, engine, sets and the report, if the work that ended with `status` allows it.
 * Accepts what is partly opened. */
void dt_engine_close(struct dt_engine *engine, struct dt_sets *sets, dt_status status);

/* stages.c. Sets what depends on the epoch, before anything is built. */
void dt_engine_enter(struct dt_engine *engine, int64_t epoch);
/* Whether that epoch needs another graph than the present one. */
bool dt_engine_differs(const struct dt_engine *engine, int64_t epoch);
/* Builds graph, plan and, for another size or batch, training loader again for that epoch: same
 * weights, statistics and states of the optimizer. The states of what was frozen are 0. Old
 * pointers to them are invalid. Collective. */
dt_status dt_engine_rebuild(struct dt_engine *engine, struct dt_sets *sets, int64_t epoch);
/* Tries all stages, without memory: sizes, batches, bytes. Collective. */
dt_status dt_engine_check_stages(struct dt_engine *engine, const struct dt_sets *sets);

/* The program for a batch. */
int dt_engine_program(const struct dt_engine *engine, enum dt_phase phase,
                      const struct dt_batch *batch);
/* "21 or 22 images" of a micro-batch. */
void dt_split_describe(char out[DT_SPLIT_TEXT], const struct dt_split *split);
/* "64 = 1 rank x 2 micro-batches x 32 images": a global batch and its parts. */
void dt_engine_describe_batch(char out[DT_BATCH_TEXT], const struct dt_engine *engine);

/* Takes the chosen device, for which it sets the precision. */
void dt_engine_use(struct dt_engine *engine, const struct dt_device_choice *choice);

/* Parts of dt_engine_open. dt_engine_build (engine_plan.c), which is collective, builds graph and
 * plan, with train.micro_batch_size auto of the largest micro-batch that fits; dt_engine_release
 * destroys them. */
dt_status dt_engine_split_batch(struct dt_engine *engine); /* stages.c */
/* The stage's batch in as many passes per rank. */
struct dt_split dt_engine_split(const struct dt_engine *engine, int n_passes);
dt_status dt_engine_check_norms(const struct dt_engine *engine); /* of a graph for training */
dt_status dt_engine_count_steps(struct dt_engine *engine, const struct dt_sets *sets);
void dt_engine_find_end(struct dt_engine *engine); /* last_step, of the schedule */
dt_status dt_engine_build(struct dt_engine *engine, const struct dt_sets *sets, bool is_layout);
/* Splits the batch into ever smaller micro-batches until a layout takes at most dt_engine_room, or
 * to the end. The last layout remains. Collective. */
dt_status dt_engine_fit(struct dt_engine *engine, const struct dt_sets *sets);
/* Bytes per rank for a plan that is chosen by its size: an eighth of a CPU's free memory is for
 * everything else, and there is the copy that is saved. 0 = unknown. */
double dt_engine_room(const struct dt_engine *engine);
void dt_engine_release(struct dt_engine *engine);
dt_status dt_engine_open_loader(struct dt_engine *engine, struct dt_sets *sets, bool train);
void dt_engine_close_loader(struct dt_engine *engine, struct dt_loader **loader);

/* Whether the loss is scaled: in fp16. */
bool dt_engine_scales_loss(const struct dt_engine *engine);
/* Whether the walk's times are meaningful: on a device with queues only in a profile. */
bool dt_engine_has_times(const struct dt_engine *engine);
/* Whether the moving averages are the result of the run. */
bool dt_engine_uses_ema(const struct dt_engine *engine);
int64_t dt_engine_parameters(const struct dt_engine *engine);
/* Whether another run has the same bits, on any number of ranks or on as many. */
static inline bool dt_engine_promises_bits(const struct dt_engine *engine)
{
    return engine->config->train.deterministic || dt_split_has_slices(&engine->stage.split);
}

/* The options of the data plane that the configuration sets; the caller sets the rest. */
struct dt_comm_options dt_engine_comm_options(const struct dt_engine *engine);
/* The options of the training or validation loader. */
struct dt_loader_options dt_engine_loader_options(const struct dt_engine *engine, bool train);

/* pass.c: the scalars of update number `step` (from 0); one pass of it over a batch, which is
 * released in any case, or of the evaluation over a batch, which is not. Pass 0 sets the divisor of
 * the scalars to the class weights of the global batch. A device with queues may still be computing
 * on return. */
struct dt_scalars dt_engine_scalars(const struct dt_engine *engine, int64_t step);
dt_status dt_engine_train(struct dt_engine *engine, struct dt_sets *sets,
                          const struct dt_batch *batch, struct dt_scalars *scalars, int pass);
dt_status dt_engine_eval(struct dt_engine *engine, const struct dt_sets *sets,
                         const struct dt_batch *batch);

/* replicas.c. Checks that all ranks have the same weights: compares hashes of weights and momentum,
 * whose values must all be finite. DT_ERR_DIVERGED or DT_ERR_NUMERICAL with the same text on all
 * ranks: which rank and host differ from the majority (with two ranks, which have no majority, both
 * are named), at which step, and `last_good` (a path or ""). Waits for the device. Collective. */
dt_status dt_replicas_compare(struct dt_engine *engine, int64_t step, const char *last_good);

/* link.c: the links between nodes, by which sums on CPU ranks choose their algorithm.
 * Measures them, or takes what an earlier start on as many nodes and ranks has left in the run
 * folder (sums-2-nodes-16-ranks.json), so that a resumed run sums in the same order. `dir` may be
 * NULL: nothing is kept. Rank 0 decides. Collective; with ranks of one node nothing is to be
 * chosen. */
dt_status dt_link_find(struct dt_link *link, struct dt_comm *comm, const char *dir);

/* freeze.c, for optim.freeze: the run leaves the parameters of these modules (names, a newline
 * after each) as they are, in a graph that is built but not fused. DT_ERR_CONFIG if the model has
 * no such module, or if nothing is left to train. */
dt_status dt_freeze(struct dt_graph *g, const char *modules);
/* "12 of 62 parameters for 5 epochs; the backward pass ends at layer2.0.conv1"; "" if none is
 * frozen. */
void dt_freeze_describe(char *out, size_t bytes, const struct dt_graph *g, int unfreeze_epoch);

#endif
