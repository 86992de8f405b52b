/* The log file of a rank: every level goes there whole, a torn line of a crash is removed, and a
 * file that cannot grow ends with a warning. */
#include <signal.h>
#include <sys/resource.h>

#include "base/file.h"
#include "base/log.h"
#include "test_dir.h"

static const char *path;

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

/* A write that the limit cuts short leaves no part of its line. */
TEST(full)
{
    struct stat before;
    struct rlimit limit;
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    rlim_t old = limit.rlim_cur;
    limit.rlim_cur = (rlim_t)before.st_size + 10;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    dt_log(DT_LOG_INFO, "this does not fit");
    limit.rlim_cur = old;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    dt_log(DT_LOG_INFO, "the file has ended");
    struct stat after;
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_size, before.st_size);
}

TEST(largest)
{
    const off_t most = 64 << 20;
    struct stat info;
    assert_int_equal(truncate(path, most - 60), 0);
    append("\n");
    dt_log_open(test_dir);
    dt_log(DT_LOG_INFO, "fits");
    dt_log(DT_LOG_INFO, "does not fit");
    assert_int_equal(stat(path, &info), 0);
    assert_in_range(info.st_size, most - 59 + 20, most);
}

TEST_MAIN(open_folder, remove_test_dir)
