/* Nodes of a fusion that run together must train a network as they do one by one: whole plans, in
 * which tensors share memory, with one kind of fusion after the other and with all of them. */
#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cuda/fusion.h"
#include "need_gpu.h"
#include "plan_net.h"
#include "test.h"

#define OK(call) assert_string_equal((call) == DT_OK ? "" : dt_error_text(), "")

enum { N_CLASSES = 5, BATCH = 6, MAX_SIZE = 24, N_SEEDS = 3 };
#define BIT(kind) (1U << (kind))
#define ALL_KINDS (BIT(DT_N_FUSION_KINDS) - 1)
#define IN(NAME)  (1U << DT_PRECISION_##NAME)
#define ALL_TYPES (IN(FP32) | IN(BF16) | IN(FP16))

/* One row per kind. cuDNN documents operations around a convolution in fp16 only; which of them it
 * has in bf16 depends on its version and the GPU. */
static const struct {
    unsigned runs_in; /* precisions in which it runs together */
    unsigned needs;   /* kinds that it builds on */
} rows[DT_N_FUSION_KINDS] = {
    [DT_FUSION_BN_PAIR] = {ALL_TYPES, 0},
    [DT_FUSION_BN_PAIR_BWD] = {ALL_TYPES, 0},
    [DT_FUSION_BN_POOL] = {ALL_TYPES, 0},
    [DT_FUSION_CONV_BN] = {IN(FP16), 0},
    [DT_FUSION_CONV_BN_BWD] = {IN(FP16), 0},
    [DT_FUSION_CONV_ADD_BN_BWD] = {IN(FP16), 0},
    [DT_FUSION_BN_CONV] = {IN(FP16), BIT(DT_FUSION_CONV_BN) | BIT(DT_FUSION_CONV_BN_BWD)},
    [DT_FUSION_CONV_PAIR_BWD] = {IN(FP16), BIT(DT_FUSION_BN_PAIR_BWD)},
};

/* Relative rounding errors. */
static const double units[] = {
    [DT_PRECISION_FP32] = 1e-6, [DT_PRECISION_BF16] = 0x1p-8, [DT_PRECISION_FP16] = 0x1p-11};

struct trial {
    const char *what;
    unsigned kinds; /* that are offered */
    enum dt_precision precision;
    int seed, image_size, channels, n_passes, n_steps;
    const char *frozen; /* a module, NULL = none */
    bool records;
};

/* Of the kinds under test only. */
static unsigned offered;

static dt_status propose(struct dt_device *dev, const struct dt_fusion *fusion,
                         struct dt_exec *const *exec)
{
    return offered & BIT(fusion->kind) ? dt_backend_cuda.propose_fusion(dev, fusion, exec) : DT_OK;
}

static bool can_fuse(void *context, const struct dt_graph *g, const struct dt_node *node)
{
    return dt_backend_cuda.supports(context, g, node);
}

/* --- The network: a stem with pooling, two blocks with a projection, one without --- */

static int add_conv_bn(struct dt_graph *g, int src, const char *prefix, const char *what,
                       struct dt_conv_options options)
{
    char conv[DT_NAME_MAX], bn[DT_NAME_MAX];
    snprintf(conv, sizeof conv, "%s.conv%s", prefix, what);
    snprintf(bn, sizeof bn, "%s.bn%s", prefix, what);
    options.pad = options.kernel / 2;
    options.init = (struct dt_init){DT_INIT_NORMAL, 0.15};
    return dt_graph_bn(g, dt_graph_conv(g, src, conv, options), bn, 1);
}

/* The result of bn, after a ReLU that the caller names by its prefix. */
static int add_relu(struct dt_graph *g, int src, const char *prefix, const char *what)
{
    char name[DT_NAME_MAX];
    snprintf(name, sizeof name, "%s.relu%s", prefix, what);
    return dt_graph_relu(g, src, name);
}

static int add_block(struct dt_graph *g, int x, const char *prefix, int channels, int stride)
{
    const struct dt_conv_options first = {channels, .kernel = 1, .stride = 1};
    const struct dt_conv_options second = {channels, .kernel = 3, .stride = stride};
    const struct dt_conv_options third = {2 * channels, .kernel = 1, .stride = 1};
    const struct dt_conv_options projection = {2 * channels, .kernel = 1, .stride = stride};
    char sum[DT_NAME_MAX];
    snprintf(sum, sizeof sum, "%s.add", prefix);
    int y = add_relu(g, add_conv_bn(g, x, prefix, "1", first), prefix, "1");
    y = add_relu(g, add_conv_bn(g, y, prefix, "2", second), prefix, "2");
    y = add_conv_bn(g, y, prefix, "3", third);
    if (stride > 1)
        x = add_conv_bn(g, x, prefix, "4", projection);
    return add_relu(g, dt_graph_add(g, y, x, sum), prefix, "3");
}

static int add_network(struct dt_graph *g, const struct trial *t)
{
    static const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.3, 0.3, 0.3};
    const struct dt_conv_options stem = {t->channels, .kernel = 3, .stride = 1};
    const struct dt_init init = {DT_INIT_NORMAL, 0.1};
    int x = dt_graph_ingest(g, mean, std);
    x = add_relu(g, add_conv_bn(g, x, "stem", "", stem), "stem", "");
    x = dt_graph_max_pool(g, x, "maxpool", 3, 2, 1);
    x = add_block(g, x, "a", t->channels, 2);
    x = add_block(g, x, "b", t->channels, 1);
    x = add_block(g, x, "c", t->channels, 2);
    return dt_graph_linear(g, dt_graph_avg_pool(g, x, "pool", 1), "fc", N_CLASSES, init, init);
}

static struct dt_graph *make_graph(const struct trial *t, struct dt_device *dev, int bn_ranks)
{
    struct dt_graph *g = NULL;
    OK(dt_graph_create(&g));
    g->bn_ranks = bn_ranks;
    for (int phase = 0; phase < DT_N_PHASES; phase++) {
        OK(dt_graph_begin(g, (enum dt_phase)phase, BATCH, t->image_size, t->image_size));
        dt_graph_softmax_xent(g, add_network(g, t), 0);
    }
    OK(dt_graph_check(g));
    if (t->frozen)
        assert_true(dt_graph_freeze(g, t->frozen) > 0);
    OK(dt_graph_fuse(g, can_fuse, dev));
    OK(dt_graph_differentiate(g));
    OK(dt_graph_check(g));
    return g;
}

static void open_net(struct net *net, const struct trial *t, enum dt_fusion_mode fusion)
{
    static struct dt_backend backend;
    const struct dt_device_options device = {.threads = 1,
                                             .deterministic = true,
                                             .precision = t->precision,
                                             .loss_scale = 1,
                                             .timeout_s = 120,
                                             .n_ranks = 1,
                                             .fusion = fusion};
    const struct dt_plan_options options = {.n_ranks = 1,
                                            .bucket_bytes = 1 << 16,
                                            .last_bucket_bytes = 1 << 14,
                                            .accumulate = t->n_passes > 1,
                                            .record = t->records};
    backend = dt_backend_cuda;
    backend.propose_fusion = propose;
    offered = t->kinds;
    OK(backend.open(&net->dev, &device));
    net->g = make_graph(t, net->dev, 0);
    OK(dt_plan_build(&net->plan, net->g, &backend, net->dev, NULL, &options));
    assert_true(net->plan->arena_bytes[DT_ARENA_WORK] < bytes_without_sharing(net->plan));
    OK(dt_plan_init_params(net->plan, (uint64_t)t->seed));
}

/* Noise around a colour. */
static void draw(uint8_t *pixels, int32_t *labels, const struct trial *t, uint32_t pass)
{
    const int n_pixels = 3 * t->image_size * t->image_size;
    struct dt_rng rng;
    dt_rng_init(&rng, (uint64_t)t->seed, DT_RNG_SYNTHETIC, pass, 0);
    for (int image = 0; image < BATCH; image++) {
        const uint32_t colour = dt_rng_below(&rng, 100);
        for (int i = 0; i < n_pixels; i++)
            *pixels++ = (uint8_t)(colour + dt_rng_below(&rng, 156));
        labels[image] = (int32_t)dt_rng_below(&rng, N_CLASSES);
    }
}

/* The loss of a step, or after training (step == n_steps) that of an evaluation. */
static double run_step(struct net *net, const struct trial *t, int step)
{
    static uint8_t pixels[BATCH * MAX_SIZE * MAX_SIZE * 3];
    static int32_t labels[BATCH];
    const enum dt_phase phase = step < t->n_steps ? DT_TRAIN : DT_EVAL;
    const struct dt_feed feed = {.pixels = pixels, .labels = labels};
    const float gain = 1024; /* so that no gradient is too small for fp16 */
    const struct dt_scalars scalars = {.lr = 0.002F / gain,
                                       .diff_scale = gain / (float)(BATCH * t->n_passes),
                                       .optim.momentum = 0.9F};
    struct dt_counters counters;
    for (int pass = 0; pass < t->n_passes; pass++) {
        draw(pixels, labels, t, (uint32_t)(step * t->n_passes + pass));
        OK(dt_plan_feed(net->plan, phase, &feed));
        OK(phase == DT_TRAIN ? dt_plan_train(net->plan, DT_TRAIN, &scalars, pass, t->n_passes)
                             : dt_plan_eval(net->plan, DT_EVAL));
        OK(dt_plan_end_feed(net->plan));
    }
    OK(dt_backend_cuda.download(net->dev, &counters));
    assert_int_equal(counters.n_skipped, 0);
    return counters.loss;
}

/* --- Which fusions run together --- */

static void count_together(int n[DT_N_FUSION_KINDS], const struct net *net)
{
    for (int i = 0; i < net->g->n_nodes; i++)
        for (int kind = 0; kind < DT_N_FUSION_KINDS; kind++) {
            const bool is_first =
                dt_cuda_partner(net->plan->exec[i], (enum dt_fusion_kind)kind, 0, 1) != NULL;
            assert_true(!is_first || net->g->node[i].phase == DT_TRAIN);
            n[kind] += is_first;
        }
}

static void check_together(const struct net *net, const struct trial *t, enum dt_fusion_mode fusion)
{
    int n[DT_N_FUSION_KINDS] = {0};
    count_together(n, net);
    for (int kind = 0; kind < DT_N_FUSION_KINDS; kind++) {
        const bool is_on = fusion == DT_FUSION_ON && t->kinds & BIT(kind);
        if (is_on && !is_emulated() && t->precision == DT_PRECISION_BF16 &&
            rows[kind].runs_in == IN(FP16))
            continue;
        if ((n[kind] > 0) != (is_on && rows[kind].runs_in & 1U << t->precision))
            fail_msg("%s: %d fusions of %s run together", t->what, n[kind],
                     dt_fusion_name((enum dt_fusion_kind)kind));
    }
}

/* --- Comparison --- */

enum { LOSS, GRADIENTS, PARAMETERS, STATISTICS, N_RESULTS };
static const char *const result_names[N_RESULTS] = {"loss", "gradients", "parameters",
                                                    "statistics"};

/* The differences of two networks: of the losses and the first gradients, ... */
static void compare_step(double out[N_RESULTS], const struct net *net, const struct net *exact,
                         double loss, double exact_loss, int step)
{
    out[LOSS] = fmax(out[LOSS], fabs(loss / exact_loss - 1));
    if (step == 0)
        out[GRADIENTS] = difference(net, exact, DT_PARAM, DT_ARENA_GRADS);
}

/* ... and of what they have learned. */
static void compare_end(double out[N_RESULTS], const struct net *net, const struct net *exact)
{
    out[PARAMETERS] = difference(net, exact, DT_PARAM, DT_ARENA_PARAMS);
    out[STATISTICS] = difference(net, exact, DT_STAT, DT_ARENA_STATS);
}

/* Trains in fp32 apart, and in the trial's precision apart and together. */
static void train(const struct trial *t, double apart_error[N_RESULTS], double error[N_RESULTS])
{
    struct net exact, apart, together;
    struct trial in_fp32 = *t;
    in_fp32.precision = DT_PRECISION_FP32;
    open_net(&exact, &in_fp32, DT_FUSION_OFF);
    open_net(&apart, t, DT_FUSION_OFF);
    open_net(&together, t, DT_FUSION_ON);
    check_together(&apart, t, DT_FUSION_OFF);
    check_together(&together, t, DT_FUSION_ON);
    for (int step = 0; step <= t->n_steps; step++) {
        const double loss = run_step(&exact, t, step);
        compare_step(apart_error, &apart, &exact, run_step(&apart, t, step), loss, step);
        compare_step(error, &together, &exact, run_step(&together, t, step), loss, step);
    }
    compare_end(apart_error, &apart, &exact);
    compare_end(error, &together, &exact);
    assert_int_equal(together.plan->recording[DT_TRAIN][0] != NULL, t->records);
    close_net(&dt_backend_cuda, &exact);
    close_net(&dt_backend_cuda, &apart);
    close_net(&dt_backend_cuda, &together);
}

/* Losses and statistics agree within a few units of the type. Gradients add up rounding errors of
 * all layers, so in 16 bits their measure is what fp32 gives: together must not be further from it
 * than apart. */
static bool agrees(const struct trial *t, const double apart[N_RESULTS],
                   const double together[N_RESULTS])
{
    const double few_units = 10 * units[t->precision];
    bool agree = true;
    for (int i = 0; i < N_RESULTS; i++) {
        const bool is_gradient = i == GRADIENTS || i == PARAMETERS;
        const double bound = is_gradient ? 2 * apart[i] + 10 * units[DT_PRECISION_FP32] : few_units;
        print_message("%s %s, seed %d, %s: %.2g apart, %.2g together, at most %.2g\n", t->what,
                      dt_precision_name(t->precision), t->seed, result_names[i], apart[i],
                      together[i], bound);
        agree = agree && isfinite(bound) && together[i] <= bound;
    }
    return agree;
}

/* Rounding now and then takes a value of a ReLU to the other side of 0, which changes gradients;
 * one seed must do without. */
static void check(struct trial t)
{
    bool agree = false;
    for (t.seed = 1; t.seed <= N_SEEDS && !agree; t.seed++) {
        double apart[N_RESULTS] = {0}, together[N_RESULTS] = {0};
        train(&t, apart, together);
        agree = agrees(&t, apart, together);
    }
    assert_true(agree);
}

static void check_precisions(struct trial t)
{
    static const enum dt_precision precisions[] = {DT_PRECISION_FP32, DT_PRECISION_BF16,
                                                   DT_PRECISION_FP16};
    for (size_t i = 0; i < DT_COUNT(precisions); i++) {
        t.precision = precisions[i];
        check(t);
    }
}

TEST(kinds)
{
    for (int kind = 0; kind < DT_N_FUSION_KINDS; kind++)
        check_precisions((struct trial){.what = dt_fusion_name((enum dt_fusion_kind)kind),
                                        .kinds = rows[kind].needs | BIT(kind),
                                        .image_size = 24,
                                        .channels = 16,
                                        .n_passes = 1,
                                        .n_steps = 2});
}

TEST(all)
{
    static const struct trial trials[] = {
        {"all", ALL_KINDS, .image_size = 24, .channels = 16, .n_passes = 1, .n_steps = 2},
        {"odd sizes", ALL_KINDS, .image_size = 21, .channels = 12, .n_passes = 1, .n_steps = 2},
        {"frozen norm", ALL_KINDS, 0, 0, 16, 16, 1, 2, .frozen = "c.bn4"},
        {"frozen convolution", ALL_KINDS, 0, 0, 16, 16, 1, 2, .frozen = "a.conv2"},
        {"frozen stem", ALL_KINDS & ~BIT(DT_FUSION_BN_POOL), 0, 0, 16, 16, 1, 2, .frozen = "stem"},
        {"two passes", ALL_KINDS, .image_size = 16, .channels = 16, .n_passes = 2, .n_steps = 2},
        {"recorded", ALL_KINDS, 0, 0, 16, 16, 1, .n_steps = 6, .records = true},
    };
    check_precisions(trials[0]);
    for (size_t i = 1; i < DT_COUNT(trials); i++) {
        struct trial t = trials[i];
        t.precision = DT_PRECISION_FP16; /* which has all kinds */
        check(t);
    }
}

/* Other work comes between the halves of their nodes. */
TEST(synced)
{
    const struct trial t = {.image_size = 16, .channels = 16};
    struct dt_fusion *fusions = NULL;
    int n = -1;
    struct dt_graph *g = make_graph(&t, NULL, 2);
    OK(dt_graph_fusions(g, &fusions, &n));
    assert_int_equal(n, 0);
    free(fusions);
    dt_graph_destroy(g);
}

GPU_TEST_MAIN(NULL, NULL)
