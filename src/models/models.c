/* The list of models, and lookup by name. */
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
