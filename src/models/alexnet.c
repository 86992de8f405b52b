/* AlexNet as torchvision builds it (Krizhevsky 2014, "One weird trick", one column, no local
 * response normalisation), with PyTorch's default initialisation throughout. */
#include <stdio.h>

#include "models/layers.h"

static const struct {
    int index; /* features.<index>, its ReLU is the next one */
    int out_channels, kernel, stride, pad;
    bool pool; /* max pooling after the ReLU */
} convs[] = {
    {0, 64, 11, 4, 2, true},  {3, 192, 5, 1, 2, true},  {6, 384, 3, 1, 1, false},
    {8, 256, 3, 1, 1, false}, {10, 256, 3, 1, 1, true},
};

static int features(struct dt_graph *g, int src)
{
    char name[DT_NAME_MAX];
    int x = src, in_channels = 3;
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++) {
        const struct dt_init init = dt_init_fan_in(in_channels * convs[i].kernel * convs[i].kernel);
        struct dt_conv_options conv = {.out_channels = convs[i].out_channels,
                                       .kernel = convs[i].kernel,
                                       .stride = convs[i].stride,
                                       .pad = convs[i].pad,
                                       .bias = true,
                                       .init = init,
                                       .bias_init = init};
        snprintf(name, sizeof name, "features.%d", convs[i].index);
        x = dt_graph_conv(g, x, name, conv);
        snprintf(name, sizeof name, "features.%d", convs[i].index + 1);
        x = dt_graph_relu(g, x, name);
        snprintf(name, sizeof name, "features.%d", convs[i].index + 2);
        if (convs[i].pool)
            x = dt_graph_max_pool(g, x, name, 3, 2, 0);
        in_channels = convs[i].out_channels;
    }
    return x;
}

int dt_build_alexnet(struct dt_graph *g, int src, const struct dt_model *model,
                     const struct dt_model_options *options)
{
    if (!dt_model_check(g, src, model, options))
        return -1;
    int x = dt_graph_avg_pool(g, features(g, src), "avgpool", 6);
    x = dt_graph_dropout(g, x, "classifier.0", options->dropout);
    x = dt_layer_linear(g, x, "classifier.1", 4096);
    x = dt_graph_relu(g, x, "classifier.2");
    x = dt_graph_dropout(g, x, "classifier.3", options->dropout);
    x = dt_layer_linear(g, x, "classifier.4", 4096);
    x = dt_graph_relu(g, x, "classifier.5");
    return dt_layer_linear(g, x, "classifier.6", options->num_classes);
}
