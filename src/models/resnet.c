/* ResNet (He et al. 2015, "Deep Residual Learning for Image Recognition").
 *
 * resnet18 .. 152 are torchvision's, version 1.5: a bottleneck has its stride on the 3x3
 * convolution. That is grouped in ResNeXt (Xie et al. 2016, "Aggregated Residual Transformations
 * for Deep Neural Networks") and twice as wide in wide ResNets (Zagoruyko and Komodakis 2016).
 * resnet20 .. 110 are the CIFAR networks of section 4.2 with a projection shortcut (option B).
 * Convolutions start from Kaiming normal fan_out, the last batch norm of a block optionally from 0.
 */
#include <stdio.h>

#include "models/layers.h"

struct family {
    int n_stages, n_blocks[DT_RESNET_STAGES];
    int width; /* channels of the first stage; every stage doubles them */
    bool bottleneck;
    int groups, group_width; /* of the 3x3 convolutions of bottlenecks */
    struct dt_resnet_options options;
};

static const struct {
    int depth;
    int n_blocks[DT_RESNET_STAGES];
    bool bottleneck;
} imagenet[] = {
    {18, {2, 2, 2, 2}, false},  {34, {3, 4, 6, 3}, false},  {50, {3, 4, 6, 3}, true},
    {101, {3, 4, 23, 3}, true}, {152, {3, 8, 36, 3}, true},
};

/* Prefix of the names inside a block ("layer1.0"). */
struct block {
    struct dt_graph *g;
    const struct family *family;
    char prefix[DT_NAME_MAX];
    char name[DT_NAME_MAX];
};

static const char *name(struct block *b, const char *suffix)
{
    snprintf(b->name, sizeof b->name, "%.40s%.20s", b->prefix, suffix);
    return b->name;
}

/* A convolution without bias, then batch norm: the pair that all ResNets are made of. */
static int conv_bn(struct block *b, int src, const char *conv, const char *bn,
                   struct dt_conv_options options, double scale_init)
{
    options.init = dt_init_fan_out(options.out_channels, options.kernel);
    int dst = dt_graph_conv(b->g, src, name(b, conv), options);
    if (b->family->options.frozen_norm)
        return dt_graph_frozen_bn(b->g, dst, name(b, bn), b->family->options.norm_eps);
    return dt_graph_bn(b->g, dst, name(b, bn), scale_init);
}

static int conv_bn_relu(struct block *b, int src, const char *conv, const char *bn,
                        const char *relu, struct dt_conv_options options)
{
    return dt_graph_relu(b->g, conv_bn(b, src, conv, bn, options, 1), name(b, relu));
}

/* The two or three convolutions of a block, without the last ReLU. */
static int residual_branch(struct block *b, int src, int width, int stride)
{
    const double last_scale = b->family->options.zero_init_residual ? 0 : 1;
    struct dt_conv_options spatial = {
        .out_channels = width, .kernel = 3, .stride = stride, .pad = 1};
    if (b->family->bottleneck) {
        spatial.groups = b->family->groups;
        spatial.out_channels = width / 64 * b->family->group_width * b->family->groups;
        struct dt_conv_options squeeze = {
            .out_channels = spatial.out_channels, .kernel = 1, .stride = 1};
        struct dt_conv_options expand = {.out_channels = 4 * width, .kernel = 1, .stride = 1};
        int x = conv_bn_relu(b, src, ".conv1", ".bn1", ".relu1", squeeze);
        x = conv_bn_relu(b, x, ".conv2", ".bn2", ".relu2", spatial);
        return conv_bn(b, x, ".conv3", ".bn3", expand, last_scale);
    }
    int x = conv_bn_relu(b, src, ".conv1", ".bn1", ".relu1", spatial);
    spatial.stride = 1;
    return conv_bn(b, x, ".conv2", ".bn2", spatial, last_scale);
}

static int residual_block(struct block *b, int src, int width, int stride)
{
    const bool bottleneck = b->family->bottleneck;
    const int out_channels = bottleneck ? 4 * width : width;
    int x = residual_branch(b, src, width, stride);
    int shortcut = src;
    if (b->g->status != DT_OK)
        return -1;
    if (stride != 1 || b->g->tensor[src].dim[1] != out_channels) {
        struct dt_conv_options project = {
            .out_channels = out_channels, .kernel = 1, .stride = stride};
        shortcut = conv_bn(b, src, ".downsample.0", ".downsample.1", project, 1);
    }
    x = dt_graph_add(b->g, x, shortcut, name(b, ".add"));
    return dt_graph_relu(b->g, x, name(b, bottleneck ? ".relu3" : ".relu2"));
}

/* dst[i] is the result of layer<i + 1>; returns the last. */
static int stages(struct dt_graph *g, int src, const struct family *f, int dst[DT_RESNET_STAGES])
{
    int x = src;
    for (int i = 0; i < f->n_stages; i++) {
        for (int k = 0; k < f->n_blocks[i]; k++) {
            struct block b = {.g = g, .family = f};
            snprintf(b.prefix, sizeof b.prefix, "%slayer%d.%d", f->options.prefix, i + 1, k);
            x = residual_block(&b, x, f->width << i, i > 0 && k == 0 ? 2 : 1);
        }
        dst[i] = x;
    }
    return x;
}

static int stem(struct dt_graph *g, int src, const struct family *f, struct dt_conv_options options)
{
    struct block b = {.g = g, .family = f};
    snprintf(b.prefix, sizeof b.prefix, "%s", f->options.prefix);
    return conv_bn_relu(&b, src, "conv1", "bn1", "relu", options);
}

static int classifier(struct dt_graph *g, int src, int num_classes)
{
    return dt_layer_linear(g, dt_graph_avg_pool(g, src, "avgpool", 1), "fc", num_classes);
}

int dt_resnet_body(struct dt_graph *g, int src, const struct dt_model *model,
                   const struct dt_resnet_options *options, int dst[DT_RESNET_STAGES])
{
    struct family f = {.n_stages = DT_RESNET_STAGES,
                       .width = 64,
                       .groups = model->groups > 0 ? model->groups : 1,
                       .group_width = model->group_width > 0 ? model->group_width : 64,
                       .options = *options};
    char pool[DT_NAME_MAX];
    for (size_t i = 0; i < sizeof imagenet / sizeof *imagenet; i++) {
        if (imagenet[i].depth != model->variant)
            continue;
        f.bottleneck = imagenet[i].bottleneck;
        for (int k = 0; k < f.n_stages; k++)
            f.n_blocks[k] = imagenet[i].n_blocks[k];
    }
    struct dt_conv_options first = {.out_channels = f.width, .kernel = 7, .stride = 2, .pad = 3};
    snprintf(pool, sizeof pool, "%smaxpool", options->prefix);
    int x = dt_graph_max_pool(g, stem(g, src, &f, first), pool, 3, 2, 1);
    return stages(g, x, &f, dst);
}

int dt_build_resnet(struct dt_graph *g, int src, const struct dt_model *model,
                    const struct dt_model_options *options)
{
    const struct dt_resnet_options plain = {.prefix = "",
                                            .zero_init_residual = options->zero_init_residual};
    int stage[DT_RESNET_STAGES];
    if (!dt_model_check(g, src, model, options))
        return -1;
    return classifier(g, dt_resnet_body(g, src, model, &plain, stage), options->num_classes);
}

/* Depth 6n + 2: three stages of n basic blocks. */
int dt_build_resnet_cifar(struct dt_graph *g, int src, const struct dt_model *model,
                          const struct dt_model_options *options)
{
    int stage[DT_RESNET_STAGES];
    if (!dt_model_check(g, src, model, options))
        return -1;
    const int n = (model->variant - 2) / 6;
    const struct family f = {
        .n_stages = 3,
        .n_blocks = {n, n, n},
        .width = 16,
        .options = {.prefix = "", .zero_init_residual = options->zero_init_residual}};
    struct dt_conv_options first = {.out_channels = f.width, .kernel = 3, .stride = 1, .pad = 1};
    return classifier(g, stages(g, stem(g, src, &f, first), &f, stage), options->num_classes);
}
