/* The table of classes that an evaluation leaves in the run folder. */
#include <math.h>

#include "base/log.h"
#include "page/html.h"
#include "page/page.h"

static void put_value(FILE *out, const struct dt_json *value)
{
    if (value->type == DT_JSON_NUMBER)
        fprintf(out, value->number == floor(value->number) ? "<td>%.0f</td>" : "<td>%.4g</td>",
                value->number);
    else {
        fputs("<td>", out);
        dt_html_text(out, value->string ? value->string : "");
        fputs("</td>", out);
    }
}

/* An array of objects with the same members, which are the columns. */
static void put_table(FILE *out, const struct dt_json *rows)
{
    fputs("<thead><tr>", out);
    for (const struct dt_json *cell = rows->child->child; cell; cell = cell->next) {
        fputs("<th>", out);
        dt_html_text(out, cell->key ? cell->key : "");
        fputs("</th>", out);
    }
    fputs("</tr></thead><tbody>\n", out);
    for (const struct dt_json *row = rows->child; row; row = row->next) {
        fputs("<tr>", out);
        for (const struct dt_json *cell = row->child; cell; cell = cell->next)
            put_value(out, cell);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

dt_status dt_classes_print(FILE *out, const struct dt_run *runs, size_t n)
{
    static const struct dt_json_limits limits = {16 << 20, 1000000};
    const char *heading = "<h2 id=\"classes\">Classes</h2>\n";
    for (size_t r = 0; r < n; r++) {
        struct dt_json_doc *doc = NULL;
        const dt_status status = dt_json_load_own(&doc, runs[r].folder, "classes.json", &limits);
        if (status != DT_OK) {
            if (status != DT_ERR_NO_INPUT)
                dt_log(DT_LOG_WARNING, "skipped: %s", dt_error_text());
            dt_error_clear();
        } else if (dt_json_root(doc)->child) {
            fprintf(out, "%s<h3>", heading);
            dt_html_text(out, runs[r].name);
            fprintf(out, "</h3>\n<div class=\"wide\"><table class=\"sortable\" id=\"classes-%zu\">",
                    r);
            put_table(out, dt_json_root(doc));
            heading = "";
        }
        dt_json_destroy(doc);
    }
    return DT_OK;
}
