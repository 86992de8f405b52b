/* The table of sub-commands, lookup by name, and the help texts, which are generated from the
 * tables of sub-commands and options. */
#include "cli/commands.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/nearest.h"
#include "base/text.h"

#define ROW(text, usage, what, n, ...)                                         \
    .name = (text), .operands = (usage), .summary = (what), .n_required = (n), \
    .options = {__VA_ARGS__}
#define LOCAL(id, ...) {ROW(__VA_ARGS__), .run = dt_cmd_##id},
#define RANKS(id, ...) {ROW(__VA_ARGS__), .run_on_ranks = dt_cmd_##id},
#define EITHER(id, ...) \
    {ROW(__VA_ARGS__), .run = dt_cmd_##id, .run_on_ranks = dt_cmd_##id##_on_ranks},

const struct dt_command dt_commands[] = {DT_COMMAND_LIST(LOCAL, RANKS, EITHER)};
const size_t dt_n_commands = DT_COUNT(dt_commands);

/* Names of these commands in other programs and earlier versions. */
static const char *const other_names[][2] = {
    {"shapes", "demo-data"}, {"benchmark", "bench"}, {"evaluate", "eval"},
    {"test", "eval"},        {"validate", "eval"},   {"fit", "train"},
    {"classify", "predict"}, {"infer", "predict"},   {"cocoeval", "coco-eval"},
    {"plan", "forecast"},    {"man", "--help"},      {"scaling", "scripts/scaling_report.py"}};

const struct dt_command *dt_command_find(const char *name)
{
    const char *names[DT_COUNT(dt_commands)];
    for (size_t i = 0; i < DT_COUNT(dt_commands); i++) {
        names[i] = dt_commands[i].name;
        if (strcmp(names[i], name) == 0)
            return &dt_commands[i];
    }
    const char *nearest = dt_nearest(name, names, DT_COUNT(names));
    for (size_t i = 0; i < DT_COUNT(other_names); i++)
        if (strcmp(other_names[i][0], name) == 0)
            nearest = other_names[i][1];
    if (dt_name_has_suffix(name, ".json"))
        DT_ERROR(DT_ERR_USAGE, "%s: unknown command; did you mean --config %s?", name, name);
    else
        DT_ERROR(DT_ERR_USAGE, "%s: unknown command; %s%s%s", name,
                 nearest ? "did you mean " : "see dtrain --help", nearest ? nearest : "",
                 nearest ? "?" : "");
    return NULL;
}

void dt_command_operands(const struct dt_command *command, int *min, int *max)
{
    *min = *max = 0;
    for (const char *word = command->operands; *word; word += strspn(word, " ")) {
        *min += *word != '[';
        (*max)++;
        word += strcspn(word, " ");
        if (word[-1] == '.')
            *max = INT_MAX;
    }
}

/* --- Help --- */

/* On a terminal, in lines of its width. */
static void print_wrapped(FILE *out, const char *line, int indent)
{
    const int columns = dt_terminal_columns(fileno(out));
    char text[2048];
    snprintf(text, sizeof text, "%s", line);
    if (columns > 2 * indent)
        dt_text_wrap(text, sizeof text, columns, indent);
    fprintf(out, "%s\n", text);
}

static void print_command(FILE *out, const struct dt_command *command)
{
    char line[1024];
    fprintf(out, "  dtrain %s%s%s%s\n    %s\n", command->name, command->operands[0] ? " " : "",
            command->operands, command->options[0] ? " [options]" : "", command->summary);
    for (int i = 0; i < DT_COMMAND_OPTIONS && command->options[i]; i++) {
        const struct dt_option *row = dt_option_find(command->options[i], command->name);
        const bool is_apart = row->value && row->value[0] != '[';
        struct dt_text text = dt_text_in(line, sizeof line);
        dt_text_add(&text, "    --%s%s%s ", row->name, is_apart ? " " : "",
                    row->value ? row->value : "");
        dt_text_add(&text, "%*s%s", text.used < 26 ? (int)(26 - text.used) : 0, "", row->help);
        print_wrapped(out, line, 26);
    }
}

#define EXIT_CODE(code, name, number, text) "  " #number " " text "\n"
static const char environment_and_codes[] =
    "Environment:\n"
    "  DTRAIN_CONFIG_PATH=A:B   folders where --config NAME is looked for\n"
    "  DTRAIN_DEBUG=1           print more messages, and where an error was raised\n"
    "  DTRAIN_FAULT=stop@100:1  inject a fault, here: stop rank 1 at step 100\n"
    "  DTRAIN_MPIRUN=mpirun     the launcher that dtrain launch starts\n"
    "  NO_COLOR=1               no colours on a terminal\n"
    "\nExit codes:\n" DT_STATUS_LIST(EXIT_CODE);

static void print_all(FILE *out)
{
    fprintf(out, "usage:\n");
    for (size_t i = 0; i < dt_n_commands; i++)
        print_command(out, &dt_commands[i]);
    fprintf(out, "  dtrain --help | --version [--json]\n\n%s", environment_and_codes);
}

/* Topics and lines, as the pages have them (scripts/cmake/DtrainTopics.cmake). */
static const char *const topics[][2] = {
#include "cli/help_topics.inc"
};

bool dt_topic_print(FILE *out, const char *topic)
{
    bool is_found = strcmp(topic, "all") == 0;
    if (is_found && out)
        print_all(out);
    for (size_t i = 0; i < DT_COUNT(topics); i++) {
        if (strcmp(topics[i][0], topic) != 0)
            continue;
        is_found = true;
        if (out)
            print_wrapped(out, topics[i][1], strncmp(topics[i][1], "  ", 2) == 0 ? 16 : 0);
    }
    return is_found;
}

const char *dt_topic_name(size_t i)
{
    for (size_t line = 0; line < DT_COUNT(topics); line++)
        if ((line == 0 || strcmp(topics[line][0], topics[line - 1][0]) != 0) && i-- == 0)
            return topics[line][0];
    return NULL;
}

void dt_help_print(const struct dt_command *command)
{
    char buffer[1024];
    if (command) {
        printf("usage:\n");
        print_command(stdout, command);
        return;
    }
    printf("Train convolutional networks data-parallel on CPUs and GPUs.\n\n"
           "usage: dtrain [COMMAND] [options], and on several ranks: dtrain --ranks N [COMMAND] "
           "...\n\n");
    for (size_t i = 0; i < dt_n_commands; i++) {
        snprintf(buffer, sizeof buffer, "  %-12s%s", dt_commands[i].name, dt_commands[i].summary);
        print_wrapped(stdout, buffer, 14);
    }
    printf("\n  dtrain COMMAND --help  its options\n"
           "  dtrain help all        the options of all commands, and the exit codes\n"
           "  dtrain help TOPIC      one of");
    const char *topic;
    for (size_t i = 0; (topic = dt_topic_name(i)); i++)
        printf(" %s", topic);
    printf("\n  dtrain --version [--json]\n");
}
