/* The strict scan: a recursive descent over the bytes that only records the positions of the
 * values. It rejects what cJSON lets through (byte-order mark, bad UTF-8, control characters,
 * \u0000, lone surrogates, numbers like 01 or 1e999, trailing text) and everything beyond the
 * limits, so cJSON only ever sees clean, small, shallow text. */
#include "base/json_scan.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"

enum { KEY_SHOWN = 64 };

struct scanner {
    const char *text;
    size_t bytes, at, line_start;
    int line, depth;
    struct {
        size_t at, bytes;          /* of the text between its quotes; 0 bytes: none */
    } keys[DT_JSON_DEPTH_MAX + 1]; /* of the value being read, by depth */
    const char *source;
    int max_values;
    struct dt_json_place *places;
    size_t n_values, capacity;
};

static dt_status scan_value(struct scanner *s);

/* "train.epochs: ", from the keys as written. */
static void print_path(char *out, size_t bytes, const struct scanner *s)
{
    struct dt_text text = dt_text_in(out, bytes);
    for (int i = 1; i <= s->depth && i <= DT_JSON_DEPTH_MAX; i++) {
        int n = s->keys[i].bytes < KEY_SHOWN ? (int)s->keys[i].bytes : KEY_SHOWN;
        if (n > 0)
            dt_text_add(&text, "%s%.*s", text.used ? "." : "", n, s->text + s->keys[i].at);
    }
    if (text.used > 0)
        dt_text_add(&text, ": ");
}

/* An error at the current byte. */
static dt_status refuse_text(const struct scanner *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static dt_status refuse_text(const struct scanner *s, const char *format, ...)
{
    char what[256], path[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    print_path(path, sizeof(path), s);
    DT_FAIL(DT_ERR_DATA, "%s:%d:%zu: %s%s", s->source, s->line, s->at - s->line_start + 1, path,
            what);
}

static int peek(const struct scanner *s)
{
    return s->at < s->bytes ? (unsigned char)s->text[s->at] : -1;
}

/* Reports what was found at the current byte and, if there is one, the likely cause. */
static dt_status refuse_here(const struct scanner *s, const char *expected)
{
    int c = peek(s);
    const char *hint = "";
    if (c < 0)
        return refuse_text(s, "expected %s, but the text ends here", expected);
    if (c == '/' || c == '#')
        hint = "; JSON has no comments, use a key \"_comment\"";
    else if (c == '\'')
        hint = "; JSON strings need double quotes";
    else if (c == 'N' || c == 'I' || c == '+' || c == '.')
        hint = "; JSON numbers look like -1, 0.5 or 1e-4";
    if (c > 0x20 && c < 0x7f)
        return refuse_text(s, "expected %s, got '%c'%s", expected, c, hint);
    return refuse_text(s, "expected %s, got byte 0x%02x", expected, c);
}

static void skip_space(struct scanner *s)
{
    for (; s->at < s->bytes; s->at++) {
        char c = s->text[s->at];
        if (c == '\n') {
            s->line++;
            s->line_start = s->at + 1;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            return;
        }
    }
}

/* The four digits after "\u"; -1 if they are not hexadecimal. */
static int hex4(const struct scanner *s, size_t at)
{
    char digits[5] = "";
    if (at + 4 > s->bytes)
        return -1;
    memcpy(digits, s->text + at, 4);
    for (int i = 0; i < 4; i++)
        if (!isxdigit((unsigned char)digits[i]))
            return -1;
    return (int)strtol(digits, NULL, 16);
}

static dt_status scan_unicode_escape(struct scanner *s)
{
    int code = hex4(s, s->at + 2);
    if (code < 0)
        return refuse_text(s, "\\u needs four hexadecimal digits");
    if (code == 0)
        return refuse_text(s, "\\u0000 in a string");
    size_t n = 6;
    if (code >= 0xd800 && code <= 0xdfff) {
        bool pair = code <= 0xdbff && s->at + 8 <= s->bytes && s->text[s->at + 6] == '\\' &&
                    s->text[s->at + 7] == 'u';
        int low = pair ? hex4(s, s->at + 8) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return refuse_text(s, "half of a surrogate pair in a string");
        n = 12;
    }
    s->at += n;
    return DT_OK;
}

static dt_status scan_string(struct scanner *s)
{
    struct scanner start = *s;
    for (s->at++; peek(s) != '"';) {
        int c = peek(s);
        if (c < 0)
            return refuse_text(&start, "string without a closing quote; is the text complete?");
        if (c < 0x20)
            return refuse_text(s, "control character 0x%02x in a string (write it as an escape)",
                               c);
        if (s->at - start.at > DT_JSON_STRING_MAX)
            return refuse_text(&start, "string of more than %d bytes", DT_JSON_STRING_MAX);
        if (c != '\\') {
            size_t n = dt_utf8_length(s->text + s->at, s->bytes - s->at);
            if (n == 0)
                return refuse_text(s, "byte 0x%02x is not UTF-8", c);
            s->at += n;
            continue;
        }
        int escape = s->at + 1 < s->bytes ? (unsigned char)s->text[s->at + 1] : -1;
        if (escape == 'u') {
            DT_TRY(scan_unicode_escape(s));
        } else if (escape > 0 && strchr("\"\\/bfnrt", escape)) {
            s->at += 2;
        } else {
            return refuse_text(s,
                               "unknown escape in a string (known: \\\" \\\\ \\/ \\b \\f \\n \\r "
                               "\\t \\uXXXX)");
        }
    }
    s->at++;
    return DT_OK;
}

static size_t skip_digits(struct scanner *s)
{
    size_t start = s->at;
    while (isdigit(peek(s)))
        s->at++;
    return s->at - start;
}

static dt_status scan_number(struct scanner *s)
{
    struct scanner start = *s;
    if (peek(s) == '-')
        s->at++;
    size_t first = s->at;
    size_t n_digits = skip_digits(s);
    if (n_digits == 0)
        return refuse_here(s, "a digit");
    if (n_digits > 1 && s->text[first] == '0')
        return refuse_text(&start, "number with a leading zero");
    if (peek(s) == '.') {
        s->at++;
        if (skip_digits(s) == 0)
            return refuse_here(s, "a digit after the decimal point");
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (skip_digits(s) == 0)
            return refuse_here(s, "a digit in the exponent");
    }
    char copy[DT_JSON_NUMBER_MAX + 1] = "";
    if (s->at - start.at >= sizeof(copy)) /* cJSON would truncate it silently */
        return refuse_text(&start, "number of more than %d characters", DT_JSON_NUMBER_MAX);
    memcpy(copy, s->text + start.at, s->at - start.at);
    if (!isfinite(strtod(copy, NULL)))
        return refuse_text(&start, "number %s is too large", copy);
    return DT_OK;
}

static dt_status scan_literal(struct scanner *s)
{
    static const char *const literals[] = {"true", "false", "null"};
    for (size_t i = 0; i < DT_COUNT(literals); i++) {
        size_t n = strlen(literals[i]);
        if (s->bytes - s->at >= n && memcmp(s->text + s->at, literals[i], n) == 0) {
            s->at += n;
            return DT_OK;
        }
    }
    return refuse_here(s, "a value");
}

/* "key": before a value. */
static dt_status scan_key(struct scanner *s)
{
    if (peek(s) != '"')
        return refuse_here(s, "a key in double quotes");
    size_t start = s->at + 1;
    DT_TRY(scan_string(s));
    s->keys[s->depth].at = start;
    s->keys[s->depth].bytes = s->at - start - 1;
    skip_space(s);
    if (peek(s) != ':')
        return refuse_here(s, "':' after the key");
    s->at++;
    skip_space(s);
    return DT_OK;
}

/* Members of an object or items of an array, between the brackets. */
static dt_status scan_container(struct scanner *s, char closing)
{
    bool object = closing == '}';
    struct scanner start = *s;
    if (++s->depth > DT_JSON_DEPTH_MAX)
        return refuse_text(s, "nested more than %d deep", DT_JSON_DEPTH_MAX);
    s->keys[s->depth].bytes = 0;
    s->at++;
    skip_space(s);
    for (bool first = true; peek(s) != closing || !first; first = false) {
        if (object)
            DT_TRY(scan_key(s));
        DT_TRY(scan_value(s));
        s->keys[s->depth].bytes = 0;
        skip_space(s);
        if (peek(s) == closing)
            break;
        if (peek(s) < 0)
            return refuse_text(&start, "'%c' without its '%c'", object ? '{' : '[', closing);
        if (peek(s) != ',')
            return refuse_here(s, object ? "',' or '}'" : "',' or ']'");
        s->at++;
        skip_space(s);
        if (peek(s) == closing)
            return refuse_text(s, "comma before '%c'", closing);
    }
    s->at++;
    s->depth--;
    return DT_OK;
}

static dt_status scan_value(struct scanner *s)
{
    int c = peek(s);
    if (s->n_values >= (size_t)s->max_values)
        return refuse_text(s, "more than %d values", s->max_values);
    void *places = s->places;
    DT_TRY(dt_mem_grow(&places, &s->capacity, s->n_values, sizeof(*s->places), "JSON places"));
    s->places = places;
    s->places[s->n_values].line = s->line;
    s->places[s->n_values++].column = (int)(s->at - s->line_start + 1);
    if (c == '{')
        return scan_container(s, '}');
    if (c == '[')
        return scan_container(s, ']');
    if (c == '"')
        return scan_string(s);
    if (c == '-' || isdigit(c))
        return scan_number(s);
    return scan_literal(s);
}

static dt_status scan_text(struct scanner *s)
{
    if (s->bytes >= 3 && memcmp(s->text, "\xef\xbb\xbf", 3) == 0)
        return refuse_text(s, "the text begins with a byte-order mark; save it as plain UTF-8");
    skip_space(s);
    DT_TRY(scan_value(s));
    skip_space(s);
    if (s->at != s->bytes)
        return refuse_here(s, "the end of the text");
    return DT_OK;
}

dt_status dt_json_scan(struct dt_json_place **places, int *n_values, const char *text, size_t bytes,
                       const char *source, int max_values)
{
    struct scanner s = {
        .text = text, .bytes = bytes, .line = 1, .source = source, .max_values = max_values};
    dt_status status = scan_text(&s);
    if (status != DT_OK) {
        free(s.places);
        return dt_error_pass(status, __func__, __FILE__, __LINE__);
    }
    *places = s.places;
    *n_values = (int)s.n_values;
    return DT_OK;
}
