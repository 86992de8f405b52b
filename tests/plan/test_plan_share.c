/* Concatenations in the memory of others (dt_graph_share), on the CPU: the same bits in every value
 * that is left, and less memory. */
#include <string.h>

#include "../support/plan_net.h"
#include "base/mem.h"
#include "base/rng.h"
#include "test.h"

enum { BATCH = 3, SIZE = 12, N_LAYERS = 4, N_STEPS = 3 };
static const struct dt_backend *const backend = &dt_backend_cpu;

#define OK(call) assert_int_equal(call, DT_OK)

static int conv(struct dt_graph *g, int src, const char *name, int out_channels)
{
    const struct dt_conv_options options = {.out_channels = out_channels,
                                            .kernel = 3,
                                            .stride = 1,
                                            .pad = 1,
                                            .init = {DT_INIT_NORMAL, 0.1}};
    return dt_graph_conv(g, src, name, options);
}

/* Layers that each add `growth` channels. `reader`: of this concatenation a convolution reads, too;
 * 0 = none. */
static void add_program(struct dt_graph *g, enum dt_phase phase, int growth, int reader)
{
    static const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.3, 0.3, 0.3};
    const struct dt_init init = {DT_INIT_UNIFORM, 0.2};
    char name[3][DT_NAME_MAX];
    int extra = -1, part[2];
    OK(dt_graph_begin(g, phase, BATCH, SIZE, SIZE));
    part[0] = conv(g, dt_graph_ingest(g, mean, std), "conv0", 16);
    for (int i = 1; i <= N_LAYERS; i++) {
        snprintf(name[0], sizeof name[0], "norm%d", i);
        snprintf(name[1], sizeof name[1], "conv%d", i);
        snprintf(name[2], sizeof name[2], "concat%d", i);
        const int x = dt_graph_relu(g, dt_graph_bn(g, part[0], name[0], 1), "relu");
        part[1] = conv(g, x, name[1], growth);
        part[0] = dt_graph_concat(g, 2, part, name[2]);
        if (i == reader)
            extra = conv(g, part[0], "extra", 16);
    }
    int x = conv(g, dt_graph_bn(g, part[0], "last", 1), "reduce", 16);
    if (extra >= 0)
        x = dt_graph_add(g, x, extra, "add");
    x = dt_graph_avg_pool(g, x, "pool", 1);
    dt_graph_softmax_xent(g, dt_graph_linear(g, x, "fc", 10, init, init), 0);
    OK(dt_graph_check(g));
}

/* Returns the number of tensors that are part of others. */
static int open_net(struct net *net, enum dt_precision precision, int growth, int reader,
                    bool shares)
{
    const struct dt_device_options device = {
        .threads = 2, .n_ranks = 1, .precision = precision, .layout = DT_LAYOUT_BLOCKED};
    const struct dt_plan_options options = {.n_ranks = 1, .bucket_bytes = 1 << 20};
    int n_parts = 0;
    OK(backend->open(&net->dev, &device));
    OK(dt_graph_create(&net->g));
    add_program(net->g, DT_TRAIN, growth, reader);
    add_program(net->g, DT_EVAL, growth, reader);
    OK(dt_graph_fuse(net->g, NULL, NULL));
    OK(dt_graph_differentiate(net->g));
    if (shares)
        dt_graph_share(net->g);
    for (int t = 0; t < net->g->n_tensors; t++)
        n_parts += net->g->tensor[t].whole >= 0;
    OK(dt_plan_build(&net->plan, net->g, backend, net->dev, NULL, &options));
    OK(dt_plan_init_params(net->plan, 5));
    return n_parts;
}

static struct dt_counters run(struct net *net)
{
    static uint8_t pixels[3 * BATCH * SIZE * SIZE];
    const int32_t labels[BATCH] = {1, 2, 9};
    const struct dt_feed batch = {.pixels = pixels, .labels = labels};
    const struct dt_scalars scalars = {
        .lr = 0.1f, .diff_scale = 1.0f / BATCH, .optim.momentum = 0.9};
    struct dt_counters counters;
    struct dt_rng rng;
    dt_rng_init(&rng, 3, DT_RNG_SYNTHETIC, 0, 0);
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)dt_rng_below(&rng, 256);
    for (int step = 0; step < N_STEPS; step++) {
        OK(dt_plan_feed(net->plan, DT_TRAIN, &batch));
        OK(dt_plan_train(net->plan, DT_TRAIN, &scalars, 0, 1));
    }
    OK(dt_plan_feed(net->plan, DT_EVAL, &batch));
    OK(dt_plan_eval(net->plan, DT_EVAL));
    OK(backend->download(net->dev, &counters));
    return counters;
}

static void compare(enum dt_precision precision, int growth, int reader, int n_parts)
{
    struct net shared = {0}, copied = {0};
    assert_int_equal(open_net(&copied, precision, growth, reader, false), 0);
    assert_int_equal(open_net(&shared, precision, growth, reader, true), n_parts);
    if (n_parts > 0)
        assert_true(shared.plan->arena_bytes[DT_ARENA_WORK] <
                    copied.plan->arena_bytes[DT_ARENA_WORK]);
    const struct dt_counters a = run(&shared), b = run(&copied);
    assert_true(a.loss == b.loss && a.loss > 0);
    assert_true(difference(&shared, &copied, DT_PARAM, DT_ARENA_PARAMS) == 0);
    assert_true(difference(&shared, &copied, DT_PARAM, DT_ARENA_GRADS) == 0);
    assert_true(difference(&shared, &copied, DT_STAT, DT_ARENA_STATS) == 0);
    close_net(backend, &shared);
    close_net(backend, &copied);
}

/* Of four concatenations the first three, in both programs, and in training two gradients of each:
 * with and without that of the batch norm. */
TEST(chain)
{
    compare(DT_PRECISION_FP32, 16, 0, 3 + 3 + 2 * 3);
    compare(DT_PRECISION_BF16, 32, 0, 3 + 3 + 2 * 3);
}

/* The second is read by a convolution: it is itself, and its gradient is the sum of three. */
TEST(another_reader)
{
    compare(DT_PRECISION_FP32, 16, 2, 2 + 2 + 2 * 2);
    compare(DT_PRECISION_BF16, 16, 2, 2 + 2 + 2 * 2);
}

/* Parts that end within a block. */
TEST(odd_channels)
{
    compare(DT_PRECISION_FP32, 12, 0, 0);
}

TEST_MAIN(NULL, NULL)
