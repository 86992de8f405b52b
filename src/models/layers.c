/* Initial distributions and option checks shared by the models. */
#include "models/layers.h"

#include <math.h>

struct dt_init dt_init_fan_out(int out_channels, int kernel)
{
    return (struct dt_init){DT_INIT_NORMAL, sqrt(2.0 / ((double)kernel * kernel * out_channels))};
}

struct dt_init dt_init_fan_in(int fan_in)
{
    return (struct dt_init){DT_INIT_UNIFORM, 1.0 / sqrt(fan_in)};
}

int dt_layer_linear(struct dt_graph *g, int src, const char *name, int out_features)
{
    if (g->status != DT_OK || src < 0)
        return -1;
    const int *dim = g->tensor[src].dim;
    const struct dt_init init = dt_init_fan_in(dim[1] * dim[2] * dim[3]);
    return dt_graph_linear(g, src, name, out_features, init, init);
}

static dt_status check_input(const struct dt_graph *g, int src, const struct dt_model *model,
                             const struct dt_model_options *options)
{
    DT_TRY(g->status);
    if (src < 0 || src >= g->n_tensors)
        DT_FAIL(DT_ERR_INTERNAL, "model %s is built on tensor %d, which does not exist",
                model->name, src);
    const int *dim = g->tensor[src].dim;
    if (dim[2] < model->min_image_size || dim[3] < model->min_image_size)
        DT_FAIL(DT_ERR_CONFIG,
                "model %s needs images of at least %dx%d pixels, not %dx%d: "
                "raise model.image_size or choose another model",
                model->name, model->min_image_size, model->min_image_size, dim[2], dim[3]);
    if (options->num_classes < 1)
        DT_FAIL(DT_ERR_CONFIG, "model %s: model.num_classes is %d, but must be at least 1",
                model->name, options->num_classes);
    return DT_OK;
}

bool dt_model_check(struct dt_graph *g, int src, const struct dt_model *model,
                    const struct dt_model_options *options)
{
    dt_status status = check_input(g, src, model, options);
    if (g->status == DT_OK)
        g->status = status;
    return status == DT_OK;
}
