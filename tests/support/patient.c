/* To preload into ranks: one that waits for others for long sleeps instead of yielding the
 * processor again and again, which takes all of a core. */
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
    enum { WORK_US = 200, PATIENCE_US = 50000, NAP_US = 1000 };
    static _Thread_local long since, last;
    long now = now_us();
    since = now - last > WORK_US ? now : since;
    if (now - since > PATIENCE_US)
        usleep(NAP_US);
    else
        syscall(SYS_sched_yield);
    last = now_us();
    return 0;
}
