/* Strict JSON: a reader that knows the line and column of every value, and a small writer.
 *
 * Reading wraps cJSON, which accepts duplicate keys, trailing text, numbers like 01, control
 * characters and bad UTF-8; all of these are errors here. Limits: 1 MiB unless the caller says
 * otherwise, depth 16, 10,000 values, strings of 4,096 bytes, finite numbers. */
#ifndef DTRAIN_BASE_JSON_H
#define DTRAIN_BASE_JSON_H

#include "base/json_stream.h"

/* One value; read-only after parsing. Links are NULL at the end. */
struct dt_json {
    enum dt_json_type type;
    const char *key; /* member name inside an object, else NULL */
    const char *string;
    double number;
    bool boolean;
    int n_children;
    const struct dt_json *child, *next;
    int line, column; /* of the value, from 1; column counts bytes */
};

struct dt_json_limits {
    size_t bytes;
    int n_values;
};
extern const struct dt_json_limits dt_json_default_limits; /* 1 MiB, 10,000 values */

struct dt_json_doc;
/* Error texts begin with `source` (a file name or "--set"): "source:line:column: what". `limits`
 * may be NULL for the default. `text` need not be NUL-terminated and is not kept. Error:
 * DT_ERR_DATA. */
dt_status dt_json_parse(struct dt_json_doc **doc, const char *text, size_t bytes,
                        const char *source, const struct dt_json_limits *limits);
/* Reads a whole regular file first: DT_ERR_NO_INPUT, DT_ERR_PERMISSION, DT_ERR_IO, DT_ERR_DATA. */
dt_status dt_json_load(struct dt_json_doc **doc, const char *path,
                       const struct dt_json_limits *limits);
/* A file in a folder where others may have put links, which are not followed: dt_file_load_own. */
dt_status dt_json_load_own(struct dt_json_doc **doc, const char *folder, const char *name,
                           const struct dt_json_limits *limits);
const struct dt_json *dt_json_root(const struct dt_json_doc *doc);
void dt_json_destroy(struct dt_json_doc *doc);

/* Member by exact name, NULL if absent or `object` is not an object. */
const struct dt_json *dt_json_get(const struct dt_json *object, const char *key);
/* A member of an object, NAN unless it is a number. */
double dt_json_number(const struct dt_json *object, const char *key);
/* True if `value` is a number without fraction in min..max; it goes to *out. */
bool dt_json_integer(const struct dt_json *value, int64_t min, int64_t max, int64_t *out);
/* False, and out is "", if there is no value or it is not a string of fewer than `bytes` bytes. */
bool dt_json_text(const struct dt_json *value, char *out, size_t bytes);

/* Writes into a growing buffer and takes care of commas, escapes and indentation. It begins with
 * {0} or {.pretty = true}. Running out of memory is remembered and reported by dt_jsonw_end. */
struct dt_jsonw {
    char *text; /* NUL-terminated; owned by the writer until dt_jsonw_reset */
    size_t bytes, capacity;
    int depth, array_depth; /* array_depth: of the outermost open array, 0 = none */
    bool pretty, need_comma, failed;
};
void dt_jsonw_begin(struct dt_jsonw *w, const char *key, char bracket); /* '{' or '[' */
void dt_jsonw_close(struct dt_jsonw *w, char bracket);                  /* '}' or ']' */
void dt_jsonw_string(struct dt_jsonw *w, const char *key, const char *value);
void dt_jsonw_integer(struct dt_jsonw *w, const char *key, int64_t value);
/* The shortest text that reads back as the same double; null if not finite. */
void dt_jsonw_number(struct dt_jsonw *w, const char *key, double value);
void dt_jsonw_bool(struct dt_jsonw *w, const char *key, bool value);
/* Several at once, as in "{name: %s, time_s: %g, ranks: [": brackets, keys without quotes, and a
 * conversion for each value: %s, %g (any number), %hhd (bool), and those of int, unsigned, int64_t
 * and size_t. */
void dt_jsonw_add(struct dt_jsonw *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Embeds a complete JSON value, without the whitespace between its tokens. */
void dt_jsonw_raw(struct dt_jsonw *w, const char *key, const char *json);
dt_status dt_jsonw_end(struct dt_jsonw *w);
/* dt_jsonw_end, then saves the text as the file `path` (dt_file_save), or writes it to standard
 * output if that is "-"; always resets the writer. */
dt_status dt_jsonw_save(struct dt_jsonw *w, const char *path);
/* From here on "-" alone is written to standard output, and what is printed goes to stderr. */
void dt_jsonw_take_stdout(void);
void dt_jsonw_reset(struct dt_jsonw *w); /* frees the buffer */

#endif
