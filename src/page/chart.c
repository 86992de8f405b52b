/* Lengths are in units of the view box, which is scaled to the width of the page. */
#include "page/chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "page/html.h"

enum { WIDTH = DT_CHART_WIDTH, HEIGHT = DT_CHART_HEIGHT, LINE = DT_CHART_LINE };
enum { LEFT = 56, RIGHT = 14, TOP = 30, BOTTOM = 40 };
enum { X, Y, X_TICKS = 6, Y_TICKS = 5 };

struct frame {
    const struct dt_chart *chart;
    struct dt_axis axis[2];
    double low[2], high[2];
};

/* --- Ticks --- */

int dt_chart_ticks(double out[DT_MAX_TICKS], double low, double high, int n)
{
    static const double factors[] = {1, 2, 5, 10};
    double min = (high - low) / n, power = pow(10, floor(log10(min)));
    int f = 0;
    while (f < 3 && factors[f] * power < min)
        f++;
    double step = factors[f] * power;
    int n_ticks = 0;
    for (double i = ceil(low / step - 1e-9); i <= high / step + 1e-9 && n_ticks < DT_MAX_TICKS; i++)
        out[n_ticks++] = i * step + 0.0; /* not -0 */
    return n_ticks;
}

/* "0.05", "250", "20k", "1.5M" */
static const char *format(char out[32], double value)
{
    static const struct {
        double min, scale;
        const char *name;
    } units[] = {{1e12, 1e12, "T"}, {1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}, {0, 1, ""}};
    size_t u = 0;
    while (fabs(value) < units[u].min)
        u++;
    snprintf(out, 32, "%.5g%s", value / units[u].scale, units[u].name);
    return out;
}

/* --- Frame --- */

static bool is_shown(double value)
{
    return fabs(value) < 1e300;
}

static bool is_point(const struct dt_series *series, size_t i)
{
    return is_shown(series->x[i]) && is_shown(series->y[i]);
}

static double project(const struct frame *frame, int a, double value)
{
    const double part = (value - frame->low[a]) / (frame->high[a] - frame->low[a]);
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
    for (size_t s = 0; s < chart->n_series; s++)
        for (size_t i = 0; i < chart->series[s].n; i++)
            if (is_point(&chart->series[s], i)) {
                include(frame, X, chart->series[s].x[i]);
                include(frame, Y, chart->series[s].y[i]);
            }
    const bool has_points = frame->low[X] <= frame->high[X];
    for (size_t m = 0; m < chart->n_marks; m++)
        if (is_shown(chart->marks[m].x))
            include(frame, X, chart->marks[m].x);
    return has_points;
}

/* Some room around the curves. */
static void pad(struct frame *frame, int a)
{
    double *low = &frame->low[a], *high = &frame->high[a], room = a == Y ? 0.05 : 0;
    const bool is_flat = *high - *low <= 1e-9 * fabs(*high);
    if (frame->axis[a].from_zero && *low > 0)
        *low = 0;
    else
        *low -= is_flat ? fmax(fabs(*low) / 2, 1e-9) : *low == 0 ? 0 : room * (*high - *low);
    *high += is_flat ? fmax(fabs(*high) / 2, 1e-9) : room * (*high - *low);
}

static void put_axis(FILE *out, const struct frame *frame, int a)
{
    double ticks[DT_MAX_TICKS];
    char text[32];
    int n = dt_chart_ticks(ticks, frame->low[a], frame->high[a], a == X ? X_TICKS : Y_TICKS);
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

/* The same as in report.css, on paper. */
static const char *const colours[DT_HTML_COLOURS] = {"#0072b2", "#c24e00", "#00805d", "#b3508a",
                                                     "#946800", "#1b7fb8", "#7a5ad0", "#4b5563"};
static const char image_style[] =
    "text{font:12px sans-serif;fill:#56626d}.grid{stroke:#d9dfe4}.dot{fill:currentColor}"
    ".curve{fill:none;stroke:currentColor;stroke-width:1.6}.faint{opacity:.7}"
    ".mark{stroke:#4b5563;stroke-dasharray:3 3}.dash1{stroke-dasharray:7 3}"
    ".dash2{stroke-dasharray:2 3}.dash3{stroke-dasharray:9 3 2 3}.dash4{stroke-dasharray:4 4}";

static void put_series(FILE *out, const struct frame *frame, const struct dt_series *series)
{
    const char *verb = "M";
    fprintf(out, "<g style=\"color:%s\"><path class=\"curve%s dash%d\" d=\"",
            colours[series->colour % DT_HTML_COLOURS], series->is_faint ? " faint" : "",
            series->dash % DT_N_DASHES);
    for (size_t i = 0; i < series->n; i++) {
        if (!is_point(series, i))
            continue;
        fprintf(out, "%s%.1f %.1f", verb, project(frame, X, series->x[i]),
                project(frame, Y, series->y[i]));
        verb = "L";
    }
    fputs("\"/>\n", out);
    for (size_t i = 0; i < series->n; i++)
        if (is_point(series, i) && (series->has_dots || series->n == 1))
            fprintf(out, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.8\"/>\n",
                    project(frame, X, series->x[i]), project(frame, Y, series->y[i]));
    fputs("</g>\n", out);
}

static void put_marks(FILE *out, const struct frame *frame)
{
    for (size_t i = 0; i < frame->chart->n_marks; i++) {
        const struct dt_mark *mark = &frame->chart->marks[i];
        if (!is_shown(mark->x))
            continue;
        fprintf(out, "<path class=\"mark\" d=\"M%.1f %dV%d\"><title>", project(frame, X, mark->x),
                TOP, HEIGHT - BOTTOM);
        dt_html_text(out, mark->text);
        fputs("</title></path>\n", out);
    }
}

/* The title above, and a line for each series below the curves. */
static void put_image_head(FILE *out, const struct dt_chart *chart)
{
    const int height = HEIGHT + LINE * ((int)chart->n_series + 2);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" x=\"%d\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 %d %d %d\">\n<style>%s</style>\n<text x=\"%d\" y=\"-2\" "
            "style=\"font-weight:bold\">",
            chart->image_x, WIDTH, height, -LINE, WIDTH, height, image_style, LEFT);
    dt_html_text(out, chart->title);
    fputs("</text>\n", out);
    for (size_t s = 0; s < chart->n_series; s++) {
        const int y = HEIGHT + LINE * (int)s + LINE / 2;
        if (!chart->series[s].name[0])
            continue;
        fprintf(
            out,
            "<g style=\"color:%s\"><path class=\"curve dash%d\" d=\"M%d %dh24\"/><text x=\"%d\" "
            "y=\"%d\">",
            colours[chart->series[s].colour % DT_HTML_COLOURS], chart->series[s].dash % DT_N_DASHES,
            LEFT, y, LEFT + 30, y + 4);
        dt_html_text(out, chart->series[s].name);
        fputs("</text></g>\n", out);
    }
}

/* --- Data --- */

/* Seven digits are those of the 32-bit numbers that most values were. */
static void add_values(struct dt_jsonw *w, const struct dt_series *series)
{
    char text[32];
    dt_jsonw_begin(w, "y", '[');
    for (size_t i = 0; i < series->n; i++)
        if (is_point(series, i)) {
            snprintf(text, sizeof text, "%.7g", series->y[i]);
            dt_jsonw_number(w, NULL, strtod(text, NULL));
        }
    dt_jsonw_close(w, ']');
}

/* Steps and milliseconds as differences, which are short. */
static void add_points(struct dt_jsonw *w, const struct dt_series *series, const char *key,
                       bool is_step)
{
    int64_t before = 0;
    dt_jsonw_begin(w, key, '[');
    for (size_t i = 0; i < series->n; i++) {
        const struct dt_point *point = &series->points[i];
        const int64_t at = is_step ? point->step : (int64_t)llround(1e3 * point->elapsed_s);
        if (!is_point(series, i))
            continue;
        dt_jsonw_integer(w, NULL, at - before);
        before = at;
    }
    dt_jsonw_close(w, ']');
}

static dt_status put_figure(FILE *out, const struct dt_chart *chart)
{
    struct dt_jsonw w = {0};
    dt_jsonw_add(&w, "{y: %s, zero: %hhd, series: [", chart->y.title, chart->y.from_zero);
    for (size_t s = 0; s < chart->n_series; s++) {
        const struct dt_series *series = &chart->series[s];
        dt_jsonw_add(
            &w, "{name: %s, run: %zu, group: %d, colour: %d, dash: %d, faint: %hhd, dots: %hhd",
            series->name, series->run, series->group, series->colour % DT_HTML_COLOURS,
            series->dash % DT_N_DASHES, series->is_faint, series->has_dots);
        add_points(&w, series, "step", true);
        add_points(&w, series, "ms", false);
        add_values(&w, series);
        dt_jsonw_close(&w, '}');
    }
    dt_jsonw_add(&w, "]}");
    const dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK) {
        fputs("<figure hidden=\"\"><figcaption>", out);
        dt_html_text(out, chart->title);
        fputs("</figcaption>\n", out);
        dt_html_data(out, NULL, w.text);
        fputs("</figure>\n", out);
    }
    dt_jsonw_reset(&w);
    return status;
}

dt_status dt_chart_print(FILE *out, const struct dt_chart *chart, bool *is_drawn)
{
    struct frame frame = {.chart = chart,
                          .axis = {chart->x, chart->y},
                          .low = {INFINITY, INFINITY},
                          .high = {-INFINITY, -INFINITY}};
    *is_drawn = measure(&frame);
    if (!*is_drawn)
        return DT_OK;
    pad(&frame, X);
    pad(&frame, Y);
    if (!chart->in_image)
        return put_figure(out, chart);
    put_image_head(out, chart);
    put_axis(out, &frame, Y);
    put_axis(out, &frame, X);
    put_marks(out, &frame);
    for (size_t s = 0; s < chart->n_series; s++)
        put_series(out, &frame, &chart->series[s]);
    fputs("</svg>\n", out);
    return DT_OK;
}
