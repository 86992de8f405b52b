#include "eval/drawing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/mix.h"
#include "engine/task.h"
#include "image/draw.h"

enum { MARGIN = 14, MIN_WIDTH = 168, SCALE = 2, LINE = 10 * SCALE, PAPER = 244, INK = 30 };

/* Below each image is a line of text, or two if images are mixed; boxes have theirs inside. */
struct sheet {
    struct dt_picture picture;
    const struct dt_dataset *dataset;
    int n, columns, n_lines;
    int width, height; /* of the largest image as it is drawn */
    int zoom, step;    /* small ones are enlarged; of large ones every step-th pixel is drawn */
    const struct dt_batch *batch;
};

/* A name that is too long for the width of the image ends in dots; the share, omitted if it is 1,
 * stays whole. */
static void draw_class(struct sheet *sheet, int x, int y, const char *before, int label,
                       double share)
{
    char number[16], amount[16] = "", text[256];
    const char *name = dt_dataset_label_text(sheet->dataset, label, number);
    if (share < 1)
        snprintf(amount, sizeof amount, " %.2f", share);
    size_t room = (size_t)(sheet->width / (DT_TEXT_STEP * SCALE)) - strlen(before) - strlen(amount);
    bool fits = strlen(name) <= room;
    snprintf(text, sizeof text, "%s%.*s%s%s", before, (int)(fits ? room : room - 2), name,
             fits ? "" : "..", amount);
    dt_draw_text(&sheet->picture, x, y, text, SCALE, INK);
}

static void draw_boxes(struct sheet *sheet, int row, int x, int y)
{
    const int max = dt_dataset_max_boxes(sheet->dataset);
    const double zoom = (double)sheet->zoom / sheet->step;
    const int32_t *labels = sheet->batch->box_labels + (size_t)row * (size_t)max;
    const float *corner = sheet->batch->boxes + 4 * (size_t)row * (size_t)max;
    for (int k = 0; k < max && labels[k] >= 0; k++, corner += 4) {
        char number[16];
        struct dt_draw_box box = {
            .x1 = x + zoom * (double)corner[0],
            .y1 = y + zoom * (double)corner[1],
            .x2 = x + zoom * (double)corner[2],
            .y2 = y + zoom * (double)corner[3],
            .text = dt_dataset_label_text(sheet->dataset, labels[k], number),
            .scale = dt_draw_scale(sheet->width, sheet->height),
        };
        dt_draw_colour(box.rgb, labels[k]);
        dt_draw_box(&sheet->picture, &box);
    }
}

/* Draws a row of the batch as image i of the sheet. */
static void draw_sample(struct sheet *sheet, int i, int row)
{
    const struct dt_batch *batch = sheet->batch;
    const int x = MARGIN + i % sheet->columns * (sheet->width + MARGIN);
    const int y = MARGIN + i / sheet->columns * (sheet->height + sheet->n_lines * LINE + MARGIN);
    const size_t n_bytes = 3 * (size_t)batch->width * (size_t)batch->height;
    const int text_y = y + sheet->height + LINE / 4;
    double share = (double)batch->mix_share[row];
    if (share >= 0.995 || batch->labels[row] == batch->labels2[row])
        share = 1;
    dt_draw_image(&sheet->picture, x, y, batch->pixels + n_bytes * (size_t)row, batch->width,
                  batch->height, sheet->zoom, sheet->step);
    if (batch->boxes) {
        draw_boxes(sheet, row, x, y);
        return;
    }
    draw_class(sheet, x, text_y, "", batch->labels[row], share);
    if (share < 1)
        draw_class(sheet, x, text_y + LINE, "+ ", batch->labels2[row], 1 - share);
}

/* Wider than high, with full rows if that is possible. */
static int choose_columns(int n)
{
    int columns = 1 + (int)sqrt(1.6 * n);
    for (int c = columns; c * c <= 4 * n; c++)
        if (n % c == 0)
            return c;
    return n > 0 && n < columns ? n : columns;
}

/* The first n images of the order, in the smallest batches, as each has one canvas. */
static dt_status draw_all(struct sheet *sheet, struct dt_loader **loader,
                          const struct dt_engine *engine, const struct dt_sets *sets)
{
    struct dt_loader_options options = dt_engine_loader_options(engine, true);
    const int n = options.split.unit;
    options.split = (struct dt_split){.images = n, .n_parts = 1, .n_passes = 1, .unit = n};
    DT_TRY(dt_loader_create(loader, sets->train_set, &options));
    DT_TRY(dt_loader_start(*loader, 0, 0));
    for (int i = 0; i < sheet->n; i += n) {
        DT_TRY(dt_loader_next(*loader, &sheet->batch));
        for (int row = 0; row < n; row++)
            draw_sample(sheet, i + row, row);
        dt_loader_release(*loader, sheet->batch);
    }
    return DT_OK;
}

/* Every image fits into this size. */
static struct dt_canvas largest(const struct dt_engine *engine, const struct dt_sets *sets)
{
    const struct dt_canvases canvases = dt_config_canvases(sets->config, engine->stage.image_size);
    struct dt_canvas size = {0, 0};
    for (int i = 0; i < canvases.n; i++) {
        const struct dt_canvas *canvas = &canvases.size[i];
        size.width = canvas->width > size.width ? canvas->width : size.width;
        size.height = canvas->height > size.height ? canvas->height : size.height;
    }
    return size;
}

int dt_samples_zoom(const struct dt_engine *engine, const struct dt_sets *sets)
{
    const int width = largest(engine, sets).width;
    return (MIN_WIDTH + width - 1) / width;
}

dt_status dt_samples_draw(int *n, const struct dt_engine *engine, const struct dt_sets *sets,
                          int64_t count, const char *path)
{
    enum { MAX_SIDE = 480 };
    const int n_images = (int)dt_dataset_size(sets->train_set),
              zoom = dt_samples_zoom(engine, sets);
    const struct dt_canvas size = largest(engine, sets);
    const int longer = size.width > size.height ? size.width : size.height;
    const int step = 1 + (longer - 1) / MAX_SIDE;
    const bool mixes = dt_mix_is_on(&engine->config->data);
    struct dt_loader *loader = NULL;
    struct sheet sheet = {.dataset = sets->train_set,
                          .width = zoom * (1 + (size.width - 1) / step),
                          .height = zoom * (1 + (size.height - 1) / step),
                          .zoom = zoom,
                          .step = step,
                          .n_lines = dt_dataset_max_boxes(sets->train_set) > 0 ? 0 : 1 + mixes};
    sheet.n = count < n_images ? (int)count : n_images;
    if (mixes && sheet.n % 2 != 0) /* pairs */
        sheet.n += sheet.n < n_images ? 1 : -1;
    sheet.columns = choose_columns(sheet.n);
    const int n_rows = (sheet.n + sheet.columns - 1) / sheet.columns;
    DT_TRY(dt_picture_create(&sheet.picture, MARGIN + sheet.columns * (sheet.width + MARGIN),
                             MARGIN + n_rows * (sheet.height + sheet.n_lines * LINE + MARGIN),
                             PAPER));
    dt_status status = draw_all(&sheet, &loader, engine, sets);
    if (status == DT_OK)
        status = dt_picture_save(&sheet.picture, path);
    dt_loader_destroy(loader);
    free(sheet.picture.pixels);
    *n = sheet.n;
    return status;
}

void dt_samples_report(const struct dt_engine *engine, const struct dt_sets *sets)
{
    enum { COUNT = 16 };
    char path[DT_PATH_MAX];
    int n;
    dt_status status = dt_file_path(path, "%s/samples.png", engine->config->output.dir);
    if (status == DT_OK)
        status = dt_samples_draw(&n, engine, sets, COUNT, path);
    if (status == DT_OK) {
        const struct dt_field fields[] = {DT_TEXT("path", path)};
        dt_events_emit(engine->events, "samples", fields, DT_COUNT(fields));
    } else {
        dt_log(DT_LOG_WARNING, "no picture of training images: %s", dt_error_text());
        dt_error_clear();
    }
}
