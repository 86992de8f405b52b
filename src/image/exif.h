/* The orientation that a photo's EXIF data give to its pixels. */
#ifndef DTRAIN_IMAGE_EXIF_H
#define DTRAIN_IMAGE_EXIF_H

#include <stddef.h>
#include <stdint.h>

/* 1 to 8 as in EXIF, of a JPEG or PNG file; 1, as stored, if it says nothing before its pixels. */
int dt_exif_orientation(const uint8_t *data, size_t bytes);

#endif
