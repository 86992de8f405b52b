#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alive.h"
#include "base/build.h"
#include "base/file.h"
#include "base/names.h"
#include "page/html.h"
#include "page/page.h"

static const char run_prefix[] = "/run/";

static bool is_list(char *const *paths, size_t n)
{
    return n == 1 && !dt_run_exists(paths[0]) && dt_runs_found(paths[0]);
}

/* The folder of a page "/run/NAME"; false for any other. */
static bool find_run(char out[DT_PATH_MAX], char *const *paths, size_t n, const char *page)
{
    const bool is_one = strncmp(page, run_prefix, strlen(run_prefix)) == 0;
    const char *name = is_one ? page + strlen(run_prefix) : "";
    return name[0] && name[0] != '.' && !strchr(name, '/') && is_list(paths, n) &&
           dt_file_path(out, "%s/%s", paths[0], name) == DT_OK && dt_run_exists(out);
}

bool dt_live_has(char *const *paths, size_t n, const char *page)
{
    char folder[DT_PATH_MAX];
    return strcmp(page, "/") == 0 || find_run(folder, paths, n, page);
}

/* --- What has changed --- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

/* Mixes in the state of a run folder, or of a file like metrics.jsonl in one. */
static uint64_t mix_run(uint64_t hash, const char *path, uint64_t *bytes)
{
    char file[DT_PATH_MAX], folder[DT_PATH_MAX];
    struct stat info = {0};
    if (dt_file_folder(folder, path) != DT_OK ||
        dt_file_path(file, dt_file_is_folder(path) ? "%s/metrics.jsonl" : "%s", path) != DT_OK ||
        stat(file, &info) != 0)
        info = (struct stat){0};
    *bytes += (uint64_t)info.st_size;
    hash = mix(mix(hash, (uint64_t)info.st_ino), (uint64_t)info.st_size);
    return mix(mix(hash, (uint64_t)info.st_mtim.tv_nsec), dt_run_is_alive(folder));
}

uint64_t dt_live_state(char *const *paths, size_t n, const char *page, uint64_t *bytes)
{
    struct dt_names names = {0};
    char folder[DT_PATH_MAX];
    uint64_t hash = 1;
    *bytes = 0;
    if (find_run(folder, paths, n, page)) {
        hash = mix_run(hash, folder, bytes);
    } else if (is_list(paths, n) && dt_names_list(&names, paths[0]) == DT_OK) {
        for (size_t i = 0; i < names.n; i++)
            if (dt_file_path(folder, "%s/%s", paths[0], dt_names_get(&names, i)) == DT_OK &&
                dt_run_exists(folder))
                hash = mix_run(hash, folder, bytes);
    } else {
        for (size_t i = 0; i < n; i++)
            hash = mix_run(hash, paths[i], bytes);
    }
    dt_names_reset(&names);
    dt_error_clear();
    return hash | 1;
}

/* --- Pages --- */

static void put_link(FILE *out, const char *name)
{
    fprintf(out, "<a href=\"%s", run_prefix);
    for (const char *at = name; *at; at++)
        fprintf(out, isascii(*at) && isalnum(*at) ? "%c" : "%%%02X", (unsigned char)*at);
    fputs("\">", out);
    dt_html_text(out, name);
    fputs("</a>", out);
}

static dt_status put_list(FILE *out, const char *folder)
{
    struct dt_table table = {0};
    char title[DT_PATH_MAX + 16];
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_facts_list(&table, folder));
    snprintf(title, sizeof title, "Runs in %s", folder);
    dt_html_begin(out, title);
    fputs("<div class=\"wide\"><table id=\"list\" class=\"sortable\"><thead>", out);
    for (size_t row = 0; row < dt_table_rows(&table); row++) {
        fputs("<tr>", out);
        for (size_t c = 0; c < table.n_columns; c++) {
            fputs(row == 0 ? "<th>" : "<td>", out);
            if (row > 0 && c == 0)
                put_link(out, dt_table_cell(&table, row, c));
            else
                dt_html_text(out, dt_table_cell(&table, row, c));
            fputs(row == 0 ? "</th>" : "</td>", out);
        }
        fputs(row == 0 ? "</tr></thead><tbody>\n" : "</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
    dt_html_end(out, dt_version);
out:
    free(table.cells);
    return status;
}

static dt_status put_report(FILE *out, char *const *paths, size_t n)
{
    struct dt_run *runs = NULL;
    dt_status status = dt_runs_load(&runs, paths, &n);
    if (status == DT_OK)
        status = dt_page_print(out, runs, n);
    dt_runs_free(runs, n);
    return status;
}

dt_status dt_live_print(FILE *out, char *const *paths, size_t n, const char *page)
{
    char folder[DT_PATH_MAX], *one[] = {folder};
    const dt_status status = find_run(folder, paths, n, page) ? put_report(out, one, 1)
                             : is_list(paths, n)              ? put_list(out, paths[0])
                                                              : put_report(out, paths, n);
    if (status == DT_OK || status == DT_ERR_MEMORY)
        return status;
    /* A run that cannot be read now may be there soon. */
    dt_html_begin(out, "No report now");
    fputs("<p>", out);
    dt_html_text(out, dt_error_text());
    fputs("</p>\n", out);
    dt_html_end(out, "");
    dt_error_clear();
    return DT_OK;
}
