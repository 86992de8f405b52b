#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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

int dt_text_integers(int *out, int capacity, int most, const char *text)
{
    for (int n = 0; n < capacity; text++) {
        char *end;
        long value = strtol(text, &end, 10);
        if (end == text || value < 1 || value > most || (*end != ',' && *end != '\0'))
            return 0;
        out[n++] = (int)value;
        if (*end == '\0')
            return n;
        text = end;
    }
    return 0;
}
