/* A small network without batch norm and dropout: the contribution of an image does not depend on
 * the others, so N ranks must agree with one. For tests and first runs. */
#include "models/layers.h"

static int conv_relu(struct dt_graph *g, int src, const char *conv, const char *relu, int channels,
                     int stride)
{
    struct dt_conv_options options = {.out_channels = channels,
                                      .kernel = 3,
                                      .stride = stride,
                                      .pad = 1,
                                      .bias = true,
                                      .init = dt_init_fan_out(channels, 3)};
    return dt_graph_relu(g, dt_graph_conv(g, src, conv, options), relu);
}

int dt_build_tiny(struct dt_graph *g, int src, const struct dt_model *model,
                  const struct dt_model_options *options)
{
    if (!dt_model_check(g, src, model, options))
        return -1;
    int x = conv_relu(g, src, "conv1", "relu1", 16, 1);
    x = dt_graph_max_pool(g, x, "maxpool", 2, 2, 0);
    x = conv_relu(g, x, "conv2", "relu2", 32, 1);
    x = conv_relu(g, x, "conv3", "relu3", 64, 2);
    x = dt_graph_avg_pool(g, x, "avgpool", 1);
    return dt_layer_linear(g, x, "fc", options->num_classes);
}
