/* A RetinaNet with the configuration's defaults, for 80 classes and at most 100 boxes of an image,
 * as one program of a graph. */
#ifndef DTRAIN_TESTS_RETINANET_GRAPH_H
#define DTRAIN_TESTS_RETINANET_GRAPH_H

#include "dtrain/graph.h"
#include "dtrain/models.h"

static const struct dt_model_options retinanet_options = {
    .num_classes = 80,
    .detector = {.fpn_channels = 256,
                 .trainable_layers = 5,
                 .detect = {.anchors.base = 32, .alpha = 0.25F, .gamma = 2, .min_score = 0.05F}}};

static inline void add_retinanet(struct dt_graph *g, enum dt_phase phase, int batch, int height,
                                 int width, const char *name,
                                 const struct dt_model_options *options)
{
    static const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.2, 0.2, 0.2};
    const struct dt_model *model = dt_model_find(name);
    assert_non_null(model);
    assert_int_equal(dt_graph_begin(g, phase, batch, height, width), DT_OK);
    assert_int_equal(dt_graph_boxes(g, 100), DT_OK);
    model->build(g, dt_graph_ingest(g, mean, std), model, options);
}

#endif
