/* Inside the JSON stream: a block that slides over the file, and its tokens. Before a token is read
 * the block is refilled if what is left is shorter than the longest token allowed, so a token never
 * ends behind it; long strings refill it themselves. Behind the last byte is a NUL, which no token
 * contains: loops need not compare with the end. A text in memory is a block that never slides. */
#ifndef DTRAIN_BASE_JSON_TOKEN_H
#define DTRAIN_BASE_JSON_TOKEN_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { DT_JSON_DEPTH_MAX = 16, DT_JSON_STRING_MAX = 4096, DT_JSON_NUMBER_MAX = 63 };
enum { DT_JSON_BLOCK_BYTES = 1 << 18, DT_JSON_KEY_SHOWN = 64 };

struct dt_json_stream {
    const char *path;
    int fd; /* -1: a text in memory */
    uint64_t file_bytes;
    uint64_t read_bytes;  /* of the file, up to `end` */
    const char *at, *end; /* in `block`; *end is NUL */
    uint64_t line, start; /* of the line: its number, from 1, and the offset of its first byte */
    uint64_t value;       /* offset of the value taken last */
    int depth;
    struct {
        uint64_t offset;
        bool is_object, has_items;
        char key[DT_JSON_KEY_SHOWN + 1]; /* of the member being read, for messages */
    } open[DT_JSON_DEPTH_MAX + 1];       /* objects and arrays around the next value, from 1 */
    char key[DT_JSON_STRING_MAX + 1], text[DT_JSON_STRING_MAX + 1];
    char *block;
};

/* Moves on to the next byte that is not white space; a whole token is behind it. */
dt_status dt_json_skip_space(struct dt_json_stream *stream);
/* The offset in the file of a place in the block. */
uint64_t dt_json_offset(const struct dt_json_stream *stream, const char *at);

/* DT_ERR_DATA "file:line:column: keys: text" for an offset that has been read. */
dt_status dt_json_refuse(const struct dt_json_stream *stream, uint64_t offset, const char *format,
                         ...) __attribute__((format(printf, 3, 4)));
/* The same with other keys, "" or such as "train.epochs: ". */
dt_status dt_json_refuse_list(const struct dt_json_stream *stream, uint64_t offset,
                              const char *keys, const char *format, va_list args)
    __attribute__((format(printf, 4, 0)));
/* "expected ..., got ..." */
dt_status dt_json_refuse_byte(const struct dt_json_stream *stream, const char *at,
                              const char *expected);

#define DT_JSON_FAIL_AT(stream, at, ...) \
    return dt_json_refuse(stream, dt_json_offset(stream, at), __VA_ARGS__)

/* --- One token at stream->at; every function checks it and moves behind it --- */

/* The number that strtod makes of the text, which must begin with '-' or a digit. */
dt_status dt_json_take_number(struct dt_json_stream *stream, double *value);
/* A string, with escapes replaced and a NUL behind its `bytes`; out == NULL: skips a string of any
 * length. */
dt_status dt_json_take_string(struct dt_json_stream *stream, char *out, size_t *bytes);
/* true, false or null. */
dt_status dt_json_skip_literal(struct dt_json_stream *stream);
/* Skips what polygons consist of: numbers without exponents with nothing but a comma, or a comma
 * and a space, between them. Returns the last comma, NULL if the first is not even such a number;
 * does not move. */
const char *dt_json_plain_numbers(const char *at);

#endif
