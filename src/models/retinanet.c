/* RetinaNet (Lin et al. 2017, "Focal Loss for Dense Object Detection") as torchvision builds it,
 * with its names and initial values: ResNet, feature pyramid (Lin et al. 2016) with levels 3 to 7,
 * and two heads that all levels share. */
#include <math.h>
#include <stdio.h>

#include "models/layers.h"

enum { CANVAS_MULTIPLE = 32, FIRST_LEVEL = 3, HEAD_CONVS = 4, GROUPS = 32, N_LAYERS = 5 };

#define BODY "backbone.body."
#define FPN  "backbone.fpn."

static const struct dt_init head_init = {DT_INIT_NORMAL, 0.01};

static int pyramid_conv(struct dt_graph *g, int src, const char *name, int out_channels, int kernel,
                        int stride)
{
    if (g->status != DT_OK)
        return -1;
    const struct dt_conv_options options = {
        .out_channels = out_channels,
        .kernel = kernel,
        .stride = stride,
        .pad = kernel / 2,
        .bias = true,
        /* Kaiming uniform with a = 1: within +- sqrt(3 / fan_in). */
        .init = {DT_INIT_UNIFORM, sqrt(3.0 / (g->tensor[src].dim[1] * kernel * kernel))},
    };
    return dt_graph_conv(g, src, name, options);
}

static void pyramid(struct dt_graph *g, const int *stage, const struct dt_detector_options *options,
                    int level[DT_MAX_LEVELS])
{
    const int channels = options->fpn_channels;
    /* Levels 3 to 5 from the stages of the same size. */
    char name[DT_NAME_MAX];
    for (int i = 2, above = -1; i >= 0; i--) {
        snprintf(name, sizeof name, FPN "inner_blocks.%d.0", i);
        int x = pyramid_conv(g, stage[i], name, channels, 1, 1);
        snprintf(name, sizeof name, FPN "add.%d", i);
        above = above < 0 ? x : dt_graph_upsample_add(g, above, x, name);
        snprintf(name, sizeof name, FPN "layer_blocks.%d.0", i);
        level[i] = pyramid_conv(g, above, name, channels, 3, 1);
    }
    level[3] = pyramid_conv(g, options->p6_from_c5 ? stage[2] : level[2], FPN "extra_blocks.p6",
                            channels, 3, 2);
    int x = dt_graph_relu(g, level[3], FPN "extra_blocks.relu");
    level[4] = pyramid_conv(g, x, FPN "extra_blocks.p7", channels, 3, 2);
}

/* A head on one level: its modules are shared, the names of its nodes end with the level. */
struct head {
    struct dt_graph *g;
    const char *prefix;
    int level;
    char module[DT_NAME_MAX], node[DT_NAME_MAX + 16];
};

static void name_module(struct head *h, const char *last, int i, int part)
{
    if (i < 0)
        snprintf(h->module, sizeof h->module, "%s.%s", h->prefix, last);
    else
        snprintf(h->module, sizeof h->module, "%s.conv.%d.%d", h->prefix, i, part);
    snprintf(h->node, sizeof h->node, "%s@p%d", h->module, h->level + FIRST_LEVEL);
}

static int head_conv(struct head *h, int src, struct dt_conv_options options)
{
    options.kernel = 3;
    options.stride = options.pad = 1;
    options.init = head_init;
    options.module = h->module;
    return dt_graph_conv(h->g, src, h->node, options);
}

/* Four convolutions with ReLU, and `last` with so many channels. */
static int head(struct dt_graph *g, int src, int level, const char *prefix, const char *last,
                struct dt_conv_options out, const struct dt_detector_options *options)
{
    struct head h = {.g = g, .prefix = prefix, .level = level};
    const struct dt_conv_options conv = {.out_channels = options->fpn_channels,
                                         .bias = !options->group_norm};
    int x = src;
    for (int i = 0; i < HEAD_CONVS; i++) {
        int part = 0;
        name_module(&h, NULL, i, part++);
        x = head_conv(&h, x, conv);
        name_module(&h, NULL, i, part);
        if (options->group_norm) {
            x = dt_graph_group_norm(g, x, h.node, h.module, GROUPS);
            name_module(&h, NULL, i, ++part);
        }
        x = dt_graph_relu(g, x, h.node);
    }
    name_module(&h, last, -1, 0);
    return head_conv(&h, x, out);
}

static struct dt_detect describe(const struct dt_graph *g, const struct dt_program *p,
                                 const int level[DT_MAX_LEVELS], struct dt_detect detect)
{
    struct dt_anchors *a = &detect.anchors;
    a->n_levels = DT_MAX_LEVELS;
    a->canvas_height = p->height;
    a->canvas_width = p->width;
    for (int i = 0; i < DT_MAX_LEVELS; i++) {
        a->height[i] = g->tensor[level[i]].dim[2];
        a->width[i] = g->tensor[level[i]].dim[3];
    }
    detect.background = 0.4f;
    detect.foreground = 0.5f;
    detect.low_quality = true;
    return detect;
}

/* Both heads on every level, with the losses or the detections; returns the last logits. */
static int heads(struct dt_graph *g, const int level[DT_MAX_LEVELS],
                 const struct dt_model_options *options)
{
    const struct dt_detector_options *d = &options->detector;
    const struct dt_program *p = dt_graph_program(g);
    const struct dt_conv_options classes = {
        .out_channels = DT_CELL_ANCHORS * options->num_classes,
        .bias = true,
        .bias_init = {DT_INIT_CONSTANT, -log(99)}}; /* a probability of 0.01 */
    const struct dt_conv_options boxes = {.out_channels = DT_CELL_ANCHORS * 4, .bias = true};
    int logits = -1;
    if (g->status != DT_OK)
        return -1;
    struct dt_detect detect = describe(g, p, level, d->detect);
    if (p->phase == DT_TRAIN)
        dt_graph_match(g, &detect);
    for (int i = 0; i < DT_MAX_LEVELS; i++) {
        detect.level = i;
        logits = head(g, level[i], i, "head.classification_head", "cls_logits", classes, d);
        int deltas = head(g, level[i], i, "head.regression_head", "bbox_reg", boxes, d);
        if (p->phase == DT_TRAIN) {
            dt_graph_focal_loss(g, logits, &detect);
            dt_graph_box_loss(g, deltas, &detect);
        } else {
            dt_graph_top_detections(g, logits, deltas, &detect);
        }
    }
    return g->status == DT_OK ? logits : -1;
}

static dt_status check_canvas(const struct dt_graph *g, const struct dt_model *model)
{
    const struct dt_program *p = &g->program[g->current];
    if (p->height % CANVAS_MULTIPLE != 0 || p->width % CANVAS_MULTIPLE != 0)
        DT_FAIL(DT_ERR_CONFIG,
                "model %s needs a height and a width that are multiples of %d, not %dx%d: change "
                "model.image_size",
                model->name, CANVAS_MULTIPLE, p->height, p->width);
    return DT_OK;
}

int dt_build_retinanet(struct dt_graph *g, int src, const struct dt_model *model,
                       const struct dt_model_options *options)
{
    const struct dt_detector_options *d = &options->detector;
    const struct dt_resnet_options body = {.prefix = BODY,
                                           .zero_init_residual = options->zero_init_residual,
                                           .frozen_norm = d->frozen_norm,
                                           .norm_eps = d->norm_eps};
    int stage[DT_RESNET_STAGES], level[DT_MAX_LEVELS];
    if (!dt_model_check(g, src, model, options))
        return -1;
    g->status = check_canvas(g, model);
    dt_resnet_body(g, src, model, &body, stage);
    pyramid(g, stage + 1, d, level);
    const int logits = heads(g, level, options);
    /* The first stages of the backbone; the stem counts as one. */
    static const char *const layers[N_LAYERS] = {BODY "conv1", BODY "layer1", BODY "layer2",
                                                 BODY "layer3", BODY "layer4"};
    for (int i = 0; i < N_LAYERS - d->trainable_layers; i++)
        dt_graph_freeze(g, layers[i]);
    if (d->trainable_layers < N_LAYERS)
        dt_graph_freeze(g, BODY "bn1");
    return logits;
}
