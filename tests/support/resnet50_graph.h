/* ResNet-50 on images of 224 pixels, with 1000 classes, as one phase of a graph. */
#ifndef DTRAIN_TESTS_RESNET50_GRAPH_H
#define DTRAIN_TESTS_RESNET50_GRAPH_H

#include "dtrain/graph.h"
#include "dtrain/models.h"
#include "test.h"

static inline void add_resnet50(struct dt_graph *g, enum dt_phase phase, int batch)
{
    static const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.2, 0.2, 0.2};
    const struct dt_model_options options = {.num_classes = 1000};
    const struct dt_model *model = dt_model_find("resnet50");
    assert_non_null(model);
    assert_int_equal(dt_graph_begin(g, phase, batch, 224, 224), DT_OK);
    int image = dt_graph_ingest(g, mean, std);
    dt_graph_softmax_xent(g, model->build(g, image, model, &options), 0.1);
}

#endif
