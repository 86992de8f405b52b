/* What a supervisor makes of the beats in a run folder; the time is made up. */
#include <time.h>

#include <sys/syscall.h>
#include <unistd.h>

#include "base/pulse.h"
#include "checkpoint/run_folder.h"
#include "launch/job.h"
#include "test.h"
#include "test_dir.h"

static double now_s = 1000;

int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, out);
    *out = (struct timespec){(time_t)now_s, (long)((now_s - (double)(time_t)now_s) * 1e9)};
    return 0;
}

enum { RANKS = 4, START_S = 60 }; /* two on each of two hosts */

static struct dt_launch_options options = {.sees_run = true, .start_s = START_S};

/* A rank's next beat. */
static void beat_in(int rank, int64_t start_id, uint32_t flags, enum dt_section section)
{
    static uint64_t n;
    struct dt_heartbeat beat = {.start_id = start_id,
                                .rank = rank,
                                .node = rank / 2 * 2,
                                .flags = flags,
                                .beat = ++n,
                                .main = {.section = section, .limit_s = 100}};
    snprintf(beat.host, sizeof beat.host, "node%d", 1 + rank / 2);
    assert_int_equal(dt_heartbeat_write(at("heartbeat.bin"), &beat), DT_OK);
}

static void beat(int rank, int64_t start_id, uint32_t flags)
{
    beat_in(rank, start_id, flags, DT_SECTION_COMPUTE);
}

/* Looks every second, while the ranks from..to-1 beat. */
static enum dt_job_state pass(struct dt_job *job, int seconds, int from, int to, char *host)
{
    enum dt_job_state state = DT_JOB_RUNS;
    for (int i = 0; i < seconds && state == DT_JOB_RUNS; i++) {
        now_s += 1;
        for (int r = from; r < to; r++)
            beat(r, 2, 0);
        state = dt_job_look(job, host);
    }
    return state;
}

static struct dt_job begin(void)
{
    struct dt_job job;
    for (int r = 0; r < RANKS; r++)
        beat(r, 1, 0); /* of an earlier start */
    options.run_dir = test_dir;
    assert_int_equal(dt_job_begin(&job, &options, RANKS), DT_OK);
    return job;
}

TEST(all_is_well)
{
    struct dt_job job = begin();
    char host[DT_HOST_MAX];
    assert_int_equal(pass(&job, START_S - 1, 0, 0, host), DT_JOB_RUNS); /* before the first beat */
    assert_int_equal(pass(&job, 300, 0, RANKS, host), DT_JOB_RUNS);
    dt_job_end(&job);
    options.run_dir = NULL;
    assert_int_equal(dt_job_begin(&job, &options, RANKS), DT_OK); /* without a folder */
    assert_int_equal(pass(&job, 300, 0, 0, host), DT_JOB_RUNS);
    dt_job_end(&job);
}

/* Until a rank has begun, or rank 0 alone where the folder is not shared; what this process has
 * slept does not count. */
TEST(a_start_has_a_limit)
{
    struct dt_job job = begin();
    char host[DT_HOST_MAX];
    assert_int_equal(pass(&job, START_S / 2, 0, 0, host), DT_JOB_RUNS);
    now_s += 1000;
    assert_int_equal(pass(&job, START_S / 4, 0, 0, host), DT_JOB_RUNS);
    assert_int_equal(pass(&job, START_S, 0, 0, host), DT_JOB_LATE);
    dt_job_end(&job);
    job = begin();
    assert_int_equal(pass(&job, START_S / 2, 0, 0, host), DT_JOB_RUNS);
    assert_int_equal(pass(&job, 1, 3, 4, host), DT_JOB_RUNS);
    assert_int_equal(pass(&job, 3 * START_S, 0, 0, host), DT_JOB_RUNS);
    dt_job_end(&job);
    struct dt_run_folder folder;
    options.run_dir = at("alone");
    assert_int_equal(dt_job_begin(&job, &options, RANKS), DT_OK);
    assert_int_equal(dt_run_folder_open(&folder, options.run_dir), DT_OK);
    assert_int_equal(dt_run_folder_begin(&folder, false), DT_OK);
    assert_int_equal(pass(&job, 3 * START_S, 0, 0, host), DT_JOB_RUNS);
    dt_run_folder_close(&folder);
    dt_job_end(&job);
}

TEST(a_paused_host_is_named)
{
    for (int paused = 0; paused < 2; paused++) {
        struct dt_job job = begin();
        char host[DT_HOST_MAX] = "";
        const int from = paused ? 0 : 2;
        assert_int_equal(pass(&job, 20, 0, RANKS, host), DT_JOB_RUNS);
        const double begin_s = now_s;
        assert_int_equal(pass(&job, 100, from, from + 2, host), DT_JOB_SILENT_HOST);
        assert_string_equal(host, paused ? "node2" : "node1");
        assert_true(now_s - begin_s < 35);
        dt_job_end(&job);
    }
}

/* One rank of a host is for the watchdog to judge, and a host may have done its part. */
TEST(a_silent_rank_is_no_silent_host)
{
    struct dt_job job = begin();
    char host[DT_HOST_MAX];
    assert_int_equal(pass(&job, 20, 0, RANKS, host), DT_JOB_RUNS);
    assert_int_equal(pass(&job, 300, 0, 3, host), DT_JOB_RUNS);
    dt_job_end(&job);
    job = begin();
    assert_int_equal(pass(&job, 20, 0, RANKS, host), DT_JOB_RUNS);
    beat(2, 2, DT_HEARTBEAT_HAS_LEFT);
    beat(3, 2, DT_HEARTBEAT_HAS_LEFT);
    assert_int_equal(pass(&job, 300, 0, 2, host), DT_JOB_RUNS);
    dt_job_end(&job);
}

/* A file system that is busy with gigabytes delays the beats. */
TEST(a_save_may_take_longer)
{
    struct dt_job job = begin();
    char host[DT_HOST_MAX];
    assert_int_equal(pass(&job, 20, 0, RANKS, host), DT_JOB_RUNS);
    beat_in(2, 2, 0, DT_SECTION_SAVE);
    beat_in(3, 2, 0, DT_SECTION_SAVE);
    assert_int_equal(pass(&job, 95, 0, 2, host), DT_JOB_RUNS);
    assert_int_equal(pass(&job, 15, 0, 2, host), DT_JOB_SILENT_HOST);
    dt_job_end(&job);
}

/* Paused in a save: the others give up, and with them all that could wait for it. */
TEST(the_others_have_left)
{
    struct dt_job job = begin();
    char host[DT_HOST_MAX];
    assert_int_equal(pass(&job, 20, 0, RANKS, host), DT_JOB_RUNS);
    beat_in(2, 2, 0, DT_SECTION_SAVE);
    beat_in(3, 2, 0, DT_SECTION_SAVE);
    beat(0, 2, DT_HEARTBEAT_HAS_LEFT);
    beat(1, 2, DT_HEARTBEAT_EXPIRED | DT_HEARTBEAT_WRITTEN);
    assert_int_equal(pass(&job, 25, 0, 0, host), DT_JOB_RUNS);
    assert_int_equal(pass(&job, 15, 0, 0, host), DT_JOB_SILENT_HOST);
    assert_string_equal(host, "node2");
    dt_job_end(&job);
}

TEST(a_pause_of_the_supervisor_counts_not)
{
    struct dt_job job = begin();
    char host[DT_HOST_MAX];
    assert_int_equal(pass(&job, 20, 0, RANKS, host), DT_JOB_RUNS);
    now_s += 1000;
    beat(0, 2, 0); /* it is the first to wake up */
    assert_int_equal(dt_job_look(&job, host), DT_JOB_RUNS);
    assert_int_equal(pass(&job, 20, 0, RANKS, host), DT_JOB_RUNS);
    dt_job_end(&job);
}

TEST(a_launcher_stays_behind)
{
    static const uint32_t flags[] = {DT_HEARTBEAT_HAS_LEFT,
                                     DT_HEARTBEAT_EXPIRED | DT_HEARTBEAT_WRITTEN};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct dt_job job = begin();
        char host[DT_HOST_MAX];
        assert_int_equal(pass(&job, 20, 0, RANKS, host), DT_JOB_RUNS);
        for (int r = 0; r < RANKS; r++)
            beat(r, 2, flags[i]);
        assert_int_equal(pass(&job, 25, 0, 0, host), DT_JOB_RUNS);
        assert_int_equal(pass(&job, 15, 0, 0, host), DT_JOB_HAS_ENDED);
        dt_job_end(&job);
    }
    struct dt_job job = begin();
    char host[DT_HOST_MAX];
    assert_int_equal(pass(&job, 20, 0, RANKS, host), DT_JOB_RUNS);
    assert_int_equal(pass(&job, 290, 0, 0, host), DT_JOB_RUNS);
    assert_int_equal(pass(&job, 30, 0, 0, host), DT_JOB_SILENT);
    dt_job_end(&job);
}

TEST(exit_codes)
{
    struct dt_run_folder folder;
    struct dt_job job;
    const char *dir = at("run");
    options.run_dir = dir;
    for (int ends = 0; ends < 2; ends++) {
        assert_int_equal(dt_job_begin(&job, &options, RANKS), DT_OK);
        assert_int_equal(dt_job_code(&job, 137, false), 137); /* before the run begins */
        assert_int_equal(dt_job_code(&job, 0, false), 205);
        assert_int_equal(dt_run_folder_open(&folder, dir), DT_OK);
        assert_int_equal(dt_run_folder_begin(&folder, false), DT_OK);
        if (ends)
            dt_run_folder_end(&folder, DT_STOPPED, 30);
        dt_run_folder_close(&folder);
        assert_int_equal(dt_job_code(&job, 137, false), ends ? 75 : 137);
        assert_int_equal(dt_job_code(&job, 1, false), ends ? 75 : 1);
        assert_int_equal(dt_job_code(&job, 0, false), ends ? 75 : 205); /* Open MPI 5 lost a node */
        assert_int_equal(dt_job_code(&job, DT_ERR_HANG, false),
                         DT_ERR_HANG); /* ended by the supervisor */
        assert_int_equal(dt_job_code(&job, DT_ERR_HANG, true), ends ? 75 : DT_ERR_HANG);
        assert_int_equal(dt_job_step(&job), -1);
        dt_job_end(&job);
    }
    /* The launcher's 0 counts for a run that had finished before, or that nobody sees here. */
    assert_int_equal(dt_run_folder_open(&folder, dir), DT_OK);
    assert_int_equal(dt_run_folder_begin(&folder, false), DT_OK);
    dt_run_folder_end(&folder, DT_OK, 30);
    dt_run_folder_close(&folder);
    for (int i = 0; i < 2; i++) {
        options = (struct dt_launch_options){.run_dir = i ? at("elsewhere") : dir, .sees_run = !i};
        assert_int_equal(dt_job_begin(&job, &options, RANKS), DT_OK);
        assert_int_equal(dt_job_code(&job, 0, false), 0);
        assert_int_equal(dt_job_code(&job, 0, true), 205);
        dt_job_end(&job);
    }
}

TEST_MAIN(make_test_dir, remove_test_dir)
