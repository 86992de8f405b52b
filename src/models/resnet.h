/* A ResNet without its classifier, for the networks that are built on one. */
#ifndef DTRAIN_MODELS_RESNET_H
#define DTRAIN_MODELS_RESNET_H

#include "models/layers.h"

enum { DT_RESNET_STAGES = 4 };

struct dt_resnet_options {
    const char *prefix; /* of all names: "backbone.body.", or "" */
    bool zero_init_residual;
    bool frozen_norm; /* dt_graph_frozen_bn with norm_eps instead of batch norm */
    double norm_eps;
};

/* resnet18 .. resnet152 up to its last stage, whose result it returns; dst[i] gets that of
 * layer<i + 1>, which has 64 << i channels, or four times as many from depth 50 on, at 1 / (4 << i)
 * of the size. */
int dt_resnet_body(struct dt_graph *g, int src, int depth, const struct dt_resnet_options *options,
                   int dst[DT_RESNET_STAGES]);

#endif
