/* The fault switches: what DTRAIN_FAULT may say, and that each fault happens where and when it
 * should and nowhere else. */
#include <string.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "test.h"

static dt_status init(const char *list, int rank)
{
    if (list)
        setenv("DTRAIN_FAULT", list, 1);
    else
        unsetenv("DTRAIN_FAULT");
    return dt_fault_init(rank);
}

TEST(none)
{
    static const char *const lists[] = {NULL, ""};
    for (int i = 0; i < 2; i++) {
        bool crash = true;
        assert_int_equal(init(lists[i], 0), DT_OK);
        assert_int_equal(dt_fault_io(&crash), 0);
        assert_false(crash);
        assert_false(dt_fault_due(DT_FAULT_NAN, 0));
        assert_true(dt_fault_slowness() == 1);
        dt_fault_at_step(0);
        dt_fault_at_section(DT_SECTION_SAVE);
    }
}

TEST(mistakes)
{
    static const struct {
        const char *list, *text;
    } cases[] = {
        {"kill", "\"kill\" is not of the form kind@where"},
        {"kill@1:0,", "\"\" is not of the form"},
        {",kill@1:0", "\"\" is not of the form"},
        {"kill@1:0,,nan@1:0", "\"\" is not of the form"},
        {"kil@1:0", "unknown kind \"kil\" in \"kil@1:0\""},
        {"KILL@1:0", "unknown kind \"KILL\""},
        {" kill@1:0", "unknown kind \" kill\""},
        {"@1:0", "unknown kind \"\""},
        {"kill@1", "cannot read \"kill@1\": kill@ must be followed by STEP:RANK or SECTION:RANK"},
        {"kill@:0", "cannot read"},
        {"kill@1:", "cannot read"},
        {"kill@1:0 ", "cannot read"},
        {"kill@1:-1", "cannot read"},
        {"kill@-1:0", "cannot read"},
        {"kill@+1:0", "cannot read"},
        {"kill@1x:0", "cannot read"},
        {"kill@1:0:0", "cannot read"},
        {"kill@1:2147483648", "cannot read"},
        {"kill@9223372036854775808:0", "cannot read"},
        {"kill@saving:0", "cannot read"},
        {"kill@none:0", "cannot read"},
        {"nan@save:0", "nan@ must be followed by STEP:RANK, as in 100:0"},
        {"flip@1", "flip@ must be followed by"},
        {"slow@1", "slow@ must be followed by RANK:FACTOR"},
        {"slow@1:0.5", "cannot read"},
        {"slow@1:1001", "cannot read"},
        {"slow@1:inf", "cannot read"},
        {"slow@1:2.5.1", "cannot read"},
        {"slow@1:1e2", "cannot read"},
        {"slow@1:", "cannot read"},
        {"crash@3", "crash@ must be followed by io:N"},
        {"crash@io:0", "cannot read"},
        {"crash@io:3+", "cannot read"},
        {"crash@IO:3", "cannot read"},
        {"eio@io:3++", "cannot read"},
        {"eio@io:+", "cannot read"},
        {"enospc@3:io", "enospc@ must be followed by io:N or io:N+"},
        {"nan@1:5,bad@1:5", "unknown kind \"bad\""}, /* also where it is for another rank */
        {"nan@0000000000000000000000000000000000000000000000000000000000001:0", "not of the form"},
#define NANS "nan@0:0,nan@1:0,nan@2:0,nan@3:0,nan@4:0,nan@5:0,nan@6:0,nan@7:0,"
        {NANS NANS NANS NANS NANS NANS NANS NANS "nan@8:0", "at most 64"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (init(cases[i].list, 0) != DT_ERR_USAGE || !strstr(dt_error_text(), cases[i].text))
            fail_msg("%s: %s", cases[i].list, dt_error_text());
        assert_non_null(strstr(dt_error_text(), "DTRAIN_FAULT"));
        assert_false(dt_fault_due(DT_FAULT_NAN, 1)); /* nothing of a list in part */
    }
}

TEST(steps_and_ranks)
{
    assert_int_equal(init("nan@7:1,flip@8:1,nan@9:0,slow@1:2.5,slow@0:3", 1), DT_OK);
    assert_true(dt_fault_due(DT_FAULT_NAN, 7));
    assert_false(dt_fault_due(DT_FAULT_NAN, 8));
    assert_false(dt_fault_due(DT_FAULT_NAN, 9));
    assert_true(dt_fault_due(DT_FAULT_FLIP, 8));
    assert_false(dt_fault_due(DT_FAULT_FLIP, 7));
    assert_true(dt_fault_slowness() == 2.5);
    assert_int_equal(init("nan@0:0", 0), DT_OK);
    assert_true(dt_fault_due(DT_FAULT_NAN, 0));
    assert_false(dt_fault_due(DT_FAULT_FLIP, 0));
    assert_true(dt_fault_slowness() == 1);
}

/* Which of the first 8 calls fail with `error`, as bits. */
static unsigned failing(const char *list, int rank, int error)
{
    unsigned bits = 0;
    assert_int_equal(init(list, rank), DT_OK);
    for (unsigned i = 0; i < 8; i++) {
        const int got = dt_fault_io(NULL);
        assert_true(got == 0 || got == error);
        bits |= (unsigned)(got != 0) << i;
    }
    return bits;
}

TEST(io_fails)
{
    assert_int_equal(failing("enospc@io:3", 0, ENOSPC), 0x04);
    assert_int_equal(failing("eio@io:3", 0, EIO), 0x04);
    assert_int_equal(failing("eio@io:3+", 0, EIO), 0xfc);
    assert_int_equal(failing("eio@io:1,eio@io:8", 0, EIO), 0x81);
    assert_int_equal(failing("eio@io:9", 0, EIO), 0);
    assert_int_equal(failing("eio@io:3", 1, EIO), 0);
    assert_int_equal(failing("nan@3:0,slow@0:2", 0, EIO), 0);
}

enum { N_THREADS = 4, N_CALLS = 5000 };
static atomic_int n_failed;

static void *call_io(void *argument)
{
    (void)argument;
    for (int i = 0; i < N_CALLS; i++)
        if (dt_fault_io(NULL) != 0)
            atomic_fetch_add(&n_failed, 1);
    return NULL;
}

TEST(io_counts_all_threads)
{
    static const struct {
        const char *list;
        int n;
    } cases[] = {{"eio@io:10000", 1}, {"eio@io:10000+", N_THREADS * N_CALLS - 10000 + 1}};
    for (int k = 0; k < 2; k++) {
        pthread_t threads[N_THREADS];
        assert_int_equal(init(cases[k].list, 0), DT_OK);
        atomic_store(&n_failed, 0);
        for (int i = 0; i < N_THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, call_io, NULL), 0);
        for (int i = 0; i < N_THREADS; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&n_failed), cases[k].n);
    }
}

/* --- What ends or stops the process, in a child --- */

/* The child goes through steps 0..4 and two sections, then exits with 9; after each step it does an
 * I/O call. Its status of waitpid; a stop is followed by SIGCONT and counted. */
static int run_child(const char *list, int rank, int *n_stops)
{
    int status = 0;
    *n_stops = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (init(list, rank) != DT_OK)
            _exit(1);
        for (int step = 0; step < 5; step++) {
            dt_fault_at_step(step);
            dt_fault_at_section(DT_SECTION_COMPUTE);
            dt_fault_at_section(DT_SECTION_SAVE);
            dt_fault_io(NULL);
        }
        _exit(9);
    }
    while (waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status)) {
        assert_int_equal(WSTOPSIG(status), SIGSTOP);
        ++*n_stops;
        kill(child, SIGCONT);
    }
    return status;
}

TEST(kill_and_stop)
{
    static const struct {
        const char *list;
        int rank, signal, n_stops;
    } cases[] = {
        {"kill@4:0", 0, SIGKILL, 0},
        {"kill@4:0", 1, 0, 0},
        {"kill@5:0", 0, 0, 0},
        {"kill@save:2", 2, SIGKILL, 0},
        {"kill@data:2", 2, 0, 0},
        {"stop@3:1", 1, 0, 1},
        {"stop@compute:0", 0, 0, 1},
        {"stop@1:0,stop@2:0,kill@3:0", 0, SIGKILL, 2},
        {"crash@io:5", 0, SIGKILL, 0},
        {"crash@io:6", 0, 0, 0},
        {"crash@io:5", 1, 0, 0},
        {"eio@io:5,enospc@io:1+", 0, 0, 0},
        {"stop@save:0,stop@0:0", 0, 0, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int n_stops;
        const int status = run_child(cases[i].list, cases[i].rank, &n_stops);
        const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        if (signal != cases[i].signal || n_stops != cases[i].n_stops ||
            (signal == 0 && WEXITSTATUS(status) != 9))
            fail_msg("%s: signal %d, %d stops, status %d", cases[i].list, signal, n_stops, status);
    }
}

TEST(crash_in_the_middle)
{
    bool crash = true;
    assert_int_equal(init("crash@io:2", 0), DT_OK);
    assert_int_equal(dt_fault_io(&crash), 0);
    assert_false(crash);
    assert_int_equal(dt_fault_io(&crash), 0);
    assert_true(crash); /* and this process lives: the caller does the half and ends it */
    assert_int_equal(init(NULL, 0), DT_OK);
}

TEST_MAIN(NULL, NULL)
