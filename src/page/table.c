/* Tables of texts, and runs as tables. */
#include "page/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "dtrain/config.h"

static const double targets[] = {0.75, 0.9}; /* parts of the best accuracy or AP */

void dt_table_add(struct dt_table *table, const char *format, ...)
{
    va_list args;
    if (DT_GROW(table->cells, table->capacity, table->n_cells, "table") != DT_OK) {
        table->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(table->cells[table->n_cells++], DT_CELL_BYTES, format, args);
    va_end(args);
}

/* Adds to the last cell. */
static void append(struct dt_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void append(struct dt_table *table, const char *format, ...)
{
    va_list args;
    if (table->n_cells == 0)
        return;
    char *cell = table->cells[table->n_cells - 1];
    size_t used = strlen(cell);
    va_start(args, format);
    vsnprintf(cell + used, DT_CELL_BYTES - used, format, args);
    va_end(args);
}

dt_status dt_table_check(const struct dt_table *table)
{
    return table->failed ? DT_ERROR(DT_ERR_MEMORY, "out of memory for a table") : DT_OK;
}

const char *dt_table_cell(const struct dt_table *table, size_t row, size_t column)
{
    return table->cells[row * table->n_columns + column];
}

size_t dt_table_rows(const struct dt_table *table)
{
    return table->n_cells / table->n_columns;
}

bool dt_table_row_differs(const struct dt_table *table, size_t row)
{
    for (size_t i = 2; i < table->n_columns; i++)
        if (strcmp(dt_table_cell(table, row, i), dt_table_cell(table, row, 1)) != 0)
            return true;
    return false;
}

/* --- Results --- */

static void begin(struct dt_table *table, const struct dt_run *runs, size_t n)
{
    *table = (struct dt_table){.n_columns = 1 + n};
    dt_table_add(table, "%s", "");
    for (size_t i = 0; i < n; i++)
        dt_table_add(table, "%s", runs[i].name);
}

static void put_status(struct dt_table *table, const struct dt_run *run)
{
    const char *status = dt_event_text(run->end, "status");
    double done = run->total_steps > 0 ? 100 * (double)run->step / (double)run->total_steps : 0;
    if (run->end)
        dt_table_add(table, "%s%s%s", strcmp(status, "OK") == 0 ? "finished" : status,
                     run->why[0] ? ": " : "", run->why);
    else
        dt_table_add(table, "%s, %.0f %% done%s%s", run->state, done, run->why[0] ? ": " : "",
                     run->why);
}

static void put_seconds(struct dt_table *table, double seconds)
{
    char text[32];
    dt_table_add(table, "%s", dt_clock_format(text, sizeof text, seconds));
}

static void put_rate(struct dt_table *table, double rate)
{
    dt_table_add(table, !isfinite(rate) ? "" : rate < 1000 ? "%.4g" : "%.0f", rate);
}

static void append_place(struct dt_table *table, const struct dt_run *run, int64_t step)
{
    double epochs = dt_run_epochs(run, step);
    if (epochs >= 1)
        append(table, ", epoch %.4g", floor(10 * epochs) / 10);
    else
        append(table, ", step %" PRId64, step);
}

/* A metric of all runs. */
struct results {
    const struct dt_run *runs;
    size_t n_runs;
    enum dt_metric metric;
    char curve[DT_CURVE_NAME];
    struct dt_point *points; /* room for DT_CURVE_POINTS */
};

/* True if a run has a curve whose name begins with `begin`. */
static bool any_has(const struct results *results, const char *begin)
{
    for (size_t i = 0; i < results->n_runs; i++)
        for (size_t k = 0; k < results->runs[i].n_curves; k++)
            if (strncmp(results->runs[i].curves[k].name, begin, strlen(begin)) == 0)
                return true;
    return false;
}

/* Takes the values of the evaluations, or of training if there was none; false without either. */
static bool choose(struct results *results, enum dt_metric metric)
{
    const char *source = any_has(results, "eval.") ? "eval" : "step";
    results->metric = metric;
    snprintf(results->curve, DT_CURVE_NAME, "%s.%s", source, dt_metric_name(metric));
    return any_has(results, results->curve);
}

/* The best point that counts, or if none does the best, or the last; NULL if there is none. */
static const struct dt_point *find_point(const struct results *results, size_t run, bool best)
{
    const struct dt_point *points = results->points;
    size_t n = dt_run_points(&results->runs[run], results->curve, results->points), at = 0;
    for (size_t i = 1; i < n; i++)
        if (!best || points[at].is_aside > points[i].is_aside ||
            (points[at].is_aside == points[i].is_aside &&
             dt_metric_gain(results->metric, points[at].value, points[i].value) > 0))
            at = i;
    return n > 0 ? &points[at] : NULL;
}

static void add_metric(struct dt_table *table, const struct results *results, bool best)
{
    dt_table_add(table, "%s %s%s", best ? "best" : "last", dt_metric_name(results->metric),
                 results->curve[0] == 's' ? " in training" : "");
    for (size_t i = 0; i < results->n_runs; i++) {
        const struct dt_point *point = find_point(results, i, best);
        dt_table_add(table, "%s", "");
        if (point)
            append(table, dt_metric_is_percent(results->metric) ? "%.2f %%" : "%.4f", point->value);
        if (point && best)
            append_place(table, &results->runs[i], point->step);
    }
}

static void add_times_to(struct dt_table *table, struct results *results)
{
    struct dt_point *points = results->points;
    double best = -INFINITY;
    if (!choose(results, DT_METRIC_TOP1) && !choose(results, DT_METRIC_AP))
        return;
    const bool is_percent = dt_metric_is_percent(results->metric);
    for (size_t i = 0; i < results->n_runs; i++) {
        const struct dt_point *point = find_point(results, i, true);
        best = point ? fmax(best, point->value) : best;
    }
    for (size_t t = 0; t < DT_COUNT(targets); t++) {
        dt_table_add(table, is_percent ? "time to %.1f %%" : "time to %.3f", targets[t] * best);
        append(table, " (%.0f %% of best)", 100 * targets[t]);
        for (size_t r = 0; r < results->n_runs; r++) {
            const size_t n = dt_run_points(&results->runs[r], results->curve, points);
            size_t i = 0;
            while (i < n && points[i].value < targets[t] * best)
                i++;
            if (i < n) {
                put_seconds(table, points[i].elapsed_s);
                append_place(table, &results->runs[r], points[i].step);
            } else {
                dt_table_add(table, "%s", n > 0 ? "not reached" : "");
            }
        }
    }
}

dt_status dt_facts_results(struct dt_table *table, const struct dt_run *runs, size_t n)
{
    struct results results = {.runs = runs, .n_runs = n};
    DT_TRY(DT_NEW(results.points, DT_CURVE_POINTS));
    begin(table, runs, n);
    dt_table_add(table, "status");
    for (size_t i = 0; i < n; i++)
        put_status(table, &runs[i]);
    dt_table_add(table, "trained");
    for (size_t i = 0; i < n; i++) {
        const double epochs = dt_run_epochs(&runs[i], runs[i].step);
        dt_table_add(table, "%" PRId64 " steps", runs[i].step);
        if (isfinite(epochs))
            append(table, ", %.4g epochs", epochs);
    }
    for (int metric = 0; metric < DT_N_METRICS; metric++)
        for (int last = 0; last < 2 && choose(&results, (enum dt_metric)metric); last++)
            add_metric(table, &results, !last);
    add_times_to(table, &results);
    dt_table_add(table, "images/s, median");
    for (size_t i = 0; i < n; i++)
        put_rate(table, runs[i].median_images_per_s);
    dt_table_add(table, "wall time");
    for (size_t i = 0; i < n; i++)
        put_seconds(table, runs[i].elapsed_s);
    dt_table_add(table, "restarts, warnings");
    for (size_t i = 0; i < n; i++)
        dt_table_add(table, "%" PRId64 ", %" PRId64, runs[i].n_restarts, runs[i].n_warnings);
    bool is_launched = false;
    for (size_t i = 0; i < n; i++)
        is_launched |= runs[i].launches[0] != '\0';
    if (is_launched)
        dt_table_add(table, "restarts of dtrain launch");
    for (size_t i = 0; i < n && is_launched; i++)
        dt_table_add(table, "%s", runs[i].launches);
    free(results.points);
    return dt_table_check(table);
}

/* --- One run in a row --- */

/* Its best value of the metric that decides between classifiers or detectors, or the loss. */
static void put_best(struct dt_table *table, struct results *results)
{
    static const enum dt_metric metrics[] = {DT_METRIC_TOP1, DT_METRIC_AP, DT_METRIC_LOSS};
    size_t m = 0;
    while (m < DT_COUNT(metrics) && !choose(results, metrics[m]))
        m++;
    dt_table_add(table, "%s", "");
    if (m == DT_COUNT(metrics))
        return;
    append(table, dt_metric_is_percent(metrics[m]) ? "%s %.2f" : "%s %.4f",
           dt_metric_name(metrics[m]), find_point(results, 0, true)->value);
    append(table, "%s", results->curve[0] == 's' ? " in training" : "");
}

static dt_status add_row_of(struct dt_table *table, const struct dt_run *run)
{
    struct results results = {.runs = run, .n_runs = 1};
    const double epochs = dt_run_epochs(run, run->step);
    struct stat info = {0};
    if (table->n_cells == 0) {
        static const char *const head[] = {"run",      "state", "epoch", "best",
                                           "images/s", "age",   "why"};
        table->n_columns = DT_COUNT(head);
        for (size_t i = 0; i < DT_COUNT(head); i++)
            dt_table_add(table, "%s", head[i]);
    }
    DT_TRY(DT_NEW(results.points, DT_CURVE_POINTS));
    dt_table_add(table, "%s", run->name);
    dt_table_add(table, "%s", run->state);
    dt_table_add(table, "%.1f/%.0f", isfinite(epochs) ? epochs : 0,
                 dt_event_number(run->start, "epochs"));
    put_best(table, &results);
    put_rate(table, run->median_images_per_s);
    put_seconds(table, stat(run->path, &info) == 0 ? difftime(time(NULL), info.st_mtime) : 0);
    dt_table_add(table, "%s", run->why);
    free(results.points);
    return dt_table_check(table);
}

/* Adds a run unless there is none in that folder; what cannot be read is only a warning. */
static dt_status add_run(struct dt_table *table, const char *folder, const char *name)
{
    struct dt_run run;
    if (!dt_run_exists(folder))
        return DT_OK;
    dt_status status = dt_run_load(&run, folder);
    snprintf(run.name, sizeof run.name, "%s", name);
    if (status == DT_OK)
        status = add_row_of(table, &run);
    else
        dt_log(DT_LOG_WARNING, "skipping %s: %s", folder, dt_error_text());
    dt_run_reset(&run);
    dt_error_clear();
    return status == DT_ERR_MEMORY ? status : DT_OK;
}

dt_status dt_facts_list(struct dt_table *table, const char *folder)
{
    struct dt_names names = {0};
    char path[DT_PATH_MAX];
    dt_status status = DT_OK;
    *table = (struct dt_table){0};
    DT_TRY_OUT(dt_names_list(&names, folder));
    DT_TRY_OUT(add_run(table, folder, dt_file_base(folder)));
    for (size_t i = 0; i < names.n; i++) {
        DT_TRY_OUT(dt_file_path(path, "%s/%s", folder, dt_names_get(&names, i)));
        DT_TRY_OUT(add_run(table, path, dt_names_get(&names, i)));
    }
    if (table->n_cells == 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_NO_INPUT, "no run has begun in %s or a folder in it", folder));
out:
    dt_names_reset(&names);
    return status;
}

/* --- Configuration --- */

/* Lists and objects as words with commas; nothing for NULL. */
static void append_value(struct dt_table *table, const struct dt_json *value)
{
    if (!value)
        return;
    if (value->type == DT_JSON_STRING)
        append(table, "%s", value->string);
    else if (value->type == DT_JSON_NUMBER)
        append(table, "%.15g", value->number);
    else if (value->type == DT_JSON_BOOL)
        append(table, "%s", value->boolean ? "true" : "false");
    for (const struct dt_json *child = value->child; child; child = child->next) {
        append(table, "%s%s%s", child == value->child ? "" : ", ", child->key ? child->key : "",
               child->key ? ": " : "");
        append_value(table, child);
    }
}

static void add_value(struct dt_table *table, const struct dt_json *value)
{
    dt_table_add(table, "%s", "");
    append_value(table, value);
}

/* Adds a key of the configuration `c` unless an earlier one has it. */
static void add_key(struct dt_table *table, const struct dt_json *const *configs, size_t c,
                    const char *section, const char *key)
{
    for (size_t i = 0; i < c; i++)
        if (dt_json_get(dt_json_get(configs[i], section), key))
            return;
    dt_table_add(table, "%s.%s", section, key);
    for (size_t i = 0; i + 1 < table->n_columns; i++)
        add_value(table, dt_json_get(dt_json_get(configs[i], section), key));
}

static void add_keys(struct dt_table *table, const struct dt_json *const *configs)
{
    for (size_t c = 0; c + 1 < table->n_columns; c++)
        for (const struct dt_json *section = configs[c] ? configs[c]->child : NULL; section;
             section = section->next)
            for (const struct dt_json *key = section->child; key; key = key->next)
                if (section->key && key->key && strcmp(key->key, "dir") != 0) /* always differs */
                    add_key(table, configs, c, section->key, key->key);
}

dt_status dt_facts_config(struct dt_table *table, const struct dt_run *runs, size_t n)
{
    const struct dt_json **configs = NULL;
    struct dt_json_doc *defaults = NULL;
    struct dt_config *config = NULL;
    char *text = NULL;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(configs, n + 1));
    for (size_t i = 0; i < n; i++)
        configs[i] = dt_json_get(dt_json_root(runs[i].start), "config");
    if (n == 1) {
        DT_TRY_OUT(DT_NEW(config, 1));
        dt_config_init(config);
        DT_TRY_OUT(dt_config_print(&text, config));
        DT_TRY_OUT(dt_json_parse(&defaults, text, strlen(text), "the defaults", NULL));
    }
    configs[n] = defaults ? dt_json_root(defaults) : NULL;
    begin(table, runs, n);
    if (defaults) {
        table->n_columns++;
        dt_table_add(table, "default");
    }
    add_keys(table, configs);
    DT_TRY_OUT(dt_table_check(table));
out:
    free(text);
    free(config);
    dt_json_destroy(defaults);
    free(configs);
    return status;
}

/* --- Environment --- */

dt_status dt_facts_environment(struct dt_table *table, const struct dt_run *runs, size_t n)
{
    static const char *const facts[][2] = {
        {"version", "dtrain"},
        {"build", "build"},
        {"libraries", "libraries"},
        {"hosts", "hosts and their ranks"},
        {"ranks", "ranks"},
        {"device", "device"},
        {"parameters", "parameters"},
        {"train_images", "training images"},
        {"val_images", "validation images"},
        {"global_batch_size", "global batch size"},
        {"micro_batch_size", "most images per rank and pass"},
    };
    char time[DT_TIME_BYTES];
    begin(table, runs, n);
    for (size_t f = 0; f < DT_COUNT(facts); f++) {
        dt_table_add(table, "%s", facts[f][1]);
        for (size_t i = 0; i < n; i++)
            add_value(table, dt_json_get(dt_json_root(runs[i].start), facts[f][0]));
    }
    dt_table_add(table, "virtual ranks");
    for (size_t i = 0; i < n; i++) {
        const struct dt_json *config = dt_json_get(dt_json_root(runs[i].start), "config");
        const double slices = dt_json_number(dt_json_get(config, "train"), "virtual_ranks");
        if (slices > 0)
            dt_table_add(table, "%.0f on %s ranks", slices, runs[i].ranks);
        else
            dt_table_add(table, "%s", "");
    }
    dt_table_add(table, "last start (UTC)");
    for (size_t i = 0; i < n; i++) {
        dt_event_time(time, runs[i].start);
        dt_table_add(table, "%s", time);
    }
    dt_table_add(table, "folder");
    for (size_t i = 0; i < n; i++)
        dt_table_add(table, "%s", runs[i].folder);
    return dt_table_check(table);
}
