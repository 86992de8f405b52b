/* Rules of detectors: of the network, its canvases, and the sizes of images on them. */
#include <stdio.h>
#include <string.h>

#include "config/keys.h"

enum { MULTIPLE = 32, MOST = 2048 };

#define WRONG(...) return snprintf(what, DT_WHAT_BYTES, __VA_ARGS__) > 0

static bool is_side(int side)
{
    return side >= MULTIPLE && side <= MOST && side % MULTIPLE == 0;
}

static bool is_canvas(const char *text)
{
    struct dt_canvas c = {0, 0};
    int n = 0;
    return sscanf(text, "%4dx%4d%n", &c.width, &c.height, &n) == 2 && text[n] == '\0' &&
           is_side(c.width) && is_side(c.height);
}

static bool canvases(const struct dt_config *c, char *what)
{
    char text[DT_CONFIG_NAME_MAX], other[DT_CONFIG_NAME_MAX];
    const char *rest = c->model.canvases;
    for (int n = 0; (rest = dt_config_names_next(rest, text, sizeof text)); n++) {
        if (n == DT_MAX_CANVASES)
            WRONG("at most %d sizes are possible, as the network is built for each",
                  DT_MAX_CANVASES);
        if (!is_canvas(text))
            WRONG(
                "\"%s\" is not a size WIDTHxHEIGHT, such as 1344x800, of multiples of %d up to %d",
                text, MULTIPLE, MOST);
        for (const char *more = rest; (more = dt_config_names_next(more, other, sizeof other));)
            if (strcmp(text, other) == 0)
                WRONG("%s is listed twice", text);
    }
    return false;
}

static int shorter(struct dt_canvas canvas)
{
    return canvas.width < canvas.height ? canvas.width : canvas.height;
}

static bool min_side(const struct dt_config *c, char *what)
{
    const struct dt_canvases canvases = dt_config_canvases(c);
    const int side = c->data.min_side;
    int largest = 0;
    if (side == 0)
        return false;
    if (c->data.max_side > 0 && c->data.max_side < side)
        WRONG("%d is more than data.max_side %d", side, c->data.max_side);
    for (int i = 0; i < canvases.n; i++)
        largest = shorter(canvases.size[i]) > largest ? shorter(canvases.size[i]) : largest;
    if (dt_config_detects(c) && side > largest)
        WRONG("no image can be that large: %d, but the shorter side of every canvas is at most %d; "
              "change %s",
              side, largest, c->model.canvases[0] ? "model.canvases" : "model.image_size");
    return false;
}

static bool min_side_low(const struct dt_config *c, char *what)
{
    const int low = c->data.min_side_low;
    if (low > 0 && c->data.min_side == 0)
        WRONG("%d is the least of sizes up to data.min_side, which is not given", low);
    if (low > c->data.min_side)
        WRONG("%d is more than data.min_side %d", low, c->data.min_side);
    return false;
}

static bool stretch(const struct dt_config *c, char *what)
{
    const struct dt_config_data *data = &c->data;
    if (data->stretch && (data->min_side > 0 || data->max_side > 0 || data->min_side_low > 0))
        WRONG("true fills the canvas, so data.min_side, data.max_side and data.min_side_low have "
              "no effect; leave them out");
    return false;
}

static bool frozen_norm(const struct dt_config *c, char *what)
{
    if (dt_config_detects(c) && c->model.frozen_norm && c->model.zero_init_residual)
        WRONG("true, but model.zero_init_residual would leave the residual branches 0 for ever");
    return false;
}

static bool head_norm(const struct dt_config *c, char *what)
{
    if (dt_config_detects(c) && c->model.head_norm == DT_HEAD_NORM_GROUP &&
        c->model.fpn_channels % 32 != 0)
        WRONG("\"group\" needs a multiple of 32 channels, but model.fpn_channels is %d",
              c->model.fpn_channels);
    return false;
}

static bool loss_normalizer(const struct dt_config *c, char *what)
{
    if (c->train.loss_normalizer == DT_NORMALIZER_IMAGE)
        return false;
    if (!dt_config_sums(c))
        WRONG(
            "\"global\" needs gradients that all ranks sum in every step: comm.mode \"allreduce\" "
            "without train.sync_every");
    if (c->model.sync_bn > 1)
        WRONG(
            "\"global\" counts over all ranks, but model.sync_bn %d makes smaller groups; set that "
            "to true or false",
            c->model.sync_bn);
    return false;
}

const struct dt_rule dt_detector_rules[] = {
    {"model.frozen_norm", frozen_norm},
    {"model.head_norm", head_norm},
    {"train.loss_normalizer", loss_normalizer},
    {"model.canvases", canvases},
    {"data.min_side", min_side},
    {"data.min_side_low", min_side_low},
    {"data.stretch", stretch},
    {0},
};
