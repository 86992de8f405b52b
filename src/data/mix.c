/* Mixup and CutMix in integers: the same bits on every machine. */
#include "data/mix.h"

#include <math.h>

#include "base/rng.h"
#include "image/resize.h"

enum { ONE = 256 /* denominator of mixup's shares */ };

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

/* kept * a + (ONE - kept) * b is below 2^16; rounded to nearest, halves up. */
static void blend_rows(uint8_t *restrict a, uint8_t *restrict b, size_t n, int share)
{
    const uint16_t kept = (uint16_t)share, given = (uint16_t)(ONE - share);
    for (size_t i = 0; i < n; i++) {
        uint16_t x = a[i], y = b[i];
        a[i] = (uint8_t)((uint16_t)(kept * x + given * y + ONE / 2) / ONE);
        b[i] = (uint8_t)((uint16_t)(kept * y + given * x + ONE / 2) / ONE);
    }
}

bool dt_mix_is_on(const struct dt_config_data *data)
{
    return data->mixup > 0 || data->cutmix > 0;
}

float dt_mix_pair(uint8_t *a, uint8_t *b, const struct dt_config_data *data, uint64_t seed,
                  uint32_t epoch, uint32_t id, int size)
{
    struct dt_rng rng;
    if (!dt_mix_is_on(data))
        return 1.0f;
    dt_rng_init(&rng, seed, DT_RNG_MIX, epoch, id);
    bool cut = data->cutmix > 0;
    if (cut && data->mixup > 0)
        cut = dt_rng_uniform(&rng) < 0.5;
    if (cut)
        return cut_pair(a, b, &rng, dt_rng_beta(&rng, data->cutmix), size);
    const double share = dt_rng_beta(&rng, data->mixup);
    const int kept = (int)rint(ONE * (share < 0.5 ? 1.0 - share : share));
    blend_rows(a, b, (size_t)size * (size_t)size * 3, kept);
    return (float)kept / ONE;
}
