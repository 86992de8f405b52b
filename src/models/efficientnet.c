/* EfficientNet (Tan and Le 2019, "EfficientNet: Rethinking Model Scaling for Convolutional Neural
 * Networks"), as torchvision builds it: B<variant> has more channels and layers than B0.
 * Convolutions start from Kaiming normal fan_out, the classifier from uniform(1 / sqrt(classes)),
 * bias 0. */
#include <math.h>

#include "base/mem.h"
#include "models/layers.h"

static const struct {
    double width, depth;
} scales[] = {{1, 1}, {1, 1.1}, {1.1, 1.2}, {1.2, 1.4}};

static const struct stage {
    int expand, kernel, stride, channels, n;
} stages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
              {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};

static int conv_bn(struct dt_graph *g, int src, const char *at, struct dt_conv_options options,
                   enum dt_activation activation)
{
    const struct dt_conv_bn norm = {activation, .eps = 1e-5, .momentum = 0.1};
    options.pad = options.kernel / 2;
    options.init = dt_init_fan_out(options.out_channels, options.kernel);
    return dt_layer_conv_bn(g, src, at, options, &norm);
}

/* An inverted residual whose depthwise result is gated; `drop`: its stochastic depth. */
static int block(struct dt_graph *g, int src, const char *module, const struct stage *s, int stride,
                 int channels, double drop)
{
    char at[DT_NAME_MAX], n[DT_NAME_MAX];
    if (g->status != DT_OK)
        return -1;
    const int before = g->tensor[src].dim[1], width = dt_divisible_by_8(before * s->expand);
    const struct dt_conv_options expand = {.out_channels = width, .kernel = 1, .stride = 1};
    const struct dt_conv_options filter = {
        .out_channels = width, .kernel = s->kernel, .stride = stride, .groups = width};
    const struct dt_conv_options project = {.out_channels = channels, .kernel = 1, .stride = 1};
    int x = src, i = 0;
    dt_name(at, "%s.block", module);
    if (s->expand > 1)
        x = conv_bn(g, x, dt_name(n, "%s.%d", at, i++), expand, DT_SILU);
    x = conv_bn(g, x, dt_name(n, "%s.%d", at, i++), filter, DT_SILU);
    x = dt_layer_squeeze_excitation(g, x, dt_name(n, "%s.%d", at, i++), before / 4, DT_SILU,
                                    DT_SIGMOID);
    x = conv_bn(g, x, dt_name(n, "%s.%d", at, i), project, DT_NO_ACTIVATION);
    return stride == 1 && before == channels
               ? dt_graph_scaled_add(g, x, src, dt_name(n, "%s.add", module), drop, NULL, 0)
               : x;
}

int dt_build_efficientnet(struct dt_graph *g, int src, const struct dt_model *model,
                          const struct dt_model_options *options)
{
    const double width = scales[model->variant].width, depth = scales[model->variant].depth;
    const struct dt_init zeros = {DT_INIT_CONSTANT, 0};
    char name[DT_NAME_MAX];
    int n_blocks = 0, index = 0;
    if (!dt_model_check(g, src, model, options))
        return -1;
    for (size_t i = 0; i < DT_COUNT(stages); i++)
        n_blocks += (int)ceil(stages[i].n * depth);
    const struct dt_conv_options first = {
        .out_channels = dt_divisible_by_8(32 * width), .kernel = 3, .stride = 2};
    int x = conv_bn(g, src, "features.0", first, DT_SILU);
    for (size_t i = 0; i < DT_COUNT(stages); i++)
        for (int k = 0; k < (int)ceil(stages[i].n * depth); k++, index++)
            x = block(g, x, dt_name(name, "features.%d.%d", (int)i + 1, k), &stages[i],
                      k == 0 ? stages[i].stride : 1, dt_divisible_by_8(stages[i].channels * width),
                      options->stochastic_depth * index / n_blocks);
    const struct dt_conv_options last = {
        .out_channels = 4 * dt_divisible_by_8(320 * width), .kernel = 1, .stride = 1};
    x = dt_graph_avg_pool(g, conv_bn(g, x, "features.8", last, DT_SILU), "avgpool", 1);
    x = dt_graph_dropout(g, x, "classifier.0", options->dropout);
    const struct dt_init init = {DT_INIT_UNIFORM, 1 / sqrt(options->num_classes)};
    return dt_graph_linear(g, x, "classifier.1", options->num_classes, init, zeros);
}
