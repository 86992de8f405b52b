/* The models against torchvision: parameter counts, names and shapes, operations, initial values;
 * and every model through fusion and autodiff. */
#include <math.h>

#include "graph_check.h"

#include "dtrain/models.h"

static const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};

static const struct dt_detector_options detector = {
    .fpn_channels = 256, .trainable_layers = 5, .detect.anchors.base = 32};

static void add_phase(struct dt_graph *g, enum dt_phase phase, const struct dt_model *model,
                      int image_size, int batch, struct dt_model_options options)
{
    assert_int_equal(dt_graph_begin(g, phase, batch, image_size, image_size), DT_OK);
    if (model->detects)
        assert_int_equal(dt_graph_boxes(g, 3), DT_OK);
    int logits = model->build(g, dt_graph_ingest(g, mean, std), model, &options);
    if (!model->detects)
        dt_graph_softmax_xent(g, logits, 0);
    assert_ok(dt_graph_check(g));
    assert_int_equal(g->tensor[logits].dim[0], batch);
    assert_int_equal(g->tensor[logits].dim[1],
                     options.num_classes * (model->detects ? DT_CELL_ANCHORS : 1));
}

static struct dt_graph *build(const char *name, int image_size, int num_classes)
{
    const struct dt_model *model = dt_model_find(name);
    struct dt_model_options options = {
        .num_classes = num_classes, .dropout = 0.5, .detector = detector};
    struct dt_graph *g;
    assert_non_null(model);
    assert_int_equal(dt_graph_create(&g), DT_OK);
    add_phase(g, DT_TRAIN, model, image_size, 2, options);
    return g;
}

static void count_params(const struct dt_graph *g, size_t *n_elements, int *n_entries)
{
    *n_elements = 0;
    *n_entries = 0;
    for (int i = 0; i < g->n_tensors; i++) {
        const struct dt_tensor *t = &g->tensor[i];
        if (t->role == DT_PARAM)
            *n_elements += dt_tensor_elements(t);
        *n_entries += t->role == DT_PARAM || t->role == DT_STAT;
    }
}

/* torchvision's numbers; entries of its state_dict without num_batches_tracked. The CIFAR and tiny
 * counts are sums by hand. */
TEST(parameter_counts)
{
    static const struct {
        const char *name;
        int num_classes;
        size_t n_elements;
        int n_entries;
    } expected[] = {
        {"resnet18", 1000, 11689512, 102},
        {"resnet34", 1000, 21797672, 182},
        {"resnet50", 1000, 25557032, 267},
        {"resnet101", 1000, 44549160, 522},
        {"resnet152", 1000, 60192808, 777},
        {"vgg11", 1000, 132863336, 22},
        {"vgg13", 1000, 133047848, 26},
        {"vgg16", 1000, 138357544, 32},
        {"vgg19", 1000, 143667240, 38},
        {"vgg11_bn", 1000, 132868840, 54},
        {"vgg13_bn", 1000, 133053736, 66},
        {"vgg16_bn", 1000, 138365992, 84},
        {"vgg19_bn", 1000, 143678248, 102},
        {"alexnet", 1000, 61100840, 16},
        {"resnet20", 10, 272474, 107},
        {"tiny", 10, 24234, 8},
        {"resnext50_32x4d", 1000, 25028904, 267},
        {"resnext101_32x8d", 1000, 88791336, 522},
        {"resnext101_64x4d", 1000, 83455272, 522},
        {"wide_resnet50_2", 1000, 68883240, 267},
        {"wide_resnet101_2", 1000, 126886696, 522},
        {"mobilenet_v2", 1000, 3504872, 262},
        {"mobilenet_v3_small", 1000, 2542856, 210},
        {"mobilenet_v3_large", 1000, 5483032, 266},
        {"efficientnet_b0", 1000, 5288548, 311},
        {"efficientnet_b1", 1000, 7794184, 439},
        {"efficientnet_b2", 1000, 9109994, 439},
        {"efficientnet_b3", 1000, 12233232, 496},
        {"convnext_tiny", 1000, 28589128, 182},
        {"convnext_small", 1000, 50223688, 344},
        {"convnext_base", 1000, 88591464, 344},
        {"densenet121", 1000, 7978856, 606},
        {"densenet161", 1000, 28681000, 806},
        {"densenet169", 1000, 14149480, 846},
        {"densenet201", 1000, 20013928, 1006},
        {"squeezenet1_0", 1000, 1248424, 52},
        {"squeezenet1_1", 1000, 1235496, 52},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct dt_graph *g = build(expected[i].name, 224, expected[i].num_classes);
        size_t n_elements;
        int n_entries;
        count_params(g, &n_elements, &n_entries);
        if (n_elements != expected[i].n_elements || n_entries != expected[i].n_entries)
            fail_msg("%s: %zu parameters in %d entries", expected[i].name, n_elements, n_entries);
        dt_graph_destroy(g);
    }
}

/* Walks the parameters and statistics of a graph in order, comparing name and dims. */
struct walk {
    const struct dt_graph *g;
    int next, n;
};

static void expect(struct walk *w, const char *dims, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void expect(struct walk *w, const char *dims, const char *format, ...)
{
    char name[DT_NAME_MAX], text[48];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    while (w->next < w->g->n_tensors && w->g->tensor[w->next].role != DT_PARAM &&
           w->g->tensor[w->next].role != DT_STAT)
        w->next++;
    if (w->next == w->g->n_tensors)
        fail_msg("%s is missing", name);
    const struct dt_tensor *t = &w->g->tensor[w->next++];
    assert_string_equal(t->name, name);
    assert_string_equal(dt_tensor_format_dims(text, sizeof text, t), dims);
    w->n++;
}

static void expect_conv(struct walk *w, const char *name, int out, int in, int kernel, bool bias)
{
    char dims[48];
    snprintf(dims, sizeof dims, "%dx%dx%dx%d", out, in, kernel, kernel);
    expect(w, dims, "%s.weight", name);
    snprintf(dims, sizeof dims, "%d", out);
    if (bias)
        expect(w, dims, "%s.bias", name);
}

static void expect_linear(struct walk *w, const char *name, int out, int in)
{
    char dims[48];
    snprintf(dims, sizeof dims, "%dx%d", out, in);
    expect(w, dims, "%s.weight", name);
    snprintf(dims, sizeof dims, "%d", out);
    expect(w, dims, "%s.bias", name);
}

static void expect_bn(struct walk *w, const char *name, int channels)
{
    static const char *const entries[] = {"weight", "bias", "running_mean", "running_var"};
    char dims[48];
    snprintf(dims, sizeof dims, "%d", channels);
    for (int i = 0; i < 4; i++)
        expect(w, dims, "%s.%s", name, entries[i]);
}

/* torchvision's rules: layer<1..4>.<block>.conv<i> and bn<i>, downsample.0 and .1 where shapes
 * change. */
static void check_resnet_names(const char *model, const int n_blocks[4], bool bottleneck)
{
    struct dt_graph *g = build(model, 64, 1000);
    struct walk w = {.g = g};
    int in = 64, n_entries;
    size_t n_elements;
    char name[DT_NAME_MAX];
    expect_conv(&w, "conv1", 64, 3, 7, false);
    expect_bn(&w, "bn1", 64);
    for (int i = 0; i < 4; i++) {
        const int width = 64 << i, out = bottleneck ? 4 * width : width;
        for (int b = 0; b < n_blocks[i]; b++) {
            const int n_convs = bottleneck ? 3 : 2;
            int c = in;
            for (int k = 1; k <= n_convs; k++) {
                const int o = k == n_convs ? out : width;
                snprintf(name, sizeof name, "layer%d.%d.conv%d", i + 1, b, k);
                expect_conv(&w, name, o, c, bottleneck && k != 2 ? 1 : 3, false);
                snprintf(name, sizeof name, "layer%d.%d.bn%d", i + 1, b, k);
                expect_bn(&w, name, o);
                c = o;
            }
            if (b == 0 && (i > 0 || in != out)) {
                snprintf(name, sizeof name, "layer%d.0.downsample.0", i + 1);
                expect_conv(&w, name, out, in, 1, false);
                snprintf(name, sizeof name, "layer%d.0.downsample.1", i + 1);
                expect_bn(&w, name, out);
            }
            in = out;
        }
    }
    expect_linear(&w, "fc", 1000, in);
    count_params(g, &n_elements, &n_entries);
    assert_int_equal(w.n, n_entries);
    dt_graph_destroy(g);
}

TEST(resnet_names)
{
    check_resnet_names("resnet18", (const int[]){2, 2, 2, 2}, false);
    check_resnet_names("resnet50", (const int[]){3, 4, 6, 3}, true);
}

TEST(vgg11_bn_names)
{
    static const int index[] = {0, 4, 8, 11, 15, 18, 22, 25};
    static const int channels[] = {3, 64, 128, 256, 256, 512, 512, 512, 512};
    struct dt_graph *g = build("vgg11_bn", 224, 1000);
    struct walk w = {.g = g};
    char name[DT_NAME_MAX];
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "features.%d", index[i]);
        expect_conv(&w, name, channels[i + 1], channels[i], 3, true);
        snprintf(name, sizeof name, "features.%d", index[i] + 1);
        expect_bn(&w, name, channels[i + 1]);
    }
    expect_linear(&w, "classifier.0", 4096, 25088);
    expect_linear(&w, "classifier.3", 4096, 4096);
    expect_linear(&w, "classifier.6", 1000, 4096);
    assert_int_equal(w.n, 54);
    dt_graph_destroy(g);
}

TEST(alexnet_names)
{
    struct dt_graph *g = build("alexnet", 224, 1000);
    struct walk w = {.g = g};
    expect_conv(&w, "features.0", 64, 3, 11, true);
    expect_conv(&w, "features.3", 192, 64, 5, true);
    expect_conv(&w, "features.6", 384, 192, 3, true);
    expect_conv(&w, "features.8", 256, 384, 3, true);
    expect_conv(&w, "features.10", 256, 256, 3, true);
    expect_linear(&w, "classifier.1", 4096, 9216);
    expect_linear(&w, "classifier.4", 4096, 4096);
    expect_linear(&w, "classifier.6", 1000, 4096);
    assert_int_equal(w.n, 16);
    dt_graph_destroy(g);
}

TEST(resnet50_flops)
{
    struct dt_graph *g = build("resnet50", 224, 1000);
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    double forward = 0, backward = 0;
    double first = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        double flops = dt_node_flops(g, node) / dt_graph_program(g)->batch;
        if (node->op == DT_OP_CONV || node->op == DT_OP_LINEAR)
            forward += flops;
        if (node->op == DT_OP_CONV && first == 0)
            first = flops;
        if (node->op == DT_OP_CONV_BWD_DATA || node->op == DT_OP_CONV_BWD_WEIGHTS ||
            node->op == DT_OP_LINEAR_BWD_DATA || node->op == DT_OP_LINEAR_BWD_WEIGHTS)
            backward += flops;
    }
    assert_true(fabs(forward - 8.1784e9) < 0.0001e9);
    assert_true(backward == 2 * forward - first); /* the image needs no gradient */
    dt_graph_destroy(g);
}

/* As the CPU: no batch norm with residual. */
static bool no_residual(void *context, const struct dt_graph *g, const struct dt_node *node)
{
    (void)context;
    (void)g;
    return !node->residual;
}

static bool nothing(void *context, const struct dt_graph *g, const struct dt_node *node)
{
    (void)context;
    (void)g;
    (void)node;
    return false;
}

/* 16 blocks: 49 ReLUs, of which 33 follow a bn and 16 an add; 4 of the 53 bn feed an add only. */
TEST(resnet50_fused)
{
    struct dt_graph *g = build("resnet50", 224, 1000);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_CONV, -1, -1), 53);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_BN, 0, 0), 53);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_ACTIVATION, 1, 0), 49);
    assert_int_equal(dt_graph_fuse(g, NULL, NULL), DT_OK);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_CONV, 0, 0), 53);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_BN, 1, 0), 33);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_BN, 1, 1), 16);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_BN, 0, 0), 4);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_ADD, -1, -1), 0);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_ACTIVATION, -1, -1), 0);
    assert_int_equal(g->n_nodes, 53 + 53 + 5);
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_CONV_BWD_WEIGHTS, 0, 0), 53);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_CONV_BWD_DATA, 0, 0), 52);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_BN_BWD, 1, 1), 16);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_BN_BWD, 1, 0), 33);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_BN_BWD, 0, 0), 4);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_ACTIVATION_BWD, -1, -1), 0);
    /* bn_bwd takes the sums at the inputs of all 16 blocks but that of the max pooling. */
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_ADD, 0, -1), 1);
    dt_graph_destroy(g);
}

TEST(resnet50_fused_without_residual)
{
    struct dt_graph *g = build("resnet50", 224, 1000);
    assert_int_equal(dt_graph_fuse(g, no_residual, NULL), DT_OK);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_BN, 1, 0), 33);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_BN, 0, 0), 20);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_ADD, 1, 0), 16);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_ACTIVATION, -1, -1), 0);
    assert_int_equal(g->n_nodes, 53 + 53 + 16 + 5);
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_ACTIVATION_BWD, 1, 0), 16);
    /* Block inputs: 15 sums are folded into activation_bwd, the one after max_pool is an add. */
    assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_ADD, 0, 0), 1);
    int n_folded = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n_folded += g->node[i].op == DT_OP_ACTIVATION_BWD &&
                    g->node[i].src[DT_ACTIVATION_BWD_DIFF_DST2] >= 0;
    assert_int_equal(n_folded, 15);
    dt_graph_destroy(g);
}

/* Every model, smallest image, both phases, three ways to fuse. */
TEST(every_model_differentiates)
{
    dt_supports_fn *const ways[] = {NULL, no_residual, nothing};
    const struct dt_model *list;
    const size_t n_models = dt_model_list(&list);
    assert_true(n_models >= 20);
    for (size_t i = 0; i < 3 * n_models; i++) {
        const struct dt_model *model = &list[i / 3];
        const struct dt_model_options options = {
            .num_classes = 7, .dropout = 0.5, .detector = detector};
        const int n_rows = model->detects ? 7 * DT_CELL_ANCHORS : 7;
        struct dt_graph *g;
        assert_int_equal(dt_graph_create(&g), DT_OK);
        add_phase(g, DT_TRAIN, model, model->min_image_size, 3, options);
        const int n_tensors = g->n_tensors;
        add_phase(g, DT_EVAL, model, model->min_image_size, 2, options);
        for (int k = n_tensors; k < g->n_tensors; k++) {
            enum dt_role role = g->tensor[k].role;
            assert_true(role == DT_INPUT || role == DT_ACT || role == DT_OUTPUT);
        }
        assert_int_equal(dt_graph_fuse(g, ways[i % 3], NULL), DT_OK);
        assert_int_equal(dt_graph_differentiate(g), DT_OK);
        check_differentiated(g);
        int n_head = 0;
        for (int k = 0; k < g->n_tensors; k++) {
            const struct dt_tensor *t = &g->tensor[k];
            n_head += t->role == DT_PARAM &&
                      strncmp(t->name, model->head, strlen(model->head)) == 0 &&
                      t->dim[0] == n_rows;
        }
        assert_int_equal(n_head, 2);
        dt_graph_destroy(g);
    }
}

static void assert_init(const struct dt_graph *g, const char *name, enum dt_init_kind kind,
                        double value, bool decay)
{
    int id = dt_graph_find(g, name);
    assert_in_range(id, 0, g->n_tensors - 1);
    assert_int_equal(g->tensor[id].init.kind, kind);
    assert_true(fabs(g->tensor[id].init.value - value) < 1e-12);
    assert_int_equal(g->tensor[id].decay, decay);
}

TEST(initialisation)
{
    struct dt_graph *g = build("resnet50", 64, 10);
    assert_init(g, "conv1.weight", DT_INIT_NORMAL, sqrt(2.0 / (7 * 7 * 64)), true);
    assert_init(g, "layer2.0.conv3.weight", DT_INIT_NORMAL, sqrt(2.0 / 512), true);
    assert_init(g, "layer2.0.bn3.weight", DT_INIT_CONSTANT, 1, false);
    assert_init(g, "fc.weight", DT_INIT_UNIFORM, 1 / sqrt(2048), true);
    assert_init(g, "fc.bias", DT_INIT_UNIFORM, 1 / sqrt(2048), false);
    dt_graph_destroy(g);

    g = build("vgg11", 64, 10);
    assert_init(g, "features.3.weight", DT_INIT_NORMAL, sqrt(2.0 / (9 * 128)), true);
    assert_init(g, "features.3.bias", DT_INIT_CONSTANT, 0, false);
    assert_init(g, "classifier.6.weight", DT_INIT_NORMAL, 0.01, true);
    assert_init(g, "classifier.6.bias", DT_INIT_CONSTANT, 0, false);
    dt_graph_destroy(g);

    g = build("alexnet", 64, 10);
    assert_init(g, "features.3.weight", DT_INIT_UNIFORM, 1 / sqrt(64 * 25), true);
    assert_init(g, "features.3.bias", DT_INIT_UNIFORM, 1 / sqrt(64 * 25), false);
    assert_init(g, "classifier.1.weight", DT_INIT_UNIFORM, 1 / sqrt(9216), true);
    assert_init(g, "classifier.1.bias", DT_INIT_UNIFORM, 1 / sqrt(9216), false);
    dt_graph_destroy(g);

    g = build("densenet161", 64, 10);
    assert_init(g, "features.denseblock1.denselayer2.conv2.weight", DT_INIT_NORMAL,
                sqrt(2.0 / (192 * 9)), true);
    assert_init(g, "features.transition1.conv.weight", DT_INIT_NORMAL, sqrt(2.0 / 384), true);
    assert_init(g, "classifier.weight", DT_INIT_UNIFORM, 1 / sqrt(2208), true);
    assert_init(g, "classifier.bias", DT_INIT_CONSTANT, 0, false);
    dt_graph_destroy(g);

    g = build("squeezenet1_1", 64, 10);
    assert_init(g, "features.0.weight", DT_INIT_UNIFORM, sqrt(6.0 / 27), true);
    assert_init(g, "features.4.expand3x3.weight", DT_INIT_UNIFORM, sqrt(6.0 / (16 * 9)), true);
    assert_init(g, "classifier.1.weight", DT_INIT_NORMAL, 0.01, true);
    assert_init(g, "classifier.1.bias", DT_INIT_CONSTANT, 0, false);
    dt_graph_destroy(g);
}

TEST(zero_init_residual)
{
    static const struct {
        const char *name;
        int n_zero;
    } expected[] = {{"resnet50", 16}, {"resnet18", 8}, {"resnet20", 9}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct dt_model *model = dt_model_find(expected[i].name);
        struct dt_graph *g;
        int n_zero = 0;
        assert_int_equal(dt_graph_create(&g), DT_OK);
        add_phase(g, DT_TRAIN, model, 64, 1,
                  (struct dt_model_options){.num_classes = 10, .zero_init_residual = true});
        for (int k = 0; k < g->n_tensors; k++) {
            const struct dt_tensor *t = &g->tensor[k];
            if (t->role != DT_PARAM || t->n_dims != 1 || !strstr(t->name, ".weight"))
                continue;
            bool last = strstr(t->name, i == 0 ? ".bn3." : ".bn2.") != NULL;
            assert_true(t->init.value == (last ? 0.0 : 1.0));
            n_zero += last;
        }
        assert_int_equal(n_zero, expected[i].n_zero);
        dt_graph_destroy(g);
    }
}

/* Classifiers drop out in training only, and not with probability 0. */
TEST(dropout)
{
    static const struct {
        double p;
        int n_train;
    } expected[] = {{0.5, 2}, {0, 0}};
    for (size_t i = 0; i < 2; i++) {
        const struct dt_model *model = dt_model_find("alexnet");
        const struct dt_model_options options = {.num_classes = 10, .dropout = expected[i].p};
        struct dt_graph *g;
        assert_int_equal(dt_graph_create(&g), DT_OK);
        add_phase(g, DT_TRAIN, model, 64, 1, options);
        add_phase(g, DT_EVAL, model, 64, 1, options);
        assert_int_equal(count_nodes(g, DT_TRAIN, DT_OP_DROPOUT, -1, -1), expected[i].n_train);
        assert_int_equal(count_nodes(g, DT_EVAL, DT_OP_DROPOUT, -1, -1), 0);
        uint32_t stream[2] = {0, 1};
        for (int k = 0, n = 0; k < g->n_nodes; k++) {
            if (g->node[k].op == DT_OP_DROPOUT)
                stream[n++] = g->node[k].attr.dropout.stream;
        }
        assert_int_not_equal(stream[0], stream[1]);
        dt_graph_destroy(g);
    }
}

TEST(wrong_options)
{
    const struct dt_model *list;
    const size_t n_models = dt_model_list(&list);
    for (size_t i = 0; i < 2 * n_models; i++) {
        const struct dt_model *model = &list[i / 2];
        const bool small = i % 2 == 0;
        struct dt_model_options options = {.num_classes = small ? 10 : 0};
        struct dt_graph *g;
        assert_int_equal(dt_graph_create(&g), DT_OK);
        int size = model->min_image_size - (small ? 1 : 0);
        assert_int_equal(dt_graph_begin(g, DT_TRAIN, 1, size, size), DT_OK);
        assert_int_equal(model->build(g, dt_graph_ingest(g, mean, std), model, &options), -1);
        assert_error(dt_graph_check(g), DT_ERR_CONFIG, model->name);
        assert_non_null(strstr(dt_error_text(), small ? "model.image_size" : "model.num_classes"));
        dt_graph_destroy(g);
    }
}

TEST(densenet_size)
{
    const struct dt_model *model = dt_model_find("densenet121");
    const struct dt_model_options options = {.num_classes = 10};
    struct dt_graph *g;
    assert_int_equal(dt_graph_create(&g), DT_OK);
    assert_int_equal(dt_graph_begin(g, DT_TRAIN, 1, 80, 80), DT_OK);
    assert_int_equal(model->build(g, dt_graph_ingest(g, mean, std), model, &options), -1);
    assert_error(dt_graph_check(g), DT_ERR_CONFIG, "multiples of 32, not 80x80");
    dt_graph_destroy(g);
}

TEST(find)
{
    static const struct {
        const char *name, *nearest;
    } expected[] = {
        {"resnet5O", "\"resnet50\""},
        {"ResNet101", "\"resnet101\""},
        {"vgg16bn", "\"vgg16_bn\""},
        {"alex_net", "\"alexnet\""},
        {"", "the models are resnet18, resnet34,"},
        {"inception_v3", "vgg19_bn, alexnet, densenet121"},
        {"a-name-much-longer-than-any-model-has-or-ever-will-have", "the models are"},
    };
    assert_string_equal(dt_model_find("resnet50")->name, "resnet50");
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        dt_error_clear();
        assert_null(dt_model_find(expected[i].name));
        if (!strstr(dt_error_text(), expected[i].nearest))
            fail_msg("%s", dt_error_text());
    }
}

TEST_MAIN(NULL, NULL)
