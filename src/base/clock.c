/* Monotonic clock and human-readable durations. */
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

double dt_clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void dt_clock_sleep(double seconds)
{
    time_t whole = (time_t)seconds;
    struct timespec left = {.tv_sec = whole, .tv_nsec = (long)(1e9 * (seconds - (double)whole))};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

const char *dt_clock_format(char *out, size_t bytes, double seconds)
{
    long s = seconds < 0 ? 0 : seconds > 1e9 ? 1000000000L : (long)(seconds + 0.5);
    if (s < 60)
        snprintf(out, bytes, "%ld s", s);
    else if (s < 3600)
        snprintf(out, bytes, "%ld min %02ld s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, bytes, "%ld h %02ld min", s / 3600, s / 60 % 60);
    else
        snprintf(out, bytes, "%ld d %ld h", s / 86400, s / 3600 % 24);
    return out;
}

double dt_clock_unix_s(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

const char *dt_clock_utc(char out[DT_CLOCK_UTC])
{
    struct timespec now = {0};
    struct tm utc = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(out, DT_CLOCK_UTC, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + n, DT_CLOCK_UTC - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
    return out;
}
