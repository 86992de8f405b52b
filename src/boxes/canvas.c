#include "boxes/canvas.h"

#include <math.h>

#include "base/rng.h"

enum { SIDE_STEP = 32 /* torchvision's sizes, 480 to 800 */ };

/* --- Sizes --- */

/* The size that min_side and max_side (0 = no limit) ask for, whatever the canvas: those of
 * torchvision, which divides in double (0.21; 0.14 divided in fp32). */
static void wanted_size(int64_t size[2], int min_side, int max_side, int width, int height)
{
    const int shorter = width < height ? width : height, longer = width < height ? height : width;
    double r = INFINITY;
    if (min_side > 0)
        r = (double)min_side / shorter;
    if (max_side > 0)
        r = fmin(r, (double)max_side / longer);
    size[0] = min_side > 0 || max_side > 0 ? (int64_t)floor(r * width) : INT64_MAX;
    size[1] = min_side > 0 || max_side > 0 ? (int64_t)floor(r * height) : INT64_MAX;
}

static int at_least_one(int64_t side)
{
    return side < 1 ? 1 : (int)side;
}

/* The size on a canvas, scaled down if it has to be. */
static void size_on(int size[2], const struct dt_layout *layout, const struct dt_canvas *canvas,
                    int min_side, int width, int height)
{
    int64_t wanted[2];
    wanted_size(wanted, min_side, layout->data->max_side, width, height);
    if (layout->data->stretch) {
        wanted[0] = canvas->width;
        wanted[1] = canvas->height;
    } else if (wanted[0] > canvas->width || wanted[1] > canvas->height) {
        const int64_t w = width, h = height;
        const bool is_wide = w * canvas->height > h * canvas->width;
        wanted[0] = is_wide ? canvas->width : w * canvas->height / h;
        wanted[1] = is_wide ? h * canvas->width / w : canvas->height;
    }
    size[0] = at_least_one(wanted[0]);
    size[1] = at_least_one(wanted[1]);
}

int dt_canvas_choose(const struct dt_layout *layout, int width, int height)
{
    int best = 0, size[2];
    double best_merit = -1, best_area = 0;
    for (int i = 0; i < layout->canvases.n; i++) {
        const struct dt_canvas *canvas = &layout->canvases.size[i];
        const double area = (double)canvas->width * canvas->height;
        const double across = (double)canvas->width / width, down = (double)canvas->height / height;
        size_on(size, layout, canvas, layout->data->min_side, width, height);
        /* How well the image looks there: its pixels, or with data.stretch by how little one side
         * is stretched more than the other. */
        const double merit = layout->data->stretch ? fmin(across, down) / fmax(across, down)
                                                   : (double)size[0] * size[1];
        if (merit < best_merit || (merit == best_merit && area >= best_area))
            continue;
        best = i;
        best_merit = merit;
        best_area = area;
    }
    return best;
}

bool dt_canvas_fits(const struct dt_layout *layout, int width, int height)
{
    const struct dt_config_data *data = layout->data;
    int64_t wanted[2];
    if (data->stretch || (data->min_side == 0 && data->max_side == 0))
        return true;
    wanted_size(wanted, data->min_side, data->max_side, width, height);
    for (int i = 0; i < layout->canvases.n; i++)
        if (wanted[0] <= layout->canvases.size[i].width &&
            wanted[1] <= layout->canvases.size[i].height)
            return true;
    return false;
}

static void place(struct dt_on_canvas *placement, const struct dt_layout *layout, int min_side,
                  int width, int height)
{
    const int canvas = dt_canvas_choose(layout, width, height);
    int size[2];
    size_on(size, layout, &layout->canvases.size[canvas], min_side, width, height);
    *placement = (struct dt_on_canvas){
        .canvas = canvas,
        .image_width = width,
        .image_height = height,
        .width = size[0],
        .height = size[1],
    };
}

void dt_canvas_plain(struct dt_on_canvas *placement, const struct dt_layout *layout, int width,
                     int height)
{
    place(placement, layout, layout->data->min_side, width, height);
}

/* --- Draws --- */

static double draw_between(struct dt_rng *rng, double max)
{
    return max * (2 * dt_rng_uniform(rng) - 1);
}

/* Rotation times move times shear times scaling; the move is in fractions of the sides. */
static void draw_warp(struct dt_on_canvas *placement, const struct dt_config_data *data,
                      struct dt_rng *rng)
{
    const double width = placement->width, height = placement->height;
    const double angle = draw_between(rng, data->rotate);
    const double move_x = draw_between(rng, data->translate);
    const double move_y = draw_between(rng, data->translate);
    const double shear = draw_between(rng, data->shear);
    const double scale_x = 1 + draw_between(rng, data->scale);
    const double scale_y = 1 + draw_between(rng, data->scale);
    const double c = cos(angle), s = sin(angle), across = sin(shear), down = cos(shear);
    const double a = c * scale_x, b = -(c * across + s * down) * scale_y;
    const double d = s * scale_x, e = (c * down - s * across) * scale_y;
    const double x = width * (c * move_x - s * move_y + 0.5);
    const double y = height * (s * move_x + c * move_y + 0.5);
    const double to[6] = {a, b, x - 0.5 * (a * width + b * height),
                          d, e, y - 0.5 * (d * width + e * height)};
    dt_warp_set(&placement->warp, to);
}

void dt_canvas_draw(struct dt_on_canvas *placement, const struct dt_layout *layout, uint64_t seed,
                    uint32_t epoch, uint32_t id, int width, int height)
{
    const struct dt_config_data *data = layout->data;
    struct dt_rng rng;
    dt_rng_init(&rng, seed, DT_RNG_AUGMENT, epoch, id);
    const bool flip = dt_rng_uniform(&rng) < 0.5;
    const double drawn = dt_rng_uniform(&rng);
    const int low = data->min_side_low, n = (data->min_side - low) / SIDE_STEP + 1;
    const bool is_range = low > 0 && low < data->min_side;
    place(placement, layout, is_range ? low + SIDE_STEP * (int)(drawn * n) : data->min_side, width,
          height);
    placement->flip = flip && data->augment != DT_AUGMENT_NONE;
    placement->is_warped =
        data->rotate > 0 || data->shear > 0 || data->translate > 0 || data->scale > 0;
    if (placement->is_warped)
        draw_warp(placement, data, &rng);
}

/* --- Boxes --- */

static float clip(double value, int max)
{
    return (float)fmax(0, fmin(value, max));
}

bool dt_on_canvas_box(float box[4], const struct dt_on_canvas *p, const struct dt_truth *truth)
{
    const double across = (double)p->width / p->image_width;
    const double down = (double)p->height / p->image_height;
    double b[4] = {truth->x * across, truth->y * down, (truth->x + truth->w) * across,
                   (truth->y + truth->h) * down};
    if (p->flip) {
        const double left = b[0];
        b[0] = p->width - b[2];
        b[2] = p->width - left;
    }
    if (p->is_warped) {
        const double *to = p->warp.to, x[2] = {b[0], b[2]}, y[2] = {b[1], b[3]};
        b[0] = b[1] = INFINITY;
        b[2] = b[3] = -INFINITY;
        for (int i = 0; i < 4; i++) {
            const double at_x = to[0] * x[i % 2] + to[1] * y[i / 2] + to[2];
            const double at_y = to[3] * x[i % 2] + to[4] * y[i / 2] + to[5];
            b[0] = fmin(b[0], at_x);
            b[1] = fmin(b[1], at_y);
            b[2] = fmax(b[2], at_x);
            b[3] = fmax(b[3], at_y);
        }
    }
    box[0] = clip(b[0], p->width);
    box[1] = clip(b[1], p->height);
    box[2] = clip(b[2], p->width);
    box[3] = clip(b[3], p->height);
    return box[2] > box[0] && box[3] > box[1];
}
