/* dtrain man: the manual pages dtrain(1) and dtrain-config(5) in man(7), from the tables of
 * sub-commands, options and keys. The build writes them next to the program. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/build.h"
#include "cli/commands.h"

/* Text as roff takes it: no escapes, no requests, and dashes that one can copy. A new line begins
 * at the first space after `width` characters. */
static void put(const char *text, int width)
{
    for (int column = 0; *text; text++, column++) {
        if (column == 0 && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else if (*text != ' ' || column < width)
            putchar(*text);
        else
            putchar('\n'), column = -1;
    }
}

static void put_name(const char *name)
{
    put(name, INT_MAX);
}

static void put_line(const char *text)
{
    put(text, 56);
    putchar('\n');
}

/* A paragraph with a tag: "--config FILE". */
static void put_tagged(const char *name, const char *value, const char *text)
{
    printf(".TP\n\\fB");
    put_name(name);
    printf("\\fR");
    if (value) {
        printf("%s\\fI", value[0] == '[' ? "" : " ");
        put_name(value);
        printf("\\fR");
    }
    printf("\n");
    put_line(text);
}

/* title: "DTRAIN 1" */
static void put_title(const char *title, const char *volume, const char *name, const char *what)
{
    printf(".TH %s %s \"dtrain %s\" \"%s\"\n.nh\n.ad l\n.SH NAME\n", title, dt_version_date,
           dt_version, volume);
    put_name(name);
    printf(" \\- %s\n", what);
}

static void put_command(const struct dt_command *command)
{
    printf(".SS dtrain ");
    put_name(command->name);
    printf("%s", command->operands[0] ? " " : "");
    put_name(command->operands);
    putchar('\n');
    put_line(command->summary);
    for (int i = 0; i < DT_COMMAND_OPTIONS && command->options[i]; i++) {
        char name[64];
        const struct dt_option *row = dt_option_find(command->options[i]);
        snprintf(name, sizeof name, "--%s", row->name);
        put_tagged(name, row->value, row->help);
    }
}

static void put_meanings(const char *title, const struct dt_meaning *meaning)
{
    printf(".SH %s\n", title);
    for (; meaning->name; meaning++)
        put_tagged(meaning->name, NULL, meaning->text);
}

static void put_program(void)
{
    put_title("DTRAIN 1", "User Commands", "dtrain",
              "train convolutional networks on many CPUs or GPUs");
    printf(".SH SYNOPSIS\n.B dtrain\n.RI [ command ]\n.RI [ options ]\n.RI [ arguments ]\n.PP\n"
           ".B dtrain \\-\\-ranks\n.I N\n.B \\-\\-config\n.I FILE\n"
           ".SH DESCRIPTION\n"
           "dtrain trains convolutional networks data\\-parallel with synchronous SGD.\n"
           "\\-\\-ranks or mpirun starts its ranks; otherwise one process trains alone.\n"
           "A configuration is a JSON file, whose keys\n.BR dtrain\\-config (5)\nlists.\n"
           ".SH COMMANDS\n");
    for (size_t i = 0; i < dt_n_commands; i++)
        put_command(&dt_commands[i]);
    put_meanings("ENVIRONMENT", dt_environment);
    put_meanings("EXIT STATUS", dt_exit_codes);
    printf(".SH SEE ALSO\n.BR dtrain\\-config (5),\n.BR mpirun (1)\n");
}

static void put_keys(void)
{
    char text[2048];
    struct dt_config_key key;
    const char *section = "";
    put_title("DTRAIN\\-CONFIG 5", "File Formats", "dtrain-config", "the configuration of dtrain");
    printf(".SH DESCRIPTION\n"
           "A configuration is a JSON file with an object per section, which has its keys.\n"
           "The option \\fB\\-\\-set\\fR \\fIsection.key\\fR=\\fIvalue\\fR of\n.BR dtrain (1)\n"
           "gives or overrides any of them.\n"
           "${NAME} and ${NAME:\\-VALUE} stand for variables of the environment.\n");
    for (size_t i = 0; dt_config_key(&key, i); i++) {
        const int length = (int)strcspn(key.path, ".");
        if (strncmp(section, key.path, (size_t)length + 1) != 0)
            printf(".SH SECTION %.*s\n", length, key.path);
        section = key.path;
        snprintf(text, sizeof text, "%s. Takes %s; default %s.", key.help, key.expects, key.value);
        put_tagged(key.path, NULL, text);
    }
    printf(".SH SEE ALSO\n.BR dtrain (1)\n");
}

dt_status dt_cmd_man(const struct dt_arguments *args)
{
    if (args->n_operands == 0)
        put_program();
    else if (strcmp(args->operands[0], "config") == 0)
        put_keys();
    else
        DT_FAIL(DT_ERR_USAGE, "dtrain man %s: unknown; use config, or nothing", args->operands[0]);
    return DT_OK;
}
