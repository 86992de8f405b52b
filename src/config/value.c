/* Sets one key from a JSON value, and puts environment variables into strings. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "config/keys.h"

static bool in_bounds(const struct dt_key *key, const struct dt_json *value)
{
    if (value->type != DT_JSON_NUMBER)
        return false;
    double v = value->number;
    return (key->above_min ? v > key->min : v >= key->min) &&
           (key->below_max ? v < key->max : v <= key->max);
}

/* The index of the choice that is named, -1 if it is none. */
static int find_choice(const struct dt_key *key, const struct dt_json *value)
{
    if (value->type != DT_JSON_STRING)
        return -1;
    const char *name = strcmp(value->string, "gpu") == 0 ? "cuda" : value->string;
    for (int i = 0; key->choices && key->choices[i]; i++)
        if (strcmp(key->choices[i], name) == 0)
            return i;
    return -1;
}

bool dt_key_takes_choice(const struct dt_key *key, const struct dt_json *value)
{
    return key->type == DT_MEMBER_CHOICE && find_choice(key, value) >= 0;
}

static bool set_string(const struct dt_key *key, struct dt_config *config,
                       const struct dt_json *value)
{
    size_t bytes = value->type == DT_JSON_STRING ? strlen(value->string) : 0;
    if (value->type != DT_JSON_STRING || bytes < (size_t)key->min_length ||
        bytes > (size_t)key->max_length)
        return false;
    memset((char *)config + key->offset, 0, (size_t)key->max_length + 1);
    memcpy((char *)config + key->offset, value->string, bytes);
    return true;
}

static bool set_list(const struct dt_key *key, struct dt_config *config,
                     const struct dt_json *value, const struct dt_json **culprit)
{
    double items[DT_MAX_CLASS_WEIGHTS];
    int n = 0;
    const int choice = find_choice(key, value);
    if (choice >= 0) {
        dt_key_set_list(key, config, NULL, -choice);
        return true;
    }
    if (value->type != DT_JSON_ARRAY || value->n_children < key->min_length ||
        value->n_children > key->max_length)
        return false;
    for (const struct dt_json *item = value->child; item; item = item->next) {
        *culprit = item;
        if (!in_bounds(key, item))
            return false;
        items[n++] = item->number;
    }
    dt_key_set_list(key, config, items, n);
    return true;
}

static bool set_names(const struct dt_key *key, struct dt_config *config,
                      const struct dt_json *value, const struct dt_json **culprit)
{
    char *field = (char *)config + key->offset;
    struct dt_text text = dt_text_in(field, (size_t)key->max_length + 1);
    if (value->type != DT_JSON_ARRAY)
        return false;
    memset(field, 0, (size_t)key->max_length + 1);
    for (const struct dt_json *item = value->child; item; item = item->next) {
        *culprit = item;
        if (item->type != DT_JSON_STRING || !item->string[0] || strchr(item->string, '\n') ||
            (key->choices && find_choice(key, item) < 0) ||
            !dt_text_add_whole(&text, "%s\n", item->string))
            return false;
    }
    return true;
}

bool dt_key_is_comment(const char *name)
{
    return strcmp(name, "$schema") == 0 || strncmp(name, "_comment", 8) == 0 ||
           strncmp(name, "//", 2) == 0;
}

static bool set_row(const struct dt_key *key, int *row, const struct dt_json *object,
                    const struct dt_json **culprit)
{
    *culprit = object;
    for (int i = 0; i < key->n_columns; i++)
        if (!key->columns[i].is_optional && !dt_json_get(object, key->columns[i].name))
            return false;
    for (const struct dt_json *m = object->child; m; m = m->next) {
        const struct dt_member *column = dt_key_column(key, m->key);
        if (dt_key_is_comment(m->key))
            continue;
        *culprit = m;
        if (!column || !dt_members_read(row, column, 1, object))
            return false;
    }
    return true;
}

static bool set_table(const struct dt_key *key, struct dt_config *config,
                      const struct dt_json *value, const struct dt_json **culprit)
{
    int n_rows, *rows = dt_key_table(key, config, &n_rows);
    if (value->type != DT_JSON_ARRAY || value->n_children > key->max_length)
        return false;
    memset(rows, 0, key->bytes);
    for (const struct dt_json *item = value->child; item;
         item = item->next, rows += key->n_columns) {
        *culprit = item;
        if (item->type != DT_JSON_OBJECT || !set_row(key, rows, item, culprit))
            return false;
    }
    *(int *)((char *)config + key->count_offset) = value->n_children;
    return true;
}

bool dt_key_set_value(const struct dt_key *key, struct dt_config *config,
                      const struct dt_json *value, const struct dt_json **culprit)
{
    int64_t integer = 0;
    bool fits = false;
    switch (key->type) {
    case DT_MEMBER_CHOICE:
        if (find_choice(key, value) >= 0)
            dt_key_set_number(key, config, find_choice(key, value));
        return find_choice(key, value) >= 0;
    case DT_MEMBER_TEXT:
        return set_string(key, config, value);
    case DT_KEY_LIST:
        return set_list(key, config, value, culprit);
    case DT_KEY_NAMES:
        return set_names(key, config, value, culprit);
    case DT_KEY_TABLE:
        return set_table(key, config, value, culprit);
    case DT_MEMBER_BOOL:
        if (value->type == DT_JSON_BOOL)
            dt_key_set_number(key, config, value->boolean);
        return value->type == DT_JSON_BOOL;
    case DT_MEMBER_REAL:
        fits = in_bounds(key, value);
        break;
    default:
        if (key->or_bool && value->type == DT_JSON_BOOL) {
            dt_key_set_number(key, config, value->boolean);
            return true;
        }
        if (find_choice(key, value) >= 0) {
            dt_key_set_number(key, config, -1 - find_choice(key, value));
            return true;
        }
        fits = dt_json_integer(value, (int64_t)key->min, (int64_t)key->max, &integer);
    }
    if (fits)
        dt_key_set_number(key, config, value->number);
    return fits;
}

/* --- Environment variables in the strings of a configuration file --- */

/* The '}' of a '{' before `at`, or NULL. */
static const char *closing_brace(const char *at)
{
    for (int depth = 1; *at; at++) {
        depth += (*at == '{') - (*at == '}');
        if (depth == 0)
            return at;
    }
    return NULL;
}

static bool add_value(struct dt_text *out, const char *name, struct dt_text *mistake)
{
    const char *value = getenv(name);
    bool is_set = value && *value;
    if (is_set && dt_utf8_is_valid(value)) {
        dt_text_add(out, "%s", value);
        return true;
    }
    dt_text_add(
        mistake,
        "the environment variable %s is %s where rank 0 runs; set it, or write ${%s:-VALUE}", name,
        is_set  ? "not UTF-8"
        : value ? "empty"
                : "not set",
        name);
    return false;
}

/* Appends the variable whose name begins at *at, behind "${", and moves *at behind its '}'. */
static bool add_variable(struct dt_text *out, const char **at, struct dt_text *mistake)
{
    const char *name = *at, *end = closing_brace(name), *rest = name;
    char copy[256];
    struct dt_text variable = dt_text_in(copy, sizeof copy);
    while (*rest == '_' || isalnum((unsigned char)*rest))
        rest++;
    bool has_default = strncmp(rest, ":-", 2) == 0;
    if (!end || rest == name || isdigit((unsigned char)*name) || (rest != end && !has_default)) {
        dt_text_add(mistake,
                    "expected ${NAME} or ${NAME:-VALUE}, got \"${%.60s\"; $${ stands for ${ itself",
                    name);
        return false;
    }
    dt_text_add(&variable, "%.*s", (int)(rest - name), name);
    *at = end + 1;
    const char *value = getenv(copy);
    return has_default && (!value || !*value) ? dt_key_expand(out, rest + 2, end, mistake)
                                              : add_value(out, copy, mistake);
}

bool dt_key_expand(struct dt_text *out, const char *text, const char *end, struct dt_text *mistake)
{
    while (text < end) {
        if (strncmp(text, "$${", 3) == 0) {
            dt_text_add(out, "${");
            text += 3;
        } else if (strncmp(text, "${", 2) != 0) {
            dt_text_add(out, "%c", *text++);
        } else {
            text += 2;
            if (!add_variable(out, &text, mistake))
                return false;
        }
    }
    return true;
}

void dt_key_escape(struct dt_text *out, const char *text)
{
    for (; *text; text++)
        dt_text_add(out, strncmp(text, "${", 2) == 0 ? "$%c" : "%c", *text);
}
