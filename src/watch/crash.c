/* Crash message, and stacks on request. Uses async-signal-safe calls only, as the heap may be
 * corrupted or locked. */
#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "watch/watchdog.h"

static const struct {
    int signal;
    const char *name;
} crashes[] = {{SIGSEGV, "SIGSEGV"},
               {SIGBUS, "SIGBUS"},
               {SIGFPE, "SIGFPE"},
               {SIGILL, "SIGILL"},
               {SIGABRT, "SIGABRT"}};

enum { STACK_BYTES = 64 * 1024, LINE_BYTES = 256 };
static char stack[STACK_BYTES]; /* the normal stack may have overflowed */
static int own_rank;

struct line {
    char text[LINE_BYTES];
    size_t used;
};

static void add_text(struct line *line, const char *text)
{
    while (*text && line->used < sizeof line->text)
        line->text[line->used++] = *text++;
}

static void add_number(struct line *line, int64_t value)
{
    char digits[24];
    size_t i = sizeof digits;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    digits[--i] = '\0';
    do
        digits[--i] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        digits[--i] = '-';
    add_text(line, digits + i);
}

static void print_line(const struct line *line)
{
    ssize_t written = write(STDERR_FILENO, line->text, line->used);
    (void)written;
}

static void add_place(struct line *line)
{
    struct dt_pulse_state at;
    dt_pulse_read(&dt_pulse_main, &at);
    add_text(line, " at step ");
    add_number(line, at.step);
    add_text(line, ", section ");
    add_text(line, dt_section_name(at.section));
}

/* --- Crashes --- */

/* The default action is restored, so raising the signal again ends the process. */
static void report_crash(int number)
{
    struct line line = {.used = 0};
    const char *name = "a signal";
    for (size_t i = 0; i < DT_COUNT(crashes); i++)
        if (crashes[i].signal == number)
            name = crashes[i].name;
    add_text(&line, "dtrain: error[CRASH] rank ");
    add_number(&line, own_rank);
    add_text(&line, " (pid ");
    add_number(&line, getpid());
    add_text(&line, ") died of ");
    add_text(&line, name);
    add_place(&line);
    add_text(&line, "; checkpoints are intact; submit the job again to resume\n");
    print_line(&line);
    raise(number);
}

void dt_watchdog_catch_crashes(int rank)
{
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = report_crash,
                               .sa_flags = (int)(SA_ONSTACK | SA_RESETHAND | SA_NODEFER)};
    own_rank = rank;
    sigemptyset(&action.sa_mask);
    if (sigaltstack(&other, NULL) != 0)
        action.sa_flags &= ~SA_ONSTACK;
    for (size_t i = 0; i < DT_COUNT(crashes); i++)
        sigaction(crashes[i].signal, &action, NULL);
}

/* --- Stacks --- */

static _Atomic int n_shown;

static void show_stack(void)
{
    enum { MAX_FRAMES = 64, NAME_BYTES = 16 };
    struct line line = {.used = 0};
    char name[NAME_BYTES] = "";
    void *frames[MAX_FRAMES];
    prctl(PR_GET_NAME, name);
    add_text(&line, "dtrain: stack of rank ");
    add_number(&line, own_rank);
    add_text(&line, ", thread ");
    add_number(&line, gettid());
    add_text(&line, " (");
    add_text(&line, name);
    add_text(&line, ")");
    if (gettid() == getpid())
        add_place(&line);
    add_text(&line, "\n");
    print_line(&line);
    backtrace_symbols_fd(frames, backtrace(frames, MAX_FRAMES), STDERR_FILENO);
    atomic_fetch_add(&n_shown, 1);
}

/* Threads of libraries may have blocked the signal: they do not keep the others waiting. */
static void ask_thread(long thread)
{
    enum { MAX_WAITS = 100 };
    const int before = atomic_load(&n_shown);
    if (thread == gettid())
        show_stack();
    else if (thread > 0 && syscall(SYS_tgkill, getpid(), thread, SIGQUIT) == 0)
        for (int i = 0; i < MAX_WAITS && atomic_load(&n_shown) == before; i++)
            dt_clock_sleep(0.001);
}

/* The request of a user comes to one thread, which asks the others. */
static void on_quit(int number, siginfo_t *info, void *context)
{
    _Alignas(struct dirent64) char entries[4096];
    const int saved = errno;
    long n = 0;
    (void)number;
    (void)context;
    const int fd = info->si_code == SI_TKILL ? -1 : open("/proc/self/task", O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        show_stack();
    while (fd >= 0 && (n = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0)
        for (long at = 0; at < n; at += ((struct dirent64 *)(entries + at))->d_reclen)
            ask_thread(strtol(((struct dirent64 *)(entries + at))->d_name, NULL, 10));
    if (fd >= 0)
        close(fd);
    errno = saved;
}

void dt_watchdog_show_stacks(int rank)
{
    struct sigaction action = {.sa_sigaction = on_quit, .sa_flags = SA_RESTART | SA_SIGINFO};
    void *frame;
    own_rank = rank;
    backtrace(&frame, 1); /* loads what it needs, which a handler must not */
    sigemptyset(&action.sa_mask);
    sigaction(SIGQUIT, &action, NULL);
}
