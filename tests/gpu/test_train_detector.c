/* A detector must learn and detect on a GPU what it does on the CPU: two canvases take turns in one
 * plan, with steps that are recorded, the gradients divided by the foreground anchors, and in fp16
 * times a loss scale. */
#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "need_gpu.h"
#include "plan_net.h"
#include "retinanet_graph.h"
#include "test.h"

#define OK(call) assert_string_equal((call) == DT_OK ? "" : dt_error_text(), "")

enum { BATCH = 2, MAX_BOXES = 100, HEIGHT = 64, MAX_WIDTH = 96, N_CLASSES = 3 };
#define MIN_SCORE 0.0925
static const struct {
    enum dt_phase phase;
    int width;
} programs[] = {{DT_TRAIN, 64}, {DT_EVAL, 96}, {DT_TRAIN, 96}};

struct trial {
    const char *what;
    enum dt_precision precision;
    bool group_norm; /* and what else torchvision's version 2 has, with batch norm trained */
    bool global;     /* normaliser */
    int n_steps;     /* from 3 on they are recorded */
    double bound, gradient_bound; /* of relative differences; losses and detections; gradients */
};

/* --- The network --- */

static const struct dt_backend *running;

static bool can_fuse(void *context, const struct dt_graph *g, const struct dt_node *node)
{
    return running->supports(context, g, node);
}

/* Heads whose results differ from place to place, and scores that are not all small. */
static void widen_heads(struct dt_graph *g)
{
    for (int t = 0; t < g->n_tensors; t++) {
        struct dt_tensor *tensor = &g->tensor[t];
        if (tensor->role == DT_PARAM && dt_graph_is_within(tensor->name, "head"))
            tensor->init.value *= tensor->init.kind == DT_INIT_NORMAL ? 8 : 0.5;
    }
}

static struct dt_graph *make_graph(const struct trial *t, struct dt_device *dev)
{
    struct dt_model_options options = retinanet_options;
    struct dt_detector_options *d = &options.detector;
    struct dt_graph *g = NULL;
    options.num_classes = N_CLASSES;
    d->fpn_channels = t->group_norm ? 32 : 16;
    d->group_norm = d->p6_from_c5 = t->group_norm;
    d->frozen_norm = !t->group_norm;
    d->detect.kind = t->group_norm ? DT_BOX_GIOU : DT_BOX_L1;
    d->detect.global = t->global;
    d->detect.anchors.base = 16;
    d->detect.min_score = (float)MIN_SCORE;
    OK(dt_graph_create(&g));
    for (size_t i = 0; i < DT_COUNT(programs); i++)
        add_retinanet(g, programs[i].phase, BATCH, HEIGHT, programs[i].width,
                      "retinanet_resnet18_fpn", &options);
    widen_heads(g);
    OK(dt_graph_fuse(g, can_fuse, dev));
    OK(dt_graph_differentiate(g));
    OK(dt_graph_check(g));
    return g;
}

static void open_net(struct net *net, const struct trial *t, const struct dt_backend *backend)
{
    const struct dt_device_options device = {.threads = 1,
                                             .deterministic = true,
                                             .precision = t->precision,
                                             .loss_scale = 64, /* fp16 */
                                             .timeout_s = 120,
                                             .n_ranks = 1};
    const struct dt_plan_options options = {
        .n_ranks = 1, .bucket_bytes = 1 << 20, .last_bucket_bytes = 1 << 14, .record = true};
    running = backend;
    OK(backend->open(&net->dev, &device));
    net->g = make_graph(t, net->dev);
    OK(dt_plan_build(&net->plan, net->g, backend, net->dev, NULL, &options));
    OK(dt_plan_init_params(net->plan, 1));
}

/* --- Batches --- */

struct batch {
    uint8_t pixels[BATCH * HEIGHT * MAX_WIDTH * 3];
    float boxes[BATCH][MAX_BOXES][4];
    int32_t labels[BATCH][MAX_BOXES], sizes[BATCH][2];
};

static void draw_box(struct batch *b, int image, int slot, struct dt_rng *rng)
{
    float *box = b->boxes[image][slot];
    for (int k = 0; k < 2; k++) {
        const int side = b->sizes[image][1 - k];
        box[k] = (float)dt_rng_below(rng, (uint32_t)side / 2);
        box[k + 2] = box[k] + 8 + (float)dt_rng_below(rng, (uint32_t)side / 2 - 8);
    }
    b->labels[image][slot] = (int32_t)dt_rng_below(rng, N_CLASSES);
}

/* Noise; the second image is smaller than the canvas, and now and then without boxes. */
static void draw(struct batch *b, int step, int width)
{
    struct dt_rng rng;
    dt_rng_init(&rng, 1, DT_RNG_SYNTHETIC, (uint32_t)step, 0);
    for (size_t i = 0; i < sizeof b->pixels; i++)
        b->pixels[i] = (uint8_t)dt_rng_below(&rng, 256);
    for (int image = 0; image < BATCH; image++) {
        const int n_boxes = image == 0 ? 3 : step % 3;
        b->sizes[image][0] = HEIGHT - 16 * image;
        b->sizes[image][1] = width - 8 * image;
        for (int slot = 0; slot < MAX_BOXES; slot++)
            b->labels[image][slot] = -1;
        for (int i = 0; i < n_boxes; i++)
            draw_box(b, image, 7 * i, &rng);
    }
}

static void feed(struct net *net, int program, const struct batch *b)
{
    const struct dt_feed input = {.pixels = b->pixels,
                                  .boxes = b->boxes[0][0],
                                  .box_labels = b->labels[0],
                                  .sizes = b->sizes[0]};
    OK(dt_plan_feed(net->plan, program, &input));
}

/* --- Training --- */

/* The rate is so low that the networks stay alike. */
static struct dt_counters train(struct net *net, const struct trial *t, int program, int step)
{
    static struct batch b;
    const struct dt_scalars scalars = {
        .lr = 1e-6F, .diff_scale = t->global ? 1 : 1.0F / BATCH, .optim.momentum = 0.9F};
    struct dt_counters counters;
    draw(&b, step, programs[program].width);
    feed(net, program, &b);
    OK(dt_plan_train(net->plan, program, &scalars, 0, 1));
    OK(dt_plan_end_feed(net->plan));
    OK(net->plan->backend->download(net->dev, &counters));
    assert_int_equal(counters.n_skipped, 0);
    assert_int_equal(counters.n, BATCH);
    assert_int_equal(counters.n_finite, BATCH * DT_MAX_LEVELS);
    return counters;
}

static bool check(const struct trial *t, const char *what, int step, double difference,
                  double bound)
{
    print_message("%s %s, step %d, %s: %.2g, at most %.2g\n", t->what,
                  dt_precision_name(t->precision), step, what, difference, bound);
    return difference <= bound;
}

/* One walk of each program, then replays. What the optimizer got is in the momentum: gradients
 * divided by counts and loss scale. Rounding takes values of ReLU to the other side of 0. */
static bool train_both(struct net *gpu, struct net *cpu, const struct trial *t)
{
    bool agree = true;
    double momentum;
    gpu->plan->n_warm[0][0] = gpu->plan->n_warm[2][0] = 2;
    for (int step = 0; step < t->n_steps; step++) {
        const int program = step % 2 ? 2 : DT_TRAIN;
        const struct dt_counters a = train(gpu, t, program, step);
        const struct dt_counters b = train(cpu, t, program, step);
        assert_true(a.weight == b.weight && b.weight > 0);
        agree &= check(t, "loss", step, fabs(a.loss / b.loss - 1), t->bound);
        agree &= check(t, "box loss", step, fabs(a.box_loss / b.box_loss - 1), t->bound);
    }
    differences(&momentum, gpu, cpu, DT_PARAM, DT_ARENA_MOMENTUM);
    agree &= check(t, "momentum", t->n_steps, momentum, t->gradient_bound);
    return agree;
}

/* --- Detections --- */

struct rows {
    float (*row)[6];
    int32_t n[BATCH];
    int limit; /* of an image */
};

static struct rows read_rows(struct net *net, int level)
{
    const struct dt_program *p = &net->g->program[DT_EVAL];
    const struct dt_tensor *rows = &net->g->tensor[p->detections[level]];
    struct rows r = {.limit = rows->dim[1]};
    OK(DT_NEW(r.row, (size_t)(BATCH * r.limit)));
    OK(dt_plan_read(net->plan, p->detections[level], r.row));
    OK(dt_plan_read(net->plan, p->n_detections[level], r.n));
    return r;
}

/* The distance of a detection from the nearest one of the same class. */
static double distance(const float row[6], float (*others)[6], int n)
{
    double nearest = INFINITY;
    for (int i = 0; i < n; i++) {
        double far = 0;
        for (int k = 0; k < 5; k++)
            far = fmax(far, fabs((double)row[k] - (double)others[i][k]) / (k < 4 ? HEIGHT : 1));
        if (others[i][5] == row[5])
            nearest = fmin(nearest, far);
    }
    return nearest;
}

/* Scores are sorted, so that they differ by rounding only, and the CPU has the same boxes. What is
 * hardly better than what is left out may be left out on one side. */
static double compare_rows(const struct rows *a, const struct rows *b, int image, double bound)
{
    float(*x)[6] = a->row + image * a->limit, (*y)[6] = b->row + image * b->limit;
    const int n = a->n[image] < b->n[image] ? a->n[image] : b->n[image];
    double worst = 0;
    if (a->n[image] != b->n[image])
        worst = (double)(a->n[image] > n ? x : y)[n][4] - MIN_SCORE;
    for (int i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)x[i][4] - (double)y[i][4]));
        if ((double)x[i][4] > (double)x[n - 1][4] + 2 * bound)
            worst = fmax(worst, distance(x[i], y, b->n[image]));
    }
    return worst;
}

static bool detect_both(struct net *gpu, struct net *cpu, const struct trial *t)
{
    static struct batch b;
    double worst = 0;
    int n = 0;
    draw(&b, t->n_steps, programs[DT_EVAL].width);
    struct net *const nets[] = {gpu, cpu};
    for (size_t i = 0; i < DT_COUNT(nets); i++) {
        feed(nets[i], DT_EVAL, &b);
        OK(dt_plan_eval(nets[i]->plan, DT_EVAL));
        OK(dt_plan_end_feed(nets[i]->plan));
    }
    for (int level = 0; level < DT_MAX_LEVELS; level++) {
        struct rows x = read_rows(gpu, level), y = read_rows(cpu, level);
        for (int image = 0; image < BATCH; image++) {
            worst = fmax(worst, compare_rows(&x, &y, image, t->bound));
            n += x.n[image];
        }
        free(x.row);
        free(y.row);
    }
    assert_true(n > 0);
    return check(t, "detections", t->n_steps, worst, t->bound);
}

/* --- Trials --- */

static void run_trial(const struct trial *t)
{
    struct trial exact = *t;
    struct net gpu, cpu;
    exact.precision = DT_PRECISION_FP32;
    open_net(&gpu, t, &dt_backend_cuda);
    open_net(&cpu, &exact, &dt_backend_cpu);
    bool agree = train_both(&gpu, &cpu, t);
    agree &= detect_both(&gpu, &cpu, t);
    for (int program = 0; program < (int)DT_COUNT(programs); program++)
        assert_int_equal(gpu.plan->recording[program][0] != NULL,
                         t->n_steps > 2 && programs[program].phase == DT_TRAIN);
    close_net(&dt_backend_cuda, &gpu);
    close_net(&dt_backend_cpu, &cpu);
    assert_true(agree);
}

TEST(trials)
{
    static const struct trial trials[] = {
        {"version 1", DT_PRECISION_FP16, .global = true, .n_steps = 6, .bound = 5e-3,
         .gradient_bound = 0.2},
        {"version 2", DT_PRECISION_FP32, .group_norm = true, .n_steps = 2, .bound = 3e-4,
         .gradient_bound = 0.1},
    };
    for (size_t i = 0; i < DT_COUNT(trials); i++)
        run_trial(&trials[i]);
}

GPU_TEST_MAIN(NULL, NULL)
