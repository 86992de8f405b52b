/* What the model files share: initial distributions and the check of the options. */
#ifndef DTRAIN_MODELS_LAYERS_H
#define DTRAIN_MODELS_LAYERS_H

#include "dtrain/models.h"

/* Kaiming normal, fan_out, ReLU (He et al. 2015): normal of deviation sqrt(2 / (k * k * out)). */
struct dt_init dt_init_fan_out(int out_channels, int kernel);
/* PyTorch's default of convolution and linear, weights and bias: uniform of +-1 / sqrt(fan_in). */
struct dt_init dt_init_fan_in(int fan_in);
/* The linear layer `name` with PyTorch's default initialisation. */
int dt_layer_linear(struct dt_graph *g, int src, const char *name, int out_features);
/* Image size and number of classes against the row of the model; an error goes into the graph. */
bool dt_model_check(struct dt_graph *g, int src, const struct dt_model *model,
                    const struct dt_model_options *options);

int dt_build_resnet(struct dt_graph *g, int src, const struct dt_model *model,
                    const struct dt_model_options *options);
int dt_build_resnet_cifar(struct dt_graph *g, int src, const struct dt_model *model,
                          const struct dt_model_options *options);
int dt_build_vgg(struct dt_graph *g, int src, const struct dt_model *model,
                 const struct dt_model_options *options);
int dt_build_alexnet(struct dt_graph *g, int src, const struct dt_model *model,
                     const struct dt_model_options *options);
int dt_build_tiny(struct dt_graph *g, int src, const struct dt_model *model,
                  const struct dt_model_options *options);

#endif
