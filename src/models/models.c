/* The list of models, and finding one by name. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/nearest.h"
#include "models/layers.h"

/* name, build, variant, batch norm, smallest image, classifier. The smallest images: 32 keeps
 * ResNet's and VGG's last stage at 1x1 or more; AlexNet's windows need 63. */
static const struct dt_model models[] = {
    {"resnet18", dt_build_resnet, 18, true, 32, "fc"},
    {"resnet34", dt_build_resnet, 34, true, 32, "fc"},
    {"resnet50", dt_build_resnet, 50, true, 32, "fc"},
    {"resnet101", dt_build_resnet, 101, true, 32, "fc"},
    {"resnet152", dt_build_resnet, 152, true, 32, "fc"},
    {"resnet20", dt_build_resnet_cifar, 20, true, 8, "fc"},
    {"resnet32", dt_build_resnet_cifar, 32, true, 8, "fc"},
    {"resnet44", dt_build_resnet_cifar, 44, true, 8, "fc"},
    {"resnet56", dt_build_resnet_cifar, 56, true, 8, "fc"},
    {"resnet110", dt_build_resnet_cifar, 110, true, 8, "fc"},
    {"vgg11", dt_build_vgg, 11, false, 32, "classifier.6"},
    {"vgg13", dt_build_vgg, 13, false, 32, "classifier.6"},
    {"vgg16", dt_build_vgg, 16, false, 32, "classifier.6"},
    {"vgg19", dt_build_vgg, 19, false, 32, "classifier.6"},
    {"vgg11_bn", dt_build_vgg, 11, true, 32, "classifier.6"},
    {"vgg13_bn", dt_build_vgg, 13, true, 32, "classifier.6"},
    {"vgg16_bn", dt_build_vgg, 16, true, 32, "classifier.6"},
    {"vgg19_bn", dt_build_vgg, 19, true, 32, "classifier.6"},
    {"alexnet", dt_build_alexnet, 0, false, 63, "classifier.6"},
    {"tiny", dt_build_tiny, 0, false, 8, "fc"},
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
    int used = 0;
    for (size_t i = 0; i < DT_COUNT(models); i++) {
        names[i] = models[i].name;
        if (strcmp(names[i], name) == 0)
            return &models[i];
        used += snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = dt_nearest(name, names, DT_COUNT(names));
    if (nearest)
        DT_ERROR(DT_ERR_CONFIG, "there is no model \"%.63s\"; did you mean \"%s\"?", name, nearest);
    else
        DT_ERROR(DT_ERR_CONFIG, "there is no model \"%.63s\"; the models are %s", name, list);
    return NULL;
}
