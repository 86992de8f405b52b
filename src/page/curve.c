#include "page/curve.h"

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

static void widen(struct dt_curve *curve)
{
    struct dt_point points[4];
    curve->width *= 2;
    for (int i = 0; i < DT_CURVE_STRETCHES; i++) {
        int n = 0;
        for (int k = 2 * i; k < 2 * i + 2 && k < DT_CURVE_STRETCHES; k++)
            n += take(points + n, &curve->stretches[k]);
        keep(&curve->stretches[i], points, n);
    }
}

static void cut(struct dt_stretch *stretch, int64_t step)
{
    while (stretch->n > 0 && stretch->points[stretch->n - 1].step > step)
        stretch->n--;
}

void dt_curve_add(struct dt_curve *curve, const struct dt_point *point)
{
    struct dt_point points[3];
    if (curve->width == 0)
        curve->width = 1;
    while (point->step / curve->width >= DT_CURVE_STRETCHES)
        widen(curve);
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
