/* dtrain models: one line per network. */
#include <stdio.h>

#include "cli/commands.h"
#include "dtrain/graph.h"
#include "dtrain/models.h"

enum { N_CLASSES = 1000 };

static dt_status count_parameters(size_t *n, const struct dt_model *model)
{
    const double mean[3] = {0, 0, 0}, std[3] = {1, 1, 1};
    const struct dt_model_options options = {.num_classes = N_CLASSES};
    struct dt_graph *graph;
    dt_status status = DT_OK;
    *n = 0;
    DT_TRY(dt_graph_create(&graph));
    DT_TRY_OUT(dt_graph_begin(graph, DT_EVAL, 1, model->min_image_size, model->min_image_size));
    model->build(graph, dt_graph_ingest(graph, mean, std), model, &options);
    DT_TRY_OUT(dt_graph_check(graph));
    for (int i = 0; i < graph->n_tensors; i++)
        if (graph->tensor[i].role == DT_PARAM)
            *n += dt_tensor_elements(&graph->tensor[i]);
out:
    dt_graph_destroy(graph);
    return status;
}

dt_status dt_cmd_models(const struct dt_arguments *args)
{
    const struct dt_model *models;
    size_t n_models = dt_model_list(&models), n;
    (void)args;
    printf("model.name   parameters for %d classes   smallest image\n", N_CLASSES);
    for (size_t i = 0; i < n_models; i++) {
        DT_TRY(count_parameters(&n, &models[i]));
        printf("%-12s %10.2f million %20d x %d\n", models[i].name, (double)n * 1e-6,
               models[i].min_image_size, models[i].min_image_size);
    }
    return DT_OK;
}
