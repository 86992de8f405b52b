/* A line chart as a <figure> with inline SVG, for a page of html.h: title, legend, axes with units,
 * curves, vertical marks. Hovering over points and marks shows their values. */
#ifndef DTRAIN_PAGE_CHART_H
#define DTRAIN_PAGE_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct dt_series {
    const char *name;    /* in the legend unless it is "" */
    const double *x, *y; /* n points; one is left out where a value is not finite (to +-1e300), or
                            not above 0 on a logarithmic axis */
    size_t n;
    int colour;     /* from 0, modulo DT_HTML_COLOURS */
    bool is_dashed; /* such as an ideal */
    bool is_faint;
    bool has_dots;
};

struct dt_mark {
    double x;
    int colour;       /* -1: that of problems */
    const char *name; /* in the legend, once for all marks of that name */
    const char *text;
};

struct dt_axis {
    const char *title; /* with its unit: "images/s" */
    bool is_log, from_zero;
};

struct dt_chart {
    const char *title;
    struct dt_axis x, y;
    const struct dt_series *series;
    size_t n_series;
    const struct dt_mark *marks;
    size_t n_marks;
    bool in_image; /* not on a page: names its XML namespace */
};

/* Draws nothing, and returns false, if no series has a point. */
bool dt_chart_print(FILE *out, const struct dt_chart *chart);

enum { DT_TICKS_MOST = 16 };
/* Positions of about `n` <= 8 ticks within low..high (low < high), at multiples of 1, 2 or 5 times
 * a power of ten; on a logarithmic axis (low > 0) at powers of ten, also at 2 and 5 times them if
 * those are few. Returns their number. */
int dt_chart_ticks(double out[DT_TICKS_MOST], double low, double high, int n, bool is_log);

#endif
