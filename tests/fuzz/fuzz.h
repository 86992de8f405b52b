/* Shared by the fuzz targets: the input as a file, and checks that are active in every build. A
 * target is a function of bytes; a failed check aborts the process, which both libFuzzer and the
 * replay report with the input. */
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

#define FUZZ_CHECK(condition)                                                                 \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "%s:%d: check failed: %s (last error: %s)\n", __FILE__, __LINE__, \
                    #condition, dt_error_text());                                             \
            abort();                                                                          \
        }                                                                                     \
    } while (0)

/* What an input came to, for the replay: the first that its target says of it. */
extern struct fuzz_outcome {
    int is_settled;
    char refusal[1 << 14]; /* "": accepted */
    size_t n;              /* samples or tensors */
    const char *path;      /* of the input, as the text names it */
    int is_replay;         /* there is time to decode large images */
} fuzz_outcome;

void fuzz_accept(size_t n);

/* An input may be rejected only with this code and a text without control characters. */
void fuzz_check_refusal(dt_status status, dt_status expected);

/* Path of an in-memory file that holds the bytes until the next call. */
const char *fuzz_file(const uint8_t *data, size_t bytes);
/* Stores the bytes as `name` in a separate folder and returns the path of the folder. */
const char *fuzz_folder_file(const char *name, const void *data, size_t bytes);

#endif
