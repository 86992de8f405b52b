/* A contact sheet of training images as the loader makes them in epoch 0. */
#ifndef DTRAIN_EVAL_SAMPLES_H
#define DTRAIN_EVAL_SAMPLES_H

#include "engine/engine.h"

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
