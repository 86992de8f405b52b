/* ResNet (He et al. 2015, "Deep Residual Learning for Image Recognition").
 *
 * resnet18 .. 152 are torchvision's, version 1.5: a bottleneck has its stride on the 3x3
 * convolution. resnet20 .. 110 are the CIFAR networks of section 4.2 with a projection shortcut
 * (option B). Convolutions start from Kaiming normal fan_out, the last batch norm of a block
 * optionally from 0. */
#include <stdio.h>

#include "models/layers.h"

enum { MAX_STAGES = 4 };

struct family {
    int n_stages, n_blocks[MAX_STAGES];
    int width; /* channels of the first stage; every stage doubles them */
    bool bottleneck;
    bool zero_init_residual;
};

static const struct {
    int depth;
    int n_blocks[MAX_STAGES];
    bool bottleneck;
} imagenet[] = {
    {18, {2, 2, 2, 2}, false},  {34, {3, 4, 6, 3}, false},  {50, {3, 4, 6, 3}, true},
    {101, {3, 4, 23, 3}, true}, {152, {3, 8, 36, 3}, true},
};

/* Prefix of the names inside a block ("layer1.0"). */
struct block {
    struct dt_graph *g;
    char prefix[32];
    char name[DT_NAME_MAX];
};

static const char *name(struct block *b, const char *suffix)
{
    snprintf(b->name, sizeof b->name, "%s%s", b->prefix, suffix);
    return b->name;
}

/* A convolution without bias, then batch norm: the pair that all ResNets are made of. */
static int conv_bn(struct block *b, int src, const char *conv, const char *bn,
                   struct dt_conv_options options, double scale_init)
{
    options.init = dt_init_fan_out(options.out_channels, options.kernel);
    int dst = dt_graph_conv(b->g, src, name(b, conv), options);
    return dt_graph_bn(b->g, dst, name(b, bn), scale_init);
}

static int conv_bn_relu(struct block *b, int src, const char *conv, const char *bn,
                        const char *relu, struct dt_conv_options options)
{
    return dt_graph_relu(b->g, conv_bn(b, src, conv, bn, options, 1), name(b, relu));
}

/* The two or three convolutions of a block, without the last ReLU. */
static int residual_branch(struct block *b, int src, const struct family *f, int width, int stride)
{
    const double last_scale = f->zero_init_residual ? 0 : 1;
    struct dt_conv_options squeeze = {.out_channels = width, .kernel = 1, .stride = 1};
    struct dt_conv_options spatial = {
        .out_channels = width, .kernel = 3, .stride = stride, .pad = 1};
    if (f->bottleneck) {
        struct dt_conv_options expand = {.out_channels = 4 * width, .kernel = 1, .stride = 1};
        int x = conv_bn_relu(b, src, ".conv1", ".bn1", ".relu1", squeeze);
        x = conv_bn_relu(b, x, ".conv2", ".bn2", ".relu2", spatial);
        return conv_bn(b, x, ".conv3", ".bn3", expand, last_scale);
    }
    int x = conv_bn_relu(b, src, ".conv1", ".bn1", ".relu1", spatial);
    spatial.stride = 1;
    return conv_bn(b, x, ".conv2", ".bn2", spatial, last_scale);
}

static int residual_block(struct block *b, int src, const struct family *f, int width, int stride)
{
    const int out_channels = f->bottleneck ? 4 * width : width;
    int x = residual_branch(b, src, f, width, stride);
    int shortcut = src;
    if (b->g->status != DT_OK)
        return -1;
    if (stride != 1 || b->g->tensor[src].dim[1] != out_channels) {
        struct dt_conv_options project = {
            .out_channels = out_channels, .kernel = 1, .stride = stride};
        shortcut = conv_bn(b, src, ".downsample.0", ".downsample.1", project, 1);
    }
    x = dt_graph_add(b->g, x, shortcut, name(b, ".add"));
    return dt_graph_relu(b->g, x, name(b, f->bottleneck ? ".relu3" : ".relu2"));
}

static int stages(struct dt_graph *g, int src, const struct family *f, int num_classes)
{
    int x = src;
    for (int i = 0; i < f->n_stages; i++) {
        for (int k = 0; k < f->n_blocks[i]; k++) {
            struct block b = {.g = g};
            snprintf(b.prefix, sizeof b.prefix, "layer%d.%d", i + 1, k);
            x = residual_block(&b, x, f, f->width << i, i > 0 && k == 0 ? 2 : 1);
        }
    }
    x = dt_graph_avg_pool(g, x, "avgpool", 1);
    return dt_layer_linear(g, x, "fc", num_classes);
}

static int stem(struct dt_graph *g, int src, struct dt_conv_options options)
{
    struct block b = {.g = g};
    return conv_bn_relu(&b, src, "conv1", "bn1", "relu", options);
}

int dt_build_resnet(struct dt_graph *g, int src, const struct dt_model *model,
                    const struct dt_model_options *options)
{
    if (!dt_model_check(g, src, model, options))
        return -1;
    struct family f = {
        .n_stages = 4, .width = 64, .zero_init_residual = options->zero_init_residual};
    for (size_t i = 0; i < sizeof imagenet / sizeof *imagenet; i++) {
        if (imagenet[i].depth != model->variant)
            continue;
        f.bottleneck = imagenet[i].bottleneck;
        for (int k = 0; k < f.n_stages; k++)
            f.n_blocks[k] = imagenet[i].n_blocks[k];
    }
    struct dt_conv_options first = {.out_channels = f.width, .kernel = 7, .stride = 2, .pad = 3};
    int x = stem(g, src, first);
    x = dt_graph_max_pool(g, x, "maxpool", 3, 2, 1);
    return stages(g, x, &f, options->num_classes);
}

/* Depth 6n + 2: three stages of n basic blocks. */
int dt_build_resnet_cifar(struct dt_graph *g, int src, const struct dt_model *model,
                          const struct dt_model_options *options)
{
    if (!dt_model_check(g, src, model, options))
        return -1;
    const int n = (model->variant - 2) / 6;
    const struct family f = {.n_stages = 3,
                             .n_blocks = {n, n, n},
                             .width = 16,
                             .zero_init_residual = options->zero_init_residual};
    struct dt_conv_options first = {.out_channels = f.width, .kernel = 3, .stride = 1, .pad = 1};
    return stages(g, stem(g, src, first), &f, options->num_classes);
}
