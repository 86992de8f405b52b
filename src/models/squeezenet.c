/* SqueezeNet 1.0 and 1.1 (Iandola et al. 2016) as torchvision builds them: a fire module squeezes
 * the channels by a 1x1 convolution and expands them by 1x1 and 3x3 side by side; the classifier is
 * a convolution. Weights start from Kaiming uniform, the last from normal(0.01), biases from 0. */
#include <math.h>

#include "models/layers.h"

enum { N_FEATURES = 13 };

static const struct variant {
    int number; /* 10 times the version */
    int stem, kernel;
    int squeeze[N_FEATURES]; /* of the fire module features.<i>; 0: max pooling */
    int expand[N_FEATURES];  /* by each of the two */
} variants[] = {
    {10,
     96,
     7,
     {[3] = 16, 16, 32, 0, 32, 48, 48, 64, 0, 64},
     {[3] = 64, 64, 128, 0, 128, 192, 192, 256, 0, 256}},
    {11,
     64,
     3,
     {[3] = 16, 16, 0, 32, 32, 0, 48, 48, 64, 64},
     {[3] = 64, 64, 0, 128, 128, 0, 192, 192, 256, 256}},
};

/* With bias and ReLU. */
static int conv_relu(struct dt_graph *g, int src, const char *name, struct dt_conv_options options)
{
    char relu[DT_NAME_MAX];
    if (g->status != DT_OK)
        return -1;
    const int fan_in = g->tensor[src].dim[1] * options.kernel * options.kernel;
    if (options.init.kind == DT_INIT_CONSTANT)
        options.init = (struct dt_init){DT_INIT_UNIFORM, sqrt(6.0 / fan_in)};
    options.bias = true;
    return dt_graph_relu(g, dt_graph_conv(g, src, name, options),
                         dt_name(relu, "%s_activation", name));
}

static int fire(struct dt_graph *g, int src, int index, int squeeze, int expand)
{
    static const char *const parts[] = {"squeeze", "expand1x1", "expand3x3", "concat"};
    char name[4][DT_NAME_MAX];
    for (int i = 0; i < 4; i++)
        dt_name(name[i], "features.%d.%s", index, parts[i]);
    struct dt_conv_options options = {.out_channels = squeeze, .kernel = 1, .stride = 1};
    const int x = conv_relu(g, src, name[0], options);
    int expanded[2];
    for (int i = 0; i < 2; i++) {
        options = (struct dt_conv_options){
            .out_channels = expand, .kernel = 2 * i + 1, .stride = 1, .pad = i};
        expanded[i] = conv_relu(g, x, name[1 + i], options);
    }
    return dt_graph_concat(g, 2, expanded, name[3]);
}

static int features(struct dt_graph *g, int src, const struct variant *v)
{
    const struct dt_conv_options stem = {.out_channels = v->stem, .kernel = v->kernel, .stride = 2};
    int x = conv_relu(g, src, "features.0", stem);
    for (int i = 2; i < N_FEATURES; i++) {
        char name[DT_NAME_MAX];
        dt_name(name, "features.%d", i);
        x = v->squeeze[i] > 0 ? fire(g, x, i, v->squeeze[i], v->expand[i])
                              : dt_graph_max_pool_ceil(g, x, name, 3, 2);
    }
    return x;
}

int dt_build_squeezenet(struct dt_graph *g, int src, const struct dt_model *model,
                        const struct dt_model_options *options)
{
    if (!dt_model_check(g, src, model, options))
        return -1;
    int x = src;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        if (variants[i].number == model->variant)
            x = features(g, src, &variants[i]);
    const struct dt_conv_options last = {.out_channels = options->num_classes,
                                         .kernel = 1,
                                         .stride = 1,
                                         .init = {DT_INIT_NORMAL, 0.01}};
    x = conv_relu(g, dt_graph_dropout(g, x, "classifier.0", options->dropout), "classifier.1",
                  last);
    return dt_graph_avg_pool(g, x, "classifier.3", 1);
}
