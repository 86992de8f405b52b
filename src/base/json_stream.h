/* Strict JSON of any size, read once from front to back without a tree: the caller takes one value
 * after another and skips what it does not need. A file is read in blocks, so memory does not
 * depend on its size.
 *
 * Accepts exactly RFC 8259 with the limits of base/json.h on depth, numbers and strings; strings
 * that are skipped may have any length. Of keys that occur twice only the caller can know. Every
 * value is checked, even when it is skipped. Errors are DT_ERR_DATA "file:line:column: keys: what"
 * with the keys that lead to the value, as in "train.epochs", or those of reading. */
#ifndef DTRAIN_BASE_JSON_STREAM_H
#define DTRAIN_BASE_JSON_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum dt_json_type {
    DT_JSON_NULL,
    DT_JSON_BOOL,
    DT_JSON_NUMBER,
    DT_JSON_STRING,
    DT_JSON_ARRAY,
    DT_JSON_OBJECT
};

struct dt_json_stream;

/* `path` is kept until dt_json_stream_close. */
dt_status dt_json_stream_open(struct dt_json_stream **stream, const char *path);
/* A copy of `text`, which need not be NUL-terminated; `source` is kept as the name of the file. */
dt_status dt_json_stream_open_text(struct dt_json_stream **stream, const char *text, size_t bytes,
                                   const char *source);
void dt_json_stream_close(struct dt_json_stream *stream); /* accepts NULL */

/* Type of the next value, which is not taken yet. */
dt_status dt_json_stream_peek(struct dt_json_stream *stream, enum dt_json_type *type);
/* Takes '{' (DT_JSON_OBJECT) or '[' (DT_JSON_ARRAY). */
dt_status dt_json_stream_enter(struct dt_json_stream *stream, enum dt_json_type type);
/* Inside an object: the key of the next member, whose value must be taken next, valid until the
 * next key; NULL at the end of the object, which is then left. */
dt_status dt_json_stream_member(struct dt_json_stream *stream, const char **key);
/* Inside an array: whether another value follows; at the end the array is left. */
dt_status dt_json_stream_item(struct dt_json_stream *stream, bool *more);
/* Takes the next value, whatever it is. */
dt_status dt_json_stream_skip(struct dt_json_stream *stream);
/* How many objects and arrays are around the next value. */
int dt_json_stream_depth(const struct dt_json_stream *stream);
/* After an error of a value that is JSON, but not what was asked for: takes it, and what follows it
 * until only `depth` objects and arrays are around the next value. */
dt_status dt_json_stream_leave(struct dt_json_stream *stream, int depth);
/* The number that strtod makes of the text. */
dt_status dt_json_stream_number(struct dt_json_stream *stream, double *value);
/* A number without a fraction below +-2^53, so that it is exact however it is written. */
dt_status dt_json_stream_integer(struct dt_json_stream *stream, int64_t *value);
/* Also numbers: 0 and 1. */
dt_status dt_json_stream_bool(struct dt_json_stream *stream, bool *value);
/* NUL-terminated, with `bytes` in front of the NUL; valid until the next string. */
dt_status dt_json_stream_string(struct dt_json_stream *stream, const char **text, size_t *bytes);
/* Only white space may follow. */
dt_status dt_json_stream_end(struct dt_json_stream *stream);

/* Byte offset of the value taken last (of an object or array: where it begins); of the file. */
uint64_t dt_json_stream_offset(const struct dt_json_stream *stream);
uint64_t dt_json_stream_bytes(const struct dt_json_stream *stream);
/* Line and column, from 1, of a value that dt_json_stream_peek has found. */
void dt_json_stream_place(const struct dt_json_stream *stream, int *line, int *column);
/* DT_ERR_DATA "file:line:column: text" for a byte offset that has been read before; to find the
 * line the file is read again. */
dt_status dt_json_stream_fail(const struct dt_json_stream *stream, uint64_t offset,
                              const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
