/* Descriptors of cuDNN's graph API: created, filled with attributes, finalized, and destroyed with
 * the offer or the plan that they belong to. */
#include "cuda/dnn_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "cuda/internal.h"

typedef cudnnBackendDescriptor_t descriptor;

/* Ids by which an execution identifies the tensors. */
enum { ID_X = 'x', ID_W = 'w', ID_Y = 'y' };

enum { ALIGNMENT = 16 }; /* of tensors, as required by the fast engines */

/* --- Tasks --- */

static int out_size(int in, int window, int stride, int pad)
{
    return (in + 2 * pad - window) / stride + 1;
}

int dt_conv_out_h(const struct dt_conv_task *task)
{
    return out_size(task->h, task->r, task->stride, task->pad);
}

int dt_conv_out_w(const struct dt_conv_task *task)
{
    return out_size(task->w, task->s, task->stride, task->pad);
}

bool dt_conv_equal(const struct dt_conv_task *a, const struct dt_conv_task *b)
{
    return a->kind == b->kind && a->type == b->type && a->n == b->n && a->c == b->c &&
           a->h == b->h && a->w == b->w && a->k == b->k && a->r == b->r && a->s == b->s &&
           a->stride == b->stride && a->pad == b->pad;
}

const char *dt_conv_text(char out[DT_CONV_TEXT_MAX], const struct dt_conv_task *task)
{
    static const char *const kinds[] = {"conv", "conv_bwd_data", "conv_bwd_weights"};
    const char *type = task->type == DT_F16 ? "fp16" : task->type == DT_BF16 ? "bf16" : "fp32";
    snprintf(out, DT_CONV_TEXT_MAX, "%s %s x %dx%dx%dx%d w %dx%dx%dx%d stride %d pad %d",
             kinds[task->kind], type, task->n, task->c, task->h, task->w, task->k, task->c, task->r,
             task->s, task->stride, task->pad);
    return out;
}

/* --- Descriptors --- */

static dt_status create_descriptor(descriptor *d, cudnnBackendDescriptorType_t type)
{
    return DT_CUDNN("creating a cuDNN descriptor", cudnnBackendCreateDescriptor(type, d));
}

static void destroy(descriptor *d)
{
    if (*d)
        cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

/* The arguments of one cudnnBackendSetAttribute. */
struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    const void *values;
};

static dt_status set_attributes(descriptor d, const struct attribute *attributes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct attribute *a = &attributes[i];
        char what[64];
        snprintf(what, sizeof(what), "setting attribute %d of a cuDNN descriptor", (int)a->name);
        DT_TRY(DT_CUDNN(what, cudnnBackendSetAttribute(d, a->name, a->type, a->count, a->values)));
    }
    return DT_OK;
}

/* Creates, sets and finalizes; on failure *d may hold an unfinished descriptor, which its owner
 * destroys. */
static dt_status make_descriptor(descriptor *d, cudnnBackendDescriptorType_t type,
                                 const struct attribute *attributes, size_t n, const char *what)
{
    DT_TRY(create_descriptor(d, type));
    DT_TRY(set_attributes(*d, attributes, n));
    DT_TRY(DT_CUDNN(what, cudnnBackendFinalize(*d)));
    return DT_OK;
}

/* Dimensions are in the order N, C, H, W; the strides make it NHWC. */
static dt_status make_tensor(descriptor *d, int64_t id, enum dt_dtype type, int n, int c, int h,
                             int w)
{
    const int64_t dims[4] = {n, c, h, w}, alignment = ALIGNMENT;
    const int64_t strides[4] = {(int64_t)c * h * w, 1, (int64_t)c * w, c};
    const cudnnDataType_t stored = type == DT_F16    ? CUDNN_DATA_HALF
                                   : type == DT_BF16 ? CUDNN_DATA_BFLOAT16
                                                     : CUDNN_DATA_FLOAT;
    const struct attribute attributes[] = {
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &stored},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
    };
    return make_descriptor(d, CUDNN_BACKEND_TENSOR_DESCRIPTOR, attributes, DT_COUNT(attributes),
                           "describing a tensor of a convolution");
}

static dt_status make_window(descriptor *d, const struct dt_conv_task *task)
{
    const int64_t n_dims = 2, dilations[2] = {1, 1};
    const int64_t strides[2] = {task->stride, task->stride}, pads[2] = {task->pad, task->pad};
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const struct attribute attributes[] = {
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n_dims},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides},
    };
    return make_descriptor(d, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, attributes,
                           DT_COUNT(attributes), "describing the window of a convolution");
}

static dt_status make_op(struct dt_dnn_offer *offer, const struct dt_conv_task *task)
{
    /* The names that differ between the three operations, in the order of `attributes`. */
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
    } ops[] = {
        [DT_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        [DT_CONV_BWD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        [DT_CONV_BWD_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    };
    const float alpha = 1, beta = 0;
    const struct attribute attributes[] = {
        {ops[task->kind].conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &offer->conv},
        {ops[task->kind].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &offer->x},
        {ops[task->kind].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &offer->w},
        {ops[task->kind].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &offer->y},
        {ops[task->kind].alpha, CUDNN_TYPE_FLOAT, 1, &alpha},
        {ops[task->kind].beta, CUDNN_TYPE_FLOAT, 1, &beta},
    };
    return make_descriptor(&offer->op, ops[task->kind].type, attributes, DT_COUNT(attributes),
                           "describing a convolution");
}

static dt_status make_graph(struct dt_dnn_offer *offer, const struct dt_dnn_target *target,
                            const struct dt_conv_task *task)
{
    DT_TRY(make_tensor(&offer->x, ID_X, task->type, task->n, task->c, task->h, task->w));
    DT_TRY(make_tensor(&offer->w, ID_W, task->type, task->k, task->c, task->r, task->s));
    DT_TRY(make_tensor(&offer->y, ID_Y, task->type, task->n, task->k, dt_conv_out_h(task),
                       dt_conv_out_w(task)));
    DT_TRY(make_window(&offer->conv, task));
    DT_TRY(make_op(offer, task));
    const struct attribute attributes[] = {
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &offer->op},
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle},
    };
    return make_descriptor(&offer->graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, attributes,
                           target->handle ? 2 : 1, "making the graph of a convolution");
}

/* --- Devices that are not present --- */

#if CUDNN_VERSION >= 90800
enum {
    DEVICE_OF_HEURISTICS = CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
    DEVICE_OF_PLAN = CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
};

dt_status dt_dnn_describe(struct dt_dnn_target *target, const char *json)
{
    const struct attribute text = {CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                   (int64_t)strlen(json), json};
    *target = (struct dt_dnn_target){0};
    dt_status status = make_descriptor(&target->described, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR,
                                       &text, 1, "describing a device to cuDNN");
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
    destroy(&target->described);
}

/* --- Candidates --- */

/* If asked only for their number, cuDNN returns an upper bound, so the configurations are fetched
 * into descriptors made beforehand, and those not filled are destroyed. */
static dt_status fetch(struct dt_dnn_offer *offer, descriptor heuristics)
{
    descriptor *list = offer->candidate + offer->n_candidates;
    int64_t n = 0;
    dt_status status = DT_OK;
    for (int i = 0; i < DT_DNN_LIST_MAX; i++)
        DT_TRY_OUT(create_descriptor(&list[i], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    DT_TRY_OUT(DT_CUDNN("asking cuDNN for algorithms of a convolution",
                        cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, DT_DNN_LIST_MAX, &n,
                                                 list)));
    n = n < 0 ? 0 : n > DT_DNN_LIST_MAX ? DT_DNN_LIST_MAX : n;
out:
    for (int64_t i = status == DT_OK ? n : 0; i < DT_DNN_LIST_MAX; i++)
        destroy(&list[i]);
    offer->n_candidates += (int)n;
    return status;
}

/* A mode that has nothing for this graph cannot be finalized. */
static dt_status add_list(struct dt_dnn_offer *offer, const struct dt_dnn_target *target,
                          cudnnBackendHeurMode_t mode)
{
    const struct attribute attributes[] = {
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &offer->graph},
        {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode},
        {(cudnnBackendAttributeName_t)DEVICE_OF_HEURISTICS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         &target->described},
    };
    descriptor heuristics = NULL;
    dt_status status = DT_OK;
    DT_TRY_OUT(create_descriptor(&heuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
    DT_TRY_OUT(set_attributes(heuristics, attributes, target->described ? 3 : 2));
    if (cudnnBackendFinalize(heuristics) == CUDNN_STATUS_SUCCESS)
        DT_TRY_OUT(fetch(offer, heuristics));
out:
    destroy(&heuristics);
    return status;
}

dt_status dt_dnn_offer_create(struct dt_dnn_offer **out, const struct dt_dnn_target *target,
                              const struct dt_conv_task *task)
{
    struct dt_dnn_offer *offer = NULL;
    dt_status status = DT_OK;
    *out = NULL;
    DT_TRY_OUT(DT_NEW(offer, 1));
    DT_TRY_OUT(make_graph(offer, target, task));
    DT_TRY_OUT(add_list(offer, target, CUDNN_HEUR_MODE_A));
    DT_TRY_OUT(add_list(offer, target, CUDNN_HEUR_MODE_FALLBACK));
    *out = offer;
    offer = NULL;
out:
    dt_dnn_offer_destroy(offer);
    return status;
}

void dt_dnn_offer_destroy(struct dt_dnn_offer *offer)
{
    if (!offer)
        return;
    for (int i = 0; i < offer->n_candidates; i++)
        destroy(&offer->candidate[i]);
    destroy(&offer->graph);
    destroy(&offer->op);
    destroy(&offer->conv);
    destroy(&offer->y);
    destroy(&offer->w);
    destroy(&offer->x);
    free(offer);
}

/* --- Engines --- */

enum { MAX_NOTES = 32 };

static dt_status get_numerical(unsigned *bits, descriptor engine)
{
    cudnnBackendNumericalNote_t notes[MAX_NOTES];
    int64_t n = 0;
    *bits = 0;
    DT_TRY(DT_CUDNN("asking for the numerical notes of an algorithm",
                    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                             CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES, &n, notes)));
    for (int64_t i = 0; i < n && i < MAX_NOTES; i++)
        *bits |= 1u << ((unsigned)notes[i] % MAX_NOTES);
    return DT_OK;
}

dt_status dt_dnn_engine(struct dt_dnn_engine *out, const struct dt_dnn_offer *offer, int candidate)
{
    descriptor engine = NULL;
    int64_t n = 0;
    dt_status status = DT_OK;
    *out = (struct dt_dnn_engine){.index = -1};
    DT_TRY_OUT(create_descriptor(&engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
    DT_TRY_OUT(
        DT_CUDNN("asking for the engine of an algorithm",
                 cudnnBackendGetAttribute(offer->candidate[candidate], CUDNN_ATTR_ENGINECFG_ENGINE,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine)));
    DT_TRY_OUT(DT_CUDNN("asking for the number of an engine",
                        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                                 CUDNN_TYPE_INT64, 1, &n, &out->index)));
    DT_TRY_OUT(get_numerical(&out->numerical, engine));
out:
    destroy(&engine);
    return status;
}

/* --- Plans --- */

enum { MAX_KNOBS = 24 };

static dt_status add_knob(struct dt_text *tag, descriptor knob)
{
    cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
    int64_t n, value = 0;
    DT_TRY(DT_CUDNN("asking for the type of a knob",
                    cudnnBackendGetAttribute(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                             CUDNN_TYPE_KNOB_TYPE, 1, &n, &type)));
    DT_TRY(DT_CUDNN("asking for the value of a knob",
                    cudnnBackendGetAttribute(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                             CUDNN_TYPE_INT64, 1, &n, &value)));
    if (!dt_text_add_whole(tag, "_k%d=%lld", (int)type, (long long)value))
        DT_FAIL(DT_ERR_DEVICE, "the description of an algorithm is too long");
    return DT_OK;
}

static dt_status make_tag(char out[DT_DNN_TAG_MAX], int64_t engine, descriptor config)
{
    struct dt_text tag = dt_text_in(out, DT_DNN_TAG_MAX);
    descriptor knobs[MAX_KNOBS] = {NULL};
    int64_t n = 0;
    dt_status status = DT_OK;
    dt_text_add(&tag, "eng%lld", (long long)engine);
    for (int i = 0; i < MAX_KNOBS; i++)
        DT_TRY_OUT(create_descriptor(&knobs[i], CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    DT_TRY_OUT(
        DT_CUDNN("asking for the knobs of an algorithm",
                 cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_KNOBS, &n, knobs)));
    for (int64_t i = 0; i < n && i < MAX_KNOBS; i++)
        DT_TRY_OUT(add_knob(&tag, knobs[i]));
out:
    for (int i = 0; i < MAX_KNOBS; i++)
        destroy(&knobs[i]);
    return status;
}

dt_status dt_dnn_plan_create(struct dt_dnn_plan *plan, const struct dt_dnn_target *target,
                             struct dt_dnn_offer *offer, int candidate)
{
    struct dt_dnn_engine engine;
    int64_t bytes = 0, n = 0;
    dt_status status = DT_OK;
    *plan = (struct dt_dnn_plan){0};
    DT_TRY_OUT(dt_dnn_engine(&engine, offer, candidate));
    plan->config = offer->candidate[candidate];
    offer->candidate[candidate] = NULL;
    DT_TRY_OUT(make_tag(plan->tag, engine.index, plan->config));
    const struct attribute attributes[] = {
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &plan->config},
        target->handle ? (struct attribute){CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                            &target->handle}
                       : (struct attribute){(cudnnBackendAttributeName_t)DEVICE_OF_PLAN,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->described},
    };
    DT_TRY_OUT(make_descriptor(&plan->plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes,
                               DT_COUNT(attributes), "making a plan of a convolution"));
    DT_TRY_OUT(
        DT_CUDNN("asking for the workspace of a convolution",
                 cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &n, &bytes)));
    plan->workspace_bytes = bytes > 0 ? (size_t)bytes : 0;
out:
    if (status != DT_OK)
        dt_dnn_plan_destroy(plan);
    return status;
}

void dt_dnn_plan_destroy(struct dt_dnn_plan *plan)
{
    destroy(&plan->plan);
    destroy(&plan->config);
    *plan = (struct dt_dnn_plan){0};
}

/* --- Execution --- */

dt_status dt_dnn_pack_create(cudnnBackendDescriptor_t *pack, const struct dt_dnn_memory *memory)
{
    const int64_t ids[] = {ID_X, ID_W, ID_Y};
    void *const data[] = {memory->x, memory->w, memory->y};
    const struct attribute attributes[] = {
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, DT_COUNT(ids), ids},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, DT_COUNT(data), data},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &memory->workspace},
    };
    *pack = NULL;
    dt_status status = make_descriptor(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, attributes,
                                       DT_COUNT(attributes), "binding the memory of a convolution");
    if (status != DT_OK)
        destroy(pack);
    return status;
}

void dt_dnn_pack_destroy(cudnnBackendDescriptor_t pack)
{
    destroy(&pack);
}

dt_status dt_dnn_run(cudnnHandle_t handle, const struct dt_dnn_plan *plan,
                     cudnnBackendDescriptor_t pack)
{
    return DT_CUDNN("running a convolution", cudnnBackendExecute(handle, plan->plan, pack));
}
