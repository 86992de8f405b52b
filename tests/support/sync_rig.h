/* Batch norm over the ranks of a group: n ranks against one rank that has the images of a whole
 * group in each pass. Every rank trains both. */
#ifndef TEST_SYNC_RIG_H
#define TEST_SYNC_RIG_H

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "dist_rig.h"
#include "dtrain/models.h"
#include "plan_net.h"

enum { PER_RANK = 3, IMAGE_SIZE = 8, PIXELS = IMAGE_SIZE * IMAGE_SIZE * 3, N_CLASSES = 4 };
/* Rounding now and then takes a value of a ReLU to the other side of 0, which changes a gradient by
 * up to JUMP; most seeds must do without. Statistics of single ranks exceed it by far. */
enum { N_SEEDS = 5 };
static const double JUMP = 0.05;
static const struct dt_backend *const backend;
static const struct dt_comm_options plane;
static const enum dt_precision precision;

struct trial {
    int seed, group, n_passes, n_steps;
    const char *model; /* NULL: `small` below */
    double tolerance;
};

static bool can_fuse(void *context, const struct dt_graph *g, const struct dt_node *node)
{
    return backend->supports(context, g, node);
}

static int conv_bn(struct dt_graph *g, int src, const char *name, int channels, int stride)
{
    char bn[DT_NAME_MAX];
    snprintf(bn, sizeof bn, "%s.bn", name);
    const struct dt_conv_options options = {.out_channels = channels,
                                            .kernel = 3,
                                            .stride = stride,
                                            .pad = 1,
                                            .init = {DT_INIT_NORMAL, 0.2}};
    return dt_graph_bn(g, dt_graph_conv(g, src, name, options), bn, 1);
}

/* Batch norm plain, with ReLU, and with addition and ReLU. */
static int small(struct dt_graph *g, int src)
{
    int x = dt_graph_relu(g, conv_bn(g, src, "a", 8, 1), "a.relu");
    int y = conv_bn(g, x, "c", 20, 2);
    x = dt_graph_relu(g, dt_graph_add(g, conv_bn(g, x, "b", 20, 2), y, "add"), "b.relu");
    const struct dt_init init = {DT_INIT_NORMAL, 0.1};
    return dt_graph_linear(g, dt_graph_avg_pool(g, x, "pool", 1), "fc", N_CLASSES, init, init);
}

static void build_graph(struct net *net, const char *name, int batch, int group)
{
    static const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.3, 0.3, 0.3};
    const struct dt_model *model = name ? dt_model_find(name) : NULL;
    const struct dt_model_options options = {.num_classes = N_CLASSES};
    assert_ok(dt_graph_create(&net->g));
    net->g->bn_ranks = group;
    assert_ok(dt_graph_begin(net->g, DT_TRAIN, batch, IMAGE_SIZE, IMAGE_SIZE));
    int src = dt_graph_ingest(net->g, mean, std);
    int logits = model ? model->build(net->g, src, model, &options) : small(net->g, src);
    dt_graph_softmax_xent(net->g, logits, 0);
    assert_ok(dt_graph_fuse(net->g, can_fuse, net->dev));
    assert_ok(dt_graph_differentiate(net->g));
}

/* With a group it takes part in the sums of all ranks, otherwise it is on its own. */
static void open_net(struct net *net, const struct trial *t, int batch, int group, int n_passes)
{
    const int n_ranks = group > 0 ? n : 1;
    const struct dt_device_options device = {.threads = 1,
                                             .deterministic = true,
                                             .precision = precision,
                                             .rank = n_ranks > 1 ? rank : 0,
                                             .local_rank = rank,
                                             .n_ranks = n_ranks};
    struct dt_plan_options options = {.bucket_bytes = 1 << 18,
                                      .last_bucket_bytes = 1 << 16,
                                      .n_ranks = n_ranks,
                                      .comm = plane,
                                      .accumulate = n_passes > 1,
                                      .record = true};
    options.comm.exchange_ranks = group;
    assert_ok(backend->open(&net->dev, &device));
    build_graph(net, t->model, batch, group);
    const size_t free_bytes = backend->free_bytes(net->dev);
    assert_ok(
        dt_plan_build(&net->plan, net->g, backend, net->dev, n_ranks > 1 ? comm : NULL, &options));
    net->allocated = free_bytes - backend->free_bytes(net->dev);
    assert_ok(dt_plan_init_params(net->plan, (uint64_t)t->seed));
}

/* Image `image` of a step: noise around a colour, so that the ranks' statistics differ. */
static void draw(uint8_t *pixels, int32_t *label, int seed, int step, int image)
{
    struct dt_rng rng;
    dt_rng_init(&rng, (uint64_t)seed, DT_RNG_SYNTHETIC, (uint32_t)step, (uint32_t)image);
    int base = (int)dt_rng_below(&rng, 200);
    for (int i = 0; i < PIXELS; i++)
        pixels[i] = (uint8_t)(base + (int)dt_rng_below(&rng, 56));
    *label = (int32_t)dt_rng_below(&rng, N_CLASSES);
}

/* Trains with images first .. first + batch - 1 of the step in the first pass, and so on. */
static double train(struct net *net, const struct trial *t, int step, int first, int batch,
                    int stride, int n_passes)
{
    uint8_t *pixels = malloc((size_t)batch * PIXELS);
    int32_t *labels = malloc((size_t)batch * sizeof *labels);
    struct dt_scalars scalars = {.lr = 0.05F, .diff_scale = 1.0F / (float)(batch * n_passes)};
    struct dt_counters counters;
    scalars.optim.momentum = 0.9F;
    scalars.diff_scale /= (float)net->plan->options.n_ranks;
    for (int pass = 0; pass < n_passes; pass++) {
        for (int i = 0; i < batch; i++)
            draw(pixels + (size_t)i * PIXELS, labels + i, t->seed, step, first + pass * stride + i);
        const struct dt_feed feed = {.pixels = pixels, .labels = labels};
        assert_ok(dt_plan_feed(net->plan, DT_TRAIN, &feed));
        assert_ok(dt_plan_train(net->plan, DT_TRAIN, &scalars, pass, n_passes));
        assert_ok(dt_plan_end_feed(net->plan));
    }
    assert_ok(backend->download(net->dev, &counters));
    if (net->plan->options.n_ranks > 1)
        assert_ok(dt_comm_sum_f64(comm, &counters.loss, 1));
    free(pixels);
    free(labels);
    return counters.loss;
}

static int count_syncs(const struct net *net)
{
    int n_syncs = 0;
    for (int i = 0; i < net->plan->n_actions[DT_TRAIN]; i++)
        n_syncs += net->plan->actions[DT_TRAIN][i].kind == DT_ACTION_SYNC;
    return n_syncs;
}

/* n ranks in groups with n_passes each, and one rank with a pass for each group and pass: the
 * largest difference of the gradients of the first step, of the losses, of the statistics. */
static double differ(const struct trial *t)
{
    struct net many, one;
    const int n_groups = n / t->group, whole = t->group * PER_RANK;
    const int n_passes = n_groups * t->n_passes;
    double worst = 0;
    open_net(&many, t, PER_RANK, t->group, t->n_passes);
    open_net(&one, t, whole, 0, n_passes);
    assert_int_equal(count_syncs(&one), 0);
    assert_true((count_syncs(&many) > 0) == (t->group > 1));
    for (int step = 0; step < t->n_steps; step++) {
        /* Pass p of group k has images (p * n_groups + k) * whole and so on. */
        double a = train(&many, t, step, rank * PER_RANK, PER_RANK, n * PER_RANK, t->n_passes);
        double b = train(&one, t, step, 0, whole, whole, n_passes);
        if (step == 0)
            worst = difference(&many, &one, DT_PARAM, DT_ARENA_GRADS);
        worst = fmax(worst, fabs(a / b - 1));
    }
    if (n_groups == 1)
        worst = fmax(worst, difference(&many, &one, DT_STAT, DT_ARENA_STATS));
    close_net(backend, &many);
    close_net(backend, &one);
    assert_ok(dt_comm_max_f64(comm, &worst, 1));
    return worst;
}

static void check(struct trial t)
{
    int n_agree = 0;
    for (t.seed = 1; t.seed <= N_SEEDS; t.seed++) {
        const double worst = differ(&t);
        if (rank == 0)
            print_message("%s, groups of %d, %d passes, %d steps, seed %d: %.2g\n",
                          t.model ? t.model : "small", t.group, t.n_passes, t.n_steps, t.seed,
                          worst);
        assert_true(worst <= JUMP);
        n_agree += worst <= t.tolerance;
    }
    assert_true(2 * n_agree > N_SEEDS);
}

/* What a plan says that it allocates, before it does, is what the device has less afterwards. */
static void check_memory(void)
{
    const struct trial t = {.model = "resnet20"};
    for (int n_passes = 1; n_passes <= 2; n_passes++) {
        struct net net;
        open_net(&net, &t, PER_RANK, n, n_passes);
        const size_t bytes = dt_plan_bytes(net.plan);
        const size_t shared = net.plan->sums.own ? net.plan->sums.own_bytes : 0;
        assert_in_range(net.allocated + shared, bytes,
                        bytes + 4096 + 2048 * (size_t)backend->n_feed_blocks);
        close_net(backend, &net);
    }
}

#endif
