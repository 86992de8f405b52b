/* dtrain models: one line per network, or the layers of one. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "dtrain/config.h"
#include "dtrain/graph.h"
#include "dtrain/models.h"

enum { N_CLASSES = 1000, N_DETECTED = 91 }; /* of ImageNet and of COCO, as in torchvision */

static int image_size(const struct dt_model *model)
{
    return model->image_size > 0 ? model->image_size : 224;
}

/* The network for the evaluation of one image; the caller destroys it. */
static dt_status build(struct dt_graph **graph, const struct dt_model *model)
{
    const double mean[3] = {0, 0, 0}, std[3] = {1, 1, 1};
    static struct dt_config config;
    dt_status status = DT_OK;
    struct dt_graph *g;
    dt_config_init(&config);
    const struct dt_model_options options =
        dt_config_model_options(&config, model->detects ? N_DETECTED : N_CLASSES);
    DT_TRY(dt_graph_create(&g));
    DT_TRY_OUT(dt_graph_begin(g, DT_EVAL, 1, image_size(model), image_size(model)));
    if (model->detects)
        DT_TRY_OUT(dt_graph_boxes(g, 1));
    model->build(g, dt_graph_ingest(g, mean, std), model, &options);
    DT_TRY_OUT(dt_graph_check(g));
    *graph = g;
    g = NULL;
out:
    dt_graph_destroy(g);
    return status;
}

static size_t n_parameters(const struct dt_graph *g, const struct dt_node *node)
{
    size_t n = 0;
    for (int k = 0; k < node->n_src; k++)
        if (node->src[k] >= 0 && g->tensor[node->src[k]].role == DT_PARAM)
            n += dt_tensor_elements(&g->tensor[node->src[k]]);
    return n;
}

/* As torchvision counts: multiplications with an addition, of convolutions and linear layers. */
static double multiply_adds(const struct dt_graph *g, const struct dt_node *node)
{
    const bool counts = node->op == DT_OP_CONV || node->op == DT_OP_LINEAR;
    return counts ? dt_node_flops(g, node) / 2 : 0;
}

/* Those that several nodes share count once. */
static double all_parameters(const struct dt_graph *g)
{
    double n = 0;
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensor[t].role == DT_PARAM)
            n += (double)dt_tensor_elements(&g->tensor[t]);
    return n;
}

static dt_status print_summary(const struct dt_model *model)
{
    struct dt_graph *g;
    double ops = 0;
    DT_TRY(build(&g, model));
    for (int i = 0; i < g->n_nodes; i++)
        ops += multiply_adds(g, &g->node[i]);
    printf("%-30s %7.2f M %9.3f G  at %4d %9d x %d\n", model->name, all_parameters(g) * 1e-6,
           ops * 1e-9, image_size(model), model->min_image_size, model->min_image_size);
    dt_graph_destroy(g);
    return DT_OK;
}

static dt_status print_layers(const struct dt_model *model)
{
    struct dt_graph *g;
    double ops = 0, bytes = 0;
    DT_TRY(build(&g, model));
    printf("%-40s %-14s %-18s %12s %12s %9s\n", "layer", "op", "output", "parameters",
           "M mult-adds", "MB, fp32");
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        const struct dt_tensor *dst = node->dst[0] >= 0 ? &g->tensor[node->dst[0]] : NULL;
        char dims[48] = "";
        const double own_bytes = dst ? 4.0 * (double)dt_tensor_elements(dst) : 0;
        if (dst)
            dt_tensor_format_dims(dims, sizeof dims, dst);
        printf("%-40s %-14s %-18s %12zu %12.2f %9.2f\n", node->name, dt_op_name(node->op), dims,
               n_parameters(g, node), multiply_adds(g, node) * 1e-6, own_bytes * 1e-6);
        ops += multiply_adds(g, node);
        bytes += own_bytes;
    }
    printf("%-40s %-14s %-18s %12.0f %12.2f %9.2f\n", "all", "", "", all_parameters(g), ops * 1e-6,
           bytes * 1e-6);
    dt_graph_destroy(g);
    return DT_OK;
}

dt_status dt_cmd_models(const struct dt_arguments *args)
{
    const struct dt_model *models;
    const size_t n_models = dt_model_list(&models);
    if (args->n_operands > 0) {
        const struct dt_model *model = dt_model_find(args->operands[0]);
        return model ? print_layers(model) : DT_ERR_CONFIG;
    }
    printf("model.name                     parameters   multiply-adds   smallest image   "
           "(%d classes, detectors %d)\n",
           N_CLASSES, N_DETECTED);
    for (size_t i = 0; i < n_models; i++)
        DT_TRY(print_summary(&models[i]));
    return DT_OK;
}
