/* To preload: a wall clock that is wrong by $WRONG_CLOCK_S seconds. Not for programs that wait
 * until a time of that clock: the kernel waits by its own. (faketime shifts such waits too, with
 * locks in which programs with many threads hang.) */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    const char *wrong_s = getenv("WRONG_CLOCK_S");
    int code = (int)syscall(SYS_clock_gettime, clock, now);
    if (code == 0 && wrong_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += strtol(wrong_s, NULL, 10);
    return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out)
        *out = exact.tv_sec;
    return exact.tv_sec;
}
