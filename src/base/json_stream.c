#include "base/json_stream.h"

#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_token.h"
#include "base/mem.h"

/* A stream with a block of `bytes`. */
static dt_status create(struct dt_json_stream **stream, const char *path, size_t bytes)
{
    struct dt_json_stream *s;
    *stream = NULL;
    DT_TRY(DT_NEW(s, 1));
    s->path = path;
    s->fd = -1;
    s->line = 1;
    s->at = s->end = s->block = dt_mem_alloc(bytes + 1, 1, "JSON");
    if (!s->block)
        dt_json_stream_close(s);
    else
        *stream = s;
    return *stream ? DT_OK : DT_ERR_MEMORY;
}

dt_status dt_json_stream_open(struct dt_json_stream **stream, const char *path)
{
    DT_TRY(create(stream, path, DT_JSON_BLOCK_BYTES));
    const dt_status status = dt_file_open(&(*stream)->fd, &(*stream)->file_bytes, path);
    if (status != DT_OK) {
        dt_json_stream_close(*stream);
        *stream = NULL;
    }
    DT_TRY(status);
    (void)posix_fadvise((*stream)->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return DT_OK;
}

dt_status dt_json_stream_open_text(struct dt_json_stream **stream, const char *text, size_t bytes,
                                   const char *source)
{
    DT_TRY(create(stream, source, bytes));
    if (bytes > 0) /* of no text, NULL may be given */
        memcpy((*stream)->block, text, bytes);
    (*stream)->end += bytes;
    (*stream)->file_bytes = (*stream)->read_bytes = bytes;
    return DT_OK;
}

void dt_json_stream_close(struct dt_json_stream *stream)
{
    if (!stream)
        return;
    if (stream->fd >= 0)
        close(stream->fd);
    free(stream->block);
    free(stream);
}

uint64_t dt_json_stream_offset(const struct dt_json_stream *stream)
{
    return stream->value;
}

void dt_json_stream_place(const struct dt_json_stream *stream, int *line, int *column)
{
    *line = (int)stream->line;
    *column = (int)(stream->value - stream->start) + 1;
}

uint64_t dt_json_stream_bytes(const struct dt_json_stream *stream)
{
    return stream->file_bytes;
}

dt_status dt_json_stream_fail(const struct dt_json_stream *stream, uint64_t offset,
                              const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const dt_status status = dt_json_refuse_list(stream, offset, "", format, args);
    va_end(args);
    return status;
}

/* --- Values --- */

static dt_status refuse(const struct dt_json_stream *s, const char *expected)
{
    return dt_json_refuse_byte(s, s->at, expected);
}

/* To the first byte of the next value. */
static dt_status begin_value(struct dt_json_stream *s)
{
    DT_TRY(dt_json_skip_space(s));
    s->value = dt_json_offset(s, s->at);
    if (s->value == 0 && strncmp(s->at, "\xef\xbb\xbf", 3) == 0)
        DT_JSON_FAIL_AT(s, s->at, "the text begins with a byte-order mark; save it as plain UTF-8");
    return DT_OK;
}

dt_status dt_json_stream_peek(struct dt_json_stream *stream, enum dt_json_type *type)
{
    *type = DT_JSON_NULL;
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
        return refuse(stream, is_object ? "an object, '{'" : "an array, '['");
    if (stream->depth == DT_JSON_DEPTH_MAX)
        DT_JSON_FAIL_AT(stream, stream->at, "nested more than %d deep", DT_JSON_DEPTH_MAX);
    stream->open[++stream->depth].offset = stream->value;
    stream->open[stream->depth].is_object = is_object;
    stream->open[stream->depth].has_items = false;
    stream->at++;
    return DT_OK;
}

/* Serves objects too, whose next member then follows. */
dt_status dt_json_stream_item(struct dt_json_stream *s, bool *more)
{
    const bool is_object = s->open[s->depth].is_object, is_first = !s->open[s->depth].has_items;
    const char closing = is_object ? '}' : ']';
    *more = false;
    s->open[s->depth].key[0] = '\0';
    DT_TRY(dt_json_skip_space(s));
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
        return dt_json_refuse(s, s->open[s->depth].offset,
                              "'%c' without its '%c': the %s is not complete",
                              is_object ? '{' : '[', closing, s->fd < 0 ? "text" : "file");
    if (*s->at != ',')
        return refuse(s, is_object ? "',' or '}'" : "',' or ']'");
    s->at++;
    DT_TRY(dt_json_skip_space(s));
    if (*s->at == closing)
        DT_JSON_FAIL_AT(s, s->at, "comma before '%c'", closing);
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
    if (*stream->at != '"')
        return refuse(stream, "a key in double quotes");
    DT_TRY(dt_json_take_string(stream, stream->key, &bytes));
    bytes = bytes < DT_JSON_KEY_SHOWN ? bytes : DT_JSON_KEY_SHOWN;
    memcpy(stream->open[stream->depth].key, stream->key, bytes);
    stream->open[stream->depth].key[bytes] = '\0';
    DT_TRY(dt_json_skip_space(stream));
    if (*stream->at != ':')
        return refuse(stream, "':' after the key");
    stream->at++;
    *key = stream->key;
    return DT_OK;
}

dt_status dt_json_stream_number(struct dt_json_stream *stream, double *value)
{
    DT_TRY(begin_value(stream));
    if (*stream->at != '-' && !isdigit((unsigned char)*stream->at))
        return refuse(stream, "a number");
    return dt_json_take_number(stream, value);
}

dt_status dt_json_stream_integer(struct dt_json_stream *stream, int64_t *value)
{
    double number;
    DT_TRY(dt_json_stream_number(stream, &number));
    if (number != floor(number) || fabs(number) >= 0x1p53)
        return dt_json_refuse(stream, stream->value, "%.17g is not an integer below 2^53", number);
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
        return dt_json_skip_literal(stream);
    if (type != DT_JSON_NUMBER)
        return refuse(stream, "0, 1, false or true");
    DT_TRY(dt_json_take_number(stream, &number));
    if (number != 0 && number != 1)
        return dt_json_refuse(stream, stream->value, "%g is neither 0 nor 1", number);
    *value = number == 1;
    return DT_OK;
}

dt_status dt_json_stream_string(struct dt_json_stream *stream, const char **text, size_t *bytes)
{
    DT_TRY(begin_value(stream));
    if (*stream->at != '"')
        return refuse(stream, "a string in double quotes");
    DT_TRY(dt_json_take_string(stream, stream->text, bytes));
    *text = stream->text;
    return DT_OK;
}

/* --- Skipping --- */

static dt_status skip_items(struct dt_json_stream *s)
{
    bool more;
    DT_TRY(dt_json_stream_enter(s, DT_JSON_ARRAY));
    DT_TRY(dt_json_stream_item(s, &more));
    while (more) {
        const char *comma = dt_json_plain_numbers(s->at);
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
    size_t bytes;
    enum dt_json_type type;
    DT_TRY(dt_json_stream_peek(stream, &type));
    const uint64_t offset = stream->value;
    switch (type) {
    case DT_JSON_OBJECT:
        DT_TRY(dt_json_stream_enter(stream, type));
        DT_TRY(dt_json_stream_leave(stream, stream->depth - 1));
        break;
    case DT_JSON_ARRAY:
        DT_TRY(skip_items(stream));
        break;
    case DT_JSON_STRING:
        DT_TRY(dt_json_take_string(stream, NULL, &bytes));
        break;
    case DT_JSON_NUMBER:
        DT_TRY(dt_json_take_number(stream, &ignored));
        break;
    case DT_JSON_BOOL:
    case DT_JSON_NULL:
        DT_TRY(dt_json_skip_literal(stream));
        break;
    }
    stream->value = offset;
    return DT_OK;
}

int dt_json_stream_depth(const struct dt_json_stream *stream)
{
    return stream->depth;
}

dt_status dt_json_stream_leave(struct dt_json_stream *stream, int depth)
{
    const char *key;
    bool more = dt_json_offset(stream, stream->at) == stream->value; /* it was not taken */
    for (;;) {
        if (more)
            DT_TRY(dt_json_stream_skip(stream));
        if (stream->depth == depth)
            return DT_OK;
        if (stream->open[stream->depth].is_object) {
            DT_TRY(dt_json_stream_member(stream, &key));
            more = key;
        } else {
            DT_TRY(dt_json_stream_item(stream, &more));
        }
    }
}

dt_status dt_json_stream_end(struct dt_json_stream *stream)
{
    DT_TRY(dt_json_skip_space(stream));
    if (stream->at != stream->end)
        return refuse(stream, "the end of the text");
    return DT_OK;
}
