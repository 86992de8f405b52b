/* Images with the boxes that a detector has found, for people: one picture, or a sheet of a few. */
#ifndef DTRAIN_EVAL_DRAWING_H
#define DTRAIN_EVAL_DRAWING_H

#include "dtrain/data.h"
#include "engine/engine.h"
#include "image/draw.h"

struct dt_drawing {
    struct dt_picture picture;
    const struct dt_dataset *dataset;
    double zoom_x, zoom_y; /* from pixels of the image to those of the picture */
    int scale;             /* of texts: small ones where images are reduced */
};
/* Decodes an image; if its longer side has more pixels than `longest`, which 0 permits, it is
 * reduced to that. DT_ERR_DATA without the image's name. Reset in any case; it accepts {0}. */
dt_status dt_drawing_open(struct dt_drawing *drawing, const struct dt_dataset *dataset, uint32_t id,
                          int longest);
void dt_drawing_reset(struct dt_drawing *drawing);
/* Draws n detections of that image in the colours of their classes, with names and scores; better
 * ones, which come first, above the others. */
void dt_drawing_add_found(struct dt_drawing *drawing, const struct dt_found *found, size_t n);
/* Draws the ground truth in white, with names below. */
dt_status dt_drawing_add_truths(struct dt_drawing *drawing, uint32_t id);

/* Up to four images of the data set, at even distances, with what should be found in them and what
 * was, above a score of 0.3; saved under that name. `found`: of all images, image after image in
 * any order, of each the best first. Images that cannot be decoded are skipped; if there is no
 * other, there is no file, and size (width and height) is 0. */
dt_status dt_drawing_save_sheet(int size[2], const char *path, const struct dt_dataset *dataset,
                                const struct dt_found *found, size_t n);
/* Saves the sheet of the validation images as detections.jpg in the run folder and sends it as an
 * event, or warns that it could not. On ranks without reports, and outside of training, does
 * nothing. */
void dt_drawing_report(const struct dt_sets *sets, struct dt_events *report,
                       const struct dt_found *found, size_t n);

/* --- samples.c: a contact sheet of training images as the loader makes them in epoch 0 --- */

/* By how much images are enlarged. */
int dt_samples_zoom(const struct dt_engine *engine, const struct dt_sets *sets);
/* Draws the first `count` images of the order, fewer if there are fewer, with their classes; the
 * number drawn goes to *n. Uses a loader of its own. Local. */
dt_status dt_samples_draw(int *n, const struct dt_engine *engine, const struct dt_sets *sets,
                          int64_t count, const char *path);
/* Called at the start of a run: makes RUN/samples.png and the event samples. A failure is a
 * warning. Rank 0. */
void dt_samples_report(const struct dt_engine *engine, const struct dt_sets *sets);

#endif
