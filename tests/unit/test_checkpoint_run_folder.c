/* The run folder: one job at a time, also after a kill -9, in races and without flock; RUN over
 * several starts, damaged at every byte, and taken over by another job; folders that cannot be
 * used; space. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>

#include "base/alive.h"
#include "base/mem.h"
#include "checkpoint/run_folder.h"
#include "test_dir.h"
#include "test_status.h"
#include "watch/heartbeat.h"

enum { N_RACES = 100, NOBODY = 65534 };

static char dir[80];

static int make_root(void **state)
{
    static const char *const jobs[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"};
    for (size_t i = 0; i < DT_COUNT(jobs); i++)
        unsetenv(jobs[i]);
    assert_int_equal(make_test_dir(state), 0);
    assert_int_equal(chmod(test_dir, 0755), 0);
    snprintf(dir, sizeof dir, "%s/runs/a", test_dir);
    assert_ok(dt_file_make_folder(dir));
    return 0;
}

#define FOLDER_TEST(NAME) TEST_WITH(NAME, make_root, remove_test_dir)

static void assert_text(const char *part)
{
    if (!strstr(dt_error_text(), part))
        fail_msg("no \"%s\" in \"%s\"", part, dt_error_text());
    assert_null(strchr(dt_error_text(), '\n'));
}

static const char *path_of(const char *name)
{
    static char path[DT_PATH_MAX];
    assert_ok(dt_file_path(path, "%s/%s", dir, name));
    return path;
}

/* --- The lock --- */

/* A process that opens the folder, reports the result, and holds it until the other end of `hold`
 * is closed. */
struct holder {
    pid_t pid;
    int hold, told;
};

static void start_holder(struct holder *holder, int go)
{
    int hold[2], told[2];
    assert_true(pipe(hold) == 0 && pipe(told) == 0);
    holder->pid = fork();
    assert_true(holder->pid >= 0);
    if (holder->pid == 0) {
        struct dt_run_folder folder;
        char byte;
        close(hold[1]);
        if (go >= 0)
            (void)!read(go, &byte, 1);
        unsigned char status = (unsigned char)dt_run_folder_open(&folder, dir);
        (void)!write(told[1], &status, 1);
        (void)!read(hold[0], &byte, 1);
        _exit(0);
    }
    close(hold[0]);
    close(told[1]);
    holder->hold = hold[1];
    holder->told = told[0];
}

static int status_of(const struct holder *holder)
{
    unsigned char status;
    assert_int_equal(read(holder->told, &status, 1), 1);
    return status;
}

static void end_holder(struct holder *holder)
{
    close(holder->hold);
    close(holder->told);
    assert_int_equal(waitpid(holder->pid, NULL, 0), holder->pid);
}

static void check_in_use(const char *job)
{
    struct holder holder;
    struct dt_run_folder folder;
    char expected[512], host[200] = "";
    start_holder(&holder, -1);
    assert_int_equal(status_of(&holder), DT_OK);
    assert_int_equal(dt_run_folder_open(&folder, dir), DT_ERR_IN_USE);
    gethostname(host, sizeof host - 1);
    snprintf(expected, sizeof expected, "%s is in use by %s on %s, process %d, since 20", dir, job,
             host, (int)holder.pid);
    assert_text(expected);
    assert_text("; wait for it, or choose another --out");
    dt_run_folder_close(&folder);
    assert_int_equal(kill(holder.pid, SIGKILL), 0);
    end_holder(&holder);
    assert_ok(dt_run_folder_open(&folder, dir)); /* free at once */
    dt_run_folder_close(&folder);
}

FOLDER_TEST(in_use)
{
    check_in_use("a job");
    setenv("SLURM_JOB_ID", "8123", 1);
    check_in_use("job 8123");
    setenv("SLURM_JOB_ID", "8\x1b[2J", 1);
    check_in_use("job 8?[2J");
}

FOLDER_TEST(races)
{
    for (int i = 0; i < N_RACES; i++) {
        struct holder a, b;
        int go[2];
        assert_int_equal(pipe(go), 0);
        start_holder(&a, go[0]);
        start_holder(&b, go[0]);
        assert_int_equal(write(go[1], "gg", 2), 2);
        int of_a = status_of(&a), of_b = status_of(&b);
        close(a.hold); /* the fork of b has a copy of it */
        end_holder(&b);
        a.hold = -1;
        end_holder(&a);
        close(go[0]);
        close(go[1]);
        assert_true((of_a == DT_OK && of_b == DT_ERR_IN_USE) ||
                    (of_b == DT_OK && of_a == DT_ERR_IN_USE));
    }
}

/* --- Without flock --- */

static int lock_error;
static int fake_lock(int fd, int operation)
{
    (void)fd;
    assert_int_equal(operation, LOCK_EX | LOCK_NB);
    errno = lock_error;
    return lock_error ? -1 : 0;
}

static void set_heartbeat(int age_s)
{
    int fd = open(path_of("heartbeat.bin"), O_CREAT | O_WRONLY, 0644);
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
    assert_true(fd >= 0 && futimens(fd, times) == 0);
    close(fd);
}

static dt_status open_without_locks(void)
{
    struct dt_run_folder folder;
    dt_status status = dt_run_folder_open_by(&folder, dir, fake_lock);
    dt_run_folder_close(&folder);
    return status;
}

FOLDER_TEST(lease)
{
    static const int errors[] = {ENOSYS, ENOTSUP, ENOLCK};
    struct dt_run_folder folder;
    for (size_t i = 0; i < DT_COUNT(errors); i++) {
        lock_error = errors[i];
        assert_ok(open_without_locks());
        set_heartbeat(30);
        assert_int_equal(open_without_locks(), DT_ERR_IN_USE);
        assert_text("is in use by a job on");
        set_heartbeat(70);
        assert_ok(open_without_locks());
        assert_int_equal(unlink(path_of("heartbeat.bin")), 0);
    }
    assert_ok(dt_run_folder_open_by(&folder, dir, fake_lock));
    assert_ok(dt_run_folder_begin(&folder, true));
    set_heartbeat(5);
    assert_int_equal(open_without_locks(), DT_ERR_IN_USE);
    dt_run_folder_end(&folder, DT_OK, 7);
    dt_run_folder_close(&folder);
    assert_ok(open_without_locks());
    lock_error = EIO;
    assert_int_equal(open_without_locks(), DT_ERR_CREATE);
    assert_text(".lock: ");
}

FOLDER_TEST(alive)
{
    struct dt_run_folder folder;
    assert_false(dt_run_is_alive(dir));
    assert_ok(dt_run_folder_open(&folder, dir));
    assert_false(dt_run_is_alive(dir));
    set_heartbeat(30); /* before RUN is written */
    assert_true(dt_run_is_alive(dir));
    assert_ok(dt_run_folder_begin(&folder, true));
    set_heartbeat(70); /* killed */
    assert_false(dt_run_is_alive(dir));
    assert_int_equal(unlink(path_of("heartbeat.bin")), 0);
    assert_true(dt_run_is_alive(dir));
    set_heartbeat(5);
    dt_run_folder_close(&folder);
    assert_false(dt_run_is_alive(dir)); /* rank 0 of this host is gone */
    assert_ok(dt_run_folder_open(&folder, dir));
    assert_true(dt_run_is_alive(dir));
    dt_run_folder_end(&folder, DT_OK, 7);
    assert_false(dt_run_is_alive(dir));
    dt_run_folder_close(&folder);
}

/* --- RUN --- */

FOLDER_TEST(incarnations)
{
    struct dt_run_folder folder;
    char id[DT_ID_MAX], *text;
    size_t bytes;
    assert_ok(dt_run_folder_open(&folder, dir));
    assert_true(folder.incarnation == 0 && !folder.run_id[0] && !folder.was_running);
    assert_int_equal(folder.last_step, -1);
    assert_ok(dt_run_folder_begin(&folder, false));
    assert_int_equal(folder.incarnation, 1);
    assert_true(strlen(folder.run_id) == 32 && strspn(folder.run_id, "0123456789abcdef") == 32);
    memcpy(id, folder.run_id, sizeof id);
    dt_run_folder_close(&folder); /* as if killed */

    assert_ok(dt_run_folder_open(&folder, dir));
    assert_true(folder.was_running && folder.incarnation == 1);
    assert_string_equal(folder.run_id, id);
    assert_ok(dt_run_folder_begin(&folder, false));
    assert_int_equal(folder.incarnation, 2);
    assert_string_equal(folder.run_id, id);
    dt_run_folder_end(&folder, DT_STOPPED, 4120);
    dt_run_folder_close(&folder);
    assert_ok(dt_file_load(&text, &bytes, path_of("RUN"), 1 << 16));
    assert_non_null(strstr(text, "\"exit_code\": 75,"));
    free(text);

    assert_ok(dt_run_folder_open(&folder, dir));
    assert_true(!folder.was_running && folder.last_step == 4120);
    assert_ok(dt_run_folder_begin(&folder, true));
    assert_int_equal(folder.incarnation, 3);
    assert_string_not_equal(folder.run_id, id);
    assert_ok(dt_run_folder_check(&folder));
    dt_run_folder_close(&folder);
}

/* Of a start that fails before it begins, but not what it did not make. */
FOLDER_TEST(failed_start)
{
    struct dt_run_folder folder;
    assert_ok(dt_file_remove_empty(dir));
    for (int i = 0; i < 3; i++) {
        struct dt_heartbeat beat = {.flags = DT_HEARTBEAT_HAS_LEFT};
        assert_ok(dt_run_folder_open(&folder, dir));
        assert_ok(dt_heartbeat_write(path_of("heartbeat.bin"), &beat));
        if (i == 1)
            assert_ok(dt_file_save(path_of("mine"), "a", 1));
        dt_run_folder_close(&folder);
        assert_int_equal(dt_file_exists(dir), i > 0);
        assert_int_equal(dt_file_exists(path_of("heartbeat.bin")), i == 2);
    }
    assert_true(dt_file_exists(path_of("mine")));
}

/* The error of a failed run is not lost when its end is recorded. */
FOLDER_TEST(end_keeps_error)
{
    struct dt_run_folder folder;
    assert_ok(dt_run_folder_open(&folder, dir));
    assert_ok(dt_run_folder_begin(&folder, true));
    (void)DT_ERROR(DT_ERR_NUMERICAL, "the loss is NaN");
    dt_run_folder_end(&folder, DT_ERR_NUMERICAL, 5);
    assert_string_equal(dt_error_text(), "the loss is NaN");
    assert_int_equal(unlink(path_of("RUN")), 0);
    assert_int_equal(mkdir(path_of("RUN"), 0755), 0);
    dt_run_folder_end(&folder, DT_ERR_NUMERICAL, 5);
    assert_string_equal(dt_error_text(), "the loss is NaN");
    dt_run_folder_close(&folder);
}

static void put_run(const char *text, size_t bytes)
{
    int fd = open(path_of("RUN"), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    assert_true(fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes);
    close(fd);
}

/* Whether RUN was found damaged: the run continues under a new id, above all earlier
 * incarnations. */
static bool is_found_damaged(const char *id)
{
    struct dt_run_folder folder;
    assert_ok(dt_run_folder_open(&folder, dir));
    bool is_damaged = !folder.run_id[0];
    if (is_damaged)
        assert_true(!folder.was_running && folder.incarnation > 1000000000);
    else
        assert_true(strcmp(folder.run_id, id) == 0 && folder.incarnation == 2);
    dt_run_folder_close(&folder);
    return is_damaged;
}

FOLDER_TEST(damaged)
{
    struct dt_run_folder folder;
    char *text, *copy;
    size_t bytes;
    int n_harmless = 0;
    for (int i = 0; i < 2; i++) {
        assert_ok(dt_run_folder_open(&folder, dir));
        assert_ok(dt_run_folder_begin(&folder, false));
        dt_run_folder_close(&folder);
    }
    assert_ok(dt_file_load(&text, &bytes, path_of("RUN"), 1 << 16));
    copy = malloc(bytes);
    assert_non_null(copy);
    for (size_t i = 0; i < 8 * bytes; i++) {
        memcpy(copy, text, bytes);
        copy[i / 8] = (char)(copy[i / 8] ^ 1 << i % 8);
        put_run(copy, bytes);
        if (!is_found_damaged(folder.run_id)) {
            n_harmless++; /* white space into other white space */
            assert_non_null(memchr(" \n", text[i / 8], 2));
        }
    }
    assert_true(n_harmless < (int)bytes);
    for (size_t n = 0; n + 2 < bytes; n++) {
        put_run(text, n);
        assert_true(is_found_damaged(folder.run_id));
    }
    free(copy);
    put_run("{}", 2);
    assert_ok(dt_run_folder_open(&folder, dir));
    assert_ok(dt_run_folder_begin(&folder, false));
    assert_ok(dt_run_folder_check(&folder));
    dt_run_folder_close(&folder);
    free(text);
}

FOLDER_TEST(fence)
{
    struct dt_run_folder before, after;
    lock_error = 0; /* both believe they have it */
    assert_ok(dt_run_folder_open_by(&before, dir, fake_lock));
    assert_ok(dt_run_folder_begin(&before, false));
    assert_ok(dt_run_folder_check(&before));
    assert_ok(dt_run_folder_open_by(&after, dir, fake_lock));
    assert_ok(dt_run_folder_begin(&after, false));
    assert_int_equal(dt_run_folder_check(&before), DT_ERR_IN_USE);
    assert_text("another job has taken over run folder");
    assert_text("incarnation 2; this one is 1");
    assert_ok(dt_run_folder_check(&after));
    dt_run_folder_end(&before, DT_OK, 3); /* must not speak for the other */
    assert_ok(dt_run_folder_check(&after));
    put_run("?", 1); /* no sign of another run */
    assert_ok(dt_run_folder_check(&after));
    assert_int_equal(unlink(path_of("RUN")), 0);
    assert_ok(dt_run_folder_check(&after));
    dt_run_folder_close(&before);
    dt_run_folder_close(&after);
}

/* --- Folders that cannot be used --- */

static dt_status open_at(const char *path)
{
    struct dt_run_folder folder;
    dt_status status = dt_run_folder_open(&folder, path);
    dt_run_folder_close(&folder);
    return status;
}

FOLDER_TEST(not_a_folder)
{
    write_text("file", "");
    assert_int_equal(open_at(at("file")), DT_ERR_CREATE);
    assert_text(at("file"));
    assert_int_equal(open_at(at("file/sub")), DT_ERR_CREATE);

    assert_ok(open_at(dir));
    assert_int_equal(unlink(path_of(".lock")), 0);
    assert_int_equal(symlink("/etc/hostname", path_of(".lock")), 0);
    assert_int_equal(open_at(dir), DT_ERR_CREATE);
    assert_text("/.lock: ");
    assert_int_equal(unlink(path_of(".lock")), 0);
    assert_int_equal(mkfifo(path_of(".lock"), 0644), 0);
    assert_int_equal(open_at(dir), DT_ERR_CREATE);
    assert_text("is not a regular file");
}

FOLDER_TEST(mode)
{
    struct stat info;
    mode_t before = umask(027);
    assert_ok(open_at(dir));
    umask(before);
    assert_int_equal(stat(path_of(".lock"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
}

/* Opens the folder as another user; the exit code is the status. */
static int open_as_nobody(const char *part)
{
    int result;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
            _exit(1);
        dt_status status = open_at(dir);
        _exit(status == DT_OK || strstr(dt_error_text(), part) ? (int)status : 2);
    }
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_true(WIFEXITED(result));
    return WEXITSTATUS(result);
}

FOLDER_TEST(other_users)
{
    if (geteuid() != 0)
        skip(); /* needs a second user */
    assert_ok(open_at(dir));
    assert_int_equal(unlink(path_of(".lock")), 0);
    assert_int_equal(open_as_nobody("Permission denied; choose another --out"), DT_ERR_PERMISSION);
    assert_int_equal(chmod(dir, 0777), 0);
    assert_int_equal(open_as_nobody("belongs to another user (uid 0)"), DT_ERR_CREATE);
    assert_int_equal(chmod(dir, 01777), 0);
    assert_int_equal(open_as_nobody(""), DT_OK);
}

/* --- Space --- */

FOLDER_TEST(space)
{
    uint64_t mega = 1000000;
    assert_ok(open_at(dir));
    uint64_t there = dt_file_free_bytes(dir);
    assert_true(there > 0 && there < INT64_MAX);
    assert_ok(dt_run_folder_check_space(dir, 4, 1000));
    assert_int_equal(dt_run_folder_check_space(dir, 4, 5000000 * (mega * mega)), DT_ERR_CREATE);
    assert_text(" free; 4 checkpoints of ");
    assert_int_equal(dt_run_folder_check_space(dir, 4, 2500 * (mega * mega)), DT_ERR_CREATE);
    assert_text(dir);
    assert_text(" free; 4 checkpoints of 2.5 PB need 10 PB; free space, lower checkpoint.keep, "
                "or choose another --out");
    assert_int_equal(dt_run_folder_check_space(dir, 1, 9 * mega * mega * 1000), DT_ERR_CREATE);
    assert_text("; 1 checkpoint of 9.0 PB needs 9.0 PB; ");
}

TEST_MAIN(NULL, NULL)
