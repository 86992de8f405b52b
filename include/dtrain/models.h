/* The list of models. A model is a function that adds nodes to a graph; names, shapes and
 * initialisation are torchvision's (ResNet is v1.5: stride on the 3x3 convolution).
 * A new model: src/models/x.c with its dt_build_x, and one row in DT_MODEL_LIST. */
#ifndef DTRAIN_MODELS_H
#define DTRAIN_MODELS_H

#include "dtrain/graph.h"

/* One row per model: X(name, function that builds it, then the fields of struct dt_model from
 * variant on). The smallest images: 32 keeps ResNet's and VGG's last stage at 1x1 or more;
 * AlexNet's windows need 63. */
#define DT_DETECTOR_HEAD "head.classification_head.cls_logits"
#define DT_MODEL_LIST(X)                                                       \
    X(resnet18, resnet, 18, true, 32, "fc", false)                             \
    X(resnet34, resnet, 34, true, 32, "fc", false)                             \
    X(resnet50, resnet, 50, true, 32, "fc", false)                             \
    X(resnet101, resnet, 101, true, 32, "fc", false)                           \
    X(resnet152, resnet, 152, true, 32, "fc", false)                           \
    X(resnet20, resnet_cifar, 20, true, 8, "fc", false)                        \
    X(resnet32, resnet_cifar, 32, true, 8, "fc", false)                        \
    X(resnet44, resnet_cifar, 44, true, 8, "fc", false)                        \
    X(resnet56, resnet_cifar, 56, true, 8, "fc", false)                        \
    X(resnet110, resnet_cifar, 110, true, 8, "fc", false)                      \
    X(vgg11, vgg, 11, false, 32, "classifier.6", false)                        \
    X(vgg13, vgg, 13, false, 32, "classifier.6", false)                        \
    X(vgg16, vgg, 16, false, 32, "classifier.6", false)                        \
    X(vgg19, vgg, 19, false, 32, "classifier.6", false)                        \
    X(vgg11_bn, vgg, 11, true, 32, "classifier.6", false)                      \
    X(vgg13_bn, vgg, 13, true, 32, "classifier.6", false)                      \
    X(vgg16_bn, vgg, 16, true, 32, "classifier.6", false)                      \
    X(vgg19_bn, vgg, 19, true, 32, "classifier.6", false)                      \
    X(alexnet, alexnet, 0, false, 63, "classifier.6", false)                   \
    X(tiny, tiny, 0, false, 8, "fc", false)                                    \
    X(retinanet_resnet18_fpn, retinanet, 18, true, 32, DT_DETECTOR_HEAD, true) \
    X(retinanet_resnet34_fpn, retinanet, 34, true, 32, DT_DETECTOR_HEAD, true) \
    X(retinanet_resnet50_fpn, retinanet, 50, true, 32, DT_DETECTOR_HEAD, true) \
    X(retinanet_resnet101_fpn, retinanet, 101, true, 32, DT_DETECTOR_HEAD, true)

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
    double dropout;
    struct dt_detector_options detector;
};

struct dt_model {
    const char *name;
    /* From the normalised image (N x 3 x H x W) to logits (N x num_classes); returns their id. A
     * detector, whose program needs dt_graph_boxes, adds its losses or its detections as well. */
    int (*build)(struct dt_graph *g, int src, const struct dt_model *model,
                 const struct dt_model_options *options);
    int variant; /* depth or another number that `build` understands */
    bool norm;   /* with batch norm, in families that exist with and without */
    int min_image_size;
    const char *head; /* prefix of the classifier's parameters, which are replaced when the classes
                         differ */
    bool detects;     /* boxes, instead of classifying images */
};

/* NULL with DT_ERR_CONFIG, whose text names the nearest model, or all models if none is near. */
const struct dt_model *dt_model_find(const char *name);
size_t dt_model_list(const struct dt_model **models);

#endif
