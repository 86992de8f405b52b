/* Helpers that the models share: initial distributions, the check of the options, the body of a
 * ResNet. */
#ifndef DTRAIN_MODELS_LAYERS_H
#define DTRAIN_MODELS_LAYERS_H

#include "dtrain/models.h"

/* Kaiming normal, fan_out, ReLU (He et al. 2015): normal with standard deviation sqrt(2 / (k * k *
 * out)). */
struct dt_init dt_init_fan_out(int out_channels, int kernel);
/* PyTorch's default for weights and bias of convolution and linear: uniform in +-1 / sqrt(fan_in).
 */
struct dt_init dt_init_fan_in(int fan_in);
/* The linear layer `name` with PyTorch's default initialisation. */
int dt_layer_linear(struct dt_graph *g, int src, const char *name, int out_features);
/* snprintf into out, which is returned: the name of a module. */
const char *dt_name(char out[DT_NAME_MAX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The nearest multiple of 8, but at least 8 and not less than 0.9 of it: torchvision's numbers of
 * channels. */
int dt_divisible_by_8(double channels);

struct dt_conv_bn {
    enum dt_activation activation;
    double eps, momentum; /* of the batch norm */
};
/* Modules `at`.0, a convolution without bias, .1, its batch norm, and .2, an activation if there is
 * one. */
int dt_layer_conv_bn(struct dt_graph *g, int src, const char *at, struct dt_conv_options options,
                     const struct dt_conv_bn *norm);
/* Squeeze and excitation (Hu et al. 2017): multiplies each channel by a factor that follows from
 * the averages of all channels. Modules `at`.fc1, to `squeezed` channels, and .fc2, from Kaiming
 * normal fan_out. */
int dt_layer_squeeze_excitation(struct dt_graph *g, int src, const char *at, int squeezed,
                                enum dt_activation inner, enum dt_activation gate);
/* Checks the image size and the number of classes against the model's row; an error is remembered
 * by the graph. */
bool dt_model_check(struct dt_graph *g, int src, const struct dt_model *model,
                    const struct dt_model_options *options);

/* --- A ResNet without its classifier, for the networks that are built on one (resnet.c) --- */

enum { DT_RESNET_STAGES = 4 };

struct dt_resnet_options {
    const char *prefix; /* of all names: "backbone.body.", or "" */
    bool zero_init_residual;
    bool frozen_norm; /* dt_graph_frozen_bn with norm_eps instead of batch norm */
    double norm_eps;
};

/* The ResNet whose variant, groups and group_width `model` has, up to its last stage, whose result
 * it returns; dst[i] gets the result of layer<i + 1>, which has 64 << i channels, or four times as
 * many from depth 50 on, at 1 / (4 << i) of the size. */
int dt_resnet_body(struct dt_graph *g, int src, const struct dt_model *model,
                   const struct dt_resnet_options *options, int dst[DT_RESNET_STAGES]);

/* dt_build_x in x.c; families with several models are declared several times. */
#define DT_BUILD_DECLARE(name, family, ...)                                          \
    int dt_build_##family(struct dt_graph *g, int src, const struct dt_model *model, \
                          const struct dt_model_options *options);
DT_MODEL_LIST(DT_BUILD_DECLARE)
#undef DT_BUILD_DECLARE

#endif
