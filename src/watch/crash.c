/* Crash message. Uses async-signal-safe calls only, as the heap may be corrupted. */
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

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

/* The default action is restored, so raising the signal again ends the process. */
static void report_crash(int number)
{
    struct line line = {.used = 0};
    struct dt_pulse_state at;
    const char *name = "a signal";
    for (size_t i = 0; i < DT_COUNT(crashes); i++)
        if (crashes[i].signal == number)
            name = crashes[i].name;
    dt_pulse_read(&dt_pulse_main, &at);
    add_text(&line, "dtrain: error[CRASH] rank ");
    add_number(&line, own_rank);
    add_text(&line, " (pid ");
    add_number(&line, getpid());
    add_text(&line, ") died of ");
    add_text(&line, name);
    add_text(&line, " at step ");
    add_number(&line, at.step);
    add_text(&line, ", section ");
    add_text(&line, dt_section_name(at.section));
    add_text(&line, "; checkpoints are intact; submit the job again to resume\n");
    ssize_t written = write(STDERR_FILENO, line.text, line.used);
    (void)written;
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
