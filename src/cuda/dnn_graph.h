/* A convolution as cuDNN's graph API sees it: the graph of its operations, the engine
 * configurations that the heuristics offer for it (the candidates), execution plans made of them,
 * and their execution.
 *
 * For tests, plans can be made for a device that is not present, from its description. Such plans
 * cannot run. */
#ifndef DTRAIN_CUDA_DNN_GRAPH_H
#define DTRAIN_CUDA_DNN_GRAPH_H

#include "cuda/dnn_task.h"
#include "dtrain/backend.h"

/* The device that plans are made for: a handle's, or a described one. */
struct dt_dnn_target {
    cudnnHandle_t handle; /* NULL: use `described`*/
    cudnnBackendDescriptor_t described;
};
/* Fills target->described from cuDNN's JSON description of a device; needs cuDNN 9.8. */
dt_status dt_dnn_describe(struct dt_dnn_target *target, const char *json);
void dt_dnn_forget(struct dt_dnn_target *target); /* undoes dt_dnn_describe */

/* Most candidates taken from one of the two lists of the heuristics. */
enum { DT_DNN_LIST_MAX = 64, DT_DNN_MAX_CANDIDATES = 2 * DT_DNN_LIST_MAX };

/* The candidates that cuDNN offers for a task: first the heuristics' own list, best first by their
 * estimate, then the fallback list. The same GPU and cuDNN version give the same list. */
struct dt_dnn_configs {
    struct dt_dnn_graph graph;
    cudnnBackendDescriptor_t candidate[DT_DNN_MAX_CANDIDATES]; /* NULL: taken by a plan */
    int n_candidates;
};
/* An unsupported task gives an empty offer, not an error. */
dt_status dt_dnn_configs_create(struct dt_dnn_configs **configs, const struct dt_dnn_target *target,
                                const struct dt_conv_task *task);
void dt_dnn_configs_destroy(struct dt_dnn_configs *configs); /* accepts NULL */

struct dt_dnn_engine {
    int64_t index;      /* cuDNN's number of the engine */
    unsigned numerical; /* bit i: note i of CUDNN_NUMERICAL_NOTE_ */
};
dt_status dt_dnn_engine(struct dt_dnn_engine *out, const struct dt_dnn_configs *configs,
                        int candidate);

enum { DT_DNN_TAG_MAX = 128 };
struct dt_dnn_exec {
    cudnnBackendDescriptor_t plan, config; /* NULL: none */
    /* Engine and knobs as cuDNN's own tools write them, "eng47_k2=2_k14=0". With the task, the GPU
     * and the version of cuDNN they make the plan what it is. */
    char tag[DT_DNN_TAG_MAX];
    size_t workspace_bytes;
};
/* Makes a plan from a candidate, which is removed from the offer; DT_ERR_DEVICE if cuDNN cannot. */
dt_status dt_dnn_exec_create(struct dt_dnn_exec *exec, const struct dt_dnn_target *target,
                             struct dt_dnn_configs *configs, int candidate);
void dt_dnn_exec_destroy(struct dt_dnn_exec *exec); /* accepts an empty one */

/* The addresses of a run; NULL for tensors that the task does not use, and for a workspace if none
 * is needed. */
struct dt_dnn_memory {
    void *at[DT_DNN_N_TENSORS], *workspace;
};
dt_status dt_dnn_pack_create(cudnnBackendDescriptor_t *pack, const struct dt_dnn_memory *memory);
void dt_dnn_pack_destroy(cudnnBackendDescriptor_t pack); /* accepts NULL */
/* Enqueues the run in the handle's stream. */
dt_status dt_dnn_run(cudnnHandle_t handle, const struct dt_dnn_exec *exec,
                     cudnnBackendDescriptor_t pack);

/* --- The distinct tasks of a device --- */

/* The chosen candidate: its index in the offer, the tag of its plan as a check, what was measured.
 */
struct dt_conv_choice {
    int64_t candidate;
    char tag[DT_DNN_TAG_MAX], runner_up[DT_DNN_TAG_MAX]; /* runner_up: "" = none */
    double seconds, runner_up_s;                         /* of a run; NAN = not measured */
};

/* Nodes with equal tasks share a problem. It lives as long as the device, so a later plan of the
 * same network finds it already chosen. */
struct dt_conv_problem {
    struct dt_conv_problem *next;
    struct dt_conv_task task;
    struct dt_dnn_exec exec; /* empty before choose, and if refused */
    struct dt_conv_choice choice;
    bool refused; /* a task with extras that has no plan */
};
/* Finds the problem of a task or adds it at the end. All ranks do so for the same tasks in the same
 * order, so they have the same list. */
dt_status dt_conv_find_problem(struct dt_conv_problem **out, struct dt_device *dev,
                               const struct dt_conv_task *task);

#endif
