/* Agreement on stops and timed saves on 1 to 4 ranks: one rank's reason becomes that of all, with
 * the same words; the run stops early enough for the last save. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "capture.h"
#include "dist_rig.h"
#include "engine/stop.h"

static const char allocation[] = "the end of the Slurm allocation";
static const double far_s = 1e6;

static void set_job_end(double seconds_from_now)
{
    char text[32];
    snprintf(text, sizeof text, "%.0f", (double)time(NULL) + seconds_from_now);
    setenv("SLURM_JOB_END_TIME", text, 1);
}

static void assert_due(struct dt_stop *stop, int64_t step, const char *reason, bool save)
{
    struct dt_due due;
    assert_ok(dt_stop_check(stop, comm, step, DT_OK, &due));
    bool same = due.stop && reason ? strcmp(due.stop, reason) == 0 : !due.stop && !reason;
    assert_all(same && due.save == save);
}

TEST(no_limit)
{
    struct dt_stop stop;
    dt_stop_init(&stop, 0, 0, 5);
    assert_due(&stop, 5, NULL, false); /* nothing is known of steps yet */
    assert_all(stop.next_step == 6);
    assert_due(&stop, 6, NULL, false);
    assert_all(stop.next_step > 6 && stop.next_step <= 6 + 64);
    assert_due(&stop, stop.next_step, NULL, false);
}

/* Only one rank's time is over: ranks do not share a clock. */
TEST(one_rank_ends)
{
    for (int last = 0; last < n; last++) {
        struct dt_stop stop;
        for (int64_t step = 0; step < 2; step++) {
            dt_stop_init(&stop, 5, dt_clock_s() - (rank == last ? 10 : -far_s), 0);
            assert_due(&stop, step, "--max-time", false);
        }
    }
}

/* Room for twice the save that rank 0 knows of. */
TEST(room_for_save)
{
    static const struct {
        double save;
        const char *reason;
    } cases[] = {{0.4, NULL}, {0.6, "--max-time"}};
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        struct dt_stop stop;
        dt_stop_init(&stop, far_s, dt_clock_s(), 0);
        stop.save_s = rank == 0 ? cases[i].save * far_s : 0;
        assert_due(&stop, 1, cases[i].reason, false);
    }
}

/* And for twice the recent maximum step time of any rank, not counting pauses. */
TEST(room_for_step)
{
    static const struct {
        double step, pause;
        const char *reason;
    } cases[] = {{0.4, 0, NULL}, {0.6, 0, "--max-time"}, {0.9, 0.6, NULL}};
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        struct dt_stop stop;
        dt_stop_init(&stop, far_s, dt_clock_s(), 0);
        stop.checked_s -= rank == n - 1 ? cases[i].step * far_s : 0;
        dt_stop_pause(&stop, rank == n - 1 ? cases[i].pause * far_s : 0);
        assert_due(&stop, 1, cases[i].reason, false);
    }
}

/* A long step is remembered for a while; every rank learns of it. */
TEST(long_step_fades)
{
    struct dt_stop stop;
    dt_stop_init(&stop, 0, 0, 0);
    stop.checked_s -= rank == 0 ? far_s : 0;
    assert_due(&stop, 1, NULL, false);
    assert_all(stop.step_s >= far_s && stop.next_step == 2);
    assert_due(&stop, 2, NULL, false);
    assert_all(stop.step_s > far_s / 2 && stop.step_s < far_s);
    for (int64_t step = 3; step < 100; step++)
        assert_due(&stop, step, NULL, false);
    assert_all(stop.step_s < far_s / 1e6);
}

/* Where ranks meet now and then, the time until the next meeting must be left. */
TEST(meetings)
{
    for (int64_t n_steps = 1; n_steps <= 1000; n_steps *= 1000) {
        struct dt_stop stop;
        dt_stop_init(&stop, far_s, dt_clock_s(), 0);
        stop.step_s = far_s / 100; /* remembered by all ranks */
        stop.n_steps = n_steps;
        assert_due(&stop, 1, n_steps == 1 ? NULL : "--max-time", false);
    }
}

TEST(allocation)
{
    const double slack_s = 60; /* whole seconds, and a slow machine */
    struct dt_stop stop;
    set_job_end(far_s);
    dt_stop_init(&stop, 0, dt_clock_s(), 0);
    assert_all(fabs(stop.end_s - (dt_clock_s() + far_s - 30)) < slack_s);
    assert_all(strcmp(stop.end_reason, allocation) == 0);
    assert_due(&stop, 1, NULL, false);
    dt_stop_init(&stop, far_s / 2, dt_clock_s(), 0);
    assert_all(fabs(stop.end_s - (dt_clock_s() + far_s / 2)) < slack_s);
    assert_all(strcmp(stop.end_reason, "--max-time") == 0);
    set_job_end(29);
    dt_stop_init(&stop, far_s, dt_clock_s(), 0);
    assert_due(&stop, 1, allocation, false);
    unsetenv("SLURM_JOB_END_TIME");
}

/* Words on stderr while dt_stop_init runs. */
static bool init_warns(struct dt_stop *stop)
{
    char text[256];
    struct capture capture = capture_begin(stderr);
    dt_stop_init(stop, 0, 0, 0);
    capture_end(&capture, text, sizeof text);
    return strstr(text, "warning: SLURM_JOB_END_TIME=");
}

TEST(absurd_allocation)
{
    static const char *const values[] = {"",      "x",    "12 h", "nan",       "inf",
                                         "1e999", "-1e9", "0",    "1000000000"};
    struct dt_stop stop;
    for (size_t i = 0; i < DT_COUNT(values); i++) {
        setenv("SLURM_JOB_END_TIME", values[i], 1);
        assert_all(init_warns(&stop) && isinf(stop.end_s));
    }
    unsetenv("SLURM_JOB_END_TIME");
    assert_all(!init_warns(&stop) && isinf(stop.end_s));
}

/* Only rank 0 requests timed saves. */
TEST(timed_save)
{
    for (int asking = 0; asking < n; asking++) {
        struct dt_stop stop;
        dt_stop_init(&stop, 0, 0, 0);
        assert_all(isinf(stop.save_at_s));
        stop.save_at_s = dt_clock_s() + (rank == asking ? -1 : far_s);
        assert_due(&stop, 1, NULL, asking == 0);
    }
}

/* With step times that differ between ranks, all check at the same steps (or this never ends), and
 * rarely. */
TEST(same_steps)
{
    enum { STEPS = 400 };
    struct dt_stop stop;
    dt_stop_init(&stop, 0, 0, 0);
    int64_t next[4];
    int n_checks = 0;
    for (int64_t step = 1; step <= STEPS; step++) {
        struct dt_due due;
        struct timespec pause = {.tv_nsec = (step * (rank + 3) % 7) * 100000};
        nanosleep(&pause, NULL);
        n_checks += step >= stop.next_step;
        assert_ok(dt_stop_check(&stop, comm, step, DT_OK, &due));
        assert_false(due.stop || due.save);
        if (step % 20)
            continue;
        assert_ok(dt_comm_gather(comm, next, &stop.next_step, sizeof next[0]));
        for (int r = 0; r < n; r++)
            assert_int_equal(next[r], stop.next_step);
    }
    assert_true(n_checks >= STEPS / 64);
}

/* A failure is heard at every step, also where nothing else is asked. */
TEST(failure)
{
    for (int failing = 0; failing < n; failing++) {
        struct dt_stop stop;
        struct dt_due due;
        dt_stop_init(&stop, 5, dt_clock_s() - 10, 0);
        for (int64_t step = 0; step < 3; step++) {
            stop.next_step = step == 1 ? 2 : step;
            dt_status own = DT_OK;
            if (step == 2 && rank == failing)
                own = DT_ERROR(DT_ERR_DATA, "rank %d cannot read", rank);
            assert_ok(dt_stop_send(&stop, comm, step, own));
            dt_status status = dt_stop_receive(&stop, comm, own, &due);
            assert_all(status == (step == 2 ? DT_ERR_DATA : DT_OK));
            assert_all((due.stop != NULL) == (step == 0));
        }
        assert_all(strstr(dt_error_text(), "cannot read") && dt_error_origin() == failing);
        dt_error_clear();
    }
}

TEST(batches)
{
    struct dt_stop stop, batches;
    dt_stop_init(&stop, 5, dt_clock_s() - 10, 1000);
    stop.save_at_s = dt_clock_s() - 1;
    dt_stop_begin_batches(&batches, &stop);
    assert_all(batches.next_step == 1 && stop.next_step == 1000);
    assert_due(&batches, 1, "--max-time", false);
    assert_all(stop.checked_step == 1000);
    assert_due(&stop, 1001, "--max-time", true);
}

/* The last test, for a signal is never forgotten. Rank 0 and the last rank get different ones while
 * the time is over: the words are the same everywhere. */
TEST(signals)
{
    struct dt_stop stop;
    dt_stop_catch_signals();
    dt_stop_init(&stop, 0, 0, 0);
    assert_due(&stop, 1, NULL, false);
    if (rank == n - 1)
        raise(SIGUSR2);
    else if (rank == 0)
        raise(SIGTERM);
    dt_stop_init(&stop, 5, dt_clock_s() - 10, 0);
    assert_due(&stop, 1, "SIGUSR2", false);
    assert_due(&stop, stop.next_step, "SIGUSR2", false);
    dt_stop_init(&stop, 0, 0, 0);
    assert_due(&stop, 1, "SIGUSR2", false);
}

int main(int argc, char **argv)
{
    unsetenv("SLURM_JOB_END_TIME");
    if (!open_ranks(&argc, &argv))
        return 1;
    int n_failed = run_all_tests(NULL, NULL);
    dt_comm_close(comm);
    return n_failed ? 1 : 0;
}
