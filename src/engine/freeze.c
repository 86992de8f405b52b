#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/nearest.h"
#include "base/text.h"
#include "dtrain/config.h"

enum { MODULES_MAX = 256, LIST_BYTES = 1024 };

static bool is_trained(const struct dt_tensor *t)
{
    return t->role == DT_PARAM && !t->frozen;
}

/* Modules are the first parts of the parameters' names: "layer1" of "layer1.0.conv1.weight". */
static dt_status refuse_unknown(const struct dt_graph *g, const char *module)
{
    char(*name)[DT_NAME_MAX] = NULL, list[LIST_BYTES];
    const char *names[MODULES_MAX];
    size_t n = 0;
    struct dt_text text = dt_text_in(list, sizeof list);
    DT_TRY(DT_NEW(name, MODULES_MAX));
    for (int t = 0; t < g->n_tensors && n < MODULES_MAX; t++) {
        if (g->tensor[t].role != DT_PARAM)
            continue;
        memcpy(name[n], g->tensor[t].name, DT_NAME_MAX);
        name[n][strcspn(name[n], ".")] = '\0';
        if (n > 0 && strcmp(name[n], names[n - 1]) == 0)
            continue;
        dt_text_add(&text, "%s%s", n > 0 ? ", " : "", name[n]);
        names[n] = name[n];
        n++;
    }
    const char *near = dt_nearest(module, names, n);
    dt_status status = DT_ERROR(
        DT_ERR_CONFIG, "optim.freeze: the model has no module \"%s\"%s%s%s; it has %s", module,
        near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "", list);
    free(name);
    return status;
}

dt_status dt_freeze(struct dt_graph *g, const char *modules)
{
    char module[DT_PATH_MAX];
    const char *rest = modules;
    bool is_any_trained = false;
    while ((rest = dt_config_names_next(rest, module, sizeof module)))
        if (dt_graph_freeze(g, module) == 0)
            return refuse_unknown(g, module);
    for (int t = 0; t < g->n_tensors; t++)
        is_any_trained = is_any_trained || is_trained(&g->tensor[t]);
    if (!is_any_trained)
        DT_FAIL(DT_ERR_CONFIG, "optim.freeze: all parameters are frozen; remove the modules to "
                               "be trained");
    return DT_OK;
}

/* The first node with a parameter that is trained; the loss comes last. */
static const struct dt_node *find_lowest(const struct dt_graph *g)
{
    int tensor[DT_MAX_SRC + DT_MAX_DST];
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = dt_node_tensors(&g->node[i], tensor); k > 0; k--)
            if (g->node[i].phase == DT_TRAIN && is_trained(&g->tensor[tensor[k - 1]]))
                return &g->node[i];
    return NULL;
}

void dt_freeze_describe(char *out, size_t bytes, const struct dt_graph *g, int unfreeze_epoch)
{
    struct dt_text text = dt_text_in(out, bytes);
    const struct dt_node *lowest = find_lowest(g);
    int n_params = 0, n_frozen = 0;
    for (int t = 0; t < g->n_tensors; t++) {
        n_params += g->tensor[t].role == DT_PARAM;
        n_frozen += g->tensor[t].frozen;
    }
    if (n_frozen == 0 || !lowest)
        return;
    dt_text_add(&text, "%d of %d parameters", n_frozen, n_params);
    if (unfreeze_epoch > 0)
        dt_text_add(&text, " for %d epoch%s", unfreeze_epoch, DT_S(unfreeze_epoch));
    dt_text_add(&text, "; the backward pass ends at %s", lowest->name);
}
