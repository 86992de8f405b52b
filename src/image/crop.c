/* The crop of a sample as a pure function of (seed, epoch, sample id) and the image size. The
 * training crop follows torchvision's RandomResizedCrop, the evaluation crop its Resize +
 * CenterCrop, expressed in coordinates of the original image. */
#include "image/crop.h"

#include <math.h>

#include "base/rng.h"

static const double SCALE_MIN = 0.08, SCALE_MAX = 1.0;
static const double RATIO_MIN = 3.0 / 4.0, RATIO_MAX = 4.0 / 3.0;
enum { TRIES = 10, CIFAR_PAD = 4 };

static void set_crop(struct dt_crop *crop, double x, double y, double w, double h)
{
    crop->x = (float)x;
    crop->y = (float)y;
    crop->w = (float)w;
    crop->h = (float)h;
}

static void draw_resized_crop(struct dt_crop *crop, struct dt_rng *rng, int width, int height)
{
    double area = (double)width * height;
    double log_min = log(RATIO_MIN), log_max = log(RATIO_MAX);
    for (int i = 0; i < TRIES; i++) {
        double target = area * (SCALE_MIN + (SCALE_MAX - SCALE_MIN) * dt_rng_uniform(rng));
        double ratio = exp(log_min + (log_max - log_min) * dt_rng_uniform(rng));
        int w = (int)rint(sqrt(target * ratio));
        int h = (int)rint(sqrt(target / ratio));
        if (w < 1 || h < 1 || w > width || h > height)
            continue;
        uint32_t y = dt_rng_below(rng, (uint32_t)(height - h + 1));
        uint32_t x = dt_rng_below(rng, (uint32_t)(width - w + 1));
        set_crop(crop, x, y, w, h);
        return;
    }
    /* The largest centred rectangle whose ratio is allowed. */
    int w = width, h = height;
    double ratio = (double)width / height;
    if (ratio < RATIO_MIN)
        h = (int)rint(w / RATIO_MIN);
    else if (ratio > RATIO_MAX)
        w = (int)rint(h * RATIO_MAX);
    w = w < 1 ? 1 : w;
    h = h < 1 ? 1 : h;
    set_crop(crop, (width - w) / 2, (height - h) / 2, w, h);
}

/* One axis of `length` pixels that is resized to `resized` pixels: the part that becomes the `size`
 * centre pixels. */
static void centre_span(double *origin, double *part, int length, int resized, int size)
{
    double step = (double)length / resized;
    double offset = resized >= size ? rint((resized - size) / 2.0) : -((size - resized) / 2);
    *origin = offset * step;
    *part = size * step;
}

static void centre_crop(struct dt_crop *crop, int width, int height, int size, int resize)
{
    int shorter = width < height ? width : height;
    int resized_w = (int)((double)resize * width / shorter);
    int resized_h = (int)((double)resize * height / shorter);
    double x, y, w, h;
    centre_span(&x, &w, width, resized_w, size);
    centre_span(&y, &h, height, resized_h, size);
    set_crop(crop, x, y, w, h);
}

int dt_crop_resize(const struct dt_config_data *data, int size)
{
    return data->val_resize > 0 ? data->val_resize : (size * 256 + 112) / 224;
}

void dt_crop_draw(struct dt_crop *crop, const struct dt_config_data *data, bool train,
                  uint64_t seed, uint32_t epoch, uint32_t id, int width, int height, int size)
{
    crop->flip = false;
    if (!train || data->augment == DT_AUGMENT_NONE) {
        centre_crop(crop, width, height, size, dt_crop_resize(data, size));
        return;
    }
    struct dt_rng rng;
    dt_rng_init(&rng, seed, DT_RNG_AUGMENT, epoch, id);
    if (data->augment == DT_AUGMENT_CIFAR) {
        int y = (int)dt_rng_below(&rng, 2 * CIFAR_PAD + 1) - CIFAR_PAD;
        int x = (int)dt_rng_below(&rng, 2 * CIFAR_PAD + 1) - CIFAR_PAD;
        set_crop(crop, x, y, width, height);
    } else {
        draw_resized_crop(crop, &rng, width, height);
    }
    crop->flip = dt_rng_uniform(&rng) < 0.5;
}
