/* From encoded bytes to a finished row. The crop is drawn from the width and height in the header,
 * so only the rows and columns it needs are decoded. Buffers grow to the largest image and are
 * reused. */
#include "data/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/trace.h"
#include "data/dataset.h"
#include "image/colour.h"
#include "image/decode.h"
#include "image/resize.h"

struct dt_row_reader {
    const struct dt_dataset *dataset;
    const struct dt_loader_options *options;
    enum dt_resize_edge edge;
    struct dt_sample sample;
    struct dt_decoder *decoder;
    struct dt_resize *resize;
    uint8_t *decoded; /* the part of the image that the crop needs */
    size_t decoded_capacity;
    int height, y, y_end; /* of the last image; its rows y .. y_end-1 were needed */
    double lap_s;
    struct dt_row_times times;
};

dt_status dt_row_reader_create(struct dt_row_reader **reader, const struct dt_dataset *dataset,
                               const struct dt_loader_options *options)
{
    dt_status status = DT_OK;
    struct dt_row_reader *made = NULL;
    *reader = NULL;
    DT_TRY(DT_NEW(made, 1));
    made->dataset = dataset;
    made->options = options;
    made->edge = DT_RESIZE_IMAGE;
    if (options->train && options->data->augment != DT_AUGMENT_NONE)
        made->edge = DT_RESIZE_CROP;
    DT_TRY_OUT(dt_decoder_create(&made->decoder, options->data));
    DT_TRY_OUT(dt_resize_create(&made->resize));
    *reader = made;
    return DT_OK;
out:
    dt_row_reader_destroy(made);
    return status;
}

void dt_row_reader_destroy(struct dt_row_reader *reader)
{
    if (!reader)
        return;
    dt_decoder_destroy(reader->decoder);
    dt_resize_destroy(reader->resize);
    free(reader->sample.data);
    free(reader->decoded);
    free(reader);
}

/* Adds the time since the last lap to one of the stages. */
static void lap(struct dt_row_reader *reader, double *part_s, const char *name)
{
    double now_s = dt_clock_s();
    *part_s += now_s - reader->lap_s;
    dt_trace_span(name, NULL, NULL, reader->lap_s, now_s);
    reader->lap_s = now_s;
}

static void mirror(uint8_t *pixels, int size)
{
    for (int y = 0; y < size; y++, pixels += 3 * (size_t)size)
        for (int i = 0, k = size - 1; i < k; i++, k--) {
            uint8_t pixel[3];
            memcpy(pixel, pixels + 3 * i, sizeof pixel);
            memcpy(pixels + 3 * i, pixels + 3 * k, sizeof pixel);
            memcpy(pixels + 3 * k, pixel, sizeof pixel);
        }
}

/* Finished pixels of a synthetic data set, whose images are squares, are used unchanged, except
 * that only a corner of larger ones is, and that those with boxes may be flipped. */
static dt_status copy_raw(const struct dt_row_reader *reader, uint8_t *pixels, struct dt_crop *crop,
                          uint32_t epoch, uint32_t id)
{
    const struct dt_loader_options *options = reader->options;
    int size = options->image_size;
    size_t row_bytes = (size_t)size * 3, bytes = row_bytes * (size_t)size;
    size_t step = 3 * (size_t)lround(sqrt((double)reader->sample.bytes / 3));
    if (reader->sample.bytes < bytes)
        DT_FAIL(DT_ERR_CONFIG,
                "the data set holds images of %zu bytes, but %d x %d pixels need %zu",
                reader->sample.bytes, size, size, bytes);
    for (size_t y = 0; y < (size_t)size; y++)
        memcpy(pixels + y * row_bytes, reader->sample.data + y * step, row_bytes);
    *crop = (struct dt_crop){0.0f, 0.0f, (float)size, (float)size, false};
    if (dt_dataset_max_boxes(reader->dataset) > 0)
        crop->flip = dt_crop_draw_flip(options->data, options->train, options->seed, epoch, id);
    if (crop->flip)
        mirror(pixels, size);
    return DT_OK;
}

static bool is_inside(const struct dt_crop *crop, int width, int height)
{
    return crop->x >= 0.0f && crop->y >= 0.0f && crop->x + crop->w <= (float)width &&
           crop->y + crop->h <= (float)height;
}

int dt_row_scale(struct dt_crop *scaled, const struct dt_crop *crop, int width, int height,
                 int image_size)
{
    float shorter = crop->w < crop->h ? crop->w : crop->h;
    int denominator = is_inside(crop, width, height) ? 8 : 1;
    while (denominator > 1 && shorter < (float)(image_size * denominator))
        denominator /= 2;
    float factor = 1.0f / (float)denominator;
    *scaled = (struct dt_crop){crop->x * factor, crop->y * factor, crop->w * factor,
                               crop->h * factor, crop->flip};
    return denominator;
}

/* Finds the rows of the file that `need`, in the possibly scaled image, is made from. */
static void note_rows(struct dt_row_reader *reader, const struct dt_rect *need, int decoded_height)
{
    int64_t height = reader->height;
    reader->y = (int)(need->y * height / decoded_height);
    reader->y_end = (int)(((need->y + need->h) * height + decoded_height - 1) / decoded_height);
}

static bool is_scaled(const struct dt_loader_options *options)
{
    return (int)options->data->scaled_decode > (options->train ? DT_SCALED_NEVER : DT_SCALED_TRAIN);
}

static dt_status make_row(struct dt_row_reader *reader, uint8_t *pixels, struct dt_crop *crop,
                          uint32_t epoch, uint32_t id)
{
    const struct dt_loader_options *options = reader->options;
    int width, height;
    struct dt_rect need;
    if (dt_dataset_is_raw(reader->dataset))
        return copy_raw(reader, pixels, crop, epoch, id);
    DT_TRY(dt_decoder_open(reader->decoder, &width, &height, reader->sample.data,
                           reader->sample.bytes));
    lap(reader, &reader->times.decode_s, "read header");
    reader->height = height;
    dt_crop_draw(crop, options->data, options->train, options->seed, epoch, id, width, height,
                 options->image_size);
    struct dt_crop scaled = *crop;
    struct dt_jpeg *jpeg = dt_decoder_jpeg(reader->decoder);
    if (jpeg && is_scaled(options))
        dt_jpeg_scale(jpeg, &width, &height,
                      dt_row_scale(&scaled, crop, width, height, options->image_size));
    DT_TRY(dt_resize_prepare(reader->resize, &need, &scaled, reader->edge, width, height,
                             options->image_size, options->image_size));
    DT_TRY(dt_mem_grow((void **)&reader->decoded, &reader->decoded_capacity,
                       (size_t)need.w * (size_t)need.h * 3 + DT_RESIZE_PAD, 1, "a decoded image"));
    note_rows(reader, &need, height);
    lap(reader, &reader->times.resize_s, "draw crop");
    DT_TRY(dt_decoder_decode(reader->decoder, reader->decoded, need.x, need.y, need.w, need.h));
    lap(reader, &reader->times.decode_s, "decode");
    dt_resize_run(reader->resize, pixels, reader->decoded);
    return DT_OK;
}

dt_status dt_row_read(struct dt_row_reader *reader, uint8_t *pixels, struct dt_crop *crop,
                      uint32_t epoch, uint32_t id)
{
    const struct dt_loader_options *options = reader->options;
    reader->lap_s = dt_clock_s();
    dt_status status = dt_dataset_read(reader->dataset, id, &reader->sample);
    lap(reader, &reader->times.read_s, "read");
    DT_TRY(status);
    reader->times.bytes += reader->sample.bytes;
    status = make_row(reader, pixels, crop, epoch, id);
    if (status == DT_OK && options->train)
        dt_colour_apply(pixels, options->data, options->seed, epoch, id, options->image_size);
    lap(reader, &reader->times.resize_s, "augment");
    return status;
}

dt_status dt_row_skim(struct dt_row_reader *reader)
{
    int width, height;
    if (dt_dataset_is_raw(reader->dataset))
        return DT_OK;
    DT_TRY(dt_decoder_open(reader->decoder, &width, &height, reader->sample.data,
                           reader->sample.bytes));
    return dt_decoder_skim(reader->decoder, reader->y, reader->y_end - reader->y);
}

struct dt_row_times dt_row_take_times(struct dt_row_reader *reader)
{
    struct dt_row_times times = reader->times;
    reader->times = (struct dt_row_times){0};
    return times;
}
