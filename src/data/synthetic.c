/* Synthetic images: noise plus a pattern per class, as finished pixels.
 *
 * One block of noise is made when the data set is opened; an image is a window of it at an offset
 * drawn from (seed, id), at half strength, plus stripes in two colours of the class. That costs
 * about as much as copying the image. The pattern depends on the class alone, so a network trained
 * with one seed is correct on another. */
#include <stdio.h>
#include <stdlib.h>

#include <xxhash.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset.h"

enum {
    DEFAULT_CLASSES = 1000, /* as ImageNet */
    OFFSETS = 1 << 20,      /* different windows, one pixel apart */
    TINT = 192,             /* bytes per run of one colour: whole pixels and whole vectors */
};

struct synthetic {
    uint8_t *noise;
    size_t row_bytes;
    int size, num_classes;
    uint64_t seed;
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
    synthetic->num_classes = options->num_classes > 0 ? options->num_classes : DEFAULT_CLASSES;
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
    dataset->fingerprint = XXH64(identity, sizeof identity, 0);
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

static dt_status read_synthetic(const struct dt_dataset *dataset, uint32_t id,
                                struct dt_sample *sample)
{
    const struct synthetic *synthetic = dataset->state;
    const uint32_t label = (uint32_t)label_synthetic(dataset, id);
    uint8_t tint[2][TINT];
    struct dt_rng rng;

    DT_TRY(dt_sample_reserve(sample, synthetic->row_bytes * (size_t)synthetic->size));
    dt_rng_init(&rng, 0, DT_RNG_SYNTHETIC, UINT32_MAX - 1, label);
    for (int stripe = 0; stripe < 2; stripe++) {
        for (int i = 0; i < 3; i++)
            tint[stripe][i] = (uint8_t)dt_rng_below(&rng, 128);
        for (int i = 3; i < TINT; i++)
            tint[stripe][i] = tint[stripe][i - 3];
    }
    const int period = 1 + (int)dt_rng_below(&rng, (uint32_t)synthetic->size / 4 + 1);

    dt_rng_init(&rng, synthetic->seed, DT_RNG_SYNTHETIC, 0, id);
    const uint8_t *noise = synthetic->noise + 3 * (size_t)dt_rng_below(&rng, OFFSETS);
    for (int y = 0; y < synthetic->size; y++) {
        const size_t at = (size_t)y * synthetic->row_bytes;
        add_tint(sample->data + at, noise + at, tint[y / period & 1], synthetic->row_bytes);
    }
    return DT_OK;
}

const struct dt_dataset_kind dt_dataset_synthetic = {
    .raw = true,
    .open = open_synthetic,
    .read = read_synthetic,
    .label = label_synthetic,
    .name = name_synthetic,
    .close = close_synthetic,
};
