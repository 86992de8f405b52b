/* The page, section by section. */
#include "page/page.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/text.h"
#include "page/chart.h"
#include "page/html.h"

static const char definitions[] =
    "Best: over the evaluations that are due, without the one where train.max_steps ends a run "
    "sooner. Time to accuracy: training time until an evaluation first reaches 75 % or 90 % of the "
    "best accuracy of all runs on this page. Images per second: median of the "
    "step events. Wall time: from the start of training to the last event, over all starts of the "
    "run; pauses between them do not count, repeated steps do. Waits: share of a step in which the "
    "mean rank waited for data, or for sums of gradients. Computing and agreeing: share of "
    "forward, backward and update, and of other waits for ranks. The curves of long runs show the "
    "lowest and the highest value of every stretch.";

/* One cell for all runs if they are equal; no such rows; colours of the runs in the head. */
enum { MERGED = 1, DIFFERENCES = 2, KEYS = 4 };

static void put_run(FILE *out, const struct dt_table *table, size_t column)
{
    fprintf(out, "<i class=\"key dash%zu\" style=\"color:var(--c%zu)\"></i>",
            (column - 1) % DT_N_DASHES, (column - 1) % DT_HTML_COLOURS);
    dt_html_text(out, dt_table_cell(table, 0, column));
}

/* How a run ended is red unless it ended as it should. */
static void put_cell(FILE *out, const struct dt_table *table, size_t row, size_t column)
{
    static const char *const good[] = {"finished", "running", "STOPPED"};
    const char *text = dt_table_cell(table, row, column);
    bool is_bad = strcmp(dt_table_cell(table, row, 0), "status") == 0;
    for (size_t i = 0; i < DT_COUNT(good); i++)
        is_bad &= strncmp(text, good[i], strlen(good[i])) != 0;
    fputs(is_bad ? "<span class=\"bad\">" : "", out);
    dt_html_text(out, text);
    fputs(is_bad ? "</span>" : "", out);
}

static void put_row(FILE *out, const struct dt_table *table, size_t row, int looks)
{
    const bool is_one = (looks & MERGED) && !dt_table_row_differs(table, row);
    fputs("<tr><th scope=\"row\">", out);
    dt_html_text(out, dt_table_cell(table, row, 0));
    fputs("</th>", out);
    for (size_t c = 1; c < (is_one ? 2 : table->n_columns); c++) {
        fprintf(out, "<td colspan=\"%zu\">", is_one ? table->n_columns - 1 : 1);
        put_cell(out, table, row, c);
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

static bool is_row_shown(const struct dt_table *table, size_t row, int looks)
{
    return dt_table_row_differs(table, row) ||
           (!(looks & DIFFERENCES) && dt_table_cell(table, row, 1)[0]);
}

static void put_head(FILE *out, const struct dt_table *table, int looks)
{
    fputs("<div class=\"wide\"><table><thead><tr><th>", out);
    dt_html_text(out, dt_table_cell(table, 0, 0));
    for (size_t c = 1; c < table->n_columns; c++) {
        fputs("</th><th>", out);
        if (looks & KEYS)
            put_run(out, table, c);
        else
            dt_html_text(out, dt_table_cell(table, 0, c));
    }
    fputs("</th></tr></thead><tbody>\n", out);
}

/* Nothing if there are no rows to show. Without a title, where the heading is there already. */
static void put_table(FILE *out, const char *id, const char *title, const struct dt_table *table,
                      int looks)
{
    bool has_rows = false;
    for (size_t row = 1; row < dt_table_rows(table); row++) {
        if (!is_row_shown(table, row, looks))
            continue;
        if (!has_rows) {
            if (title)
                fprintf(out, "<h2 id=\"%s\">%s</h2>\n", id, title);
            put_head(out, table, looks);
        }
        has_rows = true;
        put_row(out, table, row, looks);
    }
    if (has_rows)
        fputs("</tbody></table></div>\n", out);
}

/* A row for each run: results, and the keys that differ; what the script makes axes of has a
 * data-axis. */
static void put_runs(FILE *out, const struct dt_table *results, const struct dt_table *config)
{
    const struct dt_table *const tables[] = {results, config};
    fputs("<div class=\"wide\"><table id=\"runs-table\" class=\"sortable runs\"><thead><tr><th>run",
          out);
    for (size_t t = 0; t < DT_COUNT(tables); t++)
        for (size_t row = 1; row < dt_table_rows(tables[t]); row++)
            if (is_row_shown(tables[t], row, t ? DIFFERENCES : 0)) {
                const char *label = dt_table_cell(tables[t], row, 0);
                fprintf(out, "</th><th%s>",
                        t || strncmp(label, "best", 4) == 0 ? " data-axis=\"\"" : "");
                dt_html_text(out, label);
            }
    fputs("</th></tr></thead><tbody>\n", out);
    for (size_t c = 1; c < results->n_columns; c++) {
        fputs("<tr><th scope=\"row\">", out);
        put_run(out, results, c);
        fputs("</th>", out);
        for (size_t t = 0; t < DT_COUNT(tables); t++)
            for (size_t row = 1; row < dt_table_rows(tables[t]); row++)
                if (is_row_shown(tables[t], row, t ? DIFFERENCES : 0)) {
                    fputs("<td>", out);
                    put_cell(out, tables[t], row, c);
                    fputs("</td>", out);
                }
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

static dt_status put_notes(FILE *out, const struct dt_run *runs, size_t n)
{
    static const char *const head[] = {"time (UTC)", "run", "after", "what"};
    struct dt_table table = {.n_columns = DT_COUNT(head)};
    int64_t n_warnings = 0, n_restarts = 0;
    char title[96];
    for (size_t i = 0; i < DT_COUNT(head); i++)
        dt_table_add(&table, "%s", head[i]);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < runs[i].n_notes; k++) {
            const struct dt_note *note = &runs[i].notes[k];
            dt_table_add(&table, "%s", note->time);
            dt_table_add(&table, "%s", runs[i].name);
            dt_table_add(&table, "step %" PRId64, note->step);
            dt_table_add(&table, "%s%s", note->is_restart ? "" : "warning: ", note->text);
        }
        n_warnings += runs[i].n_warnings;
        n_restarts += runs[i].n_restarts;
        int64_t n_more = runs[i].n_restarts + runs[i].n_warnings - (int64_t)runs[i].n_notes;
        if (n_more > 0) {
            dt_table_add(&table, "%s", "");
            dt_table_add(&table, "%s", runs[i].name);
            dt_table_add(&table, "%s", "");
            dt_table_add(&table, "and %" PRId64 " more, see logs", n_more);
        }
    }
    snprintf(title, sizeof title, "%" PRId64 " warning%s, %" PRId64 " restart%s", n_warnings,
             DT_S(n_warnings), n_restarts, DT_S(n_restarts));
    if (!table.failed)
        put_table(out, "notes", title, &table, 0);
    free(table.cells);
    return dt_table_check(&table);
}

/* The pictures in the run folders. */
static dt_status put_pictures(FILE *out, const struct dt_run *runs, size_t n)
{
    static const char *const files[][3] = {
        {"samples.png", "image/png", "training images"},
        {"detections.jpg", "image/jpeg", "validation images, newest evaluation"},
        {"errors.jpg", "image/jpeg", "worst errors, newest evaluation"},
        {"confusion.svg", "image/svg+xml", "confusion matrix"},
    };
    char path[DT_PATH_MAX], caption[DT_PATH_MAX + 32];
    const char *heading = "<h2 id=\"pictures\">Pictures</h2>\n<div class=\"charts\">\n", *end = "";
    for (size_t i = 0; i < n; i++)
        for (size_t f = 0; f < DT_COUNT(files); f++) {
            DT_TRY(dt_file_path(path, "%s/%s", runs[i].folder, files[f][0]));
            snprintf(caption, sizeof caption, "%s: %s", runs[i].name, files[f][2]);
            const dt_status status = dt_html_image(out, heading, path, files[f][1], caption);
            if (status == DT_OK) {
                heading = "";
                end = "</div>\n";
            } else if (status != DT_ERR_NO_INPUT) {
                dt_log(DT_LOG_WARNING, "skipped: %s", dt_error_text());
            }
            dt_error_clear();
        }
    fputs(end, out);
    return DT_OK;
}

/* --- Together --- */

struct facts {
    struct dt_table results, config, environment;
};

/* The text of the first of the rows that has one. */
static void put_headline(FILE *out, const struct facts *facts)
{
    static const struct {
        const char *label;
        size_t table; /* offset */
        const char *rows[3];
    } items[] = {
        {"status", offsetof(struct facts, results), {"status"}},
        {"best", offsetof(struct facts, results), {"best top1", "best ap", "best loss"}},
        {"images/s, median", offsetof(struct facts, results), {"images/s, median"}},
        {"wall time", offsetof(struct facts, results), {"wall time"}},
        {"model", offsetof(struct facts, config), {"model.name"}},
        {"precision", offsetof(struct facts, config), {"train.precision"}},
        {"data", offsetof(struct facts, config), {"data.train", "data.source"}},
        {"training images", offsetof(struct facts, environment), {"training images"}},
        {"ranks", offsetof(struct facts, environment), {"ranks"}},
        {"hosts and their ranks", offsetof(struct facts, environment), {"hosts and their ranks"}},
        {"device", offsetof(struct facts, environment), {"device"}},
        {"dtrain", offsetof(struct facts, environment), {"dtrain"}},
    };
    fputs("<dl class=\"facts\">\n", out);
    for (size_t i = 0; i < DT_COUNT(items); i++) {
        const struct dt_table *table = (const void *)((const char *)facts + items[i].table);
        size_t row = 0, n_rows = dt_table_rows(table);
        for (size_t k = 0; k < DT_COUNT(items[i].rows) && items[i].rows[k]; k++)
            for (size_t r = 1; r < n_rows && row == 0; r++)
                if (strcmp(dt_table_cell(table, r, 0), items[i].rows[k]) == 0 &&
                    dt_table_cell(table, r, 1)[0])
                    row = r;
        if (row == 0)
            continue;
        fprintf(out, "<div><dt>%s</dt><dd>", items[i].label);
        put_cell(out, table, row, 1);
        fputs("</dd></div>\n", out);
    }
    fputs("</dl>\n", out);
}

static dt_status put_sections(FILE *out, const struct facts *facts, const struct dt_run *runs,
                              size_t n)
{
    if (n == 1)
        put_headline(out, facts);
    fputs("<h2 id=\"results\">Results</h2>\n", out);
    if (n == 1)
        put_table(out, NULL, NULL, &facts->results, 0);
    else
        put_runs(out, &facts->results, &facts->config);
    fputs("<h2 id=\"curves\">Curves</h2>\n", out);
    DT_TRY(dt_curves_print(out, runs, n));
    dt_times_print(out, runs, n);
    DT_TRY(dt_classes_print(out, runs, n));
    DT_TRY(put_pictures(out, runs, n));
    DT_TRY(put_notes(out, runs, n));
    if (n == 1)
        put_table(out, "configuration", "Configuration: not the defaults", &facts->config,
                  DIFFERENCES);
    put_table(out, "environment", "Environment", &facts->environment, MERGED | (n > 1 ? KEYS : 0));
    return DT_OK;
}

/* Links to the sections, then these. */
static void put_contents(FILE *out, const char *sections)
{
    static const char head[] = "<h2 id=\"";
    fputs("<nav aria-label=\"contents\">\n", out);
    for (const char *at = sections; (at = strstr(at, head));) {
        const char *id = at + strlen(head), *title = strchr(id, '>') + 1;
        const int id_bytes = (int)strcspn(id, "\""), title_bytes = (int)strcspn(title, "<");
        fprintf(out, "<a href=\"#%.*s\">%.*s</a>\n", id_bytes, id, title_bytes, title);
        at = title;
    }
    fprintf(out, "</nav>\n%s", sections);
}

static void put_title(FILE *out, const struct dt_run *runs, size_t n)
{
    char title[2 * DT_PATH_MAX + 64], date[DT_CLOCK_UTC];
    dt_clock_utc(date);
    date[strlen("2026-11-22")] = ' ';
    if (n <= 2)
        snprintf(title, sizeof title, "%s%s%s", runs[0].name, n == 2 ? " and " : "",
                 n == 2 ? runs[1].name : "");
    else
        snprintf(title, sizeof title, "%zu training runs", n);
    dt_html_begin(out, title);
    fprintf(out, "<p>Report of dtrain %s, %.16s UTC</p>\n", dt_version, date);
}

dt_status dt_page_print(FILE *out, const struct dt_run *runs, size_t n)
{
    struct facts facts = {0};
    char *sections = NULL;
    size_t bytes = 0;
    dt_status status = DT_OK;
    FILE *body = open_memstream(&sections, &bytes);
    if (!body)
        DT_FAIL(DT_ERR_MEMORY, "out of memory for a page");
    DT_TRY_OUT(dt_facts_results(&facts.results, runs, n));
    DT_TRY_OUT(dt_facts_config(&facts.config, runs, n));
    DT_TRY_OUT(dt_facts_environment(&facts.environment, runs, n));
    DT_TRY_OUT(put_sections(body, &facts, runs, n));
out:
    if (fclose(body) != 0 && status == DT_OK)
        status = DT_ERROR(DT_ERR_MEMORY, "out of memory for a page");
    if (status == DT_OK) {
        put_title(out, runs, n);
        put_contents(out, sections);
        dt_html_end(out, definitions);
    }
    free(sections);
    free(facts.results.cells);
    free(facts.config.cells);
    free(facts.environment.cells);
    return status;
}

dt_status dt_page_save(const char *path, const struct dt_run *runs, size_t n)
{
    struct dt_new_file file;
    char *text = NULL;
    size_t bytes = 0;
    DT_TRY(dt_file_begin(&file, path));
    FILE *out = open_memstream(&text, &bytes);
    const bool is_picture = dt_name_has_suffix(path, ".svg");
    dt_status status = !out ? DT_OK : (is_picture ? dt_curves_draw : dt_page_print)(out, runs, n);
    dt_status written = dt_file_write_stream(file.fd, out, &text, &bytes, path);
    return dt_file_end(&file, status != DT_OK ? status : written);
}
