/* A text that grows in the caller's buffer, always NUL-terminated; untrusted text: valid UTF-8
 * without terminal control sequences. */
#ifndef DTRAIN_BASE_TEXT_H
#define DTRAIN_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct dt_text {
    char *at;
    size_t bytes, used; /* of the buffer; of the text, without the NUL */
};

/* An empty text in a buffer of at least one byte. */
struct dt_text dt_text_in(char *buffer, size_t bytes);
/* Appends, truncating if it does not fit. */
void dt_text_add(struct dt_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends all or nothing; false if it does not fit. */
bool dt_text_add_whole(struct dt_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Breaks text in a buffer that has room for more between words into lines of at most `width`
 * columns, and indents all but the first. */
void dt_text_wrap(char *text, size_t bytes, int width, int indent);

/* The end of a noun after a number: printf("%d rank%s", n, DT_S(n)). */
#define DT_S(n) ((n) == 1 ? "" : "s")

/* Reads "8,64,512" into out[capacity]. Returns how many, or 0 if it is anything but 1 to `capacity`
 * integers in 1..most. */
int dt_text_integers(int *out, int capacity, int max, const char *text);

/* --- UTF-8 (RFC 3629) --- */

/* Length of the well-formed UTF-8 sequence at `text` (1..4), 0 if it is not one. */
size_t dt_utf8_length(const char *text, size_t bytes);

bool dt_utf8_is_valid(const char *text); /* all of it */

/* Replaces control characters and invalid UTF-8 by '?', in place, so that untrusted names can
 * neither control the terminal nor forge a line. dt_log and error texts pass through it; a newline
 * stays before four spaces, with which the further lines of our own texts begin. */
void dt_utf8_escape(char *text);

#endif
