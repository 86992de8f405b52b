/* For builds with the leak checker, so that its reports name the leaking library.
 *
 * Keeps libraries loaded, as Open MPI unloads its plug-ins in MPI_Finalize, and their leaks could
 * not be suppressed by name. Allocates text here instead of in libc, which has no frame pointers:
 * the fast unwinder would stop there without reaching the caller, and the slow one takes half of
 * the start time. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int dlclose(void *handle);

int dlclose(void *handle)
{
    (void)handle;
    return 0;
}

static int allocate_text(char **text, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    *text = length < 0 ? NULL : malloc((size_t)length + 1);
    return *text ? vsnprintf(*text, (size_t)length + 1, format, arguments) : -1;
}

int __vasprintf_chk(char **text, int flag, const char *format, va_list arguments);
int __asprintf_chk(char **text, int flag, const char *format, ...);

int vasprintf(char **text, const char *format, va_list arguments)
{
    return allocate_text(text, format, arguments);
}

int __vasprintf_chk(char **text, int flag, const char *format, va_list arguments)
{
    (void)flag;
    return allocate_text(text, format, arguments);
}

int asprintf(char **text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = allocate_text(text, format, arguments);
    va_end(arguments);
    return length;
}

int __asprintf_chk(char **text, int flag, const char *format, ...)
{
    (void)flag;
    va_list arguments;
    va_start(arguments, format);
    int length = allocate_text(text, format, arguments);
    va_end(arguments);
    return length;
}
