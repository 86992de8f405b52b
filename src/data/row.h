/* One row of a batch: read a sample, decode its crop, resize, flip, and in training change colours
 * and erase. No threads in here: every loader thread owns one reader. */
#ifndef DTRAIN_DATA_ROW_H
#define DTRAIN_DATA_ROW_H

#include "boxes/canvas.h"
#include "dtrain/data.h"

struct dt_row_reader;
/* `dataset` and `options` are kept until dt_row_reader_destroy. */
dt_status dt_row_reader_create(struct dt_row_reader **reader, const struct dt_dataset *dataset,
                               const struct dt_loader_options *options);
void dt_row_reader_destroy(struct dt_row_reader *reader); /* accepts NULL */
/* pixels[height][width][3] of the canvas of sample `id`, and the crop used, in epoch `epoch`: a
 * crop as large as the canvas, or of a set with boxes the whole image as dt_row_on_canvas says, the
 * rest 0. DT_ERR_DATA with the reason if this sample is bad, also if its size is not that
 * of the annotations; the row may then be partly written. */
dt_status dt_row_read(struct dt_row_reader *reader, uint8_t *pixels, struct dt_crop *crop,
                      uint32_t epoch, uint32_t id);
/* The place in its row of the image that dt_row_read was last called for, even if it is bad. */
const struct dt_on_canvas *dt_row_on_canvas(const struct dt_row_reader *reader);
/* The size of the largest row. */
struct dt_canvas dt_row_canvas(const struct dt_loader_options *options);
/* For the caller to time: reads the header of the sample last passed to dt_row_read and decodes its
 * entropy-coded data as far as that call did, without making pixels. Does nothing for finished
 * pixels. */
dt_status dt_row_skim(struct dt_row_reader *reader);
/* The largest of libjpeg's divisors 1, 2, 4 and 8 that leaves `crop`, of a width x height image, at
 * least image_size x image_size pixels. A pixel of the scaled image stands for denominator x
 * denominator pixels, or fewer in the last column and row, so coordinates are divided by exactly
 * the denominator. An edge of the image may thus lie inside a pixel, so a crop that extends beyond
 * an edge is not scaled. */
int dt_row_scale(const struct dt_crop *crop, int width, int height, int image_size);
/* Seconds spent in dt_row_read, and bytes read, since the last call of dt_row_take_times. */
struct dt_row_times {
    double read_s, decode_s;
    double resize_s; /* also drawing, filter tables, flip, colours; copying finished pixels */
    uint64_t bytes;
};
struct dt_row_times dt_row_take_times(struct dt_row_reader *reader);

#endif
