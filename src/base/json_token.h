/* Inside the JSON stream: one token at buffer->at. Every function checks it and moves behind it. */
#ifndef DTRAIN_BASE_JSON_TOKEN_H
#define DTRAIN_BASE_JSON_TOKEN_H

#include <stddef.h>

#include "base/json_buffer.h"
#include "base/json_scan.h"

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
