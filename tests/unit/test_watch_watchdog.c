/* The watchdog with real processes that play ranks: what they publish is made up, and so is the
 * time, the rest is real. All scenarios run side by side; the tests collect how each has ended. */
#include <fcntl.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/thread.h"
#include "test_dir.h"
#include "virtual_time.h"
#include "watch/heartbeat.h"
#include "watch/watchdog.h"

enum { TEXT_BYTES = 16384 };

/* Of this process. */
static struct dt_watchdog_options own_options;
static enum dt_section own_section;

static void hang(void)
{
    vt_wait(NULL, NULL, VT_NEVER);
}

/* A file system that hangs: pwrite of this whole program, or fdopen, does not return. */
static atomic_bool file_system_hangs, report_hangs;
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    if (atomic_load(&file_system_hangs))
        hang();
    return syscall(SYS_pwrite64, fd, data, bytes, offset);
}
FILE *fdopen(int fd, const char *mode)
{
    FILE *(*open_it)(int, const char *);
    *(void **)&open_it = dlsym(RTLD_NEXT, "fdopen");
    if (atomic_load(&report_hangs))
        hang();
    return open_it(fd, mode);
}

/* How often this process has opened the beats of the run folder. */
static atomic_int n_opens;
int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    n_opens += strstr(path, "/heartbeat.bin") != NULL;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* --- What a rank can do --- */

/* Trains, as it looks from outside. */
static void train(double seconds, double step_s)
{
    double end_s = dt_clock_s() + seconds;
    for (int64_t step = 1; dt_clock_s() < end_s; step++) {
        dt_pulse_enter(&dt_pulse_main, DT_SECTION_DATA);
        dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
        vt_sleep(step_s);
        dt_pulse_wait(&dt_pulse_main, "sum");
        dt_pulse_go_on(&dt_pulse_main);
        dt_pulse_step(&dt_pulse_main, step);
    }
}

static void wait_for_others(enum dt_section section)
{
    dt_pulse_step(&dt_pulse_main, 57);
    dt_pulse_enter(&dt_pulse_main, section);
    dt_pulse_wait(&dt_pulse_main, "sum");
    hang();
}

static void stop_moving(enum dt_section section)
{
    dt_pulse_step(&dt_pulse_main, 57);
    dt_pulse_enter(&dt_pulse_main, section);
    hang();
}

static void second_stuck(int rank)
{
    if (rank == 1)
        stop_moving(own_section);
    wait_for_others(own_section);
}

static void first_stuck(int rank)
{
    if (rank == 0)
        stop_moving(DT_SECTION_DATA);
    wait_for_others(DT_SECTION_DATA);
}

static void two_stuck(int rank)
{
    if (rank > 0)
        stop_moving(DT_SECTION_COMPUTE);
    wait_for_others(DT_SECTION_COMPUTE);
}

/* Long enough in its section for a slot that says so. */
static void stop_process(int rank)
{
    if (rank != 0)
        wait_for_others(DT_SECTION_COMPUTE);
    dt_pulse_step(&dt_pulse_main, 57);
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_DATA);
    vt_sleep(0.9);
    raise(SIGSTOP);
}

/* The rank that relays for its node is stopped: another one relays, and that it still answers is
 * seen on both nodes. */
static void stop_relay(int rank)
{
    if (rank == 0)
        stop_process(0);
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
    for (; rank == 1; vt_sleep(0.1))
        dt_pulse_beat(&dt_pulse_main);
    wait_for_others(DT_SECTION_COMPUTE);
}

/* The first node's relay leaves before the others have anything to say. */
static void stuck_later(int rank)
{
    if (rank == 0) {
        dt_watchdog_stop();
        vt_sleep(12);
        _exit(DT_ERR_HANG);
    }
    train(3, 0.1);
    second_stuck(rank);
}

static void all_wait(int rank)
{
    (void)rank;
    wait_for_others(DT_SECTION_EVAL);
}

static void *hang_as_writer(void *arg)
{
    (void)arg;
    dt_pulse_step(&dt_pulse_writer, 40);
    dt_pulse_enter(&dt_pulse_writer, DT_SECTION_SAVE);
    hang();
    return NULL;
}

static void writer_stuck(int rank)
{
    pthread_t writer;
    if (rank == 0 && pthread_create(&writer, NULL, hang_as_writer, NULL) != 0)
        _exit(3);
    train(60, 0.1);
}

/* --- No alarm --- */

/* The first of two on a node relays for both. */
static void healthy(int rank)
{
    train(12, 0.9);
    if (own_options.n_local == 2 && (n_opens > 1) != (rank == 0))
        _exit(5);
    dt_watchdog_stop();
    _exit(0);
}

static void slow(int rank)
{
    if (rank == 0) {
        dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
        for (int i = 0; i < 60; i++) {
            vt_sleep(0.1);
            dt_pulse_beat(&dt_pulse_main);
        }
    } else {
        dt_pulse_enter(&dt_pulse_main, DT_SECTION_REDUCE);
        dt_pulse_wait(&dt_pulse_main, "reduce");
        vt_sleep(6);
        dt_pulse_go_on(&dt_pulse_main);
    }
    dt_watchdog_stop();
    _exit(0);
}

/* The main thread waits for the writer, which gets on; the other rank for the main thread. */
static atomic_bool is_saved;
static void *save_slowly(void *arg)
{
    (void)arg;
    dt_pulse_enter(&dt_pulse_writer, DT_SECTION_SAVE);
    for (int i = 0; i < 60; i++) {
        vt_sleep(0.1);
        dt_pulse_beat(&dt_pulse_writer);
    }
    dt_pulse_enter(&dt_pulse_writer, DT_SECTION_NONE);
    atomic_store(&is_saved, true);
    return NULL;
}

static void long_save(int rank)
{
    pthread_t writer;
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_SAVE);
    if (rank == 0) {
        if (pthread_create(&writer, NULL, save_slowly, NULL) != 0)
            _exit(3);
        while (!atomic_load(&is_saved))
            vt_sleep(0.01);
        pthread_join(writer, NULL);
    } else {
        dt_pulse_wait(&dt_pulse_main, "agree");
        vt_sleep(6);
    }
    dt_watchdog_stop();
    _exit(0);
}

static void nothing_under_way(int rank)
{
    dt_pulse_enter(&dt_pulse_main, rank == 0 ? DT_SECTION_NONE : DT_SECTION_INIT);
    if (rank != 0)
        dt_pulse_wait(&dt_pulse_main, "bcast");
    vt_sleep(6);
    dt_watchdog_stop();
    _exit(0);
}

/* One rank has left in good order, the others are still at work. */
static void leave_early(int rank)
{
    if (rank != 1)
        train(6, 0.1);
    dt_watchdog_stop();
    vt_sleep(rank == 1 ? 6 : 0);
    _exit(0);
}

static void long_steps(int rank)
{
    (void)rank;
    dt_watchdog_set_step(10);
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
    vt_sleep(6);
    dt_watchdog_stop();
    _exit(0);
}

/* Without a run folder, the ranks of one node share their slots elsewhere. The pause shows that
 * another watchdog takes over without a gap. */
static void no_folder(int rank)
{
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_INIT);
    dt_pulse_wait(&dt_pulse_main, "MPI_Init");
    vt_sleep(0.5);
    if (dt_watchdog_start(&own_options) != DT_OK)
        _exit(2);
    if (rank == 1)
        raise(SIGSTOP);
    hang();
}

/* Rank 2, on another node, is not there, and never heard of. */
static void elsewhere(int rank)
{
    (void)rank;
    dt_pulse_enter(&dt_pulse_main, DT_SECTION_INIT);
    dt_pulse_wait(&dt_pulse_main, "MPI_Init");
    hang();
}

/* The alarm of a rank that then says nothing, and whose reason nobody else sees. */
static void alarm_only(int rank)
{
    if (rank == 0)
        train(60, 0.1);
    vt_sleep(1);
    dt_watchdog_stop();
    struct dt_heartbeat beat = {
        .start_id = 7, .rank = 1, .beat = 1000, .flags = DT_HEARTBEAT_EXPIRED};
    _exit(dt_heartbeat_write(at("alarm/heartbeat.bin"), &beat) == DT_OK ? 0 : 3);
}

/* --- The watchdog's own end is in danger --- */

static void blocked_report(int rank)
{
    (void)rank;
    atomic_store(&report_hangs, true);
    stop_moving(DT_SECTION_DATA);
}

static void blind_and_stuck(int rank)
{
    (void)rank;
    atomic_store(&file_system_hangs, true);
    stop_moving(DT_SECTION_DATA);
}

static void blind_and_waiting(int rank)
{
    if (rank == 1)
        raise(SIGSTOP);
    vt_sleep(0.5);
    atomic_store(&file_system_hangs, true);
    wait_for_others(DT_SECTION_REDUCE);
}

/* --- Scenarios --- */

enum {
    STUCK_INIT,
    STUCK_DATA,
    STUCK_COMPUTE,
    STUCK_REDUCE,
    STUCK_EVAL,
    STUCK_SAVE,
    FIRST_STUCK,
    TWO_STUCK,
    STOPPED,
    ALL_WAIT,
    WRITER_STUCK,
    SUSPENDED,
    SLOW,
    LONG_SAVE,
    NOTHING,
    LEAVE_EARLY,
    LONG_STEPS,
    TWO_NODES,
    BLOCKED_REPORT,
    BLIND_STUCK,
    BLIND_WAITING,
    NO_FOLDER,
    ELSEWHERE,
    ALARM_ONLY,
    NODES_STUCK,
    NODES_FIRST_STUCK,
    NODES_STOPPED,
    NODES_RELAY_LEFT,
    N_SCENARIOS
};

static struct scenario {
    const char *name;
    void (*run)(int rank);
    int n_ranks;
    enum dt_section section; /* in which second_stuck is stuck */
    int second_node;         /* its first rank, 0 = there is one node */
    pid_t pids[VT_RANKS];
    int out; /* stderr of all */
    char dir[128];
    char text[TEXT_BYTES];
} scenarios[N_SCENARIOS] = {
    [STUCK_INIT] = {"init", second_stuck, 3, DT_SECTION_INIT},
    [STUCK_DATA] = {"data", second_stuck, 3, DT_SECTION_DATA},
    [STUCK_COMPUTE] = {"compute", second_stuck, 3, DT_SECTION_COMPUTE},
    [STUCK_REDUCE] = {"reduce", second_stuck, 3, DT_SECTION_REDUCE},
    [STUCK_EVAL] = {"eval", second_stuck, 3, DT_SECTION_EVAL},
    [STUCK_SAVE] = {"save", second_stuck, 3, DT_SECTION_SAVE},
    [FIRST_STUCK] = {"first", first_stuck, 2},
    [TWO_STUCK] = {"two", two_stuck, 3},
    [STOPPED] = {"stopped", stop_process, 3},
    [ALL_WAIT] = {"all_wait", all_wait, 3},
    [WRITER_STUCK] = {"writer", writer_stuck, 2},
    [SUSPENDED] = {"suspended", healthy, 3},
    [SLOW] = {"slow", slow, 2},
    [LONG_SAVE] = {"long_save", long_save, 2},
    [NOTHING] = {"nothing", nothing_under_way, 2},
    [LEAVE_EARLY] = {"leave", leave_early, 2},
    [LONG_STEPS] = {"long_steps", long_steps, 1},
    [TWO_NODES] = {"nodes", healthy, 3, .second_node = 2},
    [BLOCKED_REPORT] = {"blocked_report", blocked_report, 1},
    [BLIND_STUCK] = {"blind_stuck", blind_and_stuck, 1},
    [BLIND_WAITING] = {"blind_waiting", blind_and_waiting, 2},
    [NO_FOLDER] = {"no_folder", no_folder, 3},
    [ELSEWHERE] = {"elsewhere", elsewhere, 2},
    [ALARM_ONLY] = {"alarm", alarm_only, 2},
    [NODES_STUCK] = {"nodes_stuck", second_stuck, 3, DT_SECTION_DATA, 2},
    [NODES_FIRST_STUCK] = {"nodes_first", first_stuck, 3, .second_node = 1},
    [NODES_STOPPED] = {"nodes_stopped", stop_relay, 3, .second_node = 2},
    [NODES_RELAY_LEFT] = {"nodes_left", stuck_later, 3, DT_SECTION_DATA, 2},
};

static const double limit_s = 2.0; /* the period is then 0.2 s */

static void run_rank(const struct scenario *s, int rank, int out)
{
    bool has_folder = s->run != no_folder && s->run != elsewhere;
    const int first = s->second_node && rank >= s->second_node ? s->second_node : 0;
    const int end = first == 0 && s->second_node ? s->second_node : s->n_ranks;
    char job[16];
    own_options = (struct dt_watchdog_options){.dir = has_folder ? s->dir : NULL,
                                               .rank = rank,
                                               .n_ranks = s->n_ranks + (s->run == elsewhere),
                                               .node = first,
                                               .n_local = end - first,
                                               .start_id = 7,
                                               .limits = {limit_s, limit_s, limit_s}};
    setenv("PMIX_SERVER_TMPDIR", s->dir, 1);
    snprintf(job, sizeof job, "job%d", first);
    setenv("PMIX_NAMESPACE", job, 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", s->n_ranks == 2 ? "2" : "3", 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out, STDERR_FILENO);
    own_section = s->section;
    n_opens = 0;
    if (dt_watchdog_start(&own_options) != DT_OK)
        _exit(2);
    s->run(rank);
    _exit(4);
}

/* Its slots report a hang. */
static int leave_earlier_start(const struct scenario *s)
{
    char path[256];
    snprintf(path, sizeof path, "%s/heartbeat.bin", s->dir);
    for (int r = 0; r < s->n_ranks; r++) {
        struct dt_heartbeat beat = {
            .start_id = 6, .rank = r, .flags = DT_HEARTBEAT_EXPIRED | DT_HEARTBEAT_SAID};
        if (dt_heartbeat_write(path, &beat) != DT_OK)
            return -1;
    }
    snprintf(path, sizeof path, "%s/hang-0.txt", s->dir);
    return dt_file_save(path, "old", 3) == DT_OK ? 0 : -1;
}

static int save_checkpoint(const struct scenario *s)
{
    char path[256];
    snprintf(path, sizeof path, "%s/checkpoints", s->dir);
    if (mkdir(path, 0777) != 0)
        return -1;
    snprintf(path, sizeof path, "%s/checkpoints/latest", s->dir);
    return dt_file_save(path, "step", 4) == DT_OK ? 0 : -1;
}

static int start_scenario(struct scenario *s, struct vt_world *world)
{
    int ends[2];
    snprintf(s->dir, sizeof s->dir, "%s/%s", test_dir, s->name);
    if (mkdir(s->dir, 0777) != 0 || pipe(ends) != 0)
        return -1;
    if (leave_earlier_start(s) != 0 || (s->run != all_wait && save_checkpoint(s) != 0))
        return -1;
    world->n_ranks = s->n_ranks;
    atomic_store(&world->now, VT_NS(1000));
    if (s == &scenarios[SUSPENDED]) {
        world->pause_at = VT_NS(1001.3); /* the main threads have not moved since the last look */
        world->pause_ns = VT_NS(3 * limit_s);
    }
    for (int r = 0; r < s->n_ranks; r++) {
        s->pids[r] = vt_fork(world, r);
        if (s->pids[r] == 0)
            run_rank(s, r, ends[1]);
    }
    close(ends[1]);
    s->out = ends[0];
    return 0;
}

static int start_all(void **state)
{
    if (make_test_dir(state) != 0)
        return -1;
    vt_news = vt_share(sizeof *vt_news);
    struct vt_world *worlds = vt_share(N_SCENARIOS * sizeof *worlds);
    if (!vt_news || !worlds)
        return -1;
    for (int i = 0; i < N_SCENARIOS; i++)
        if (start_scenario(&scenarios[i], &worlds[i]) != 0)
            return -1;
    return vt_run(worlds, N_SCENARIOS);
}

/* The exit code of a rank, or minus the signal. */
static int end_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Reads the output of all ranks, which have ended. */
static void read_text(struct scenario *s)
{
    size_t used = 0;
    ssize_t n;
    while ((n = read(s->out, s->text + used, sizeof s->text - 1 - used)) > 0)
        used += (size_t)n;
    s->text[used] = '\0';
    close(s->out);
    assert_null(strstr(s->text, "Sanitizer"));
}

static void expect_ends(struct scenario *s, int code)
{
    for (int r = 0; r < s->n_ranks; r++) {
        int got = end_of(s->pids[r]);
        if (got != code)
            fail_msg("%s: rank %d ended with %d", s->name, r, got);
    }
    read_text(s);
}

static void expect_text(const struct scenario *s, const char *text)
{
    if (!strstr(s->text, text))
        fail_msg("%s: no \"%s\" in: %s", s->name, text, s->text);
}

static void expect_one_line(const struct scenario *s)
{
    const char *first = strstr(s->text, "dtrain: error[HANG] ");
    assert_non_null(first);
    if (strstr(first + 1, "dtrain: error[HANG]"))
        fail_msg("%s: more than one message: %s", s->name, s->text);
    assert_non_null(strchr(first, '\n'));
}

/* All ranks have ended with one message. */
static struct scenario *expect_hang(int i)
{
    struct scenario *s = &scenarios[i];
    expect_ends(s, DT_ERR_HANG);
    expect_one_line(s);
    return s;
}

/* The same, but for a rank that is stopped. */
static struct scenario *expect_hang_but_for(int i, int stopped)
{
    struct scenario *s = &scenarios[i];
    for (int r = 0; r < s->n_ranks; r++)
        if (r != stopped)
            assert_int_equal(end_of(s->pids[r]), DT_ERR_HANG);
    assert_int_equal(waitpid(s->pids[stopped], NULL, WNOHANG), 0);
    kill(s->pids[stopped], SIGKILL);
    assert_int_equal(end_of(s->pids[stopped]), -SIGKILL);
    read_text(s);
    expect_one_line(s);
    return s;
}

static void expect_report(const struct scenario *s, int rank, const char *text)
{
    char path[256], *report;
    size_t bytes;
    snprintf(path, sizeof path, "%s/hang-%d.txt", s->dir, rank);
    assert_int_equal(dt_file_load(&report, &bytes, path, 1 << 20), DT_OK);
    if (!strstr(report, text))
        fail_msg("%s: no \"%s\" in %s: %s", s->name, text, path, report);
    free(report);
}

TEST(stuck_in_each_section)
{
    for (int i = STUCK_INIT; i <= STUCK_SAVE; i++) {
        const struct scenario *s = expect_hang(i);
        char who[64], where[64];
        snprintf(who, sizeof who, " pid %d) has not moved", (int)s->pids[1]);
        snprintf(where, sizeof where, "since step 57, section %s, for ", s->name);
        expect_text(s, "error[HANG] rank 1 (");
        expect_text(s, who);
        expect_text(s, where);
        expect_text(s, "; ranks 0, 2 wait for it; ");
        expect_text(s, "the newest checkpoint is intact; submit the job again to resume");
        expect_report(s, 0, "waits in sum");
        expect_report(s, 0, " UTC");
        expect_report(s, 1, "step 57");
        expect_report(s, 1, "dt-watchdog");
        expect_report(s, 2, "last 3 moves of the main thread");
    }
}

TEST(any_rank_can_be_stuck)
{
    const struct scenario *s = expect_hang(FIRST_STUCK);
    expect_text(s, "error[HANG] rank 0 (");
    expect_text(s, "; rank 1 waits for it");
    s = expect_hang(TWO_STUCK);
    expect_text(s, "error[HANG] rank 1 (");
    expect_text(s, "; rank 2 (");
    expect_text(s, "; rank 0 waits for them");
}

TEST(a_stopped_process_is_named)
{
    const struct scenario *s = expect_hang_but_for(STOPPED, 0);
    expect_text(s, "error[HANG] rank 0 (");
    expect_text(
        s, "does not answer (stopped, killed or its node is gone) since step 57, section data");
    expect_text(s, "; ranks 1, 2 wait for it");
}

TEST(nodes)
{
    const struct scenario *s = expect_hang(NODES_STUCK);
    expect_text(s, "error[HANG] rank 1 (");
    expect_text(s, "; ranks 0, 2 wait for it; ");
    s = expect_hang(NODES_FIRST_STUCK);
    expect_text(s, "error[HANG] rank 0 (");
    expect_text(s, "; ranks 1, 2 wait for it; ");
    s = expect_hang_but_for(NODES_STOPPED, 0);
    expect_text(s, "error[HANG] rank 0 (");
    expect_text(s, ", for ");
    expect_text(s, " s; rank 2 waits for it; ");
    s = expect_hang(NODES_RELAY_LEFT);
    expect_text(s, "error[HANG] rank 1 (");
    expect_text(s, "; rank 2 waits for it; ");
}

TEST(all_wait)
{
    const struct scenario *s = expect_hang(ALL_WAIT);
    expect_text(s, "error[HANG] all ranks wait in sum at step 57, section eval, for ");
    expect_text(s, " s: the network?; there is no checkpoint yet; submit the job again to start");
}

TEST(writer_stuck)
{
    const struct scenario *s = expect_hang(WRITER_STUCK);
    expect_text(s, "error[HANG] rank 0 (");
    expect_text(s, "has not moved while it writes a checkpoint since step 40, section save");
}

TEST(no_false_alarm)
{
    for (int i = SUSPENDED; i <= TWO_NODES; i++) {
        expect_ends(&scenarios[i], 0);
        assert_string_equal(scenarios[i].text, "");
    }
}

TEST(the_end_is_sure)
{
    const struct scenario *s = expect_hang(BLOCKED_REPORT);
    expect_text(s, "has not moved since step 57, section data");
    s = expect_hang(BLIND_STUCK);
    expect_text(s, "has not moved since step 57, section data");
    s = expect_hang_but_for(BLIND_WAITING, 1);
    expect_text(s, "waits in sum at step 57, section reduce");
    expect_text(s, "the file system of the run folder does not answer");
}

TEST(no_folder)
{
    const struct scenario *s = expect_hang_but_for(NO_FOLDER, 1);
    expect_text(s, "error[HANG] rank 1 (");
    expect_text(s, "(stopped, killed or its node is gone) since step 0, section init, for ");
    expect_text(s, "; ranks 0, 2 wait for it\n");
    s = expect_hang(ELSEWHERE);
    expect_text(s, "error[HANG] all ranks of ");
    expect_text(s, " wait in MPI_Init at step 0, section init, for ");
    expect_text(s, ": the network? Or a rank hangs on another node; ");
}

TEST(an_alarm_is_passed_on)
{
    struct scenario *s = &scenarios[ALARM_ONLY];
    assert_int_equal(end_of(s->pids[0]), DT_ERR_HANG);
    assert_int_equal(end_of(s->pids[1]), 0);
    read_text(s);
    expect_one_line(s);
    expect_text(s, "error[HANG] rank 1 reports a hang, see its hang-*.txt\n");
    expect_report(s, 0, "another rank has ended the job");
}

/* --- Slots --- */

TEST(slots)
{
    const char *dir = at("slots"), *path = at("slots/heartbeat.bin");
    struct dt_heartbeat beats[4];
    bool valid[4];
    assert_int_equal(dt_heartbeat_last_step(dir), -1);
    assert_int_equal(mkdir(dir, 0777), 0);
    assert_int_equal(dt_heartbeat_last_step(dir), -1);
    /* Four ranks, then a run on two. */
    for (int r = 3; r >= 0; r--) {
        struct dt_heartbeat beat = {.rank = r, .start_id = r < 2 ? 4 : 5};
        beat.main.step = r < 2 ? 100 + r : 200;
        assert_int_equal(dt_heartbeat_write(path, &beat), DT_OK);
    }
    assert_int_equal(dt_heartbeat_last_step(dir), 101);
    assert_int_equal(dt_heartbeat_read(path, 4, beats, valid, 4), DT_OK);
    for (int r = 0; r < 4; r++)
        assert_int_equal(valid[r], r < 2);
    assert_int_equal(beats[1].main.step, 101);
    /* Half of a slot is of another moment. */
    int fd = open(path, O_WRONLY);
    assert_int_equal(syscall(SYS_pwrite64, fd, "torn", 4, (long)sizeof beats[0] + 100), 4);
    close(fd);
    assert_int_equal(dt_heartbeat_read(path, 4, beats, valid, 4), DT_OK);
    assert_true(valid[0] && !valid[1]);
    assert_int_equal(dt_heartbeat_last_step(dir), 100);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(dt_heartbeat_last_step(dir), -1);
}

TEST(two_files_are_merged)
{
    const char *const paths[] = {at("merge-a"), at("merge-b")};
    static const uint64_t in_file[2][4] = {{5, 2, 0, 7}, {4, 3, 6, 7}};
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < 4; r++) {
            struct dt_heartbeat beat = {.start_id = 1, .rank = r, .beat = in_file[i][r]};
            if (beat.beat > 0)
                assert_int_equal(dt_heartbeat_write(paths[i], &beat), DT_OK);
        }
    assert_int_equal(dt_heartbeat_merge(paths, 1, 3), DT_OK);
    for (int i = 0; i < 2; i++) {
        struct dt_heartbeat beats[4];
        bool valid[4];
        assert_int_equal(dt_heartbeat_read(paths[i], 1, beats, valid, 4), DT_OK);
        assert_true(valid[0] && valid[1] && valid[2] && valid[3]);
        assert_true(beats[0].beat == 5 && beats[1].beat == 3 && beats[2].beat == 6);
    }
    assert_int_equal(dt_heartbeat_merge((const char *const[]){paths[0], at("missing")}, 1, 3),
                     DT_ERR_NO_INPUT);
}

/* --- Crashes, and the test of the watchdog by itself --- */

static int crash(const struct scenario *s, int number)
{
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(s->dir, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(fd, STDERR_FILENO);
        dt_watchdog_catch_crashes(3);
        dt_pulse_step(&dt_pulse_main, 57);
        dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
        if (number == SIGABRT)
            abort();
        raise(number);
        _exit(0);
    }
    return end_of(pid);
}

TEST(crashes_are_told)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    static const char *const names[] = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"};
    struct scenario s = {.n_ranks = 0};
    snprintf(s.dir, sizeof s.dir, "%s/crash.txt", test_dir);
    for (size_t i = 0; i < DT_COUNT(numbers); i++) {
        char *text, who[128];
        size_t bytes;
        assert_int_equal(crash(&s, numbers[i]), -numbers[i]);
        assert_int_equal(dt_file_load(&text, &bytes, s.dir, 1 << 20), DT_OK);
        snprintf(who, sizeof who, ") died of %s at step 57, section compute;", names[i]);
        assert_int_equal(strncmp(text, "dtrain: error[CRASH] rank 3 (pid ", 33), 0);
        assert_non_null(strstr(text, who));
        free(text);
    }
}

static void *wait_on(void *context)
{
    for (;;)
        pause();
    return context;
}

static int count_lines(const char *path, const char *part)
{
    char line[1024];
    FILE *f = fopen(path, "r");
    int n = 0;
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, part) != NULL;
    if (f)
        fclose(f);
    return n;
}

/* As `kill -QUIT` asks: every thread shows its stack, and the process goes on. */
TEST(stacks_are_shown)
{
    char path[DT_PATH_MAX], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/stacks.txt", test_dir);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        dup2(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
        dt_watchdog_show_stacks(3);
        dt_pulse_step(&dt_pulse_main, 57);
        dt_pulse_enter(&dt_pulse_main, DT_SECTION_COMPUTE);
        if (dt_thread_start(&thread, "loader 0", wait_on, NULL) == 0)
            kill(getpid(), SIGQUIT);
        /* Either thread may have got the signal. */
        for (int i = 0; i < 1000 && count_lines(path, "dtrain: stack of rank 3") < 2; i++)
            dt_clock_sleep(0.01);
        _exit(7);
    }
    assert_int_equal(end_of(pid), 7);
    assert_int_equal(dt_file_load(&text, &bytes, path, 1 << 20), DT_OK);
    assert_non_null(strstr(text, "dtrain: stack of rank 3, thread "));
    assert_non_null(strstr(text, ") at step 57, section compute\n"));
    assert_non_null(strstr(text, " (loader 0)\n"));
    free(text);
}

TEST_MAIN(start_all, remove_test_dir)
