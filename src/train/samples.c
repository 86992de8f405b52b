#include "train/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/mix.h"
#include "image/draw.h"

enum { MARGIN = 14, LEAST_WIDTH = 168, SCALE = 2, LINE = 10 * SCALE, PAPER = 244, INK = 30 };

/* Below each image is a line of text, or two if images are mixed; boxes have theirs inside. */
struct sheet {
    struct dt_picture picture;
    const struct dt_dataset *dataset;
    const struct dt_batch *batch;
    int n, columns, n_lines;
    int size, zoom, width; /* of an image; small ones are enlarged */
};

/* A name that is too long for the width of the image ends in dots; the share, left out if it is 1,
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

static void draw_boxes(struct sheet *sheet, int i, int x, int y)
{
    enum { THICKNESS = 2, WHITE = 255 };
    const int most = dt_dataset_max_boxes(sheet->dataset), zoom = sheet->zoom;
    const int32_t *labels = sheet->batch->box_labels + (size_t)i * (size_t)most;
    const float *box = sheet->batch->boxes + 4 * (size_t)i * (size_t)most;
    for (int k = 0; k < most && labels[k] >= 0; k++, box += 4) {
        char number[16];
        const int left = x + zoom * (int)lroundf(box[0]), top = y + zoom * (int)lroundf(box[1]);
        dt_draw_frame(&sheet->picture, left, top, x + zoom * (int)lroundf(box[2]),
                      y + zoom * (int)lroundf(box[3]), THICKNESS, WHITE);
        dt_draw_text(&sheet->picture, left + 2 * THICKNESS, top + 2 * THICKNESS,
                     dt_dataset_label_text(sheet->dataset, labels[k], number), SCALE, WHITE);
    }
}

static void draw_sample(struct sheet *sheet, int i)
{
    const struct dt_batch *batch = sheet->batch;
    const int x = MARGIN + i % sheet->columns * (sheet->width + MARGIN);
    const int y = MARGIN + i / sheet->columns * (sheet->width + sheet->n_lines * LINE + MARGIN);
    const size_t n_bytes = 3 * (size_t)sheet->size * (size_t)sheet->size;
    const int text_y = y + sheet->width + LINE / 4;
    double share = (double)batch->mix_shares[i];
    if (share >= 0.995 || batch->labels[i] == batch->labels2[i])
        share = 1;
    dt_draw_image(&sheet->picture, x, y, batch->pixels + n_bytes * (size_t)i, sheet->size,
                  sheet->zoom);
    if (batch->boxes) {
        draw_boxes(sheet, i, x, y);
        return;
    }
    draw_class(sheet, x, text_y, "", batch->labels[i], share);
    if (share < 1)
        draw_class(sheet, x, text_y + LINE, "+ ", batch->labels2[i], 1 - share);
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

static dt_status create_picture(struct sheet *sheet)
{
    int n_rows = (sheet->n + sheet->columns - 1) / sheet->columns;
    return dt_picture_create(&sheet->picture, MARGIN + sheet->columns * (sheet->width + MARGIN),
                             MARGIN + n_rows * (sheet->width + sheet->n_lines * LINE + MARGIN),
                             PAPER);
}

/* Takes the first n images of the order as one batch. */
static dt_status load_batch(struct sheet *sheet, struct dt_loader **loader,
                            const struct dt_session *s)
{
    struct dt_loader_options options = dt_session_loader_options(s, true);
    options.global_batch_size = options.micro_batch_size = sheet->n;
    options.rank = 0;
    options.n_ranks = 1;
    DT_TRY(dt_loader_create(loader, s->train_set, &options));
    DT_TRY(dt_loader_start(*loader, 0, 0));
    return dt_loader_next(*loader, &sheet->batch);
}

int dt_samples_zoom(int size)
{
    return (LEAST_WIDTH + size - 1) / size;
}

dt_status dt_samples_draw(int *n, const struct dt_session *s, int64_t count, const char *path)
{
    const int size = s->image_size, n_images = (int)dt_dataset_size(s->train_set);
    const bool mixes = dt_mix_is_on(&s->config->data);
    struct dt_loader *loader = NULL;
    const bool detects = dt_dataset_max_boxes(s->train_set) > 0;
    struct sheet sheet = {.dataset = s->train_set,
                          .size = size,
                          .n_lines = detects ? 0
                                     : mixes ? 2
                                             : 1};
    sheet.n = count < n_images ? (int)count : n_images;
    if (mixes && sheet.n % 2 != 0) /* pairs */
        sheet.n += sheet.n < n_images ? 1 : -1;
    sheet.columns = choose_columns(sheet.n);
    sheet.zoom = dt_samples_zoom(size);
    sheet.width = size * sheet.zoom;
    DT_TRY(create_picture(&sheet));
    dt_status status = load_batch(&sheet, &loader, s);
    for (int i = 0; status == DT_OK && i < sheet.n; i++)
        draw_sample(&sheet, i);
    if (status == DT_OK)
        status = dt_picture_save(&sheet.picture, path);
    dt_loader_destroy(loader);
    free(sheet.picture.pixels);
    *n = sheet.n;
    return status;
}

static dt_status draw_first(const struct dt_session *s, char path[DT_PATH_MAX])
{
    enum { COUNT = 16 };
    int n;
    DT_TRY(dt_file_path(path, "%s/samples.png", s->config->output.dir));
    return dt_samples_draw(&n, s, COUNT, path);
}

void dt_samples_report(const struct dt_session *s)
{
    char path[DT_PATH_MAX];
    if (draw_first(s, path) == DT_OK) {
        const struct dt_field fields[] = {DT_TEXT("path", path)};
        dt_report_event(s->report, "samples", fields, DT_COUNT(fields));
    } else {
        dt_log(DT_LOG_WARNING, "no picture of training images: %s", dt_error_text());
        dt_error_clear();
    }
}
