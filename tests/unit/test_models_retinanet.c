/* RetinaNet's graph: names, shapes, sharing, initial values and what is trained, against
 * torchvision (parameter counts and entries are its own for 91 classes). */
#include <math.h>

#include "graph_check.h"

#include "dtrain/models.h"

static const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
static const struct dt_model_options v1 = {
    .num_classes = 91,
    .detector = {.fpn_channels = 256, .trainable_layers = 5, .detect.anchors.base = 32}};

static void add_program(struct dt_graph *g, enum dt_phase phase, const char *name, int height,
                        int width, const struct dt_model_options *options)
{
    const struct dt_model *model = dt_model_find(name);
    assert_int_equal(dt_graph_begin(g, phase, 2, height, width), DT_OK);
    assert_int_equal(dt_graph_boxes(g, 4), DT_OK);
    model->build(g, dt_graph_ingest(g, mean, std), model, options);
    assert_ok(dt_graph_check(g));
}

static struct dt_graph *build(const char *name, const struct dt_model_options *options)
{
    struct dt_graph *g;
    assert_int_equal(dt_graph_create(&g), DT_OK);
    add_program(g, DT_TRAIN, name, 64, 96, options);
    return g;
}

static void check_counts(const struct dt_graph *g, size_t n_elements, size_t n_trained,
                         int n_entries)
{
    size_t elements = 0, trained = 0;
    int entries = 0;
    for (int t = 0; t < g->n_tensors; t++) {
        const struct dt_tensor *tensor = &g->tensor[t];
        entries += tensor->role == DT_PARAM || tensor->role == DT_STAT;
        if (tensor->role == DT_PARAM)
            elements += dt_tensor_elements(tensor);
        if (tensor->role == DT_PARAM && !tensor->frozen)
            trained += dt_tensor_elements(tensor);
    }
    assert_int_equal(elements, n_elements);
    assert_int_equal(trained, n_trained);
    assert_int_equal(entries, n_entries);
}

static void check_plain_counts(const char *name, size_t n_elements, int n_entries)
{
    struct dt_graph *g = build(name, &v1);
    check_counts(g, n_elements, n_elements, n_entries);
    dt_graph_destroy(g);
}

/* Entries are without num_batches_tracked. At the end the published configurations: frozen norms
 * with three stages trained, and version 2. */
TEST(counts)
{
    struct dt_model_options options = v1;
    struct dt_graph *g;
    check_plain_counts("retinanet_resnet18_fpn", 21048471, 136);
    check_plain_counts("retinanet_resnet34_fpn", 31156631, 216);
    check_plain_counts("retinanet_resnet50_fpn", 34068119, 354 - 53);
    check_plain_counts("retinanet_resnet101_fpn", 53060247, 660 - 104);
    options.detector.frozen_norm = true;
    options.detector.trainable_layers = 3;
    g = build("retinanet_resnet50_fpn", &options);
    check_counts(g, 34014999, 33792599, 301);
    dt_graph_destroy(g);
    options = v1;
    options.detector.p6_from_c5 = options.detector.group_norm = true;
    g = build("retinanet_resnet50_fpn", &options);
    check_counts(g, 38198935, 38198935, 362 - 53);
    dt_graph_destroy(g);
}

static void expect(const struct dt_graph *g, const char *name, const char *dims,
                   enum dt_init_kind kind, double value)
{
    char text[48];
    int t = dt_graph_find(g, name);
    if (t < 0)
        fail_msg("no %s", name);
    assert_string_equal(dt_tensor_format_dims(text, sizeof text, &g->tensor[t]), dims);
    assert_int_equal(g->tensor[t].init.kind, kind);
    if (fabs(g->tensor[t].init.value - value) > 1e-12)
        fail_msg("%s starts from %g, not %g", name, g->tensor[t].init.value, value);
}

TEST(parameters)
{
    struct dt_graph *g = build("retinanet_resnet18_fpn", &v1);
    expect(g, "backbone.body.conv1.weight", "64x3x7x7", DT_INIT_NORMAL, sqrt(2.0 / (49 * 64)));
    expect(g, "backbone.body.layer4.1.bn2.running_var", "512", DT_INIT_CONSTANT, 1);
    expect(g, "backbone.fpn.inner_blocks.0.0.weight", "256x128x1x1", DT_INIT_UNIFORM,
           sqrt(3.0 / 128));
    expect(g, "backbone.fpn.inner_blocks.2.0.bias", "256", DT_INIT_CONSTANT, 0);
    expect(g, "backbone.fpn.layer_blocks.1.0.weight", "256x256x3x3", DT_INIT_UNIFORM,
           sqrt(3.0 / (9 * 256)));
    expect(g, "backbone.fpn.extra_blocks.p6.weight", "256x256x3x3", DT_INIT_UNIFORM,
           sqrt(3.0 / (9 * 256)));
    expect(g, "backbone.fpn.extra_blocks.p7.bias", "256", DT_INIT_CONSTANT, 0);
    expect(g, "head.classification_head.conv.3.0.weight", "256x256x3x3", DT_INIT_NORMAL, 0.01);
    expect(g, "head.classification_head.cls_logits.weight", "819x256x3x3", DT_INIT_NORMAL, 0.01);
    expect(g, "head.classification_head.cls_logits.bias", "819", DT_INIT_CONSTANT,
           -log((1 - 0.01) / 0.01));
    expect(g, "head.regression_head.conv.0.0.bias", "256", DT_INIT_CONSTANT, 0);
    expect(g, "head.regression_head.bbox_reg.weight", "36x256x3x3", DT_INIT_NORMAL, 0.01);
    assert_int_equal(dt_graph_find(g, "backbone.body.fc.weight"), -1);
    dt_graph_destroy(g);
}

TEST(version_2)
{
    struct dt_model_options options = v1;
    struct dt_graph *g;
    options.detector.p6_from_c5 = options.detector.group_norm = true;
    g = build("retinanet_resnet18_fpn", &options);
    expect(g, "backbone.fpn.extra_blocks.p6.weight", "256x512x3x3", DT_INIT_UNIFORM,
           sqrt(3.0 / (9 * 512)));
    expect(g, "head.regression_head.conv.2.1.weight", "256", DT_INIT_CONSTANT, 1);
    expect(g, "head.regression_head.conv.2.1.bias", "256", DT_INIT_CONSTANT, 0);
    assert_int_equal(dt_graph_find(g, "head.regression_head.conv.2.0.bias"), -1);
    dt_graph_destroy(g);
}

/* The last two levels of 800 x 1088 are not halves: 13 x 17 and 7 x 9, so their strides are 61 x 64
 * and 114 x 120. */
TEST(anchors)
{
    static const int height[] = {100, 50, 25, 13, 7}, width[] = {136, 68, 34, 17, 9};
    struct dt_graph *g;
    int n = 0;
    assert_int_equal(dt_graph_create(&g), DT_OK);
    add_program(g, DT_TRAIN, "retinanet_resnet18_fpn", 800, 1088, &v1);
    add_program(g, DT_EVAL, "retinanet_resnet18_fpn", 800, 1088, &v1);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        const struct dt_detect *d = &node->attr.detect;
        if (node->op != DT_OP_MATCH && node->op != DT_OP_FOCAL_LOSS && node->op != DT_OP_BOX_LOSS &&
            node->op != DT_OP_TOP_DETECTIONS)
            continue;
        n++;
        assert_int_equal(d->anchors.n_levels, 5);
        assert_int_equal(d->anchors.canvas_height, 800);
        assert_int_equal(d->anchors.canvas_width, 1088);
        assert_memory_equal(d->anchors.height, height, sizeof height);
        assert_memory_equal(d->anchors.width, width, sizeof width);
        assert_true(d->background == 0.4f && d->foreground == 0.5f && d->low_quality);
        if (node->op == DT_OP_FOCAL_LOSS || node->op == DT_OP_TOP_DETECTIONS) {
            assert_int_equal(g->tensor[node->src[0]].dim[1], 9 * 91);
            assert_int_equal(g->tensor[node->src[0]].dim[2], height[d->level]);
            assert_int_equal(g->tensor[node->src[0]].dim[3], width[d->level]);
        }
    }
    assert_int_equal(n, 1 + 5 + 5 + 5);
    dt_graph_destroy(g);
}

/* Every parameter of the heads is read once on each level, and its gradient is a sum of five. */
TEST(sharing)
{
    struct dt_graph *g = build("retinanet_resnet18_fpn", &v1);
    int n_shared = 0, n_sums = 0;
    for (int t = 0; t < g->n_tensors; t++) {
        int n_readers = 0;
        for (int i = 0; i < g->n_nodes; i++)
            for (int k = 0; k < g->node[i].n_src; k++)
                n_readers += g->node[i].src[k] == t;
        if (g->tensor[t].role == DT_PARAM)
            assert_int_equal(n_readers, strncmp(g->tensor[t].name, "head.", 5) == 0 ? 5 : 1);
        n_shared += g->tensor[t].role == DT_PARAM && n_readers == 5;
    }
    assert_int_equal(n_shared, 20);
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < i && dt_graph_is_within(g->node[i].name, "head"); k++)
            assert_string_not_equal(g->node[i].name, g->node[k].name);
    assert_int_equal(dt_graph_fuse(g, NULL, NULL), DT_OK);
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    check_differentiated(g);
    for (int i = 0; i < g->n_nodes; i++)
        if (g->node[i].op == DT_OP_SUM_GRADS) {
            assert_int_equal(g->node[i].n_src, 5);
            n_sums++;
        }
    assert_int_equal(n_sums, 20);
    dt_graph_destroy(g);
}

/* With layers 3 and 4 trained, nothing below layer3 is differentiated. */
TEST(trainable_layers)
{
    struct dt_model_options options = v1;
    struct dt_graph *g;
    options.detector.trainable_layers = 2;
    g = build("retinanet_resnet18_fpn", &options);
    for (int i = 0; i < g->n_nodes; i++) {
        bool is_below = dt_graph_is_within(g->node[i].name, "backbone.body.layer2");
        for (int k = 0; k < g->node[i].n_src; k++)
            if (is_below && g->tensor[g->node[i].src[k]].role == DT_PARAM)
                assert_true(g->tensor[g->node[i].src[k]].frozen);
        if (g->node[i].op == DT_OP_BN && is_below)
            assert_int_equal(g->node[i].n_dst, 1);
    }
    const int n_forward = g->n_nodes;
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    check_differentiated(g);
    for (int i = n_forward; i < g->n_nodes; i++)
        if (strncmp(g->node[i].name, "backbone.body.", 14) == 0)
            assert_true(strncmp(g->node[i].name, "backbone.body.layer3", 20) >= 0);
    dt_graph_destroy(g);
}

TEST(wrong_canvas)
{
    const struct dt_model *model = dt_model_find("retinanet_resnet18_fpn");
    struct dt_graph *g;
    assert_int_equal(dt_graph_create(&g), DT_OK);
    assert_int_equal(dt_graph_begin(g, DT_TRAIN, 1, 64, 80), DT_OK);
    assert_int_equal(dt_graph_boxes(g, 4), DT_OK);
    assert_int_equal(model->build(g, dt_graph_ingest(g, mean, std), model, &v1), -1);
    assert_error(dt_graph_check(g), DT_ERR_CONFIG, "multiples of 32, not 64x80");
    dt_graph_destroy(g);
}

TEST_MAIN(NULL, NULL)
