/* A line chart: as an SVG image with title, legend, axes with units, curves and vertical marks; or
 * on a page of html.h as a <figure> with its data, which report.js draws. */
#ifndef DTRAIN_PAGE_CHART_H
#define DTRAIN_PAGE_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "page/page_run.h"

/* An image, without its title and the line of each series. */
enum { DT_CHART_WIDTH = 480, DT_CHART_HEIGHT = 270, DT_CHART_LINE = 18 };
enum { DT_N_DASHES = 5, DT_N_GROUPS = 3 }; /* patterns of lines, 0 = solid; quantities */

struct dt_series {
    const char *name;    /* in the legend unless it is "" */
    const double *x, *y; /* n points; one is left out where a value is not finite (to +-1e300) */
    const struct dt_point *points; /* n of them, whose run is `run`: the script chooses the axis */
    size_t n, run;
    int colour, dash; /* from 0, modulo DT_HTML_COLOURS and DT_N_DASHES */
    int group;        /* from 0, below DT_N_GROUPS: its quantity */
    bool is_faint;
    bool has_dots;
};

struct dt_mark {
    double x;
    const char *text;
};

struct dt_axis {
    const char *title; /* with its unit: "images/s" */
    bool from_zero;
};

struct dt_chart {
    const char *title;
    struct dt_axis x, y;
    const struct dt_series *series;
    size_t n_series;
    const struct dt_mark *marks; /* of an image; the script knows those of the runs */
    size_t n_marks;
    bool in_image; /* not on a page, and `image_x` to the right of its place in another one */
    int image_x;
};

/* Draws nothing, and *is_drawn is false, if no series has a point. DT_ERR_MEMORY. */
dt_status dt_chart_print(FILE *out, const struct dt_chart *chart, bool *is_drawn);

enum { DT_MAX_TICKS = 16 };
/* Positions of about `n` <= 8 ticks within low..high (low < high), at multiples of 1, 2 or 5 times
 * a power of ten. Returns their number. */
int dt_chart_ticks(double out[DT_MAX_TICKS], double low, double high, int n);

#endif
