/* Messages and the progress line on stderr, and the log file. Each line is a single write, so lines
 * of different threads and ranks do not mix. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/text.h"

enum {
    LINE_BYTES = 20480,
    PREFIX_BYTES = DT_HOST_MAX + 64,
    MIN_COLUMNS = 40,
    PATH_BYTES = 2048,
    FILE_MAX_BYTES = 64 << 20,
    SILENCE_S = 30 /* the longest without a terminal, while there is progress */
};

/* The lock guards file, file_bytes, n_lost, n_warnings, said_s and progress_shown, and makes each
 * line one whole. The rest is set by the main thread before others log. A thread takes no other
 * lock while it holds this one.
 */
static struct {
    pthread_mutex_t lock;
    enum dt_log_level level;
    int rank, n_ranks;
    char place[DT_HOST_MAX + 32];
    int terminal;  /* descriptor of the terminal that shows stderr, else stderr */
    double said_s; /* when the last line went to stderr; 0 = none */
    bool progress_shown, tee;
    int64_t n_warnings;
    int file; /* -1 = none */
    off_t file_bytes;
    int64_t n_lost; /* lines since the last one that could be written */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .level = DT_LOG_INFO,
           .n_ranks = 1,
           .terminal = STDERR_FILENO,
           .file = -1};

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
    char host[DT_HOST_MAX];
    if (rank == 0 && state.terminal == STDERR_FILENO)
        state.terminal = find_terminal();
    state.level = level;
    state.rank = rank;
    state.n_ranks = n_ranks;
    state.place[0] = '\0';
    if (rank == 0)
        return;
    dt_host_name(host);
    snprintf(state.place, sizeof state.place, "[rank %d @ %s] ", rank, host);
}

const char *dt_log_place(void)
{
    return state.place;
}

int dt_terminal_columns(int fd)
{
    struct winsize size;
    const char *term = getenv("TERM");
    const bool is_terminal = isatty(fd) && term && strcmp(term, "dumb") != 0;
    return is_terminal && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static int columns(void)
{
    return state.rank == 0 ? dt_terminal_columns(state.terminal) : 0;
}

bool dt_log_is_terminal(void)
{
    return state.level >= DT_LOG_INFO && columns() >= MIN_COLUMNS;
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

void dt_log_tee(void)
{
    state.tee = true;
}

const char *dt_log_colour(enum dt_log_level level)
{
    const char *no_color = getenv("NO_COLOR");
    if (level > DT_LOG_NOTICE || columns() < MIN_COLUMNS || (no_color && *no_color))
        return "";
    return level == DT_LOG_ERROR ? "\033[31m" : "\033[33m";
}

static const char *const prefixes[] = {"error: ", "warning: ", "warning: ", "", "debug: "};

/* The functions from here to dt_log are called with the lock held. */
static void print(enum dt_log_level level, const char *text)
{
    char line[PREFIX_BYTES + LINE_BYTES];
    const char *colour = dt_log_colour(level);
    int n = snprintf(line, sizeof line, "%sdtrain: %s%s%s%s\n", state.place, colour,
                     prefixes[level], colour[0] ? DT_LOG_PLAIN : "", text);
    if (columns() >= MIN_COLUMNS) {
        dt_text_wrap(line, sizeof line, columns(), 8);
        n = (int)strlen(line);
    }
    if (state.progress_shown)
        write_all("\r\033[K", 4);
    state.progress_shown = false;
    state.said_s = dt_clock_s();
    write_all(line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
}

/* Removes a part of a line; the file ends there, or the next line is tried. */
static void lose_line(const char *why, bool ends)
{
    char text[PREFIX_BYTES];
    if (ftruncate(state.file, state.file_bytes) != 0) {
        why = strerror(errno);
        ends = true;
    }
    if (ends) {
        close(state.file);
        state.file = -1;
    }
    snprintf(text, sizeof text, "the log file of rank %d %s: %s", state.rank,
             ends ? "ends here" : "lacks lines", why);
    if (ends || state.n_lost == 0)
        print(DT_LOG_WARNING, text);
    state.n_lost++;
}

static void write_file(enum dt_log_level level, const char *text)
{
    char line[PREFIX_BYTES + LINE_BYTES], now[DT_CLOCK_UTC], gap[96] = "";
    if (state.file < 0)
        return;
    if (state.n_lost > 0)
        snprintf(gap, sizeof gap, "(%lld lines before this one could not be written) ",
                 (long long)state.n_lost);
    int n =
        snprintf(line, sizeof line, "%s %s%s%s\n", dt_clock_utc(now), prefixes[level], gap, text);
    const bool is_full = state.file_bytes + n > FILE_MAX_BYTES;
    ssize_t written = is_full ? 0 : write(state.file, line, (size_t)n);
    if (written != n) {
        lose_line(is_full ? "64 MiB" : strerror(written < 0 ? errno : ENOSPC), is_full);
        return;
    }
    state.file_bytes += n;
    if (state.n_lost > 0) {
        snprintf(line, sizeof line, "the log file of rank %d is written again, without %lld lines",
                 state.rank, (long long)state.n_lost);
        print(DT_LOG_INFO, line);
    }
    state.n_lost = 0;
}

static void count(enum dt_log_level level)
{
    state.n_warnings += level == DT_LOG_WARNING || level == DT_LOG_NOTICE;
}

void dt_log_record(enum dt_log_level level, const char *text)
{
    pthread_mutex_lock(&state.lock);
    count(level);
    write_file(level, text);
    pthread_mutex_unlock(&state.lock);
}

void dt_log(enum dt_log_level level, const char *format, ...)
{
    char text[LINE_BYTES];
    bool is_shown =
        level <= state.level && (state.rank == 0 || state.tee || level <= DT_LOG_WARNING);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    dt_utf8_escape(text);
    pthread_mutex_lock(&state.lock);
    if (is_shown)
        print(level, text);
    count(level);
    write_file(level, text);
    pthread_mutex_unlock(&state.lock);
}

int64_t dt_log_warnings(void)
{
    pthread_mutex_lock(&state.lock);
    const int64_t n = state.n_warnings;
    pthread_mutex_unlock(&state.lock);
    return n;
}

/* Removes a line that a crash or a full disk left incomplete. Not by base/file.h, which logs. */
static bool cut_file(void)
{
    char end[PREFIX_BYTES + LINE_BYTES];
    off_t bytes = lseek(state.file, 0, SEEK_END);
    off_t from = bytes > (off_t)sizeof end ? bytes - (off_t)sizeof end : 0;
    ssize_t n = bytes < 0 ? -1 : pread(state.file, end, sizeof end, from);
    while (n > 0 && end[n - 1] != '\n')
        n--;
    state.file_bytes = from + n;
    return n >= 0 && (state.file_bytes == bytes || ftruncate(state.file, state.file_bytes) == 0);
}

void dt_log_open(const char *dir)
{
    char folder[PATH_BYTES], path[PATH_BYTES + 32];
    snprintf(folder, sizeof folder, "%s/logs", dir);
    snprintf(path, sizeof path, "%s/rank-%04d.log", folder, state.rank);
    int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
    pthread_mutex_lock(&state.lock);
    if (mkdir(folder, 0777) == 0 || errno == EEXIST)
        state.file = open(path, flags, 0666);
    int error = state.file >= 0 && cut_file() ? 0 : errno;
    if (error && state.file >= 0)
        close(state.file);
    if (error)
        state.file = -1;
    pthread_mutex_unlock(&state.lock);
    if (error)
        dt_log(DT_LOG_WARNING, "this rank has no log file: cannot write %s: %s", path,
               strerror(error));
}

/* A log without a terminal is not silent for minutes. */
static void break_silence(const char *text)
{
    const double now_s = dt_clock_s();
    pthread_mutex_lock(&state.lock);
    if (state.said_s == 0)
        state.said_s = now_s;
    if (text[0] && state.rank == 0 && state.level >= DT_LOG_INFO &&
        now_s - state.said_s >= SILENCE_S)
        print(DT_LOG_INFO, text);
    pthread_mutex_unlock(&state.lock);
}

void dt_log_progress(const char *text)
{
    if (!dt_log_is_terminal()) {
        break_silence(text);
        return;
    }
    const int width = columns();
    char line[1024];
    const int bytes = snprintf(line, sizeof(line), "%.*s", width - 1, text);
    const bool is_cut = strlen(text) > (size_t)bytes;
    for (int i = bytes - 1; is_cut && i > 0; i--)
        if (strncmp(line + i, "  ", 2) == 0) { /* between two parts of the line */
            line[i] = '\0';
            break;
        }
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
    static const double redraw_s = 0.2;
    static _Atomic double drawn_s;
    char text[160], left[32];
    const double now_s = dt_clock_s(), elapsed_s = now_s - start_s;
    if (elapsed_s < 1 || now_s - drawn_s < redraw_s)
        return;
    drawn_s = now_s;
    dt_clock_format(left, sizeof(left), elapsed_s / (double)done * (double)(total - done));
    snprintf(text, sizeof(text), "%s: %zu of %zu %s, %.0f/s, about %s left", what, done, total,
             things, (double)done / elapsed_s, left);
    dt_log_progress(text);
}
