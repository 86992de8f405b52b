/* Untrusted text: valid UTF-8 without terminal control sequences. */
#ifndef DTRAIN_BASE_UTF8_H
#define DTRAIN_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Length of the well-formed UTF-8 sequence at `text` (1..4), 0 if it is not one. */
size_t dt_utf8_length(const char *text, size_t bytes);

bool dt_utf8_is_valid(const char *text); /* all of it */

/* Replaces control characters (other than newline) and invalid UTF-8 by '?', in place, so that
 * untrusted names cannot control the terminal. dt_log and error texts pass through it. */
void dt_utf8_escape(char *text);

#endif
