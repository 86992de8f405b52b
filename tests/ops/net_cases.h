/* Whole small networks: builder, fusion, differentiation, reference and backend together.
 *
 * Each network is built for both phases, fused as the backend supports it and once not at all,
 * differentiated, and run with memory of its own for every tensor and in place. The reference runs
 * it in fp64; its gradients are compared with central differences of its own loss (which checks the
 * gradient rules and the fusions), and the backend's values and gradients with the reference's. */
#ifndef DTRAIN_TESTS_NET_CASES_H
#define DTRAIN_TESTS_NET_CASES_H

#include "op_cases.h"

#define NET_BOUND        1e-4 /* backend against reference */
#define DIFFERENCE_BOUND 1e-5 /* reference against central differences */
#define DIFFERENCE_STEP  1e-6
#define NET_MARGIN       2e-5 /* no ReLU and no maximum may flip within a step or by rounding */

enum { NET_CLASSES = 7 };

struct net_case {
    const char *name;
    int (*build)(struct dt_graph *g, int src);
    int batch, image_size;
    double smoothing;
    bool mixed, weighted; /* labels and classes of the training phase */
    const char *frozen[3];
};

static int net_conv(struct dt_graph *g, int src, const char *name, int out_channels, int kernel,
                    int stride, bool bias)
{
    struct dt_conv_options options = {.out_channels = out_channels,
                                      .kernel = kernel,
                                      .stride = stride,
                                      .pad = kernel / 2,
                                      .bias = bias};
    return dt_graph_conv(g, src, name, options);
}

static int net_linear(struct dt_graph *g, int src, const char *name, int out_features)
{
    const struct dt_init init = {DT_INIT_CONSTANT, 0};
    return dt_graph_linear(g, src, name, out_features, init, init);
}

static int net_block(struct dt_graph *g, int src, const char *prefix, int channels, int stride)
{
    char name[6][DT_NAME_MAX];
    static const char *const suffix[6] = {"conv1", "bn1",          "conv2",
                                          "bn2",   "downsample.0", "downsample.1"};
    for (int i = 0; i < 6; i++)
        snprintf(name[i], sizeof name[i], "%s.%s", prefix, suffix[i]);
    char relu[2][DT_NAME_MAX], add[DT_NAME_MAX];
    snprintf(relu[0], sizeof relu[0], "%s.relu1", prefix);
    snprintf(relu[1], sizeof relu[1], "%s.relu2", prefix);
    snprintf(add, sizeof add, "%s.add", prefix);
    int identity = src;
    int x = net_conv(g, src, name[0], channels, 3, stride, false);
    x = dt_graph_relu(g, dt_graph_bn(g, x, name[1], 1), relu[0]);
    x = dt_graph_bn(g, net_conv(g, x, name[2], channels, 3, 1, false), name[3], 1);
    if (stride > 1) {
        identity = net_conv(g, src, name[4], channels, 1, stride, false);
        identity = dt_graph_bn(g, identity, name[5], 1);
    }
    return dt_graph_relu(g, dt_graph_add(g, x, identity, add), relu[1]);
}

/* As ResNet: stem, a block with identity, a block with downsampling. */
static int build_residual(struct dt_graph *g, int x)
{
    x = net_conv(g, x, "conv1", 16, 3, 1, false);
    x = dt_graph_relu(g, dt_graph_bn(g, x, "bn1", 1), "relu");
    x = dt_graph_max_pool(g, x, "maxpool", 3, 2, 1);
    x = net_block(g, x, "layer1.0", 16, 1);
    x = net_block(g, x, "layer2.0", 20, 2);
    return net_linear(g, dt_graph_avg_pool(g, x, "avgpool", 1), "fc", NET_CLASSES);
}

/* As VGG and AlexNet: bias, no norm, two linear layers, dropout that keeps everything. */
static int build_plain(struct dt_graph *g, int x)
{
    x = dt_graph_relu(g, net_conv(g, x, "features.0", 12, 5, 1, true), "features.1");
    x = dt_graph_max_pool(g, x, "features.2", 2, 2, 0);
    x = dt_graph_relu(g, net_conv(g, x, "features.3", 16, 3, 1, true), "features.4");
    x = dt_graph_max_pool(g, x, "features.5", 3, 2, 0);
    x = dt_graph_avg_pool(g, x, "avgpool", 4); /* from 2: windows overlap */
    x = dt_graph_dropout(g, x, "classifier.0", 0);
    x = dt_graph_relu(g, net_linear(g, x, "classifier.1", 24), "classifier.2");
    return net_linear(g, x, "classifier.3", NET_CLASSES);
}

/* Values with several readers, one of them twice: what lies between conv or bn and a ReLU is read
 * elsewhere too, so it must not be fused away; one ReLU has nothing before it to go into. */
static int build_branches(struct dt_graph *g, int x)
{
    int a_raw = net_conv(g, x, "a", 8, 3, 2, true);
    int a = dt_graph_add(g, dt_graph_relu(g, a_raw, "a_relu"), a_raw, "a_sum");
    int b = dt_graph_relu(g, net_conv(g, a, "b", 8, 3, 1, true), "b_relu");
    int sum = dt_graph_add(g, dt_graph_add(g, a, b, "a_b"), a, "a_b_a");
    int both = dt_graph_add(g, dt_graph_bn(g, sum, "norm", 1), sum, "norm_sum");
    both = dt_graph_relu(g, both, "both_relu");
    both = dt_graph_add(g, both, both, "twice");
    int tap = dt_graph_bn(g, both, "tap", 1);
    int tapped = dt_graph_relu(g, dt_graph_add(g, tap, sum, "tap_sum"), "tap_relu");
    both = dt_graph_add(g, tapped, tap, "tapped");
    int pooled = dt_graph_avg_pool(g, both, "pool", 3); /* from 5 */
    return net_linear(g, dt_graph_relu(g, pooled, "pool_relu"), "fc", NET_CLASSES);
}

/* Constants as norms: before a ReLU, in a block with a trained one, and before a sum. */
static int build_frozen_norms(struct dt_graph *g, int x)
{
    x = dt_graph_frozen_bn(g, net_conv(g, x, "conv1", 8, 3, 1, false), "bn1", 0);
    int identity = dt_graph_relu(g, x, "relu1");
    x = dt_graph_bn(g, net_conv(g, identity, "conv2", 8, 3, 1, false), "bn2", 1);
    x = net_conv(g, dt_graph_relu(g, x, "relu2"), "conv3", 8, 3, 1, false);
    x = dt_graph_add(g, dt_graph_frozen_bn(g, x, "bn3", 1e-5), identity, "add");
    x = dt_graph_avg_pool(g, dt_graph_relu(g, x, "relu3"), "avgpool", 1);
    return net_linear(g, x, "fc", NET_CLASSES);
}

/* A convolution with bias that is applied to two sizes, as a detector's heads are. */
static int shared_head(struct dt_graph *g, int src, const char *name, int channels)
{
    const struct dt_conv_options options = {.out_channels = channels,
                                            .kernel = 3,
                                            .stride = 1,
                                            .pad = 1,
                                            .bias = true,
                                            .module = "head"};
    return dt_graph_relu(g, dt_graph_conv(g, src, name, options), name);
}

static int build_shared(struct dt_graph *g, int x)
{
    const int channels = 16;
    x = dt_graph_relu(g, net_conv(g, x, "conv1", channels, 3, 1, true), "relu1");
    int half = dt_graph_max_pool(g, x, "down", 3, 2, 1);
    int large = dt_graph_avg_pool(g, shared_head(g, x, "head@1", channels), "pool1", 2);
    int small = dt_graph_avg_pool(g, shared_head(g, half, "head@2", channels), "pool2", 2);
    return net_linear(g, dt_graph_add(g, large, small, "add"), "fc", NET_CLASSES);
}

/* All convolutions but the first by Winograd: with bias and ReLU, before a norm, and in a block. Of
 * two images of 12x12, the threads share the tiles for 16 channels, the blocks of channels for 40.
 */
static int build_winograd(struct dt_graph *g, int x)
{
    x = dt_graph_relu(g, net_conv(g, x, "conv1", 16, 3, 1, true), "relu1");
    x = dt_graph_relu(g, net_conv(g, x, "conv2", 40, 3, 1, true), "relu2");
    x = dt_graph_relu(g, dt_graph_bn(g, net_conv(g, x, "conv3", 16, 3, 1, false), "bn3", 1),
                      "relu3");
    x = net_block(g, x, "layer1.0", 16, 1);
    return net_linear(g, dt_graph_avg_pool(g, x, "avgpool", 1), "fc", NET_CLASSES);
}

/* As a feature pyramid: the coarse level is read again after it was added to the fine one. With
 * group norms. */
static int build_pyramid(struct dt_graph *g, int x)
{
    int c2 = dt_graph_relu(g, net_conv(g, x, "c2", 8, 3, 1, true), "c2_relu");
    int c3 = dt_graph_relu(g, net_conv(g, c2, "c3", 12, 3, 2, true), "c3_relu");
    int p3 = net_conv(g, c3, "inner3", 10, 1, 1, true);
    int p2 = dt_graph_upsample_add(g, p3, net_conv(g, c2, "inner2", 10, 1, 1, true), "p2");
    p2 = dt_graph_group_norm(g, net_conv(g, p2, "layer2", 10, 3, 2, true), "norm2", NULL, 5);
    p3 = dt_graph_group_norm(g, net_conv(g, p3, "layer3", 10, 3, 1, true), "norm3", NULL, 1);
    p2 = dt_graph_relu(g, p2, "relu2");
    x = dt_graph_avg_pool(g, dt_graph_add(g, p2, p3, "both"), "avgpool", 1);
    return net_linear(g, x, "fc", NET_CLASSES);
}

static int grouped_conv(struct dt_graph *g, int src, const char *name, int out_channels, int stride,
                        int groups)
{
    const struct dt_conv_options options = {.out_channels = out_channels,
                                            .kernel = 3,
                                            .stride = stride,
                                            .pad = stride == 1 ? 2 : 1,
                                            .dilation = stride == 1 ? 2 : 1,
                                            .groups = groups};
    return dt_graph_conv(g, src, name, options);
}

/* Groups of one channel, and of several that share a block; the first is dilated. */
static int build_grouped(struct dt_graph *g, int x)
{
    x = dt_graph_relu(g, net_conv(g, x, "conv1", 24, 3, 1, true), "relu1");
    x = grouped_conv(g, x, "depthwise", 24, 1, 24);
    x = dt_graph_relu(g, dt_graph_bn(g, x, "bn2", 1), "relu2");
    x = dt_graph_bn(g, grouped_conv(g, x, "grouped", 32, 2, 4), "bn3", 1);
    x = dt_graph_avg_pool(g, dt_graph_relu(g, x, "relu3"), "avgpool", 1);
    return net_linear(g, x, "fc", NET_CLASSES);
}

/* Activations of a norm, of a convolution, of a value that is read again, and after a pool. */
static int build_activations(struct dt_graph *g, int x)
{
    x = dt_graph_bn(g, net_conv(g, x, "conv1", 12, 3, 1, false), "bn1", 1);
    x = dt_graph_activation(g, x, "relu6", DT_RELU6);
    x = dt_graph_bn(g, net_conv(g, x, "conv2", 12, 3, 1, false), "bn2", 1);
    int y = dt_graph_activation(g, x, "swish", DT_HARD_SWISH);
    x = dt_graph_activation(g, net_conv(g, y, "conv3", 12, 1, 1, true), "gelu", DT_GELU);
    x = dt_graph_add(g, dt_graph_activation(g, x, "tanh", DT_GELU_TANH), y, "add");
    x = dt_graph_activation(g, dt_graph_bn(g, x, "bn3", 1), "silu", DT_SILU);
    x = dt_graph_avg_pool(g, x, "avgpool", 2);
    x = dt_graph_add(g, dt_graph_activation(g, x, "sigmoid", DT_SIGMOID),
                     dt_graph_activation(g, x, "hard_sigmoid", DT_HARD_SIGMOID), "gates");
    return net_linear(g, x, "fc", NET_CLASSES);
}

/* Squeeze and excitation, whose gate reads a value twice, in a block with stochastic depth and
 * layer scale; a layer norm; a block with stochastic depth alone. */
static int build_gated(struct dt_graph *g, int x)
{
    x = net_conv(g, x, "conv1", 20, 3, 1, true);
    int branch = net_conv(g, x, "conv2", 20, 3, 1, true);
    int factor = dt_graph_avg_pool(g, branch, "squeeze", 1);
    factor = dt_graph_relu(g, net_conv(g, factor, "fc1", 6, 1, 1, true), "relu");
    branch = dt_graph_gate(g, branch, net_conv(g, factor, "fc2", 20, 1, 1, true), "gate");
    x = dt_graph_scaled_add(g, branch, x, "block1", 0.5, "block1", 0.3);
    x = dt_graph_layer_norm(g, x, "norm");
    branch = net_conv(g, x, "conv3", 20, 3, 1, false);
    x = dt_graph_scaled_add(g, branch, x, "block2", 0.4, NULL, 0);
    return net_linear(g, dt_graph_avg_pool(g, x, "avgpool", 1), "fc", NET_CLASSES);
}

/* As DenseNet: every layer reads all channels before it; then three parts at once. */
static int build_dense(struct dt_graph *g, int x)
{
    static const char *const names[3][4] = {{"bn1", "relu1", "conv1", "cat1"},
                                            {"bn2", "relu2", "conv2", "cat2"},
                                            {"bn3", "relu3", "conv3", "cat3"}};
    int part[3] = {net_conv(g, x, "conv0", 16, 3, 1, false), -1, -1};
    for (int i = 0; i < 3; i++) {
        x = dt_graph_relu(g, dt_graph_bn(g, part[0], names[i][0], 1), names[i][1]);
        part[1] = net_conv(g, x, names[i][2], 16, 3, 1, false);
        part[0] = dt_graph_concat(g, 2, part, names[i][3]);
    }
    x = dt_graph_relu(g, dt_graph_bn(g, part[0], "bn4", 1), "relu4");
    part[0] = net_conv(g, x, "branch1", 5, 3, 2, true);
    part[1] = net_conv(g, x, "branch2", 3, 1, 2, true);
    part[2] = part[0];
    x = dt_graph_relu(g, dt_graph_concat(g, 3, part, "cat4"), "relu5");
    return net_linear(g, dt_graph_avg_pool(g, x, "avgpool", 1), "fc", NET_CLASSES);
}

static const struct net_case net_list[] = {
    {"residual", build_residual, 4, 8, 0.1, false, false, {NULL}},
    {"plain", build_plain, 3, 11, 0, false, false, {NULL}},
    {"branches", build_branches, 5, 9, 0.05, false, false, {NULL}},
    {"plain, mixed labels", build_plain, 6, 11, 0.1, true, false, {NULL}},
    {"plain, class weights", build_plain, 3, 11, 0.1, false, true, {NULL}},
    {"residual, frozen stem", build_residual, 4, 8, 0.1, false, false, {"conv1", "bn1", "layer1"}},
    {"residual, frozen between", build_residual, 4, 8, 0, false, false, {"layer1.0.bn2", "layer2"}},
    {"plain, frozen between", build_plain, 3, 11, 0, false, false, {"features.3", "classifier.1"}},
    {"branches, frozen norms", build_branches, 5, 9, 0, false, false, {"norm", "tap"}},
    {"pyramid", build_pyramid, 3, 8, 0.1, false, false, {NULL}},
    {"pyramid, frozen top", build_pyramid, 3, 8, 0, false, false, {"c2", "c3", "inner3"}},
    {"shared", build_shared, 3, 9, 0.1, false, false, {NULL}},
    {"shared, frozen", build_shared, 3, 9, 0, false, false, {"head"}},
    {"pyramid, frozen norms", build_pyramid, 3, 8, 0, false, false, {"norm2", "norm3"}},
    {"norms of constants", build_frozen_norms, 4, 8, 0.1, false, false, {NULL}},
    {"grouped", build_grouped, 3, 8, 0.1, false, false, {NULL}},
    {"activations", build_activations, 3, 8, 0.1, false, false, {NULL}},
    {"activations, frozen norm", build_activations, 3, 8, 0, false, false, {"bn1"}},
    {"gated", build_gated, 6, 7, 0.1, false, false, {NULL}},
    {"gated, frozen", build_gated, 6, 7, 0, false, false, {"conv2", "fc1", "norm"}},
    {"gated, frozen stem", build_gated, 4, 7, 0, false, false, {"conv1", "conv2", "fc2"}},
    {"dense", build_dense, 3, 8, 0.1, false, false, {NULL}},
    {"dense, frozen", build_dense, 3, 8, 0, false, false, {"conv0", "bn1", "conv1"}},
    {"winograd", build_winograd, 2, 12, 0.1, false, false, {NULL}},
    {"winograd, frozen", build_winograd, 2, 12, 0, false, false, {"conv2", "bn3"}},
};

static bool is_winograd(const struct net_case *c)
{
    return c->build == build_winograd;
}

struct net_support {
    struct suite *suite;
    struct dt_device *dev; /* NULL: nothing is fused */
};

static bool net_supports(void *context, const struct dt_graph *g, const struct dt_node *node)
{
    const struct net_support *s = context;
    return s->dev && s->suite->backend->supports(s->dev, g, node);
}

static dt_status net_fuse(struct suite *suite, struct dt_graph *g, bool fuse)
{
    struct net_support support = {.suite = suite};
    if (fuse)
        DT_TRY(suite->backend->open(&support.dev, &suite->options));
    dt_status status = dt_graph_fuse(g, net_supports, &support);
    suite->backend->close(support.dev);
    DT_TRY(status);
    return DT_OK;
}

/* Every value is written before it is read, by exactly one node. */
static dt_status net_check_order(const struct dt_graph *g)
{
    bool *written;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(written, (size_t)g->n_tensors));
    for (int t = 0; t < g->n_tensors; t++) {
        enum dt_role role = g->tensor[t].role;
        written[t] = role == DT_INPUT || role == DT_PARAM || role == DT_STAT;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        for (int k = 0; k < node->n_src && status == DT_OK; k++)
            if (node->src[k] >= 0 && !written[node->src[k]])
                status = DT_ERROR(DT_ERR_INTERNAL, "%s reads %s before it is written", node->name,
                                  g->tensor[node->src[k]].name);
        for (int k = 0; k < node->n_dst && status == DT_OK; k++) {
            if (written[node->dst[k]])
                status = DT_ERROR(DT_ERR_INTERNAL, "%s writes %s a second time", node->name,
                                  g->tensor[node->dst[k]].name);
            written[node->dst[k]] = true;
        }
    }
    free(written);
    DT_TRY(status);
    return DT_OK;
}

static dt_status net_graph(struct suite *suite, struct dt_graph **g, const struct net_case *c,
                           bool fuse)
{
    const double mean[3] = {0.5, 0.4, 0.6}, std[3] = {0.2, 0.3, 0.25};
    DT_TRY(dt_graph_create(g));
    for (int phase = DT_TRAIN; phase <= DT_EVAL; phase++) {
        DT_TRY(dt_graph_begin(*g, phase, c->batch, c->image_size, c->image_size));
        if (c->mixed && phase == DT_TRAIN)
            DT_TRY(dt_graph_mix_labels(*g));
        if (c->weighted && phase == DT_TRAIN)
            DT_TRY(dt_graph_weigh_classes(*g, NET_CLASSES));
        int logits = c->build(*g, dt_graph_ingest(*g, mean, std));
        dt_graph_softmax_xent(*g, logits, c->smoothing);
    }
    DT_TRY(dt_graph_check(*g));
    for (size_t i = 0; i < DT_COUNT(c->frozen) && c->frozen[i]; i++)
        if (dt_graph_freeze(*g, c->frozen[i]) == 0)
            DT_FAIL(DT_ERR_INTERNAL, "%s has no module %s", c->name, c->frozen[i]);
    DT_TRY(net_fuse(suite, *g, fuse));
    DT_TRY(dt_graph_differentiate(*g));
    DT_TRY(dt_graph_check(*g));
    DT_TRY(net_check_order(*g));
    return DT_OK;
}

static void net_run_reference(struct ref *r, enum dt_phase phase, bool forward_only)
{
    r->counters = (struct dt_counters){0};
    for (int i = 0; i < r->g->n_nodes; i++) {
        const struct dt_node *node = &r->g->node[i];
        if (node->phase != phase)
            continue;
        ref_run(r, node);
        if (forward_only && node->op == DT_OP_SOFTMAX_XENT)
            return;
    }
}

/* Inputs and the training phase, with a seed that keeps everything away from the kinks. */
static dt_status net_reference(struct ref *input, struct ref *want)
{
    want->diff_scale = (double)case_scalars.diff_scale;
    for (uint64_t seed = 1; seed < 1000; seed++) {
        fill_inputs(input, seed, NET_CLASSES, F_IGNORE, DT_PRECISION_FP32);
        copy_inputs(want, input);
        want->margin = INFINITY;
        net_run_reference(want, DT_TRAIN, false);
        if (want->margin > NET_MARGIN && want->counters.n > 1)
            return DT_OK;
    }
    DT_FAIL(DT_ERR_INTERNAL, "no seed keeps all values away from 0");
}

static double net_loss(struct ref *r)
{
    net_run_reference(r, DT_TRAIN, true);
    return r->counters.loss * r->diff_scale;
}

/* Elements of one parameter: the one with the largest gradient and some more. */
static dt_status net_difference(struct ref *r, int param)
{
    enum { N_ELEMENTS = 2 };
    const struct dt_tensor *tensor = &r->g->tensor[param];
    size_t count = dt_tensor_elements(tensor), top = 0;
    double *value = r->value[param], *diff = r->value[tensor->diff];
    for (size_t i = 0; i < count; i++)
        top = fabs(diff[i]) > fabs(diff[top]) ? i : top;
    for (size_t j = 0; j < N_ELEMENTS; j++) {
        size_t i = j == 0 ? top : (j * 7919 + 1) % count;
        double saved = value[i];
        value[i] = saved + DIFFERENCE_STEP;
        double above = net_loss(r);
        value[i] = saved - DIFFERENCE_STEP;
        double below = net_loss(r);
        value[i] = saved;
        double difference = (above - below) / (2 * DIFFERENCE_STEP);
        if (!(fabs(difference - diff[i]) <= DIFFERENCE_BOUND * (1e-6 + fabs(diff[top]))))
            DT_FAIL(DT_ERR_NUMERICAL, "%s: element %zu is %.9g, central difference %.9g",
                    r->g->tensor[tensor->diff].name, i, diff[i], difference);
    }
    return DT_OK;
}

static dt_status net_differences(struct ref *r)
{
    int n_params = 0;
    for (int t = 0; t < r->g->n_tensors; t++) {
        if (r->g->tensor[t].role != DT_PARAM || r->g->tensor[t].frozen)
            continue;
        n_params++;
        DT_TRY(net_difference(r, t));
    }
    if (n_params == 0)
        DT_FAIL(DT_ERR_INTERNAL, "the network has no parameters");
    return DT_OK;
}

/* Of the gradients of all parameters: other roundings give another sum. */
static dt_status net_sum(struct rig *rig, double *sum)
{
    *sum = 0;
    for (int t = 0; t < rig->g->n_tensors; t++) {
        float *diff;
        if (rig->g->tensor[t].role != DT_DIFF_PARAM || !rig->address[t])
            continue;
        DT_TRY(rig_get(rig, t, &diff));
        for (size_t i = 0; i < dt_tensor_elements(&rig->g->tensor[t]); i++)
            *sum += (double)diff[i];
        free(diff);
    }
    return DT_OK;
}

static struct bound net_bound(const struct suite *suite, const struct rig *rig,
                              const struct dt_node *node, int t)
{
    (void)suite;
    (void)rig;
    (void)node;
    (void)t;
    return (struct bound){NET_BOUND, 0};
}

/* Both phases on the backend; evaluation uses the statistics that training has left. */
static dt_status net_run_backend(struct suite *suite, const struct dt_graph *g, int *alias,
                                 struct ref *input, struct ref *want, double *sum)
{
    struct rig rig;
    dt_status status = rig_open(&rig, suite->backend, &suite->options, g, alias);
    suite->bound = net_bound;
    if (status == DT_OK) {
        DT_TRY_OUT(set_inputs(&rig, input));
        copy_inputs(want, input);
        for (int phase = DT_TRAIN; phase <= DT_EVAL; phase++) {
            net_run_reference(want, phase, false);
            DT_TRY_OUT(rig_run(&rig, phase, &case_scalars));
            DT_TRY_OUT(compare_outputs(suite, &rig, phase, want));
            DT_TRY_OUT(check_counters(&rig, &want->counters));
        }
        DT_TRY_OUT(check_sources(&rig, input));
        DT_TRY_OUT(rig_check_guards(&rig));
        DT_TRY_OUT(net_sum(&rig, sum));
    }
out:
    suite->bound = case_bound;
    rig_close(&rig);
    return status;
}

static dt_status run_net(struct suite *suite, const struct net_case *c, bool fuse)
{
    struct dt_graph *g = NULL;
    struct ref input = {0}, want = {0};
    int *alias = NULL;
    double direct, sum;
    dt_status status;
    suite->n_runs++;
    suite->options.fusion = fuse ? DT_FUSION_ON : DT_FUSION_OFF;
    DT_TRY_OUT(net_graph(suite, &g, c, fuse));
    DT_TRY_OUT(ref_open(&input, g, 0));
    DT_TRY_OUT(ref_open(&want, g, 0));
    DT_TRY_OUT(net_reference(&input, &want));
    if (!is_winograd(c)) /* larger, but with the same rules */
        DT_TRY_OUT(net_differences(&want));
    DT_TRY_OUT(net_run_backend(suite, g, NULL, &input, &want, &direct));
    suite->options.winograd = is_winograd(c);
    if (is_winograd(c))
        DT_TRY_OUT(net_run_backend(suite, g, NULL, &input, &want, &sum));
    if (is_winograd(c) && has_winograd(suite) && sum == direct)
        DT_TRY_OUT(DT_ERROR(DT_ERR_INTERNAL, "Winograd was not used"));
    DT_TRY_OUT(DT_NEW(alias, (size_t)g->n_tensors));
    make_alias(g, alias, -1);
    suite->n_runs++;
    DT_TRY_OUT(net_run_backend(suite, g, alias, &input, &want, &sum));
out:
    suite->options.winograd = false;
    free(alias);
    ref_close(&input);
    ref_close(&want);
    dt_graph_destroy(g);
    return status;
}

static void test_networks(void **state)
{
    struct suite *suite = *state;
    int n_failed = 0;
    if (suite->options.precision != DT_PRECISION_FP32)
        return; /* errors of one op become inputs of the next: no bound per tensor */
    for (size_t i = 0; i < 2 * DT_COUNT(net_list); i++) {
        const struct net_case *c = &net_list[i / 2];
        if (is_winograd(c) && suite->backend != &dt_backend_cpu)
            continue;
        if (run_net(suite, c, i % 2 == 0) == DT_OK)
            continue;
        fprintf(stderr, "FAIL network %s, %s: %s\n    %s\n", c->name,
                i % 2 == 0 ? "fused" : "not fused", dt_error_text(), dt_error_trail());
        n_failed++;
    }
    suite->n_failed += n_failed;
    assert_int_equal(n_failed, 0);
}

#endif
