/* The writer thread: training continues during a save, saves do not overlap, failures come back as
 * results, nothing is lost when it is stopped. */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include "checkpoint/writer.h"
#include "checkpoint_rig.h"

/* Holds a save directly before it becomes visible until the test lets it go. */
static struct {
    sem_t reached, open;
    pthread_t thread;
    sigset_t blocked;
    dt_status status;
} gate;

static dt_status pass_gate(void *context)
{
    (void)context;
    gate.thread = pthread_self();
    pthread_sigmask(SIG_BLOCK, NULL, &gate.blocked);
    sem_post(&gate.reached);
    sem_wait(&gate.open);
    if (gate.status != DT_OK)
        DT_FAIL(gate.status, "another run has taken over");
    return DT_OK;
}

static int setup(void **state)
{
    rig_setup(state);
    struct rig *r = *state;
    r->target.may_commit = pass_gate;
    gate.status = DT_OK;
    return sem_init(&gate.reached, 0, 0) || sem_init(&gate.open, 0, 0);
}

static int teardown(void **state)
{
    sem_destroy(&gate.reached);
    sem_destroy(&gate.open);
    return rig_teardown(state);
}

#define GATE_TEST(NAME) RIG_TEST_WITH(NAME, setup, teardown)

static void begin(struct rig *r, struct dt_writer *writer, int64_t step)
{
    const struct dt_checkpoint at = rig_state(step);
    rig_visit(r, (float)step, false);
    ok(dt_writer_start(writer, &at));
}

GATE_TEST(during_training)
{
    struct dt_writer *writer;
    struct dt_saved saved;
    ok(dt_writer_create(&writer, &r->target, r->plan));
    assert_false(dt_writer_is_busy(writer));
    assert_false(dt_writer_take_result(writer, &saved, false));
    assert_false(dt_writer_take_result(writer, &saved, true));
    begin(r, writer, 10);
    sem_wait(&gate.reached);
    assert_true(dt_writer_is_busy(writer));
    assert_false(dt_writer_take_result(writer, &saved, false));
    assert_false(rig_has(r, 10));
    rig_visit(r, 555, false); /* training continues */
    sem_post(&gate.open);
    assert_true(dt_writer_take_result(writer, &saved, true));
    assert_false(dt_writer_is_busy(writer));
    assert_false(dt_writer_take_result(writer, &saved, true));
    rig_visit(r, 555, true);
    ok(saved.status);
    assert_int_equal(saved.step, 10);
    assert_int_equal(saved.bytes, dt_writer_bytes(writer));
    assert_int_equal(saved.bytes, dt_snapshot_bytes(r->snapshot));
    assert_true(saved.seconds > 0);
    assert_string_equal(saved.problem, "");
    rig_check(r, saved.path, 10);
    dt_writer_destroy(writer);
}

/* A start waits for the save under way. */
static void *let_go(void *context)
{
    (void)context;
    sem_wait(&gate.reached);
    sem_post(&gate.open);
    sem_wait(&gate.reached);
    sem_post(&gate.open);
    return NULL;
}

GATE_TEST(one_at_a_time)
{
    struct dt_writer *writer;
    struct dt_saved saved;
    pthread_t helper;
    ok(dt_writer_create(&writer, &r->target, r->plan));
    assert_int_equal(pthread_create(&helper, NULL, let_go, NULL), 0);
    begin(r, writer, 10);
    begin(r, writer, 20); /* drops the first result, which is no failure */
    assert_true(rig_has(r, 10));
    assert_true(dt_writer_take_result(writer, &saved, true));
    pthread_join(helper, NULL);
    ok(saved.status);
    assert_int_equal(saved.step, 20);
    rig_check(r, saved.path, 20);
    rig_check(r, rig_path(r->dir, "step-000000010"), 10);
    dt_writer_destroy(writer);
}

/* Many saves, polled as the trainer does. */
GATE_TEST(many)
{
    enum { N_SAVES = 30 };
    struct dt_writer *writer;
    struct dt_saved saved;
    int n_results = 0;
    r->target.may_commit = rig_commit;
    ok(dt_writer_create(&writer, &r->target, r->plan));
    for (int i = 1; i <= N_SAVES; i++) {
        begin(r, writer, i);
        for (int k = 0; k < i % 5 && dt_writer_is_busy(writer); k++)
            rig_visit(r, (float)k, false);
        if (dt_writer_take_result(writer, &saved, i % 3 != 0)) {
            ok(saved.status);
            assert_int_equal(saved.step, i);
            n_results++;
        }
    }
    n_results += dt_writer_take_result(writer, &saved, true);
    assert_true(n_results >= N_SAVES * 2 / 3);
    dt_writer_destroy(writer);
    for (int i = 1; i <= N_SAVES; i++)
        assert_int_equal(rig_has(r, i), i > N_SAVES - r->target.config.keep);
}

GATE_TEST(failure_is_a_result)
{
    struct dt_writer *writer;
    struct dt_saved saved;
    ok(dt_writer_create(&writer, &r->target, r->plan));
    dt_error_clear();
    gate.status = DT_ERR_IN_USE;
    sem_post(&gate.open);
    begin(r, writer, 30);
    assert_true(dt_writer_take_result(writer, &saved, true));
    assert_int_equal(saved.status, DT_ERR_IN_USE);
    assert_int_equal(saved.step, 30);
    assert_non_null(strstr(saved.problem, "cannot save the checkpoint of step 30 in "));
    assert_non_null(strstr(saved.problem, "another run has taken over"));
    assert_string_equal(dt_error_text(), ""); /* of this thread */
    assert_false(rig_has(r, 30));
    gate.status = DT_OK;
    sem_post(&gate.open);
    begin(r, writer, 30); /* the next attempt */
    assert_true(dt_writer_take_result(writer, &saved, true));
    ok(saved.status);
    assert_string_equal(saved.problem, "");
    rig_check(r, saved.path, 30);
    dt_writer_destroy(writer);
}

/* Destroying waits for the save, whether the thread has begun it or not. */
GATE_TEST(destroy_while_busy)
{
    struct dt_writer *writer;
    char path[DT_PATH_MAX];
    for (int64_t step = 1; step <= 20; step++) {
        ok(dt_writer_create(&writer, &r->target, r->plan));
        begin(r, writer, step);
        sem_post(&gate.open);
        dt_writer_destroy(writer);
        ok(dt_file_path(path, "%s/step-%09lld", r->dir, (long long)step));
        rig_check(r, path, step);
    }
    ok(dt_writer_create(&writer, &r->target, r->plan)); /* never used */
    dt_writer_destroy(writer);
    dt_writer_destroy(NULL);
}

/* Requests to stop must reach the main thread; faults of its own the thread must not ignore. */
GATE_TEST(signals)
{
    static const int blocked[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGXFSZ, SIGPIPE};
    static const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct dt_writer *writer;
    struct dt_saved saved;
    sigset_t before, after;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    ok(dt_writer_create(&writer, &r->target, r->plan));
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    sem_post(&gate.open);
    begin(r, writer, 10);
    assert_true(dt_writer_take_result(writer, &saved, true));
    assert_false(pthread_equal(gate.thread, pthread_self()));
    for (size_t i = 0; i < sizeof blocked / sizeof *blocked; i++) {
        assert_int_equal(sigismember(&gate.blocked, blocked[i]), 1);
        assert_int_equal(sigismember(&after, blocked[i]), sigismember(&before, blocked[i]));
    }
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        assert_int_equal(sigismember(&gate.blocked, open[i]), 0);
    dt_writer_destroy(writer);
}

TEST_MAIN(NULL, NULL)
