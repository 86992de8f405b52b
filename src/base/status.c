/* Status names and the error trail: one record per thread, filled where an error is raised and
 * extended by every caller it passes through. */
#include "base/status.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { TEXT_BYTES = 16384, TRAIL_BYTES = 2048 };

static _Thread_local struct {
    char text[TEXT_BYTES];
    char trail[TRAIL_BYTES];
    int origin;
} error, kept;

const char *dt_status_name(dt_status status)
{
#define NAME(code, name, number, text) \
    case code:                         \
        return #name;
    switch (status) {
        DT_STATUS_LIST(NAME)
    }
    return "UNKNOWN";
}

dt_status dt_error_set(dt_status status, const char *file, int line, const char *format, ...)
{
    /* Formatted into a separate buffer, because the arguments may point into the old text. */
    static _Thread_local char next[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    if (vsnprintf(next, sizeof(next), format, args) < 0)
        snprintf(next, sizeof(next), "(unprintable error text)");
    va_end(args);
    dt_utf8_escape(next); /* it can contain names of untrusted files */
    memcpy(error.text, next, strlen(next) + 1);
    snprintf(error.trail, sizeof(error.trail), "%s:%d", file, line);
    error.origin = DT_ORIGIN_LOCAL;
    return status;
}

dt_status dt_error_pass(dt_status status, const char *function, const char *file, int line)
{
    size_t used = strlen(error.trail);
    snprintf(error.trail + used, sizeof(error.trail) - used, " < %s (%s:%d)", function, file, line);
    return status;
}

const char *dt_error_text(void)
{
    return error.text;
}

const char *dt_error_trail(void)
{
    return error.trail;
}

int dt_error_origin(void)
{
    return error.origin;
}

void dt_error_set_origin(int rank)
{
    error.origin = rank;
}

void dt_error_keep(void)
{
    kept = error;
}

void dt_error_restore(void)
{
    error = kept;
}

void dt_error_clear(void)
{
    error.text[0] = '\0';
    error.trail[0] = '\0';
}
