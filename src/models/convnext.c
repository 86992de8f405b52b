/* ConvNeXt (Liu et al. 2022, "A ConvNet for the 2020s"), as torchvision builds it. Weights start
 * from normal(0.02), bias 0, the scale of a residual branch from 1e-6. */
#include "base/mem.h"
#include "models/layers.h"

enum { N_STAGES = 4 };

static const struct {
    int channels, n_blocks[N_STAGES]; /* channels of the first stage; every stage doubles them */
} variants[] = {{96, {3, 3, 9, 3}}, {96, {3, 3, 27, 3}}, {128, {3, 3, 27, 3}}};

static const struct dt_init init = {DT_INIT_NORMAL, 0.02}, zeros = {DT_INIT_CONSTANT, 0};

/* A linear layer at every pixel. */
static int linear(struct dt_graph *g, int src, const char *name, int channels)
{
    const struct dt_conv_options options = {.out_channels = channels,
                                            .kernel = 1,
                                            .stride = 1,
                                            .bias = true,
                                            .linear = true,
                                            .init = init};
    return dt_graph_conv(g, src, name, options);
}

/* A convolution of windows that do not overlap. */
static int patches(struct dt_graph *g, int src, const char *name, int channels, int side)
{
    const struct dt_conv_options options = {
        .out_channels = channels, .kernel = side, .stride = side, .bias = true, .init = init};
    return dt_graph_conv(g, src, name, options);
}

static int block(struct dt_graph *g, int src, const char *at, int channels, double drop)
{
    const struct dt_conv_options filter = {.out_channels = channels,
                                           .kernel = 7,
                                           .stride = 1,
                                           .pad = 3,
                                           .groups = channels,
                                           .bias = true,
                                           .init = init};
    char n[DT_NAME_MAX];
    int x = dt_graph_conv(g, src, dt_name(n, "%s.block.0", at), filter);
    x = dt_graph_layer_norm(g, x, dt_name(n, "%s.block.2", at));
    x = linear(g, x, dt_name(n, "%s.block.3", at), 4 * channels);
    x = dt_graph_activation(g, x, dt_name(n, "%s.block.4", at), DT_GELU);
    x = linear(g, x, dt_name(n, "%s.block.5", at), channels);
    return dt_graph_scaled_add(g, x, src, dt_name(n, "%s.add", at), drop, at, 1e-6);
}

int dt_build_convnext(struct dt_graph *g, int src, const struct dt_model *model,
                      const struct dt_model_options *options)
{
    const int *n_blocks = variants[model->variant].n_blocks;
    const int last = n_blocks[0] + n_blocks[1] + n_blocks[2] + n_blocks[3] - 1;
    char n[DT_NAME_MAX];
    int channels = variants[model->variant].channels, index = 0;
    if (!dt_model_check(g, src, model, options))
        return -1;
    int x = patches(g, src, "features.0.0", channels, 4);
    x = dt_graph_layer_norm(g, x, "features.0.1");
    for (int i = 0; i < N_STAGES; i++) {
        if (i > 0) {
            channels *= 2;
            x = dt_graph_layer_norm(g, x, dt_name(n, "features.%d.0", 2 * i));
            x = patches(g, x, dt_name(n, "features.%d.1", 2 * i), channels, 2);
        }
        for (int k = 0; k < n_blocks[i]; k++, index++)
            x = block(g, x, dt_name(n, "features.%d.%d", 2 * i + 1, k), channels,
                      options->stochastic_depth * index / last);
    }
    x = dt_graph_layer_norm(g, dt_graph_avg_pool(g, x, "avgpool", 1), "classifier.0");
    return dt_graph_linear(g, x, "classifier.2", options->num_classes, init, zeros);
}
