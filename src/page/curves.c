#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "page/chart.h"
#include "page/page.h"

enum { MOST_CURVES = 3 };

/* The quantities of one chart: one, or two or three that are compared. */
struct topic {
    const char *title, *unit, *curves[MOST_CURVES];
    bool over_time, from_zero, may_be_log; /* logarithmic if the values differ very much */
};

static const struct topic topics[] = {
    {"Loss", "loss", {"step.loss", "eval.loss"}, .may_be_log = true},
    {"Parts of a detector's loss",
     "loss",
     {"step.class_loss", "step.box_loss"},
     .may_be_log = true},
    {"Accuracy", "top-1, %", .curves = {"step.top1", "eval.top1"}},
    {"Average precision (COCO)", "AP", {"eval.ap"}, .from_zero = true},
    {"Average precision at one IoU", "AP", {"eval.ap50", "eval.ap75"}, .from_zero = true},
    {"Average precision by size",
     "AP",
     {"eval.ap_large", "eval.ap_medium", "eval.ap_small"},
     .from_zero = true},
    {"Average recall", "AR", {"eval.ar100", "eval.ar10", "eval.ar1"}, .from_zero = true},
    {"Average recall by size",
     "AR",
     {"eval.ar_large", "eval.ar_medium", "eval.ar_small"},
     .from_zero = true},
    {"Average precision over time", "AP", {"eval.ap"}, .over_time = true, .from_zero = true},
    {"Validation loss over time", "loss", {"eval.loss"}, .over_time = true, .may_be_log = true},
    {"Validation accuracy over time", "top-1, %", {"eval.top1"}, .over_time = true},
    {"Learning rate", "learning rate", {"step.lr"}, .from_zero = true},
    {"Throughput", "images/s", {"step.images_per_s"}, .from_zero = true},
    {"Waits", "% of a step", {"step.data wait", "step.exposed communication"}, .from_zero = true},
    {"Computing and agreeing", "% of a step", {"step.compute", "step.sync"}, .from_zero = true},
    {"Step time", "seconds", {"step.step_s"}, .from_zero = true},
    {"Top-5 accuracy", "top-5, %", .curves = {"step.top5", "eval.top5"}},
    {"Host memory",
     "bytes",
     {"telemetry.host_memory_used_bytes", "telemetry.page_cache_bytes"},
     .from_zero = true},
    {"Images read", "images/s", {"input.images_read_per_s"}, .from_zero = true},
    {"Bytes read, in all and from storage",
     "bytes/s",
     {"input.bytes_read_per_s", "input.storage_bytes_per_s"},
     .from_zero = true},
    {"Memory of the process", "bytes", {"telemetry.rss_bytes"}, .from_zero = true},
    {"GPU memory", "bytes", {"telemetry.gpu_memory_used_bytes"}, .from_zero = true},
    {"Available host memory",
     "bytes",
     {"telemetry.host_memory_available_bytes"},
     .from_zero = true},
    {"Load of the machine", "running processes", {"telemetry.load"}, .from_zero = true},
    {"GPU power", "W", {"telemetry.gpu_power_w"}, .from_zero = true},
    {"GPU temperature", "degrees Celsius", .curves = {"telemetry.gpu_temperature_c"}},
};

/* The horizontal axis of all runs. */
struct scale {
    bool in_epochs;
    struct time_unit {
        double most_s, seconds;
        const char *title;
    } unit;
};

static struct scale choose_scale(const struct dt_run *runs, size_t n)
{
    static const struct time_unit units[] = {
        {600, 1, "seconds"}, {7200, 60, "minutes"}, {INFINITY, 3600, "hours"}};
    double longest_s = 0, epochs = 0;
    size_t u = 0;
    for (size_t i = 0; i < n; i++) {
        longest_s = fmax(longest_s, runs[i].elapsed_s);
        epochs += dt_run_epochs(&runs[i], runs[i].step); /* NAN stays */
    }
    while (longest_s > units[u].most_s)
        u++;
    return (struct scale){.in_epochs = epochs >= (double)n, .unit = units[u]};
}

static double place(const struct scale *scale, const struct topic *topic, const struct dt_run *run,
                    int64_t step, double elapsed_s)
{
    if (topic->over_time)
        return elapsed_s / scale->unit.seconds;
    return scale->in_epochs ? dt_run_epochs(run, step) : (double)step;
}

struct line {
    char name[2 * DT_CURVE_NAME];
    double x[DT_CURVE_POINTS], y[DT_CURVE_POINTS];
};

struct drawing {
    const struct dt_run *runs;
    size_t n_runs, n_series, n_marks;
    struct scale scale;
    bool in_image;
    struct dt_series *series;
    struct line *lines; /* of the series */
    struct dt_mark *marks;
    struct dt_point *points; /* DT_CURVE_POINTS */
};

static bool is_of_eval(const struct topic *topic, int c)
{
    return strncmp(topic->curves[c], "eval.", 5) == 0;
}

static void add_series(struct drawing *d, const struct topic *topic, int c, size_t r)
{
    const struct dt_run *run = &d->runs[r];
    const bool is_split = topic->curves[1] && is_of_eval(topic, 0) != is_of_eval(topic, 1);
    const char *what = !is_split              ? strchr(topic->curves[c], '.') + 1
                       : is_of_eval(topic, c) ? "validation"
                                              : "training";
    const bool is_alone = d->n_runs == 1;
    struct line *line = &d->lines[d->n_series];
    char words[40];
    size_t n = dt_run_points(run, topic->curves[c], d->points);
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        line->x[i] = place(&d->scale, topic, run, d->points[i].step, d->points[i].elapsed_s);
        line->y[i] = d->points[i].value;
    }
    snprintf(words, sizeof words, "%.39s", topic->curves[1] ? what : "");
    for (char *letter = words; (letter = strchr(letter, '_'));)
        *letter = strcmp(letter, "_bytes") == 0 ? '\0' : ' ';
    snprintf(line->name, sizeof line->name, "%.80s%s%s", is_alone ? "" : run->name,
             is_alone || !words[0] ? "" : ", ", words);
    d->series[d->n_series++] = (struct dt_series){
        .name = line->name,
        .x = line->x,
        .y = line->y,
        .n = n,
        .colour = is_alone ? c : (int)r,
        .has_dots = is_of_eval(topic, c),
        .is_faint = c == 2 || strcmp(what, "training") == 0,
        .is_dashed = c == 1 && strcmp(what, "validation") != 0,
    };
}

static bool draw(FILE *out, struct drawing *d, const struct topic *topic)
{
    const char *progress = d->scale.in_epochs ? "epoch" : "step";
    d->n_series = d->n_marks = 0;
    for (int c = 0; c < MOST_CURVES && topic->curves[c]; c++) /* later ones above */
        for (size_t r = 0; r < d->n_runs; r++)
            add_series(d, topic, c, r);
    for (size_t r = 0; r < d->n_runs; r++)
        for (size_t i = 0; i < d->runs[r].n_notes; i++) {
            const struct dt_note *note = &d->runs[r].notes[i];
            d->marks[d->n_marks++] = (struct dt_mark){
                .x = place(&d->scale, topic, &d->runs[r], note->step, note->elapsed_s),
                .colour = !note->is_restart ? -1
                          : d->n_runs == 1  ? 7
                                            : (int)r,
                .name = note->is_restart ? "restart" : "warning",
                .text = note->text,
            };
        }
    double low = INFINITY, high = 0;
    for (size_t s = 0; s < d->n_series; s++)
        for (size_t i = 0; i < d->series[s].n; i++) {
            low = fmin(low, d->series[s].y[i]);
            high = fmax(high, d->series[s].y[i]);
        }
    const bool is_log = topic->may_be_log && low > 0 && high > 50 * low;
    return dt_chart_print(out,
                          &(struct dt_chart){
                              .title = topic->title,
                              .x = {topic->over_time ? d->scale.unit.title : progress, false, true},
                              .y = {topic->unit, is_log, topic->from_zero},
                              .series = d->series,
                              .n_series = d->n_series,
                              .marks = d->marks,
                              .n_marks = d->n_marks,
                              .in_image = d->in_image,
                          });
}

static bool is_in_topics(const char *curve)
{
    for (size_t t = 0; t < DT_COUNT(topics); t++)
        for (int c = 0; c < MOST_CURVES && topics[t].curves[c]; c++)
            if (strcmp(topics[t].curves[c], curve) == 0)
                return true;
    return false;
}

/* A chart for each quantity that is in no topic. */
static void draw_others(FILE *out, struct drawing *d)
{
    const char *heading = "</div>\n<h2>Other measurements</h2>\n<div class=\"charts\">\n";
    for (size_t r = 0; r < d->n_runs; r++)
        for (size_t k = 0; k < d->runs[r].n_curves; k++) {
            const char *name = d->runs[r].curves[k].name, *field = strchr(name, '.') + 1;
            bool is_drawn = is_in_topics(name);
            for (size_t i = 0; i < r; i++)
                is_drawn |= dt_run_curve(&d->runs[i], name) != NULL;
            if (is_drawn)
                continue;
            fputs(heading, out);
            heading = "";
            draw(out, d, &(struct topic){name, field, .curves = {name}});
        }
}

dt_status dt_curves_print(FILE *out, const struct dt_run *runs, size_t n, int most)
{
    struct drawing d = {
        .runs = runs, .n_runs = n, .scale = choose_scale(runs, n), .in_image = most < INT_MAX};
    size_t n_notes = 0;
    dt_status status = DT_OK;
    for (size_t i = 0; i < n; i++)
        n_notes += runs[i].n_notes;
    DT_TRY_OUT(DT_NEW(d.series, MOST_CURVES * n));
    DT_TRY_OUT(DT_NEW(d.lines, MOST_CURVES * n));
    DT_TRY_OUT(DT_NEW(d.marks, n_notes));
    DT_TRY_OUT(DT_NEW(d.points, DT_CURVE_POINTS));
    fputs("<div class=\"charts\">\n", out);
    for (size_t t = 0; t < DT_COUNT(topics) && most > 0; t++)
        most -= draw(out, &d, &topics[t]);
    if (most > 0)
        draw_others(out, &d);
    fputs("</div>\n", out);
out:
    free(d.series);
    free(d.lines);
    free(d.marks);
    free(d.points);
    return status;
}
