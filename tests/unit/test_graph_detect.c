/* The graph of a detector's training: matching, losses of several levels, and errors. */
#include <string.h>

#include "dtrain/graph.h"
#include "test.h"

enum { CLASSES = 5, SLOTS = 6, HEIGHT = 64, WIDTH = 48 };

static const struct dt_detect detect = {.anchors = {.n_levels = 2,
                                                    .height = {8, 4},
                                                    .width = {6, 3},
                                                    .canvas_height = HEIGHT,
                                                    .canvas_width = WIDTH,
                                                    .base = 32},
                                        .background = 0.4f,
                                        .foreground = 0.5f,
                                        .gamma = 2};

static struct dt_graph *begin(bool boxes)
{
    struct dt_graph *g;
    assert_int_equal(dt_graph_create(&g), DT_OK);
    assert_int_equal(dt_graph_begin(g, DT_TRAIN, 2, HEIGHT, WIDTH), DT_OK);
    if (boxes)
        assert_int_equal(dt_graph_boxes(g, SLOTS), DT_OK);
    return g;
}

/* An output of a head on the grid of stride 8 * 2^level. */
static int head(struct dt_graph *g, const char *name, int channels, int level)
{
    const double mean[3] = {0}, std[3] = {1, 1, 1};
    const int stride = 8 << level;
    int image = dt_graph_ingest(g, mean, std);
    struct dt_conv_options options = {.out_channels = channels, .kernel = stride, .stride = stride};
    return dt_graph_conv(g, image, name, options);
}

TEST(losses)
{
    static const char *const name[2][2] = {{"logits0", "deltas0"}, {"logits1", "deltas1"}};
    struct dt_graph *g = begin(true);
    struct dt_detect d = detect;
    dt_graph_match(g, &d);
    for (d.level = 0; d.level < 2; d.level++) {
        dt_graph_focal_loss(g, head(g, name[d.level][0], DT_CELL_ANCHORS * CLASSES, d.level), &d);
        dt_graph_box_loss(g, head(g, name[d.level][1], DT_CELL_ANCHORS * 4, d.level), &d);
    }
    assert_int_equal(dt_graph_check(g), DT_OK);
    assert_int_equal(dt_graph_differentiate(g), DT_OK);
    const struct dt_program *p = dt_graph_program(g);
    const struct dt_tensor *match = &g->tensor[p->match], *count = &g->tensor[p->count];
    assert_int_equal(match->dim[1], (8 * 6 + 4 * 3) * DT_CELL_ANCHORS);
    assert_true(match->dtype == DT_I32 && match->role == DT_SAVED);
    assert_true(count->n_dims == 1 && count->dim[0] == 2 && count->dtype == DT_F32);
    assert_int_equal(g->node[0].n_dst, 2); /* also after differentiation */
    for (int i = 0; i < 4; i++) {
        const int weights = dt_graph_find(g, i == 0   ? "logits0.weight"
                                             : i == 1 ? "deltas0.weight"
                                             : i == 2 ? "logits1.weight"
                                                      : "deltas1.weight");
        assert_true(g->tensor[weights].diff >= 0);
    }
    dt_graph_destroy(g);
}

static void assert_error(struct dt_graph *g, const char *part)
{
    assert_int_not_equal(dt_graph_check(g), DT_OK);
    if (!strstr(dt_error_text(), part))
        fail_msg("\"%s\" does not contain \"%s\"", dt_error_text(), part);
    dt_graph_destroy(g);
}

TEST(match_errors)
{
    struct dt_detect d = detect;
    struct dt_graph *g = begin(false);
    dt_graph_match(g, &d);
    assert_error(g, "dt_graph_boxes");
    d.anchors.canvas_width = 64;
    dt_graph_match(g = begin(true), &d);
    assert_error(g, "64 x 64 pixels, but images of 64 x 48");
    d = detect;
    d.anchors.width[1] = 0;
    dt_graph_match(g = begin(true), &d);
    assert_error(g, "level 1 of the anchors is 4 x 0");
    d = detect;
    d.background = 0.6f;
    dt_graph_match(g = begin(true), &d);
    assert_error(g, "background");
}

TEST(loss_errors)
{
    struct dt_detect d = detect;
    struct dt_graph *g = begin(true);
    dt_graph_focal_loss(g, head(g, "logits", DT_CELL_ANCHORS, 0), &d);
    assert_error(g, "dt_graph_match");
    dt_graph_match(g = begin(true), &d);
    dt_graph_focal_loss(g, head(g, "logits", DT_CELL_ANCHORS * CLASSES + 1, 0), &d);
    assert_error(g, "logits is 2x46x8x6, but level 0 has 9 anchors at each of 8 x 6 places");
    dt_graph_match(g = begin(true), &d);
    dt_graph_box_loss(g, head(g, "deltas", DT_CELL_ANCHORS * 5, 0), &d);
    assert_error(g, "deltas is 2x45x8x6");
    d.level = 1;
    dt_graph_match(g = begin(true), &d);
    dt_graph_box_loss(g, head(g, "deltas", DT_CELL_ANCHORS * 4, 0), &d);
    assert_error(g, "at each of 4 x 3 places");
    d.level = 2;
    dt_graph_match(g = begin(true), &d);
    dt_graph_box_loss(g, head(g, "deltas", DT_CELL_ANCHORS * 4, 0), &d);
    assert_error(g, "level 2 is not one of those");
}

TEST_MAIN(NULL, NULL)
