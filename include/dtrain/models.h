/* The list of models. A model is a function that adds nodes to a graph; names, shapes and
 * initialisation are torchvision's (ResNet is v1.5: stride on the 3x3 convolution).
 * A new model: src/models/x.c with its dt_build_x, and one row in DT_MODEL_LIST. */
#ifndef DTRAIN_MODELS_H
#define DTRAIN_MODELS_H

#include "dtrain/graph.h"

/* The fields that the models of a family share. The smallest images: 32 keeps ResNet's and VGG's
 * last stage at 1x1 or more; AlexNet's windows need 63. */
#define DT_RESNET       .norm = true, .min_image_size = 32, .head = "fc"
#define DT_RESNET_CIFAR .norm = true, .image_size = 32, .min_image_size = 8, .head = "fc"
#define DT_VGG          .min_image_size = 32, .dropout = 0.5, .head = "classifier.6"
#define DT_DENSENET     .norm = true, .min_image_size = 32, .head = "classifier"
#define DT_SQUEEZENET   .min_image_size = 32, .dropout = 0.5, .head = "classifier.1"
#define DT_MOBILENET    .norm = true, .min_image_size = 32, .dropout = 0.2
#define DT_EFFICIENTNET \
    .norm = true, .min_image_size = 32, .stochastic_depth = 0.2, .head = "classifier.1"
#define DT_CONVNEXT .min_image_size = 32, .head = "classifier.2"
#define DT_RETINANET                                     \
    .norm = true, .min_image_size = 32, .detects = true, \
    .head = "head.classification_head.cls_logits"

/* One row per model: X(name, function that builds it, then members of struct dt_model). */
#define DT_MODEL_LIST(X)                                                                       \
    X(resnet18, resnet, .variant = 18, DT_RESNET)                                              \
    X(resnet34, resnet, .variant = 34, DT_RESNET)                                              \
    X(resnet50, resnet, .variant = 50, DT_RESNET)                                              \
    X(resnet101, resnet, .variant = 101, DT_RESNET)                                            \
    X(resnet152, resnet, .variant = 152, DT_RESNET)                                            \
    X(resnext50_32x4d, resnet, .variant = 50, .groups = 32, .group_width = 4, DT_RESNET)       \
    X(resnext101_32x8d, resnet, .variant = 101, .groups = 32, .group_width = 8, DT_RESNET)     \
    X(resnext101_64x4d, resnet, .variant = 101, .groups = 64, .group_width = 4, DT_RESNET)     \
    X(wide_resnet50_2, resnet, .variant = 50, .groups = 1, .group_width = 128, DT_RESNET)      \
    X(wide_resnet101_2, resnet, .variant = 101, .groups = 1, .group_width = 128, DT_RESNET)    \
    X(resnet20, resnet_cifar, .variant = 20, DT_RESNET_CIFAR)                                  \
    X(resnet32, resnet_cifar, .variant = 32, DT_RESNET_CIFAR)                                  \
    X(resnet44, resnet_cifar, .variant = 44, DT_RESNET_CIFAR)                                  \
    X(resnet56, resnet_cifar, .variant = 56, DT_RESNET_CIFAR)                                  \
    X(resnet110, resnet_cifar, .variant = 110, DT_RESNET_CIFAR)                                \
    X(vgg11, vgg, .variant = 11, DT_VGG)                                                       \
    X(vgg13, vgg, .variant = 13, DT_VGG)                                                       \
    X(vgg16, vgg, .variant = 16, DT_VGG)                                                       \
    X(vgg19, vgg, .variant = 19, DT_VGG)                                                       \
    X(vgg11_bn, vgg, .variant = 11, .norm = true, DT_VGG)                                      \
    X(vgg13_bn, vgg, .variant = 13, .norm = true, DT_VGG)                                      \
    X(vgg16_bn, vgg, .variant = 16, .norm = true, DT_VGG)                                      \
    X(vgg19_bn, vgg, .variant = 19, .norm = true, DT_VGG)                                      \
    X(alexnet, alexnet, .min_image_size = 63, .dropout = 0.5, .head = "classifier.6")          \
    X(densenet121, densenet, .variant = 121, DT_DENSENET)                                      \
    X(densenet161, densenet, .variant = 161, DT_DENSENET)                                      \
    X(densenet169, densenet, .variant = 169, DT_DENSENET)                                      \
    X(densenet201, densenet, .variant = 201, DT_DENSENET)                                      \
    X(squeezenet1_0, squeezenet, .variant = 10, DT_SQUEEZENET)                                 \
    X(squeezenet1_1, squeezenet, .variant = 11, DT_SQUEEZENET)                                 \
    X(mobilenet_v2, mobilenet_v2, .head = "classifier.1", DT_MOBILENET)                        \
    X(mobilenet_v3_small, mobilenet_v3, .variant = 0, .head = "classifier.3", DT_MOBILENET)    \
    X(mobilenet_v3_large, mobilenet_v3, .variant = 1, .head = "classifier.3", DT_MOBILENET)    \
    X(efficientnet_b0, efficientnet, .variant = 0, .dropout = 0.2, DT_EFFICIENTNET)            \
    X(efficientnet_b1, efficientnet, .variant = 1, .image_size = 240, .dropout = 0.2,          \
      DT_EFFICIENTNET)                                                                         \
    X(efficientnet_b2, efficientnet, .variant = 2, .image_size = 288, .dropout = 0.3,          \
      DT_EFFICIENTNET)                                                                         \
    X(efficientnet_b3, efficientnet, .variant = 3, .image_size = 300, .dropout = 0.3,          \
      DT_EFFICIENTNET)                                                                         \
    X(convnext_tiny, convnext, .variant = 0, .stochastic_depth = 0.1, DT_CONVNEXT)             \
    X(convnext_small, convnext, .variant = 1, .stochastic_depth = 0.4, DT_CONVNEXT)            \
    X(convnext_base, convnext, .variant = 2, .stochastic_depth = 0.5, DT_CONVNEXT)             \
    X(tiny, tiny, .image_size = 32, .min_image_size = 8, .head = "fc")                         \
    X(retinanet_resnet18_fpn, retinanet, .variant = 18, DT_RETINANET)                          \
    X(retinanet_resnet34_fpn, retinanet, .variant = 34, DT_RETINANET)                          \
    X(retinanet_resnet50_fpn, retinanet, .variant = 50, DT_RETINANET)                          \
    X(retinanet_resnet101_fpn, retinanet, .variant = 101, DT_RETINANET)                        \
    X(retinanet_resnet152_fpn, retinanet, .variant = 152, DT_RETINANET)                        \
    X(retinanet_resnext50_32x4d_fpn, retinanet, .variant = 50, .groups = 32, .group_width = 4, \
      DT_RETINANET)

struct dt_detector_options {
    int fpn_channels;     /* of the pyramid and the heads */
    int trainable_layers; /* stages of the backbone with its stem, from the last; 5 = all */
    bool frozen_norm;     /* backbone: dt_graph_frozen_bn with norm_eps instead of batch norm */
    double norm_eps;
    bool p6_from_c5, group_norm; /* as torchvision's version 2; group norm in the heads */
    struct dt_detect detect;     /* losses, score and anchors.base; the rest is the model's */
};

struct dt_model_options {
    int num_classes;
    bool zero_init_residual; /* the scale of each residual block's last batch norm starts at 0 */
    double dropout;          /* in the classifier, where the network has it */
    double stochastic_depth; /* of the last residual branch; linear from 0 for the first */
    struct dt_detector_options detector;
};

struct dt_model {
    const char *name;
    /* From the normalised image (N x 3 x H x W) to logits (N x num_classes); returns their id. A
     * detector, whose program needs dt_graph_boxes, adds its losses or its detections as well. */
    int (*build)(struct dt_graph *g, int src, const struct dt_model *model,
                 const struct dt_model_options *options);
    int variant; /* depth or another number that `build` understands */
    /* ResNeXt and wide ResNets: groups of the 3x3 convolutions, and channels of each in the first
     * stage; 0: 1 and 64. */
    int groups, group_width;
    bool norm;                        /* with batch norm, in families that exist with and without */
    double dropout, stochastic_depth; /* by default; 0: there is none */
    int image_size;                   /* of published results; 0: 224 */
    int min_image_size;
    const char *head; /* prefix of the classifier's parameters, which are replaced when the classes
                         differ */
    bool detects;     /* boxes, instead of classifying images */
};

/* NULL with DT_ERR_CONFIG, whose text names the nearest model, or all models if none is near. */
const struct dt_model *dt_model_find(const char *name);
size_t dt_model_list(const struct dt_model **models);

#endif
