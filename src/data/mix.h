/* Mixes pairs of finished rows of a training batch, size x size x 3 u8 RGB. Pure functions of
 * (seed, epoch, sample id). */
#ifndef DTRAIN_DATA_MIX_H
#define DTRAIN_DATA_MIX_H

#include <stdbool.h>
#include <stdint.h>

#include "dtrain/config.h"

/* Mixup (Zhang et al. 2018) or CutMix (Yun et al. 2019) of rows a and b in place, one draw for
 * both: each gets the same share of the other. Returns the share of its own image that each row
 * keeps, 0.5 .. 1 (a draw below 0.5 means the same pair in the other order: 1 - draw is used, and
 * CutMix exchanges the pixels outside the rectangle). `id` is the sample drawn for row a. The share
 * is exact: mixup's is a multiple of 1/256, CutMix's is counted in pixels after the rectangle
 * (timm's: centre uniform in the image, sides size * sqrt(1 - draw)) is clipped. If both are on,
 * each pair gets one of them, with probability 1/2. */
float dt_mix_pair(uint8_t *a, uint8_t *b, const struct dt_config_data *data, uint64_t seed,
                  uint32_t epoch, uint32_t id, int size);
/* Whether mixup or CutMix is on. */
bool dt_mix_is_on(const struct dt_config_data *data);

#endif
