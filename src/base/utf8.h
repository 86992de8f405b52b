/* Text from outside: UTF-8, and nothing in it that steers a terminal. */
#ifndef DTRAIN_BASE_UTF8_H
#define DTRAIN_BASE_UTF8_H

#include <stddef.h>

/* Length of the well-formed UTF-8 sequence at `text` (1..4), 0 if it is not one. */
size_t dt_utf8_length(const char *text, size_t bytes);

/* Control characters (other than newline) and invalid UTF-8 become '?', in place: names from
 * outside must not steer the terminal. dt_log and the error texts are passed through it. */
void dt_utf8_escape(char *text);

#endif
