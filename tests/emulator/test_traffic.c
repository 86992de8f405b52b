/* The kernels and copies of a training step in fp16, and the bytes they move, of ResNet-50 at batch
 * 256 and of a RetinaNet at batch 16, which is evaluated as well: a lost fusion shows here. The
 * step is planned, bound and recorded as for a GPU, but not executed. The emulator names every
 * launch and the addresses among its arguments, and each tensor that one of them is the beginning
 * of counts once for that launch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/fusion.h"
#include "dtrain/plan.h"
#include "resnet50_graph.h"
#include "retinanet_graph.h"
#include "test.h"

#define OK(call) assert_string_equal((call) == DT_OK ? "" : dt_error_text(), "")

enum { MAX_KINDS = 64 };

void emu_watch(void (*watcher)(const char *what, const void *const *touched, int n));

/* --- Counting --- */

/* A kind of kernel, or of call of a library. */
static struct kind {
    char name[32];
    int n;
    double bytes;
} kinds[MAX_KINDS], *last;
static const struct dt_exec *running; /* the node, NULL = none */
static const struct dt_plan *built;

/* "bn_stats" from "bn_stats_kernel<T>"; for what has no such name, the op. */
static void name_kind(char *out, size_t bytes, const char *what)
{
    const char *end = strstr(what, "_kernel"), *begin = end;
    while (begin && begin > what && begin[-1] != ' ')
        begin--;
    if (end)
        snprintf(out, bytes, "%.*s", (int)(end - begin), begin);
    else
        snprintf(out, bytes, "%s", running ? dt_op_name(running->node->op) : what);
}

/* Losses of a detector read the matches of their level; these and detections read few of the
 * deltas. */
static double share_read(const struct dt_node *node, int src)
{
    const struct dt_anchors *a = &node->attr.detect.anchors;
    if ((node->op == DT_OP_BOX_LOSS && src == 0) || (node->op == DT_OP_TOP_DETECTIONS && src == 1))
        return 0;
    if ((node->op == DT_OP_BOX_LOSS || node->op == DT_OP_FOCAL_LOSS) && src == 1)
        return dt_anchors_of_level(a, node->attr.detect.level) /
               (double)dt_anchors_before(a, a->n_levels);
    return 1;
}

/* 0 if `tensor` (-1: any) of the node is not there. */
static double own_bytes_at(const struct dt_exec *exec, int tensor, const void *address)
{
    const struct dt_node *node = exec->node;
    for (int i = 0; i < node->n_src + node->n_dst; i++) {
        const int d = i - node->n_src, t = d < 0 ? node->src[i] : node->dst[d];
        const struct dt_cuda_format *f = d < 0 ? exec->src[i] : exec->dst[d];
        if (f && (d < 0 ? exec->src_data[i] : exec->dst_data[d]) == address && !f->unused &&
            (tensor < 0 || tensor == t))
            return (double)(f->elements * dt_dtype_bytes(f->type)) *
                   (d < 0 ? share_read(node, i) : 1);
    }
    return 0;
}

/* Of a tensor of the running node, or one that it touches; 0: scratch with partial sums. */
static double bytes_at(const void *address)
{
    int touched[DT_MAX_EXTRA_TENSORS];
    double bytes = running ? own_bytes_at(running, -1, address) : 0;
    for (int i = running ? dt_cuda_extra_tensors(running, touched) : 0; i > 0; i--)
        for (size_t slot = 0; slot < DT_COUNT(running->fusion); slot++) {
            const struct dt_cuda_fusion *fusion = running->fusion[slot];
            for (int k = 0; fusion && k < fusion->n_nodes && bytes == 0; k++)
                bytes = own_bytes_at(fusion->exec[k], touched[i - 1], address);
        }
    return bytes;
}

/* bias works in place; the totals of losses get tensors that they do not read; counting of
 * detections ends after the first pass. */
static int walks_of(const char *name)
{
    static const struct dt_exec *counted;
    const bool counts = strcmp(name, "count") == 0, again = counts && counted == running;
    if (counts)
        counted = running;
    return strcmp(name, "bias") == 0 ? 2 : !again && strstr(name, "_totals") == NULL;
}

static void watch(const char *what, const void *const *touched, int n)
{
    char name[sizeof last->name];
    name_kind(name, sizeof name, what);
    const int n_walks = walks_of(name);
    for (last = kinds; last->n > 0 && strcmp(last->name, name) != 0; last++)
        assert_true(last < kinds + MAX_KINDS - 1);
    snprintf(last->name, sizeof last->name, "%s", name);
    last->n++;
    for (int i = 0; i < n; i++)
        last->bytes += n_walks * bytes_at(touched[i]);
}

static struct kind total(void)
{
    struct kind all = {.name = "all"};
    for (const struct kind *k = kinds; k->n > 0; k++) {
        all.n += k->n;
        all.bytes += k->bytes;
    }
    return all;
}

/* --- The backend, with what it does outside of nodes counted, and without executing steps --- */

static struct dt_backend backend;
static double update_bytes; /* of checks and updates */

static dt_status run(struct dt_device *dev, struct dt_exec *exec)
{
    const double before = total().bytes;
    running = exec;
    dt_status status = dt_backend_cuda.run(dev, exec);
    running = NULL;
    /* What a profile would show; vectors may count more often here. */
    const double said = dt_plan_node_bytes(built, exec->node);
    const double counted = total().bytes - before;
    if (counted < said * 0.999 || counted > said * 1.001 + (1 << 18))
        fail_msg("%s %s: %.0f bytes, but a profile shows %.0f", dt_op_name(exec->node->op),
                 exec->node->name, counted, said);
    return status;
}

/* To the device, and from there to the tensor. */
static dt_status feed(struct dt_device *dev, void *dst, const void *src, size_t bytes)
{
    dt_status status = dt_backend_cuda.feed(dev, dst, src, bytes);
    last->bytes += 3 * (double)bytes;
    return status;
}

static dt_status check(struct dt_device *dev, const void *grads, enum dt_dtype type, size_t count,
                       double *norms)
{
    dt_status status = dt_backend_cuda.check(dev, grads, type, count, norms);
    const double bytes = (double)(count * dt_dtype_bytes(type));
    last->bytes += bytes;
    update_bytes += bytes;
    return status;
}

/* Parameters and momentum are read and written. */
static dt_status update(struct dt_device *dev, const struct dt_update *u)
{
    dt_status status = dt_backend_cuda.update(dev, u);
    const size_t each = 16 + dt_dtype_bytes(u->grads_type) + (u->shadow ? 2 : 0);
    for (int i = 0; i < u->n_segments; i++) {
        last->bytes += (double)(u->segments[i].count * each);
        update_bytes += (double)(u->segments[i].count * each);
    }
    return status;
}

static dt_status alloc(struct dt_device *dev, void **out, size_t bytes)
{
    (void)dev;
    return DT_CUDA("memory that stays untouched", cudaMalloc(out, bytes));
}

static dt_status replay(struct dt_device *dev, struct dt_recording *recording)
{
    (void)dev;
    (void)recording;
    return DT_OK;
}

/* --- The step --- */

static bool supports(void *context, const struct dt_graph *g, const struct dt_node *node)
{
    return backend.supports(context, g, node);
}

static void add_detector_with(struct dt_graph *g, const struct dt_model_options *options)
{
    add_retinanet(g, DT_TRAIN, 16, 800, 1088, "retinanet_resnet50_fpn", options);
}

static void add_detector(struct dt_graph *g)
{
    add_detector_with(g, &retinanet_options);
}

/* As torchvision trains its version 1 from a classifier. */
static void add_frozen(struct dt_graph *g)
{
    struct dt_model_options options = retinanet_options;
    options.detector.frozen_norm = true;
    options.detector.trainable_layers = 3;
    add_detector_with(g, &options);
}

/* Version 2. */
static void add_group_norm(struct dt_graph *g)
{
    struct dt_model_options options = retinanet_options;
    options.detector.group_norm = options.detector.p6_from_c5 = true;
    options.detector.detect.kind = DT_BOX_GIOU;
    add_detector_with(g, &options);
}

static void add_evaluation(struct dt_graph *g)
{
    add_retinanet(g, DT_EVAL, 16, 800, 1088, "retinanet_resnet50_fpn", &retinanet_options);
}

static void add_classifier(struct dt_graph *g)
{
    add_resnet50(g, DT_TRAIN, 256);
}

static struct dt_graph *make_graph(struct dt_device *dev, void (*add)(struct dt_graph *g))
{
    struct dt_graph *g = NULL;
    OK(dt_graph_create(&g));
    add(g);
    OK(dt_graph_check(g));
    OK(dt_graph_fuse(g, supports, dev));
    if (g->program[DT_TRAIN].batch > 0)
        OK(dt_graph_differentiate(g));
    return g;
}

/* The emulator records an evaluation as well, which dtrain does not. */
static void walk(struct dt_plan *plan, enum dt_phase phase)
{
    const struct dt_scalars scalars = {.lr = 0.1f, .diff_scale = 1};
    struct dt_recording *recording = NULL;
    if (phase == DT_TRAIN) {
        plan->n_warm[DT_TRAIN][0] = INT32_MAX; /* records the first step */
        OK(dt_plan_train(plan, DT_TRAIN, &scalars, 0, 1));
        assert_non_null(plan->recording[DT_TRAIN][0]);
        return;
    }
    OK(backend.record(plan->device));
    OK(dt_plan_eval(plan, DT_EVAL));
    OK(backend.end_record(plan->device, &recording));
    backend.release_recording(plan->device, recording);
}

static void record_step(struct dt_plan *plan, enum dt_phase phase)
{
    enum { MAX_BATCH = 256, MAX_BOXES = 100 };
    static const int32_t labels[MAX_BATCH * MAX_BOXES], sizes[2 * MAX_BATCH];
    static const float boxes[4 * MAX_BATCH * MAX_BOXES];
    uint8_t *pixels = calloc(plan->place[plan->graph->program[phase].pixels].bytes, 1);
    const struct dt_feed batch = {
        .pixels = pixels, .labels = labels, .boxes = boxes, .box_labels = labels, .sizes = sizes};
    assert_non_null(pixels);
    built = plan;
    emu_watch(watch);
    OK(dt_plan_feed(plan, phase, &batch));
    walk(plan, phase);
    emu_watch(NULL);
    OK(dt_plan_end_feed(plan));
    free(pixels);
}

static int most_first(const void *a, const void *b)
{
    double x = ((const struct kind *)a)->bytes, y = ((const struct kind *)b)->bytes;
    return (x < y) - (x > y);
}

static void print_kinds(int batch)
{
    const struct kind all = total();
    size_t n = 0;
    while (kinds[n].n > 0)
        n++;
    qsort(kinds, n, sizeof *kinds, most_first);
    kinds[n] = all;
    printf("%-20s %5s %12s\n", "kernel or call", "n", "MB per image");
    for (size_t i = 0; i <= n; i++)
        printf("%-20s %5d %12.2f\n", kinds[i].name, kinds[i].n, kinds[i].bytes / batch / 1e6);
    kinds[n].n = 0;
}

/* Bytes per image. */
static struct kind count_step(void (*add)(struct dt_graph *g), enum dt_fusion_mode fusion)
{
    const struct dt_device_options options = {.threads = 1,
                                              .deterministic = true, /* nothing is timed */
                                              .precision = DT_PRECISION_FP16,
                                              .timeout_s = 120,
                                              .fusion = fusion};
    const struct dt_plan_options plan_options = {
        .optim = DT_OPTIM_SGD, .n_ranks = 1, .record = true};
    struct dt_device *dev = NULL;
    struct dt_plan *plan = NULL;
    memset(kinds, 0, sizeof kinds);
    update_bytes = 0;
    backend = dt_backend_cuda;
    backend.alloc = alloc;
    backend.replay = replay;
    backend.run = run;
    backend.feed = feed;
    backend.check = check;
    backend.update = update;
    OK(backend.open(&dev, &options));
    struct dt_graph *g = make_graph(dev, add);
    const enum dt_phase phase = g->program[DT_TRAIN].batch > 0 ? DT_TRAIN : DT_EVAL;
    const int batch = g->program[phase].batch;
    OK(dt_plan_build(&plan, g, &backend, dev, NULL, &plan_options));
    record_step(plan, phase);
    print_kinds(batch);
    assert_true(phase == DT_EVAL || update_bytes == dt_plan_update_bytes(plan));
    dt_plan_destroy(plan);
    dt_graph_destroy(g);
    backend.close(dev);
    struct kind all = total();
    all.bytes /= batch;
    return all;
}

static void check_step(void (*add)(struct dt_graph *g), enum dt_fusion_mode fusion, int n,
                       double mb_per_image)
{
    const struct kind all = count_step(add, fusion);
    const double mb = all.bytes / 1e6;
    assert_int_equal(all.n, n);
    if (mb < mb_per_image - 0.1 || mb > mb_per_image + 0.1)
        fail_msg("%.2f MB per image instead of %.1f", mb, mb_per_image);
}

#define STEP_TEST(NAME, ...)     \
    TEST(NAME)                   \
    {                            \
        check_step(__VA_ARGS__); \
    }

STEP_TEST(apart, add_classifier, DT_FUSION_OFF, 394, 352.5)
/* What runs together if nothing is measured: our own kernels. */
STEP_TEST(default, add_classifier, DT_FUSION_AUTO, 380, 332.9)
STEP_TEST(together, add_classifier, DT_FUSION_ON, 289, 275.9)
STEP_TEST(detector_apart, add_detector, DT_FUSION_OFF, 836, 7642.4)
STEP_TEST(detector_together, add_detector, DT_FUSION_ON, 733, 6338.1)
STEP_TEST(detector_frozen, add_frozen, DT_FUSION_ON, 733, 5242.2)
STEP_TEST(detector_group_norm, add_group_norm, DT_FUSION_ON, 939, 6872.7)
STEP_TEST(detections, add_evaluation, DT_FUSION_ON, 270, 2339.5)

int main(void)
{
    setenv("DTRAIN_EMULATED_MEMORY_MB", "143771", 1); /* an H200's */
    return run_all_tests(NULL, NULL);
}
