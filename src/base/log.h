/* Messages for people, on stderr. Rank 0 prints everything; other ranks print warnings and errors
 * only, prefixed with "[rank 3 @ node2]". Thread-safe, one write per line. Control characters are
 * escaped. */
#ifndef DTRAIN_BASE_LOG_H
#define DTRAIN_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

/* A notice is a warning that all ranks have alike. */
enum dt_log_level { DT_LOG_ERROR, DT_LOG_WARNING, DT_LOG_NOTICE, DT_LOG_INFO, DT_LOG_DEBUG };

/* Call once the rank is known; before that the process logs as rank 0 of 1. */
void dt_log_init(enum dt_log_level level, int rank, int n_ranks);

/* Lines look like "dtrain: warning: text". A transient line (dt_log_progress) is cleared first. */
void dt_log(enum dt_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* True if rank 0's stderr reaches a terminal that can show a self-rewriting line (columns > 0, TERM
 * not dumb), directly or through mpirun. Under mpirun stdout looks like a terminal even in a job
 * log, so stdout is never checked. */
bool dt_log_is_terminal(void);
/* Replaces the last progress line with `text`; does nothing without a terminal. "" clears it. */
void dt_log_progress(const char *text);
/* Draws "<what>: <done> of <total> <things>, about <time> left", but not within the first second
 * after start_s (a dt_clock_s); done is at least 1. */
void dt_log_progress_of(const char *what, size_t done, size_t total, const char *things,
                        double start_s);

#endif
