/* The part of an image that is used, drawn before the image is decoded. */
#ifndef DTRAIN_IMAGE_CROP_H
#define DTRAIN_IMAGE_CROP_H

#include <stdbool.h>
#include <stdint.h>

#include "dtrain/config.h"

struct dt_crop {
    float x, y, w, h; /* source rectangle in pixels; may reach outside (padding is black) */
    bool flip;        /* left-right */
};
/* Training crops: imagenet = random resized crop (scale 0.08..1, ratio 3/4..4/3, torchvision's
 * rule), cifar = zero pad by 4 and random crop at the original size; both flip with probability
 * 1/2. none, and evaluation (train = false): resize the shorter side to dt_crop_resize, centre
 * crop. */
void dt_crop_draw(struct dt_crop *crop, const struct dt_config_data *data, bool train,
                  uint64_t seed, uint32_t epoch, uint32_t id, int width, int height, int size);
/* data.val_resize, or if that is 0 the usual 256 / 224 of the image size. */
int dt_crop_resize(const struct dt_config_data *data, int size);

#endif
