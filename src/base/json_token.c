#include "base/json_token.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

static const char *skip_digits(const char *at)
{
    while (*at >= '0' && *at <= '9')
        at++;
    return at;
}

/* The end of the number at s->at. */
static dt_status scan_number(const struct dt_json_buffer *s, const char **end)
{
    const char *at = s->at + (*s->at == '-'), *first = at;
    at = skip_digits(first);
    if (at == first)
        return dt_json_buffer_refuse(s, at, "a digit");
    if (at - first > 1 && *first == '0')
        DT_JSON_FAIL_AT(s, s->at, "number with a leading zero");
    if (*at == '.') {
        first = ++at;
        at = skip_digits(first);
        if (at == first)
            return dt_json_buffer_refuse(s, at, "a digit after the decimal point");
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        first = at += *at == '+' || *at == '-';
        at = skip_digits(first);
        if (at == first)
            return dt_json_buffer_refuse(s, at, "a digit in the exponent");
    }
    if (at - s->at > DT_JSON_NUMBER_MAX)
        DT_JSON_FAIL_AT(s, s->at, "number of more than %d characters", DT_JSON_NUMBER_MAX);
    *end = at;
    return DT_OK;
}

/* A number of at most 15 digits is an integer that a double holds exactly, divided by a power of
 * ten that it also holds exactly: the one rounding of the division gives what strtod does. */
static bool convert_short(double *value, const char *text, const char *end)
{
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const bool is_negative = *text == '-';
    const char *point = NULL;
    int64_t digits = 0;
    text += is_negative;
    if (end - text > 15)
        return false;
    for (const char *at = text; at < end; at++) {
        if (*at == '.')
            point = at;
        else if (*at >= '0' && *at <= '9')
            digits = digits * 10 + (*at - '0');
        else
            return false;
    }
    const double whole = (double)digits / powers[point ? end - point - 1 : 0];
    *value = is_negative ? -whole : whole;
    return true;
}

dt_status dt_json_take_number(struct dt_json_buffer *s, double *value)
{
    char copy[DT_JSON_NUMBER_MAX + 1] = "";
    const char *end = s->at;
    DT_TRY(scan_number(s, &end));
    if (!convert_short(value, s->at, end)) {
        memcpy(copy, s->at, (size_t)(end - s->at));
        *value = strtod(copy, NULL);
        if (!isfinite(*value))
            DT_JSON_FAIL_AT(s, s->at, "number %s is too large", copy);
    }
    s->at = end;
    return DT_OK;
}

/* The four digits of \uXXXX; -1 if they are not hexadecimal. A NUL ends them at the latest. */
static int32_t hex4(const char *at)
{
    int32_t code = 0;
    for (int i = 0; i < 4; i++) {
        const int c = (unsigned char)at[i];
        if (!isxdigit(c))
            return -1;
        code = code * 16 + (isdigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return code;
}

static int put_utf8(char *out, int32_t code)
{
    if (code < 0x80)
        return out[0] = (char)code, 1;
    const int n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00 >> n) | code);
    return n;
}

/* \uXXXX, or a pair of them, at s->at. Writes at most 4 bytes. */
static dt_status take_unicode(struct dt_json_buffer *s, char *out, int *n)
{
    int32_t code = hex4(s->at + 2);
    size_t bytes = 6;
    if (code < 0)
        DT_JSON_FAIL_AT(s, s->at, "\\u needs four hexadecimal digits");
    if (code == 0)
        DT_JSON_FAIL_AT(s, s->at, "\\u0000 in a string");
    if (code >= 0xd800 && code <= 0xdfff) {
        const bool is_pair = code <= 0xdbff && s->at[6] == '\\' && s->at[7] == 'u';
        const int32_t low = is_pair ? hex4(s->at + 8) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            DT_JSON_FAIL_AT(s, s->at, "half of a surrogate pair in a string");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        bytes = 12;
    }
    s->at += bytes;
    *n = put_utf8(out, code);
    return DT_OK;
}

static dt_status take_escape(struct dt_json_buffer *s, char *out, int *n)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char c = s->at[1], *found = c ? strchr(letters, c) : NULL;
    if (c == 'u')
        return take_unicode(s, out, n);
    if (!found)
        DT_JSON_FAIL_AT(
            s, s->at,
            "unknown escape in a string (known: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX)");
    *out = meant[found - letters];
    *n = 1;
    s->at += 2;
    return DT_OK;
}

/* What is not plain ASCII at s->at in a string: an escape, or a character of several bytes; at most
 * 4 bytes go to `out`. */
static dt_status take_special(struct dt_json_buffer *s, char *out, int *n, uint64_t begin)
{
    const int c = (unsigned char)*s->at;
    if (c == '\0' && s->at == s->end)
        return dt_json_buffer_fail(s, begin, "string without a closing quote; is the text complete?");
    if (c < 0x20)
        DT_JSON_FAIL_AT(s, s->at, "control character 0x%02x in a string (write it as an escape)",
                        (unsigned)c);
    if (c == '\\')
        return take_escape(s, out, n);
    *n = (int)dt_utf8_length(s->at, (size_t)(s->end - s->at));
    if (*n == 0)
        DT_JSON_FAIL_AT(s, s->at, "byte 0x%02x is not UTF-8", (unsigned)c);
    memcpy(out, s->at, (size_t)*n);
    s->at += *n;
    return DT_OK;
}

static bool is_plain(char c)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x80 && c != '"' && c != '\\';
}

dt_status dt_json_take_string(struct dt_json_buffer *s, char out[DT_JSON_STRING_MAX + 1],
                              size_t *bytes)
{
    const char *begin = s->at++;
    size_t used = 0;
    while (*s->at != '"') {
        char special[4];
        int n = 1;
        if (is_plain(*s->at))
            special[0] = *s->at++;
        else
            DT_TRY(take_special(s, special, &n, dt_json_buffer_offset(s, begin)));
        if (used + (size_t)n > DT_JSON_STRING_MAX)
            DT_JSON_FAIL_AT(s, begin, "string of more than %d bytes", DT_JSON_STRING_MAX);
        memcpy(out + used, special, (size_t)n);
        used += (size_t)n;
    }
    s->at++;
    out[used] = '\0';
    *bytes = used;
    return DT_OK;
}

dt_status dt_json_skip_string(struct dt_json_buffer *s)
{
    const uint64_t begin = dt_json_buffer_offset(s, s->at);
    char ignored[4];
    int n;
    for (s->at++;;) {
        while (is_plain(*s->at))
            s->at++;
        if (*s->at == '"')
            break;
        DT_TRY(dt_json_buffer_have(s));
        if (!is_plain(*s->at) && *s->at != '"')
            DT_TRY(take_special(s, ignored, &n, begin));
    }
    s->at++;
    return DT_OK;
}

dt_status dt_json_skip_literal(struct dt_json_buffer *s)
{
    static const char *const literals[] = {"true", "false", "null"};
    for (size_t i = 0; i < DT_COUNT(literals); i++) {
        const size_t n = strlen(literals[i]);
        if (strncmp(s->at, literals[i], n) == 0) {
            s->at += n;
            return DT_OK;
        }
    }
    return dt_json_buffer_refuse(s, s->at, "a value");
}

const char *dt_json_plain_numbers(const char *at)
{
    for (const char *comma = NULL;; at = comma + 1) {
        const char *begin = at + (*at == ' '), *first = begin + (*begin == '-');
        const char *end = skip_digits(first);
        if (end == first || (*first == '0' && end - first > 1))
            return comma;
        if (*end == '.') {
            const char *fraction = end + 1;
            end = skip_digits(fraction);
            if (end == fraction)
                return comma;
        }
        if (*end != ',' || end - begin > DT_JSON_NUMBER_MAX)
            return comma;
        comma = end;
    }
}
