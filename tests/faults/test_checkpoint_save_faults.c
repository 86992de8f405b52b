/* Faults in every I/O call of a save: the process dies in it, or the call fails, alone or with all
 * later ones. In every case the state before or after the save can be loaded, and after cleaning up
 * only complete checkpoints remain. */
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint_rig.h"
#include "test.h"

enum { NEW = 30, MAX_CALLS = 500 };

/* --- Contents of the folder before the save of step 30 --- */

static void write_bytes(const char *folder, const char *name, const char *text)
{
    char path[DT_PATH_MAX];
    ok(dt_file_make_folder(folder));
    ok(dt_file_path(path, "%s/%s", folder, name));
    ok(dt_file_save(path, text, strlen(text)));
}

static void prepare_nothing(struct rig *r)
{
    r->target.config.keep = 3;
}

/* Step 10 must be deleted once 30 exists. */
static void prepare_retention(struct rig *r)
{
    char path[DT_PATH_MAX];
    r->target.config.keep = 2;
    ok(rig_save(r, path, 10));
    ok(rig_save(r, path, 20));
}

static void prepare_damaged(struct rig *r)
{
    char path[DT_PATH_MAX], file[DT_PATH_MAX];
    r->target.config.keep = 2;
    ok(rig_save(r, path, 20));
    ok(rig_save(r, path, NEW));
    ok(dt_file_path(file, "%s/optim.safetensors", path));
    assert_int_equal(truncate(file, 100), 0);
}

static void prepare_leftovers(struct rig *r)
{
    char tmp[DT_PATH_MAX], trash[DT_PATH_MAX];
    prepare_retention(r);
    ok(dt_file_path(tmp, "%s/.tmp-step-000000030-7", r->dir));
    ok(dt_file_path(trash, "%s/.trash-step-000000010", r->dir));
    write_bytes(tmp, "model.safetensors", "half of");
    write_bytes(trash, "state.json", "{}");
    write_bytes(r->dir, ".tmp-latest-0123456789abcdef", "step-0");
}

static const struct scenario {
    const char *name;
    void (*prepare)(struct rig *r);
    bool has_older; /* step 20 exists */
} scenarios[] = {
    {"first save", prepare_nothing, false},
    {"save with retention", prepare_retention, true},
    {"save over a damaged one", prepare_damaged, true},
    {"save after a crash", prepare_leftovers, true},
};

/* --- The save, in a child process --- */

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static int count_names(const struct rig *r, const char *start)
{
    int n = 0;
    DIR *dir = opendir(r->dir);
    if (!dir)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        n += begins_with(entry->d_name, start);
    closedir(dir);
    return n;
}

enum outcome { SAVED, FAILED, WRONG };

static void be_careful(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "%s: %s\n", what, dt_error_text());
    _exit(WRONG);
}

static void check_text(const struct rig *r, bool is_full)
{
    const char *text = dt_error_text();
    be_careful(strstr(text, "cannot save the checkpoint of step 30 in "), "no step");
    be_careful(strstr(text, r->dir), "no folder");
    be_careful(strstr(text, "; older checkpoints are intact"), "no comfort");
    be_careful(!strstr(text, " (it needs ") == !is_full, "needed bytes");
}

static bool is_good(const struct rig *r, int64_t step)
{
    char path[DT_PATH_MAX];
    return dt_checkpoint_path(path, r->dir, step) == DT_OK &&
           dt_checkpoint_verify(NULL, path) == DT_OK;
}

/* If a single call fails, the attempt leaves nothing and the next one succeeds. Only an exchanged
 * folder stays until the exchange is durable. */
static void save_in_child(struct rig *r, const char *fault)
{
    char path[DT_PATH_MAX];
    bool exchanges = is_good(r, NEW);
    int n_older = rig_has(r, 10) + rig_has(r, 20);
    dt_log_init(DT_LOG_ERROR, 0, 1); /* thousands of warnings */
    be_careful(setenv("DTRAIN_FAULT", fault, 1) == 0 && dt_fault_init(0) == DT_OK, "fault");
    if (dt_checkpoint_write(path, &r->target, r->snapshot) == DT_OK)
        _exit(SAVED);
    check_text(r, begins_with(fault, "enospc"));
    be_careful(rig_has(r, 10) + rig_has(r, 20) == n_older, "older checkpoints");
    if (strchr(fault, '+'))
        _exit(FAILED);
    be_careful(count_names(r, ".tmp-step-") == 0 || exchanges, "temporary folder");
    be_careful(dt_checkpoint_write(path, &r->target, r->snapshot) == DT_OK, "second attempt");
    be_careful(count_names(r, ".tmp-step-") == 0, "temporary folder at the end");
    _exit(FAILED);
}

/* Returns the wait status of the process. */
static int run(struct rig *r, const char *kind, int n, const char *end)
{
    char fault[64];
    int status;
    snprintf(fault, sizeof fault, "%s@io:%d%s", kind, n, end);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        save_in_child(r, fault);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) != SAVED && WEXITSTATUS(status) != FAILED)
        fail_msg("%s", fault);
    return status;
}

/* --- Conditions afterwards --- */

/* The newest checkpoint that verifies has the values of its step. */
static int64_t check_newest(struct rig *r, const struct scenario *s)
{
    char path[DT_PATH_MAX];
    struct dt_checkpoint state;
    ok(dt_checkpoint_find(path, &state, r->dir));
    if (path[0] == '\0') {
        assert_false(s->has_older);
        return -1;
    }
    assert_true(state.step == NEW || (s->has_older && state.step == 20));
    rig_check(r, path, state.step);
    if (s->has_older) {
        ok(dt_file_path(path, "%s/step-000000020", r->dir));
        ok(dt_checkpoint_verify(NULL, path));
    }
    return state.step;
}

/* `latest` is a hint: the checkpoint it names exists, unless that was damaged. */
static void check_latest(const struct rig *r, const struct scenario *s)
{
    char path[DT_PATH_MAX], text[100] = "";
    ok(dt_file_path(path, "%s/latest", r->dir));
    ssize_t bytes = readlink(path, text, sizeof text - 1);
    if (bytes < 0)
        return;
    assert_int_equal(bytes, strlen("step-000000030"));
    ok(dt_file_path(path, "%s/%s", r->dir, text));
    assert_true(dt_file_exists(path) || s->prepare == prepare_damaged);
}

/* After cleaning up, every checkpoint is complete, except one that was damaged before. */
static void check_clean(struct rig *r, const struct scenario *s, int64_t newest)
{
    char path[DT_PATH_MAX];
    dt_checkpoint_clean(r->dir);
    assert_int_equal(count_names(r, "."), newest < 0 && !dt_file_exists(r->dir) ? 0 : 2);
    for (int64_t step = 10; step <= NEW; step += 10) {
        bool was_damaged = s->prepare == prepare_damaged && step == NEW && newest != NEW;
        ok(dt_file_path(path, "%s/step-%09lld", r->dir, (long long)step));
        if (dt_file_exists(path) && !was_damaged)
            ok(dt_checkpoint_verify(NULL, path));
    }
    assert_true(check_newest(r, s) == newest);
    check_latest(r, s);
}

/* The run can continue from any such state. */
static void check_next_save(struct rig *r, const struct scenario *s)
{
    char path[DT_PATH_MAX];
    ok(rig_save(r, path, NEW));
    assert_int_equal(check_newest(r, s), NEW);
    assert_int_equal(count_names(r, "."), 2);
    assert_int_equal(count_names(r, "latest"), 1);
    assert_false(rig_has(r, 10));
}

static void begin_case(struct rig *r, const struct scenario *s)
{
    const struct dt_checkpoint at = rig_state(NEW);
    dt_log_init(DT_LOG_ERROR, 0, 1);
    rig_remove_tree(r->dir);
    s->prepare(r);
    rig_visit(r, (float)NEW, false);
    ok(dt_snapshot_take(r->snapshot, &at));
}

/* --- Dying --- */

static int n_calls[DT_COUNT(scenarios)]; /* I/O calls of the save, counted by dying in each */

TEST_WITH(crash, rig_setup, rig_teardown)
{
    struct rig *r = *state;
    int n_points = 0;
    for (size_t i = 0; i < DT_COUNT(scenarios); i++) {
        const struct scenario *s = &scenarios[i];
        int n = 0, n_new = 0, status;
        for (;;) {
            begin_case(r, s);
            status = run(r, "crash", n + 1, "");
            int64_t newest = check_newest(r, s);
            check_clean(r, s, newest);
            check_next_save(r, s);
            if (!WIFSIGNALED(status))
                break;
            assert_int_equal(WTERMSIG(status), SIGKILL);
            assert_true(++n < MAX_CALLS);
            assert_true(n_new == 0 || newest == NEW); /* never back to the old state */
            n_new += newest == NEW;
        }
        assert_int_equal(WEXITSTATUS(status), SAVED);
        assert_true(n > 20 && n_new > 0 && n_new < n);
        print_message("%s: %d crash points, %d of them with the old state\n", s->name, n,
                      n - n_new);
        n_calls[i] = n;
        n_points += n;
    }
    print_message("%d crash points in all\n", n_points);
}

/* --- Failing --- */

static void check_after_failure(struct rig *r, const struct scenario *s, int status, bool once)
{
    assert_true(WIFEXITED(status));
    int64_t newest = check_newest(r, s);
    if (once) { /* at the first or the second attempt */
        assert_int_equal(newest, NEW);
        assert_int_equal(count_names(r, ".tmp-step-"), 0);
    }
    if (WEXITSTATUS(status) == SAVED)
        assert_int_equal(newest, NEW);
    check_clean(r, s, newest);
    check_next_save(r, s);
}

TEST_WITH(fail, rig_setup, rig_teardown)
{
    static const struct {
        const char *kind, *end;
    } faults[] = {{"enospc", ""}, {"enospc", "+"}, {"eio", ""}, {"eio", "+"}};
#ifdef __SANITIZE_ADDRESS__ /* fork is slow, so each call fails in one way only */
    const int n_variants = DT_COUNT(faults);
#else
    const int n_variants = 1;
#endif
    struct rig *r = *state;
    int n_points = 0, n_failed = 0;
    for (size_t i = 0; i < DT_COUNT(scenarios); i++) {
        const struct scenario *s = &scenarios[i];
        assert_true(n_calls[i] > 0);
        for (size_t f = 0; f < DT_COUNT(faults); f++)
            for (int n = 1 + (int)f % n_variants; n <= n_calls[i]; n += n_variants) {
                bool once = faults[f].end[0] == '\0';
                begin_case(r, s);
                int status = run(r, faults[f].kind, n, faults[f].end);
                n_failed += WEXITSTATUS(status) == FAILED;
                check_after_failure(r, s, status, once);
                n_points++;
            }
    }
    assert_true(n_failed > n_points / 3 && n_failed < n_points);
    print_message("%d failing calls, of which %d failed the save\n", n_points, n_failed);
}

/* --- Step 30 already exists, without its evaluation --- */

static void begin_exchange(struct rig *r)
{
    char path[DT_PATH_MAX];
    struct dt_checkpoint at = rig_state(NEW);
    rig_remove_tree(r->dir);
    ok(rig_save(r, path, 20));
    ok(rig_save_state(r, path, &at));
    at.eval_due = false;
    ok(dt_snapshot_take(r->snapshot, &at));
}

/* Whether step 30 has its evaluation; it is complete in any case, even after cleaning up. */
static bool is_evaluated(struct rig *r)
{
    char path[DT_PATH_MAX];
    struct dt_checkpoint found;
    for (int i = 0; i < 2; i++) {
        ok(dt_checkpoint_find(path, &found, r->dir));
        rig_check(r, path, NEW);
        dt_checkpoint_clean(r->dir);
    }
    assert_int_equal(count_names(r, "."), 2);
    assert_true(rig_has(r, 20));
    return !found.eval_due;
}

TEST_WITH(exchange, rig_setup, rig_teardown)
{
    static const char *const kinds[] = {"crash", "eio", "enospc"};
    struct rig *r = *state;
    dt_log_init(DT_LOG_ERROR, 0, 1);
    for (size_t k = 0; k < DT_COUNT(kinds); k++) {
        int n = 0, n_new = 0, status;
        for (;;) {
            begin_exchange(r);
            status = run(r, kinds[k], n + 1, "");
            bool is_new = is_evaluated(r);
            if (k > 0 ? n == n_calls[0] + MAX_CALLS / 10 : !WIFSIGNALED(status))
                break;
            assert_true(++n < MAX_CALLS);
            assert_true(is_new || (k == 0 && n_new == 0)); /* never back; a retry works */
            n_new += is_new;
        }
        assert_true(n > 20 && n_new > 0 && (k > 0 || n_new < n));
        print_message("exchange, %s: %d points, %d with the new state\n", kinds[k], n, n_new);
    }
}

TEST_MAIN(NULL, NULL)
