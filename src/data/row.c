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
    uint8_t *resized; /* what is then warped */
    size_t resized_capacity;
    struct dt_layout layout; /* with canvases, and of the last image: */
    struct dt_on_canvas placement;
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
    made->layout = (struct dt_layout){options->data, options->canvases};
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
    free(reader->resized);
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

/* Finished pixels of a synthetic data set, whose images are squares, are used unchanged, except
 * that only a corner of larger ones is. */
static dt_status copy_raw(const struct dt_row_reader *reader, uint8_t *pixels, struct dt_crop *crop)
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
    return DT_OK;
}

int dt_row_scale(const struct dt_crop *crop, int width, int height, int image_size)
{
    float shorter = crop->w < crop->h ? crop->w : crop->h;
    bool is_inside = crop->x >= 0.0f && crop->y >= 0.0f && crop->x + crop->w <= (float)width &&
                     crop->y + crop->h <= (float)height;
    int denominator = is_inside ? 8 : 1;
    while (denominator > 1 && shorter < (float)(image_size * denominator))
        denominator /= 2;
    return denominator;
}

/* Finds the rows of the file that `need`, in the possibly scaled image, is made from. */
static void note_rows(struct dt_row_reader *reader, const struct dt_rect *need, int decoded_height)
{
    int64_t height = reader->height;
    reader->y = (int)(need->y * height / decoded_height);
    reader->y_end = (int)(((need->y + need->h) * height + decoded_height - 1) / decoded_height);
}

/* Scales the open image, of size[0] x size[1] pixels, as far as `crop` allows. */
static void scale(struct dt_row_reader *reader, struct dt_crop *crop, int size[2], int image_size)
{
    const struct dt_loader_options *options = reader->options;
    const bool scales =
        (int)options->data->scaled_decode > (options->train ? DT_SCALED_NEVER : DT_SCALED_TRAIN);
    dt_decoder_scale(reader->decoder, crop, &size[0], &size[1],
                     scales ? dt_row_scale(crop, size[0], size[1], image_size) : 1);
}

static dt_status make_row(struct dt_row_reader *reader, uint8_t *pixels, struct dt_crop *crop,
                          uint32_t epoch, uint32_t id)
{
    const struct dt_loader_options *options = reader->options;
    int size[2];
    struct dt_rect need;
    if (dt_dataset_is_raw(reader->dataset))
        return copy_raw(reader, pixels, crop);
    DT_TRY(dt_decoder_open(reader->decoder, &size[0], &size[1], reader->sample.data,
                           reader->sample.bytes));
    lap(reader, &reader->times.decode_s, "read header");
    reader->height = size[1];
    dt_crop_draw(crop, options->data, options->train, options->seed, epoch, id, size[0], size[1],
                 options->image_size);
    struct dt_crop scaled = *crop;
    scale(reader, &scaled, size, options->image_size);
    DT_TRY(dt_resize_prepare(reader->resize, &need, &scaled, reader->edge, size[0], size[1],
                             options->image_size, options->image_size));
    DT_TRY(DT_GROW(reader->decoded, reader->decoded_capacity,
                   (size_t)need.w * (size_t)need.h * 3 + DT_RESIZE_PAD, "a decoded image"));
    note_rows(reader, &need, size[1]);
    lap(reader, &reader->times.resize_s, "draw crop");
    DT_TRY(dt_decoder_decode(reader->decoder, reader->decoded, need.x, need.y, need.w, need.h));
    lap(reader, &reader->times.decode_s, "decode");
    dt_resize_run(reader->resize, pixels, reader->decoded);
    return DT_OK;
}

/* --- Images on canvases --- */

/* Opens the image and finds *scaled, the whole of it at the size at which it is decoded. */
static dt_status open_whole(struct dt_row_reader *reader, struct dt_crop *scaled, int size[2])
{
    const struct dt_on_canvas *p = &reader->placement;
    *scaled = (struct dt_crop){0, 0, (float)p->image_width, (float)p->image_height, p->flip};
    size[0] = p->image_width;
    size[1] = p->image_height;
    if (dt_dataset_is_raw(reader->dataset))
        return DT_OK;
    DT_TRY(dt_decoder_open(reader->decoder, &size[0], &size[1], reader->sample.data,
                           reader->sample.bytes));
    DT_TRY(dt_dataset_expect(reader->dataset, reader->decoder, p->image_width, p->image_height));
    reader->height = size[1];
    const int longer = p->width > p->height ? p->width : p->height;
    const int shorter = p->width > p->height ? p->height : p->width;
    scale(reader, scaled, size, reader->layout.data->stretch ? longer : shorter);
    return DT_OK;
}

static dt_status decode_whole(struct dt_row_reader *reader, const struct dt_rect *need, int width)
{
    const size_t row = 3 * (size_t)need->w;
    DT_TRY(DT_GROW(reader->decoded, reader->decoded_capacity, row * (size_t)need->h + DT_RESIZE_PAD,
                   "a decoded image"));
    if (!dt_dataset_is_raw(reader->dataset))
        return dt_decoder_decode(reader->decoder, reader->decoded, need->x, need->y, need->w,
                                 need->h);
    for (int y = 0; y < need->h; y++)
        memcpy(reader->decoded + row * (size_t)y,
               reader->sample.data + 3 * ((size_t)(need->y + y) * (size_t)width + (size_t)need->x),
               row);
    return DT_OK;
}

static dt_status put_image(struct dt_row_reader *reader, uint8_t *pixels, size_t pitch)
{
    const struct dt_on_canvas *p = &reader->placement;
    if (!p->is_warped) {
        dt_resize_run_into(reader->resize, pixels, pitch, reader->decoded);
        return DT_OK;
    }
    DT_TRY(DT_GROW(reader->resized, reader->resized_capacity,
                   3 * (size_t)p->width * (size_t)p->height, "a resized image"));
    dt_resize_run(reader->resize, reader->resized, reader->decoded);
    dt_warp_run(&p->warp, pixels, pitch, reader->resized, p->width, p->height);
    return DT_OK;
}

static dt_status make_canvas(struct dt_row_reader *reader, uint8_t *pixels, struct dt_crop *crop,
                             uint32_t epoch, uint32_t id)
{
    const struct dt_loader_options *options = reader->options;
    const struct dt_on_canvas *p = &reader->placement;
    const struct dt_canvas *canvas = &options->canvases.size[p->canvas];
    const size_t pitch = 3 * (size_t)canvas->width, used = 3 * (size_t)p->width;
    struct dt_crop scaled;
    struct dt_rect need;
    int size[2];
    DT_TRY(open_whole(reader, &scaled, size));
    lap(reader, &reader->times.decode_s, "read header");
    *crop = (struct dt_crop){0, 0, (float)p->image_width, (float)p->image_height, p->flip};
    DT_TRY(dt_resize_prepare(reader->resize, &need, &scaled, DT_RESIZE_IMAGE, size[0], size[1],
                             p->width, p->height));
    note_rows(reader, &need, size[1]);
    lap(reader, &reader->times.resize_s, "draw crop");
    DT_TRY(decode_whole(reader, &need, size[0]));
    lap(reader, &reader->times.decode_s, "decode");
    DT_TRY(put_image(reader, pixels, pitch));
    if (options->train)
        dt_colour_apply(pixels, pitch, p->width, p->height, options->data, options->seed, epoch,
                        id);
    for (int y = 0; y < p->height; y++)
        memset(pixels + (size_t)y * pitch + used, 0, pitch - used);
    memset(pixels + (size_t)p->height * pitch, 0, (size_t)(canvas->height - p->height) * pitch);
    return DT_OK;
}

const struct dt_on_canvas *dt_row_on_canvas(const struct dt_row_reader *reader)
{
    return &reader->placement;
}

size_t dt_row_bytes(const struct dt_loader_options *options)
{
    size_t most = options->canvases.n > 0 ? 0 : (size_t)options->image_size;
    most *= most;
    for (int i = 0; i < options->canvases.n; i++) {
        const size_t area =
            (size_t)options->canvases.size[i].width * (size_t)options->canvases.size[i].height;
        most = area > most ? area : most;
    }
    return 3 * most;
}

dt_status dt_row_read(struct dt_row_reader *reader, uint8_t *pixels, struct dt_crop *crop,
                      uint32_t epoch, uint32_t id)
{
    const struct dt_loader_options *options = reader->options;
    const int size = options->image_size;
    struct dt_image_info info;
    reader->lap_s = dt_clock_s();
    if (options->canvases.n > 0)
        dt_dataset_image(reader->dataset, id, &info);
    if (options->canvases.n > 0 && options->train)
        dt_canvas_draw(&reader->placement, &reader->layout, options->seed, epoch, id, info.width,
                       info.height);
    else if (options->canvases.n > 0)
        dt_canvas_plain(&reader->placement, &reader->layout, info.width, info.height);
    dt_status status = dt_dataset_read(reader->dataset, id, &reader->sample);
    lap(reader, &reader->times.read_s, "read");
    DT_TRY(status);
    reader->times.bytes += reader->sample.bytes;
    status = options->canvases.n > 0 ? make_canvas(reader, pixels, crop, epoch, id)
                                     : make_row(reader, pixels, crop, epoch, id);
    if (status == DT_OK && options->canvases.n == 0 && options->train)
        dt_colour_apply(pixels, 3 * (size_t)size, size, size, options->data, options->seed, epoch,
                        id);
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
