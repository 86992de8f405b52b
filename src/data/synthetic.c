/* Synthetic images: noise plus a pattern per class, as finished pixels.
 *
 * One block of noise is made when the data set is opened; an image is a window of it at an offset
 * drawn from (seed, id), at half strength, plus stripes in two colours of the class. That costs
 * about as much as copying the image. The pattern depends on the class alone, so a network trained
 * with one seed is correct on another.
 *
 * For a detector, 1 to 8 rectangles drawn from (seed, id) have the pattern of a class each; later
 * ones cover earlier ones, and the noise around them has full strength. Its images have the sizes
 * of its canvases in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset.h"

enum {
    DEFAULT_CLASSES = 1000, /* as ImageNet */
    DETECTOR_CLASSES = 80,  /* as COCO */
    MAX_SHAPES = 8,
    OFFSETS = 1 << 20, /* different windows, one pixel apart */
    TINT = 192,        /* bytes per run of one colour: whole pixels and whole vectors */
};

struct synthetic {
    uint8_t *noise;
    struct dt_canvases sizes; /* of image i: i % n */
    int num_classes;
    uint64_t seed;
};

static struct dt_canvas size_of(const struct synthetic *synthetic, uint32_t id)
{
    return synthetic->sizes.size[id % (uint32_t)synthetic->sizes.n];
}

static dt_status make_noise(struct synthetic *synthetic)
{
    size_t pixels = 0;
    uint32_t *words;
    for (int i = 0; i < synthetic->sizes.n; i++) {
        const struct dt_canvas *size = &synthetic->sizes.size[i];
        const size_t area = (size_t)size->width * (size_t)size->height;
        pixels = area > pixels ? area : pixels;
    }
    const size_t n_words = (3 * (pixels + OFFSETS) + 3) / 4;
    DT_TRY(DT_NEW(words, n_words));
    synthetic->noise = (uint8_t *)words;
    dt_rng_fill(words, n_words, synthetic->seed, DT_RNG_SYNTHETIC, UINT32_MAX, 0, 0);
    return DT_OK;
}

/* A rectangle with the pattern of a class. */
struct shape {
    int x, y, w, h;
    uint32_t label;
};

static dt_status open_synthetic(struct dt_dataset *dataset,
                                const struct dt_dataset_options *options)
{
    struct synthetic *synthetic;
    if (options->synthetic_images < 1 || options->canvases.size[0].width < 1)
        DT_FAIL(DT_ERR_CONFIG,
                "synthetic data need at least one image of at least one pixel, not %d of %d",
                options->synthetic_images, options->canvases.size[0].width);
    DT_TRY(DT_NEW(synthetic, 1));
    dataset->state = synthetic;
    synthetic->sizes = options->canvases;
    dataset->max_boxes = options->targets == DT_COLUMN_BOXES ? MAX_SHAPES : 0;
    synthetic->num_classes = options->num_classes > 0 ? options->num_classes
                             : dataset->max_boxes > 0 ? DETECTOR_CLASSES
                                                      : DEFAULT_CLASSES;
    synthetic->seed = options->seed;
    DT_TRY(make_noise(synthetic));
    dataset->n = (uint32_t)options->synthetic_images;
    dataset->n_classes = synthetic->num_classes;
    /* The seed and everything else that decides the pixels; of one square its side alone. */
    const struct dt_canvas *size = synthetic->sizes.size;
    const uint64_t identity[] = {synthetic->seed, dataset->n, (uint64_t)size->width,
                                 (uint64_t)synthetic->num_classes};
    dataset->fingerprint = XXH64(identity, sizeof identity, dataset->max_boxes > 0);
    if (size->width != size->height || synthetic->sizes.n > 1)
        dataset->fingerprint =
            XXH64(size, (size_t)synthetic->sizes.n * sizeof *size, dataset->fingerprint);
    return DT_OK;
}

static void close_synthetic(struct dt_dataset *dataset)
{
    struct synthetic *synthetic = dataset->state;
    free(synthetic->noise);
    free(synthetic);
}

static int label_synthetic(const struct dt_dataset *dataset, uint32_t id)
{
    const struct synthetic *synthetic = dataset->state;
    return (int)(id % (uint32_t)synthetic->num_classes);
}

static void name_synthetic(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    (void)dataset;
    snprintf(out, bytes, "synthetic image %u", (unsigned)id);
}

static void add_tint(uint8_t *restrict dst, const uint8_t *restrict noise, const uint8_t *tint,
                     size_t bytes)
{
    size_t at = 0;
    for (; at + TINT <= bytes; at += TINT)
        for (size_t i = 0; i < TINT; i++)
            dst[at + i] = (uint8_t)((noise[at + i] >> 1) + tint[i]);
    for (size_t i = 0; at + i < bytes; i++)
        dst[at + i] = (uint8_t)((noise[at + i] >> 1) + tint[i]);
}

/* Stripes across the whole width of a shape. */
static void paint(uint8_t *pixels, const uint8_t *noise, const struct shape *shape,
                  struct dt_canvas size)
{
    uint8_t tint[2][TINT];
    struct dt_rng rng;
    dt_rng_init(&rng, 0, DT_RNG_SYNTHETIC, UINT32_MAX - 1, shape->label);
    for (int stripe = 0; stripe < 2; stripe++) {
        for (int i = 0; i < 3; i++)
            tint[stripe][i] = (uint8_t)dt_rng_below(&rng, 128);
        for (int i = 3; i < TINT; i++)
            tint[stripe][i] = tint[stripe][i - 3];
    }
    const int period = 1 + (int)dt_rng_below(&rng, (uint32_t)size.height / 4 + 1);
    for (int y = 0; y < shape->h; y++) {
        const size_t at = 3 * ((size_t)(shape->y + y) * (size_t)size.width + (size_t)shape->x);
        add_tint(pixels + at, noise + at, tint[y / period & 1], 3 * (size_t)shape->w);
    }
}

/* Sides of 1/8 to 1/2 of the image's. */
static int draw_shapes(struct shape shapes[MAX_SHAPES], const struct synthetic *synthetic,
                       uint32_t id)
{
    const struct dt_canvas size = size_of(synthetic, id);
    const uint32_t width = (uint32_t)size.width, height = (uint32_t)size.height;
    struct dt_rng rng;
    dt_rng_init(&rng, synthetic->seed, DT_RNG_SYNTHETIC, 1, id);
    const int n = 1 + (int)dt_rng_below(&rng, MAX_SHAPES);
    for (int i = 0; i < n; i++) {
        const uint32_t w = (width + 7) / 8 + dt_rng_below(&rng, 3 * width / 8 + 1);
        const uint32_t h = (height + 7) / 8 + dt_rng_below(&rng, 3 * height / 8 + 1);
        const uint32_t x = dt_rng_below(&rng, width - w + 1);
        const uint32_t y = dt_rng_below(&rng, height - h + 1);
        shapes[i] = (struct shape){(int)x, (int)y, (int)w, (int)h,
                                   dt_rng_below(&rng, (uint32_t)synthetic->num_classes)};
    }
    return n;
}

static int truths_synthetic(const struct dt_dataset *dataset, uint32_t id, struct dt_truth *out)
{
    struct shape shapes[MAX_SHAPES];
    const int n = draw_shapes(shapes, dataset->state, id);
    for (int i = 0; i < n; i++) {
        const struct shape *s = &shapes[i];
        out[i] = (struct dt_truth){.x = s->x,
                                   .y = s->y,
                                   .w = s->w,
                                   .h = s->h,
                                   .area = (double)s->w * s->h,
                                   .id = 1 + (int64_t)id * MAX_SHAPES + i,
                                   .label = (int32_t)s->label};
    }
    return n;
}

static void image_synthetic(const struct dt_dataset *dataset, uint32_t id,
                            struct dt_image_info *out)
{
    const struct dt_canvas size = size_of(dataset->state, id);
    *out = (struct dt_image_info){id, size.width, size.height, NULL};
}

static dt_status read_synthetic(const struct dt_dataset *dataset, uint32_t id,
                                struct dt_sample *sample)
{
    const struct synthetic *synthetic = dataset->state;
    const struct dt_canvas size = size_of(synthetic, id);
    struct shape shapes[MAX_SHAPES] = {
        {0, 0, size.width, size.height, (uint32_t)label_synthetic(dataset, id)}};
    struct dt_rng rng;
    int n = 1;
    DT_TRY(dt_sample_reserve(sample, 3 * (size_t)size.width * (size_t)size.height));
    dt_rng_init(&rng, synthetic->seed, DT_RNG_SYNTHETIC, 0, id);
    const uint8_t *noise = synthetic->noise + 3 * (size_t)dt_rng_below(&rng, OFFSETS);
    if (dataset->max_boxes > 0) {
        memcpy(sample->data, noise, sample->bytes);
        n = draw_shapes(shapes, synthetic, id);
    }
    for (int i = 0; i < n; i++)
        paint(sample->data, noise, &shapes[i], size);
    return DT_OK;
}

static bool is_synthetic(const char *path)
{
    return path[0] == '\0';
}

const struct dt_dataset_kind dt_dataset_synthetic = {
    .raw = true,
    .recognises = is_synthetic,
    .open = open_synthetic,
    .read = read_synthetic,
    .label = label_synthetic,
    .truths = truths_synthetic,
    .image = image_synthetic,
    .name = name_synthetic,
    .close = close_synthetic,
};
