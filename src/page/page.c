/* The page, section by section. */
#include "page/page.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/names.h"
#include "page/html.h"

static const char definitions[] =
    "Best: over all evaluations. Time to accuracy: training time until an evaluation first reaches "
    "75 % or 90 % of the best accuracy of all runs on this page. Images per second: median of the "
    "step events. Wall time: from the start of training to the last event, over all starts of the "
    "run; pauses between them do not count, repeated steps do. Waits: share of a step in which the "
    "mean rank waited for data, or for sums of gradients. Computing and agreeing: share of "
    "forward, backward and update, and of other waits for ranks. The curves of long runs show the "
    "lowest and the highest value of every stretch.";

/* One cell for all runs if they are equal; no such rows; colours of the runs in the head. */
enum { MERGED = 1, DIFFERENCES = 2, KEYS = 4 };

static void put_head_row(FILE *out, const struct dt_table *table, int looks)
{
    fputs("<tr><th>", out);
    dt_html_text(out, dt_table_cell(table, 0, 0));
    for (size_t c = 1; c < table->n_columns; c++) {
        fputs("</th><th>", out);
        if (looks & KEYS)
            fprintf(out, "<i class=\"key\" style=\"color:var(--c%zu)\"></i>",
                    (c - 1) % DT_HTML_COLOURS);
        dt_html_text(out, dt_table_cell(table, 0, c));
    }
    fputs("</th></tr>\n", out);
}

static void put_row(FILE *out, const struct dt_table *table, size_t row, int looks)
{
    const bool is_one = (looks & MERGED) && !dt_table_row_differs(table, row);
    fputs("<tr><th scope=\"row\">", out);
    dt_html_text(out, dt_table_cell(table, row, 0));
    fputs("</th>", out);
    for (size_t c = 1; c < (is_one ? 2 : table->n_columns); c++) {
        fprintf(out, "<td colspan=\"%zu\">", is_one ? table->n_columns - 1 : 1);
        dt_html_text(out, dt_table_cell(table, row, c));
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

/* Nothing if there are no rows to show. */
static void put_table(FILE *out, const char *title, const struct dt_table *table, int looks)
{
    bool has_rows = false;
    for (size_t row = 1; row < dt_table_rows(table); row++) {
        const bool differs = dt_table_row_differs(table, row);
        if (!differs && ((looks & DIFFERENCES) || !dt_table_cell(table, row, 1)[0]))
            continue;
        if (!has_rows) {
            fprintf(out, "<h2>%s</h2>\n<div class=\"wide\"><table><thead>\n", title);
            put_head_row(out, table, looks);
            fputs("</thead><tbody>\n", out);
        }
        has_rows = true;
        put_row(out, table, row, looks);
    }
    if (has_rows)
        fputs("</tbody></table></div>\n", out);
}

static dt_status put_notes(FILE *out, const struct dt_run *runs, size_t n)
{
    static const char *const head[] = {"time (UTC)", "run", "after", "what"};
    struct dt_table table = {.n_columns = DT_COUNT(head)};
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
        int64_t n_more = runs[i].n_restarts + runs[i].n_warnings - (int64_t)runs[i].n_notes;
        if (n_more > 0) {
            dt_table_add(&table, "%s", "");
            dt_table_add(&table, "%s", runs[i].name);
            dt_table_add(&table, "%s", "");
            dt_table_add(&table, "and %" PRId64 " more, see logs", n_more);
        }
    }
    if (!table.failed)
        put_table(out, "Warnings and restarts", &table, 0);
    free(table.cells);
    return dt_table_check(&table);
}

/* The pictures in the run folders. */
static dt_status put_pictures(FILE *out, const struct dt_run *runs, size_t n)
{
    static const char *const files[][3] = {
        {"samples.png", "image/png", "training images"},
        {"detections.jpg", "image/jpeg", "validation images, newest evaluation"},
        {"confusion.svg", "image/svg+xml", "confusion matrix"},
    };
    char path[DT_PATH_MAX], caption[DT_PATH_MAX + 32];
    fputs("<div class=\"charts\">\n", out);
    for (size_t i = 0; i < n; i++)
        for (size_t f = 0; f < DT_COUNT(files); f++) {
            DT_TRY(dt_file_path(path, "%s/%s", runs[i].folder, files[f][0]));
            snprintf(caption, sizeof caption, "%s: %s", runs[i].name, files[f][2]);
            DT_TRY(dt_html_image(out, path, files[f][1], caption));
        }
    fputs("</div>\n", out);
    return DT_OK;
}

/* --- Together --- */

static dt_status put_facts(FILE *out, const char *title, int looks,
                           dt_status (*fill)(struct dt_table *, const struct dt_run *, size_t),
                           const struct dt_run *runs, size_t n)
{
    struct dt_table table = {0};
    dt_status status = fill(&table, runs, n);
    if (status == DT_OK)
        put_table(out, title, &table, looks);
    free(table.cells);
    return status;
}

static dt_status put_page(FILE *out, const struct dt_run *runs, size_t n)
{
    const int keys = n > 1 ? KEYS : 0;
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
    DT_TRY(put_facts(out, "Results", keys, dt_facts_results, runs, n));
    fputs("<h2>Curves</h2>\n", out);
    DT_TRY(dt_curves_print(out, runs, n, INT_MAX));
    DT_TRY(put_notes(out, runs, n));
    DT_TRY(put_facts(out, n > 1 ? "Configuration: differences" : "Configuration: not the defaults",
                     keys | DIFFERENCES, dt_facts_config, runs, n));
    DT_TRY(put_facts(out, "Environment", keys | MERGED, dt_facts_environment, runs, n));
    DT_TRY(put_pictures(out, runs, n));
    dt_html_end(out, definitions);
    return DT_OK;
}

static dt_status put_picture(FILE *out, const struct dt_run *runs, size_t n)
{
    dt_html_begin_picture(out);
    DT_TRY(dt_curves_print(out, runs, n, 2));
    dt_html_end_picture(out);
    return DT_OK;
}

dt_status dt_page_save(const char *path, const struct dt_run *runs, size_t n)
{
    struct dt_new_file file;
    char *text = NULL;
    size_t bytes = 0;
    DT_TRY(dt_file_begin(&file, path));
    FILE *out = open_memstream(&text, &bytes);
    const bool is_picture = dt_name_has_suffix(path, ".svg");
    dt_status status = !out ? DT_OK : (is_picture ? put_picture : put_page)(out, runs, n);
    dt_status written = dt_file_write_stream(file.fd, out, &text, &bytes, path);
    return dt_file_end(&file, status != DT_OK ? status : written);
}
