/* Signals that ask for a stop: the first sets a flag, one that follows at once changes nothing, a
 * later one ends the process. Each case runs in its own process. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/stop.h"
#include "test.h"

static const int signals[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT};

enum { WENT_ON = 7 };

static void require(bool is_good)
{
    if (!is_good)
        _exit(1);
}

/* Wait status of a child that does `work`. */
static int end_of_child(void (*work)(int), int argument)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        work(argument);
        _exit(WENT_ON);
    }
    int end;
    assert_int_equal(waitpid(pid, &end, 0), pid);
    return end;
}

static void assert_went_on(int end)
{
    assert_true(WIFEXITED(end));
    assert_int_equal(WEXITSTATUS(end), WENT_ON);
}

static void ask_twice_at_once(int number)
{
    dt_stop_catch_signals();
    raise(number);
    raise(number);
}

static void ask_again_later(int number)
{
    dt_stop_catch_signals();
    raise(SIGUSR1);
    struct timespec left = {.tv_sec = 1, .tv_nsec = 100000000};
    nanosleep(&left, NULL);
    raise(number);
}

static void ask_again_as_launch_does(int number)
{
    setenv("DTRAIN_LAUNCH", "0123", 1);
    ask_again_later(number);
}

static void exceed_file_size(int unused)
{
    (void)unused;
    char path[] = "/tmp/dtrain-stop-XXXXXX";
    dt_stop_catch_signals();
    int fd = mkstemp(path);
    struct rlimit limit = {.rlim_cur = 4, .rlim_max = 4};
    require(fd >= 0 && unlink(path) == 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
    require(write(fd, "12345678", 8) == 4);
    require(write(fd, "5", 1) == -1 && errno == EFBIG);
}

static void write_to_closed_pipe(int unused)
{
    (void)unused;
    int ends[2];
    dt_stop_catch_signals();
    require(pipe(ends) == 0 && close(ends[0]) == 0);
    require(write(ends[1], "1", 1) == -1 && errno == EPIPE);
}

TEST(first_signal)
{
    for (size_t i = 0; i < DT_COUNT(signals); i++)
        assert_went_on(end_of_child(ask_twice_at_once, signals[i]));
}

TEST(second_signal)
{
    for (size_t i = 0; i < DT_COUNT(signals); i++) {
        int end = end_of_child(ask_again_later, signals[i]);
        assert_true(WIFSIGNALED(end));
        assert_int_equal(WTERMSIG(end), signals[i]);
    }
}

/* dtrain launch asks with SIGUSR1, again and again. */
TEST(repeated_signal)
{
    assert_went_on(end_of_child(ask_again_as_launch_does, SIGUSR1));
    assert_true(WIFSIGNALED(end_of_child(ask_again_as_launch_does, SIGTERM)));
}

TEST(failing_calls)
{
    assert_went_on(end_of_child(exceed_file_size, 0));
    assert_went_on(end_of_child(write_to_closed_pipe, 0));
}

TEST_MAIN(NULL, NULL)
