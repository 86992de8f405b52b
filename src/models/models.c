/* The list of models, lookup by name, and what the models share. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/nearest.h"
#include "base/text.h"
#include "models/layers.h"

static const struct dt_model models[] = {
#define ROW(model, family, ...) {.name = #model, .build = dt_build_##family, __VA_ARGS__},
    DT_MODEL_LIST(ROW)
#undef ROW
};

size_t dt_model_list(const struct dt_model **list)
{
    *list = models;
    return DT_COUNT(models);
}

const struct dt_model *dt_model_find(const char *name)
{
    const char *names[DT_COUNT(models)];
    char list[32 * DT_COUNT(models)];
    struct dt_text text = dt_text_in(list, sizeof list);
    for (size_t i = 0; i < DT_COUNT(models); i++) {
        names[i] = models[i].name;
        if (strcmp(names[i], name) == 0)
            return &models[i];
        dt_text_add(&text, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = dt_nearest(name, names, DT_COUNT(names));
    if (nearest)
        DT_ERROR(DT_ERR_CONFIG, "there is no model \"%.63s\"; did you mean \"%s\"?", name, nearest);
    else
        DT_ERROR(DT_ERR_CONFIG, "there is no model \"%.63s\"; the models are %s", name, list);
    return NULL;
}

/* --- Initial distributions and the check of the options --- */

struct dt_init dt_init_fan_out(int out_channels, int kernel)
{
    return (struct dt_init){DT_INIT_NORMAL, sqrt(2.0 / ((double)kernel * kernel * out_channels))};
}

struct dt_init dt_init_fan_in(int fan_in)
{
    return (struct dt_init){DT_INIT_UNIFORM, 1.0 / sqrt(fan_in)};
}

int dt_layer_linear(struct dt_graph *g, int src, const char *name, int out_features)
{
    if (g->status != DT_OK || src < 0)
        return -1;
    const int *dim = g->tensor[src].dim;
    const struct dt_init init = dt_init_fan_in(dim[1] * dim[2] * dim[3]);
    return dt_graph_linear(g, src, name, out_features, init, init);
}

const char *dt_name(char out[DT_NAME_MAX], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out, DT_NAME_MAX, format, args);
    va_end(args);
    return out;
}

int dt_divisible_by_8(double channels)
{
    int n = (int)(channels + 4) / 8 * 8;
    n = n < 8 ? 8 : n;
    return n < 0.9 * channels ? n + 8 : n;
}

int dt_layer_conv_bn(struct dt_graph *g, int src, const char *at, struct dt_conv_options options,
                     const struct dt_conv_bn *norm)
{
    char n[DT_NAME_MAX];
    int x = dt_graph_conv(g, src, dt_name(n, "%s.0", at), options);
    x = dt_graph_bn_with(g, x, dt_name(n, "%s.1", at), 1, norm->eps, norm->momentum);
    return norm->activation ? dt_graph_activation(g, x, dt_name(n, "%s.2", at), norm->activation)
                            : x;
}

int dt_layer_squeeze_excitation(struct dt_graph *g, int src, const char *at, int squeezed,
                                enum dt_activation inner, enum dt_activation gate)
{
    char n[DT_NAME_MAX];
    if (g->status != DT_OK)
        return -1;
    const int channels = g->tensor[src].dim[1];
    struct dt_conv_options fc = {.out_channels = squeezed,
                                 .kernel = 1,
                                 .stride = 1,
                                 .bias = true,
                                 .init = dt_init_fan_out(squeezed, 1)};
    int x = dt_graph_avg_pool(g, src, dt_name(n, "%s.avgpool", at), 1);
    x = dt_graph_conv(g, x, dt_name(n, "%s.fc1", at), fc);
    x = dt_graph_activation(g, x, dt_name(n, "%s.activation", at), inner);
    fc.out_channels = channels;
    fc.init = dt_init_fan_out(channels, 1);
    x = dt_graph_conv(g, x, dt_name(n, "%s.fc2", at), fc);
    x = dt_graph_activation(g, x, dt_name(n, "%s.scale_activation", at), gate);
    return dt_graph_gate(g, src, x, dt_name(n, "%s.gate", at));
}

bool dt_model_check(struct dt_graph *g, int src, const struct dt_model *model,
                    const struct dt_model_options *options)
{
    dt_status status = DT_OK;
    DT_TRY_OUT(g->status);
    if (src < 0 || src >= g->n_tensors)
        DT_TRY_OUT(DT_ERROR(DT_ERR_INTERNAL, "model %s is built on tensor %d, which does not exist",
                            model->name, src));
    const int *dim = g->tensor[src].dim;
    if (dim[2] < model->min_image_size || dim[3] < model->min_image_size)
        DT_TRY_OUT(DT_ERROR(DT_ERR_CONFIG,
                            "model %s needs images of at least %dx%d pixels, not %dx%d: "
                            "raise model.image_size or choose another model",
                            model->name, model->min_image_size, model->min_image_size, dim[2],
                            dim[3]));
    if (options->num_classes < 1)
        DT_TRY_OUT(DT_ERROR(DT_ERR_CONFIG,
                            "model %s: model.num_classes is %d, but must be at least 1",
                            model->name, options->num_classes));
out:
    if (g->status == DT_OK)
        g->status = status;
    return status == DT_OK;
}
