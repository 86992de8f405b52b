/* A table of images: a CSV file with the columns path and label in its first line, in any order;
 * others are ignored. RFC 4180: fields in quotes may hold commas, line breaks and doubled quotes;
 * lines end in LF or CRLF, and a byte order mark of UTF-8 is skipped. Paths are relative to the
 * folder of the file. If all labels are integers, they are the labels; otherwise they are names,
 * and the labels their positions in byte-sorted order. All images must exist when the file is
 * opened, where it is read (struct dt_data_share). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/pulse.h"
#include "base/sort.h"
#include "base/text.h"
#include "data/dataset.h"

enum { MAX_BYTES = 1 << 30, MAX_COLUMNS = 256, PROGRESS_EVERY = 4096, COLUMNS_BYTES = 512 };

struct row {
    int32_t label;
    uint32_t line;
    uint64_t group; /* hash of the column that data.group names */
};

struct table {
    char path[DT_PATH_MAX];
    int folder_bytes;       /* of `path`, with the slash */
    struct dt_names files;  /* as written */
    struct dt_names labels; /* as written; only while the file is being opened */
    struct dt_names classes;
    struct row *rows;
    size_t capacity;
    bool has_names; /* the labels are not all integers */
};

/* The text that is being read, in place. */
struct text {
    const char *path;
    char *at;
    uint32_t line, row_line; /* where `at` is; where its row begins */
    size_t n_trimmed;        /* fields with blanks before or after them */
    char *fields[MAX_COLUMNS];
    int n_fields;
};

#define FAIL_AT(line, format, ...) \
    DT_FAIL(DT_ERR_DATA, "%s:%u: " format, text->path, (unsigned)(line), __VA_ARGS__)

/* --- The format --- */

static dt_status read_quoted(struct text *text, char **out)
{
    for (text->at++;; text->at++) {
        if (*text->at == '\0')
            FAIL_AT(text->row_line, "the quote before \"%.20s\" is not closed",
                    text->fields[text->n_fields - 1]);
        if (*text->at == '"' && *++text->at != '"')
            return DT_OK;
        text->line += *text->at == '\n';
        *(*out)++ = *text->at;
    }
}

/* Tables that were written by hand have blanks after commas. */
static void trim(struct text *text)
{
    char **field = &text->fields[text->n_fields - 1], *end = *field + strlen(*field);
    const char *begin = *field, *last = end;
    *field += strspn(begin, " \t");
    while (end > *field && strchr(" \t", end[-1]))
        *--end = '\0';
    text->n_trimmed += *field > begin || end < last;
}

static dt_status read_field(struct text *text, char *end)
{
    char *out = text->at;
    if (text->n_fields == MAX_COLUMNS)
        FAIL_AT(text->row_line, "more than %d columns", MAX_COLUMNS);
    text->fields[text->n_fields++] = out;
    if (*text->at == '"')
        DT_TRY(read_quoted(text, &out));
    else
        text->at = out += strcspn(text->at, ",\r\n");
    *end = *text->at;
    if (*end && !strchr(",\r\n", *end))
        FAIL_AT(text->line, "text after a closing quote: %.20s", text->at);
    if (*end == '\r' && text->at[1] == '\n')
        text->at++;
    text->at += *end != '\0';
    *out = '\0';
    trim(text);
    return DT_OK;
}

/* Lines without any text are skipped; n_fields is 0 at the end of the file. */
static dt_status read_row(struct text *text)
{
    char end = ',';
    do {
        text->n_fields = 0;
        text->row_line = text->line;
        if (*text->at == '\0')
            return DT_OK;
        do
            DT_TRY(read_field(text, &end));
        while (end == ',');
        text->line++;
    } while (text->n_fields == 1 && text->fields[0][0] == '\0');
    return DT_OK;
}

/* In quotes; those that are chosen and have a name. */
static const char *list_columns(char out[COLUMNS_BYTES], char *const *names, int n,
                                const bool *chosen)
{
    struct dt_text list = dt_text_in(out, COLUMNS_BYTES);
    for (int i = 0; i < n; i++)
        if (names[i] && (!chosen || chosen[i]))
            dt_text_add(&list, "%s\"%s\"", list.used ? ", " : "", names[i]);
    return out;
}

static dt_status find_column(int *column, const struct text *text, const char *name)
{
    for (int i = 0; i < text->n_fields; i++)
        if (strcmp(text->fields[i], name) == 0) {
            *column = i;
            return DT_OK;
        }
    char list[COLUMNS_BYTES];
    FAIL_AT(1,
            "no column \"%s\": the first line names %s; a table needs the columns path and label, "
            "separated by commas",
            name, list_columns(list, text->fields, text->n_fields, NULL));
}

/* Refuses columns that are not used but look like labels: more labels would be lost, also if each
 * has a column of 0 and 1. */
static dt_status check_columns(const struct text *text, char *const *names, int n,
                               const bool *is_flag)
{
    char list[COLUMNS_BYTES];
    for (int i = 0; i < n; i++)
        if (names[i] && strncmp(names[i], "label", 5) == 0 &&
            names[i][5 + strspn(names[i] + 5, "s_ 0123456789")] == '\0')
            FAIL_AT(1,
                    "the column \"%s\": an image has one label, in the column label; remove the "
                    "others, or give them other names",
                    names[i]);
    if (strstr(list_columns(list, names, n, is_flag), "\", \""))
        FAIL_AT(1,
                "the columns %s hold 0 and 1 only, like several labels: an image has one label, in "
                "the column label; remove them",
                list);
    if (list_columns(list, names, n, NULL)[0])
        dt_log(DT_LOG_NOTICE, "%s: columns that are not used: %s", text->path, list);
    return DT_OK;
}

/* --- Rows --- */

/* Values that pandas and other programs write for a missing one. */
static const char *const missing[] = {"nan", "NaN", "None", "NULL", "null",
                                      "NA",  "N/A", "n/a",  "<NA>"};

/* Whole numbers may have been written as reals: 1.0. */
static dt_status check_label(struct table *table, const struct text *text, const char *label)
{
    char *end;
    for (size_t i = 0; i < DT_COUNT(missing); i++)
        if (strcmp(label, missing[i]) == 0)
            FAIL_AT(text->row_line,
                    "the label \"%s\" stands for a missing value; leave the row out, or give the "
                    "class another name",
                    label);
    const bool has_digits = label[strspn(label, "-.0123456789")] == '\0';
    const double value = has_digits ? strtod(label, &end) : 0;
    const bool is_number = has_digits && *end == '\0';
    if (value != floor(value) && is_number)
        FAIL_AT(text->row_line, "the label %s is a fraction; labels are names or whole numbers",
                label);
    table->has_names |= !is_number;
    return DT_OK;
}

static dt_status read_rows(struct table *table, struct text *text, const char *group)
{
    int path_at = 0, label_at = 0, group_at = -1; /* gcc 14 does not see that they are found */
    DT_TRY(read_row(text));
    DT_TRY(find_column(&path_at, text, "path"));
    DT_TRY(find_column(&label_at, text, "label"));
    if (group[0] && !strchr(group, '('))
        DT_TRY(find_column(&group_at, text, group));
    const int n_columns = text->n_fields;
    char *names[MAX_COLUMNS];
    bool is_flag[MAX_COLUMNS] = {false};
    memcpy(names, text->fields, sizeof names);
    names[path_at] = names[label_at] = NULL;
    if (group_at >= 0)
        names[group_at] = NULL;
    for (size_t n = 0;; n++) {
        DT_TRY(read_row(text));
        if (text->n_fields == 0)
            return check_columns(text, names, n_columns, is_flag);
        if (text->n_fields != n_columns)
            FAIL_AT(text->row_line, "%d column(s), but the first line names %d", text->n_fields,
                    n_columns);
        const char *path = text->fields[path_at], *label = text->fields[label_at];
        if (!path[0] || !label[0])
            FAIL_AT(text->row_line, "the %s is empty", path[0] ? "label" : "path");
        if (strlen(path) + (size_t)table->folder_bytes >= DT_PATH_MAX)
            FAIL_AT(text->row_line, "a path of %zu bytes is too long", strlen(path));
        if (n >= DT_MAX_SAMPLES)
            FAIL_AT(text->row_line, "more than %d images", DT_MAX_SAMPLES);
        DT_TRY(DT_GROW(table->rows, table->capacity, n, "rows of a table"));
        table->rows[n].line = text->row_line;
        const char *own = group_at >= 0 ? text->fields[group_at] : "";
        table->rows[n].group = XXH64(own, strlen(own), 0);
        if (group_at >= 0 && !own[0])
            FAIL_AT(text->row_line, "the column %s of data.group is empty", group);
        DT_TRY(check_label(table, text, label));
        for (int i = 0; i < n_columns; i++)
            is_flag[i] = (n == 0 || is_flag[i]) &&
                         (!strcmp(text->fields[i], "0") || !strcmp(text->fields[i], "1"));
        DT_TRY(dt_names_add(&table->files, path, strlen(path)));
        DT_TRY(dt_names_add(&table->labels, label, strlen(label)));
        dt_pulse_beat(&dt_pulse_main);
    }
}

static dt_status read_table(struct table *table, const char *group)
{
    static const char mark[] = "\xef\xbb\xbf";
    char *content = NULL;
    size_t bytes = 0;
    DT_TRY(dt_file_load(&content, &bytes, table->path, MAX_BYTES));
    struct text text = {.path = table->path, .at = content, .line = 1};
    if (strncmp(content, mark, strlen(mark)) == 0)
        text.at += strlen(mark);
    dt_status status = DT_OK;
    if (strlen(content) != bytes)
        status = DT_ERROR(DT_ERR_DATA, "%s is not a text file", table->path);
    else
        status = read_rows(table, &text, group);
    free(content);
    if (status == DT_OK && text.n_trimmed > 0)
        dt_log(DT_LOG_NOTICE, "%s: blanks around %zu of its values are ignored", table->path,
               text.n_trimmed);
    return status;
}

/* --- Labels --- */

static dt_status number_labels(struct table *table, int *n_classes,
                               const struct dt_dataset_options *options)
{
    const int limited = dt_dataset_label_limit(options);
    const int limit = limited > 0 ? limited : DT_MAX_CLASSES;
    for (size_t i = 0; i < table->labels.n; i++) {
        const char *text = dt_names_get(&table->labels, i);
        const long long label = strtoll(text, NULL, 10) - options->data->label_offset;
        if (label < 0 || label >= limit)
            DT_FAIL(DT_ERR_DATA,
                    "%s:%u: label %s is out of range: with data.label_offset %d labels must be %d "
                    "to %lld",
                    table->path, (unsigned)table->rows[i].line, text, options->data->label_offset,
                    options->data->label_offset,
                    (long long)options->data->label_offset + limit - 1);
        table->rows[i].label = (int32_t)label;
        if (label >= *n_classes)
            *n_classes = (int)label + 1;
    }
    return DT_OK;
}

/* --- Files --- */

static void name_csv(const struct dt_dataset *dataset, uint32_t id, char *out, size_t bytes)
{
    const struct table *table = dataset->state;
    const char *file = dt_names_get(&table->files, id);
    snprintf(out, bytes, "%.*s%s", file[0] == '/' ? 0 : table->folder_bytes, table->path, file);
}

static uint64_t key_csv(const struct dt_dataset *dataset, uint32_t id, uint64_t seed)
{
    const char *file = dt_names_get(&((const struct table *)dataset->state)->files, id);
    return XXH64(file, strlen(file), seed);
}

static uint64_t group_csv(const struct dt_dataset *dataset, uint32_t id)
{
    return ((const struct table *)dataset->state)->rows[id].group;
}

/* Images that are listed more than once: the first, or all. */
static dt_status tell_repeated(const struct dt_dataset *dataset, bool lists_all)
{
    const struct table *table = dataset->state;
    size_t n = 0, n_other = 0; /* rows; with another label */
    uint64_t *keys;
    uint32_t *first;
    DT_TRY(DT_NEW(keys, dataset->n));
    for (uint32_t id = 0; id < dataset->n; id++)
        keys[id] = key_csv(dataset, id, 0);
    const dt_status status = dt_find_repeated(&first, keys, dataset->n);
    for (uint32_t id = 0; first && id < dataset->n; id++) {
        const struct row *row = &table->rows[id], *before = &table->rows[first[id]];
        if (row == before)
            continue;
        n_other += row->label != before->label;
        if (n++ == 0 || lists_all)
            dt_log(DT_LOG_NOTICE, "%s:%u: %s is also in line %u, with %s label", table->path,
                   (unsigned)row->line, dt_names_get(&table->files, id), (unsigned)before->line,
                   row->label == before->label ? "the same" : "another");
    }
    free(first);
    free(keys);
    if (n > 0)
        dt_log(
            DT_LOG_NOTICE,
            "%s: %zu of %zu rows name an image of an earlier row, %zu of them with another label",
            table->path, n, table->files.n, n_other);
    return status;
}

/* Adds name, size and label of each file to the fingerprint. Missing files are counted, to name
 * their number; any other problem ends the search. */
static dt_status check_files(struct dt_dataset *dataset, bool lists_all)
{
    const struct table *table = dataset->state;
    const double start_s = dt_clock_s();
    uint32_t n_missing = 0, first = 0;
    char path[DT_PATH_MAX];
    struct stat info;
    dataset->fingerprint = XXH64(table->classes.text, table->classes.bytes, 0);
    for (uint32_t id = 0; id < dataset->n; id++) {
        const struct row *row = &table->rows[id];
        const char *file = dt_names_get(&table->files, id);
        name_csv(dataset, id, path, sizeof path);
        const int error = stat(path, &info) ? errno : 0;
        const bool is_missing = error == ENOENT || error == ENOTDIR;
        if (is_missing && n_missing++ == 0)
            first = id;
        if (error && !is_missing)
            DT_FAIL(dt_file_input_status(error), "%s:%u: cannot stat %s: %s", table->path,
                    (unsigned)row->line, path, strerror(error));
        if (!error && !S_ISREG(info.st_mode))
            DT_FAIL(DT_ERR_DATA, "%s:%u: %s is not a regular file", table->path,
                    (unsigned)row->line, path);
        const uint64_t rest[] = {error ? 0 : (uint64_t)info.st_size, (uint64_t)row->label};
        dataset->fingerprint =
            XXH64(rest, sizeof rest, XXH64(file, strlen(file), dataset->fingerprint));
        dt_pulse_beat(&dt_pulse_main);
        if (id % PROGRESS_EVERY == PROGRESS_EVERY - 1)
            dt_log_progress_of("checking", id + 1, dataset->n, "images", start_s);
    }
    dt_log_progress("");
    if (n_missing)
        DT_FAIL(DT_ERR_NO_INPUT, "%u of %u images in %s are missing, the first in line %u: %s%s",
                (unsigned)n_missing, (unsigned)dataset->n, table->path,
                (unsigned)table->rows[first].line, dt_names_get(&table->files, first),
                strchr(dt_names_get(&table->files, first), '\\')
                    ? " (it has backslashes; folders end in /)"
                    : "");
    return tell_repeated(dataset, lists_all);
}

/* --- The kind --- */

static dt_status open_csv(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    struct table *table;
    DT_TRY(DT_NEW(table, 1));
    dataset->state = table;
    dataset->classes = &table->classes;
    DT_TRY(dt_file_path(table->path, "%s", options->path));
    table->folder_bytes = (int)(dt_file_base(table->path) - table->path);
    const bool splits = options->data->val_fraction > 0 && options->part != DT_PART_ALL;
    DT_TRY(read_table(table, splits ? options->data->group : ""));
    if (table->has_names) {
        DT_TRY(dt_names_add_unique(&table->classes, &table->labels));
        for (size_t i = 0; i < table->labels.n; i++)
            table->rows[i].label =
                (int32_t)dt_names_find(&table->classes, dt_names_get(&table->labels, i));
        dataset->n_classes = (int)table->classes.n;
    } else {
        DT_TRY(number_labels(table, &dataset->n_classes, options));
    }
    dt_names_reset(&table->labels);
    dataset->n = dataset->n_files = (uint32_t)table->files.n;
    return check_files(dataset, options->part == DT_PART_ALL);
}

static dt_status share_csv(struct dt_block *block, struct dt_dataset *dataset)
{
    struct table *table = dataset->state;
    dataset->classes = &table->classes;
    DT_BLOCK_VALUE(block, table->path);
    DT_BLOCK_VALUE(block, table->folder_bytes);
    dt_block_names(block, &table->files);
    dt_block_names(block, &table->classes);
    DT_BLOCK_ARRAY(block, table->rows, table->files.n);
    return DT_OK;
}

static void close_csv(struct dt_dataset *dataset)
{
    struct table *table = dataset->state;
    dt_names_reset(&table->files);
    dt_names_reset(&table->labels);
    dt_names_reset(&table->classes);
    free(table->rows);
    free(table);
}

static int label_csv(const struct dt_dataset *dataset, uint32_t id)
{
    return ((const struct table *)dataset->state)->rows[id].label;
}

const struct dt_dataset_kind dt_dataset_csv = {
    .suffix = ".csv",
    .open = open_csv,
    .read = dt_files_read,
    .forget = dt_files_forget,
    .label = label_csv,
    .name = name_csv,
    .file = name_csv,
    .key = key_csv,
    .group = group_csv,
    .share = share_csv,
    .state_bytes = sizeof(struct table),
    .close = close_csv,
};
