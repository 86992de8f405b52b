/* To preload into tests: a rank that waits for others yields the processor again and again, which
 * takes all of a core. After a moment it sleeps instead, at first shortly. */
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

int sched_yield(void)
{
    enum { WORK_US = 20, PATIENCE_US = 200, LONG_US = 50000 };
    static _Thread_local long since, last;
    long now = now_us();
    since = now - last > WORK_US ? now : since;
    if (now - since > PATIENCE_US)
        usleep(now - since > LONG_US ? 1000 : 50);
    else
        syscall(SYS_sched_yield);
    last = now_us();
    return 0;
}
