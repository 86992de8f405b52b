/* dtrain models: one line per network. */
#include <stdio.h>

#include "cli/commands.h"
#include "dtrain/config.h"
#include "dtrain/graph.h"
#include "dtrain/models.h"

enum { N_CLASSES = 1000, N_DETECTED = 91 }; /* of ImageNet and of COCO, as in torchvision */

static dt_status count_parameters(size_t *n, const struct dt_model *model)
{
    const double mean[3] = {0, 0, 0}, std[3] = {1, 1, 1};
    static struct dt_config config;
    struct dt_graph *graph;
    dt_status status = DT_OK;
    *n = 0;
    dt_config_init(&config);
    const struct dt_model_options options =
        dt_config_model_options(&config, model->detects ? N_DETECTED : N_CLASSES);
    DT_TRY(dt_graph_create(&graph));
    DT_TRY_OUT(dt_graph_begin(graph, DT_EVAL, 1, model->min_image_size, model->min_image_size));
    if (model->detects)
        DT_TRY_OUT(dt_graph_boxes(graph, 1));
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
    printf("model.name                parameters   smallest image   (%d classes, detectors %d)\n",
           N_CLASSES, N_DETECTED);
    for (size_t i = 0; i < n_models; i++) {
        DT_TRY(count_parameters(&n, &models[i]));
        printf("%-24s %6.2f million %10d x %d\n", models[i].name, (double)n * 1e-6,
               models[i].min_image_size, models[i].min_image_size);
    }
    return DT_OK;
}
