/* Candidates, plans and their execution. */
#include "cuda/dnn_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "cuda/cuda_internal.h"

typedef cudnnBackendDescriptor_t descriptor;

/* --- Devices that are not present --- */

#if CUDNN_VERSION >= 90800
enum {
    DEVICE_OF_HEURISTICS = CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
    DEVICE_OF_PLAN = CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
};

dt_status dt_dnn_describe(struct dt_dnn_target *target, const char *json)
{
    const struct dt_dnn_attribute text = {CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                          CUDNN_TYPE_CHAR, (int64_t)strlen(json), json};
    *target = (struct dt_dnn_target){0};
    dt_status status = dt_dnn_make(&target->described, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &text,
                                   1, "describing a device to cuDNN");
    if (status != DT_OK)
        dt_dnn_forget(target);
    return status;
}
#else
enum { DEVICE_OF_HEURISTICS = -1, DEVICE_OF_PLAN = -1 }; /* not used: devices cannot be described */

dt_status dt_dnn_describe(struct dt_dnn_target *target, const char *json)
{
    (void)json;
    *target = (struct dt_dnn_target){0};
    DT_FAIL(DT_ERR_DEVICE, "cuDNN %d cannot plan for a described device; 9.8 is required",
            CUDNN_VERSION);
}
#endif

void dt_dnn_forget(struct dt_dnn_target *target)
{
    dt_dnn_destroy(&target->described);
}

/* --- Candidates --- */

/* If asked only for their number, cuDNN returns an upper bound, so the configurations are fetched
 * into descriptors made beforehand, and those not filled are destroyed. */
static dt_status fetch(struct dt_dnn_configs *configs, descriptor heuristics)
{
    descriptor *list = configs->candidate + configs->n_candidates;
    int64_t n = 0;
    dt_status status = DT_OK;
    for (int i = 0; i < DT_DNN_LIST_MAX; i++)
        DT_TRY_OUT(dt_dnn_create(&list[i], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    DT_TRY_OUT(DT_CUDNN("asking cuDNN for algorithms of a convolution",
                        cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, DT_DNN_LIST_MAX, &n,
                                                 list)));
    n = n < 0 ? 0 : n > DT_DNN_LIST_MAX ? DT_DNN_LIST_MAX : n;
out:
    for (int64_t i = status == DT_OK ? n : 0; i < DT_DNN_LIST_MAX; i++)
        dt_dnn_destroy(&list[i]);
    configs->n_candidates += (int)n;
    return status;
}

/* A mode that has nothing for this graph cannot be finalized. */
static dt_status add_list(struct dt_dnn_configs *configs, const struct dt_dnn_target *target,
                          cudnnBackendHeurMode_t mode)
{
    const struct dt_dnn_attribute attributes[] = {
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         &configs->graph.graph},
        {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode},
        {(cudnnBackendAttributeName_t)DEVICE_OF_HEURISTICS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         &target->described},
    };
    descriptor heuristics = NULL;
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_dnn_create(&heuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
    DT_TRY_OUT(dt_dnn_set(heuristics, attributes, target->described ? 3 : 2));
    if (cudnnBackendFinalize(heuristics) == CUDNN_STATUS_SUCCESS)
        DT_TRY_OUT(fetch(configs, heuristics));
out:
    dt_dnn_destroy(&heuristics);
    return status;
}

dt_status dt_dnn_configs_create(struct dt_dnn_configs **out, const struct dt_dnn_target *target,
                                const struct dt_conv_task *task)
{
    struct dt_dnn_configs *configs = NULL;
    dt_status status = DT_OK;
    *out = NULL;
    DT_TRY_OUT(DT_NEW(configs, 1));
    DT_TRY_OUT(dt_dnn_graph_make(&configs->graph, task, target->handle));
    DT_TRY_OUT(add_list(configs, target, CUDNN_HEUR_MODE_A));
    DT_TRY_OUT(add_list(configs, target, CUDNN_HEUR_MODE_FALLBACK));
    *out = configs;
    configs = NULL;
out:
    dt_dnn_configs_destroy(configs);
    return status;
}

void dt_dnn_configs_destroy(struct dt_dnn_configs *configs)
{
    if (!configs)
        return;
    for (int i = 0; i < configs->n_candidates; i++)
        dt_dnn_destroy(&configs->candidate[i]);
    dt_dnn_graph_destroy(&configs->graph);
    free(configs);
}

/* --- Engines --- */

enum { MAX_NOTES = 32 };

dt_status dt_dnn_engine(struct dt_dnn_engine *out, const struct dt_dnn_configs *configs,
                        int candidate)
{
    cudnnBackendNumericalNote_t notes[MAX_NOTES];
    descriptor engine = NULL;
    int64_t n = 0;
    dt_status status = DT_OK;
    *out = (struct dt_dnn_engine){.index = -1};
    DT_TRY_OUT(dt_dnn_create(&engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
    DT_TRY_OUT(DT_CUDNN("asking for the engine of an algorithm",
                        cudnnBackendGetAttribute(configs->candidate[candidate],
                                                 CUDNN_ATTR_ENGINECFG_ENGINE,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine)));
    DT_TRY_OUT(DT_CUDNN("asking for the number of an engine",
                        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                                 CUDNN_TYPE_INT64, 1, &n, &out->index)));
    DT_TRY_OUT(DT_CUDNN("asking for the numerical notes of an algorithm",
                        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                 CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES, &n, notes)));
    for (int64_t i = 0; i < n && i < MAX_NOTES; i++)
        out->numerical |= 1u << ((unsigned)notes[i] % MAX_NOTES);
out:
    dt_dnn_destroy(&engine);
    return status;
}

/* --- Plans --- */

enum { MAX_KNOBS = 24 };

static dt_status make_tag(char out[DT_DNN_TAG_MAX], int64_t engine, descriptor config)
{
    struct dt_text tag = dt_text_in(out, DT_DNN_TAG_MAX);
    descriptor knobs[MAX_KNOBS] = {NULL};
    int64_t n = 0;
    dt_status status = DT_OK;
    dt_text_add(&tag, "eng%lld", (long long)engine);
    for (int i = 0; i < MAX_KNOBS; i++)
        DT_TRY_OUT(dt_dnn_create(&knobs[i], CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    DT_TRY_OUT(
        DT_CUDNN("asking for the knobs of an algorithm",
                 cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_KNOBS, &n, knobs)));
    for (int64_t i = 0; i < n && i < MAX_KNOBS; i++) {
        cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
        int64_t n_values, value = 0;
        DT_TRY_OUT(DT_CUDNN("asking for the type of a knob",
                            cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                                     CUDNN_TYPE_KNOB_TYPE, 1, &n_values, &type)));
        DT_TRY_OUT(DT_CUDNN("asking for the value of a knob",
                            cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                                     CUDNN_TYPE_INT64, 1, &n_values, &value)));
        if (!dt_text_add_whole(&tag, "_k%d=%lld", (int)type, (long long)value))
            DT_TRY_OUT(DT_ERROR(DT_ERR_DEVICE, "the description of an algorithm is too long"));
    }
out:
    for (int i = 0; i < MAX_KNOBS; i++)
        dt_dnn_destroy(&knobs[i]);
    return status;
}

dt_status dt_dnn_exec_create(struct dt_dnn_exec *exec, const struct dt_dnn_target *target,
                             struct dt_dnn_configs *configs, int candidate)
{
    struct dt_dnn_engine engine;
    int64_t bytes = 0, n = 0;
    dt_status status = DT_OK;
    *exec = (struct dt_dnn_exec){0};
    DT_TRY_OUT(dt_dnn_engine(&engine, configs, candidate));
    exec->config = configs->candidate[candidate];
    configs->candidate[candidate] = NULL;
    DT_TRY_OUT(make_tag(exec->tag, engine.index, exec->config));
    const struct dt_dnn_attribute attributes[] = {
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &exec->config},
        target->handle
            ? (struct dt_dnn_attribute){CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                        &target->handle}
            : (struct dt_dnn_attribute){(cudnnBackendAttributeName_t)DEVICE_OF_PLAN,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->described},
    };
    DT_TRY_OUT(dt_dnn_make(&exec->plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes,
                           DT_COUNT(attributes), "making a plan of a convolution"));
    DT_TRY_OUT(
        DT_CUDNN("asking for the workspace of a convolution",
                 cudnnBackendGetAttribute(exec->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &n, &bytes)));
    exec->workspace_bytes = bytes > 0 ? (size_t)bytes : 0;
out:
    if (status != DT_OK)
        dt_dnn_exec_destroy(exec);
    return status;
}

void dt_dnn_exec_destroy(struct dt_dnn_exec *exec)
{
    dt_dnn_destroy(&exec->plan);
    dt_dnn_destroy(&exec->config);
    *exec = (struct dt_dnn_exec){0};
}

/* --- Execution --- */

dt_status dt_dnn_pack_create(cudnnBackendDescriptor_t *pack, const struct dt_dnn_memory *memory)
{
    int64_t ids[DT_DNN_N_TENSORS];
    void *data[DT_DNN_N_TENSORS];
    int n = 0;
    for (int i = 0; i < DT_DNN_N_TENSORS; i++)
        if (memory->at[i])
            ids[n] = dt_dnn_id(i), data[n++] = memory->at[i];
    const struct dt_dnn_attribute attributes[] = {
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &memory->workspace},
    };
    *pack = NULL;
    dt_status status = dt_dnn_make(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, attributes,
                                   DT_COUNT(attributes), "binding the memory of a convolution");
    if (status != DT_OK)
        dt_dnn_destroy(pack);
    return status;
}

void dt_dnn_pack_destroy(cudnnBackendDescriptor_t pack)
{
    dt_dnn_destroy(&pack);
}

dt_status dt_dnn_run(cudnnHandle_t handle, const struct dt_dnn_exec *exec,
                     cudnnBackendDescriptor_t pack)
{
    return DT_CUDNN("running a convolution", cudnnBackendExecute(handle, exec->plan, pack));
}

/* --- The distinct tasks --- */

dt_status dt_conv_find_problem(struct dt_conv_problem **out, struct dt_device *dev,
                               const struct dt_conv_task *task)
{
    struct dt_conv_problem **end = &dev->problems;
    while (*end && !dt_conv_equal(&(*end)->task, task))
        end = &(*end)->next;
    if (!*end) {
        DT_TRY(DT_NEW(*end, 1));
        (*end)->task = *task;
    }
    *out = *end;
    return DT_OK;
}

void dt_cuda_problems_destroy(struct dt_device *dev)
{
    while (dev->problems) {
        struct dt_conv_problem *next = dev->problems->next;
        dt_dnn_exec_destroy(&dev->problems->exec);
        free(dev->problems);
        dev->problems = next;
    }
}
