#include "base/json_stream.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_token.h"
#include "base/mem.h"

struct dt_json_stream {
    uint64_t value; /* offset of the value taken last */
    int depth;
    struct {
        uint64_t offset;
        bool is_object, has_items;
    } open[DT_JSON_DEPTH_MAX + 1]; /* objects and arrays around the next value, from 1 */
    char key[DT_JSON_STRING_MAX + 1], text[DT_JSON_STRING_MAX + 1];
    struct dt_json_buffer buffer;
};

dt_status dt_json_stream_open(struct dt_json_stream **stream, const char *path)
{
    struct dt_json_stream *s;
    *stream = NULL;
    DT_TRY(DT_NEW(s, 1));
    const dt_status status = dt_json_buffer_open(&s->buffer, path);
    if (status != DT_OK)
        dt_json_stream_close(s);
    DT_TRY(status);
    *stream = s;
    return DT_OK;
}

void dt_json_stream_close(struct dt_json_stream *stream)
{
    if (!stream)
        return;
    dt_json_buffer_close(&stream->buffer);
    free(stream);
}

uint64_t dt_json_stream_offset(const struct dt_json_stream *stream)
{
    return stream->value;
}

uint64_t dt_json_stream_bytes(const struct dt_json_stream *stream)
{
    return stream->buffer.file_bytes;
}

dt_status dt_json_stream_fail(const struct dt_json_stream *stream, uint64_t offset,
                              const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const dt_status status = dt_json_buffer_fail_list(&stream->buffer, offset, format, args);
    va_end(args);
    return status;
}

/* --- Values --- */

static dt_status refuse(const struct dt_json_stream *s, const char *expected)
{
    return dt_json_buffer_refuse(&s->buffer, s->buffer.at, expected);
}

/* To the first byte of the next value. */
static dt_status begin_value(struct dt_json_stream *s)
{
    if (s->buffer.read_bytes == 0) {
        DT_TRY(dt_json_buffer_have(&s->buffer));
        if (strncmp(s->buffer.at, "\xef\xbb\xbf", 3) == 0)
            DT_JSON_FAIL_AT(&s->buffer, s->buffer.at,
                            "the text begins with a byte-order mark; save it as plain UTF-8");
    }
    DT_TRY(dt_json_skip_space(&s->buffer));
    s->value = dt_json_buffer_offset(&s->buffer, s->buffer.at);
    return DT_OK;
}

dt_status dt_json_stream_peek(struct dt_json_stream *stream, enum dt_json_type *type)
{
    *type = DT_JSON_NULL;
    DT_TRY(begin_value(stream));
    const char c = *stream->buffer.at;
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
    if (*stream->buffer.at != (is_object ? '{' : '['))
        return refuse(stream, is_object ? "an object, '{'" : "an array, '['");
    if (stream->depth == DT_JSON_DEPTH_MAX)
        DT_JSON_FAIL_AT(&stream->buffer, stream->buffer.at, "nested more than %d deep",
                        DT_JSON_DEPTH_MAX);
    stream->depth++;
    stream->open[stream->depth].offset = stream->value;
    stream->open[stream->depth].is_object = is_object;
    stream->open[stream->depth].has_items = false;
    stream->buffer.at++;
    return DT_OK;
}

/* Also of an object, whose next member then follows. */
dt_status dt_json_stream_item(struct dt_json_stream *s, bool *more)
{
    const bool is_object = s->open[s->depth].is_object, is_first = !s->open[s->depth].has_items;
    const char closing = is_object ? '}' : ']';
    *more = false;
    DT_TRY(dt_json_skip_space(&s->buffer));
    *more = *s->buffer.at != closing;
    if (!*more) {
        s->value = s->open[s->depth--].offset;
        s->buffer.at++;
        return DT_OK;
    }
    s->open[s->depth].has_items = true;
    if (is_first)
        return DT_OK;
    if (s->buffer.at == s->buffer.end)
        return dt_json_buffer_fail(&s->buffer, s->open[s->depth].offset,
                                   "'%c' without its '%c': the file is not complete",
                                   is_object ? '{' : '[', closing);
    if (*s->buffer.at != ',')
        return refuse(s, is_object ? "',' or '}'" : "',' or ']'");
    s->buffer.at++;
    DT_TRY(dt_json_skip_space(&s->buffer));
    if (*s->buffer.at == closing)
        DT_JSON_FAIL_AT(&s->buffer, s->buffer.at, "comma before '%c'", closing);
    return DT_OK;
}

dt_status dt_json_stream_member(struct dt_json_stream *stream, const char **key)
{
    bool more;
    size_t bytes;
    *key = NULL;
    DT_TRY(dt_json_stream_item(stream, &more));
    if (!more)
        return DT_OK;
    if (*stream->buffer.at != '"')
        return refuse(stream, "a key in double quotes");
    DT_TRY(dt_json_take_string(&stream->buffer, stream->key, &bytes));
    DT_TRY(dt_json_skip_space(&stream->buffer));
    if (*stream->buffer.at != ':')
        return refuse(stream, "':' after the key");
    stream->buffer.at++;
    *key = stream->key;
    return DT_OK;
}

dt_status dt_json_stream_number(struct dt_json_stream *stream, double *value)
{
    DT_TRY(begin_value(stream));
    if (*stream->buffer.at != '-' && !isdigit((unsigned char)*stream->buffer.at))
        return refuse(stream, "a number");
    return dt_json_take_number(&stream->buffer, value);
}

dt_status dt_json_stream_integer(struct dt_json_stream *stream, int64_t *value)
{
    double number;
    DT_TRY(dt_json_stream_number(stream, &number));
    if (number != floor(number) || fabs(number) > 0x1p53)
        return dt_json_buffer_fail(&stream->buffer, stream->value,
                                   "%.17g is not an integer within 2^53", number);
    *value = (int64_t)number;
    return DT_OK;
}

dt_status dt_json_stream_bool(struct dt_json_stream *stream, bool *value)
{
    enum dt_json_type type;
    double number;
    DT_TRY(dt_json_stream_peek(stream, &type));
    *value = *stream->buffer.at == 't';
    if (type == DT_JSON_BOOL)
        return dt_json_skip_literal(&stream->buffer);
    if (type != DT_JSON_NUMBER)
        return refuse(stream, "0, 1, false or true");
    DT_TRY(dt_json_take_number(&stream->buffer, &number));
    if (number != 0 && number != 1)
        return dt_json_buffer_fail(&stream->buffer, stream->value, "%g is neither 0 nor 1", number);
    *value = number == 1;
    return DT_OK;
}

dt_status dt_json_stream_string(struct dt_json_stream *stream, const char **text, size_t *bytes)
{
    DT_TRY(begin_value(stream));
    if (*stream->buffer.at != '"')
        return refuse(stream, "a string in double quotes");
    DT_TRY(dt_json_take_string(&stream->buffer, stream->text, bytes));
    *text = stream->text;
    return DT_OK;
}

/* --- Skipping --- */

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
        const char *comma = dt_json_plain_numbers(s->buffer.at);
        if (comma)
            s->buffer.at = comma;
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
        DT_TRY(dt_json_skip_string(&stream->buffer));
        break;
    case DT_JSON_NUMBER:
        DT_TRY(dt_json_take_number(&stream->buffer, &ignored));
        break;
    case DT_JSON_BOOL:
    case DT_JSON_NULL:
        DT_TRY(dt_json_skip_literal(&stream->buffer));
        break;
    }
    stream->value = offset;
    return DT_OK;
}

dt_status dt_json_stream_end(struct dt_json_stream *stream)
{
    DT_TRY(dt_json_skip_space(&stream->buffer));
    if (stream->buffer.at != stream->buffer.end)
        return refuse(stream, "the end of the text");
    return DT_OK;
}
