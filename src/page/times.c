/* Where the time went: stacked bars. */
#include <math.h>

#include "page/chart.h"
#include "page/html.h"
#include "page/page.h"

enum { WIDTH = 480, HEIGHT = 230, LEFT = 56, TOP = 22, BOTTOM = 24, BARS_MOST = 100 };

static const struct {
    const char *name;
    int colour;
} parts[DT_N_TIMES] = {
    {"computing", 0},
    {"waiting for data", 1},
    {"exposed communication", 2},
    {"waiting for ranks", 4},
    {"other", 7},
};

static double sum(const struct dt_times *bar)
{
    double all = 0;
    for (int p = 0; p < DT_N_TIMES; p++)
        all += bar->seconds[p];
    return all;
}

/* Of a run alone its epochs, several in one bar if there are many; of several runs one bar each. */
static int make_bars(struct dt_times bars[BARS_MOST], const struct dt_run *runs, size_t n,
                     int *epochs)
{
    const size_t n_all = n == 1 ? runs[0].n_times : n < BARS_MOST ? n : BARS_MOST;
    *epochs = (int)((n_all + BARS_MOST - 1) / BARS_MOST);
    for (size_t i = 0; i < n_all; i++)
        for (size_t e = 0; e < (n == 1 ? 1 : runs[i].n_times); e++)
            for (int p = 0; p < DT_N_TIMES; p++)
                bars[i / (size_t)*epochs].seconds[p] +=
                    runs[n == 1 ? 0 : i].times[n == 1 ? i : e].seconds[p];
    return n_all > 0 ? (int)((n_all - 1) / (size_t)*epochs) + 1 : 0;
}

static void put_bar(FILE *out, const struct dt_times *bar, int i, int n, double scale)
{
    const double width = (double)(WIDTH - LEFT) / n, x = LEFT + width * (i + 0.1);
    double y = HEIGHT - BOTTOM;
    for (int p = 0; p < DT_N_TIMES; p++) {
        y -= scale * bar->seconds[p];
        fprintf(
            out,
            "<path class=\"part\" style=\"color:var(--c%d)\" d=\"M%.1f %.1fh%.1fv%.1fh%.1fz\"/>",
            parts[p].colour, x, y, 0.8 * width, scale * bar->seconds[p], -0.8 * width);
    }
}

static void put_words(FILE *out, const struct dt_times *bar)
{
    for (int p = 0; p < DT_N_TIMES; p++)
        fprintf(out, "%s%s %.3g s, %.0f %%", p ? "; " : ": ", parts[p].name, bar->seconds[p],
                100 * bar->seconds[p] / sum(bar));
    fputs("</title></g>\n", out);
}

static void put_frame(FILE *out, double most, double scale, const char *what)
{
    double ticks[DT_TICKS_MOST];
    fputs("<figure><figcaption>Time of the steps</figcaption>\n<div class=\"legend\">", out);
    for (int p = 0; p < DT_N_TIMES; p++)
        fprintf(out, "<span><i class=\"key\" style=\"color:var(--c%d)\"></i>%s</span>\n",
                parts[p].colour, parts[p].name);
    fprintf(out,
            "</div>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"seconds of each "
            "%s\">\n<text x=\"2\" y=\"13\">seconds</text>",
            WIDTH, HEIGHT, what);
    for (int i = 0, n = dt_chart_ticks(ticks, 0, most, 5); i < n; i++)
        fprintf(out,
                "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%.5g</text>\n",
                LEFT, HEIGHT - BOTTOM - scale * ticks[i], WIDTH, LEFT - 6,
                HEIGHT - BOTTOM + 4 - scale * ticks[i], ticks[i]);
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", WIDTH, HEIGHT - 6,
            what);
}

void dt_times_print(FILE *out, const struct dt_run *runs, size_t n)
{
    struct dt_times bars[BARS_MOST] = {0};
    int epochs;
    const int n_bars = make_bars(bars, runs, n, &epochs);
    double most = 0;
    for (int i = 0; i < n_bars; i++)
        most = fmax(most, sum(&bars[i]));
    if (!(most > 0))
        return;
    const double scale = (HEIGHT - TOP - BOTTOM) / most;
    fputs("<h2 id=\"times\">Where the time went</h2>\n<div class=\"charts\">\n", out);
    put_frame(out, most, scale, n > 1 ? "run" : epochs > 1 ? "group of epochs" : "epoch");
    for (int i = 0; i < n_bars; i++) {
        if (!(sum(&bars[i]) > 0))
            continue;
        fputs("<g>", out);
        put_bar(out, &bars[i], i, n_bars, scale);
        fputs("<title>", out);
        if (n > 1)
            dt_html_text(out, runs[i].name);
        else
            fprintf(out, "epoch %d", i * epochs + 1);
        put_words(out, &bars[i]);
    }
    fputs("</svg></figure></div>\n", out);
}
