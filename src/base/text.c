#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dt_text dt_text_in(char *buffer, size_t bytes)
{
    buffer[0] = '\0';
    return (struct dt_text){.at = buffer, .bytes = bytes};
}

/* Writes at the end and returns the bytes that the new part needs; `used` is unchanged. */
static size_t print_end(const struct dt_text *text, const char *format, va_list args)
{
    int n = vsnprintf(text->at + text->used, text->bytes - text->used, format, args);
    return n > 0 ? (size_t)n : 0;
}

void dt_text_add(struct dt_text *text, const char *format, ...)
{
    size_t last = text->bytes - text->used - 1;
    va_list args;
    va_start(args, format);
    size_t n = print_end(text, format, args);
    va_end(args);
    text->used += n < last ? n : last;
}

bool dt_text_add_whole(struct dt_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t n = print_end(text, format, args);
    va_end(args);
    bool fits = n < text->bytes - text->used;
    text->used += fits ? n : 0;
    text->at[text->used] = '\0';
    return fits;
}

void dt_text_wrap(char *text, size_t bytes, int width, int indent)
{
    const size_t n = (size_t)indent + 1;
    char *space = NULL;
    int column = 0;
    for (char *c = text; *c; c++) {
        column = *c == '\n' ? 0 : column + ((*c & 0xc0) != 0x80);
        if (*c == '\n')
            space = NULL;
        else if (*c == ' ' && (column <= width || !space))
            space = c;
        if (column <= width || !space || strlen(text) + n > bytes)
            continue;
        char *word = space + strspn(space, " ");
        memmove(space + n, word, strlen(word) + 1);
        *space = '\n';
        memset(space + 1, ' ', n - 1);
        column = indent;
        c = space + n - 1;
        space = NULL;
    }
}

int dt_text_integers(int *out, int capacity, int max, const char *text)
{
    for (int n = 0; n < capacity; text++) {
        char *end;
        long value = strtol(text, &end, 10);
        if (end == text || value < 1 || value > max || (*end != ',' && *end != '\0'))
            return 0;
        out[n++] = (int)value;
        if (*end == '\0')
            return n;
        text = end;
    }
    return 0;
}

/* --- UTF-8 --- */

size_t dt_utf8_length(const char *text, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    if (bytes == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    size_t n = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : 4;
    if (p[0] < 0xc2 || p[0] > 0xf4 || n > bytes)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool surrogate = p[0] == 0xed && p[1] > 0x9f;
    bool too_large = p[0] == 0xf4 && p[1] > 0x8f;
    return overlong || surrogate || too_large ? 0 : n;
}

bool dt_utf8_is_valid(const char *text)
{
    for (size_t n; *text; text += n)
        if ((n = dt_utf8_length(text, strlen(text))) == 0)
            return false;
    return true;
}

void dt_utf8_escape(char *text)
{
    size_t left = strlen(text), n;
    for (; left > 0; text += n, left -= n) {
        const unsigned char *c = (const unsigned char *)text;
        n = dt_utf8_length(text, left);
        bool control = (*c < 0x20 && strncmp(text, "\n    ", 5) != 0) || *c == 0x7f;
        bool control_c1 = n == 2 && c[0] == 0xc2 && c[1] < 0xa0;
        if (n == 0)
            n = 1;
        else if (!control && !control_c1)
            continue;
        memset(text, '?', n);
    }
}
