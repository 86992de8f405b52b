#include "launch/launcher.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"

/* --- Words --- */

dt_status dt_words_add(struct dt_words *words, const char *format, ...)
{
    va_list args;
    char **at = realloc(words->at, (words->n + 2) * sizeof *at);
    if (!at)
        DT_FAIL(DT_ERR_MEMORY, "out of memory for a command line");
    words->at = at;
    va_start(args, format);
    const int n = vasprintf(&at[words->n], format, args);
    va_end(args);
    if (n < 0)
        DT_FAIL(DT_ERR_MEMORY, "out of memory for a command line");
    at[++words->n] = NULL;
    return DT_OK;
}

dt_status dt_words_split(struct dt_words *words, const char *text)
{
    while (text && *text) {
        const size_t bytes = strcspn(text, " ");
        DT_TRY(dt_words_add(words, "%.*s", (int)bytes, text));
        text += bytes + (text[bytes] == ' ');
    }
    return DT_OK;
}

void dt_words_quote(char *out, size_t bytes, const struct dt_words *words)
{
    static const char safe[] = "%+,-./:=@_";
    struct dt_text text = dt_text_in(out, bytes);
    for (size_t i = 0; i < words->n; i++) {
        bool is_plain = words->at[i][0] != '\0';
        for (const char *c = words->at[i]; *c; c++)
            is_plain = is_plain && (isalnum((unsigned char)*c) || strchr(safe, *c));
        dt_text_add(&text, "%s%s", i ? " " : "", is_plain ? "" : "'");
        for (const char *c = words->at[i]; *c; c++)
            dt_text_add(&text, *c == '\'' ? "'\\''" : "%c", *c);
        dt_text_add(&text, "%s", is_plain ? "" : "'");
    }
}

void dt_words_reset(struct dt_words *words)
{
    for (size_t i = 0; i < words->n; i++)
        free(words->at[i]);
    free(words->at);
    *words = (struct dt_words){0};
}

/* --- Processes --- */

static bool open_null(int fd, int flags)
{
    const int null = open("/dev/null", flags);
    return null >= 0 && dup2(null, fd) == fd;
}

static void become(char **words, enum dt_process_role role, int out, pid_t parent)
{
    sigset_t none;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    bool ok = getppid() == parent;
    if (role != DT_PROCESS_JOB || isatty(STDIN_FILENO))
        ok = ok && open_null(STDIN_FILENO, O_RDONLY);
    if (role != DT_PROCESS_JOB)
        ok = ok && open_null(STDOUT_FILENO, O_WRONLY) && open_null(STDERR_FILENO, O_WRONLY);
    if (role == DT_PROCESS_CLEANER)
        unsetenv("DTRAIN_LAUNCH");
    if (out >= 0)
        ok = ok && dup2(out, STDOUT_FILENO) == STDOUT_FILENO;
    if (ok)
        execvp(words[0], words);
    dprintf(STDERR_FILENO, "cannot start %s: %s\n", words[0], strerror(errno));
    _exit(127);
}

dt_status dt_process_start(pid_t *pid, const struct dt_words *words, enum dt_process_role role,
                           int out)
{
    const pid_t parent = getpid();
    *pid = fork();
    if (*pid < 0)
        DT_FAIL(DT_ERR_MEMORY, "cannot start %s: %s", words->at[0], strerror(errno));
    if (*pid == 0)
        become(words->at, role, out, parent);
    return DT_OK;
}

bool dt_process_has_ended(pid_t pid, double until_s, int *code)
{
    int state;
    pid_t ended;
    while ((ended = waitpid(pid, &state, WNOHANG)) == 0 && dt_clock_s() < until_s)
        dt_clock_sleep(0.05);
    if (ended == pid)
        *code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    return ended != 0; /* -1: there is no such child */
}

void dt_process_end(pid_t pid)
{
    static const double patience_s = 5;
    int code;
    kill(pid, SIGTERM);
    while (!dt_process_has_ended(pid, dt_clock_s() + patience_s, &code))
        kill(-pid, SIGKILL);
}

bool dt_process_is_asked(void)
{
    sigset_t waiting;
    sigpending(&waiting);
    sigdelset(&waiting, SIGCHLD);
    return !sigisemptyset(&waiting);
}

/* Until the end of the file, `until_s`, or a signal. */
static void read_all(char *out, size_t bytes, int fd, double until_s)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    size_t used = 0;
    ssize_t n = 1;
    while (used < bytes - 1 && n > 0 && dt_clock_s() < until_s && !dt_process_is_asked()) {
        if (poll(&ready, 1, 200) <= 0)
            continue;
        n = read(fd, out + used, bytes - 1 - used);
        used += n > 0 ? (size_t)n : 0;
    }
    out[used] = '\0';
}

int dt_process_ask(char *out, size_t bytes, const struct dt_words *words, double seconds)
{
    const double until_s = dt_clock_s() + seconds;
    int ends[2], code = 127;
    pid_t pid;
    out[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return code;
    const bool runs = dt_process_start(&pid, words, DT_PROCESS_HELPER, ends[1]) == DT_OK;
    close(ends[1]);
    if (runs)
        read_all(out, bytes, ends[0], until_s);
    close(ends[0]);
    /* It has closed its output, or is late. */
    if (runs && !dt_process_has_ended(pid, fmin(until_s, dt_clock_s() + 1), &code)) {
        dt_process_end(pid);
        kill(-pid, SIGKILL);
        code = DT_PROCESS_LATE;
    }
    return code;
}
