/* dtrain report: runs as one web page. */
#include <stdio.h>

#include "cli/commands.h"
#include "page/page.h"

dt_status dt_cmd_report(const struct dt_arguments *args)
{
    const char *path = args->output ? args->output : "report.html";
    const size_t n = (size_t)args->n_operands;
    struct dt_run *runs = NULL;
    dt_status status = dt_runs_load(&runs, args->operands, n);
    if (status == DT_OK)
        status = dt_page_save(path, runs, n);
    if (status == DT_OK)
        printf("%s: %zu run%s\n", path, n, n > 1 ? "s" : "");
    dt_runs_free(runs, n);
    return status;
}
