/* Colours go through float in blocks that stay in the first cache: whole numbers below 2^24, so all
 * of Pillow's arithmetic is reproduced, in plain loops that the compiler makes vectors of (-O3). */
#include "data/mix.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

static const double ERASE_MIN = 0.02, ERASE_MAX = 0.33;
static const double RATIO_MIN = 0.3, RATIO_MAX = 3.3;
enum { TRIES = 10, BLOCK = 256 /* pixels */, ONE = 256 /* of mixup's shares */ };

/* --- Colour jitter --- */

static void draw_jitter(struct dt_recolour *recolour, struct dt_rng *rng, double strength)
{
    for (uint32_t i = DT_COLOURS - 1; i > 0; i--) {
        uint32_t k = dt_rng_below(rng, i + 1);
        enum dt_colour moved = recolour->order[k];
        recolour->order[k] = recolour->order[i];
        recolour->order[i] = moved;
    }
    for (int i = 0; i < DT_COLOURS; i++)
        recolour->factors[i] = (float)(1.0 - strength + 2.0 * strength * dt_rng_uniform(rng));
}

/* Written like this, with int and one ?: a statement, it becomes minimum and maximum; the shorter
 * forms became branches (gcc 12). */
static int clamp(int value)
{
    value = value < 0 ? 0 : value;
    value = value > 255 ? 255 : value;
    return value;
}

/* Image.blend of Pillow: cuts off the fraction. Two statements, so that no compiler may round the
 * product and the sum at once. */
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

static void blend_grey(float *values, size_t n, float grey, float factor)
{
    for (size_t i = 0; i < 3 * n; i++)
        values[i] = blend(grey, values[i], factor);
}

static void blend_luma(float *values, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++) {
        float *rgb = values + 3 * i;
        float grey = luma(rgb);
        rgb[0] = blend(grey, rgb[0], factor);
        rgb[1] = blend(grey, rgb[1], factor);
        rgb[2] = blend(grey, rgb[2], factor);
    }
}

static int sum_luma(const float *values, size_t n)
{
    int sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (int)luma(values + 3 * i);
    return sum;
}

static void widen(float *restrict values, const uint8_t *restrict pixels, size_t n)
{
    for (size_t i = 0; i < 3 * n; i++)
        values[i] = pixels[i];
}

static void narrow(uint8_t *restrict pixels, const float *restrict values, size_t n)
{
    for (size_t i = 0; i < 3 * n; i++)
        pixels[i] = (uint8_t)(int)values[i];
}

/* Adjustments begin .. end-1 of all pixels; *sum: of the grey values after them, if not NULL. */
static void adjust(uint8_t *pixels, size_t n_pixels, const struct dt_recolour *recolour, int begin,
                   int end, float mean, int64_t *sum)
{
    float values[3 * BLOCK];
    for (size_t first = 0; first < n_pixels; first += BLOCK, pixels += 3 * BLOCK) {
        size_t n = n_pixels - first < BLOCK ? n_pixels - first : BLOCK;
        widen(values, pixels, n);
        for (int i = begin; i < end; i++) {
            if (recolour->order[i] == DT_COLOUR_SATURATION)
                blend_luma(values, n, recolour->factors[i]);
            else
                blend_grey(values, n, recolour->order[i] == DT_COLOUR_CONTRAST ? mean : 0.0f,
                           recolour->factors[i]);
        }
        if (sum)
            *sum += sum_luma(values, n);
        narrow(pixels, values, n);
    }
}

/* Contrast needs the mean of the whole image as the adjustments before it leave it. */
static void jitter(uint8_t *pixels, const struct dt_recolour *recolour, int size)
{
    size_t n = (size_t)size * (size_t)size;
    int contrast = 0;
    int64_t sum = 0;
    while (recolour->order[contrast] != DT_COLOUR_CONTRAST)
        contrast++;
    adjust(pixels, n, recolour, 0, contrast, 0.0f, &sum);
    float mean = (float)((2 * sum + (int64_t)n) / (2 * (int64_t)n)); /* rounded */
    adjust(pixels, n, recolour, contrast, DT_COLOURS, mean, NULL);
}

/* --- Random erasing --- */

static void draw_erased(struct dt_rect *erased, struct dt_rng *rng, double probability, int size)
{
    if (dt_rng_uniform(rng) >= probability)
        return;
    double area = (double)size * size;
    double log_min = log(RATIO_MIN), log_max = log(RATIO_MAX);
    for (int i = 0; i < TRIES; i++) {
        double target = area * (ERASE_MIN + (ERASE_MAX - ERASE_MIN) * dt_rng_uniform(rng));
        double ratio = exp(log_min + (log_max - log_min) * dt_rng_uniform(rng));
        int h = (int)rint(sqrt(target * ratio));
        int w = (int)rint(sqrt(target / ratio));
        if (w >= size || h >= size)
            continue;
        int y = (int)dt_rng_below(rng, (uint32_t)(size - h + 1));
        int x = (int)dt_rng_below(rng, (uint32_t)(size - w + 1));
        *erased = (struct dt_rect){x, y, w, h};
        return;
    }
}

static void erase(uint8_t *pixels, const struct dt_rect *erased, const uint8_t colour[3], int size)
{
    for (int y = erased->y; y < erased->y + erased->h; y++) {
        uint8_t *rgb = pixels + ((size_t)y * (size_t)size + (size_t)erased->x) * 3;
        for (int x = 0; x < erased->w; x++, rgb += 3)
            memcpy(rgb, colour, 3);
    }
}

void dt_mix_draw_recolour(struct dt_recolour *recolour, const struct dt_augment_options *also,
                          uint64_t seed, uint32_t epoch, uint32_t id, int size)
{
    struct dt_rng rng;
    *recolour = (struct dt_recolour){
        .order = {DT_COLOUR_BRIGHTNESS, DT_COLOUR_CONTRAST, DT_COLOUR_SATURATION},
        .factors = {1.0f, 1.0f, 1.0f},
    };
    dt_rng_init(&rng, seed, DT_RNG_COLOUR, epoch, id);
    if (also->color_jitter > 0)
        draw_jitter(recolour, &rng, also->color_jitter);
    if (also->random_erasing > 0)
        draw_erased(&recolour->erased, &rng, also->random_erasing, size);
}

void dt_mix_recolour(uint8_t *pixels, const struct dt_augment_options *also, uint64_t seed,
                     uint32_t epoch, uint32_t id, int size)
{
    struct dt_recolour recolour;
    dt_mix_draw_recolour(&recolour, also, seed, epoch, id, size);
    if (also->color_jitter > 0)
        jitter(pixels, &recolour, size);
    erase(pixels, &recolour.erased, also->erase, size);
}

/* --- Pairs --- */

static void swap_bytes(uint8_t *restrict a, uint8_t *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

static void swap_rect(uint8_t *a, uint8_t *b, const struct dt_rect *rect, int size)
{
    for (int y = rect->y; y < rect->y + rect->h; y++) {
        size_t first = ((size_t)y * (size_t)size + (size_t)rect->x) * 3;
        swap_bytes(a + first, b + first, (size_t)rect->w * 3);
    }
}

/* One side of the rectangle, clipped to the image. */
static void draw_side(int *begin, int *length, struct dt_rng *rng, int side, int size)
{
    int centre = (int)dt_rng_below(rng, (uint32_t)size);
    int end = centre + side / 2;
    *begin = centre - side / 2;
    *begin = *begin < 0 ? 0 : *begin;
    *length = (end > size ? size : end) - *begin;
}

static float cut_pair(uint8_t *a, uint8_t *b, struct dt_rng *rng, double share, int size)
{
    struct dt_rect rect;
    int side = (int)(size * sqrt(1.0 - share));
    draw_side(&rect.y, &rect.h, rng, side, size);
    draw_side(&rect.x, &rect.w, rng, side, size);
    double moved = (double)rect.w * rect.h / ((double)size * size);
    swap_rect(a, b, &rect, size);
    if (moved <= 0.5)
        return (float)(1.0 - moved);
    const struct dt_rect all = {0, 0, size, size};
    swap_rect(a, b, &all, size);
    return (float)moved;
}

/* kept * a + (ONE - kept) * b is below 2^16; rounded to nearest, one half upwards. */
static void blend_rows(uint8_t *restrict a, uint8_t *restrict b, size_t n, int share)
{
    const uint16_t kept = (uint16_t)share, given = (uint16_t)(ONE - share);
    for (size_t i = 0; i < n; i++) {
        uint16_t x = a[i], y = b[i];
        a[i] = (uint8_t)((uint16_t)(kept * x + given * y + ONE / 2) / ONE);
        b[i] = (uint8_t)((uint16_t)(kept * y + given * x + ONE / 2) / ONE);
    }
}

static float mix_pair(uint8_t *a, uint8_t *b, double share, int size)
{
    int kept = (int)rint(ONE * (share < 0.5 ? 1.0 - share : share));
    blend_rows(a, b, (size_t)size * (size_t)size * 3, kept);
    return (float)kept / ONE;
}

bool dt_mix_is_on(const struct dt_augment_options *also)
{
    return also->mixup > 0 || also->cutmix > 0;
}

float dt_mix_pair(uint8_t *a, uint8_t *b, const struct dt_augment_options *also, uint64_t seed,
                  uint32_t epoch, uint32_t id, int size)
{
    struct dt_rng rng;
    if (!dt_mix_is_on(also))
        return 1.0f;
    dt_rng_init(&rng, seed, DT_RNG_MIX, epoch, id);
    bool cut = also->cutmix > 0;
    if (cut && also->mixup > 0)
        cut = dt_rng_uniform(&rng) < 0.5;
    if (cut)
        return cut_pair(a, b, &rng, dt_rng_beta(&rng, also->cutmix), size);
    return mix_pair(a, b, dt_rng_beta(&rng, also->mixup), size);
}
