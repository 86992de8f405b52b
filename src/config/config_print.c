/* Output from the key table: the resolved configuration, its JSON Schema and the help. */
#include <stdio.h>
#include <string.h>

#include "base/build.h"
#include "base/json.h"
#include "base/mem.h"
#include "config/keys.h"

static void print_table(struct dt_jsonw *w, const char *name, const struct dt_key *key,
                        const struct dt_config *config)
{
    int n_rows;
    const int *row = dt_key_table(key, config, &n_rows);
    dt_jsonw_begin(w, name, '[');
    for (; n_rows-- > 0; row += key->n_columns) {
        dt_jsonw_begin(w, NULL, '{');
        dt_members_write(w, key->columns, (size_t)key->n_columns, row);
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
}

void dt_key_print(struct dt_jsonw *w, const char *name, const struct dt_key *key,
                  const struct dt_config *config)
{
    int n_items = 0;
    if (key->type == DT_MEMBER_TEXT) {
        char escaped[2 * DT_PATH_MAX];
        struct dt_text text = dt_text_in(escaped, sizeof escaped);
        dt_key_escape(&text, dt_key_get_string(key, config));
        dt_jsonw_string(w, name, escaped);
    } else if (key->type == DT_KEY_NAMES) {
        char item[DT_PATH_MAX];
        const char *rest = dt_key_get_string(key, config);
        dt_jsonw_begin(w, name, '[');
        while ((rest = dt_config_names_next(rest, item, sizeof item)))
            dt_jsonw_string(w, NULL, item);
        dt_jsonw_close(w, ']');
    } else if (key->type == DT_KEY_LIST) {
        const double *items = dt_key_get_list(key, config, &n_items);
        if (n_items <= 0 && key->choices) {
            dt_jsonw_string(w, name, key->choices[-n_items]);
            return;
        }
        dt_jsonw_begin(w, name, '[');
        for (int i = 0; i < n_items; i++)
            dt_jsonw_number(w, NULL, items[i]);
        dt_jsonw_close(w, ']');
    } else if (key->type == DT_KEY_TABLE) {
        print_table(w, name, key, config);
    } else if (key->type == DT_MEMBER_BOOL ||
               (key->or_bool && dt_key_get_number(key, config) <= 1)) {
        dt_jsonw_bool(w, name, dt_key_get_number(key, config) != 0);
    } else if (key->type == DT_MEMBER_CHOICE) {
        dt_jsonw_string(w, name, key->choices[(int)dt_key_get_number(key, config)]);
    } else {
        double value = dt_key_get_number(key, config);
        if (key->type == DT_MEMBER_REAL)
            dt_jsonw_number(w, name, value);
        else if (key->choices && value < 0)
            dt_jsonw_string(w, name, key->choices[(int)(-1 - value)]);
        else
            dt_jsonw_integer(w, name, (int64_t)value);
    }
}

static void print_bounds(struct dt_jsonw *w, const struct dt_key *key)
{
    dt_jsonw_number(w, key->above_min ? "exclusiveMinimum" : "minimum", key->min);
    dt_jsonw_number(w, key->below_max ? "exclusiveMaximum" : "maximum", key->max);
}

static void print_choices(struct dt_jsonw *w, const struct dt_key *key)
{
    dt_jsonw_begin(w, "enum", '[');
    for (const char *const *name = key->choices; *name; name++)
        dt_jsonw_string(w, NULL, *name);
    dt_jsonw_close(w, ']');
}

static void print_list(struct dt_jsonw *w, const struct dt_key *key)
{
    dt_jsonw_add(w, "items: {type: %s", "number");
    print_bounds(w, key);
    dt_jsonw_add(w, "}, minItems: %d, maxItems: %d", key->min_length, key->max_length);
}

static void print_names_or(struct dt_jsonw *w, const struct dt_key *key, const char *type)
{
    dt_jsonw_add(w, "anyOf: [{type: %s", "string");
    print_choices(w, key);
    dt_jsonw_add(w, "}, {type: %s", type);
    if (key->type == DT_KEY_LIST)
        print_list(w, key);
    else
        print_bounds(w, key);
    dt_jsonw_add(w, "}]");
}

/* Allows only the keys of the table, comments and "$schema". */
static void close_schema_object(struct dt_jsonw *w)
{
    dt_jsonw_add(w,
                 "}, patternProperties: {^(_comment|//|\\$schema$): {}}, "
                 "additionalProperties: %hhd, type: %s}",
                 false, "object");
}

static void print_columns(struct dt_jsonw *w, const struct dt_key *key)
{
    dt_jsonw_add(w, "maxItems: %d, items: {required: [", key->max_length);
    for (int i = 0; i < key->n_columns; i++)
        if (!key->columns[i].is_optional)
            dt_jsonw_string(w, NULL, key->columns[i].name);
    dt_jsonw_add(w, "], properties: {");
    for (const struct dt_member *c = key->columns; c < key->columns + key->n_columns; c++) {
        dt_jsonw_begin(w, c->name, '{');
        dt_jsonw_add(w, "type: %s, minimum: %d, maximum: %d}", "integer", (int)c->min, (int)c->max);
    }
    close_schema_object(w);
}

static void print_key_schema(struct dt_jsonw *w, const struct dt_key *key,
                             const struct dt_config *defaults)
{
    static const char *const types[] = {
        [DT_MEMBER_BOOL] = "boolean",   [DT_MEMBER_INT] = "integer", [DT_MEMBER_INT64] = "integer",
        [DT_MEMBER_UINT64] = "integer", [DT_MEMBER_REAL] = "number", [DT_MEMBER_CHOICE] = "string",
        [DT_MEMBER_TEXT] = "string",    [DT_KEY_LIST] = "array",     [DT_KEY_NAMES] = "array",
        [DT_KEY_TABLE] = "array",
    };
    dt_jsonw_begin(w, key->path + dt_key_section(key) + 1, '{');
    dt_jsonw_string(w, "description", key->help);
    bool is_either = (key->type == DT_KEY_LIST || key->type == DT_MEMBER_INT) && key->choices;
    if (!is_either && !key->or_bool)
        dt_jsonw_string(w, "type", types[key->type]);
    if (key->type == DT_MEMBER_CHOICE) {
        print_choices(w, key);
    } else if (key->type == DT_KEY_NAMES) {
        dt_jsonw_add(w, "items: {type: %s", "string");
        if (key->choices)
            print_choices(w, key);
        else
            dt_jsonw_integer(w, "minLength", 1);
        dt_jsonw_close(w, '}');
    } else if (key->type == DT_MEMBER_TEXT) {
        dt_jsonw_add(w, "minLength: %d, maxLength: %d", key->min_length, key->max_length);
    } else if (is_either) {
        print_names_or(w, key, types[key->type]);
    } else if (key->or_bool) {
        dt_jsonw_add(w, "anyOf: [{type: %s}, {type: %s", "boolean", "integer");
        print_bounds(w, key);
        dt_jsonw_add(w, "}]");
    } else if (key->type == DT_KEY_LIST) {
        print_list(w, key);
    } else if (key->type == DT_KEY_TABLE) {
        print_columns(w, key);
    } else if (key->type != DT_MEMBER_BOOL) {
        print_bounds(w, key);
    }
    dt_key_print(w, "default", key, defaults);
    dt_jsonw_close(w, '}');
}

/* Every key in order, inside one JSON object per section: its value, or its schema with the value
 * as the default. */
static void print_keys(struct dt_jsonw *w, const struct dt_config *config, bool is_schema)
{
    for (size_t i = 0; i < dt_config_n_keys(); i++) {
        const struct dt_key *key = &dt_keys[i];
        const int section = dt_key_section(key);
        char name[DT_CONFIG_NAME_MAX];
        snprintf(name, sizeof name, "%.*s", section, key->path);
        if (dt_key_begins_section(key))
            dt_jsonw_begin(w, name, '{');
        if (dt_key_begins_section(key) && is_schema)
            dt_jsonw_begin(w, "properties", '{');
        if (is_schema)
            print_key_schema(w, key, config);
        else
            dt_key_print(w, key->path + section + 1, key, config);
        if (i + 1 < dt_config_n_keys() && !dt_key_begins_section(key + 1))
            continue;
        if (is_schema)
            close_schema_object(w);
        else
            dt_jsonw_close(w, '}');
    }
}

dt_status dt_config_print(char **text, const struct dt_config *config)
{
    struct dt_jsonw w = {.pretty = true};
    dt_jsonw_add(&w, "{format: %d", DT_CONFIG_FORMAT);
    print_keys(&w, config, false);
    dt_jsonw_close(&w, '}');
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK) {
        *text = w.text;
        w.text = NULL;
    }
    dt_jsonw_reset(&w);
    return status;
}

static dt_status put_file(FILE *out, const char *text)
{
    if (fputs(text, out) == EOF || fflush(out) == EOF)
        DT_FAIL(DT_ERR_IO, "cannot write the output: it was closed or the disk is full");
    return DT_OK;
}

dt_status dt_config_print_schema(FILE *out)
{
    struct dt_config defaults;
    struct dt_jsonw w = {.pretty = true};
    char title[128];
    snprintf(title, sizeof title, "Configuration of dtrain %s", dt_version);
    dt_config_init(&defaults);
    dt_jsonw_add(
        &w, "{$schema: %s, title: %s, properties: {format: {type: %s, minimum: %d, maximum: %d},",
        "https://json-schema.org/draft/2020-12/schema", title, "integer", 1, DT_CONFIG_FORMAT);
    print_keys(&w, &defaults, true);
    close_schema_object(&w);
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK)
        status = put_file(out, w.text);
    dt_jsonw_reset(&w);
    return status;
}

bool dt_config_key(struct dt_config_key *out, size_t i)
{
    static const char *const bools[] = {"true", "false", NULL};
    struct dt_config defaults;
    struct dt_jsonw w = {0};
    if (i >= dt_config_n_keys())
        return false;
    const struct dt_key *key = &dt_keys[i];
    dt_config_init(&defaults);
    *out = (struct dt_config_key){.path = key->path, .help = key->help};
    out->choices = key->type == DT_MEMBER_BOOL ? bools : key->choices;
    dt_key_expects(out->expects, sizeof out->expects, key);
    dt_jsonw_begin(&w, NULL, '[');
    dt_key_print(&w, NULL, key, &defaults);
    dt_jsonw_close(&w, ']');
    if (dt_jsonw_end(&w) == DT_OK)
        snprintf(out->value, sizeof out->value, "%.*s", (int)w.bytes - 2, w.text + 1);
    dt_jsonw_reset(&w);
    return true;
}

dt_status dt_config_print_help(FILE *out, const char *keys)
{
    struct dt_config_key key;
    char hint[512];
    size_t n_printed = 0, bytes = keys ? strlen(keys) : 0;
    const bool is_key = keys && dt_key_find(keys);
    for (size_t i = 0; dt_config_key(&key, i); i++) {
        if (keys && (is_key || bytes == 0 ? strcmp(key.path, keys) != 0
                                          : strncmp(key.path, keys, bytes) != 0))
            continue;
        if (!keys && dt_key_begins_section(&dt_keys[i]))
            fprintf(out, "%s## %.*s\n\n", i ? "\n" : "", dt_key_section(&dt_keys[i]), key.path);
        /* A line of Markdown, which also reads well on a terminal. */
        fprintf(out, "- `%s`: %s. Takes %s; default `%s`.\n", key.path, key.help, key.expects,
                key.value);
        n_printed++;
    }
    if (n_printed == 0)
        DT_FAIL(DT_ERR_USAGE, "%s: unknown key%s", keys, dt_key_suggest(hint, sizeof hint, keys));
    return put_file(out, "");
}
