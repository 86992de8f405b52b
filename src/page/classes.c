/* The tables of classes and the confusion matrix that an evaluation leaves in the run folder. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "page/html.h"
#include "page/page.h"

/* A CSV file, row by row; the first row has the names of the columns. */
struct table {
    char *text, **cells;
    size_t n_cells, capacity, n_columns;
};

/* In place: *at moves behind the field and what ends it. */
static char *next_field(char **at, char *end)
{
    char *in = *at, *out = *at, *field = *at;
    const bool is_quoted = *in == '"';
    for (in += is_quoted; *in; *out++ = *in++)
        if (is_quoted ? *in == '"' && *++in != '"' : *in == ',' || *in == '\n')
            break;
    *end = *in;
    *at = in + (*in != '\0');
    *out = '\0';
    return field;
}

static dt_status load(struct table *t, const char *path)
{
    enum { MOST_BYTES = 16 << 20 };
    size_t bytes, n = 0; /* n: fields of this row */
    char end = '\0';
    DT_TRY(dt_file_load(&t->text, &bytes, path, MOST_BYTES));
    for (char *at = t->text; n > 0 || *at || t->n_columns == 0;) {
        DT_TRY(DT_GROW(t->cells, t->capacity, t->n_cells, "cells of a table"));
        t->cells[t->n_cells++] = next_field(&at, &end);
        n++;
        if (end == ',')
            continue;
        if (t->n_columns == 0)
            t->n_columns = n;
        if (end != '\n' || n != t->n_columns)
            DT_FAIL(DT_ERR_DATA, "%s is damaged after field %zu", path, t->n_cells);
        n = 0;
    }
    return DT_OK;
}

static void put_table(FILE *out, const struct table *t,
                      void (*put_cell)(FILE *, const struct table *, size_t))
{
    fputs("<thead>\n", out);
    for (size_t i = 0; i < t->n_cells; i++) {
        fputs(i % t->n_columns == 0 ? "<tr>" : "", out);
        put_cell(out, t, i);
        fputs((i + 1) % t->n_columns == 0 ? "</tr>\n" : "", out);
        fputs(i + 1 == t->n_columns ? "</thead><tbody>\n" : "", out);
    }
    fputs("</tbody></table></div>\n", out);
}

/* --- The classes --- */

static const char *const of_detector[] = {"class", "AP %", "AP50 %", "objects"};
static const char *const of_classifier[] = {
    "class", "precision %", "recall %", "F1 %", "images", NULL, "most often taken for", "times"};

static void put_class(FILE *out, const struct table *t, size_t i)
{
    const char *title = t->n_columns == DT_COUNT(of_detector) ? of_detector[i % t->n_columns]
                                                              : of_classifier[i % t->n_columns];
    const bool is_head = i < t->n_columns;
    if (!title)
        return;
    fputs(is_head ? "<th>" : "<td>", out);
    if (!is_head && strchr(title, '%') && t->cells[i][0])
        fprintf(out, "%.2f", 100 * strtod(t->cells[i], NULL));
    else
        dt_html_text(out, is_head ? title : t->cells[i]);
    fputs(is_head ? "</th>" : "</td>", out);
}

static void put_classes(FILE *out, const struct table *t, const char *run, size_t number)
{
    if (t->n_columns != DT_COUNT(of_detector) && t->n_columns != DT_COUNT(of_classifier))
        return;
    if (number == 0)
        fputs("<h2 id=\"classes\">Classes</h2>\n", out);
    fputs("<h3>", out);
    dt_html_text(out, run);
    fprintf(out, "</h3>\n<div class=\"wide\"><table class=\"sortable\" id=\"classes-%zu\">",
            number);
    put_table(out, t, put_class);
}

/* --- The confusion matrix --- */

/* Of the images in its row. */
static double share_of(const struct table *t, size_t i)
{
    const size_t first = i - i % t->n_columns;
    double sum = 0;
    for (size_t c = 1; c < t->n_columns; c++)
        sum += strtod(t->cells[first + c], NULL);
    const double share = strtod(t->cells[i], NULL) / sum;
    return share > 0 && share <= 1 ? share : 0;
}

/* The darkest is half as dark as a curve, so that its number can be read. */
static void put_count(FILE *out, const struct table *t, size_t i)
{
    const bool is_name = i < t->n_columns || i % t->n_columns == 0;
    if (i < t->n_columns)
        fputs("<th>", out);
    else if (is_name)
        fputs("<th scope=\"row\">", out);
    else
        fprintf(out, "<td style=\"background:color-mix(in srgb,var(--c0) %.0f%%,transparent)\">",
                50 * share_of(t, i));
    dt_html_text(out, t->cells[i]);
    fputs(is_name ? "</th>" : "</td>", out);
}

static void put_matrix(FILE *out, const struct table *t, const char *run, size_t number)
{
    enum { MOST = 30 };
    const size_t n = t->n_cells / t->n_columns - 1;
    if (n > MOST || t->n_columns < n + 1 || t->n_columns > n + 2)
        return;
    fputs("<p>Confusion matrix of ", out);
    dt_html_text(out, run);
    fputs(": a row for each label, a column for each prediction, shaded by the share of the "
          "row</p>\n",
          out);
    fprintf(out, "<div class=\"wide\"><table class=\"matrix\" id=\"matrix-%zu\">", number);
    put_table(out, t, put_count);
}

/* --- Together --- */

static dt_status put_file(FILE *out, const struct dt_run *run, size_t number, const char *name,
                          void (*put)(FILE *, const struct table *, const char *, size_t))
{
    struct table t = {0};
    char path[DT_PATH_MAX];
    DT_TRY(dt_file_path(path, "%s/%s", run->folder, name));
    if (!dt_file_exists(path))
        return DT_OK;
    if (load(&t, path) == DT_OK) {
        put(out, &t, run->name, number);
    } else {
        dt_log(DT_LOG_WARNING, "skipped: %s", dt_error_text());
        dt_error_clear();
    }
    free(t.text);
    free(t.cells);
    return DT_OK;
}

dt_status dt_classes_print(FILE *out, const struct dt_run *runs, size_t n)
{
    for (size_t r = 0; r < n; r++) {
        DT_TRY(put_file(out, &runs[r], r, "classes.csv", put_classes));
        DT_TRY(put_file(out, &runs[r], r, "confusion.csv", put_matrix));
    }
    return DT_OK;
}
