#include "page/page_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Keeps the lowest and the highest of n points; of equal ones the first and the last. */
static void keep(struct dt_stretch *stretch, const struct dt_point *points, int n)
{
    int low = 0, high = 0;
    stretch->n = n < 2 ? n : 2;
    if (n == 0)
        return;
    for (int i = 1; i < n; i++) {
        low = points[i].value < points[low].value ? i : low;
        high = points[i].value > points[high].value ? i : high;
    }
    if (low == high)
        high = n - 1;
    stretch->points[0] = points[low < high ? low : high];
    stretch->points[1] = points[low < high ? high : low];
}

static int take(struct dt_point *out, const struct dt_stretch *stretch)
{
    for (int i = 0; i < stretch->n; i++)
        out[i] = stretch->points[i];
    return stretch->n;
}

static void cut(struct dt_stretch *stretch, int64_t step)
{
    while (stretch->n > 0 && stretch->points[stretch->n - 1].step > step)
        stretch->n--;
}

void dt_curve_add(struct dt_curve *curve, const struct dt_point *point)
{
    struct dt_point points[4];
    if (curve->width == 0)
        curve->width = 1;
    while (point->step / curve->width >= DT_CURVE_STRETCHES) {
        curve->width *= 2;
        for (int i = 0; i < DT_CURVE_STRETCHES; i++) {
            int n = 0;
            for (int k = 2 * i; k < 2 * i + 2 && k < DT_CURVE_STRETCHES; k++)
                n += take(points + n, &curve->stretches[k]);
            keep(&curve->stretches[i], points, n);
        }
    }
    struct dt_stretch *stretch = &curve->stretches[point->step / curve->width];
    cut(stretch, point->step - 1);
    int n = take(points, stretch);
    points[n] = *point;
    keep(stretch, points, n + 1);
}

void dt_curve_cut(struct dt_curve *curve, int64_t step)
{
    for (int i = 0; i < DT_CURVE_STRETCHES; i++)
        cut(&curve->stretches[i], step);
}

size_t dt_curve_points(const struct dt_curve *curve, struct dt_point out[DT_CURVE_POINTS])
{
    size_t n = 0;
    for (int i = 0; i < DT_CURVE_STRETCHES; i++)
        n += (size_t)take(out + n, &curve->stretches[i]);
    return n;
}

/* --- Runs --- */

void dt_run_reset(struct dt_run *run)
{
    for (size_t i = 0; i < run->n_notes; i++)
        free(run->notes[i].text);
    free(run->notes);
    free(run->starts);
    free(run->times);
    free(run->curves);
    dt_json_destroy(run->start);
    dt_json_destroy(run->end);
    *run = (struct dt_run){0};
}

void dt_runs_free(struct dt_run *runs, size_t n)
{
    for (size_t i = 0; runs && i < n; i++)
        dt_run_reset(&runs[i]);
    free(runs);
}

const struct dt_curve *dt_run_curve(const struct dt_run *run, const char *name)
{
    for (size_t i = 0; i < run->n_curves; i++)
        if (strcmp(run->curves[i].name, name) == 0)
            return &run->curves[i];
    return NULL;
}

size_t dt_run_points(const struct dt_run *run, const char *name, struct dt_point *out)
{
    const struct dt_curve *curve = dt_run_curve(run, name);
    return curve ? dt_curve_points(curve, out) : 0;
}

double dt_run_epochs(const struct dt_run *run, int64_t step)
{
    const struct dt_json *stages =
        run->start ? dt_json_get(dt_json_root(run->start), "stages") : NULL;
    double epochs = (double)step / dt_event_number(run->start, "steps_per_epoch");
    for (const struct dt_json *stage = stages ? stages->child : NULL; stage; stage = stage->next) {
        double n_steps = (double)step - dt_json_number(stage, "step");
        if (n_steps >= 0)
            epochs =
                dt_json_number(stage, "epoch") + n_steps / dt_json_number(stage, "steps_per_epoch");
    }
    return epochs;
}

double dt_event_number(const struct dt_json_doc *event, const char *key)
{
    return event ? dt_json_number(dt_json_root(event), key) : NAN;
}

const char *dt_event_text(const struct dt_json_doc *event, const char *key)
{
    const struct dt_json *value = event ? dt_json_get(dt_json_root(event), key) : NULL;
    return value && value->type == DT_JSON_STRING ? value->string : "";
}

void dt_event_time(char out[DT_TIME_BYTES], const struct dt_json_doc *event)
{
    snprintf(out, DT_TIME_BYTES, "%.19s", dt_event_text(event, "ts"));
    if (strlen(out) > 10)
        out[10] = ' ';
}
