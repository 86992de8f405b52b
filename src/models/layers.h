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
