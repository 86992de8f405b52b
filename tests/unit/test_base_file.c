/* Files, also while their calls fail, are cut short or end the process; memory, durations and the
 * error trail. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "test_dir.h"
#include "test_status.h"

static int each_temporary(void (*visit)(const char *path))
{
    int n = 0;
    char path[DT_PATH_MAX];
    DIR *entries = opendir(test_dir);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (strncmp(entry->d_name, ".tmp-", 5) != 0)
            continue;
        assert_int_equal(dt_file_path(path, "%s/%s", test_dir, entry->d_name), DT_OK);
        n++;
        if (visit)
            visit(path);
    }
    closedir(entries);
    return n;
}

static int n_temporaries(void)
{
    return each_temporary(NULL);
}

static void remove_temporary(const char *path)
{
    assert_int_equal(dt_file_remove_folder(path), DT_OK); /* takes files too */
}

static void expect_text(const char *path, const char *expected)
{
    char *text;
    size_t bytes;
    assert_int_equal(dt_file_load(&text, &bytes, path, 1 << 20), DT_OK);
    assert_string_equal(text, expected);
    free(text);
}

TEST(save_and_load)
{
    const char *path = at("a.txt");
    char *text = NULL;
    size_t bytes = 0;
    assert_int_equal(dt_file_save(path, "hello", 5), DT_OK);
    assert_int_equal(dt_file_save(path, "hello again", 11), DT_OK);
    assert_int_equal(dt_file_load(&text, &bytes, path, 11), DT_OK);
    assert_int_equal(bytes, 11);
    assert_string_equal(text, "hello again");
    free(text);
    assert_int_equal(n_temporaries(), 0);
    assert_int_equal(dt_file_load(&text, &bytes, path, 10), DT_ERR_DATA);
}

/* The old file stays until the new one is complete. */
TEST(save_in_steps)
{
    const char *path = at("steps.txt");
    struct dt_new_file file, none = {.fd = -1};
    assert_int_equal(dt_file_save(path, "old", 3), DT_OK);
    assert_int_equal(dt_file_begin(&file, path), DT_OK);
    assert_int_equal(dt_file_write(file.fd, "new", 3, path), DT_OK);
    assert_int_equal(dt_file_end(&file, DT_ERR_DATA), DT_ERR_DATA);
    expect_text(path, "old");
    assert_int_equal(dt_file_begin(&file, path), DT_OK);
    for (int i = 0; i < 2; i++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *stream = open_memstream(&text, &bytes);
        fprintf(stream, "line %d\n", i);
        assert_int_equal(dt_file_write_stream(file.fd, stream, &text, &bytes, path), DT_OK);
    }
    expect_text(path, "old");
    assert_int_equal(dt_file_end(&file, DT_OK), DT_OK);
    expect_text(path, "line 0\nline 1\n");
    assert_int_equal(n_temporaries(), 0);
    assert_int_equal(dt_file_end(&file, DT_OK), DT_OK); /* nothing is left to do */
    assert_int_equal(dt_file_end(&none, DT_ERR_DATA), DT_ERR_DATA);
}

TEST(refused_inputs)
{
    const char *path = at("absent");
    int fd;
    uint64_t bytes;
    assert_error(dt_file_open(&fd, &bytes, path), DT_ERR_NO_INPUT, path);
    assert_int_equal(dt_file_open(&fd, &bytes, test_dir), DT_ERR_NO_INPUT);
    path = at("fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_error(dt_file_open(&fd, &bytes, path), DT_ERR_NO_INPUT, "not a regular file");
}

TEST(early_end_is_damage)
{
    const char *path = at("short");
    char buffer[16];
    int fd;
    uint64_t bytes;
    assert_int_equal(dt_file_save(path, "12345", 5), DT_OK);
    assert_int_equal(dt_file_open(&fd, &bytes, path), DT_OK);
    assert_int_equal(bytes, 5);
    assert_int_equal(dt_file_pread(fd, buffer, 3, 2, path), DT_OK);
    assert_memory_equal(buffer, "345", 3);
    assert_int_equal(dt_file_pread(fd, buffer, 4, 2, path), DT_ERR_DATA);
    close(fd);
}

TEST(outputs_that_cannot_be)
{
    const char *path = at("a.txt/b");
    char out[DT_PATH_MAX];
    assert_int_equal(dt_file_make_folder(path), DT_ERR_CREATE);
    assert_int_equal(dt_file_save(path, "x", 1), DT_ERR_CREATE);
    path = at("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(dt_file_save(path, "x", 1), DT_ERR_CREATE); /* as for /dev/stdout */
    assert_int_equal(unlink(path), 0);
    path = at("x/y/z");
    assert_int_equal(dt_file_make_folder(path), DT_OK);
    assert_int_equal(dt_file_make_folder(path), DT_OK);
    assert_int_equal(dt_file_path(out, "%s/%2000s", test_dir, "long"), DT_ERR_USAGE);
}

TEST(create_and_finish)
{
    const char *path = at("created");
    const char *link = at("link");
    int fd = -1;
    assert_int_equal(dt_file_create(&fd, path), DT_OK);
    assert_int_equal(dt_file_write(fd, "text", 4, path), DT_OK);
    assert_int_equal(dt_file_finish(&fd, path), DT_OK);
    assert_int_equal(fd, -1);
    expect_text(path, "text");
    assert_int_equal(dt_file_create(&fd, path), DT_ERR_CREATE);
    assert_int_equal(fd, -1);
    assert_int_equal(symlink("nowhere", link), 0);
    assert_int_equal(dt_file_create(&fd, link), DT_ERR_CREATE);
    assert_int_equal(dt_file_remove(link), DT_OK);
    assert_int_equal(dt_file_remove(link), DT_OK);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(dt_file_write(fd, "x", 1, path), DT_ERR_IO);
    close(fd);
    assert_int_equal(dt_file_remove(test_dir), DT_ERR_IO); /* a folder */
    assert_int_equal(dt_file_remove(path), DT_OK);
    assert_false(dt_file_exists(path));
}

TEST(folders_move_and_go)
{
    const char *a = at("one"), *b = at("two"), *file = at("two/file"), *link = at("to-two");
    assert_int_equal(dt_file_make_folder(a), DT_OK);
    assert_int_equal(dt_file_make_folder(b), DT_OK);
    assert_int_equal(dt_file_save(at("one/file"), "x", 1), DT_OK);
    assert_int_equal(dt_file_rename(b, a), DT_ERR_CREATE); /* not empty */
    assert_int_equal(dt_file_rename(a, b), DT_OK);         /* empty */
    assert_false(dt_file_exists(a));
    expect_text(file, "x");

    assert_int_equal(symlink("two", link), 0); /* what a link points to stays */
    assert_int_equal(dt_file_remove_folder(link), DT_OK);
    expect_text(file, "x");
    assert_int_equal(dt_file_remove_folder(link), DT_OK);
    assert_int_equal(dt_file_remove_folder(b), DT_OK);
    assert_false(dt_file_exists(b));
    assert_int_equal(dt_file_remove_folder(b), DT_OK);

    file = at("two/deeper");
    assert_int_equal(dt_file_make_folder(file), DT_OK);
    assert_int_equal(dt_file_remove_folder(b), DT_ERR_IO);
    assert_int_equal(dt_file_remove_folder(file), DT_OK);
    assert_int_equal(dt_file_remove_folder(b), DT_OK);
}

static void set_fault(const char *kind, int call, const char *more)
{
    char list[64];
    snprintf(list, sizeof list, "%s@io:%d%s", kind, call, more);
    setenv("DTRAIN_FAULT", list, 1);
    assert_int_equal(dt_fault_init(0), DT_OK);
}

static void no_fault(void)
{
    unsetenv("DTRAIN_FAULT");
    assert_int_equal(dt_fault_init(0), DT_OK);
}

/* Each call of a save fails: the old content is there, or the new one if only the last sync did not
 * work, and but for a disk that stays dead nothing is left over. */
TEST(every_call_of_a_save_fails)
{
    static const char *const kinds[] = {"enospc", "eio"}, *const mores[] = {"", "+"};
    const char *path = at("saved");
    for (int k = 0; k < 4; k++) {
        dt_status status = DT_ERR_IO;
        int call = 0;
        while (status != DT_OK) {
            assert_int_equal(dt_file_save(path, "old", 3), DT_OK);
            set_fault(kinds[k / 2], ++call, mores[k % 2]);
            status = dt_file_save(path, "newer", 5);
            no_fault();
            expect_text(path, call >= 6 ? "newer" : "old");
            assert_true(status == DT_OK || strstr(dt_error_text(), test_dir));
            assert_true(k % 2 || n_temporaries() == 0);
            each_temporary(remove_temporary);
        }
        /* create, write, fsync, close, rename, fsync of the folder */
        assert_int_equal(call, 6 + 1);
    }
}

TEST(every_call_of_making_folders_fails)
{
    dt_status status = DT_ERR_IO;
    int call = 0;
    while (status != DT_OK) {
        set_fault("enospc", ++call, "");
        status = dt_file_make_folder(at("m/n"));
        no_fault();
        assert_int_equal(dt_file_remove_folder(at("m/n")), DT_OK);
        assert_int_equal(dt_file_remove_folder(at("m")), DT_OK);
    }
    assert_int_equal(call, 4 + 1); /* mkdir and fsync of the parent, twice */
}

static int n_half, n_all;

static void count_bytes(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    n_half += info.st_size == 5 / 2;
    n_all += info.st_size == 5;
}

/* SIGKILL in each call of a save. A later save is not disturbed by what is left. */
TEST(every_call_of_a_save_crashes)
{
    const char *path = at("crashed");
    int status = SIGKILL, call = 0;
    while (status == SIGKILL) {
        assert_int_equal(dt_file_save(path, "old", 3), DT_OK);
        call++;
        const pid_t child = fork();
        if (child == 0) {
            set_fault("crash", call, "");
            _exit(dt_file_save(path, "newer", 5) == DT_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        expect_text(path, call >= 6 ? "newer" : "old");
    }
    assert_int_equal(status, 0);
    assert_int_equal(call, 6 + 1);

    /* Killed in write, fsync, close or rename: with half of the bytes, then all. */
    assert_int_equal(n_temporaries(), 4);
    n_half = n_all = 0;
    each_temporary(count_bytes);
    assert_int_equal(n_half, 1);
    assert_int_equal(n_all, 3);
    each_temporary(remove_temporary);
    assert_int_equal(n_temporaries(), 0);
}

TEST(clean)
{
    static const struct {
        const char *name;
        bool goes;
    } files[] = {{".tmp-a.txt-0123456789abcdef", true},
                 {".tmp-a.txt-0123456789abcde", false},
                 {".tmp-b.txt-0123456789abcdef", false},
                 {".tmp-a.txt-0123456789abcdeg", false},
                 {".tmp-mynotes", false},
                 {"a.txt", false}};
    for (size_t i = 0; i < DT_COUNT(files); i++)
        assert_int_equal(dt_file_save(at(files[i].name), "x", 1), DT_OK);
    dt_file_clean(at("a.txt"));
    for (size_t i = 0; i < DT_COUNT(files); i++) {
        assert_int_equal(dt_file_exists(at(files[i].name)), !files[i].goes);
        assert_int_equal(dt_file_remove(at(files[i].name)), DT_OK);
    }
}

TEST(limit_of_file_size)
{
    static char data[1000];
    const char *path = at("limited");
    int status;
    assert_int_equal(dt_file_save(path, "old", 3), DT_OK);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {.rlim_cur = 100, .rlim_max = 100};
        setrlimit(RLIMIT_FSIZE, &limit);
        signal(SIGXFSZ, SIG_IGN);
        const bool failed = dt_file_save(path, data, sizeof data) == DT_ERR_IO;
        _exit(failed && strstr(dt_error_text(), "ulimit -f") && n_temporaries() == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect_text(path, "old");
}

/* Two processes save the same file over and over; a reader always finds one of the two. */
TEST(two_processes_save)
{
    enum { BYTES = 20000, N_SAVES = 100 };
    const char *path = at("shared");
    char data[BYTES], *text;
    pid_t children[2];
    size_t bytes;
    int n_alive = 2, status;
    assert_int_equal(dt_file_save(path, memset(data, 'a', BYTES), BYTES), DT_OK);
    for (int i = 0; i < 2; i++)
        if ((children[i] = fork()) == 0) {
            dt_status result = DT_OK;
            memset(data, 'a' + i, BYTES);
            for (int k = 0; k < N_SAVES && result == DT_OK; k++)
                result = dt_file_save(path, data, BYTES);
            _exit(result);
        }
    while (n_alive > 0) {
        assert_int_equal(dt_file_load(&text, &bytes, path, BYTES), DT_OK);
        assert_int_equal(bytes, BYTES);
        assert_memory_equal(text, memset(data, text[0], BYTES), BYTES);
        free(text);
        if (waitpid(-1, &status, WNOHANG) > 0) {
            assert_int_equal(status, 0);
            n_alive--;
        }
    }
    assert_int_equal(n_temporaries(), 0);
}

static void on_alarm(int number)
{
    (void)number;
}

/* A timer interrupts writes to a pipe that is read slowly: they return early or with EINTR. */
TEST(interrupted_writes_go_on)
{
    enum { BYTES = 1 << 22 };
    const struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */
    const struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    static unsigned char data[BYTES], got[BYTES];
    int ends[2], status;
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        size_t n_got = 0;
        close(ends[1]);
        for (ssize_t n; (n = read(ends[0], got + n_got, BYTES - n_got)) > 0; n_got += (size_t)n)
            usleep(200);
        _exit(n_got == BYTES && memcmp(got, data, BYTES) == 0 ? 0 : 1);
    }
    close(ends[0]);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    assert_int_equal(dt_file_write(ends[1], data, BYTES, "pipe"), DT_OK);
    setitimer(ITIMER_REAL, &never, NULL);
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static dt_status raise_error(void)
{
    DT_FAIL(DT_ERR_IO, "disk %d is gone", 7);
}

static dt_status pass_error(void)
{
    DT_TRY(raise_error());
    return DT_OK;
}

TEST(error_trail)
{
    assert_int_equal(pass_error(), DT_ERR_IO);
    assert_string_equal(dt_error_text(), "disk 7 is gone");
    assert_non_null(strstr(dt_error_trail(), "pass_error"));
    DT_ERROR(DT_ERR_DATA, "again: %s", dt_error_text()); /* an argument may be the old text */
    assert_string_equal(dt_error_text(), "again: disk 7 is gone");
    dt_error_clear();
    assert_string_equal(dt_error_text(), "");
    assert_string_equal(dt_status_name(DT_ERR_CONFIG), "CONFIG");
}

TEST(memory)
{
    int *numbers = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(DT_GROW(numbers, capacity, i, "numbers"), DT_OK);
        assert_int_equal(numbers[i], 0);
        numbers[i] = (int)i;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(numbers[i], i);
    free(numbers);
    volatile size_t huge = SIZE_MAX / 2;
    assert_null(dt_mem_alloc(huge, 16, "too much"));
    assert_non_null(strstr(dt_error_text(), "too much"));
}

TEST(durations)
{
    char text[32];
    assert_string_equal(dt_clock_format(text, sizeof(text), 4.2), "4 s");
    assert_string_equal(dt_clock_format(text, sizeof(text), 185), "3 min 05 s");
    assert_string_equal(dt_clock_format(text, sizeof(text), 7620), "2 h 07 min");
    assert_string_equal(dt_clock_format(text, sizeof(text), 97300), "1 d 3 h");
}

TEST_MAIN(make_test_dir, remove_test_dir)
