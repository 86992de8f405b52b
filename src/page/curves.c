#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "page/chart.h"
#include "page/html.h"
#include "page/page.h"

enum { MAX_CURVES = DT_N_GROUPS };

/* The quantities of one chart: one, or two or three that are compared. */
struct topic {
    const char *title, *unit, *curves[MAX_CURVES];
    bool from_zero;
};

static const struct topic topics[] = {
    {"Loss", "loss", {"step.loss", "eval.loss"}, false},
    {"Parts of a detector's loss", "loss", {"step.class_loss", "step.box_loss"}, false},
    {"Accuracy", "top-1, %", {"step.top1", "eval.top1"}, false},
    {"Average precision (COCO)", "AP", {"eval.ap"}, true},
    {"Average precision at one IoU", "AP", {"eval.ap50", "eval.ap75"}, true},
    {"Average precision by size", "AP", {"eval.ap_large", "eval.ap_medium", "eval.ap_small"}, true},
    {"Average recall", "AR", {"eval.ar100", "eval.ar10", "eval.ar1"}, true},
    {"Average recall by size", "AR", {"eval.ar_large", "eval.ar_medium", "eval.ar_small"}, true},
    {"Learning rate", "learning rate", {"step.lr"}, true},
    {"Throughput", "images/s", {"step.images_per_s"}, true},
    {"Waits", "% of a step", {"step.data wait", "step.exposed communication"}, true},
    {"Computing and agreeing", "% of a step", {"step.compute", "step.sync"}, true},
    {"Step time", "seconds", {"step.step_s"}, true},
    {"Top-5 accuracy", "top-5, %", {"step.top5", "eval.top5"}, false},
    {"Host memory", "GB", {"telemetry.host_memory_used_bytes", "telemetry.page_cache_bytes"}, true},
    {"Images read", "images/s", {"input.images_read_per_s"}, true},
    {"Bytes read, in all and from storage",
     "GB/s",
     {"input.bytes_read_per_s", "input.storage_bytes_per_s"},
     true},
    {"Memory of the process", "GB", {"telemetry.rss_bytes"}, true},
    {"GPU memory", "GB", {"telemetry.gpu_memory_used_bytes"}, true},
    {"Available host memory", "GB", {"telemetry.host_memory_available_bytes"}, true},
    {"Load of the machine", "running processes", {"telemetry.load"}, true},
    {"GPU power", "W", {"telemetry.gpu_power_w"}, true},
    {"GPU temperature", "degrees Celsius", {"telemetry.gpu_temperature_c"}, false},
};

/* The units that names of fields end with, for people. */
static const struct unit {
    const char *suffix, *unit;
    double scale;
} units[] = {
    {"bytes_read_per_s", "GB/s", 1e-9},
    {"bytes_per_s", "GB/s", 1e-9},
    {"_per_s", "per second", 1},
    {"_bytes", "GB", 1e-9},
    {"_w", "W", 1},
    {"_c", "degrees Celsius", 1},
    {"_s", "seconds", 1},
    {"_percent", "%", 1},
    {"", "", 1},
};

static const struct unit *unit_of(const char *field)
{
    const struct unit *unit = units;
    size_t n = strlen(unit->suffix);
    while (strlen(field) < n || strcmp(field + strlen(field) - n, unit->suffix) != 0)
        n = strlen((++unit)->suffix);
    return unit;
}

/* "gpu0_power_w" as "gpu0 power". */
static void name_field(char *out, size_t bytes, const char *field)
{
    const size_t suffix = strlen(unit_of(field)->suffix);
    snprintf(out, bytes, "%.*s", (int)(strlen(field) - (suffix < strlen(field) ? suffix : 0)),
             field);
    for (char *letter = out; (letter = strchr(letter, '_'));)
        *letter = ' ';
}

struct line {
    char name[2 * DT_CURVE_NAME];
    double x[DT_CURVE_POINTS], y[DT_CURVE_POINTS];
    struct dt_point points[DT_CURVE_POINTS];
};

struct drawing {
    const struct dt_run *runs;
    size_t n_runs, n_series, n_marks;
    bool in_epochs;     /* else in steps */
    bool in_image;      /* the first two charts side by side */
    const char *folder; /* or all, in a file each; NULL = on a page */
    int n_drawn;
    struct dt_series *series;
    struct line *lines; /* of the series */
    struct dt_mark *marks;
};

static bool knows_epochs(const struct dt_run *runs, size_t n)
{
    double epochs = 0;
    for (size_t i = 0; i < n; i++)
        epochs += dt_run_epochs(&runs[i], runs[i].step); /* NAN stays */
    return epochs >= (double)n;
}

static double place(const struct drawing *d, const struct dt_run *run, int64_t step)
{
    return d->in_epochs ? dt_run_epochs(run, step) : (double)step;
}

static bool is_of_eval(const struct topic *topic, int c)
{
    return strncmp(topic->curves[c], "eval.", 5) == 0;
}

/* The first run that has the very same curve, or the run itself. */
static size_t find_equal(const struct drawing *d, size_t first, size_t n)
{
    const struct dt_series *series = &d->series[d->n_series];
    for (size_t s = first; s < d->n_series; s++) {
        bool is_equal = d->series[s].n == n;
        for (size_t i = 0; i < n && is_equal; i++)
            is_equal = d->series[s].y[i] == series->y[i] &&
                       d->series[s].points[i].step == series->points[i].step;
        if (is_equal)
            return d->series[s].run;
    }
    return series->run;
}

static void add_series(struct drawing *d, const struct topic *topic, int c, size_t r, size_t first)
{
    const struct dt_run *run = &d->runs[r];
    const bool is_split = topic->curves[1] && is_of_eval(topic, 0) != is_of_eval(topic, 1),
               is_alone = d->n_runs == 1;
    const double scale = unit_of(topic->curves[c])->scale;
    struct line *line = &d->lines[d->n_series];
    char words[40] = "";
    const size_t n = dt_run_points(run, topic->curves[c], line->points);
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        line->x[i] = place(d, run, line->points[i].step);
        line->y[i] = scale * line->points[i].value;
    }
    if (is_split)
        snprintf(words, sizeof words, "%s", is_of_eval(topic, c) ? "validation" : "training");
    else if (topic->curves[1])
        name_field(words, sizeof words, strchr(topic->curves[c], '.') + 1);
    struct dt_series *series = &d->series[d->n_series];
    *series = (struct dt_series){
        .name = line->name,
        .x = line->x,
        .y = line->y,
        .n = n,
        .points = line->points,
        .run = r,
        .group = c,
        .colour = is_alone ? c : (int)r,
        .dash = !is_alone  ? (int)r
                : is_split ? 0
                           : c,
        .has_dots = is_of_eval(topic, c) && n <= 100,
        .is_faint = c == 2 || (is_split && !is_of_eval(topic, c)),
    };
    const size_t equal = find_equal(d, first, n);
    snprintf(line->name, sizeof line->name, "%.80s%s%s%s%.30s", is_alone ? "" : run->name,
             is_alone || !words[0] ? "" : ", ", words, equal == r ? "" : " = ",
             equal == r ? "" : d->runs[equal].name);
    d->n_series++;
}

/* In d->folder, under the chart's name. */
static dt_status save_chart(const struct drawing *d, const struct dt_chart *chart)
{
    char *text = NULL, path[DT_PATH_MAX];
    size_t bytes = 0;
    bool is_drawn = false;
    DT_TRY(dt_file_path(path, "%s/%s.svg", d->folder, chart->title));
    for (char *c = path + strlen(d->folder) + 1; *c; c++)
        *c = *c == ' ' || *c == '/' ? '-' : *c;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        DT_FAIL(DT_ERR_MEMORY, "out of memory for a picture");
    dt_status status = dt_chart_print(out, chart, &is_drawn);
    if (fclose(out) != 0 && status == DT_OK)
        status = DT_ERROR(DT_ERR_MEMORY, "out of memory for a picture");
    if (status == DT_OK && is_drawn)
        status = dt_file_save(path, text, bytes);
    free(text);
    return status;
}

static dt_status draw(FILE *out, struct drawing *d, const struct topic *topic)
{
    d->n_series = d->n_marks = 0;
    for (int c = 0; c < MAX_CURVES && topic->curves[c]; c++) { /* later ones above */
        const size_t first = d->n_series;
        for (size_t r = 0; r < d->n_runs; r++)
            add_series(d, topic, c, r, first);
    }
    for (size_t r = 0; r < d->n_runs; r++)
        for (size_t i = 0; i < d->runs[r].n_notes; i++) {
            const struct dt_note *note = &d->runs[r].notes[i];
            d->marks[d->n_marks++] = (struct dt_mark){
                .x = place(d, &d->runs[r], note->step),
                .text = note->text,
            };
        }
    const char *unit = topic->unit ? topic->unit : unit_of(topic->curves[0])->unit;
    const struct dt_chart chart = {
        .title = topic->title,
        .x = {d->in_epochs ? "epoch" : "step", true},
        .y = {unit[0] ? unit : topic->title, topic->from_zero},
        .series = d->series,
        .n_series = d->n_series,
        .marks = d->marks,
        .n_marks = d->n_marks,
        .in_image = d->in_image || d->folder,
        .image_x = d->in_image ? d->n_drawn * DT_CHART_WIDTH : 0,
    };
    bool is_drawn = false;
    if (d->folder)
        return save_chart(d, &chart);
    DT_TRY(dt_chart_print(out, &chart, &is_drawn));
    d->n_drawn += is_drawn;
    return DT_OK;
}

static bool is_in_topics(const char *curve)
{
    for (size_t t = 0; t < DT_COUNT(topics); t++)
        for (int c = 0; c < MAX_CURVES && topics[t].curves[c]; c++)
            if (strcmp(topics[t].curves[c], curve) == 0)
                return true;
    return false;
}

/* A chart for each quantity that is in no topic. */
static dt_status draw_others(FILE *out, struct drawing *d)
{
    const char *heading =
        "</div>\n<h2 id=\"others\">Other measurements</h2>\n<div class=\"charts\">\n";
    char title[DT_CURVE_NAME];
    for (size_t r = 0; r < d->n_runs; r++)
        for (size_t k = 0; k < d->runs[r].n_curves; k++) {
            const char *name = d->runs[r].curves[k].name;
            bool is_drawn = is_in_topics(name);
            for (size_t i = 0; i < r; i++)
                is_drawn |= dt_run_curve(&d->runs[i], name) != NULL;
            if (is_drawn)
                continue;
            if (!d->folder)
                fputs(heading, out);
            heading = "";
            name_field(title, sizeof title, strchr(name, '.') + 1);
            DT_TRY(draw(out, d, &(struct topic){title, NULL, .curves = {name}}));
        }
    return DT_OK;
}

/* Writes what the script needs to draw the curves of the runs over any axis. */
static dt_status put_runs(FILE *out, const struct dt_run *runs, size_t n)
{
    struct dt_jsonw w = {0};
    dt_jsonw_begin(&w, NULL, '[');
    for (size_t r = 0; r < n; r++) {
        const struct dt_run *run = &runs[r];
        const struct dt_json *stages =
            run->start ? dt_json_get(dt_json_root(run->start), "stages") : NULL;
        dt_jsonw_add(&w, "{name: %s, stages: [[%d, %d, %g]", run->name, 0, 0,
                     dt_event_number(run->start, "steps_per_epoch"));
        for (const struct dt_json *stage = stages ? stages->child : NULL; stage;
             stage = stage->next)
            dt_jsonw_add(&w, "[%g, %g, %g]", dt_json_number(stage, "step"),
                         dt_json_number(stage, "epoch"), dt_json_number(stage, "steps_per_epoch"));
        dt_jsonw_add(&w, "], starts: [");
        for (size_t i = 0; i < run->n_starts; i++)
            dt_jsonw_add(&w, "[%g, %g]", run->starts[i].elapsed_s, run->starts[i].unix_s);
        dt_jsonw_add(&w, "], notes: [");
        for (size_t i = 0; i < run->n_notes; i++)
            dt_jsonw_add(&w, "[%" PRId64 ", %g, %hhd, %s]", run->notes[i].step,
                         run->notes[i].elapsed_s, run->notes[i].is_restart, run->notes[i].text);
        dt_jsonw_add(&w, "]}");
    }
    dt_jsonw_close(&w, ']');
    const dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK)
        dt_html_data(out, "runs", w.text);
    dt_jsonw_reset(&w);
    return status;
}

static dt_status draw_all(FILE *out, struct drawing *d)
{
    size_t n_notes = 0;
    dt_status status = DT_OK;
    for (size_t i = 0; i < d->n_runs; i++)
        n_notes += d->runs[i].n_notes;
    d->in_epochs = knows_epochs(d->runs, d->n_runs);
    DT_TRY_OUT(DT_NEW(d->series, MAX_CURVES * d->n_runs));
    DT_TRY_OUT(DT_NEW(d->lines, MAX_CURVES * d->n_runs));
    DT_TRY_OUT(DT_NEW(d->marks, n_notes));
    for (size_t t = 0; t < DT_COUNT(topics) && !(d->in_image && d->n_drawn == 2); t++)
        DT_TRY_OUT(draw(out, d, &topics[t]));
    if (!d->in_image)
        DT_TRY_OUT(draw_others(out, d));
out:
    free(d->series);
    free(d->lines);
    free(d->marks);
    return status;
}

dt_status dt_curves_print(FILE *out, const struct dt_run *runs, size_t n)
{
    DT_TRY(put_runs(out, runs, n));
    fputs("<noscript><figure>", out);
    DT_TRY(dt_curves_draw(out, runs, n));
    fputs("</figure></noscript>\n<div class=\"charts\">\n", out);
    DT_TRY(draw_all(out, &(struct drawing){.runs = runs, .n_runs = n}));
    fputs("</div>\n", out);
    return DT_OK;
}

dt_status dt_curves_draw(FILE *out, const struct dt_run *runs, size_t n)
{
    const int height =
        DT_CHART_HEIGHT + DT_CHART_LINE * (2 * (int)n + 2); /* two curves of each run */
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\">\n",
            2 * DT_CHART_WIDTH, height);
    DT_TRY(draw_all(out, &(struct drawing){.runs = runs, .n_runs = n, .in_image = true}));
    fputs("</svg>\n", out);
    return DT_OK;
}

dt_status dt_curves_save(const char *folder, const struct dt_run *runs, size_t n)
{
    DT_TRY(dt_file_make_folder(folder));
    return draw_all(NULL, &(struct drawing){.runs = runs, .n_runs = n, .folder = folder});
}
