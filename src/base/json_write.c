/* The JSON writer. With `pretty`, objects are spread over several lines; arrays, which here are
 * short lists of numbers, stay on one line. Bytes that are not UTF-8 (possible in file names)
 * become U+FFFD, so the output always parses. */
#include "base/json.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

enum { INDENT = 2 };

static void put(struct dt_jsonw *w, const char *text, size_t bytes)
{
    if (w->failed)
        return;
    w->failed = DT_GROW(w->text, w->capacity, w->bytes + bytes + 1, "JSON text") != DT_OK;
    if (w->failed)
        return;
    memcpy(w->text + w->bytes, text, bytes);
    w->bytes += bytes;
    w->text[w->bytes] = '\0';
}

static void put_text(struct dt_jsonw *w, const char *text)
{
    put(w, text, strlen(text));
}

static void put_line_break(struct dt_jsonw *w)
{
    if (!w->pretty || w->array_depth)
        return;
    put_text(w, "\n");
    for (int i = 0; i < w->depth * INDENT; i++)
        put_text(w, " ");
}

static void put_string(struct dt_jsonw *w, const char *value)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    size_t left = strlen(value);
    put_text(w, "\"");
    while (left > 0) {
        char escape[8];
        size_t n = dt_utf8_length(value, left);
        const char *short_form = strchr(plain, *value);
        if (n == 0) {
            put_text(w, "\xef\xbf\xbd");
            n = 1;
        } else if (short_form) {
            put(w, (const char[]){'\\', letters[short_form - plain]}, 2);
        } else if ((unsigned char)*value < 0x20) {
            snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)*value);
            put_text(w, escape);
        } else {
            put(w, value, n);
        }
        value += n;
        left -= n;
    }
    put_text(w, "\"");
}

/* Writes everything before a value: comma, line break, key. */
static void put_key(struct dt_jsonw *w, const char *key)
{
    if (w->need_comma)
        put_text(w, w->pretty && w->array_depth ? ", " : ",");
    if (w->depth > 0)
        put_line_break(w);
    if (key) {
        put_string(w, key);
        put_text(w, w->pretty ? ": " : ":");
    }
    w->need_comma = true;
}

void dt_jsonw_begin(struct dt_jsonw *w, const char *key, char bracket)
{
    put_key(w, key);
    put(w, &bracket, 1);
    w->depth++;
    w->need_comma = false;
    if (bracket == '[' && w->array_depth == 0)
        w->array_depth = w->depth;
}

void dt_jsonw_close(struct dt_jsonw *w, char bracket)
{
    bool empty = !w->need_comma;
    if (w->array_depth == w->depth && bracket == ']') {
        w->array_depth = 0;
        w->depth--;
    } else {
        w->depth--;
        if (!empty)
            put_line_break(w);
    }
    put(w, &bracket, 1);
    w->need_comma = true;
}

void dt_jsonw_string(struct dt_jsonw *w, const char *key, const char *value)
{
    put_key(w, key);
    put_string(w, value);
}

void dt_jsonw_integer(struct dt_jsonw *w, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRId64, value);
    put_key(w, key);
    put_text(w, text);
}

void dt_jsonw_number(struct dt_jsonw *w, const char *key, double value)
{
    char text[32] = "null";
    bool integral = fabs(value) < 1e15 && value == trunc(value);
    if (integral)
        snprintf(text, sizeof(text), "%.0f", value); /* "100", where %g would give "1e+02" */
    for (int digits = 1; isfinite(value) && !integral && digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    put_key(w, key);
    put_text(w, text);
}

void dt_jsonw_bool(struct dt_jsonw *w, const char *key, bool value)
{
    put_key(w, key);
    put_text(w, value ? "true" : "false");
}

/* Writes a bracket, or the argument that belongs to a conversion. */
static void add_word(struct dt_jsonw *w, const char *key, const char *word, va_list *args)
{
    if (strchr("{[", word[0]))
        dt_jsonw_begin(w, key, word[0]);
    else if (strchr("}]", word[0]))
        dt_jsonw_close(w, word[0]);
    else if (strcmp(word, "%s") == 0)
        dt_jsonw_string(w, key, va_arg(*args, const char *));
    else if (strcmp(word, "%g") == 0)
        dt_jsonw_number(w, key, va_arg(*args, double));
    else if (strcmp(word, "%hhd") == 0)
        dt_jsonw_bool(w, key, va_arg(*args, int));
    else if (strcmp(word, "%d") == 0)
        dt_jsonw_integer(w, key, va_arg(*args, int));
    else if (strcmp(word, "%u") == 0)
        dt_jsonw_integer(w, key, va_arg(*args, unsigned));
    else
        dt_jsonw_integer(w, key, va_arg(*args, int64_t));
}

void dt_jsonw_add(struct dt_jsonw *w, const char *format, ...)
{
    char key[64] = "", word[64];
    va_list args;
    va_start(args, format);
    for (format += strspn(format, " ,"); *format; format += strspn(format, " ,")) {
        const size_t n = strchr("{}[]", *format) ? 1 : strcspn(format, " ,:}]");
        const bool is_key = format[n] == ':';
        snprintf(is_key ? key : word, sizeof word, "%.*s", (int)n, format);
        format += n + is_key;
        if (is_key)
            continue;
        add_word(w, key[0] ? key : NULL, word, &args);
        key[0] = '\0';
    }
    va_end(args);
}

void dt_jsonw_raw(struct dt_jsonw *w, const char *key, const char *json)
{
    bool in_string = false;
    put_key(w, key);
    for (; *json; json++) {
        if (!in_string && strchr(" \t\r\n", *json))
            continue;
        if (*json == '"')
            in_string = !in_string;
        bool escape = *json == '\\' && json[1];
        put(w, json, escape ? 2 : 1);
        json += escape;
    }
}

dt_status dt_jsonw_end(struct dt_jsonw *w)
{
    if (w->pretty)
        put_text(w, "\n");
    if (w->failed)
        DT_FAIL(DT_ERR_MEMORY, "out of memory while writing JSON");
    if (w->depth != 0)
        DT_FAIL(DT_ERR_INTERNAL, "JSON text ended with %d open brackets", w->depth);
    return DT_OK;
}

static int output = STDOUT_FILENO;

void dt_jsonw_take_stdout(void)
{
    const int copy = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (copy >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0)
        output = copy;
}

dt_status dt_jsonw_save(struct dt_jsonw *w, const char *path)
{
    dt_status status = dt_jsonw_end(w);
    if (status == DT_OK && strcmp(path, "-") == 0)
        status = dt_file_write(output, w->text, w->bytes, "standard output");
    else if (status == DT_OK)
        status = dt_file_save(path, w->text, w->bytes);
    dt_jsonw_reset(w);
    return status;
}

void dt_jsonw_reset(struct dt_jsonw *w)
{
    free(w->text);
    *w = (struct dt_jsonw){.pretty = w->pretty};
}
