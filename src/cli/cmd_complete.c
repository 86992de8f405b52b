/* dtrain complete: what the last of some words on the command line may become, a candidate per line
 * with a tab and its help. scripts/completion calls it in bash and zsh; where there is no candidate
 * they offer files. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "dtrain/models.h"

/* Values of options and operands, besides files. */
static const char *const values[][2] = {
    {"resume", "auto must never"},   {"data", "synthetic real"}, {"decode", "all"},
    {"exif", "ignore apply"},        {"link", "measured"},       {"step-time", "measured"},
    {"batch-size-per-rank", "auto"}, {"local-link", "measured"}, {"config", "show new schema help"},
};

/* The word, and how much of it stands before the part that is completed: "--config=". */
struct words {
    const char *word;
    size_t before;
};

/* Prints the word with its last part replaced, if what is typed begins like that. */
static void offer(const struct words *w, const char *text, const char *end, const char *help)
{
    const char *typed = w->word + w->before;
    char whole[256];
    snprintf(whole, sizeof whole, "%.200s%s", text, end);
    if (strncmp(whole, typed, strlen(typed)) == 0)
        printf("%.*s%s\t%s\n", (int)w->before, w->word, whole, help);
}

static void offer_values(const struct words *w, const char *name)
{
    for (size_t i = 0; i < DT_COUNT(values); i++) {
        char copy[64], *rest = copy;
        if (strcmp(values[i][0], name) != 0)
            continue;
        snprintf(copy, sizeof copy, "%s", values[i][1]);
        for (const char *value; (value = strsep(&rest, " "));)
            offer(w, value, "", "");
    }
}

static void offer_models(const struct words *w)
{
    const struct dt_model *models;
    const size_t n = dt_model_list(&models);
    for (size_t i = 0; i < n; i++)
        offer(w, models[i].name, "", "");
}

/* KEY=, or the values of a key. */
static void offer_settings(struct words w)
{
    struct dt_config_key key;
    const char *typed = w.word + w.before;
    const size_t length = strcspn(typed, "=");
    const bool has_value = typed[length] == '=';
    w.before += has_value ? length + 1 : 0;
    for (size_t i = 0; dt_config_key(&key, i); i++) {
        if (!has_value)
            offer(&w, key.path, "=", key.help);
        else if (strncmp(key.path, typed, length) == 0 && key.path[length] == '\0')
            for (const char *const *name = key.choices; name && *name; name++)
                offer(&w, *name, "", "");
    }
    if (has_value && strncmp(typed, "model.name=", length + 1) == 0)
        offer_models(&w);
}

static void offer_configs(const struct words *w)
{
    static char names[DT_CONFIG_NAMES_MAX][DT_CONFIG_NAME_MAX];
    const int n = dt_config_names(names);
    for (int i = 0; i < n; i++)
        offer(w, names[i], "", "");
}

static void offer_option_values(const struct words *w, const char *name)
{
    if (strcmp(name, "set") == 0)
        offer_settings(*w);
    else if (strcmp(name, "config") == 0)
        offer_configs(w);
    else if (strcmp(name, "model") == 0)
        offer_models(w);
    else
        offer_values(w, name);
}

static void offer_options(const struct words *w, const struct dt_command *command)
{
    for (int i = 0; i < DT_COMMAND_OPTIONS && command->options[i]; i++) {
        const struct dt_option *row = dt_option_find(command->options[i], command->name);
        char name[64];
        snprintf(name, sizeof name, "--%s", row->name);
        offer(w, name, "", row->help);
        if (row->kind == DT_OPTION_OPTIONAL)
            offer(w, name, "=plan", row->help);
    }
    offer(w, "--help", "", dt_option_find("help", "")->help);
}

static void offer_commands(const struct words *w)
{
    for (size_t i = 0; i < dt_n_commands; i++)
        offer(w, dt_commands[i].name, "", dt_commands[i].summary);
}

/* Offers the operands that may come next. */
static void offer_operands(const struct words *w, const char *command, bool is_second)
{
    struct dt_config_key key;
    const char *topic;
    if (strcmp(command, "models") == 0)
        offer_models(w);
    else if (is_second)
        offer_values(w, command);
    else if (strcmp(command, "config") == 0) /* help KEY */
        for (size_t i = 0; dt_config_key(&key, i); i++)
            offer(w, key.path, "", key.help);
    if (strcmp(command, "help") != 0)
        return;
    for (size_t i = 0; (topic = dt_topic_name(i)); i++)
        offer(w, topic, "", "");
    offer_commands(w);
}

dt_status dt_cmd_complete(const struct dt_arguments *args)
{
    const int n = args->n_operands;
    struct words w = {.word = args->operands[n - 1]};
    const char *first = args->operands[0], *before = n > 1 ? args->operands[n - 2] : "";
    const struct dt_command *command = dt_commands;
    char name[64];
    for (size_t i = 0; n > 1 && i < dt_n_commands; i++)
        if (strcmp(dt_commands[i].name, first) == 0)
            command = &dt_commands[i];
    const size_t length = strcspn(w.word, "=");
    const bool has_value = strncmp(w.word, "--", 2) == 0 && w.word[length] == '=';
    snprintf(name, sizeof name, "%.*s", has_value ? (int)length : 63, has_value ? w.word : before);
    const struct dt_option *option =
        strncmp(name, "--", 2) == 0 ? dt_option_find(name + 2, command->name) : NULL;
    if (has_value)
        w.before = length + 1;
    if (option && (has_value || (option->value && option->kind != DT_OPTION_OPTIONAL))) {
        offer_option_values(&w, option->name);
    } else if (w.word[0] == '-') {
        offer_options(&w, command);
    } else if (n == 1) {
        offer_commands(&w);
        offer(&w, "help", "", "Print the essentials of a topic, or help on a command.");
    } else {
        offer_operands(&w, first, n == 2);
    }
    return DT_OK;
}
