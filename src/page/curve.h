/* A quantity over the steps of a run, in bounded memory however long the run is: the steps are
 * divided into equal stretches, and of each the lowest and the highest point are kept. */
#ifndef DTRAIN_PAGE_CURVE_H
#define DTRAIN_PAGE_CURVE_H

#include <stddef.h>
#include <stdint.h>

enum { DT_CURVE_STRETCHES = 500, DT_CURVE_POINTS = 2 * DT_CURVE_STRETCHES, DT_CURVE_NAME = 64 };

struct dt_point {
    int64_t step;
    double elapsed_s, value; /* elapsed_s: as in struct dt_run */
};

struct dt_curve {
    char name[DT_CURVE_NAME]; /* event and field: "eval.top1" */
    int64_t width;            /* steps per stretch; 0 = empty */
    struct dt_stretch {
        int n;
        struct dt_point points[2]; /* by step */
    } stretches[DT_CURVE_STRETCHES];
};

/* Adds a point with step >= 0; steps must not decrease. It replaces one of the same step. */
void dt_curve_add(struct dt_curve *curve, const struct dt_point *point);
/* Removes all points after `step`. */
void dt_curve_cut(struct dt_curve *curve, int64_t step);
/* Copies the points in order of their steps; returns their number. */
size_t dt_curve_points(const struct dt_curve *curve, struct dt_point out[DT_CURVE_POINTS]);

#endif
