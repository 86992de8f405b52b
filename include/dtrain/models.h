/* The list of models. A model is a function that adds nodes to a graph; names, shapes and
 * initialisation are torchvision's (ResNet is v1.5: stride on the 3x3 convolution).
 * A new model: src/models/x.c and one row in src/models/models.c. */
#ifndef DTRAIN_MODELS_H
#define DTRAIN_MODELS_H

#include "dtrain/graph.h"

struct dt_model_options {
    int num_classes;
    bool zero_init_residual; /* scale of the last batch norm of each residual block starts at 0 */
    double dropout;
};

struct dt_model {
    const char *name;
    /* From the normalised image (N x 3 x H x W) to logits (N x num_classes); returns their id. */
    int (*build)(struct dt_graph *g, int src, const struct dt_model *model,
                 const struct dt_model_options *options);
    int variant; /* depth or another number that `build` understands */
    bool norm;   /* with batch norm, where a family has both */
    int min_image_size;
    const char *head; /* prefix of the classifier's parameters: replaced when classes differ */
};

/* NULL with error DT_ERR_CONFIG that names the nearest model, or all where none is near. */
const struct dt_model *dt_model_find(const char *name);
size_t dt_model_list(const struct dt_model **models);

#endif
