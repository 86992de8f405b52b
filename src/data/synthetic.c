/* Synthetic images: noise plus a pattern per class, as finished pixels.
 *
 * One block of noise is made when the data set is opened; an image is a window of it at an offset
 * drawn from (seed, id), at half strength, plus stripes in two colours of the class. That costs
 * about as much as copying the image. The pattern depends on the class alone, so a network trained
 * with one seed is correct on another.
 *
 * For a detector, 1 to 8 rectangles drawn from (seed, id) have the pattern of a class each; later
 * ones cover earlier ones, and the noise around them has full strength. */
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
    MOST_SHAPES = 8,
    OFFSETS = 1 << 20, /* different windows, one pixel apart */
    TINT = 192,        /* bytes per run of one colour: whole pixels and whole vectors */
};

struct synthetic {
    uint8_t *noise;
    size_t row_bytes;
    int size, num_classes;
    bool detects;
    uint64_t seed;
};

/* A rectangle with the pattern of a class. */
struct shape {
    int x, y, w, h;
    uint32_t label;
};

static dt_status open_synthetic(struct dt_dataset *dataset,
                                const struct dt_dataset_options *options)
{
    struct synthetic *synthetic;

    if (options->synthetic_images < 1 || options->image_size < 1)
        DT_FAIL(DT_ERR_CONFIG,
                "synthetic data need at least one image of at least one pixel, not %d of %d",
                options->synthetic_images, options->image_size);
    DT_TRY(DT_NEW(synthetic, 1));
    dataset->state = synthetic;
    synthetic->size = options->image_size;
    synthetic->row_bytes = (size_t)options->image_size * 3;
    synthetic->detects = options->detects;
    synthetic->num_classes = options->num_classes > 0 ? options->num_classes
                             : options->detects       ? DETECTOR_CLASSES
                                                      : DEFAULT_CLASSES;
    synthetic->seed = options->seed;

    size_t noise_bytes = synthetic->row_bytes * (size_t)options->image_size + (size_t)OFFSETS * 3;
    size_t n_words = (noise_bytes + 3) / 4;
    uint32_t *words;
    DT_TRY(DT_NEW(words, n_words));
    synthetic->noise = (uint8_t *)words;
    dt_rng_fill(words, n_words, options->seed, DT_RNG_SYNTHETIC, UINT32_MAX, 0, 0);

    const uint64_t identity[] = {options->seed, (uint64_t)options->synthetic_images,
                                 (uint64_t)options->image_size, (uint64_t)synthetic->num_classes};
    dataset->n = (uint32_t)options->synthetic_images;
    dataset->n_classes = synthetic->num_classes;
    dataset->max_boxes = options->detects ? MOST_SHAPES : 0;
    dataset->fingerprint = XXH64(identity, sizeof identity, options->detects);
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
                  const struct synthetic *synthetic)
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
    const int period = 1 + (int)dt_rng_below(&rng, (uint32_t)synthetic->size / 4 + 1);
    for (int y = 0; y < shape->h; y++) {
        const size_t at = (size_t)(shape->y + y) * synthetic->row_bytes + 3 * (size_t)shape->x;
        add_tint(pixels + at, noise + at, tint[y / period & 1], 3 * (size_t)shape->w);
    }
}

/* Sides of 1/8 to 1/2 of the image's. */
static int draw_shapes(struct shape shapes[MOST_SHAPES], const struct synthetic *synthetic,
                       uint32_t id)
{
    const uint32_t size = (uint32_t)synthetic->size;
    struct dt_rng rng;

    dt_rng_init(&rng, synthetic->seed, DT_RNG_SYNTHETIC, 1, id);
    const int n = 1 + (int)dt_rng_below(&rng, MOST_SHAPES);
    for (int i = 0; i < n; i++) {
        const uint32_t w = (size + 7) / 8 + dt_rng_below(&rng, 3 * size / 8 + 1);
        const uint32_t h = (size + 7) / 8 + dt_rng_below(&rng, 3 * size / 8 + 1);
        const uint32_t x = dt_rng_below(&rng, size - w + 1), y = dt_rng_below(&rng, size - h + 1);
        shapes[i] = (struct shape){(int)x, (int)y, (int)w, (int)h,
                                   dt_rng_below(&rng, (uint32_t)synthetic->num_classes)};
    }
    return n;
}

static int truths_synthetic(const struct dt_dataset *dataset, uint32_t id, struct dt_truth *out)
{
    struct shape shapes[MOST_SHAPES];
    const int n = draw_shapes(shapes, dataset->state, id);
    for (int i = 0; i < n; i++) {
        const struct shape *s = &shapes[i];
        out[i] = (struct dt_truth){.x = s->x,
                                   .y = s->y,
                                   .w = s->w,
                                   .h = s->h,
                                   .area = (double)s->w * s->h,
                                   .id = 1 + (int64_t)id * MOST_SHAPES + i,
                                   .label = (int32_t)s->label};
    }
    return n;
}

static void image_synthetic(const struct dt_dataset *dataset, uint32_t id,
                            struct dt_image_info *out)
{
    const struct synthetic *synthetic = dataset->state;
    *out = (struct dt_image_info){id, synthetic->size, synthetic->size};
}

static dt_status read_synthetic(const struct dt_dataset *dataset, uint32_t id,
                                struct dt_sample *sample)
{
    const struct synthetic *synthetic = dataset->state;
    struct shape shapes[MOST_SHAPES] = {
        {0, 0, synthetic->size, synthetic->size, (uint32_t)label_synthetic(dataset, id)}};
    struct dt_rng rng;
    int n = 1;

    DT_TRY(dt_sample_reserve(sample, synthetic->row_bytes * (size_t)synthetic->size));
    dt_rng_init(&rng, synthetic->seed, DT_RNG_SYNTHETIC, 0, id);
    const uint8_t *noise = synthetic->noise + 3 * (size_t)dt_rng_below(&rng, OFFSETS);
    if (synthetic->detects) {
        memcpy(sample->data, noise, sample->bytes);
        n = draw_shapes(shapes, synthetic, id);
    }
    for (int i = 0; i < n; i++)
        paint(sample->data, noise, &shapes[i], synthetic);
    return DT_OK;
}

const struct dt_dataset_kind dt_dataset_synthetic = {
    .raw = true,
    .open = open_synthetic,
    .read = read_synthetic,
    .label = label_synthetic,
    .truths = truths_synthetic,
    .image = image_synthetic,
    .name = name_synthetic,
    .close = close_synthetic,
};
