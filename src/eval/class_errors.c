#include "eval/predictions.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "eval/class_metrics.h"
#include "eval/drawing.h"

void dt_class_errors_add(struct dt_class_errors *errors, const struct dt_class_error *error)
{
    struct dt_class_error *at = errors->worst + errors->n;
    while (at > errors->worst &&
           (at[-1].probability < error->probability ||
            (at[-1].probability == error->probability && at[-1].image > error->image)))
        at--;
    if (at == errors->worst + DT_WORST_ERRORS)
        return;
    errors->n += errors->n < DT_WORST_ERRORS;
    memmove(at + 1, at, (size_t)(errors->worst + errors->n - 1 - at) * sizeof *at);
    *at = *error;
}

void dt_class_errors_print(FILE *out, const struct dt_class_errors *errors,
                           const struct dt_dataset *dataset, const char *const *names)
{
    char file[2 * DT_PATH_MAX];
    fputs("file,label,prediction,probability\n", out);
    for (const struct dt_class_error *e = errors->worst; e < errors->worst + errors->n; e++)
        dt_predictions_print_row(out, dt_dataset_name(dataset, e->image, file, sizeof file),
                                 e->label, e->prediction, &e->probability, 1, names);
}

/* --- The sheet: below each image are two lines of text --- */

enum { COLUMNS = 4, SIDE = 240, MARGIN = 14, SCALE = 2, LINE = 10 * SCALE, PAPER = 244, INK = 30 };

static dt_status put_error(struct dt_picture *sheet, int i, const struct dt_class_error *error,
                           const struct dt_dataset *dataset, const char *const *names)
{
    const int x = MARGIN + i % COLUMNS * (SIDE + MARGIN);
    const int y = MARGIN + i / COLUMNS * (SIDE + 2 * LINE + MARGIN), below = y + SIDE + LINE / 4;
    struct dt_drawing drawing;
    const struct dt_picture *image = &drawing.picture;
    char text[SIDE / (DT_TEXT_STEP * SCALE) + 1];
    dt_status status = dt_drawing_open(&drawing, dataset, error->image, SIDE);
    if (status == DT_OK)
        dt_draw_image(sheet, x, y, image->pixels, image->width, image->height,
                      SIDE / (image->width > image->height ? image->width : image->height), 1);
    dt_drawing_reset(&drawing);
    snprintf(text, sizeof text, "label %s", names[error->label]);
    dt_draw_text(sheet, x, below, text, SCALE, INK);
    snprintf(text, sizeof text, "%.0f%% %s", 100 * error->probability, names[error->prediction]);
    dt_draw_text(sheet, x, below + LINE, text, SCALE, INK);
    return status;
}

dt_status dt_class_errors_save(const char *path, const struct dt_class_errors *errors,
                               const struct dt_dataset *dataset, const char *const *names)
{
    const int columns = errors->n < COLUMNS ? errors->n : COLUMNS;
    const int rows = (errors->n + COLUMNS - 1) / COLUMNS;
    struct dt_picture sheet;
    dt_status status = DT_OK;
    if (errors->n == 0)
        return dt_file_remove(path);
    DT_TRY(dt_picture_create(&sheet, MARGIN + columns * (SIDE + MARGIN),
                             MARGIN + rows * (SIDE + 2 * LINE + MARGIN), PAPER));
    for (int i = 0; i < errors->n && status == DT_OK; i++)
        status = put_error(&sheet, i, &errors->worst[i], dataset, names);
    if (status == DT_OK)
        status = dt_picture_save(&sheet, path);
    free(sheet.pixels);
    return status;
}
