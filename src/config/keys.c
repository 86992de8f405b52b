/* The key table: one row for each key of the configuration. Loading, overrides, help, JSON Schema,
 * the dump and the tests all iterate over it. */
#include "config/keys.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

static_assert(sizeof(enum dt_source) == sizeof(int), "choices are stored as int");

#define SOURCE_NAME(upper, lower, help) #lower,
#define SOURCE_HELP(upper, lower, help) "; " #lower ": " help
#define SOURCES_HELP                    DT_SOURCE_LIST(SOURCE_HELP)
#define NAME(upper, name, ...)          #name,
#define SINK_NAME(name)                 #name,
#define WORDS(...)                      ((const char *const[]){__VA_ARGS__})
#define NUMBERS(...)                    ((const double[]){__VA_ARGS__})

#define STAGE(...) DT_MEMBER(struct dt_train_stage, INT, __VA_ARGS__)
static const struct dt_member stage_columns[] = {
    STAGE(epoch, "epoch", .max = 100000),
    STAGE(image_size, "image_size", .min = 8, .max = 2048, .is_optional = true),
    STAGE(batch, "batch", .min = 1, .max = 1 << 20, .is_optional = true),
};
static_assert(sizeof(struct dt_train_stage) == DT_COUNT(stage_columns) * sizeof(int), "as stored");

#define MAX_EXACT 9007199254740991.0 /* 2^53 - 1: integers up to here survive JSON */

#define FREE            .effect = DT_KEY_FREE
#define INEXACT         .effect = DT_KEY_INEXACT
#define LENGTH          .effect = DT_KEY_LENGTH
#define EVAL            .effect = DT_KEY_EVAL
#define DETECTORS(text) "Detectors: " text, .of_detectors = true

#define SECTION(section)
#define END(section)
#define ROW(section, member, kind, ...)                        \
    {.path = #section "." #member,                             \
     .type = (kind),                                           \
     .offset = offsetof(struct dt_config, section.member),     \
     .bytes = sizeof(((struct dt_config *)0)->section.member), \
     __VA_ARGS__},
#define NUMBER(section, member, kind, value, low, high, ...)                               \
    ROW(section, member, DT_MEMBER_##kind, .number = (value), .min = (low), .max = (high), \
        .help = __VA_ARGS__)
#define BOOL(section, member, value, ...) NUMBER(section, member, BOOL, value, 0, 1, __VA_ARGS__)
#define INT(section, member, ...)         NUMBER(section, member, INT, __VA_ARGS__)
#define INT64(section, member, value, ...) \
    NUMBER(section, member, INT64, value, 0, MAX_EXACT, __VA_ARGS__)
#define UINT64(section, member, value, ...) \
    NUMBER(section, member, UINT64, value, 0, MAX_EXACT, __VA_ARGS__)
#define REAL(section, member, ...) NUMBER(section, member, REAL, __VA_ARGS__)
#define POSITIVE(section, member, value, high, ...) \
    REAL(section, member, value, 0, high, __VA_ARGS__, .above_min = true)
#define FRACTION(section, member, value, ...) \
    REAL(section, member, value, 0, 1, __VA_ARGS__, .below_max = true)
#define CHOICE(section, member, type, value, names, ...)                                \
    NUMBER(section, member, CHOICE, value, 0, (double)DT_COUNT(names) - 2, __VA_ARGS__, \
           .choices = (names))
#define TEXT(section, member, bytes, value, shortest, ...)                          \
    ROW(section, member, DT_MEMBER_TEXT, .text = (value), .min_length = (shortest), \
        .max_length = (bytes)-1, .help = __VA_ARGS__)
#define NAMES(section, member, bytes, value, ...)                                \
    ROW(section, member, DT_KEY_NAMES, .text = (value), .max_length = (bytes)-1, \
        .help = __VA_ARGS__)
#define RGB(section, member, values, ...)                                               \
    ROW(section, member, DT_KEY_LIST, .items = (values), .n_items = 3, .min_length = 3, \
        .max_length = 3, .max = 1, .help = __VA_ARGS__)
#define LIST(section, member, longest, high, ...)                                      \
    ROW(section, member, DT_KEY_LIST, .max_length = (longest),                         \
        .count_offset = offsetof(struct dt_config, section.n_##member), .max = (high), \
        .help = __VA_ARGS__)
#define TABLE(section, member, type_, longest, cells, ...)                                       \
    ROW(section, member, DT_KEY_TABLE, .columns = (cells), .n_columns = DT_COUNT(cells),         \
        .max_length = (longest), .count_offset = offsetof(struct dt_config, section.n_##member), \
        .help = __VA_ARGS__)

const struct dt_key dt_keys[] = {
#include "dtrain/config_keys.h"
};

size_t dt_config_n_keys(void)
{
    return DT_COUNT(dt_keys);
}

const struct dt_key *dt_key_find(const char *path)
{
    for (size_t i = 0; i < DT_COUNT(dt_keys); i++)
        if (strcmp(dt_keys[i].path, path) == 0)
            return &dt_keys[i];
    return NULL;
}

int dt_key_section(const struct dt_key *key)
{
    return (int)strcspn(key->path, ".");
}

bool dt_key_begins_section(const struct dt_key *key)
{
    size_t bytes = (size_t)dt_key_section(key) + 1;
    return key == dt_keys || strncmp(key->path, key[-1].path, bytes) != 0;
}

bool dt_key_is_section(const char *name)
{
    size_t bytes = strlen(name);
    for (size_t i = 0; i < DT_COUNT(dt_keys); i++)
        if ((size_t)dt_key_section(&dt_keys[i]) == bytes &&
            strncmp(dt_keys[i].path, name, bytes) == 0)
            return true;
    return false;
}

double dt_key_get_number(const struct dt_key *key, const struct dt_config *config)
{
    return dt_member_number(key->type, (const char *)config + key->offset);
}

void dt_key_set_number(const struct dt_key *key, struct dt_config *config, double value)
{
    dt_member_set_number(key->type, (char *)config + key->offset, value);
}

/* Items that are not used are 0; no stages are the same as one that changes nothing. */
bool dt_key_is_same(const struct dt_key *key, const struct dt_config *a, const struct dt_config *b)
{
    const char *x = (const char *)a, *y = (const char *)b;
    if (key->type == DT_MEMBER_TEXT || key->type == DT_KEY_NAMES)
        return strcmp(x + key->offset, y + key->offset) == 0;
    if (key->type != DT_KEY_LIST && key->type != DT_KEY_TABLE)
        return dt_key_get_number(key, a) == dt_key_get_number(key, b);
    return memcmp(x + key->offset, y + key->offset, key->bytes) == 0 &&
           (key->type == DT_KEY_TABLE || key->count_offset == 0 ||
            memcmp(x + key->count_offset, y + key->count_offset, sizeof(int)) == 0);
}

const char *dt_key_get_string(const struct dt_key *key, const struct dt_config *config)
{
    return (const char *)config + key->offset;
}

const double *dt_key_get_list(const struct dt_key *key, const struct dt_config *config,
                              int *n_items)
{
    const char *base = (const char *)config;
    *n_items = key->count_offset ? *(const int *)(base + key->count_offset) : key->max_length;
    return (const double *)(base + key->offset);
}

void dt_key_set_list(const struct dt_key *key, struct dt_config *config, const double *items,
                     int n_items)
{
    char *base = (char *)config;
    memset(base + key->offset, 0, (size_t)key->max_length * sizeof(double));
    if (n_items > 0)
        memcpy(base + key->offset, items, (size_t)n_items * sizeof(double));
    if (key->count_offset)
        *(int *)(base + key->count_offset) = n_items;
}

int *dt_key_table(const struct dt_key *key, const struct dt_config *config, int *n_rows)
{
    const char *base = (const char *)config;
    *n_rows = *(const int *)(base + key->count_offset);
    return (int *)(base + key->offset);
}

const struct dt_member *dt_key_column(const struct dt_key *key, const char *name)
{
    for (int i = 0; name && i < key->n_columns; i++)
        if (strcmp(key->columns[i].name, name) == 0)
            return &key->columns[i];
    return NULL;
}

void dt_config_init(struct dt_config *config)
{
    memset(config, 0, sizeof(*config)); /* padding too: ranks compare the bytes */
    for (const struct dt_key *key = dt_keys; key < dt_keys + DT_COUNT(dt_keys); key++) {
        if (key->type == DT_MEMBER_TEXT || key->type == DT_KEY_NAMES)
            snprintf((char *)config + key->offset, (size_t)key->max_length + 1, "%s", key->text);
        else if (key->type == DT_KEY_LIST)
            dt_key_set_list(key, config, key->items, key->n_items);
        else if (key->type != DT_KEY_TABLE) /* empty */
            dt_key_set_number(key, config, key->number);
    }
}

const char *dt_key_format(char out[32], double value)
{
    if (value == trunc(value) && fabs(value) < 1e17)
        snprintf(out, 32, "%.0f", value);
    else
        snprintf(out, 32, "%.9g", value);
    return out;
}

/* "from 0 to 1", "above 0, up to 1", "from 0, below 1". */
static void format_range(char *out, size_t bytes, const struct dt_key *key)
{
    char min[32], max[32];
    bool open = key->above_min || key->below_max;
    snprintf(out, bytes, "%s %s%s%s %s", key->above_min ? "above" : "from",
             dt_key_format(min, key->min), open ? "," : "",
             key->below_max ? " below"
             : open         ? " up to"
                            : " to",
             dt_key_format(max, key->max));
}

static void format_choices(struct dt_text *text, const struct dt_key *key, const char *what)
{
    dt_text_add(text, "%s", what);
    for (const char *const *name = key->choices; *name; name++)
        dt_text_add(text, " \"%s\"%s", *name, name[1] ? "," : "");
}

const char *dt_column_expects(char *out, size_t bytes, const struct dt_member *column)
{
    snprintf(out, bytes, "an integer from %d to %d", (int)column->min, (int)column->max);
    return out;
}

static void format_columns(struct dt_text *text, const struct dt_key *key)
{
    char range[64];
    dt_text_add(text, "a list of at most %d objects with", key->max_length);
    for (int i = 0; i < key->n_columns; i++)
        dt_text_add(text, "%s \"%s\" (%s%s)", i > 0 ? "," : "", key->columns[i].name,
                    dt_column_expects(range, sizeof range, &key->columns[i]),
                    key->columns[i].is_optional ? ", optional" : "");
}

const char *dt_key_expects(char *out, size_t bytes, const struct dt_key *key)
{
    char range[96];
    struct dt_text text = dt_text_in(out, bytes);
    format_range(range, sizeof(range), key);
    switch (key->type) {
    case DT_MEMBER_BOOL:
        dt_text_add(&text, "true or false");
        break;
    case DT_MEMBER_REAL:
        dt_text_add(&text, "a number %s", range);
        break;
    case DT_MEMBER_CHOICE:
        format_choices(&text, key, "one of");
        break;
    case DT_MEMBER_TEXT:
        dt_text_add(&text, "a string of %s%d bytes", key->min_length ? "1 to " : "at most ",
                    key->max_length);
        break;
    case DT_KEY_NAMES:
        if (key->choices)
            format_choices(&text, key, "a list of some of");
        else
            dt_text_add(&text, "a list of strings of at most %d bytes together", key->max_length);
        break;
    case DT_KEY_TABLE:
        format_columns(&text, key);
        break;
    case DT_KEY_LIST:
        if (key->choices)
            format_choices(&text, key, "one of");
        dt_text_add(&text, "%sa list of %s%d numbers %s", key->choices ? ", or " : "",
                    key->count_offset ? "at most " : "", key->max_length, range);
        break;
    default:
        for (const char *const *name = key->choices; name && *name; name++)
            dt_text_add(&text, "\"%s\" or ", *name);
        dt_text_add(&text, "%san integer %s", key->or_bool ? "true, false or " : "", range);
    }
    return out;
}
