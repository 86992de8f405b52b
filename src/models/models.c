/* The list of models, and finding one by name. */
#include <string.h>

#include "base/mem.h"
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

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Levenshtein distance; only the first characters of `a` count. */
static size_t distance(const char *a, const char *b)
{
    enum { MAX = 32 };
    size_t row[MAX + 1];
    const size_t n = strnlen(a, MAX), m = strlen(b);
    for (size_t i = 0; i <= n; i++)
        row[i] = i;
    for (size_t k = 0; k < m; k++) {
        size_t diagonal = row[0];
        row[0] = k + 1;
        for (size_t i = 0; i < n; i++) {
            size_t above = row[i + 1];
            row[i + 1] = min_of(min_of(above, row[i]) + 1, diagonal + (a[i] != b[k]));
            diagonal = above;
        }
    }
    return row[n];
}

const struct dt_model *dt_model_find(const char *name)
{
    const struct dt_model *nearest = &models[0];
    for (size_t i = 0; i < DT_COUNT(models); i++) {
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
        if (distance(name, models[i].name) < distance(name, nearest->name))
            nearest = &models[i];
    }
    DT_ERROR(DT_ERR_CONFIG, "model.name: there is no model \"%s\"; did you mean \"%s\"?", name,
             nearest->name);
    return NULL;
}
