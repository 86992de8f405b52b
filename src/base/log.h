/* Messages for people, on stderr and in a file of each rank. Rank 0 prints everything; other ranks
 * print warnings and errors only, prefixed with "[rank 3 @ node2]". Thread-safe, one write per
 * line. Control characters are escaped. */
#ifndef DTRAIN_BASE_LOG_H
#define DTRAIN_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A notice is a warning that all ranks have alike. */
enum dt_log_level { DT_LOG_ERROR, DT_LOG_WARNING, DT_LOG_NOTICE, DT_LOG_INFO, DT_LOG_DEBUG };

/* Call once the rank is known; before that the process logs as rank 0 of 1. */
void dt_log_init(enum dt_log_level level, int rank, int n_ranks);

/* "[rank 3 @ node2] ", "" on rank 0: what a line on stderr begins with. */
const char *dt_log_place(void);

/* The sequence that colours the prefix of an error or a warning on a terminal, unless NO_COLOR is
 * set; else "". DT_LOG_PLAIN ends it. */
const char *dt_log_colour(enum dt_log_level level);
#define DT_LOG_PLAIN "\033[0m"

/* All ranks print all lines. */
void dt_log_tee(void);
/* Main thread: from here on all lines, whatever their level, also go to the end of
 * dir/logs/rank-0003.log, with the time: "2026-11-22T14:00:00.123Z warning: text". A line is
 * written whole or not at all: if it cannot be, a warning says so, and the next line that can be
 * how many are lacking. If the file has 64 MiB, a warning says that it ends. */
void dt_log_open(const char *dir);
/* A line for the file only; a warning is counted. */
void dt_log_record(enum dt_log_level level, const char *text);

/* Lines look like "dtrain: warning: text", wrapped at words on a terminal. A transient line
 * (dt_log_progress) is cleared first. */
void dt_log(enum dt_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* How many warnings and notices there were so far. */
int64_t dt_log_warnings(void);

/* True if rank 0's stderr reaches a terminal that can show a self-rewriting line (columns > 0, TERM
 * not dumb), directly or through mpirun. Under mpirun stdout looks like a terminal even in a job
 * log, so stdout is never checked. */
bool dt_log_is_terminal(void);
/* Width of a terminal, 0 if the file is none. Help may be broken by it, a log may not. */
int dt_terminal_columns(int fd);
/* Replaces the last progress line with `text`; "" clears it. Without a terminal `text` becomes a
 * line if there was none for half a minute. */
void dt_log_progress(const char *text);
/* Draws "<what>: <done> of <total> <things>, <rate>/s, about <time> left" a few times a second, but
 * not within the first one after start_s (a dt_clock_s); done is at least 1. */
void dt_log_progress_of(const char *what, size_t done, size_t total, const char *things,
                        double start_s);

#endif
