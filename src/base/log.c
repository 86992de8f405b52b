/* Messages and the progress line on stderr. Each line is a single write, so lines of different
 * threads and ranks do not mix. */
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/utf8.h"

enum { LINE_BYTES = 20480, MIN_COLUMNS = 40 };

static struct {
    pthread_mutex_t lock;
    enum dt_log_level level;
    int rank, n_ranks;
    int terminal; /* descriptor of the terminal that shows stderr, else stderr */
    bool progress_shown;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .level = DT_LOG_INFO,
           .n_ranks = 1,
           .terminal = STDERR_FILENO};

/* mpirun gives each rank a pipe for stderr and copies it to its own stderr, which may be a
 * terminal; it is the parent of the ranks on its own node. */
static int find_terminal(void)
{
    char path[64];
    if (isatty(STDERR_FILENO) || !getenv("OMPI_COMM_WORLD_RANK"))
        return STDERR_FILENO;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getppid(), STDERR_FILENO);
    int fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && isatty(fd))
        return fd;
    if (fd >= 0)
        close(fd);
    return STDERR_FILENO;
}

void dt_log_init(enum dt_log_level level, int rank, int n_ranks)
{
    if (rank == 0 && state.terminal == STDERR_FILENO)
        state.terminal = find_terminal();
    state.level = level;
    state.rank = rank;
    state.n_ranks = n_ranks;
}

static int columns(void)
{
    struct winsize size;
    const char *term = getenv("TERM");
    if (state.rank != 0 || !isatty(state.terminal) || !term || strcmp(term, "dumb") == 0)
        return 0;
    return ioctl(state.terminal, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool dt_log_is_terminal(void)
{
    return columns() >= MIN_COLUMNS;
}

static void write_all(const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(STDERR_FILENO, text, bytes);
        if (n <= 0)
            return; /* nowhere left to report it */
        text += n;
        bytes -= (size_t)n;
    }
}

void dt_log(enum dt_log_level level, const char *format, ...)
{
    static const char *const prefix[] = {"error: ", "warning: ", "warning: ", "", "debug: "};
    if (level > state.level || (state.rank != 0 && level > DT_LOG_WARNING))
        return;
    char line[LINE_BYTES], host[DT_HOST_MAX];
    size_t used = 0;
    if (state.rank != 0) {
        dt_host_name(host);
        used = (size_t)snprintf(line, sizeof(line), "[rank %d @ %s] ", state.rank, host);
    }
    used += (size_t)snprintf(line + used, sizeof(line) - used, "dtrain: %s", prefix[level]);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, sizeof(line) - used - 1, format, args);
    va_end(args);
    dt_utf8_escape(line);
    used = strlen(line);
    line[used++] = '\n';

    pthread_mutex_lock(&state.lock);
    if (state.progress_shown)
        write_all("\r\033[K", 4);
    state.progress_shown = false;
    write_all(line, used);
    pthread_mutex_unlock(&state.lock);
}

void dt_log_progress(const char *text)
{
    int width = columns();
    if (width < MIN_COLUMNS)
        return;
    char line[1024];
    snprintf(line, sizeof(line), "%.*s", width - 1, text);
    dt_utf8_escape(line);
    pthread_mutex_lock(&state.lock);
    write_all("\r\033[K", 4);
    write_all(line, strlen(line));
    state.progress_shown = line[0] != '\0';
    pthread_mutex_unlock(&state.lock);
}

void dt_log_progress_of(const char *what, size_t done, size_t total, const char *things,
                        double start_s)
{
    char text[160], left[32];
    double elapsed_s = dt_clock_s() - start_s;
    if (elapsed_s < 1)
        return;
    dt_clock_format(left, sizeof(left), elapsed_s / (double)done * (double)(total - done));
    snprintf(text, sizeof(text), "%s: %zu of %zu %s, about %s left", what, done, total, things,
             left);
    dt_log_progress(text);
}
