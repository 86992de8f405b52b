/* `dtrain scaling FOLDER...`: sums up the measurements of scripts/scaling.sh. Each is a file of
 * `dtrain bench --json` named SERIES-npRANKS-REPETITION.json; a point is the median of the
 * repetitions of a series with a number of ranks. Runs that were trained there, each in a folder of
 * its own, tell what accuracy the same network and precision reach on as many ranks. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sort.h"
#include "base/text.h"
#include "page/chart.h"
#include "page/html.h"
#include "page/page.h"
#include "page/page_run.h"

enum { MOST_FILES = 10000, SERIES_BYTES = 192, FACTS_BYTES = 320 };

struct measurement {
    char series[SERIES_BYTES];
    char facts[FACTS_BYTES]; /* network and precision; the device, the first host, the day */
    const char *dir;
    int ranks, repetition;
    double images_per_s, step_s, comm_share, wait_share, ranks_per_cpu; /* NAN: not measured */
};

struct trained {
    char network[FACTS_BYTES]; /* the beginning of a measurement's facts */
    const char *dir;
    int ranks;
    double top1; /* of its best evaluation, in percent */
};

struct point {
    const char *series, *facts;
    int ranks, n;                          /* n: repetitions */
    double top1;                           /* median of the runs; NAN: there is none */
    double images_per_s, slowest, fastest; /* of all ranks */
    double step_s, comm_share, wait_share, ranks_per_cpu;
    double speedup, efficiency; /* against the series' smallest number of ranks */
};

struct scaling {
    struct measurement *measurements;
    struct trained *trained;
    struct point *points;
    int n_measurements, n_trained, n_points;
    struct dt_series *series; /* of one chart; with the values of its curves: two per point */
    double *x, *y, *low, *high;
    struct dt_mark *marks;
};

/* --- Reading --- */

/* Replaces what HTML or CSV would have to quote. */
static void make_plain(char *text, const char *quoted)
{
    for (char *c = text; (c = strpbrk(c, quoted));)
        *c = '_';
    dt_utf8_escape(text);
}

/* False for files that are no measurements. Of several folders, a series has the folder's name too.
 */
static bool parse_name(struct measurement *m, const char *folder, const char *name)
{
    int end = 0;
    const char *np = strstr(name, "-np");
    for (const char *next = np; next; next = strstr(next + 1, "-np"))
        np = next;
    if (!np || np - name >= SERIES_BYTES / 2 ||
        sscanf(np, "-np%d-%d.json%n", &m->ranks, &m->repetition, &end) != 2 || np[end] != '\0' ||
        end == 0 || m->ranks < 1)
        return false;
    snprintf(m->series, sizeof m->series, "%.64s%s%.*s", folder, folder[0] ? "/" : "",
             (int)(np - name), name);
    make_plain(m->series, "<>&\"',\n");
    return true;
}

static dt_status load_measurement(struct measurement *m, const char *dir, const char *name)
{
    char path[DT_PATH_MAX];
    struct dt_json_doc *doc;
    DT_TRY(dt_file_path(path, "%s/%s", dir, name));
    DT_TRY(dt_json_load(&doc, path, NULL));
    const struct dt_json *root = dt_json_root(doc);
    m->images_per_s = dt_json_number(root, "images_per_s");
    m->step_s = dt_json_number(root, "step_median_s");
    m->comm_share = dt_json_number(root, "exposed_comm_share");
    m->wait_share = dt_json_number(root, "data_wait_share");
    m->ranks_per_cpu = dt_json_number(root, "ranks_per_cpu");
    const char *facts[] = {"model", "precision", "device", "date"};
    for (size_t i = 0; i < DT_COUNT(facts); i++) {
        const struct dt_json *fact = dt_json_get(root, facts[i]);
        facts[i] = fact && fact->string ? fact->string : "?";
    }
    const struct dt_json *hosts = dt_json_get(root, "hosts"), *host = hosts ? hosts->child : NULL;
    snprintf(m->facts, sizeof m->facts, "%s %s; %s; %s%s; %.10s", facts[0], facts[1], facts[2],
             host && host->string ? host->string : "?", host && host->next ? " and others" : "",
             facts[3]);
    make_plain(m->facts, "<>&\n");
    dt_json_destroy(doc);
    if (!(m->images_per_s > 0))
        DT_FAIL(DT_ERR_DATA, "%s is not a result of dtrain bench: it has no images_per_s", path);
    return DT_OK;
}

static const char *text_at(const struct dt_run *run, const char *section, const char *key)
{
    const struct dt_json *config = dt_json_get(dt_json_root(run->start), "config");
    const struct dt_json *value = dt_json_get(dt_json_get(config, section), key);
    return value && value->string ? value->string : "?";
}

/* Nothing if the folder is no run, or one that has not been evaluated. */
static dt_status load_trained(struct scaling *s, const char *dir, const char *name)
{
    char path[DT_PATH_MAX];
    struct trained *t = &s->trained[s->n_trained];
    struct dt_run run;
    struct dt_point *points = NULL;
    DT_TRY(dt_file_path(path, "%s/%s/metrics.jsonl", dir, name));
    if (name[0] == '.' || !dt_file_exists(path))
        return DT_OK;
    dt_status status = dt_run_load(&run, path);
    DT_TRY_OUT(status);
    DT_TRY_OUT(DT_NEW(points, DT_CURVE_POINTS));
    const size_t n = run.start ? dt_run_points(&run, "eval.top1", points) : 0;
    *t = (struct trained){.dir = dir, .ranks = (int)dt_event_number(run.start, "ranks")};
    for (size_t i = 0; i < n; i++)
        t->top1 = fmax(t->top1, points[i].value);
    if (n > 0)
        snprintf(t->network, sizeof t->network, "%s %s;", text_at(&run, "model", "name"),
                 text_at(&run, "train", "precision"));
    s->n_trained += n > 0;
out:
    free(points);
    dt_run_reset(&run);
    return status;
}

static int by_series(const void *a, const void *b)
{
    const struct measurement *x = a, *y = b;
    int order = strcmp(x->series, y->series);
    return order != 0 ? order : x->ranks - y->ranks;
}

static dt_status load_folder(struct scaling *s, const char *path, const char *name)
{
    const int n_before = s->n_measurements;
    dt_status status = DT_OK;
    DIR *dir = opendir(path);
    if (!dir)
        DT_FAIL(dt_file_input_status(errno), "cannot open %s: %s", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir)) && s->n_measurements < MOST_FILES;) {
        struct measurement *m = &s->measurements[s->n_measurements];
        if (s->n_trained < MOST_FILES)
            DT_TRY_OUT(load_trained(s, path, entry->d_name));
        if (!parse_name(m, name, entry->d_name))
            continue;
        DT_TRY_OUT(load_measurement(m, path, entry->d_name));
        m->dir = path;
        s->n_measurements++;
    }
    if (s->n_measurements == n_before)
        DT_TRY_OUT(DT_ERROR(DT_ERR_NO_INPUT,
                            "%s has no measurements (NAME-np2-1.json); scripts/scaling.sh makes "
                            "them",
                            path));
out:
    closedir(dir);
    return status;
}

/* --- Points --- */

/* Sorts the values of a field over n measurements; they are NAN together. */
static const double *sort_field(const struct measurement *m, int n, size_t offset, double *values)
{
    for (int i = 0; i < n; i++)
        values[i] = *(const double *)((const char *)&m[i] + offset);
    dt_sort_f64(values, (size_t)n);
    return values;
}
#define MEDIAN(field) \
    dt_percentile_f64(sort_field(m, n, offsetof(struct measurement, field), values), (size_t)n, 0.5)

static double median_top1(const struct scaling *s, const struct measurement *m, double *values)
{
    size_t n = 0;
    for (const struct trained *t = s->trained; t < s->trained + s->n_trained; t++)
        if (t->dir == m->dir && t->ranks == m->ranks &&
            strncmp(m->facts, t->network, strlen(t->network)) == 0)
            values[n++] = t->top1;
    dt_sort_f64(values, n);
    return n > 0 ? dt_percentile_f64(values, n, 0.5) : NAN;
}

static dt_status make_points(struct scaling *s)
{
    double *values;
    const struct point *base = NULL;
    DT_TRY(DT_NEW(s->points, (size_t)s->n_measurements));
    DT_TRY(DT_NEW(values, (size_t)s->n_measurements + (size_t)s->n_trained));
    for (int i = 0, n; i < s->n_measurements; i += n) {
        const struct measurement *m = &s->measurements[i];
        for (n = 1; i + n < s->n_measurements && by_series(m, m + n) == 0;)
            n++;
        struct point *p = &s->points[s->n_points++];
        *p = (struct point){.series = m->series, .facts = m->facts, .ranks = m->ranks, .n = n};
        p->top1 = median_top1(s, m, values);
        p->step_s = MEDIAN(step_s);
        p->comm_share = MEDIAN(comm_share);
        p->wait_share = MEDIAN(wait_share);
        p->ranks_per_cpu = MEDIAN(ranks_per_cpu);
        p->images_per_s = MEDIAN(images_per_s);
        p->slowest = values[0];
        p->fastest = values[n - 1];
        if (!base || strcmp(base->series, p->series) != 0)
            base = p;
        p->speedup = p->images_per_s / base->images_per_s;
        p->efficiency = p->speedup * base->ranks / p->ranks;
    }
    free(values);
    return DT_OK;
}

/* --- Tables --- */

static const struct column {
    const char *key;
    size_t offset;
} columns[] = {
    {"images_per_s", offsetof(struct point, images_per_s)},
    {"images_per_s_min", offsetof(struct point, slowest)},
    {"images_per_s_max", offsetof(struct point, fastest)},
    {"step_median_s", offsetof(struct point, step_s)},
    {"speedup", offsetof(struct point, speedup)},
    {"efficiency", offsetof(struct point, efficiency)},
    {"exposed_comm_share", offsetof(struct point, comm_share)},
    {"data_wait_share", offsetof(struct point, wait_share)},
    {"top1", offsetof(struct point, top1)},
};

static double value(const struct point *p, size_t offset)
{
    return *(const double *)((const char *)p + offset);
}

static void print_table(const struct scaling *s)
{
    bool has_top1 = false;
    for (int i = 0; i < s->n_points; i++)
        has_top1 |= isfinite(s->points[i].top1);
    for (int i = 0; i < s->n_points; i++) {
        const struct point *p = &s->points[i];
        if (i == 0 || strcmp(p[-1].series, p->series) != 0)
            printf("%s: %s\n%7s %10s %19s %9s %8s %11s%s %13s\n", p->series, p->facts, "ranks",
                   "images/s", "(slowest..fastest)", "step ms", "speedup", "efficiency",
                   has_top1 ? "   top-1" : "", "exposed comm");
        printf("%7d %10.1f %9.1f..%-8.1f %9.1f %8.2f %9.1f %%", p->ranks, p->images_per_s,
               p->slowest, p->fastest, 1e3 * p->step_s, p->speedup, 100 * p->efficiency);
        if (isfinite(p->top1))
            printf(" %7.2f", p->top1);
        else if (has_top1)
            printf("%8s", "");
        if (isfinite(p->comm_share))
            printf(" %11.1f %%", 100 * p->comm_share);
        if (p->ranks_per_cpu > 1)
            printf("  more ranks than CPUs");
        if (p->efficiency > 1.02)
            printf("  above 100 %%: noise, see slowest..fastest");
        printf("\n");
    }
}

static dt_status save_json(const struct scaling *s, const char *path)
{
    struct dt_jsonw w = {.pretty = true};
    dt_jsonw_add(&w, "{points: [");
    for (const struct point *p = s->points; p < s->points + s->n_points; p++) {
        dt_jsonw_add(&w, "{series: %s, ranks: %d, repetitions: %d", p->series, p->ranks, p->n);
        for (size_t c = 0; c < DT_COUNT(columns); c++)
            dt_jsonw_number(&w, columns[c].key, value(p, columns[c].offset));
        dt_jsonw_close(&w, '}');
    }
    dt_jsonw_add(&w, "]}");
    return dt_jsonw_save(&w, path);
}

static dt_status print_csv(const struct scaling *s, FILE *out)
{
    fprintf(out, "series,ranks,repetitions");
    for (size_t c = 0; c < DT_COUNT(columns); c++)
        fprintf(out, ",%s", columns[c].key);
    for (const struct point *p = s->points; p < s->points + s->n_points; p++) {
        fprintf(out, "\n%s,%d,%d", p->series, p->ranks, p->n);
        for (size_t c = 0; c < DT_COUNT(columns); c++)
            if (isfinite(value(p, columns[c].offset)))
                fprintf(out, ",%.6g", value(p, columns[c].offset));
            else
                fprintf(out, ",");
    }
    fprintf(out, "\n");
    return DT_OK;
}

/* --- Page --- */

static const struct chart {
    const char *title, *unit;
    size_t offset;
    double scale;
    bool has_ideal;    /* the line through the origin and the first point */
    bool has_interval; /* from the slowest to the fastest repetition */
} charts[] = {
    {"Throughput of all ranks", "images/s", offsetof(struct point, images_per_s), 1, true, true},
    {"Efficiency against the fewest ranks", "%", offsetof(struct point, efficiency), 100, false,
     true},
    {"Exposed communication", "% of the step", offsetof(struct point, comm_share), 100, false,
     false},
};

/* A curve of the n points of a series; its values begin at s->x[at] and so on. */
static struct dt_series make_curve(const struct scaling *s, const struct point *p, int n, size_t at,
                                   const struct chart *chart, bool is_ideal)
{
    const bool has_interval = chart->has_interval && !is_ideal;
    for (int i = 0; i < n; i++) {
        const double ideal = value(p, chart->offset) * p[i].ranks / p->ranks;
        const double y = chart->scale * (is_ideal ? ideal : value(&p[i], chart->offset));
        s->x[at + (size_t)i] = p[i].ranks;
        s->y[at + (size_t)i] = y;
        s->low[at + (size_t)i] = y * p[i].slowest / p[i].images_per_s;
        s->high[at + (size_t)i] = y * p[i].fastest / p[i].images_per_s;
    }
    return (struct dt_series){.name = is_ideal ? "ideal" : p->series,
                              .x = s->x + at,
                              .y = s->y + at,
                              .n = (size_t)n,
                              .low = has_interval ? s->low + at : NULL,
                              .high = has_interval ? s->high + at : NULL,
                              .dash = is_ideal,
                              .is_faint = is_ideal,
                              .has_dots = !is_ideal};
}

static dt_status print_chart(const struct scaling *s, const struct chart *chart, FILE *out)
{
    size_t n_series = 0, at = 0, n_marks = 0;
    int colour = 0;
    bool is_drawn;
    for (int i = 0, n; i < s->n_points; i += n) {
        const struct point *p = &s->points[i];
        for (n = 1; i + n < s->n_points && strcmp(p[n].series, p->series) == 0;)
            n++;
        for (int ideal = 0; ideal <= chart->has_ideal; ideal++, at += (size_t)n) {
            s->series[n_series] = make_curve(s, p, n, at, chart, ideal);
            s->series[n_series++].colour = colour;
        }
        colour++;
    }
    for (const struct point *p = s->points; p < s->points + s->n_points; p++)
        if (p->ranks_per_cpu > 1)
            s->marks[n_marks++] = (struct dt_mark){p->ranks, -1, "more ranks than CPUs", p->series};
    const struct dt_chart drawing = {.title = chart->title,
                                     .x = {.title = "ranks", .from_zero = true},
                                     .y = {.title = chart->unit, .from_zero = true},
                                     .series = s->series,
                                     .n_series = n_series,
                                     .marks = s->marks,
                                     .n_marks = n_marks};
    return dt_chart_print(out, &drawing, &is_drawn);
}

static void put_number(FILE *out, int decimals, double number)
{
    char text[32] = "";
    if (isfinite(number))
        snprintf(text, sizeof text, "%.*f", decimals, number);
    fprintf(out, "<td>%s</td>", text);
}

static void put_points(const struct scaling *s, FILE *out)
{
    fputs("<div class=\"wide\"><table id=\"points\" class=\"sortable\"><thead><tr><th>series</th>"
          "<th>ranks</th><th>images/s</th><th>slowest</th><th>fastest</th><th>step, ms</th>"
          "<th>speedup</th><th>efficiency, %</th><th>exposed communication, %</th><th>top-1, %</th>"
          "<th>notes</th></tr></thead><tbody>\n",
          out);
    for (const struct point *p = s->points; p < s->points + s->n_points; p++) {
        fprintf(out, "<tr><th scope=\"row\">%s</th><td>%d</td>", p->series, p->ranks);
        put_number(out, 1, p->images_per_s);
        put_number(out, 1, p->slowest);
        put_number(out, 1, p->fastest);
        put_number(out, 1, 1e3 * p->step_s);
        put_number(out, 2, p->speedup);
        put_number(out, 1, 100 * p->efficiency);
        put_number(out, 1, 100 * p->comm_share);
        put_number(out, 2, p->top1);
        fprintf(out, "<td>%s%s</td></tr>\n", p->ranks_per_cpu > 1 ? "more ranks than CPUs" : "",
                p->efficiency > 1.02 ? " above 100 %: noise" : "");
    }
    fputs("</tbody></table></div>\n", out);
}

/* Of each series what it is, and its largest number of ranks. */
static void put_headlines(const struct scaling *s, FILE *out)
{
    fputs("<dl class=\"facts\">\n", out);
    for (int i = 0; i < s->n_points; i++) {
        const struct point *p = &s->points[i];
        if (i + 1 < s->n_points && strcmp(p[1].series, p->series) == 0)
            continue;
        fprintf(
            out,
            "<div><dt>%s: %s</dt><dd>%.1f images/s on %d ranks, efficiency %.0f %%</dd></div>\n",
            p->series, p->facts, p->images_per_s, p->ranks, 100 * p->efficiency);
    }
    fputs("</dl>\n", out);
}

static dt_status print_page(const struct scaling *s, FILE *out)
{
    dt_html_begin(out, "Scaling");
    put_headlines(s, out);
    fputs("<h2>Curves</h2>\n<div class=\"charts\">\n", out);
    for (size_t c = 0; c < DT_COUNT(charts); c++)
        DT_TRY(print_chart(s, &charts[c], out));
    fputs("</div>\n<h2>Measurements</h2>\n", out);
    put_points(s, out);
    dt_html_end(out, "Medians of the repetitions; a vertical line spans the slowest to the fastest "
                     "of them. Efficiency is images/s per rank against that with the fewest ranks. "
                     "Top-1 is the median of the best evaluations of the runs on that number of "
                     "ranks.");
    return DT_OK;
}

/* --- All of it --- */

static dt_status save_text(const struct scaling *s, const char *path,
                           dt_status (*print)(const struct scaling *s, FILE *out))
{
    struct dt_new_file file;
    char *text = NULL;
    size_t bytes = 0;
    DT_TRY(dt_file_begin(&file, path));
    FILE *out = open_memstream(&text, &bytes);
    const dt_status status = out ? print(s, out) : DT_OK;
    const dt_status written = dt_file_write_stream(file.fd, out, &text, &bytes, path);
    return dt_file_end(&file, status != DT_OK ? status : written);
}

dt_status dt_scaling(char *const *folders, int n_folders)
{
    struct scaling s = {0};
    const char *dir = folders[0];
    char path[DT_PATH_MAX];
    dt_status status = DT_OK;
    DT_TRY_OUT(DT_NEW(s.measurements, MOST_FILES));
    DT_TRY_OUT(DT_NEW(s.trained, MOST_FILES));
    for (int i = 0; i < n_folders; i++)
        DT_TRY_OUT(load_folder(&s, folders[i], n_folders > 1 ? folders[i] : ""));
    qsort(s.measurements, (size_t)s.n_measurements, sizeof *s.measurements, by_series);
    DT_TRY_OUT(make_points(&s));
    DT_TRY_OUT(DT_NEW(s.series, 2 * (size_t)s.n_points));
    DT_TRY_OUT(DT_NEW(s.x, 2 * (size_t)s.n_points));
    DT_TRY_OUT(DT_NEW(s.y, 2 * (size_t)s.n_points));
    DT_TRY_OUT(DT_NEW(s.low, 2 * (size_t)s.n_points));
    DT_TRY_OUT(DT_NEW(s.high, 2 * (size_t)s.n_points));
    DT_TRY_OUT(DT_NEW(s.marks, (size_t)s.n_points));
    print_table(&s);
    DT_TRY_OUT(dt_file_path(path, "%s/scaling.json", dir));
    DT_TRY_OUT(save_json(&s, path));
    DT_TRY_OUT(dt_file_path(path, "%s/scaling.csv", dir));
    DT_TRY_OUT(save_text(&s, path, print_csv));
    DT_TRY_OUT(dt_file_path(path, "%s/scaling.html", dir));
    DT_TRY_OUT(save_text(&s, path, print_page));
    printf("%s/scaling.json, scaling.csv, scaling.html\n", dir);
out:
    free(s.measurements);
    free(s.trained);
    free(s.points);
    free(s.series);
    free(s.x);
    free(s.y);
    free(s.low);
    free(s.high);
    free(s.marks);
    return status;
}
