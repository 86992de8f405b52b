/* One row of a batch: read a sample, decode what its crop needs, resize, flip, and in training
 * change its colours and erase. No threads in here: every loader thread owns one reader. */
#ifndef DTRAIN_DATA_ROW_H
#define DTRAIN_DATA_ROW_H

#include "dtrain/data.h"

struct dt_row_reader;
/* `dataset` and `options` are kept until dt_row_reader_destroy. */
dt_status dt_row_reader_create(struct dt_row_reader **reader, const struct dt_dataset *dataset,
                               const struct dt_loader_options *options);
void dt_row_reader_destroy(struct dt_row_reader *reader); /* accepts NULL */
/* pixels[image_size][image_size][3] and the crop used, of sample `id` in epoch `epoch`. DT_ERR_DATA
 * with the reason when this sample is bad; the row may be half written then. */
dt_status dt_row_read(struct dt_row_reader *reader, uint8_t *pixels, struct dt_crop *crop,
                      uint32_t epoch, uint32_t id);
/* Reads the header of the sample dt_row_read was last called with, and decodes its entropy-coded
 * data as far as that had to, without making pixels: to be timed by the caller. Nothing for
 * finished pixels. */
dt_status dt_row_skim(struct dt_row_reader *reader);
/* The largest of libjpeg's divisors 1, 2, 4 and 8 that leaves `crop`, of a width x height image, at
 * least image_size x image_size pixels; *scaled is that crop in the image that is so much smaller.
 * A pixel there stands for denominator x denominator pixels, in the last column and row for what is
 * left, so coordinates shrink by just the denominator; and since an edge of the image may thus lie
 * inside a pixel, a crop that reaches over it is not scaled. */
int dt_row_scale(struct dt_crop *scaled, const struct dt_crop *crop, int width, int height,
                 int image_size);
/* Seconds spent in dt_row_read since the last call of this, and bytes read. */
struct dt_row_times {
    double read_s, decode_s;
    double resize_s; /* and drawing, filter tables, flip, colours; copies of finished pixels */
    uint64_t bytes;
};
struct dt_row_times dt_row_take_times(struct dt_row_reader *reader);

#endif
