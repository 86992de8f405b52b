/* Command lines, and the one place that starts other programs. */
#ifndef DTRAIN_LAUNCH_PROCESS_H
#define DTRAIN_LAUNCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

/* Words of a command line, with NULL behind the last. */
struct dt_words {
    char **at;
    size_t n;
};
dt_status dt_words_add(struct dt_words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* As a shell takes them, in `out`. */
void dt_words_quote(char *out, size_t bytes, const struct dt_words *words);
void dt_words_reset(struct dt_words *words);

enum dt_process_role {
    DT_PROCESS_JOB, /* in a process group of its own, so that Ctrl-C does not reach it, and without
                       the terminal's input; gets SIGTERM when this process ends */
    DT_PROCESS_HELPER, /* reads and prints nothing */
};

/* Starts a program of PATH with all signals unblocked; its standard output goes to `out` unless
 * that is -1. DT_ERR_MEMORY; a program that cannot be run ends with 127. */
dt_status dt_process_start(pid_t *pid, const struct dt_words *words, enum dt_process_role role,
                           int out);
/* Whether it has ended, waiting until `until_s` (dt_clock_s); *code as a shell shows it. */
bool dt_process_has_ended(pid_t pid, double until_s, int *code);
/* Waits for a helper, whose exit code it returns, and the beginning of what it prints on standard
 * output, "" if it cannot be run. */
int dt_process_ask(char *out, size_t bytes, const struct dt_words *words);

#endif
