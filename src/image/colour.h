/* Colour jitter and random erasing of finished rows, size x size x 3 u8 RGB, in training. Pure
 * functions of (seed, epoch, sample id); what is switched off draws nothing. */
#ifndef DTRAIN_IMAGE_COLOUR_H
#define DTRAIN_IMAGE_COLOUR_H

#include "dtrain/config.h"
#include "image/resize.h"

enum dt_colour { DT_COLOUR_BRIGHTNESS, DT_COLOUR_CONTRAST, DT_COLOUR_SATURATION, DT_COLOURS };

struct dt_colour_change {
    enum dt_colour order[DT_COLOURS];
    float factors[DT_COLOURS]; /* of order[i]; 1 leaves the image as it is */
    struct dt_rect erased;     /* w = 0: nothing */
};
/* Colour jitter as torchvision's ColorJitter without hue: a random order, each factor uniform in
 * 1 - color_jitter .. 1 + color_jitter. Erasing as torchvision's RandomErasing with scale 0.02 ..
 * 0.33 and ratio 0.3 .. 3.3: 10 tries for a rectangle smaller than the image, else nothing. */
void dt_colour_draw(struct dt_colour_change *recolour, const struct dt_config_data *data,
                    uint64_t seed, uint32_t epoch, uint32_t id, int size);
/* Draws and does it: jitter first, to the bit what Pillow's ImageEnhance gives; what is erased gets
 * the colour data->mean. */
void dt_colour_apply(uint8_t *pixels, const struct dt_config_data *data, uint64_t seed,
                     uint32_t epoch, uint32_t id, int size);

#endif
