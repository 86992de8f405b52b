/* dtrain config: prints the resolved configuration, its JSON Schema, or help on keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/nearest.h"
#include "cli/commands.h"
#include "dtrain/config.h"

dt_status dt_cmd_config(const struct dt_arguments *args)
{
    static const char *const names[] = {"show", "schema", "help"};
    const char *name = args->operands[0];
    if (args->n_operands > 1 && strcmp(name, "help") != 0)
        DT_FAIL(DT_ERR_USAGE, "%s: unexpected argument of dtrain config %s; see dtrain --help",
                args->operands[1], name);
    if (strcmp(name, "show") == 0) {
        struct dt_config config;
        char *text;
        DT_TRY(dt_arguments_config(&config, args));
        DT_TRY(dt_config_print(&text, &config));
        printf("%s", text);
        free(text);
        return DT_OK;
    }
    if (strcmp(name, "schema") == 0)
        return dt_config_print_schema(stdout);
    if (strcmp(name, "help") == 0)
        return dt_config_print_help(stdout, args->n_operands > 1 ? args->operands[1] : NULL);
    const char *nearest = dt_nearest(name, names, DT_COUNT(names));
    DT_FAIL(DT_ERR_USAGE, "dtrain config %s: unknown; %s%s%s", name,
            nearest ? "did you mean " : "use show, schema or help", nearest ? nearest : "",
            nearest ? "?" : "");
}
