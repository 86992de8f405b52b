#include "eval/drawing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/dataset.h"
#include "image/decode.h"
#include "image/resize.h"

/* --- Images --- */

struct image {
    uint8_t *pixels; /* with DT_RESIZE_PAD bytes more */
    int width, height;
};

static dt_status take_raw(struct image *image, const struct dt_sample *sample,
                          const struct dt_dataset *dataset, uint32_t id)
{
    struct dt_image_info info;
    dt_dataset_image(dataset, id, &info);
    *image = (struct image){.width = info.width, .height = info.height};
    if (sample->bytes != 3 * (size_t)info.width * (size_t)info.height)
        DT_FAIL(DT_ERR_INTERNAL, "an image of %d x %d pixels has %zu bytes", info.width,
                info.height, sample->bytes);
    DT_TRY(DT_NEW(image->pixels, sample->bytes + DT_RESIZE_PAD));
    memcpy(image->pixels, sample->data, sample->bytes);
    return DT_OK;
}

static dt_status decode(struct image *image, const struct dt_sample *sample,
                        const struct dt_dataset *dataset)
{
    struct dt_decoder *decoder;
    dt_status status = DT_OK;
    DT_TRY(dt_dataset_decoder(&decoder, dataset));
    DT_TRY_OUT(
        dt_decoder_open(decoder, &image->width, &image->height, sample->data, sample->bytes));
    DT_TRY_OUT(
        DT_NEW(image->pixels, 3 * (size_t)image->width * (size_t)image->height + DT_RESIZE_PAD));
    DT_TRY_OUT(dt_decoder_decode(decoder, image->pixels, 0, 0, image->width, image->height));
out:
    dt_decoder_destroy(decoder);
    return status;
}

static dt_status load_image(struct image *image, const struct dt_dataset *dataset, uint32_t id)
{
    struct dt_sample sample = {0};
    dt_status status = dt_dataset_read(dataset, id, &sample);
    if (status == DT_OK && dt_dataset_is_raw(dataset))
        status = take_raw(image, &sample, dataset, id);
    else if (status == DT_OK)
        status = decode(image, &sample, dataset);
    free(sample.data);
    return status;
}

static dt_status reduce(struct dt_picture *picture, const struct image *image)
{
    const struct dt_crop all = {.w = (float)image->width, .h = (float)image->height};
    struct dt_resize *resize;
    struct dt_rect need;
    DT_TRY(dt_resize_create(&resize));
    dt_status status = dt_resize_prepare(resize, &need, &all, DT_RESIZE_CROP, image->width,
                                         image->height, picture->width, picture->height);
    if (status == DT_OK)
        dt_resize_run(resize, picture->pixels, image->pixels);
    dt_resize_destroy(resize);
    return status;
}

static int scaled(int pixels, double factor)
{
    const int n = (int)lround(pixels * factor);
    return n > 0 ? n : 1;
}

dt_status dt_drawing_open(struct dt_drawing *drawing, const struct dt_dataset *dataset, uint32_t id,
                          int longest)
{
    struct image image = {0};
    struct dt_picture *picture = &drawing->picture;
    dt_status status = DT_OK;
    *drawing = (struct dt_drawing){.dataset = dataset};
    DT_TRY_OUT(load_image(&image, dataset, id));
    const int longer = image.width > image.height ? image.width : image.height;
    const double factor = longest > 0 && longer > longest ? (double)longest / longer : 1;
    DT_TRY_OUT(
        dt_picture_create(picture, scaled(image.width, factor), scaled(image.height, factor), 0));
    drawing->zoom_x = (double)picture->width / image.width;
    drawing->zoom_y = (double)picture->height / image.height;
    drawing->scale = longest > 0 ? 1 : dt_draw_scale(picture->width, picture->height);
    if (factor < 1)
        DT_TRY_OUT(reduce(picture, &image));
    else
        memcpy(picture->pixels, image.pixels, 3 * (size_t)picture->width * (size_t)picture->height);
out:
    free(image.pixels);
    return status;
}

void dt_drawing_reset(struct dt_drawing *drawing)
{
    free(drawing->picture.pixels);
    *drawing = (struct dt_drawing){0};
}

/* --- Boxes --- */

static struct dt_draw_box place(const struct dt_drawing *drawing, double x, double y, double w,
                                double h, const char *text)
{
    return (struct dt_draw_box){
        .x1 = x * drawing->zoom_x,
        .y1 = y * drawing->zoom_y,
        .x2 = (x + w) * drawing->zoom_x,
        .y2 = (y + h) * drawing->zoom_y,
        .text = text,
        .scale = drawing->scale,
        .rgb = {255, 255, 255},
    };
}

void dt_drawing_add_found(struct dt_drawing *drawing, const struct dt_found *found, size_t n)
{
    char text[256], number[16];
    for (size_t i = n; i-- > 0;) {
        const struct dt_found *f = &found[i];
        struct dt_draw_box box = place(drawing, f->x, f->y, f->w, f->h, text);
        snprintf(text, sizeof text, "%s %.2f",
                 dt_dataset_label_text(drawing->dataset, f->label, number), f->score);
        dt_draw_colour(box.rgb, f->label);
        dt_draw_box(&drawing->picture, &box);
    }
}

dt_status dt_drawing_add_truths(struct dt_drawing *drawing, uint32_t id)
{
    struct dt_truth *truth;
    char number[16];
    DT_TRY(DT_NEW(truth, (size_t)dt_dataset_max_boxes(drawing->dataset)));
    const int n = dt_dataset_truths(drawing->dataset, id, truth);
    for (int i = 0; i < n; i++) {
        const struct dt_truth *t = &truth[i];
        const char *name = dt_dataset_label_text(drawing->dataset, t->label, number);
        struct dt_draw_box box = place(drawing, t->x, t->y, t->w, t->h, t->is_crowd ? "" : name);
        box.below = true;
        dt_draw_box(&drawing->picture, &box);
    }
    free(truth);
    return DT_OK;
}

/* --- The sheet --- */

enum { N_CELLS = 4, COLUMNS = 2, LONGEST = 480, MARGIN = 8, PAPER = 244 };

/* The detections of an image follow each other, the best first. */
static dt_status draw_cell(struct dt_drawing *cell, const struct dt_dataset *dataset, uint32_t id,
                           const struct dt_found *found, size_t n)
{
    const double min_score = 0.3;
    size_t first = 0, end;
    while (first < n && found[first].image != id)
        first++;
    for (end = first; end < n && found[end].image == id && found[end].score > min_score;)
        end++;
    DT_TRY(dt_drawing_open(cell, dataset, id, LONGEST));
    DT_TRY(dt_drawing_add_truths(cell, id));
    dt_drawing_add_found(cell, found + first, end - first);
    return DT_OK;
}

static dt_status save_cells(int size[2], const char *path, const struct dt_drawing *cells, int n)
{
    struct dt_picture sheet;
    int width = 0, height = 0;
    for (int i = 0; i < n; i++) {
        width = cells[i].picture.width > width ? cells[i].picture.width : width;
        height = cells[i].picture.height > height ? cells[i].picture.height : height;
    }
    const int columns = n < COLUMNS ? n : COLUMNS, rows = (n + COLUMNS - 1) / COLUMNS;
    DT_TRY(dt_picture_create(&sheet, MARGIN + columns * (width + MARGIN),
                             MARGIN + rows * (height + MARGIN), PAPER));
    for (int i = 0; i < n; i++) {
        const struct dt_picture *cell = &cells[i].picture;
        const size_t x = (size_t)(MARGIN + i % COLUMNS * (width + MARGIN)),
                     y = (size_t)(MARGIN + i / COLUMNS * (height + MARGIN)),
                     bytes = 3 * (size_t)cell->width;
        for (size_t row = 0; row < (size_t)cell->height; row++)
            memcpy(sheet.pixels + 3 * ((y + row) * (size_t)sheet.width + x),
                   cell->pixels + row * bytes, bytes);
    }
    const dt_status status = dt_picture_save(&sheet, path);
    size[0] = sheet.width;
    size[1] = sheet.height;
    free(sheet.pixels);
    return status;
}

dt_status dt_drawing_save_sheet(int size[2], const char *path, const struct dt_dataset *dataset,
                                const struct dt_found *found, size_t n)
{
    struct dt_drawing cells[N_CELLS] = {0};
    const uint32_t n_images = dt_dataset_size(dataset);
    const uint32_t n_cells = n_images < N_CELLS ? n_images : N_CELLS;
    int n_drawn = 0;
    dt_status status = DT_OK;
    size[0] = size[1] = 0;
    for (uint32_t i = 0; i < n_cells && status == DT_OK; i++) {
        const uint32_t id = (uint32_t)((uint64_t)i * n_images / n_cells);
        status = draw_cell(&cells[n_drawn], dataset, id, found, n);
        n_drawn += status == DT_OK;
        if (status == DT_ERR_DATA) { /* the evaluation has warned of it */
            dt_drawing_reset(&cells[n_drawn]);
            dt_error_clear();
            status = DT_OK;
        }
    }
    if (status == DT_OK && n_drawn > 0)
        status = save_cells(size, path, cells, n_drawn);
    for (int i = 0; i < N_CELLS; i++)
        dt_drawing_reset(&cells[i]);
    return status;
}

void dt_drawing_report(const struct dt_sets *sets, struct dt_events *report,
                       const struct dt_found *found, size_t n)
{
    char path[DT_PATH_MAX];
    int size[2] = {0};
    if (!report || !sets->train_set) /* dtrain eval shows progress only */
        return;
    dt_status status = dt_file_path(path, "%s/detections.jpg", sets->config->output.dir);
    if (status == DT_OK)
        status = dt_drawing_save_sheet(size, path, sets->val_set, found, n);
    const struct dt_field fields[] = {DT_TEXT("path", path), DT_INT("width", size[0]),
                                      DT_INT("height", size[1])};
    if (status == DT_OK && size[0] > 0)
        dt_events_emit(report, "detections", fields, DT_COUNT(fields));
    if (status == DT_OK)
        return;
    dt_log(DT_LOG_WARNING, "no picture of validation images: %s", dt_error_text());
    dt_error_clear();
}
