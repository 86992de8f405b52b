/* DenseNet (Huang et al. 2017, "Densely Connected Convolutional Networks") as torchvision builds
 * it: in a block, every layer reads the channels of all layers before it and adds `growth` more; a
 * transition halves channels and size. Convolutions start from Kaiming normal fan_in, the bias of
 * the classifier from 0. */
#include <math.h>

#include "models/layers.h"

enum { N_BLOCKS = 4 };

static const struct variant {
    int depth, growth, stem;
    int n_layers[N_BLOCKS];
} variants[] = {
    {121, 32, 64, {6, 12, 24, 16}},
    {161, 48, 96, {6, 12, 36, 24}},
    {169, 32, 64, {6, 12, 32, 32}},
    {201, 32, 64, {6, 12, 48, 32}},
};

static int conv(struct dt_graph *g, int src, const char *name, struct dt_conv_options options)
{
    if (g->status != DT_OK)
        return -1;
    const int fan_in = g->tensor[src].dim[1] * options.kernel * options.kernel;
    options.init = (struct dt_init){DT_INIT_NORMAL, sqrt(2.0 / fan_in)};
    return dt_graph_conv(g, src, name, options);
}

/* Batch norm, ReLU and a convolution that keeps the size: <prefix>norm<id> and so on. */
static int norm_relu_conv(struct dt_graph *g, int src, const char *prefix, const char *id,
                          int out_channels, int kernel)
{
    const struct dt_conv_options options = {
        .out_channels = out_channels, .kernel = kernel, .stride = 1, .pad = kernel / 2};
    char n[DT_NAME_MAX];
    int x = dt_graph_bn(g, src, dt_name(n, "%snorm%s", prefix, id), 1);
    x = dt_graph_relu(g, x, dt_name(n, "%srelu%s", prefix, id));
    return conv(g, x, dt_name(n, "%sconv%s", prefix, id), options);
}

static int dense_layer(struct dt_graph *g, int src, const char *prefix, int growth)
{
    char name[DT_NAME_MAX];
    const int x = norm_relu_conv(g, src, prefix, "1", 4 * growth, 1);
    const int parts[] = {src, norm_relu_conv(g, x, prefix, "2", growth, 3)};
    return dt_graph_concat(g, 2, parts, dt_name(name, "%sconcat", prefix));
}

/* Halves channels and size. */
static int transition(struct dt_graph *g, int src, int index)
{
    char prefix[DT_NAME_MAX], name[DT_NAME_MAX];
    if (g->status != DT_OK)
        return -1;
    const int *dim = g->tensor[src].dim, size = dim[2];
    dt_name(prefix, "features.transition%d.", index);
    const int x = norm_relu_conv(g, src, prefix, "", dim[1] / 2, 1);
    return dt_graph_avg_pool(g, x, dt_name(name, "%spool", prefix), size / 2);
}

static int features(struct dt_graph *g, int src, const struct variant *v)
{
    const struct dt_conv_options stem = {
        .out_channels = v->stem, .kernel = 7, .stride = 2, .pad = 3};
    int x = dt_graph_bn(g, conv(g, src, "features.conv0", stem), "features.norm0", 1);
    x = dt_graph_max_pool(g, dt_graph_relu(g, x, "features.relu0"), "features.pool0", 3, 2, 1);
    for (int i = 0; i < N_BLOCKS; i++) {
        for (int k = 0; k < v->n_layers[i]; k++) {
            char prefix[DT_NAME_MAX];
            dt_name(prefix, "features.denseblock%d.denselayer%d.", i + 1, k + 1);
            x = dense_layer(g, x, prefix, v->growth);
        }
        if (i + 1 < N_BLOCKS)
            x = transition(g, x, i + 1);
    }
    return dt_graph_relu(g, dt_graph_bn(g, x, "features.norm5", 1), "features.relu5");
}

/* Else a transition would leave pixels out. */
static bool check_size(struct dt_graph *g, int src, const struct dt_model *model)
{
    const int *dim = g->tensor[src].dim;
    if (dim[2] % 32 != 0 || dim[3] % 32 != 0)
        g->status = DT_ERROR(DT_ERR_CONFIG,
                             "model %s needs images whose height and width are multiples of 32, "
                             "not %dx%d: change model.image_size",
                             model->name, dim[2], dim[3]);
    return g->status == DT_OK;
}

int dt_build_densenet(struct dt_graph *g, int src, const struct dt_model *model,
                      const struct dt_model_options *options)
{
    if (!dt_model_check(g, src, model, options) || !check_size(g, src, model))
        return -1;
    int x = src;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        if (variants[i].depth == model->variant)
            x = features(g, src, &variants[i]);
    x = dt_graph_avg_pool(g, x, "avgpool", 1);
    if (x < 0)
        return -1;
    const struct dt_init zeros = {DT_INIT_CONSTANT, 0};
    return dt_graph_linear(g, x, "classifier", options->num_classes,
                           dt_init_fan_in(g->tensor[x].dim[1]), zeros);
}
