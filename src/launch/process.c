#include "launch/process.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
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
    bool ok = true;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (role == DT_PROCESS_JOB) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        ok = getppid() == parent;
    }
    if (role == DT_PROCESS_HELPER || isatty(STDIN_FILENO))
        ok = ok && open_null(STDIN_FILENO, O_RDONLY);
    if (role == DT_PROCESS_HELPER) {
        unsetenv("DTRAIN_LAUNCH"); /* it is not of the job */
        ok = ok && open_null(STDOUT_FILENO, O_WRONLY) && open_null(STDERR_FILENO, O_WRONLY);
    }
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
    return ended == pid;
}

int dt_process_ask(char *out, size_t bytes, const struct dt_words *words)
{
    int ends[2], code = 127;
    size_t used = 0;
    ssize_t n = 1;
    pid_t pid;
    out[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return code;
    const bool runs = dt_process_start(&pid, words, DT_PROCESS_HELPER, ends[1]) == DT_OK;
    close(ends[1]);
    while (runs && used < bytes - 1 && n > 0) {
        n = read(ends[0], out + used, bytes - 1 - used);
        used += n > 0 ? (size_t)n : 0;
    }
    out[used] = '\0';
    close(ends[0]);
    while (runs && !dt_process_has_ended(pid, dt_clock_s() + 5, &code))
        kill(pid, SIGKILL);
    return code;
}
