/* Colours are processed as floats in blocks that fit in the L1 cache: integers below 2^24, which
 * float holds exactly, so plain loops that the compiler vectorises (-O3) reproduce Pillow's
 * arithmetic. */
#include "image/colour.h"

#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "base/rng.h"

static const double ERASE_MIN = 0.02, ERASE_MAX = 0.33;
static const double RATIO_MIN = 0.3, RATIO_MAX = 3.3;
enum { TRIES = 10, BLOCK = 256 /* pixels */ };

/* --- Colour jitter --- */

/* With int and one ?: per statement this compiles to minimum and maximum instructions; shorter
 * forms compile to branches (gcc 12). */
static int clamp(int value)
{
    value = value < 0 ? 0 : value;
    value = value > 255 ? 255 : value;
    return value;
}

/* Pillow's Image.blend, which truncates. Two statements, so that the compiler cannot fuse the
 * product and the sum into one rounding. */
static float blend(float grey, float value, float factor)
{
    float change = factor * (value - grey);
    int blended = clamp((int)(grey + change));
    return (float)blended;
}

/* Pillow's "L", ITU-R 601: (19595 R + 38470 G + 7471 B + 2^15) >> 16. */
static float luma(const float *rgb)
{
    float sum = 0x4C8Bp-16f * rgb[0] + 0x9646p-16f * rgb[1] + 0x1D2Fp-16f * rgb[2] + 0.5f;
    return (float)(int)sum;
}

DT_CLONES static void blend_grey(float *values, size_t n, float grey, float factor)
{
    for (size_t i = 0; i < 3 * n; i++)
        values[i] = blend(grey, values[i], factor);
}

DT_CLONES static void blend_luma(float *values, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++) {
        float *rgb = values + 3 * i;
        float grey = luma(rgb);
        rgb[0] = blend(grey, rgb[0], factor);
        rgb[1] = blend(grey, rgb[1], factor);
        rgb[2] = blend(grey, rgb[2], factor);
    }
}

DT_CLONES static int sum_luma(const float *values, size_t n)
{
    int sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (int)luma(values + 3 * i);
    return sum;
}

DT_CLONES static void to_f32(float *restrict values, const uint8_t *restrict pixels, size_t n)
{
    for (size_t i = 0; i < 3 * n; i++)
        values[i] = pixels[i];
}

DT_CLONES static void to_u8(uint8_t *restrict pixels, const float *restrict values, size_t n)
{
    for (size_t i = 0; i < 3 * n; i++)
        pixels[i] = (uint8_t)(int)values[i];
}

/* Applies adjustments begin .. end-1 to all pixels; *sum, if not NULL, gets the sum of the
 * resulting grey values. */
static void adjust(uint8_t *pixels, size_t n_pixels, const struct dt_colour_change *recolour,
                   int begin, int end, float mean, int64_t *sum)
{
    float values[3 * BLOCK];
    for (size_t first = 0; first < n_pixels; first += BLOCK, pixels += 3 * BLOCK) {
        size_t n = n_pixels - first < BLOCK ? n_pixels - first : BLOCK;
        to_f32(values, pixels, n);
        for (int i = begin; i < end; i++) {
            if (recolour->order[i] == DT_COLOUR_SATURATION)
                blend_luma(values, n, recolour->factors[i]);
            else
                blend_grey(values, n, recolour->order[i] == DT_COLOUR_CONTRAST ? mean : 0.0f,
                           recolour->factors[i]);
        }
        if (sum)
            *sum += sum_luma(values, n);
        to_u8(pixels, values, n);
    }
}

struct image {
    uint8_t *pixels;
    size_t pitch;
    int width, height;
};

static uint8_t *row_of(const struct image *image, int y)
{
    return image->pixels + (size_t)y * image->pitch;
}

/* Contrast needs the mean of the whole image after the preceding adjustments. */
static void jitter(const struct image *image, const struct dt_colour_change *recolour)
{
    const size_t width = (size_t)image->width, n = width * (size_t)image->height;
    int contrast = 0;
    int64_t sum = 0;
    while (recolour->order[contrast] != DT_COLOUR_CONTRAST)
        contrast++;
    for (int y = 0; y < image->height; y++)
        adjust(row_of(image, y), width, recolour, 0, contrast, 0.0f, &sum);
    float mean = (float)((2 * sum + (int64_t)n) / (2 * (int64_t)n)); /* rounded */
    for (int y = 0; y < image->height; y++)
        adjust(row_of(image, y), width, recolour, contrast, DT_COLOURS, mean, NULL);
}

/* --- Random erasing --- */

static void draw_erased(struct dt_rect *erased, struct dt_rng *rng, double probability, int width,
                        int height)
{
    if (dt_rng_uniform(rng) >= probability)
        return;
    double area = (double)width * height;
    double log_min = log(RATIO_MIN), log_max = log(RATIO_MAX);
    for (int i = 0; i < TRIES; i++) {
        double target = area * (ERASE_MIN + (ERASE_MAX - ERASE_MIN) * dt_rng_uniform(rng));
        double ratio = exp(log_min + (log_max - log_min) * dt_rng_uniform(rng));
        int h = (int)rint(sqrt(target * ratio));
        int w = (int)rint(sqrt(target / ratio));
        if (w >= width || h >= height)
            continue;
        int y = (int)dt_rng_below(rng, (uint32_t)(height - h + 1));
        int x = (int)dt_rng_below(rng, (uint32_t)(width - w + 1));
        *erased = (struct dt_rect){x, y, w, h};
        return;
    }
}

void dt_colour_draw(struct dt_colour_change *recolour, const struct dt_config_data *data,
                    uint64_t seed, uint32_t epoch, uint32_t id, int width, int height)
{
    struct dt_rng rng;
    *recolour = (struct dt_colour_change){
        .order = {DT_COLOUR_BRIGHTNESS, DT_COLOUR_CONTRAST, DT_COLOUR_SATURATION},
        .factors = {1.0f, 1.0f, 1.0f},
    };
    dt_rng_init(&rng, seed, DT_RNG_COLOUR, epoch, id);
    const double strength = data->color_jitter;
    for (uint32_t i = DT_COLOURS - 1; i > 0 && strength > 0; i--) {
        uint32_t k = dt_rng_below(&rng, i + 1);
        enum dt_colour moved = recolour->order[k];
        recolour->order[k] = recolour->order[i];
        recolour->order[i] = moved;
    }
    for (int i = 0; i < DT_COLOURS && strength > 0; i++)
        recolour->factors[i] = (float)(1.0 - strength + 2.0 * strength * dt_rng_uniform(&rng));
    if (data->random_erasing > 0)
        draw_erased(&recolour->erased, &rng, data->random_erasing, width, height);
}

void dt_colour_apply(uint8_t *pixels, size_t pitch, int width, int height,
                     const struct dt_config_data *data, uint64_t seed, uint32_t epoch, uint32_t id)
{
    const struct image image = {pixels, pitch, width, height};
    struct dt_colour_change recolour;
    dt_colour_draw(&recolour, data, seed, epoch, id, width, height);
    if (data->color_jitter > 0)
        jitter(&image, &recolour);
    const struct dt_rect *erased = &recolour.erased;
    const uint8_t colour[3] = {(uint8_t)lrint(255 * data->mean[0]),
                               (uint8_t)lrint(255 * data->mean[1]),
                               (uint8_t)lrint(255 * data->mean[2])};
    for (int y = erased->y; y < erased->y + erased->h; y++) {
        uint8_t *rgb = row_of(&image, y) + 3 * (size_t)erased->x;
        for (int x = 0; x < erased->w; x++, rgb += 3)
            memcpy(rgb, colour, 3);
    }
}
