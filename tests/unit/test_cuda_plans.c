/* Whether cuDNN can plan every convolution that dtrain asks for, on a GPU that need not be there:
 * plans are made for the description of an H200. Without a driver cuDNN refuses its engines that
 * are compiled at run time; those that come compiled must do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/cuda_conv.h"
#include "cuda/cuda_internal.h"
#include "resnet50_graph.h"
#include "retinanet_graph.h"
#include "test_status.h"

/* As cuDNN reads it; yes and no are 1 and 0. */
static const char h200[] =
    "{\"deviceVer\":900,\"driverVer\":13000,\"deviceName\":\"NVIDIA H200\",\"cudaDeviceId\":0,"
    "\"pciDeviceId\":590680286,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"
    "\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":150754820096,"
    "\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64]}";

static struct dt_dnn_target target;

static int describe(void **state)
{
    (void)state;
    dt_status status = dt_dnn_describe(&target, h200);
    if (status != DT_OK)
        fprintf(stderr, "%s\n", dt_error_text());
    return status == DT_OK ? 0 : -1;
}

static int forget(void **state)
{
    (void)state;
    dt_dnn_forget(&target);
    return 0;
}

/* The candidates for deterministic runs without Winograd: the fewest of all. */
static struct dt_conv_rules strictest(enum dt_precision precision)
{
    const struct dt_device_options options = {.deterministic = true, .precision = precision};
    return dt_conv_rules(&options);
}

/* The first candidate that can be used. */
static void check_plan(const struct dt_conv_task *task, enum dt_precision precision)
{
    const struct dt_conv_rules rules = strictest(precision);
    struct dt_dnn_configs *configs = NULL;
    struct dt_dnn_exec exec = {0};
    char text[DT_CONV_TEXT_MAX];
    dt_conv_text(text, task);
    assert_ok(dt_dnn_configs_create(&configs, &target, task));
    int n = configs->n_candidates, i = 0;
    while (i < n && dt_conv_try(&exec, &target, configs, &rules, task->type, i) != DT_OK)
        i++;
    if (i == n)
        fail_msg("%s%s: none of %d candidates can be planned; the last one: %s", text,
                 rules.tf32 ? " tf32" : "", n, dt_error_text());
    printf("%s%s: %d candidates, number %d is %s with %.1f MiB of workspace\n", text,
           rules.tf32 ? " tf32" : "", n, i, exec.tag, (double)exec.workspace_bytes / (1 << 20));
    assert_non_null(exec.plan);
    assert_true(exec.workspace_bytes <= DT_CONV_MAX_WORKSPACE);
    dt_dnn_exec_destroy(&exec);
    dt_dnn_configs_destroy(configs);
}

/* --- ResNet-50 --- */

static struct dt_graph *make_resnet50(int batch)
{
    struct dt_graph *g = NULL;
    assert_ok(dt_graph_create(&g));
    for (int phase = 0; phase < DT_N_PHASES; phase++)
        add_resnet50(g, (enum dt_phase)phase, batch);
    assert_ok(dt_graph_check(g));
    assert_ok(dt_graph_fuse(g, NULL, NULL));
    assert_ok(dt_graph_differentiate(g));
    return g;
}

static const struct dt_cuda_op *conv_op(enum dt_op op)
{
    return op == DT_OP_CONV               ? &dt_cuda_conv
           : op == DT_OP_CONV_BWD_DATA    ? &dt_cuda_conv_bwd_data
           : op == DT_OP_CONV_BWD_WEIGHTS ? &dt_cuda_conv_bwd_weights
                                          : NULL;
}

/* Prepares the convolutions as the backend does; returns how many there are. */
static int prepare_convs(struct dt_device *dev, const struct dt_graph *g)
{
    int n = 0;
    assert_ok(dt_cuda_formats_acquire(dev, g));
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        struct dt_exec exec = {.op = conv_op(node->op), .graph = g, .node = node};
        if (!exec.op)
            continue;
        for (int s = 0; s < node->n_src; s++)
            assert_ok(dt_cuda_format(dev, &exec.src[s], g, node->src[s]));
        for (int d = 0; d < node->n_dst; d++)
            assert_ok(dt_cuda_format(dev, &exec.dst[d], g, node->dst[d]));
        assert_ok(exec.op->prepare(dev, &exec));
        assert_non_null(exec.problem);
        n++;
    }
    dt_cuda_formats_release(dev, g);
    return n;
}

/* What a network's convolutions must be: nodes, and distinct ones of each kind. */
struct counts {
    int n_nodes, n_shapes[3];
};

static void check_network(struct dt_graph *g, enum dt_dtype type, enum dt_precision precision,
                          const struct counts *expected)
{
    struct dt_device dev = {.type = type, .options.precision = precision};
    int n[] = {0, 0, 0}, n_images = 0;
    assert_int_equal(prepare_convs(&dev, g), expected->n_nodes);
    for (const struct dt_conv_problem *p = dev.problems; p; p = p->next) {
        n[p->task.kind]++;
        n_images += p->task.c == 4;
        assert_int_equal(p->task.type, type);
        assert_int_equal(p->task.n, g->program[DT_TRAIN].batch);
        assert_int_equal(p->task.k % 8, 0);
        check_plan(&p->task, precision);
    }
    for (int kind = 0; kind < 3; kind++)
        assert_int_equal(n[kind], expected->n_shapes[kind]);
    assert_int_equal(n_images, 2); /* the first layer has 3 channels in 4, and no bwd_data */
    dt_cuda_problems_destroy(&dev);
    assert_null(dev.problems);
    dt_graph_destroy(g);
}

static void check_resnet50(enum dt_dtype type, enum dt_precision precision, int batch)
{
    static const struct counts counts = {
        .n_nodes = 53 + 53 + 52 + 53,
        .n_shapes = {[DT_CONV_FORWARD] = 23, [DT_CONV_BWD_DATA] = 22, [DT_CONV_BWD_WEIGHTS] = 23}};
    check_network(make_resnet50(batch), type, precision, &counts);
}

TEST(resnet50_fp16)
{
    check_resnet50(DT_F16, DT_PRECISION_FP16, 256);
}

TEST(resnet50_bf16)
{
    check_resnet50(DT_BF16, DT_PRECISION_BF16, 256);
}

TEST(resnet50_fp32)
{
    check_resnet50(DT_F32, DT_PRECISION_FP32, 64);
}

TEST(resnet50_tf32)
{
    check_resnet50(DT_F32, DT_PRECISION_TF32, 64);
}

/* --- RetinaNet on ResNet-50 --- */

/* Its pyramid has 100x136, 50x68, 25x34, 13x17 and 7x9 places. */
static void check_retinanet(enum dt_dtype type, enum dt_precision precision)
{
    static const struct counts counts = {
        .n_nodes = 111 + 111 + 110,
        .n_shapes = {[DT_CONV_FORWARD] = 40, [DT_CONV_BWD_DATA] = 39, [DT_CONV_BWD_WEIGHTS] = 40}};
    struct dt_graph *g = NULL;
    assert_ok(dt_graph_create(&g));
    add_retinanet(g, DT_TRAIN, 16, 800, 1088, "retinanet_resnet50_fpn", &retinanet_options);
    assert_ok(dt_graph_check(g));
    assert_ok(dt_graph_fuse(g, NULL, NULL));
    assert_ok(dt_graph_differentiate(g));
    check_network(g, type, precision, &counts);
}

TEST(retinanet_fp16)
{
    check_retinanet(DT_F16, DT_PRECISION_FP16);
}

TEST(retinanet_bf16)
{
    check_retinanet(DT_BF16, DT_PRECISION_BF16);
}

/* --- What is computed along with the convolutions of ResNet-50 --- */

/* The number of candidates that can be used. */
static int count_plans(const struct dt_conv_task *task)
{
    const struct dt_conv_rules rules = strictest(DT_PRECISION_FP16);
    struct dt_dnn_configs *configs = NULL;
    char text[DT_CONV_TEXT_MAX];
    int n = 0;
    assert_ok(dt_dnn_configs_create(&configs, &target, task));
    for (int i = 0; i < configs->n_candidates; i++) {
        struct dt_dnn_exec exec;
        n += dt_conv_try(&exec, &target, configs, &rules, task->type, i) == DT_OK;
        dt_dnn_exec_destroy(&exec);
    }
    printf("%s: %d of %d candidates can be used\n", dt_conv_text(text, task), n,
           configs->n_candidates);
    dt_dnn_configs_destroy(configs);
    return n;
}

static const struct {
    enum dt_conv_kind kind;
    enum dt_conv_extra extra;
    int n_shapes; /* in fp16, for which there are plans */
} fused[] = {
    {DT_CONV_FORWARD, DT_CONV_SUMS, 22},
    {DT_CONV_FORWARD, DT_CONV_NORM_SUMS, 22},
    {DT_CONV_BWD_WEIGHTS, DT_CONV_NORM, 22},
    {DT_CONV_BWD_DATA, DT_CONV_BN_BWD, 22},
    {DT_CONV_BWD_DATA, DT_CONV_ADD_RESIDUAL_BN_BWD, 16},
    {DT_CONV_BWD_DATA, DT_CONV_ADD_PAIR_BN_BWD, 16},
};

/* Plans for the layers that need them, and for the first layer, and in bf16, an empty offer. */
TEST(fused)
{
    struct dt_device dev = {.type = DT_F16, .options.precision = DT_PRECISION_FP16};
    struct dt_graph *g = make_resnet50(256);
    prepare_convs(&dev, g);
    for (size_t i = 0; i < DT_COUNT(fused); i++) {
        int n_shapes = 0;
        for (const struct dt_conv_problem *p = dev.problems; p; p = p->next) {
            struct dt_conv_task task = p->task;
            if (task.kind != fused[i].kind)
                continue;
            task.extra = fused[i].extra;
            const int n = count_plans(&task);
            assert_true(n == 0 || task.c > 4);
            n_shapes += n > 0;
            task.type = DT_BF16;
            assert_int_equal(count_plans(&task), 0);
        }
        assert_int_equal(n_shapes, fused[i].n_shapes);
    }
    dt_cuda_problems_destroy(&dev);
    dt_graph_destroy(g);
}

/* --- Small and odd shapes, as other networks and the tests of the ops have them --- */

#define ROW(n, c, h, w, k, window, stride, pad, dilation, groups)                              \
    {                                                                                          \
        0, DT_F32, n, c, h, w, k, window, window, stride, pad, dilation, groups, DT_CONV_PLAIN \
    }

static const struct dt_conv_task odd[] = {
    ROW(2, 4, 9, 9, 16, 3, 1, 1, 1, 1),
    ROW(2, 4, 12, 12, 16, 3, 2, 1, 1, 1),
    ROW(1, 4, 63, 63, 64, 11, 4, 2, 1, 1),
    ROW(2, 8, 11, 7, 24, 3, 2, 1, 1, 1),
    ROW(2, 24, 13, 13, 8, 3, 1, 0, 1, 1),
    ROW(1, 24, 10, 12, 24, 3, 2, 0, 1, 1),
    ROW(2, 24, 15, 15, 40, 1, 1, 0, 1, 1),
    ROW(3, 16, 15, 15, 32, 1, 2, 0, 1, 1),
    ROW(2, 24, 9, 9, 8, 1, 2, 0, 1, 1),
    ROW(2, 8, 14, 14, 16, 5, 1, 2, 1, 1),
    ROW(1, 8, 63, 63, 64, 11, 4, 2, 1, 1),
    ROW(1, 64, 7, 7, 192, 5, 1, 2, 1, 1),
    ROW(2, 8, 33, 33, 64, 7, 2, 3, 1, 1),
    ROW(1, 8, 5, 5, 8, 3, 1, 1, 1, 1),
    ROW(4, 8, 1, 1, 16, 1, 1, 0, 1, 1),
    ROW(2, 16, 3, 3, 16, 3, 1, 0, 1, 1),
    ROW(8, 40, 20, 18, 40, 3, 1, 1, 1, 1),
    /* Groups of one channel, of a few, and of many; dilation. */
    ROW(2, 24, 14, 14, 24, 3, 1, 1, 1, 24),
    ROW(2, 96, 28, 28, 96, 3, 2, 1, 1, 96),
    ROW(2, 96, 14, 14, 96, 7, 1, 3, 1, 96),
    ROW(2, 128, 14, 14, 128, 3, 1, 1, 1, 32),
    ROW(2, 64, 14, 14, 64, 3, 2, 1, 1, 2),
    ROW(2, 16, 13, 13, 24, 3, 1, 2, 2, 1),
};

TEST(odd_shapes)
{
    static const struct {
        enum dt_dtype type;
        enum dt_precision precision;
    } modes[] = {{DT_F32, DT_PRECISION_FP32},
                 {DT_F32, DT_PRECISION_TF32},
                 {DT_BF16, DT_PRECISION_BF16},
                 {DT_F16, DT_PRECISION_FP16}};
    static const enum dt_conv_kind kinds[] = {DT_CONV_FORWARD, DT_CONV_BWD_DATA,
                                              DT_CONV_BWD_WEIGHTS};
    for (size_t i = 0; i < DT_COUNT(odd); i++)
        for (size_t m = 0; m < DT_COUNT(modes); m++)
            for (size_t k = 0; k < DT_COUNT(kinds); k++) {
                struct dt_conv_task task = odd[i];
                task.kind = kinds[k];
                task.type = modes[m].type;
                if (task.kind != DT_CONV_BWD_DATA || task.c % 8 == 0) /* not of images */
                    check_plan(&task, modes[m].precision);
            }
}

/* --- Numbers and names of the candidates --- */

static const struct dt_conv_task stem = ROW(256, 4, 224, 224, 64, 7, 2, 3, 1, 1);
static const struct dt_conv_task square = ROW(256, 64, 56, 56, 64, 3, 1, 1, 1, 1);

#define NOTE(name) (1u << CUDNN_NUMERICAL_NOTE_##name)

/* cuDNN offers algorithms that sum in 16 bits, first of all for the first layer on Hopper. They are
 * refused, and there are enough others. */
TEST(sums)
{
    static const struct {
        const struct dt_conv_task *task;
        enum dt_conv_kind kind;
        bool first; /* the one that the heuristics like best */
    } cases[] = {{&stem, DT_CONV_FORWARD, true},
                 {&stem, DT_CONV_BWD_WEIGHTS, true},
                 {&square, DT_CONV_BWD_WEIGHTS, false}};
    const struct dt_conv_rules rules = {.winograd = true};
    for (size_t k = 0; k < DT_COUNT(cases); k++) {
        struct dt_conv_task task = *cases[k].task;
        struct dt_dnn_configs *configs = NULL;
        int n_refused = 0, n_plans = 0;
        task.kind = cases[k].kind;
        task.type = DT_F16;
        assert_ok(dt_dnn_configs_create(&configs, &target, &task));
        for (int i = 0; i < configs->n_candidates; i++) {
            struct dt_dnn_engine engine;
            struct dt_dnn_exec exec;
            assert_ok(dt_dnn_engine(&engine, configs, i));
            bool is_short = engine.numerical & NOTE(REDUCED_PRECISION_REDUCTION);
            bool usable = dt_conv_try(&exec, &target, configs, &rules, task.type, i) == DT_OK;
            assert_false(is_short && usable);
            assert_true(i > 0 || is_short == cases[k].first);
            n_refused += is_short;
            n_plans += usable;
            dt_dnn_exec_destroy(&exec);
        }
        assert_true(n_refused > 0);
        assert_true(n_plans > 16);
        dt_dnn_configs_destroy(configs);
    }
}

/* What cuDNN's own description of a plan says about engine and knobs. */
static char *describe_engine(const struct dt_dnn_exec *exec)
{
    enum { MAX = 1 << 16 };
    char *json = NULL;
    int64_t n = 0;
    assert_ok(DT_NEW(json, MAX));
    assert_int_equal(cudnnBackendGetAttribute(exec->plan,
                                              CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                              CUDNN_TYPE_CHAR, MAX - 1, &n, json),
                     CUDNN_STATUS_SUCCESS);
    const char *engine = strstr(json, "\"engine\":{\"engineId\":");
    assert_non_null(engine);
    memmove(json, engine, strlen(engine) + 1);
    return json;
}

/* Two plans have the same tag if and only if cuDNN describes them in the same way, so a tag in the
 * file of choices stands for one plan. */
TEST(tags)
{
    const struct dt_conv_task *const tasks[] = {&stem, &square};
    for (size_t k = 0; k < 2 * DT_COUNT(tasks); k++) {
        struct dt_conv_task task = *tasks[k / 2];
        struct dt_dnn_configs *configs = NULL;
        struct dt_dnn_exec exec[DT_DNN_MAX_CANDIDATES];
        char *json[DT_DNN_MAX_CANDIDATES];
        int n = 0;
        task.kind = k % 2 ? DT_CONV_BWD_WEIGHTS : DT_CONV_FORWARD;
        task.type = DT_F16;
        assert_ok(dt_dnn_configs_create(&configs, &target, &task));
        for (int i = 0; i < configs->n_candidates; i++)
            if (dt_dnn_exec_create(&exec[n], &target, configs, i) == DT_OK)
                json[n] = describe_engine(&exec[n]), n++;
        assert_true(n > 16);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < i; j++)
                assert_int_equal(strcmp(exec[i].tag, exec[j].tag) == 0,
                                 strcmp(json[i], json[j]) == 0);
        for (int i = 0; i < n; i++) {
            long long engine = strtoll(strchr(json[i], 'I') + strlen("Id\":"), NULL, 10);
            assert_int_equal(engine, strtoll(exec[i].tag + strlen("eng"), NULL, 10));
            dt_dnn_exec_destroy(&exec[i]);
            free(json[i]);
        }
        dt_dnn_configs_destroy(configs);
    }
}

/* --- What surrounds the plans --- */

/* Nothing offered, or a descriptor that cuDNN refuses; in either case a text and no leak. */
TEST(impossible)
{
    const struct dt_conv_rules rules = strictest(DT_PRECISION_FP16);
    struct dt_conv_task task = {.type = DT_F16,
                                .n = 2,
                                .c = 8,
                                .h = 4,
                                .w = 4,
                                .k = 8,
                                .r = 9, /* larger than the padded image */
                                .s = 9,
                                .stride = 1,
                                .dilation = 1,
                                .groups = 1,
                                .pad = 1};
    struct dt_dnn_configs *configs = NULL;
    struct dt_dnn_exec exec;
    dt_error_clear();
    if (dt_dnn_configs_create(&configs, &target, &task) != DT_OK) {
        assert_null(configs);
        assert_string_not_equal(dt_error_text(), "");
        return;
    }
    for (int i = 0; i < configs->n_candidates; i++)
        assert_int_not_equal(dt_conv_try(&exec, &target, configs, &rules, task.type, i), DT_OK);
    dt_dnn_configs_destroy(configs);
}

TEST(rules)
{
    const struct dt_conv_rules none = {0}, deterministic = {.deterministic = true},
                               tf32 = {.tf32 = true}, winograd = {.winograd = true};
    assert_true(dt_conv_allows(&none, DT_F32, 0));
    assert_true(dt_conv_allows(&none, DT_F16, NOTE(TENSOR_CORE)));
    assert_false(dt_conv_allows(&none, DT_F32, NOTE(TENSOR_CORE)));
    assert_true(dt_conv_allows(&tf32, DT_F32, NOTE(TENSOR_CORE)));
    assert_false(dt_conv_allows(&tf32, DT_F32, NOTE(TENSOR_CORE) | NOTE(DOWN_CONVERT_INPUTS)));
    assert_false(dt_conv_allows(&none, DT_F16, NOTE(REDUCED_PRECISION_REDUCTION)));
    assert_false(dt_conv_allows(&none, DT_BF16, NOTE(REDUCED_PRECISION_REDUCTION)));
    assert_false(dt_conv_allows(&none, DT_F32, NOTE(REDUCED_PRECISION_REDUCTION)));
    assert_true(dt_conv_allows(&none, DT_F16, NOTE(NONDETERMINISTIC)));
    assert_false(dt_conv_allows(&deterministic, DT_F16, NOTE(NONDETERMINISTIC)));
    assert_false(dt_conv_allows(&none, DT_F16, NOTE(WINOGRAD)));
    assert_false(dt_conv_allows(&none, DT_F32, NOTE(WINOGRAD_TILE_6x6)));
    assert_true(dt_conv_allows(&winograd, DT_F32, NOTE(WINOGRAD) | NOTE(WINOGRAD_TILE_4x4)));
}

/* Every field of a task tells it apart, as the list of problems and the file of choices need. */
TEST(distinct)
{
    const struct dt_conv_task base = {DT_CONV_FORWARD, DT_F16, 1, 8, 9, 9, 8, 3, 3, 1, 1, 1, 1,
                                      DT_CONV_PLAIN};
    char text[DT_CONV_TEXT_MAX], other[DT_CONV_TEXT_MAX];
    struct dt_conv_task tasks[14];
    for (size_t i = 0; i < DT_COUNT(tasks); i++)
        tasks[i] = base;
    tasks[0].kind = DT_CONV_BWD_DATA;
    tasks[1].type = DT_BF16;
    tasks[2].n = 2;
    tasks[3].c = 16;
    tasks[4].h = 10;
    tasks[5].w = 10;
    tasks[6].k = 16;
    tasks[7].r = 5;
    tasks[8].s = 5;
    tasks[9].stride = 2;
    tasks[10].pad = 2;
    tasks[11].extra = DT_CONV_SUMS;
    tasks[12].dilation = 2;
    tasks[13].groups = 8;
    assert_true(dt_conv_equal(&base, &base));
    for (size_t i = 0; i < DT_COUNT(tasks); i++) {
        assert_false(dt_conv_equal(&base, &tasks[i]));
        assert_string_not_equal(dt_conv_text(text, &base), dt_conv_text(other, &tasks[i]));
    }
    assert_int_equal(dt_conv_out_h(&tasks[4]), 10);
    assert_int_equal(dt_conv_out_w(&tasks[9]), 5);
}

int main(void)
{
    if (cudnnGetVersion() < 90800) {
        fprintf(stderr, "cuDNN before 9.8 cannot plan for a described device\n");
        return 77;
    }
    return run_all_tests(describe, forget);
}
