/* VGG 11, 13, 16 and 19, with and without batch norm (Simonyan and Zisserman 2014), as torchvision
 * builds them: adaptive pooling to 7x7 before the classifier, convolutions always with bias.
 * Convolutions start from Kaiming normal fan_out, linear layers from normal(0.01), bias 0. */
#include <stdio.h>

#include "models/layers.h"

enum { N_STAGES = 5 };

static const struct {
    int depth;
    int n_convs[N_STAGES];
} variants[] = {
    {11, {1, 1, 2, 2, 2}},
    {13, {2, 2, 2, 2, 2}},
    {16, {2, 2, 3, 3, 3}},
    {19, {2, 2, 4, 4, 4}},
};

static const int channels[N_STAGES] = {64, 128, 256, 512, 512};

static const char *feature(char out[DT_NAME_MAX], int *index)
{
    snprintf(out, DT_NAME_MAX, "features.%d", (*index)++);
    return out;
}

static int features(struct dt_graph *g, int src, const int n_convs[N_STAGES], bool norm)
{
    char name[DT_NAME_MAX];
    int index = 0, x = src;
    for (int i = 0; i < N_STAGES; i++) {
        for (int k = 0; k < n_convs[i]; k++) {
            struct dt_conv_options conv = {.out_channels = channels[i],
                                           .kernel = 3,
                                           .stride = 1,
                                           .pad = 1,
                                           .bias = true,
                                           .init = dt_init_fan_out(channels[i], 3)};
            x = dt_graph_conv(g, x, feature(name, &index), conv);
            if (norm)
                x = dt_graph_bn(g, x, feature(name, &index), 1);
            x = dt_graph_relu(g, x, feature(name, &index));
        }
        x = dt_graph_max_pool(g, x, feature(name, &index), 2, 2, 0);
    }
    return x;
}

int dt_build_vgg(struct dt_graph *g, int src, const struct dt_model *model,
                 const struct dt_model_options *options)
{
    const struct dt_init init = {DT_INIT_NORMAL, 0.01}, zeros = {DT_INIT_CONSTANT, 0};
    if (!dt_model_check(g, src, model, options))
        return -1;
    int x = src;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (variants[i].depth == model->variant)
            x = features(g, src, variants[i].n_convs, model->norm);
    }
    x = dt_graph_avg_pool(g, x, "avgpool", 7);
    x = dt_graph_linear(g, x, "classifier.0", 4096, init, zeros);
    x = dt_graph_relu(g, x, "classifier.1");
    x = dt_graph_dropout(g, x, "classifier.2", options->dropout);
    x = dt_graph_linear(g, x, "classifier.3", 4096, init, zeros);
    x = dt_graph_relu(g, x, "classifier.4");
    x = dt_graph_dropout(g, x, "classifier.5", options->dropout);
    return dt_graph_linear(g, x, "classifier.6", options->num_classes, init, zeros);
}
