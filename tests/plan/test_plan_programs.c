/* One set of parameters and one work arena for images of several sizes, on the CPU: a program
 * learns what a plan with this program alone would, and gradients are divided by what the program
 * counts. */
#include <string.h>

#include "../support/plan_net.h"
#include "base/mem.h"
#include "base/rng.h"
#include "dtrain/models.h"
#include "test.h"

enum { BATCH = 4, N_SIZES = 3, SEED = 5 };
static const int sizes[N_SIZES][2] = {{16, 16}, {16, 24}, {40, 16}};
static const struct dt_backend *const backend = &dt_backend_cpu;

#define OK(call) assert_int_equal(call, DT_OK)

static void add_program(struct dt_graph *g, enum dt_phase phase, const int size[2])
{
    static const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.3, 0.3, 0.3};
    const struct dt_model *model = dt_model_find("resnet20");
    const struct dt_model_options options = {.num_classes = 10};
    OK(dt_graph_begin(g, phase, BATCH, size[0], size[1]));
    const int image = dt_graph_ingest(g, mean, std);
    dt_graph_softmax_xent(g, model->build(g, image, model, &options), 0);
}

/* Training programs of sizes first .. end - 1, and one for evaluation. */
static void open_net(struct net *net, int first, int end, const char *divisor)
{
    const struct dt_device_options device = {.threads = 2, .n_ranks = 1};
    const struct dt_plan_options options = {.n_ranks = 1, .bucket_bytes = 1 << 20};
    OK(backend->open(&net->dev, &device));
    OK(dt_graph_create(&net->g));
    for (int i = first; i < end; i++)
        add_program(net->g, DT_TRAIN, sizes[i]);
    add_program(net->g, DT_EVAL, sizes[0]);
    if (divisor)
        net->g->program[DT_TRAIN].divisor = dt_graph_find(net->g, divisor);
    OK(dt_graph_fuse(net->g, NULL, NULL));
    OK(dt_graph_differentiate(net->g));
    OK(dt_plan_build(&net->plan, net->g, backend, net->dev, NULL, &options));
    OK(dt_plan_init_params(net->plan, SEED));
}

static void feed(struct net *net, int program)
{
    const struct dt_program *p = &net->g->program[program];
    const size_t n = (size_t)(3 * BATCH * p->height * p->width);
    struct dt_rng rng;
    uint8_t *pixels = malloc(n);
    const int32_t labels[BATCH] = {1, 2, 3, 9};
    const struct dt_feed batch = {.pixels = pixels, .labels = labels};
    assert_non_null(pixels);
    dt_rng_init(&rng, SEED, DT_RNG_SYNTHETIC, (uint32_t)p->height, (uint32_t)p->width);
    for (size_t i = 0; i < n; i++)
        pixels[i] = (uint8_t)dt_rng_below(&rng, 256);
    OK(dt_plan_feed(net->plan, program, &batch));
    free(pixels);
}

static void train(struct net *net, int program, int n_passes)
{
    const struct dt_scalars scalars = {
        .lr = 0.1f, .diff_scale = 1.0f / BATCH, .optim.momentum = 0.9};
    for (int pass = 0; pass < n_passes; pass++) {
        feed(net, program);
        OK(dt_plan_train(net->plan, program, &scalars, pass, n_passes));
    }
}

static int program_of(int size)
{
    return size == 0 ? DT_TRAIN : DT_N_PHASES + size - 1;
}

/* Its steps are those of a plan that has only this size, but for the order of sums, which depends
 * on the memory formats that the first program chose. */
TEST(each_program)
{
    for (int size = 0; size < N_SIZES; size++) {
        struct net all = {0}, alone = {0};
        struct dt_counters a, b;
        open_net(&all, 0, N_SIZES, NULL);
        open_net(&alone, size, size + 1, NULL);
        for (int step = 0; step < 2; step++) {
            train(&all, program_of(size), 1);
            train(&alone, DT_TRAIN, 1);
        }
        OK(backend->download(all.dev, &a));
        OK(backend->download(alone.dev, &b));
        assert_true(fabs(a.loss - b.loss) < 1e-5 * b.loss);
        assert_true(difference(&all, &alone, DT_PARAM, DT_ARENA_PARAMS) < 1e-5);
        assert_true(difference(&all, &alone, DT_STAT, DT_ARENA_STATS) < 1e-5);
        close_net(backend, &all);
        close_net(backend, &alone);
    }
}

/* Parameters exist once, and the programs use the same memory one after the other. */
TEST(memory)
{
    struct net all = {0};
    size_t largest = 0;
    open_net(&all, 0, N_SIZES, NULL);
    for (int size = 0; size < N_SIZES; size++) {
        struct net alone = {0};
        open_net(&alone, size, size + 1, NULL);
        const size_t *bytes = alone.plan->arena_bytes;
        assert_int_equal(bytes[DT_ARENA_PARAMS], all.plan->arena_bytes[DT_ARENA_PARAMS]);
        assert_int_equal(bytes[DT_ARENA_GRADS], all.plan->arena_bytes[DT_ARENA_GRADS]);
        largest = bytes[DT_ARENA_WORK] > largest ? bytes[DT_ARENA_WORK] : largest;
        close_net(backend, &alone);
    }
    /* Programs whose weights have other formats than they would choose alone need some scratch. */
    assert_true(all.plan->arena_bytes[DT_ARENA_WORK] < largest + largest / 8);
    close_net(backend, &all);
}

TEST(actions)
{
    struct net net = {0};
    struct dt_counters counters;
    open_net(&net, 0, N_SIZES, NULL);
    for (int p = 0; p < DT_MAX_PROGRAMS; p++) {
        int n_updates = 0;
        for (int i = 0; i < net.plan->n_actions[p]; i++) {
            const struct dt_action *action = &net.plan->actions[p][i];
            n_updates += action->kind == DT_ACTION_UPDATE;
            if (action->kind == DT_ACTION_OP)
                assert_int_equal(net.g->node[action->node].program, p);
        }
        bool trains = net.plan->n_actions[p] > 0 && net.g->program[p].phase == DT_TRAIN;
        assert_int_equal(n_updates, trains ? net.plan->n_buckets : 0);
        assert_int_equal(net.plan->n_actions[p] > 0, net.g->program[p].batch > 0);
    }
    feed(&net, DT_EVAL);
    OK(dt_plan_eval(net.plan, DT_EVAL));
    OK(backend->download(net.dev, &counters));
    assert_int_equal(counters.n, BATCH);
    close_net(backend, &net);
}

/* A batch norm's variances serve as counts: after the first step running_var says what they are. */
TEST(divisor)
{
    struct net plain = {0}, divided = {0};
    float variance[16], before[16 * 27], after[16 * 27], gradient[16 * 27];
    const double n = BATCH * 16.0 * 16.0;
    double sum = 0, moved = 0, expected = 0;
    open_net(&plain, 0, 1, NULL);
    open_net(&divided, 0, 1, "bn1.variance");
    const int weights = dt_graph_find(plain.g, "conv1.weight");
    OK(dt_plan_get(plain.plan, DT_ARENA_PARAMS, weights, before));
    train(&plain, DT_TRAIN, 1);
    train(&divided, DT_TRAIN, 1);
    OK(dt_plan_get(plain.plan, DT_ARENA_STATS, dt_graph_find(plain.g, "bn1.running_var"),
                   variance));
    for (int i = 0; i < 16; i++)
        sum += ((double)variance[i] - 0.9) / 0.1 * (n - 1) / n;
    assert_true(sum > 1.5);
    OK(dt_plan_get(plain.plan, DT_ARENA_GRADS, weights, gradient));
    OK(dt_plan_get(divided.plan, DT_ARENA_PARAMS, weights, after));
    for (int i = 0; i < 16 * 27; i++) {
        moved += pow((double)before[i] - (double)after[i], 2);
        expected += pow(0.1 * (double)gradient[i] / sum, 2);
    }
    assert_true(fabs(sqrt(moved / expected) - 1) < 1e-3);
    close_net(backend, &plain);
    close_net(backend, &divided);
}

TEST_MAIN(NULL, NULL)
