/* Colour jitter and random erasing of images in finished rows, u8 RGB, in training. Pure
 * functions of (seed, epoch, sample id); a disabled change consumes no random numbers. */
#ifndef DTRAIN_IMAGE_COLOUR_H
#define DTRAIN_IMAGE_COLOUR_H

#include "dtrain/config.h"
#include "image/resize.h"

enum dt_colour { DT_COLOUR_BRIGHTNESS, DT_COLOUR_CONTRAST, DT_COLOUR_SATURATION, DT_COLOURS };

struct dt_colour_change {
    enum dt_colour order[DT_COLOURS];
    float factors[DT_COLOURS]; /* for order[i]; 1 = unchanged */
    struct dt_rect erased;     /* w = 0: none */
};
/* Jitter as in torchvision's ColorJitter without hue: a random order, each factor uniform in
 * 1 - color_jitter .. 1 + color_jitter. Erasing as in torchvision's RandomErasing with scale 0.02
 * .. 0.33 and ratio 0.3 .. 3.3: 10 tries for a rectangle smaller than the image, else none. */
void dt_colour_draw(struct dt_colour_change *recolour, const struct dt_config_data *data,
                    uint64_t seed, uint32_t epoch, uint32_t id, int width, int height);
/* Draws the change and applies it: jitter first, bit-identical to Pillow's ImageEnhance; the erased
 * rectangle gets the colour data->mean. Rows of the image begin `pitch` bytes apart. */
void dt_colour_apply(uint8_t *pixels, size_t pitch, int width, int height,
                     const struct dt_config_data *data, uint64_t seed, uint32_t epoch, uint32_t id);

#endif
