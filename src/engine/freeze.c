#include "engine/freeze.h"

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

/* The first parts of the parameters' names: "layer1" of "layer1.0.conv1.weight". */
struct modules {
    char name[MODULES_MAX][DT_NAME_MAX];
    const char *names[MODULES_MAX];
    size_t n;
};

static void list_modules(struct modules *m, const struct dt_graph *g)
{
    for (int t = 0; t < g->n_tensors && m->n < MODULES_MAX; t++) {
        if (g->tensor[t].role != DT_PARAM)
            continue;
        char *name = m->name[m->n];
        memcpy(name, g->tensor[t].name, DT_NAME_MAX);
        name[strcspn(name, ".")] = '\0';
        if (m->n == 0 || strcmp(name, m->names[m->n - 1]) != 0)
            m->names[m->n++] = name;
    }
}

static dt_status refuse_unknown(const struct dt_graph *g, const char *module)
{
    struct modules *m = NULL;
    char list[LIST_BYTES];
    struct dt_text text = dt_text_in(list, sizeof list);
    DT_TRY(DT_NEW(m, 1));
    list_modules(m, g);
    const char *near = dt_nearest(module, m->names, m->n);
    for (size_t i = 0; i < m->n; i++)
        dt_text_add(&text, "%s%s", i > 0 ? ", " : "", m->names[i]);
    dt_status status = DT_ERROR(
        DT_ERR_CONFIG, "optim.freeze: the model has no module \"%s\"%s%s%s; it has %s", module,
        near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "", list);
    free(m);
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
        dt_text_add(&text, " for %d epoch%s", unfreeze_epoch, unfreeze_epoch == 1 ? "" : "s");
    dt_text_add(&text, "; the backward pass ends at %s", lowest->name);
}
