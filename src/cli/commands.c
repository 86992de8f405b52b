/* The table of sub-commands and lookup by name. */
#include "cli/commands.h"

#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "base/nearest.h"

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
static const char *const other_names[][2] = {{"shapes", "demo-data"},   {"benchmark", "bench"},
                                             {"evaluate", "eval"},      {"test", "eval"},
                                             {"validate", "eval"},      {"fit", "train"},
                                             {"classify", "predict"},   {"infer", "predict"},
                                             {"cocoeval", "coco-eval"}, {"plan", "forecast"}};

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
    DT_ERROR(DT_ERR_USAGE, "%s: unknown command; %s%s%s", name,
             nearest ? "did you mean " : "see dtrain --help", nearest ? nearest : "",
             nearest ? "?" : "");
    return NULL;
}

void dt_command_operands(const struct dt_command *command, int *least, int *most)
{
    *least = *most = 0;
    for (const char *word = command->operands; *word; word += strspn(word, " ")) {
        *least += *word != '[';
        (*most)++;
        word += strcspn(word, " ");
        if (word[-1] == '.')
            *most = INT_MAX;
    }
}
