/* From encoded bytes to a finished row. The crop is drawn from the width and height in the header,
 * so only the rows and columns it needs are decoded. Buffers grow to the largest image and are
 * reused. */
#include "data/row.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/trace.h"
#include "data/dataset.h"
#include "image/colour.h"
#include "image/decode.h"
#include "image/resize.h"

struct frame;
struct dt_row_reader {
    const struct dt_dataset *dataset;
    const struct dt_loader_options *options;
    const struct frame *frame;
    struct dt_sample sample;
    struct dt_decoder *decoder;
    struct dt_resize *resize;
    uint8_t *decoded; /* the part of the image that the crop needs */
    size_t decoded_capacity;
    uint8_t *resized; /* what is then warped */
    size_t resized_capacity;
    struct dt_layout layout;
    struct dt_on_canvas placement; /* of the last image */
    int height, y, y_end;          /* of the last image; its rows y .. y_end-1 were needed */
    double lap_s;
    struct dt_row_times times;
};

/* Adds the time since the last lap to one of the stages. */
static void lap(struct dt_row_reader *reader, double *part_s, const char *name)
{
    double now_s = dt_clock_s();
    *part_s += now_s - reader->lap_s;
    dt_trace_span(name, NULL, NULL, reader->lap_s, now_s);
    reader->lap_s = now_s;
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

/* --- Frames: the part of an image that gets into its row --- */

struct frame {
    /* Chooses where the image will lie, before it is read; NULL = it fills the row. */
    void (*place)(struct dt_row_reader *reader, uint32_t epoch, uint32_t id);
    /* Which part of the open image, of size[0] x size[1] pixels. */
    dt_status (*choose)(struct dt_row_reader *reader, struct dt_crop *crop, const int size[2],
                        uint32_t epoch, uint32_t id);
};

static dt_status choose_crop(struct dt_row_reader *reader, struct dt_crop *crop, const int size[2],
                             uint32_t epoch, uint32_t id)
{
    const struct dt_loader_options *o = reader->options;
    dt_crop_draw(crop, o->data, o->train, o->seed, epoch, id, size[0], size[1],
                 reader->placement.width);
    return DT_OK;
}

static void place_whole(struct dt_row_reader *reader, uint32_t epoch, uint32_t id)
{
    const struct dt_loader_options *o = reader->options;
    struct dt_image_info info;
    dt_dataset_image(reader->dataset, id, &info);
    if (o->train)
        dt_canvas_draw(&reader->placement, &reader->layout, o->seed, epoch, id, info.width,
                       info.height);
    else
        dt_canvas_plain(&reader->placement, &reader->layout, info.width, info.height);
}

static dt_status choose_whole(struct dt_row_reader *reader, struct dt_crop *crop, const int size[2],
                              uint32_t epoch, uint32_t id)
{
    const struct dt_on_canvas *p = &reader->placement;
    (void)size, (void)epoch, (void)id;
    *crop = (struct dt_crop){0, 0, (float)p->image_width, (float)p->image_height, p->flip};
    return dt_dataset_is_raw(reader->dataset) ? DT_OK
                                              : dt_dataset_expect(reader->dataset, reader->decoder,
                                                                  p->image_width, p->image_height);
}

static const struct frame crop_frame = {NULL, choose_crop},
                          whole_frame = {place_whole, choose_whole};

/* --- A row --- */

/* Finished pixels are used unchanged, except that only a corner of larger squares is. */
static dt_status copy_raw(const struct dt_row_reader *reader, uint8_t *pixels, struct dt_crop *crop,
                          uint32_t id)
{
    const size_t side = (size_t)reader->placement.width;
    struct dt_image_info info;
    dt_dataset_image(reader->dataset, id, &info);
    if (info.width < (int)side)
        DT_FAIL(DT_ERR_CONFIG,
                "the data set holds images of %zu bytes, but %zu x %zu pixels need %zu",
                reader->sample.bytes, side, side, 3 * side * side);
    for (size_t y = 0; y < side; y++)
        memcpy(pixels + y * 3 * side, reader->sample.data + y * 3 * (size_t)info.width, 3 * side);
    *crop = (struct dt_crop){0, 0, (float)side, (float)side, false};
    return DT_OK;
}

/* Scales the open image as far as `crop` allows. */
static void scale(struct dt_row_reader *reader, struct dt_crop *crop, int size[2])
{
    const struct dt_loader_options *o = reader->options;
    const struct dt_on_canvas *p = &reader->placement;
    const bool scales =
        (int)o->data->scaled_decode > (o->train ? DT_SCALED_NEVER : DT_SCALED_TRAIN);
    const int min = (p->width > p->height) == o->data->stretch ? p->width : p->height;
    dt_decoder_scale(reader->decoder, crop, &size[0], &size[1],
                     scales ? dt_row_scale(crop, size[0], size[1], min) : 1);
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

static dt_status make_image(struct dt_row_reader *reader, uint8_t *pixels, size_t pitch,
                            struct dt_crop *crop, uint32_t epoch, uint32_t id)
{
    const struct dt_on_canvas *p = &reader->placement;
    const struct dt_sample *sample = &reader->sample;
    const bool is_raw = dt_dataset_is_raw(reader->dataset);
    int size[2] = {p->image_width, p->image_height};
    struct dt_rect need;
    if (!is_raw)
        DT_TRY(dt_decoder_open(reader->decoder, &size[0], &size[1], sample->data, sample->bytes));
    lap(reader, &reader->times.decode_s, "read header");
    reader->height = size[1];
    DT_TRY(reader->frame->choose(reader, crop, size, epoch, id));
    const bool is_cut = reader->frame == &crop_frame && reader->options->train &&
                        reader->options->data->augment != DT_AUGMENT_NONE;
    struct dt_crop scaled = *crop;
    if (!is_raw)
        scale(reader, &scaled, size);
    DT_TRY(dt_resize_prepare(reader->resize, &need, &scaled,
                             is_cut ? DT_RESIZE_CROP : DT_RESIZE_IMAGE, size[0], size[1], p->width,
                             p->height));
    DT_TRY(DT_GROW(reader->decoded, reader->decoded_capacity,
                   (size_t)need.w * (size_t)need.h * 3 + DT_RESIZE_PAD, "a decoded image"));
    note_rows(reader, &need, size[1]);
    lap(reader, &reader->times.resize_s, "draw crop");
    if (is_raw) /* all of it */
        memcpy(reader->decoded, sample->data, sample->bytes);
    else
        DT_TRY(dt_decoder_decode(reader->decoder, reader->decoded, need.x, need.y, need.w, need.h));
    lap(reader, &reader->times.decode_s, "decode");
    return put_image(reader, pixels, pitch);
}

/* Changes colours and erases, in training, and fills the rest of the row with zeros. */
static void finish(const struct dt_row_reader *reader, uint8_t *pixels,
                   const struct dt_canvas *canvas, uint32_t epoch, uint32_t id)
{
    const struct dt_loader_options *o = reader->options;
    const struct dt_on_canvas *p = &reader->placement;
    const size_t pitch = 3 * (size_t)canvas->width, used = 3 * (size_t)p->width;
    if (o->train)
        dt_colour_apply(pixels, pitch, p->width, p->height, o->data, o->seed, epoch, id);
    for (int y = 0; y < p->height && used < pitch; y++)
        memset(pixels + (size_t)y * pitch + used, 0, pitch - used);
    memset(pixels + (size_t)p->height * pitch, 0, (size_t)(canvas->height - p->height) * pitch);
}

/* --- A reader --- */

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
    made->placement.width = options->canvases.size[0].width;
    made->placement.height = options->canvases.size[0].height;
    made->frame = dt_dataset_max_boxes(dataset) > 0 ? &whole_frame : &crop_frame;
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

const struct dt_on_canvas *dt_row_on_canvas(const struct dt_row_reader *reader)
{
    return &reader->placement;
}

struct dt_canvas dt_row_canvas(const struct dt_loader_options *options)
{
    const struct dt_canvas *max = options->canvases.size, *size = max;
    for (int i = 0; i < options->canvases.n; i++, size++)
        if ((int64_t)size->width * size->height > (int64_t)max->width * max->height)
            max = size;
    return *max;
}

dt_status dt_row_read(struct dt_row_reader *reader, uint8_t *pixels, struct dt_crop *crop,
                      uint32_t epoch, uint32_t id)
{
    reader->lap_s = dt_clock_s();
    if (reader->frame->place)
        reader->frame->place(reader, epoch, id);
    const struct dt_canvas *canvas = &reader->layout.canvases.size[reader->placement.canvas];
    dt_status status = dt_dataset_read(reader->dataset, id, &reader->sample);
    lap(reader, &reader->times.read_s, "read");
    DT_TRY(status);
    reader->times.bytes += reader->sample.bytes;
    status = dt_dataset_is_raw(reader->dataset) && reader->frame == &crop_frame
                 ? copy_raw(reader, pixels, crop, id)
                 : make_image(reader, pixels, 3 * (size_t)canvas->width, crop, epoch, id);
    if (status == DT_OK)
        finish(reader, pixels, canvas, epoch, id);
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
