/* Defaults, then the file, then the overrides. Loading does not stop at the first mistake: each
 * becomes a line "source:line:column: path: message", and the lines together are the error. Rules
 * that involve several keys are checked only if every key is valid by itself. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/build.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_token.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/text.h"
#include "config/keys.h"
#include "dtrain/models.h"

enum { TEXT_BYTES = 12288, PATH_BYTES = 256 };

/* The place where a value was given. */
struct place {
    const char *source; /* file or "--set" */
    int line, column;   /* 0 = unknown or meaningless */
};

struct loading {
    struct dt_config *config;
    const char *source;   /* currently read: the file or "--set" */
    struct place *places; /* one per key: the origin of its value */
    struct dt_text text;  /* the mistakes so far */
    struct dt_text notes;
    int n_omitted;
};

static void add_line(struct loading *l, char *line)
{
    for (char *p = line; *p; p++)
        if (*p == '\n') /* in a key or a string; a mistake is one line */
            *p = '?';
    l->n_omitted += !dt_text_add_whole(&l->text, "%s%s", l->text.used ? "\n    " : "", line);
}

static void add_mistake(struct loading *l, struct place at, const char *path, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));
static void add_mistake(struct loading *l, struct place at, const char *path, const char *format,
                        ...)
{
    char where[DT_PATH_MAX + 32], what[768], line[sizeof(where) + sizeof(what) + PATH_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    if (at.line > 0)
        snprintf(where, sizeof(where), "%s:%d:%d", at.source, at.line, at.column);
    else
        snprintf(where, sizeof(where), "%s", at.source);
    snprintf(line, sizeof(line), "%s: %s: %s", where, path, what);
    add_line(l, line);
}

static bool is_file(const struct loading *l)
{
    return strcmp(l->source, "--set") != 0;
}

static struct place place_of(const struct loading *l, const struct dt_json *value)
{
    return (struct place){l->source, is_file(l) ? value->line : 0, value->column};
}

static const char *describe_value(char *out, size_t bytes, const struct dt_json *value)
{
    static const char *const names[] = {
        [DT_JSON_NULL] = "null", [DT_JSON_ARRAY] = "a list", [DT_JSON_OBJECT] = "an object"};
    char number[32];
    if (value->type == DT_JSON_STRING)
        snprintf(out, bytes, "\"%.60s\"%s", value->string,
                 strlen(value->string) > 60 ? " (and more)" : "");
    else if (value->type == DT_JSON_NUMBER)
        snprintf(out, bytes, "%s", dt_key_format(number, value->number));
    else if (value->type == DT_JSON_BOOL)
        snprintf(out, bytes, "%s", value->boolean ? "true" : "false");
    else
        snprintf(out, bytes, "%s", names[value->type]);
    return out;
}

static bool is_in(const struct dt_json *object, const struct dt_json *value)
{
    const struct dt_json *member = object->child;
    while (member && member != value)
        member = member->next;
    return member || object == value;
}

/* A mistake inside a table: "train.stages[1].epoch: ...". */
static void report_cell(struct loading *l, const struct dt_key *key, const struct dt_json *table,
                        const struct dt_json *culprit)
{
    char path[PATH_BYTES], expects[512], got[160];
    const struct dt_json *row = table->child;
    int i = 0;
    for (; !is_in(row, culprit); row = row->next)
        i++;
    bool is_row = row == culprit;
    const struct dt_member *column = is_row ? NULL : dt_key_column(key, culprit->key);
    snprintf(path, sizeof path, "%s[%d]%s%.64s", key->path, i, is_row ? "" : ".",
             is_row ? "" : culprit->key);
    if (column)
        add_mistake(l, place_of(l, culprit), path, "expected %s, got %s",
                    dt_column_expects(expects, sizeof expects, column),
                    describe_value(got, sizeof got, culprit));
    else
        add_mistake(l, place_of(l, culprit), path, "%s; %s takes %s",
                    !is_row                           ? "unknown key"
                    : culprit->type != DT_JSON_OBJECT ? "expected an object"
                                                      : "a member is missing",
                    key->path, dt_key_expects(expects, sizeof expects, key));
}

static void report_value(struct loading *l, const struct dt_key *key, const struct dt_json *value)
{
    char expects[512], got[160], hint[128] = "";
    size_t n_choices = 0;
    while (key->choices && key->choices[n_choices])
        n_choices++;
    if (n_choices > 0 && value->type == DT_JSON_STRING) {
        const char *near = dt_nearest(value->string, key->choices, n_choices);
        bool is_item = near && strcmp(near, value->string) == 0;
        if (near)
            snprintf(hint, sizeof(hint), is_item ? "; write [\"%s\"]" : "; did you mean \"%s\"?",
                     near);
    } else if ((key->type == DT_KEY_LIST || key->type == DT_KEY_TABLE) &&
               value->type == DT_JSON_ARRAY) {
        snprintf(hint, sizeof(hint), " of %d", value->n_children);
    }
    add_mistake(l, place_of(l, value), key->path, "expected %s, got %s%s",
                dt_key_expects(expects, sizeof(expects), key),
                describe_value(got, sizeof(got), value), hint);
}

static void check_format(struct loading *l, const struct dt_json *value)
{
    char got[160];
    int64_t format;
    if (!dt_json_integer(value, 1, DT_CONFIG_FORMAT, &format))
        add_mistake(l, place_of(l, value), "format",
                    "dtrain %s reads configurations of format 1 to %d, got %s", dt_version,
                    DT_CONFIG_FORMAT, describe_value(got, sizeof got, value));
}

static void apply_value(struct loading *l, const char *path, const struct dt_json *value);

static void apply_members(struct loading *l, const char *prefix, const struct dt_json *object)
{
    char path[PATH_BYTES];
    for (const struct dt_json *m = object->child; m; m = m->next) {
        if (dt_key_is_comment(m->key))
            continue;
        snprintf(path, sizeof(path), "%s%s%.128s", prefix, *prefix ? "." : "", m->key);
        if (strcmp(path, "format") == 0)
            check_format(l, m);
        else if (strchr(m->key, '.'))
            add_mistake(l, place_of(l, m), path,
                        "unknown key; write nested objects instead of a dot in a key");
        else
            apply_value(l, path, m);
    }
}

static void apply_to_key(struct loading *l, const struct dt_key *key, const struct dt_json *value)
{
    const struct dt_json *culprit = value;
    if (dt_key_set_value(key, l->config, value, &culprit))
        l->places[key - dt_keys] = place_of(l, value);
    else if (key->type == DT_KEY_TABLE && culprit != value)
        report_cell(l, key, value, culprit);
    else
        report_value(l, key, culprit);
}

/* Sets a string of the file, whose variables become values of the environment. */
static void apply_string(struct loading *l, const struct dt_key *key, const struct dt_json *value)
{
    char text[2 * DT_PATH_MAX], what[512];
    struct dt_text out = dt_text_in(text, sizeof text), mistake = dt_text_in(what, sizeof what);
    struct dt_json expanded = *value;
    const char *end = value->string + strlen(value->string);
    expanded.string = text;
    if (dt_key_expand(&out, value->string, end, &mistake))
        apply_to_key(l, key, &expanded);
    else
        add_mistake(l, place_of(l, value), key->path, "%s", what);
}

/* "; did you mean device.kind="gpu"?" for device="gpu": the key of a section that takes the text as
 * a choice, else its name. */
static const char *suggest_member(char *out, size_t bytes, const char *section,
                                  const struct dt_json *value)
{
    char name[PATH_BYTES];
    snprintf(name, sizeof name, "%s.name", section);
    const struct dt_key *found = dt_key_find(name);
    for (size_t i = 0; i < dt_config_n_keys(); i++)
        if (strncmp(dt_keys[i].path, name, strlen(section) + 1) == 0 &&
            dt_key_takes_choice(&dt_keys[i], value))
            found = &dt_keys[i];
    if (found && value->type == DT_JSON_STRING)
        snprintf(out, bytes, "; did you mean %s=%.60s?", found->path, value->string);
    return out;
}

/* Sets the key or section `path` from `value`. */
static void apply_value(struct loading *l, const char *path, const struct dt_json *value)
{
    char got[160], suggestion[512] = "";
    const struct dt_key *key = dt_key_find(path);
    if (key && key->type == DT_MEMBER_TEXT && value->type == DT_JSON_STRING && is_file(l))
        apply_string(l, key, value);
    else if (key)
        apply_to_key(l, key, value);
    else if (!dt_key_is_section(path)) {
        /* A suggestion searches all names, and there may be thousands of mistakes. */
        if (l->n_omitted == 0)
            dt_key_suggest(suggestion, sizeof suggestion, path);
        add_mistake(l, place_of(l, value), path, "unknown key%s", suggestion);
    } else if (value->type != DT_JSON_OBJECT)
        add_mistake(l, place_of(l, value), path, "expected an object with the keys of %s, got %s%s",
                    path, describe_value(got, sizeof(got), value),
                    suggest_member(suggestion, sizeof suggestion, path, value));
    else
        apply_members(l, path, value);
}

bool dt_config_is_stream(const char *path)
{
    struct stat info;
    return strcmp(path, "-") == 0 || (stat(path, &info) == 0 && S_ISFIFO(info.st_mode));
}

static dt_status read_stream(struct dt_json_doc **doc, const char *path, const char *source)
{
    enum { MAX_BYTES = 1 << 20 };
    const bool is_stdin = strcmp(path, "-") == 0;
    char *text;
    DT_TRY(DT_NEW(text, MAX_BYTES));
    FILE *in = is_stdin ? stdin : fopen(path, "re");
    const size_t bytes = in ? fread(text, 1, MAX_BYTES, in) : 0;
    dt_status status = DT_OK;
    if (!in || ferror(in))
        status = DT_ERROR(DT_ERR_IO, "cannot read %s: %s", source, strerror(errno));
    else if (bytes == MAX_BYTES)
        status = DT_ERROR(DT_ERR_DATA, "%s has more than the %d bytes that are accepted", source,
                          MAX_BYTES - 1);
    else
        status = dt_json_parse(doc, text, bytes, source, NULL);
    if (in && !is_stdin)
        fclose(in);
    free(text);
    return status;
}

/* Malformed JSON counts as one mistake; an unreadable file fails at once. */
static dt_status apply_file(struct loading *l, const char *path)
{
    struct dt_json_doc *doc = NULL;
    char got[160], text[DT_PATH_MAX + 512];
    l->source = strcmp(path, "-") == 0 ? "standard input" : path;
    dt_status status = dt_config_is_stream(path) ? read_stream(&doc, path, l->source)
                                                 : dt_json_load(&doc, path, NULL);
    if (status == DT_ERR_DATA) {
        snprintf(text, sizeof(text), "%s", dt_error_text());
        add_line(l, text);
        return DT_OK;
    }
    DT_TRY(status);
    const struct dt_json *root = dt_json_root(doc);
    if (root->type == DT_JSON_OBJECT)
        apply_members(l, "", root);
    else
        add_mistake(l, place_of(l, root), "configuration", "expected an object, got %s",
                    describe_value(got, sizeof(got), root));
    dt_json_destroy(doc);
    return DT_OK;
}

static dt_status apply_override(struct loading *l, const char *set)
{
    struct dt_json_doc *doc = NULL;
    const struct place at = {.source = "--set"};
    char path[PATH_BYTES];
    size_t bytes = strcspn(set, "=");
    l->source = "--set";
    snprintf(path, sizeof(path), "%.*s", (int)(bytes < PATH_BYTES ? bytes : PATH_BYTES - 1), set);
    if (!set[bytes] || bytes == 0) {
        add_mistake(l, at, path, "expected key.path=value");
        return DT_OK;
    }
    const char *raw = set + bytes + 1;
    const struct dt_key *key = dt_key_find(path);
    bool wants_text = key && (key->type == DT_MEMBER_TEXT || key->type == DT_MEMBER_CHOICE);
    dt_status status = dt_json_parse(&doc, raw, strlen(raw), "--set", NULL);
    if (status == DT_ERR_DATA || (doc && wants_text && dt_json_root(doc)->type != DT_JSON_STRING)) {
        /* output.dir=2024 is a name, not a number */
        const struct dt_json text = {.type = DT_JSON_STRING, .string = raw};
        if (dt_utf8_is_valid(raw) && strlen(raw) <= DT_JSON_STRING_MAX)
            apply_value(l, path, &text);
        else
            add_mistake(l, at, path, "the value is too long or not UTF-8");
        status = DT_OK;
    } else if (status == DT_OK) {
        apply_value(l, path, dt_json_root(doc));
    }
    dt_json_destroy(doc);
    return status;
}

static void report_rule(void *context, const char *path, const char *what)
{
    struct loading *l = context;
    add_mistake(l, l->places[dt_key_find(path) - dt_keys], path, "%s", what);
}

/* A key that is given in place of another one turns that off, unless the other is given too. */
static void settle_alternatives(struct loading *l)
{
    for (const struct dt_key *key = dt_keys; key < dt_keys + dt_config_n_keys(); key++) {
        const struct dt_key *other = key->instead_of ? dt_key_find(key->instead_of) : NULL;
        const struct place *place = other ? &l->places[other - dt_keys] : NULL;
        if (other && dt_key_get_number(key, l->config) > 0 && place->line == 0 &&
            strcmp(place->source, "--set") != 0)
            dt_key_set_number(other, l->config, 0);
    }
}

static bool is_set(const struct loading *l, const char *path)
{
    return strcmp(l->places[dt_key_find(path) - dt_keys].source, "--set") == 0;
}

static bool is_in_file(const struct loading *l, const char *path)
{
    return l->places[dt_key_find(path) - dt_keys].line > 0;
}

/* Whether the file is there; for a range of shards, whether their folder is. */
static bool is_there(const char *path)
{
    char folder[DT_PATH_MAX];
    const size_t n = strcspn(path, "{");
    snprintf(folder, sizeof folder, "%.*s", (int)n, path);
    char *slash = path[n] ? strrchr(folder, '/') : NULL;
    if (slash)
        *slash = '\0';
    return (path[n] && !slash) || dt_file_exists(folder);
}

/* A recipe names data of its own, which those of --set replace. */
static void settle_data(struct loading *l)
{
    struct dt_config_data *data = &l->config->data;
    const bool generated = is_set(l, "data.source") && data->source == DT_SOURCE_SYNTHETIC;
    const bool split = is_set(l, "data.val_fraction") && data->val_fraction > 0;
    const bool lost = is_set(l, "data.train") && data->val[0] && !is_there(data->val);
    if (generated && is_in_file(l, "data.train"))
        memset(data->train, 0, sizeof data->train);
    if (!is_in_file(l, "data.val") || !(generated || split || lost))
        return;
    if (!generated && !split)
        dt_text_add(&l->notes,
                    "data.val: %.400s of %s does not exist, so nothing is evaluated; name yours, "
                    "or set data.val_fraction=0.1\n",
                    data->val, l->places[dt_key_find("data.val") - dt_keys].source);
    memset(data->val, 0, sizeof data->val);
}

/* Neither a default nor a recipe refuses a short run that --set asks for. */
static void settle_warmup(struct loading *l)
{
    double *warmup = &l->config->schedule.warmup_epochs;
    const char *path = "schedule.warmup_epochs";
    const int epochs = l->config->train.epochs;
    const bool is_given = is_set(l, path) || (is_in_file(l, path) && !is_set(l, "train.epochs"));
    if (is_given || *warmup <= epochs)
        return;
    dt_text_add(&l->notes, "%s: %g epochs are longer than train.epochs %d; it is %g here\n", path,
                *warmup, epochs, epochs / 4.0);
    *warmup = epochs / 4.0;
}

/* A rate that is not given is the optimizer's own. */
static void settle_rate(struct loading *l)
{
    if (!is_set(l, "schedule.lr") && !is_in_file(l, "schedule.lr"))
        l->config->schedule.lr = dt_config_own_lr(l->config);
}

dt_status dt_config_load(struct dt_config *config, const char *path, const char *const *sets,
                         size_t n_sets)
{
    dt_status status = DT_OK;
    struct loading l = {.config = config};
    char *text = NULL;
    DT_TRY_OUT(DT_NEW(text, TEXT_BYTES));
    l.text = dt_text_in(text, TEXT_BYTES);
    DT_TRY_OUT(DT_NEW(l.places, dt_config_n_keys()));
    dt_config_init(config);
    l.notes = dt_text_in(config->notes, sizeof config->notes);
    for (size_t i = 0; i < dt_config_n_keys(); i++)
        l.places[i] = (struct place){.source = path ? path : "configuration"};
    if (path)
        DT_TRY_OUT(apply_file(&l, path));
    for (size_t i = 0; i < n_sets; i++)
        DT_TRY_OUT(apply_override(&l, sets[i]));
    settle_alternatives(&l);
    settle_data(&l);
    settle_warmup(&l);
    settle_rate(&l);
    if (!dt_model_find(config->model.name))
        report_rule(&l, "model.name", dt_error_text());
    if (l.text.used == 0)
        dt_config_check(config, report_rule, &l);
    if (l.n_omitted > 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_CONFIG, "%s\n    (and %d more mistakes)", text, l.n_omitted));
    if (l.text.used > 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_CONFIG, "%s", text));
    dt_error_clear(); /* set by values of --set that are not JSON */
out:
    free(text);
    free(l.places);
    return status;
}
