/* MobileNetV2 (Sandler et al. 2018, "MobileNetV2: Inverted Residuals and Linear Bottlenecks") and
 * V3 (Howard et al. 2019, "Searching for MobileNetV3"), as torchvision builds them. A block widens
 * its input by a 1x1 convolution, filters every channel by itself, and narrows the result again.
 * Convolutions start from Kaiming normal fan_out, linear layers from normal(0.01), bias 0. */
#include "base/mem.h"
#include "models/layers.h"

struct block {
    int kernel, width, channels; /* width: of the depthwise convolution; channels: of the result */
    bool gated;
    enum dt_activation activation;
    int stride;
};

struct family {
    const char *inside; /* name of a block's sequence of modules */
    bool flat;          /* the last convolution and its norm have no module of their own */
    struct dt_conv_bn norm;
};
static const struct family v2 = {"conv", true, {.eps = 1e-5, .momentum = 0.1}};
static const struct family v3 = {"block", false, {.eps = 1e-3, .momentum = 0.01}};

static int conv_bn(struct dt_graph *g, int src, const char *at, const struct family *f,
                   struct dt_conv_options options, enum dt_activation activation)
{
    struct dt_conv_bn norm = f->norm;
    norm.activation = activation;
    options.pad = options.kernel / 2;
    options.init = dt_init_fan_out(options.out_channels, options.kernel);
    return dt_layer_conv_bn(g, src, at, options, &norm);
}

static int project(struct dt_graph *g, int src, const char *at, int index, const struct family *f,
                   int channels)
{
    char n[DT_NAME_MAX];
    const struct dt_conv_options options = {
        .out_channels = channels, .kernel = 1, .stride = 1, .init = dt_init_fan_out(channels, 1)};
    if (!f->flat)
        return conv_bn(g, src, dt_name(n, "%s.%d", at, index), f, options, DT_NO_ACTIVATION);
    const int x = dt_graph_conv(g, src, dt_name(n, "%s.%d", at, index), options);
    return dt_graph_bn(g, x, dt_name(n, "%s.%d", at, index + 1), 1);
}

static int inverted_residual(struct dt_graph *g, int src, int index, const struct family *f,
                             const struct block *b)
{
    char at[DT_NAME_MAX], n[DT_NAME_MAX];
    if (g->status != DT_OK)
        return -1;
    const int channels = g->tensor[src].dim[1];
    const struct dt_conv_options expand = {.out_channels = b->width, .kernel = 1, .stride = 1};
    const struct dt_conv_options filter = {
        .out_channels = b->width, .kernel = b->kernel, .stride = b->stride, .groups = b->width};
    int x = src, i = 0;
    dt_name(at, "features.%d.%s", index, f->inside);
    if (b->width != channels)
        x = conv_bn(g, x, dt_name(n, "%s.%d", at, i++), f, expand, b->activation);
    x = conv_bn(g, x, dt_name(n, "%s.%d", at, i++), f, filter, b->activation);
    if (b->gated)
        x = dt_layer_squeeze_excitation(g, x, dt_name(n, "%s.%d", at, i++),
                                        dt_divisible_by_8(b->width / 4), DT_RELU, DT_HARD_SIGMOID);
    x = project(g, x, at, i, f, b->channels);
    return b->stride == 1 && channels == b->channels
               ? dt_graph_add(g, x, src, dt_name(n, "%s.add", at))
               : x;
}

static int linear(struct dt_graph *g, int src, const char *name, int out_features)
{
    const struct dt_init init = {DT_INIT_NORMAL, 0.01}, zeros = {DT_INIT_CONSTANT, 0};
    return dt_graph_linear(g, src, name, out_features, init, zeros);
}

int dt_build_mobilenet_v2(struct dt_graph *g, int src, const struct dt_model *model,
                          const struct dt_model_options *options)
{
    static const struct {
        int expand, channels, n, stride;
    } stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                  {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    const struct dt_conv_options first = {.out_channels = 32, .kernel = 3, .stride = 2};
    const struct dt_conv_options last = {.out_channels = 1280, .kernel = 1, .stride = 1};
    int index = 1;
    if (!dt_model_check(g, src, model, options))
        return -1;
    int x = conv_bn(g, src, "features.0", &v2, first, DT_RELU6);
    for (size_t i = 0; i < DT_COUNT(stages); i++)
        for (int k = 0; k < stages[i].n && g->status == DT_OK; k++) {
            const struct block b = {.kernel = 3,
                                    .width = g->tensor[x].dim[1] * stages[i].expand,
                                    .channels = stages[i].channels,
                                    .activation = DT_RELU6,
                                    .stride = k == 0 ? stages[i].stride : 1};
            x = inverted_residual(g, x, index++, &v2, &b);
        }
    x = dt_graph_avg_pool(g, conv_bn(g, x, "features.18", &v2, last, DT_RELU6), "avgpool", 1);
    x = dt_graph_dropout(g, x, "classifier.0", options->dropout);
    return linear(g, x, "classifier.1", options->num_classes);
}

/* Variant 0: small, 1: large. */
int dt_build_mobilenet_v3(struct dt_graph *g, int src, const struct dt_model *model,
                          const struct dt_model_options *options)
{
#define RE DT_RELU
#define HS DT_HARD_SWISH
    static const struct block small[] = {
        {3, 16, 16, true, RE, 2},  {3, 72, 24, false, RE, 2}, {3, 88, 24, false, RE, 1},
        {5, 96, 40, true, HS, 2},  {5, 240, 40, true, HS, 1}, {5, 240, 40, true, HS, 1},
        {5, 120, 48, true, HS, 1}, {5, 144, 48, true, HS, 1}, {5, 288, 96, true, HS, 2},
        {5, 576, 96, true, HS, 1}, {5, 576, 96, true, HS, 1},
    };
    static const struct block large[] = {
        {3, 16, 16, false, RE, 1},  {3, 64, 24, false, RE, 2},  {3, 72, 24, false, RE, 1},
        {5, 72, 40, true, RE, 2},   {5, 120, 40, true, RE, 1},  {5, 120, 40, true, RE, 1},
        {3, 240, 80, false, HS, 2}, {3, 200, 80, false, HS, 1}, {3, 184, 80, false, HS, 1},
        {3, 184, 80, false, HS, 1}, {3, 480, 112, true, HS, 1}, {3, 672, 112, true, HS, 1},
        {5, 672, 160, true, HS, 2}, {5, 960, 160, true, HS, 1}, {5, 960, 160, true, HS, 1},
    };
#undef RE
#undef HS
    const bool is_large = model->variant == 1;
    const struct block *blocks = is_large ? large : small;
    const int n = is_large ? (int)DT_COUNT(large) : (int)DT_COUNT(small);
    const struct dt_conv_options first = {.out_channels = 16, .kernel = 3, .stride = 2};
    const struct dt_conv_options last = {
        .out_channels = 6 * blocks[n - 1].channels, .kernel = 1, .stride = 1};
    char name[DT_NAME_MAX];
    if (!dt_model_check(g, src, model, options))
        return -1;
    int x = conv_bn(g, src, "features.0", &v3, first, DT_HARD_SWISH);
    for (int i = 0; i < n; i++)
        x = inverted_residual(g, x, i + 1, &v3, &blocks[i]);
    x = conv_bn(g, x, dt_name(name, "features.%d", n + 1), &v3, last, DT_HARD_SWISH);
    x = linear(g, dt_graph_avg_pool(g, x, "avgpool", 1), "classifier.0", is_large ? 1280 : 1024);
    x = dt_graph_activation(g, x, "classifier.1", DT_HARD_SWISH);
    x = dt_graph_dropout(g, x, "classifier.2", options->dropout);
    return linear(g, x, "classifier.3", options->num_classes);
}
