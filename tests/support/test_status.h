/* What calls of dtrain return: the status, and of an error a part of its text. */
#ifndef DTRAIN_TESTS_TEST_STATUS_H
#define DTRAIN_TESTS_TEST_STATUS_H

#include <string.h>

#include "base/status.h"
#include "test.h"

#define assert_ok(CALL)                  check_status((CALL), DT_OK, "", __FILE__, __LINE__)
#define assert_error(CALL, STATUS, PART) check_status((CALL), (STATUS), (PART), __FILE__, __LINE__)

static inline void check_status(dt_status got, dt_status wanted, const char *part, const char *file,
                                int line)
{
    if (got == wanted && (got == DT_OK || strstr(dt_error_text(), part)))
        return;
    print_error("wanted %s with \"%s\", got %s: %s\n%s\n", dt_status_name(wanted), part,
                dt_status_name(got), dt_error_text(), dt_error_trail());
    _fail(file, line);
}

#endif
