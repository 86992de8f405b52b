/* Inside the JSON stream: a buffer that slides over the file, and its tokens. Before a token is
 * read the buffer is refilled if what is left is shorter than the longest token allowed, so a token
 * never ends behind it. Behind the last byte is a NUL, which no token contains: loops need not
 * compare with the end. */
#ifndef DTRAIN_BASE_JSON_TOKEN_H
#define DTRAIN_BASE_JSON_TOKEN_H

#include <stdarg.h>
#include <stdint.h>

#include "base/json_scan.h"

enum { DT_JSON_BLOCK_BYTES = 1 << 18 };

struct dt_json_buffer {
    const char *path;
    int fd;
    uint64_t file_bytes;
    uint64_t read_bytes;  /* of the file, up to `end` */
    const char *at, *end; /* in `block`; *end is NUL */
    uint64_t line, start; /* of the line: its number, from 1, and the offset of its first byte */
    char block[DT_JSON_BLOCK_BYTES + 1];
};

/* `path` is kept until dt_json_buffer_close, which accepts a zeroed buffer that was not opened or
 * could not be. */
dt_status dt_json_buffer_open(struct dt_json_buffer *buffer, const char *path);
void dt_json_buffer_close(struct dt_json_buffer *buffer);
/* Moves on to the next byte that is not white space; a whole token is behind it. */
dt_status dt_json_skip_space(struct dt_json_buffer *buffer);
/* Makes sure that a whole token is in the buffer from `at` on, which it moves. */
dt_status dt_json_buffer_have(struct dt_json_buffer *buffer);
/* Of a place in the buffer: its offset in the file. */
uint64_t dt_json_buffer_offset(const struct dt_json_buffer *buffer, const char *at);

/* DT_ERR_DATA "file:line:column: text" for an offset that has been read. */
dt_status dt_json_buffer_fail(const struct dt_json_buffer *buffer, uint64_t offset,
                              const char *format, ...) __attribute__((format(printf, 3, 4)));
dt_status dt_json_buffer_fail_list(const struct dt_json_buffer *buffer, uint64_t offset,
                                   const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
/* "expected ..., got ..." */
dt_status dt_json_buffer_refuse(const struct dt_json_buffer *buffer, const char *at,
                                const char *expected);

#define DT_JSON_FAIL_AT(buffer, at, ...) \
    return dt_json_buffer_fail(buffer, dt_json_buffer_offset(buffer, at), __VA_ARGS__)

/* --- One token at buffer->at; every function checks it and moves behind it --- */

/* The number that strtod makes of the text, which must begin with '-' or a digit. */
dt_status dt_json_take_number(struct dt_json_buffer *buffer, double *value);
/* A string, with escapes replaced and a NUL behind its `bytes`. */
dt_status dt_json_take_string(struct dt_json_buffer *buffer, char out[DT_JSON_STRING_MAX + 1],
                              size_t *bytes);
/* A string of any length. */
dt_status dt_json_skip_string(struct dt_json_buffer *buffer);
/* true, false or null. */
dt_status dt_json_skip_literal(struct dt_json_buffer *buffer);
/* Skips what polygons consist of: numbers without exponents with nothing but a comma, or a comma
 * and a space, between them. Returns the last comma, NULL if the first is not even such a number;
 * does not move. */
const char *dt_json_plain_numbers(const char *at);

#endif
