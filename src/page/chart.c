/* Lengths are in units of the view box, which is scaled to the width of the page. */
#include "page/chart.h"

#include <math.h>
#include <string.h>

#include "page/html.h"

enum { WIDTH = 480, HEIGHT = 270, LEFT = 56, RIGHT = 14, TOP = 30, BOTTOM = 40 };
enum { X, Y, X_TICKS = 6, Y_TICKS = 5, TITLES_MOST = 60 };

struct frame {
    const struct dt_chart *chart;
    struct dt_axis axis[2];
    double low[2], high[2];
};

/* --- Ticks --- */

static int linear_ticks(double out[DT_TICKS_MOST], double low, double high, int n)
{
    static const double factors[] = {1, 2, 5, 10};
    double least = (high - low) / n, power = pow(10, floor(log10(least)));
    int f = 0;
    while (f < 3 && factors[f] * power < least)
        f++;
    double step = factors[f] * power;
    int n_ticks = 0;
    for (double i = ceil(low / step - 1e-9); i <= high / step + 1e-9 && n_ticks < DT_TICKS_MOST;
         i++)
        out[n_ticks++] = i * step + 0.0; /* not -0 */
    return n_ticks;
}

static int log_ticks(double out[DT_TICKS_MOST], double low, double high, int n)
{
    static const double factors[] = {1, 2, 5};
    const double decades = log10(high / low), stride = ceil(decades / n);
    const int n_factors = decades < 3 ? 3 : 1;
    int n_ticks = 0;
    for (double e = stride * floor(log10(low) / stride); pow(10, e) <= high; e += stride)
        for (int f = 0; f < n_factors && n_ticks < DT_TICKS_MOST; f++)
            if (factors[f] * pow(10, e) >= low && factors[f] * pow(10, e) <= high)
                out[n_ticks++] = factors[f] * pow(10, e);
    return n_ticks;
}

int dt_chart_ticks(double out[DT_TICKS_MOST], double low, double high, int n, bool is_log)
{
    const double narrow = 5;
    return is_log && high / low > narrow ? log_ticks(out, low, high, n)
                                         : linear_ticks(out, low, high, n);
}

/* "0.05", "250", "20k", "1.5M" */
static const char *format(char out[32], double value)
{
    static const struct {
        double least, scale;
        const char *name;
    } units[] = {{1e12, 1e12, "T"}, {1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}, {0, 1, ""}};
    size_t u = 0;
    while (fabs(value) < units[u].least)
        u++;
    snprintf(out, 32, "%.5g%s", value / units[u].scale, units[u].name);
    return out;
}

/* --- Frame --- */

static bool is_shown(const struct frame *frame, int a, double value)
{
    return fabs(value) < 1e300 && (!frame->axis[a].is_log || value > 0);
}

static bool is_point(const struct frame *frame, const struct dt_series *series, size_t i)
{
    return is_shown(frame, X, series->x[i]) && is_shown(frame, Y, series->y[i]);
}

static double project(const struct frame *frame, int a, double value)
{
    double low = frame->low[a], high = frame->high[a];
    double part =
        frame->axis[a].is_log ? log(value / low) / log(high / low) : (value - low) / (high - low);
    return a == X ? LEFT + part * (WIDTH - LEFT - RIGHT)
                  : HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

static void include(struct frame *frame, int a, double value)
{
    frame->low[a] = fmin(frame->low[a], value);
    frame->high[a] = fmax(frame->high[a], value);
}

/* False if there is no point. */
static bool measure(struct frame *frame)
{
    const struct dt_chart *chart = frame->chart;
    for (size_t s = 0; s < chart->n_series; s++) {
        const struct dt_series *series = &chart->series[s];
        for (size_t i = 0; i < series->n; i++)
            if (is_point(frame, series, i)) {
                include(frame, X, series->x[i]);
                include(frame, Y, series->y[i]);
            }
    }
    bool has_points = frame->low[X] <= frame->high[X];
    for (size_t m = 0; m < chart->n_marks; m++)
        if (is_shown(frame, X, chart->marks[m].x))
            include(frame, X, chart->marks[m].x);
    return has_points;
}

/* Some room around the curves. */
static void pad(struct frame *frame, int a)
{
    double *low = &frame->low[a], *high = &frame->high[a], room = a == Y ? 0.05 : 0;
    bool is_flat = *high - *low <= 1e-9 * fabs(*high);
    if (frame->axis[a].is_log) {
        double factor = is_flat ? 2 : pow(*high / *low, room);
        *low /= factor;
        *high *= factor;
        return;
    }
    if (frame->axis[a].from_zero && *low > 0)
        *low = 0;
    else
        *low -= is_flat ? fmax(fabs(*low) / 2, 1e-9) : *low == 0 ? 0 : room * (*high - *low);
    *high += is_flat ? fmax(fabs(*high) / 2, 1e-9) : room * (*high - *low);
}

static void put_axis(FILE *out, const struct frame *frame, int a)
{
    double ticks[DT_TICKS_MOST];
    char text[32];
    int n = dt_chart_ticks(ticks, frame->low[a], frame->high[a], a == X ? X_TICKS : Y_TICKS,
                           frame->axis[a].is_log);
    for (int i = 0; i < n; i++) {
        double at = project(frame, a, ticks[i]);
        if (a == X)
            fprintf(out,
                    "<path class=\"grid\" d=\"M%.1f %dv4\"/><text x=\"%.1f\" y=\"%d\" "
                    "text-anchor=\"middle\">%s</text>\n",
                    at, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 17, format(text, ticks[i]));
        else
            fprintf(out,
                    "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                    "text-anchor=\"end\">%s</text>\n",
                    LEFT, at, WIDTH - RIGHT, LEFT - 7, at + 4, format(text, ticks[i]));
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">", a == X ? WIDTH - RIGHT : 2,
            a == X ? HEIGHT - 6 : 13, a == X ? "end" : "start");
    dt_html_text(out, frame->axis[a].title);
    fputs("</text>\n", out);
}

/* --- Contents --- */

static void put_colour(FILE *out, int colour)
{
    if (colour < 0)
        fputs(" style=\"color:var(--bad)\">", out);
    else
        fprintf(out, " style=\"color:var(--c%d)\">", colour % DT_HTML_COLOURS);
}

static void put_series(FILE *out, const struct frame *frame, const struct dt_series *series)
{
    const size_t stride = series->n / TITLES_MOST + 1;
    const char *verb = "M";
    fputs("<g", out);
    put_colour(out, series->colour);
    fprintf(out, "<path class=\"curve%s%s\" d=\"", series->is_faint ? " faint" : "",
            series->is_dashed ? " dashed" : "");
    for (size_t i = 0; i < series->n; i++) {
        if (!is_point(frame, series, i))
            continue;
        fprintf(out, "%s%.1f %.1f", verb, project(frame, X, series->x[i]),
                project(frame, Y, series->y[i]));
        verb = "L";
    }
    fputs("\"/>\n", out);
    for (size_t i = 0; i < series->n; i += stride) {
        if (!is_point(frame, series, i))
            continue;
        double x = project(frame, X, series->x[i]), y = project(frame, Y, series->y[i]);
        if (series->has_dots && stride == 1)
            fprintf(out, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.8\"/>", x, y);
        fprintf(out, "<circle class=\"hit\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\">", x, y);
        fputs("<title>", out);
        dt_html_text(out, series->name);
        for (int a = X; a <= Y; a++) {
            fputc('\n', out);
            dt_html_text(out, frame->axis[a].title);
            fprintf(out, ": %.6g", (a == X ? series->x : series->y)[i]);
        }
        fputs("</title>", out);
        fputs("</circle>\n", out);
    }
    fputs("</g>\n", out);
}

static void put_marks(FILE *out, const struct frame *frame)
{
    for (size_t i = 0; i < frame->chart->n_marks; i++) {
        const struct dt_mark *mark = &frame->chart->marks[i];
        if (!is_shown(frame, X, mark->x))
            continue;
        double x = project(frame, X, mark->x);
        fputs("<g", out);
        put_colour(out, mark->colour);
        fprintf(out,
                "<path class=\"mark\" d=\"M%.1f %dV%d\"/><path class=\"near\" d=\"M%.1f %dV%d\">",
                x, TOP, HEIGHT - BOTTOM, x, TOP, HEIGHT - BOTTOM);
        fputs("<title>", out);
        dt_html_text(out, mark->text);
        fputs("</title></path></g>\n", out);
    }
}

static void put_key(FILE *out, const char *name, int colour, const char *kind)
{
    fprintf(out, "<span><i class=\"key%s\"", kind);
    put_colour(out, colour);
    fputs("</i>", out);
    dt_html_text(out, name);
    fputs("</span>\n", out);
}

static void put_legend(FILE *out, const struct dt_chart *chart)
{
    fputs("<div class=\"legend\">", out);
    for (size_t s = 0; s < chart->n_series; s++)
        if (chart->series[s].name[0])
            put_key(out, chart->series[s].name, chart->series[s].colour,
                    chart->series[s].is_dashed  ? " dashed"
                    : chart->series[s].is_faint ? " faint"
                                                : "");
    for (size_t m = 0; m < chart->n_marks; m++) {
        size_t first = 0;
        while (strcmp(chart->marks[first].name, chart->marks[m].name) != 0)
            first++;
        if (first == m)
            put_key(out, chart->marks[m].name, chart->marks[m].colour, " mark");
    }
    fputs("</div>\n", out);
}

bool dt_chart_print(FILE *out, const struct dt_chart *chart)
{
    struct frame frame = {.chart = chart,
                          .axis = {chart->x, chart->y},
                          .low = {INFINITY, INFINITY},
                          .high = {-INFINITY, -INFINITY}};
    if (!measure(&frame))
        return false;
    pad(&frame, X);
    pad(&frame, Y);
    fputs("<figure><figcaption>", out);
    dt_html_text(out, chart->title);
    fputs("</figcaption>\n", out);
    put_legend(out, chart);
    fprintf(out, "<svg %sviewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
            chart->in_image ? "xmlns=\"http://www.w3.org/2000/svg\" " : "", WIDTH, HEIGHT);
    dt_html_text(out, chart->title);
    fputs("\">\n", out);
    put_axis(out, &frame, Y);
    put_axis(out, &frame, X);
    put_marks(out, &frame);
    for (size_t s = 0; s < chart->n_series; s++)
        put_series(out, &frame, &chart->series[s]);
    fputs("</svg></figure>\n", out);
    return true;
}
