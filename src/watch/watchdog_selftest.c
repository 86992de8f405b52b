/* A process of its own hangs, to see that its watchdog ends it. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/pulse.h"
#include "watch/watchdog.h"

static const double limit_s = 1.0, patience_s = 20.0;
static const char wanted[] = "dtrain: error[HANG] rank 0";

static void hang(int error_fd)
{
    struct dt_watchdog *watchdog;
    const struct dt_watchdog_options options = {
        .n_ranks = 1, .init_s = limit_s, .step_s = limit_s, .save_s = limit_s};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(error_fd, STDERR_FILENO) < 0)
        _exit(1);
    dt_pulse_step(&dt_pulse_main, 57);
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_DATA);
    if (dt_watchdog_start(&watchdog, &options) != DT_OK)
        _exit(2);
    for (;;)
        pause();
}

/* What the child says, until it closes its end or the time is up. */
static void listen_to(int fd, char *text, size_t bytes, double until_s)
{
    size_t used = 0;
    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        double left_s = until_s - dt_clock_s();
        ssize_t n = 0;
        if (left_s > 0 && poll(&poll_fd, 1, (int)(left_s * 1000) + 1) > 0)
            n = read(fd, text + used, bytes - 1 - used);
        if (n <= 0 || (used += (size_t)n) == bytes - 1)
            break;
    }
    text[used] = '\0';
}

/* The exit code, -1 if it had to be killed. */
static int end_of(pid_t child, double until_s)
{
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (dt_clock_s() > until_s)
            kill(child, SIGKILL);
        dt_clock_sleep(0.01);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

dt_status dt_watchdog_self_test(double *seconds)
{
    int ends[2];
    char text[2048];
    double begin_s = dt_clock_s();
    if (pipe(ends) != 0)
        DT_FAIL(DT_ERR_INTERNAL, "cannot test the watchdog: no pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0)
        hang(ends[1]);
    int error = errno;
    close(ends[1]);
    if (child > 0)
        listen_to(ends[0], text, sizeof text, begin_s + patience_s);
    close(ends[0]);
    if (child < 0)
        DT_FAIL(DT_ERR_INTERNAL, "cannot test the watchdog: no process: %s", strerror(error));
    int code = end_of(child, begin_s + patience_s);
    *seconds = dt_clock_s() - begin_s;
    text[strcspn(text, "\n")] = '\0';
    if (code != DT_ERR_HANG || strncmp(text, wanted, strlen(wanted)) != 0 ||
        !strstr(text, "step 57, phase data"))
        DT_FAIL(DT_ERR_INTERNAL,
                "a process that hung was not ended by its watchdog as it should: exit code %d "
                "instead of %d, and it said \"%.200s\"",
                code, DT_ERR_HANG, text);
    return DT_OK;
}
