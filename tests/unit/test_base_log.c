/* The log file of a rank: every level goes there whole, a torn line of a crash is removed, and a
 * file that cannot grow says how many lines it lacks. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "capture.h"
#include "test_dir.h"

static const char *path;
static double passed_s;

/* Takes the place of libc's. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    const long result = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_MONOTONIC)
        *now = (struct timespec){.tv_sec = 1000 + (time_t)passed_s};
    return (int)result;
}

/* The file's text, and what went to stderr since the last call. */
static char *load(const char *name)
{
    char *text = NULL;
    size_t bytes;
    assert_int_equal(dt_file_load(&text, &bytes, name, 1 << 20), DT_OK);
    return text;
}

static void append(const char *text)
{
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int open_folder(void **state)
{
    const int result = make_test_dir(state);
    path = at("logs/rank-0003.log");
    dt_log_init(DT_LOG_ERROR, 3, 8);
    signal(SIGXFSZ, SIG_IGN);
    return result;
}

TEST(levels)
{
    dt_log(DT_LOG_INFO, "too early");
    dt_log_open(test_dir);
    dt_log(DT_LOG_WARNING, "first");
    dt_log(DT_LOG_DEBUG, "second\x1b");
    dt_log_record(DT_LOG_INFO, "third");
    char *text = load(path), *line = text;
    static const char *const expected[] = {"Z warning: first\n", "Z debug: second?\n", "Z third\n"};
    enum { TIME_BYTES = 23 };
    for (int i = 0; i < 3; i++, line = strchr(line, '\n') + 1)
        assert_int_equal(strncmp(line + TIME_BYTES, expected[i], strlen(expected[i])), 0);
    assert_string_equal(line, "");
    free(text);
}

TEST(torn_line)
{
    append("2026-11-22T14:0");
    dt_log_open(test_dir);
    dt_log(DT_LOG_INFO, "fourth");
    char *text = load(path);
    assert_non_null(strstr(text, "Z third\n20"));
    assert_non_null(strstr(text, "Z fourth\n"));
    free(text);
}

/* Without a terminal: after half a minute without a line, progress is one. */
TEST(silence)
{
    char said[1024];
    dt_log_init(DT_LOG_INFO, 0, 1);
    struct capture capture = capture_begin(stderr);
    dt_log(DT_LOG_INFO, "begin");
    for (passed_s = 0; passed_s < 70; passed_s += 10) {
        char text[32];
        snprintf(text, sizeof text, "%.0f of 70", passed_s);
        dt_log_progress(text);
        dt_log_progress("");
    }
    capture_end(&capture, said, sizeof said);
    assert_string_equal(said, "dtrain: begin\ndtrain: 30 of 70\ndtrain: 60 of 70\n");
    dt_log_init(DT_LOG_ERROR, 3, 8);
}

/* A write that the limit cuts short leaves no part of its line. */
TEST(full)
{
    struct stat before, after;
    struct rlimit limit;
    char said[1024];
    struct capture capture = capture_begin(stderr);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    rlim_t old = limit.rlim_cur;
    limit.rlim_cur = (rlim_t)before.st_size + 10;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    dt_log(DT_LOG_INFO, "this does not fit");
    dt_log(DT_LOG_INFO, "neither does this");
    assert_int_equal(stat(path, &after), 0);
    limit.rlim_cur = old;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    dt_log(DT_LOG_INFO, "this fits");
    dt_log(DT_LOG_INFO, "so does this");
    capture_end(&capture, said, sizeof said);
    assert_int_equal(after.st_size, before.st_size);
    char *text = load(path), *again = text + before.st_size;
    assert_non_null(strstr(again, "Z (2 lines before this one could not be written) this fits\n"));
    assert_non_null(strstr(again, "Z so does this\n"));
    free(text);
    char *first = strstr(said, "warning: the log file of rank 3 lacks lines: ");
    assert_non_null(first);
    assert_null(strstr(first + strlen("warning: the log file of rank 3 lacks"), "lacks"));
    assert_non_null(strstr(first, "the log file of rank 3 is written again, without 2 lines"));
}

TEST(largest)
{
    const off_t max = 64 << 20;
    struct stat info;
    assert_int_equal(truncate(path, max - 60), 0);
    append("\n");
    dt_log_open(test_dir);
    dt_log(DT_LOG_INFO, "fits");
    dt_log(DT_LOG_INFO, "does not fit");
    assert_int_equal(stat(path, &info), 0);
    assert_in_range(info.st_size, max - 59 + 20, max);
}

TEST_MAIN(open_folder, remove_test_dir)
