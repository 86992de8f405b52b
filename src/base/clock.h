/* Monotonic time for decisions and measurements. */
#ifndef DTRAIN_BASE_CLOCK_H
#define DTRAIN_BASE_CLOCK_H

#include <stddef.h>

double dt_clock_s(void);             /* seconds since an arbitrary fixed point, CLOCK_MONOTONIC */
void dt_clock_sleep(double seconds); /* signals do not shorten it */
double dt_clock_unix_s(void);        /* the time of day, seconds since 1970 */
/* The time of day, "2026-11-22T14:00:00.123Z". */
enum { DT_CLOCK_UTC = 32 };
const char *dt_clock_utc(char out[DT_CLOCK_UTC]);
/* "4 s", "3 min 05 s", "2 h 07 min", "1 d 3 h" into out[bytes]. */
const char *dt_clock_format(char *out, size_t bytes, double seconds);

#endif
