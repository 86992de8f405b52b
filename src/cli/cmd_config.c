/* dtrain config: prints the resolved configuration, its JSON Schema, or help on keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/nearest.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "dtrain/config.h"

static dt_status show_config(const struct dt_arguments *args)
{
    struct dt_config config;
    char *text;
    DT_TRY(dt_arguments_config(&config, args));
    DT_TRY(dt_config_print(&text, &config));
    size_t n = strlen(text);
    printf("%s%s", text, n > 0 && text[n - 1] == '\n' ? "" : "\n");
    free(text);
    return DT_OK;
}

static dt_status print_schema(const struct dt_arguments *args)
{
    (void)args;
    return dt_config_print_schema(stdout);
}

static dt_status print_keys(const struct dt_arguments *args)
{
    return dt_config_print_help(stdout, args->n_operands > 1 ? args->operands[1] : NULL);
}

dt_status dt_cmd_config(const struct dt_arguments *args)
{
    static const char *const names[] = {"show", "schema", "help"};
    static dt_status (*const actions[])(const struct dt_arguments *) = {show_config, print_schema,
                                                                        print_keys};
    const char *name = args->operands[0];
    if (args->n_operands > 1 && strcmp(name, "help") != 0)
        DT_FAIL(DT_ERR_USAGE, "%s: unexpected argument of dtrain config %s; see dtrain --help",
                args->operands[1], name);
    for (size_t i = 0; i < DT_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return actions[i](args);
    const char *nearest = dt_nearest(name, names, DT_COUNT(names));
    DT_FAIL(DT_ERR_USAGE, "dtrain config %s: unknown; %s%s%s", name,
            nearest ? "did you mean " : "use show, schema or help", nearest ? nearest : "",
            nearest ? "?" : "");
}
