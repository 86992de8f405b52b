/* Command line options: one table tells what value each takes and where it is stored. */
#ifndef DTRAIN_CLI_OPTIONS_H
#define DTRAIN_CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "cli/commands.h"

enum dt_option_kind {
    DT_OPTION_TEXT,
    DT_OPTION_FLAG,
    DT_OPTION_OPTIONAL, /* a text that may be left out: "" */
    DT_OPTION_INTEGER,
    DT_OPTION_ALL_OR_INTEGER, /* "all" becomes -1 */
    DT_OPTION_DURATION,
    DT_OPTION_SHARE,   /* a number from 0 to 1 */
    DT_OPTION_SETTING, /* may be repeated */
};

struct dt_option {
    const char *name;
    enum dt_option_kind kind;
    size_t offset; /* in struct dt_arguments */
    int64_t min, max;
    const char *value, *help;
};

/* NULL if there is no such option. */
const struct dt_option *dt_option_find(const char *name);

/* Parses and checks argv; DT_ERR_USAGE, or DT_ERR_DEVICE if this CPU cannot run the program. With
 * help or version nothing else is checked. Call reset in any case. */
dt_status dt_arguments_parse(struct dt_arguments *args, int argc, char **argv);
void dt_arguments_reset(struct dt_arguments *args);

/* The configuration given by --config, --set and --out. */
dt_status dt_arguments_config(struct dt_config *config, const struct dt_arguments *args);

#endif
