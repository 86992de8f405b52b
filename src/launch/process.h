/* Command lines, and the one place that starts other programs. */
#ifndef DTRAIN_LAUNCH_PROCESS_H
#define DTRAIN_LAUNCH_PROCESS_H

#include <signal.h>
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
/* Adds what single spaces separate. */
dt_status dt_words_split(struct dt_words *words, const char *text);
/* As a shell takes them, in `out`. */
void dt_words_quote(char *out, size_t bytes, const struct dt_words *words);
void dt_words_reset(struct dt_words *words);

enum dt_process_role {
    DT_PROCESS_JOB,     /* without the terminal's input */
    DT_PROCESS_HELPER,  /* reads and prints nothing */
    DT_PROCESS_CLEANER, /* the same, without DTRAIN_LAUNCH: it is not of the job */
};

/* Starts a program of PATH in a process group of its own, so that Ctrl-C does not reach it, with
 * all signals unblocked; it gets SIGTERM when this process ends. Its standard output goes to `out`
 * unless that is -1. DT_ERR_MEMORY; a program that cannot be run ends with 127. */
dt_status dt_process_start(pid_t *pid, const struct dt_words *words, enum dt_process_role role,
                           int out);
/* Whether it has ended, waiting until `until_s` (dt_clock_s); *code as a shell shows it. */
bool dt_process_has_ended(pid_t pid, double until_s, int *code);
/* SIGTERM, after 5 s SIGKILL for its group; returns when it has ended. */
void dt_process_end(pid_t pid);
/* Runs a helper for at most `seconds`, or until this process is told to end; then its whole group
 * is ended. Returns its exit code, and in `out` the beginning of its standard output, "" if it
 * cannot be run. */
enum { DT_PROCESS_LATE = 128 + SIGTERM };
int dt_process_ask(char *out, size_t bytes, const struct dt_words *words, double seconds);
/* Whether a signal that ends programs waits, blocked. */
bool dt_process_is_asked(void);

#endif
