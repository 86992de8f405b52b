#include "base/json_token.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

enum { TOKEN_BYTES = DT_JSON_STRING_MAX + 64 };

static size_t left_in_block(const struct dt_json_stream *s)
{
    return (size_t)(s->end - s->at);
}

static bool is_all_read(const struct dt_json_stream *s)
{
    return s->read_bytes == s->file_bytes;
}

static dt_status refill(struct dt_json_stream *s)
{
    size_t kept = left_in_block(s), room = DT_JSON_BLOCK_BYTES - kept;
    if (room > s->file_bytes - s->read_bytes)
        room = (size_t)(s->file_bytes - s->read_bytes);
    memmove(s->block, s->at, kept);
    DT_TRY(dt_file_pread(s->fd, s->block + kept, room, s->read_bytes, s->path));
    s->read_bytes += room;
    s->at = s->block;
    s->end = s->block + kept + room;
    s->block[kept + room] = '\0';
    return DT_OK;
}

/* Makes sure that a whole token is in the block from `at` on, which it moves. */
static dt_status have_token(struct dt_json_stream *s)
{
    return left_in_block(s) < TOKEN_BYTES && !is_all_read(s) ? refill(s) : DT_OK;
}

uint64_t dt_json_offset(const struct dt_json_stream *s, const char *at)
{
    return s->read_bytes - (uint64_t)(s->end - at);
}

dt_status dt_json_skip_space(struct dt_json_stream *s)
{
    for (;;) {
        if (*s->at == '\0' && s->at == s->end && !is_all_read(s)) {
            DT_TRY(refill(s));
            continue;
        }
        if (*s->at == '\n') {
            s->line++;
            s->start = dt_json_offset(s, s->at) + 1;
        } else if (*s->at != ' ' && *s->at != '\t' && *s->at != '\r') {
            return have_token(s);
        }
        s->at++;
    }
}

/* --- Errors --- */

/* The line of an offset, and where that line begins. */
static dt_status find_line(const struct dt_json_stream *s, uint64_t offset, uint64_t *line,
                           uint64_t *start)
{
    char block[4096];
    *line = 1;
    *start = 0;
    for (uint64_t at = 0, n; at < offset; at += n) {
        n = offset - at < sizeof block ? offset - at : sizeof block;
        if (s->fd >= 0)
            DT_TRY(dt_file_pread(s->fd, block, (size_t)n, at, s->path));
        else
            memcpy(block, s->block + at, (size_t)n);
        for (size_t i = 0; i < n; i++)
            if (block[i] == '\n') {
                *line += 1;
                *start = at + i + 1;
            }
    }
    return DT_OK;
}

dt_status dt_json_refuse_list(const struct dt_json_stream *s, uint64_t offset, const char *keys,
                              const char *format, va_list args)
{
    char what[1024];
    uint64_t line = s->line, start = s->start;
    vsnprintf(what, sizeof what, format, args);
    if (offset < start)
        DT_TRY(find_line(s, offset, &line, &start));
    DT_FAIL(DT_ERR_DATA, "%s:%llu:%llu: %s%s", s->path, (unsigned long long)line,
            (unsigned long long)(offset - start + 1), keys, what);
}

dt_status dt_json_refuse(const struct dt_json_stream *s, uint64_t offset, const char *format, ...)
{
    char keys[256];
    struct dt_text text = dt_text_in(keys, sizeof keys);
    va_list args;
    for (int i = 1; i <= s->depth; i++)
        if (s->open[i].key[0])
            dt_text_add(&text, "%s%s", text.used ? "." : "", s->open[i].key);
    dt_text_add(&text, text.used ? ": " : "");
    va_start(args, format);
    const dt_status status = dt_json_refuse_list(s, offset, keys, format, args);
    va_end(args);
    return status;
}

dt_status dt_json_refuse_byte(const struct dt_json_stream *s, const char *at, const char *expected)
{
    const int c = (unsigned char)*at;
    const char *hint = "";
    if (at == s->end)
        DT_JSON_FAIL_AT(s, at, "expected %s, but the %s ends here: it is not complete", expected,
                        s->fd < 0 ? "text" : "file");
    if (c == '/' || c == '#')
        hint = "; JSON has no comments, use a key \"_comment\"";
    else if (c == '\'')
        hint = "; JSON strings need double quotes";
    else if (c == 'N' || c == 'I' || c == '+' || c == '.')
        hint = "; JSON numbers look like -1, 0.5 or 1e-4, and NaN and Infinity are not among them";
    if (c > 0x20 && c < 0x7f)
        DT_JSON_FAIL_AT(s, at, "expected %s, got '%c'%s", expected, c, hint);
    DT_JSON_FAIL_AT(s, at, "expected %s, got byte 0x%02x", expected, (unsigned)c);
}

/* --- Tokens --- */

static const char *skip_digits(const char *at)
{
    while (*at >= '0' && *at <= '9')
        at++;
    return at;
}

/* The end of the number at s->at. */
static dt_status scan_number(const struct dt_json_stream *s, const char **end)
{
    const char *at = s->at + (*s->at == '-'), *first = at;
    at = skip_digits(first);
    if (at == first)
        return dt_json_refuse_byte(s, at, "a digit");
    if (at - first > 1 && *first == '0')
        DT_JSON_FAIL_AT(s, s->at, "number with a leading zero");
    if (*at == '.') {
        first = ++at;
        at = skip_digits(first);
        if (at == first)
            return dt_json_refuse_byte(s, at, "a digit after the decimal point");
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        first = at += *at == '+' || *at == '-';
        at = skip_digits(first);
        if (at == first)
            return dt_json_refuse_byte(s, at, "a digit in the exponent");
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

dt_status dt_json_take_number(struct dt_json_stream *s, double *value)
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
static dt_status take_unicode(struct dt_json_stream *s, char *out, int *n)
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

static dt_status take_escape(struct dt_json_stream *s, char *out, int *n)
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

/* Takes what is not plain ASCII at s->at in a string: an escape, or a character of several bytes;
 * at most 4 bytes go to `out`. */
static dt_status take_special(struct dt_json_stream *s, char *out, int *n, uint64_t begin)
{
    const int c = (unsigned char)*s->at;
    if (c == '\0' && s->at == s->end)
        return dt_json_refuse(s, begin, "string without a closing quote; is the text complete?");
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

static dt_status add_bytes(const struct dt_json_stream *s, char *out, size_t *used,
                           const char *from, size_t n, uint64_t begin)
{
    if (!out)
        return DT_OK;
    if (n > DT_JSON_STRING_MAX - *used)
        return dt_json_refuse(s, begin, "string of more than %d bytes", DT_JSON_STRING_MAX);
    memcpy(out + *used, from, n);
    *used += n;
    return DT_OK;
}

dt_status dt_json_take_string(struct dt_json_stream *s, char *out, size_t *bytes)
{
    const uint64_t begin = dt_json_offset(s, s->at);
    size_t used = 0;
    s->at++;
    while (*s->at != '"') {
        char special[4];
        int n = 0;
        const char *plain = s->at;
        while (is_plain(*s->at))
            s->at++;
        DT_TRY(add_bytes(s, out, &used, plain, (size_t)(s->at - plain), begin));
        DT_TRY(have_token(s));
        if (!is_plain(*s->at) && *s->at != '"')
            DT_TRY(take_special(s, special, &n, begin));
        DT_TRY(add_bytes(s, out, &used, special, (size_t)n, begin));
    }
    s->at++;
    if (out)
        out[used] = '\0';
    *bytes = used;
    return DT_OK;
}

dt_status dt_json_skip_literal(struct dt_json_stream *s)
{
    static const char *const literals[] = {"true", "false", "null"};
    for (size_t i = 0; i < DT_COUNT(literals); i++) {
        const size_t n = strlen(literals[i]);
        if (strncmp(s->at, literals[i], n) == 0) {
            s->at += n;
            return DT_OK;
        }
    }
    return dt_json_refuse_byte(s, s->at, "a value");
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
