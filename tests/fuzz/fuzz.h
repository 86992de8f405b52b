/* What the fuzz targets share: the input as a file, and checks that hold in every build. A target
 * is one function of bytes; a broken promise ends the process, which libFuzzer and the replay both
 * report with the input. */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define FUZZ_CHECK(condition)                                                                   \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: broken promise: %s (last error: %s)\n", __FILE__, __LINE__, \
                    #condition, dt_error_text());                                               \
            abort();                                                                            \
        }                                                                                       \
    } while (0)

/* The only ways to refuse: this code, with a text. */
static inline void fuzz_check_refusal(dt_status status, dt_status expected)
{
    FUZZ_CHECK(status == expected);
    FUZZ_CHECK(dt_error_text()[0] != '\0');
}

/* Path of a file in memory that holds the bytes until the next call. */
const char *fuzz_file(const uint8_t *data, size_t bytes);
/* The same as `name` in a folder of its own, whose path is returned. */
const char *fuzz_folder_file(const char *name, const void *data, size_t bytes);

#endif
