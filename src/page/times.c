/* Stacked bars of where the time went, with their figures as titles. */
#include <math.h>

#include "page/html.h"
#include "page/page.h"

enum { MAX_BARS = 100 };

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

/* Makes a bar per epoch of a single run, or per several epochs if there are many; of several runs
 * one bar each. */
static int make_bars(struct dt_times bars[MAX_BARS], const struct dt_run *runs, size_t n,
                     int *epochs)
{
    const size_t n_all = n == 1 ? runs[0].n_times : n < MAX_BARS ? n : MAX_BARS;
    *epochs = (int)((n_all + MAX_BARS - 1) / MAX_BARS);
    for (size_t i = 0; i < n_all; i++)
        for (size_t e = 0; e < (n == 1 ? 1 : runs[i].n_times); e++)
            for (int p = 0; p < DT_N_TIMES; p++)
                bars[i / (size_t)*epochs].seconds[p] +=
                    runs[n == 1 ? 0 : i].times[n == 1 ? i : e].seconds[p];
    return n_all > 0 ? (int)((n_all - 1) / (size_t)*epochs) + 1 : 0;
}

static void put_bar(FILE *out, const struct dt_times *bar, const char *name, double max)
{
    fputs("<div title=\"", out);
    dt_html_text(out, name);
    for (int p = 0; p < DT_N_TIMES; p++)
        fprintf(out, "%s %s %.3g s, %.0f %%", p ? ";" : ":", parts[p].name, bar->seconds[p],
                100 * bar->seconds[p] / sum(bar));
    fputs("\">", out);
    for (int p = 0; p < DT_N_TIMES; p++)
        fprintf(out, "<i style=\"height:%.2f%%;background:var(--c%d)\"></i>",
                100 * bar->seconds[p] / max, parts[p].colour);
    fputs("</div>\n", out);
}

void dt_times_print(FILE *out, const struct dt_run *runs, size_t n)
{
    struct dt_times bars[MAX_BARS] = {0};
    char epoch[32];
    int epochs;
    const int n_bars = make_bars(bars, runs, n, &epochs);
    double max = 0;
    for (int i = 0; i < n_bars; i++)
        max = fmax(max, sum(&bars[i]));
    if (!(max > 0))
        return;
    fputs("<h2 id=\"times\">Where the time went</h2>\n<div class=\"charts\"><figure>"
          "<figcaption>Time of the steps</figcaption>\n<div class=\"legend\">",
          out);
    for (int p = 0; p < DT_N_TIMES; p++)
        fprintf(out, "<span><i class=\"key\" style=\"color:var(--c%d)\"></i>%s</span>\n",
                parts[p].colour, parts[p].name);
    fputs("</div>\n<div class=\"bars\" role=\"img\" aria-label=\"Time of the steps\">\n", out);
    for (int i = 0; i < n_bars; i++) {
        snprintf(epoch, sizeof epoch, "epoch %d", i * epochs + 1);
        if (sum(&bars[i]) > 0)
            put_bar(out, &bars[i], n > 1 ? runs[i].name : epoch, max);
    }
    fprintf(out, "</div><p class=\"note\">seconds of each %s, at most %.5g</p></figure></div>\n",
            n > 1        ? "run"
            : epochs > 1 ? "group of epochs"
                         : "epoch",
            max);
}
