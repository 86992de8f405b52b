/* dtrain report: runs as one web page. dtrain compare: the tables of the report as plain text; of
 * configuration and environment only the differences. dtrain runs: a line for each run there is. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/text.h"
#include "cli/commands.h"
#include "page/page.h"

/* A run may begin later, but not in a folder that does not exist. */
static dt_status watch_runs(const struct dt_arguments *args)
{
    enum { PORT = 8265 };
    if (args->output || args->svg)
        DT_FAIL(DT_ERR_USAGE, "--watch serves the page and writes no file: remove --%s",
                args->output ? "output" : "svg");
    for (int i = 0; i < args->n_operands; i++)
        if (!dt_file_exists(args->operands[i]))
            DT_FAIL(dt_file_input_status(errno), "cannot read %s: %s", args->operands[i],
                    strerror(errno));
    return dt_serve(args->operands, (size_t)args->n_operands,
                    args->address ? args->address : "127.0.0.1",
                    args->port >= 0 ? (int)args->port : PORT);
}

dt_status dt_cmd_report(const struct dt_arguments *args)
{
    if (args->watch)
        return watch_runs(args);
    if (args->address || args->port >= 0)
        DT_FAIL(DT_ERR_USAGE, "--%s needs --watch", args->address ? "address" : "port");
    const char *path = args->output ? args->output : "report.html";
    size_t n = (size_t)args->n_operands;
    struct dt_run *runs = NULL;
    dt_status status = dt_runs_load(&runs, args->operands, &n);
    if (status == DT_OK)
        status = args->svg ? dt_curves_save(args->svg, runs, n) : dt_page_save(path, runs, n);
    if (status == DT_OK)
        printf("%s: %zu run%s\n", args->svg ? args->svg : path, n, n > 1 ? "s" : "");
    dt_runs_free(runs, n);
    return status;
}

/* --- Tables as plain text --- */

enum { MAX_LINE = 80, NARROWEST = 12, GAP = 2 };

/* Columns, that is characters, of the first n bytes. */
static int count_columns(const char *text, int n)
{
    int columns = 0;
    for (int i = 0; i < n; i++)
        columns += (text[i] & 0xc0) != 0x80;
    return columns;
}

/* Bytes of the text that fit into a line of a cell: up to a space if possible. */
static int part_bytes(const char *text, int width)
{
    int n = (int)strcspn(text, "\n"), space = 0;
    if (count_columns(text, n) <= width)
        return n;
    for (n = 0; count_columns(text, n + 1) <= width; n++)
        space = text[n] == ' ' ? n : space;
    return text[n] == ' ' || space == 0 ? n : space;
}

/* The beginning of line `line` of the cell. */
static const char *part(const char *text, int width, int line)
{
    for (; line > 0; line--) {
        text += part_bytes(text, width);
        text += *text == ' ' || *text == '\n';
    }
    return text;
}

/* Cells that are too long take several lines. */
static void put_row(const struct dt_table *table, size_t row, int label)
{
    const int n = (int)table->n_columns - 1, even = (MAX_LINE - label) / n - GAP;
    const int width = even > NARROWEST ? even : NARROWEST;
    bool is_done = false;
    for (int line = 0; !is_done; line++) {
        char text[DT_CELL_BYTES];
        is_done = true;
        printf("%-*s", label, line == 0 ? dt_table_cell(table, row, 0) : "");
        for (int c = 1; c <= n; c++) {
            const char *at = part(dt_table_cell(table, row, (size_t)c), width, line);
            const int bytes = part_bytes(at, width);
            snprintf(text, sizeof text, "%.*s", bytes, at);
            dt_utf8_escape(text);
            printf("  %s%*s", text, c < n ? width - count_columns(text, (int)strlen(text)) : 0, "");
            is_done &= *part(at, width, 1) == '\0';
        }
        printf("\n");
    }
}

static void put_table(const char *title, const struct dt_table *table, bool differences)
{
    int label = 0;
    size_t n = 0;
    for (size_t row = 0; row < dt_table_rows(table); row++) {
        const int width = (int)strlen(dt_table_cell(table, row, 0));
        label = width > label ? width : label;
    }
    printf("%s\n", title);
    for (size_t row = 1; row < dt_table_rows(table); row++) {
        if (differences && !dt_table_row_differs(table, row))
            continue;
        if (n++ == 0)
            put_row(table, 0, label);
        put_row(table, row, label);
    }
    printf("%s\n", n == 0 ? "the same\n" : "");
}

static const struct {
    const char *title;
    bool differences;
    dt_status (*fill)(struct dt_table *table, const struct dt_run *runs, size_t n);
} parts[] = {
    {"RESULTS", false, dt_facts_results},
    {"CONFIGURATION, differences", true, dt_facts_config},
    {"ENVIRONMENT, differences", true, dt_facts_environment},
};

dt_status dt_cmd_compare(const struct dt_arguments *args)
{
    size_t n = (size_t)args->n_operands;
    struct dt_run *runs = NULL;
    dt_status status = dt_runs_load(&runs, args->operands, &n);
    for (size_t i = 0; status == DT_OK && i < DT_COUNT(parts); i++) {
        struct dt_table table = {0};
        status = parts[i].fill(&table, runs, n);
        if (status == DT_OK)
            put_table(parts[i].title, &table, parts[i].differences);
        free(table.cells);
    }
    dt_runs_free(runs, n);
    return status;
}

/* --- dtrain runs --- */

/* Columns as wide as their texts; why a run ended otherwise than it should goes below it. */
static void print_rows(const struct dt_table *table)
{
    const size_t last = table->n_columns - 1, n_rows = dt_table_rows(table);
    for (size_t row = 0; row < n_rows; row++) {
        for (size_t c = 0; c < last; c++) {
            int width = 0;
            for (size_t r = 0; r < n_rows; r++) {
                const int columns = (int)strlen(dt_table_cell(table, r, c));
                width = columns > width ? columns : width;
            }
            printf("%-*s%s", c + 1 < last ? width : 0, dt_table_cell(table, row, c),
                   c + 1 < last ? "  " : "\n");
        }
        const char *why = dt_table_cell(table, row, last);
        if (row == 0 || strcmp(dt_table_cell(table, row, 1), "finished") == 0)
            continue;
        for (; why[0]; why = part(why, MAX_LINE - 4, 1))
            printf("    %.*s\n", part_bytes(why, MAX_LINE - 4), why);
    }
}

dt_status dt_cmd_runs(const struct dt_arguments *args)
{
    struct dt_table table = {0};
    const char *folder = args->n_operands > 0 ? args->operands[0] : "runs";
    const dt_status status = dt_facts_list(&table, folder);
    for (size_t i = 0; status == DT_OK && i < table.n_cells; i++)
        dt_utf8_escape(table.cells[i]);
    if (status == DT_OK)
        print_rows(&table);
    free(table.cells);
    return status;
}
