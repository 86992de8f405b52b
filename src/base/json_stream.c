/* A buffer slides over the file. Before a token is read the buffer is refilled if what is left is
 * shorter than the longest token allowed, so a token never ends behind it. Behind the last byte is
 * a NUL, which no token contains: loops need not compare with the end. */
#include "base/json_stream.h"

#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_scan.h"
#include "base/mem.h"
#include "base/utf8.h"

enum { BLOCK_BYTES = 1 << 18, TOKEN_BYTES = DT_JSON_STRING_MAX + 64 };

struct dt_json_stream {
    const char *path;
    int fd;
    uint64_t file_bytes;
    uint64_t read_bytes;  /* of the file, up to `end` */
    const char *at, *end; /* in `buffer`; *end is NUL */
    uint64_t line, start; /* of the line: its number, from 1, and the offset of its first byte */
    uint64_t value;       /* offset of the value taken last */
    int depth;
    struct {
        uint64_t offset;
        bool is_object, has_items;
    } open[DT_JSON_DEPTH_MAX + 1]; /* objects and arrays around the next value, from 1 */
    char key[DT_JSON_STRING_MAX + 1], text[DT_JSON_STRING_MAX + 1];
    char buffer[BLOCK_BYTES + 1];
};

/* --- The file --- */

dt_status dt_json_stream_open(struct dt_json_stream **stream, const char *path)
{
    dt_status status = DT_OK;
    struct dt_json_stream *s;
    *stream = NULL;
    DT_TRY(DT_NEW(s, 1));
    s->path = path;
    s->line = 1;
    s->fd = -1;
    s->at = s->end = s->buffer;
    DT_TRY_OUT(dt_file_open(&s->fd, &s->file_bytes, path));
    (void)posix_fadvise(s->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *stream = s;
    return DT_OK;
out:
    dt_json_stream_close(s);
    return status;
}

void dt_json_stream_close(struct dt_json_stream *stream)
{
    if (!stream)
        return;
    if (stream->fd >= 0)
        close(stream->fd);
    free(stream);
}

static size_t left_in_buffer(const struct dt_json_stream *s)
{
    return (size_t)(s->end - s->at);
}

static bool is_all_read(const struct dt_json_stream *s)
{
    return s->read_bytes == s->file_bytes;
}

static dt_status refill(struct dt_json_stream *s)
{
    size_t kept = left_in_buffer(s), room = BLOCK_BYTES - kept;
    if (room > s->file_bytes - s->read_bytes)
        room = (size_t)(s->file_bytes - s->read_bytes);
    memmove(s->buffer, s->at, kept);
    DT_TRY(dt_file_pread(s->fd, s->buffer + kept, room, s->read_bytes, s->path));
    s->read_bytes += room;
    s->at = s->buffer;
    s->end = s->buffer + kept + room;
    s->buffer[kept + room] = '\0';
    return DT_OK;
}

/* Makes sure that a whole token is in the buffer. */
static dt_status have_token(struct dt_json_stream *s)
{
    return left_in_buffer(s) < TOKEN_BYTES && !is_all_read(s) ? refill(s) : DT_OK;
}

static uint64_t offset_of(const struct dt_json_stream *s, const char *at)
{
    return s->read_bytes - (uint64_t)(s->end - at);
}

uint64_t dt_json_stream_offset(const struct dt_json_stream *stream)
{
    return stream->value;
}

uint64_t dt_json_stream_bytes(const struct dt_json_stream *stream)
{
    return stream->file_bytes;
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
        DT_TRY(dt_file_pread(s->fd, block, (size_t)n, at, s->path));
        for (size_t i = 0; i < n; i++)
            if (block[i] == '\n') {
                *line += 1;
                *start = at + i + 1;
            }
    }
    return DT_OK;
}

dt_status dt_json_stream_fail(const struct dt_json_stream *stream, uint64_t offset,
                              const char *format, ...)
{
    char what[1024];
    uint64_t line = stream->line, start = stream->start;
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (offset < start)
        DT_TRY(find_line(stream, offset, &line, &start));
    DT_FAIL(DT_ERR_DATA, "%s:%llu:%llu: %s", stream->path, (unsigned long long)line,
            (unsigned long long)(offset - start + 1), what);
}

#define FAIL_AT(s, at, ...) return dt_json_stream_fail(s, offset_of(s, at), __VA_ARGS__)

/* Reports what was found at the current byte. */
static dt_status refuse(const struct dt_json_stream *s, const char *at, const char *expected)
{
    const int c = (unsigned char)*at;
    if (at == s->end)
        FAIL_AT(s, at, "expected %s, but the file ends here: it is not complete", expected);
    const bool is_number = c == 'N' || c == 'I' || c == '+' || c == '.';
    if (c > 0x20 && c < 0x7f)
        FAIL_AT(s, at, "expected %s, got '%c'%s", expected, c,
                is_number
                    ? "; JSON numbers look like -1, 0.5 or 1e-4, and NaN and Infinity are not "
                      "among them"
                    : "");
    FAIL_AT(s, at, "expected %s, got byte 0x%02x", expected, (unsigned)c);
}

/* --- Tokens --- */

/* Moves to the next byte that is not white space, with a whole token behind it. */
static dt_status skip_space(struct dt_json_stream *s)
{
    for (;; s->at++) {
        if (*s->at == '\n') {
            s->line++;
            s->start = offset_of(s, s->at) + 1;
        } else if (*s->at == '\0' && s->at == s->end && !is_all_read(s)) {
            DT_TRY(refill(s));
            s->at--;
        } else if (*s->at != ' ' && *s->at != '\t' && *s->at != '\r') {
            return have_token(s);
        }
    }
}

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
        return refuse(s, at, "a digit");
    if (at - first > 1 && *first == '0')
        FAIL_AT(s, s->at, "number with a leading zero");
    if (*at == '.') {
        first = ++at;
        at = skip_digits(first);
        if (at == first)
            return refuse(s, at, "a digit after the decimal point");
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        first = at += *at == '+' || *at == '-';
        at = skip_digits(first);
        if (at == first)
            return refuse(s, at, "a digit in the exponent");
    }
    if (at - s->at > DT_JSON_NUMBER_MAX)
        FAIL_AT(s, s->at, "number of more than %d characters", DT_JSON_NUMBER_MAX);
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

static dt_status take_number(struct dt_json_stream *s, double *value)
{
    char copy[DT_JSON_NUMBER_MAX + 1] = "";
    const char *end;
    DT_TRY(scan_number(s, &end));
    if (!convert_short(value, s->at, end)) {
        memcpy(copy, s->at, (size_t)(end - s->at));
        *value = strtod(copy, NULL);
        if (!isfinite(*value))
            FAIL_AT(s, s->at, "number %s is too large", copy);
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
        FAIL_AT(s, s->at, "\\u needs four hexadecimal digits");
    if (code == 0)
        FAIL_AT(s, s->at, "\\u0000 in a string");
    if (code >= 0xd800 && code <= 0xdfff) {
        const bool is_pair = code <= 0xdbff && s->at[6] == '\\' && s->at[7] == 'u';
        const int32_t low = is_pair ? hex4(s->at + 8) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            FAIL_AT(s, s->at, "half of a surrogate pair in a string");
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
        FAIL_AT(s, s->at,
                "unknown escape in a string (known: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX)");
    *out = meant[found - letters];
    *n = 1;
    s->at += 2;
    return DT_OK;
}

/* What is not plain ASCII at s->at in a string: an escape, or a character of several bytes; at most
 * 4 bytes go to `out`. */
static dt_status take_special(struct dt_json_stream *s, char *out, int *n, uint64_t begin)
{
    const int c = (unsigned char)*s->at;
    if (c == '\0' && s->at == s->end)
        return dt_json_stream_fail(s, begin, "string without a closing quote");
    if (c < 0x20)
        FAIL_AT(s, s->at, "control character 0x%02x in a string (write it as an escape)",
                (unsigned)c);
    if (c == '\\')
        return take_escape(s, out, n);
    *n = (int)dt_utf8_length(s->at, left_in_buffer(s));
    if (*n == 0)
        FAIL_AT(s, s->at, "byte 0x%02x is not UTF-8", (unsigned)c);
    memcpy(out, s->at, (size_t)*n);
    s->at += *n;
    return DT_OK;
}

static bool is_plain(char c)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x80 && c != '"' && c != '\\';
}

/* The string at s->at, which is in the buffer as far as it is allowed to be long. */
static dt_status take_string(struct dt_json_stream *s, char out[DT_JSON_STRING_MAX + 1],
                             size_t *bytes)
{
    const char *begin = s->at++;
    size_t used = 0;
    while (*s->at != '"') {
        if (s->at - begin > DT_JSON_STRING_MAX)
            FAIL_AT(s, begin, "string of more than %d bytes", DT_JSON_STRING_MAX);
        int n = 1;
        if (is_plain(*s->at))
            out[used] = *s->at++;
        else
            DT_TRY(take_special(s, out + used, &n, offset_of(s, begin)));
        used += (size_t)n;
    }
    s->at++;
    out[used] = '\0';
    *bytes = used;
    return DT_OK;
}

/* A string of any length. */
static dt_status skip_string(struct dt_json_stream *s)
{
    const uint64_t begin = offset_of(s, s->at);
    char ignored[4];
    int n;
    for (s->at++;;) {
        while (is_plain(*s->at))
            s->at++;
        if (*s->at == '"')
            break;
        DT_TRY(have_token(s));
        if (!is_plain(*s->at) && *s->at != '"')
            DT_TRY(take_special(s, ignored, &n, begin));
    }
    s->at++;
    return DT_OK;
}

static dt_status skip_literal(struct dt_json_stream *s)
{
    static const char *const literals[] = {"true", "false", "null"};
    for (size_t i = 0; i < DT_COUNT(literals); i++) {
        const size_t n = strlen(literals[i]);
        if (strncmp(s->at, literals[i], n) == 0) {
            s->at += n;
            return DT_OK;
        }
    }
    return refuse(s, s->at, "a value");
}

/* --- Values --- */

/* To the first byte of the next value. */
static dt_status begin_value(struct dt_json_stream *s)
{
    if (s->read_bytes == 0) {
        DT_TRY(refill(s));
        if (strncmp(s->at, "\xef\xbb\xbf", 3) == 0)
            FAIL_AT(s, s->at, "the text begins with a byte-order mark; save it as plain UTF-8");
    }
    DT_TRY(skip_space(s));
    s->value = offset_of(s, s->at);
    return DT_OK;
}

dt_status dt_json_stream_peek(struct dt_json_stream *stream, enum dt_json_type *type)
{
    DT_TRY(begin_value(stream));
    const char c = *stream->at;
    *type = c == '{'                             ? DT_JSON_OBJECT
            : c == '['                           ? DT_JSON_ARRAY
            : c == '"'                           ? DT_JSON_STRING
            : c == '-' || (c >= '0' && c <= '9') ? DT_JSON_NUMBER
            : c == 't' || c == 'f'               ? DT_JSON_BOOL
                                                 : DT_JSON_NULL;
    return DT_OK;
}

dt_status dt_json_stream_enter(struct dt_json_stream *stream, enum dt_json_type type)
{
    const bool is_object = type == DT_JSON_OBJECT;
    DT_TRY(begin_value(stream));
    if (*stream->at != (is_object ? '{' : '['))
        return refuse(stream, stream->at, is_object ? "an object, '{'" : "an array, '['");
    if (stream->depth == DT_JSON_DEPTH_MAX)
        FAIL_AT(stream, stream->at, "nested more than %d deep", DT_JSON_DEPTH_MAX);
    stream->depth++;
    stream->open[stream->depth].offset = stream->value;
    stream->open[stream->depth].is_object = is_object;
    stream->open[stream->depth].has_items = false;
    stream->at++;
    return DT_OK;
}

/* To the next member or item of what is open; leaves it if there is none. */
static dt_status next_in_open(struct dt_json_stream *s, bool *more)
{
    const bool is_object = s->open[s->depth].is_object, is_first = !s->open[s->depth].has_items;
    const char closing = is_object ? '}' : ']';
    DT_TRY(skip_space(s));
    *more = *s->at != closing;
    if (!*more) {
        s->value = s->open[s->depth--].offset;
        s->at++;
        return DT_OK;
    }
    s->open[s->depth].has_items = true;
    if (is_first)
        return DT_OK;
    if (s->at == s->end)
        return dt_json_stream_fail(s, s->open[s->depth].offset,
                                   "'%c' without its '%c': the file is not complete",
                                   is_object ? '{' : '[', closing);
    if (*s->at != ',')
        return refuse(s, s->at, is_object ? "',' or '}'" : "',' or ']'");
    s->at++;
    DT_TRY(skip_space(s));
    if (*s->at == closing)
        FAIL_AT(s, s->at, "comma before '%c'", closing);
    return DT_OK;
}

dt_status dt_json_stream_member(struct dt_json_stream *stream, const char **key)
{
    bool more;
    size_t bytes;
    *key = NULL;
    DT_TRY(next_in_open(stream, &more));
    if (!more)
        return DT_OK;
    if (*stream->at != '"')
        return refuse(stream, stream->at, "a key in double quotes");
    DT_TRY(take_string(stream, stream->key, &bytes));
    DT_TRY(skip_space(stream));
    if (*stream->at != ':')
        return refuse(stream, stream->at, "':' after the key");
    stream->at++;
    *key = stream->key;
    return DT_OK;
}

dt_status dt_json_stream_item(struct dt_json_stream *stream, bool *more)
{
    return next_in_open(stream, more);
}

dt_status dt_json_stream_number(struct dt_json_stream *stream, double *value)
{
    DT_TRY(begin_value(stream));
    if (*stream->at != '-' && !isdigit((unsigned char)*stream->at))
        return refuse(stream, stream->at, "a number");
    return take_number(stream, value);
}

dt_status dt_json_stream_integer(struct dt_json_stream *stream, int64_t *value)
{
    double number;
    DT_TRY(dt_json_stream_number(stream, &number));
    if (number != floor(number) || fabs(number) > 0x1p53)
        return dt_json_stream_fail(stream, stream->value, "%.17g is not an integer within 2^53",
                                   number);
    *value = (int64_t)number;
    return DT_OK;
}

dt_status dt_json_stream_bool(struct dt_json_stream *stream, bool *value)
{
    enum dt_json_type type;
    double number;
    DT_TRY(dt_json_stream_peek(stream, &type));
    *value = *stream->at == 't';
    if (type == DT_JSON_BOOL)
        return skip_literal(stream);
    if (type != DT_JSON_NUMBER)
        return refuse(stream, stream->at, "0, 1, false or true");
    DT_TRY(take_number(stream, &number));
    if (number != 0 && number != 1)
        return dt_json_stream_fail(stream, stream->value, "%g is neither 0 nor 1", number);
    *value = number == 1;
    return DT_OK;
}

dt_status dt_json_stream_string(struct dt_json_stream *stream, const char **text, size_t *bytes)
{
    DT_TRY(begin_value(stream));
    if (*stream->at != '"')
        return refuse(stream, stream->at, "a string in double quotes");
    DT_TRY(take_string(stream, stream->text, bytes));
    *text = stream->text;
    return DT_OK;
}

/* --- Skipping --- */

/* Skips what polygons consist of: numbers without exponents with nothing but a comma, or a comma
 * and a space, between them. Returns the last comma, NULL if the first is not even such a number.
 */
static const char *skip_plain_numbers(const char *at)
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

static dt_status skip_members(struct dt_json_stream *s)
{
    const char *key;
    DT_TRY(dt_json_stream_enter(s, DT_JSON_OBJECT));
    DT_TRY(dt_json_stream_member(s, &key));
    while (key) {
        DT_TRY(dt_json_stream_skip(s));
        DT_TRY(dt_json_stream_member(s, &key));
    }
    return DT_OK;
}

static dt_status skip_items(struct dt_json_stream *s)
{
    bool more;
    DT_TRY(dt_json_stream_enter(s, DT_JSON_ARRAY));
    DT_TRY(dt_json_stream_item(s, &more));
    while (more) {
        const char *comma = skip_plain_numbers(s->at);
        if (comma)
            s->at = comma;
        else
            DT_TRY(dt_json_stream_skip(s));
        DT_TRY(dt_json_stream_item(s, &more));
    }
    return DT_OK;
}

dt_status dt_json_stream_skip(struct dt_json_stream *stream)
{
    double ignored;
    enum dt_json_type type;
    DT_TRY(dt_json_stream_peek(stream, &type));
    const uint64_t offset = stream->value;
    switch (type) {
    case DT_JSON_OBJECT:
        DT_TRY(skip_members(stream));
        break;
    case DT_JSON_ARRAY:
        DT_TRY(skip_items(stream));
        break;
    case DT_JSON_STRING:
        DT_TRY(skip_string(stream));
        break;
    case DT_JSON_NUMBER:
        DT_TRY(take_number(stream, &ignored));
        break;
    case DT_JSON_BOOL:
    case DT_JSON_NULL:
        DT_TRY(skip_literal(stream));
        break;
    }
    stream->value = offset;
    return DT_OK;
}

dt_status dt_json_stream_end(struct dt_json_stream *stream)
{
    DT_TRY(skip_space(stream));
    if (stream->at != stream->end)
        return refuse(stream, stream->at, "the end of the text");
    return DT_OK;
}
