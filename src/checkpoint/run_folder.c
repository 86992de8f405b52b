/* The lock of the run folder and the file RUN. The kernel releases the lock with the process; where
 * locks are not supported, the heartbeats of the watchdog and the incarnation in RUN keep two jobs
 * apart. */
#include "checkpoint/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/alive.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/host.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/member.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "watch/heartbeat.h"

enum { HOLDER_MAX = 512, ID_BYTES = 16 };

/* Contents of RUN. */
struct record {
    char run_id[DT_ID_MAX];
    int64_t incarnation;
    int is_running;
    int exit_code; /* of a run that has ended, and its steps */
    int64_t step;
    char host[DT_HOST_MAX]; /* of rank 0 */
    int64_t pid;
    struct dt_memory_kills kills; /* at its start; group "" = unknown */
    char check[DT_HASH_DIGITS + 1];
};
#define ROW(...) DT_MEMBER(struct record, __VA_ARGS__)
static const char *const states[] = {"ended", "running", NULL};
static const struct dt_member members[] = {
    ROW(TEXT, run_id, "run_id"),
    ROW(INT64, incarnation, "incarnation", .min = 1),
    ROW(CHOICE, is_running, "state", .choices = states),
    ROW(INT, exit_code, "exit_code", .max = 255),
    ROW(INT64, step, "step", .min = -1),
    ROW(TEXT, host, "host"),
    ROW(INT64, pid, "pid"),
    ROW(TEXT, kills.group, "memory_group"),
    ROW(INT64, kills.n, "memory_kills"),
    ROW(TEXT, check, "check"), /* the last */
};

/* --- Who holds the lock --- */

/* As in "job 8123 on node01, process 4411, since 2026-01-31 10:02". */
static dt_status write_holder(const struct dt_run_folder *folder, const char *path)
{
    static const char *const names[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"};
    char text[HOLDER_MAX], host[DT_HOST_MAX], since[32] = "?";
    const char *job = NULL;
    time_t now = time(NULL);
    struct tm local;
    for (size_t i = 0; i < DT_COUNT(names) && !(job && job[0]); i++)
        job = getenv(names[i]);
    bool has_job = job && job[0];
    dt_host_name(host);
    if (localtime_r(&now, &local))
        strftime(since, sizeof since, "%Y-%m-%d %H:%M", &local);
    int n = snprintf(text, sizeof text, "%s%.64s on %s, process %d, since %s\n",
                     has_job ? "job " : "a job", has_job ? job : "", host, (int)getpid(), since);
    if (ftruncate(folder->lock_fd, 0) != 0)
        DT_FAIL(DT_ERR_CREATE, "cannot write %s: %s", path, strerror(errno));
    DT_TRY(dt_file_write(folder->lock_fd, text, (size_t)n, path));
    return DT_OK;
}

static dt_status refuse_in_use(const struct dt_run_folder *folder)
{
    char text[HOLDER_MAX] = "";
    ssize_t n = pread(folder->lock_fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    dt_utf8_escape(text);
    DT_FAIL(DT_ERR_IN_USE, "run folder %s is in use by %s; wait for it, or choose another --out",
            folder->path, text[0] ? text : "another job");
}

/* --- The lock --- */

static dt_status refuse_path(const char *path, int error)
{
    DT_FAIL(error == EACCES || error == EPERM ? DT_ERR_PERMISSION : DT_ERR_CREATE,
            "cannot create %s: %s; choose another --out", path, strerror(error));
}

static dt_status open_lock(struct dt_run_folder *folder, const char *path)
{
    struct stat info;
    dt_status status = DT_OK;
    int dir_fd = open(folder->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return refuse_path(folder->path, errno);
    if (fstat(dir_fd, &info) != 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_IO, "cannot inspect %s: %s", folder->path, strerror(errno)));
    if (info.st_uid != geteuid() && (info.st_mode & S_IWOTH) && !(info.st_mode & S_ISVTX))
        DT_TRY_OUT(DT_ERROR(DT_ERR_CREATE,
                            "run folder %s belongs to another user (uid %u) and is "
                            "world-writable; choose another --out",
                            folder->path, (unsigned)info.st_uid));
    folder->lock_fd = openat(dir_fd, ".lock", O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (folder->lock_fd < 0)
        DT_TRY_OUT(refuse_path(path, errno));
    if (fstat(folder->lock_fd, &info) != 0 || !S_ISREG(info.st_mode))
        DT_TRY_OUT(DT_ERROR(DT_ERR_CREATE, "%s is not a regular file; remove it", path));
out:
    close(dir_fd);
    return status;
}

/* As root in the folder of another user, a link of theirs could lead anywhere. */
static dt_status check_links(const struct dt_run_folder *folder)
{
    static const char *const names[] = {"checkpoints", "index", "logs", "tensorboard"};
    char path[DT_PATH_MAX];
    for (size_t i = 0; i < DT_COUNT(names); i++) {
        int fd;
        DT_TRY(dt_file_path(path, "%s/%s", folder->path, names[i]));
        dt_status status = dt_file_open_folder(&fd, path);
        if (status == DT_ERR_PERMISSION)
            return dt_error_pass(status, __func__, __FILE__, __LINE__);
        if (status == DT_OK)
            close(fd);
    }
    dt_error_clear();
    return DT_OK;
}

/* *locked is false if the file system does not support locks. */
static dt_status take_lock(struct dt_run_folder *folder, const char *path,
                           int (*lock)(int fd, int operation), bool *locked)
{
    int error, n_tries = 0;
    do {
        error = lock(folder->lock_fd, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
        /* The holder may still be writing its name, or be dtrain runs, which lets go at once. */
        if (error == EWOULDBLOCK && n_tries == 0)
            dt_clock_sleep(0.05);
    } while (error == EINTR || (error == EWOULDBLOCK && n_tries++ == 0));
    *locked = error == 0;
    if (error == EWOULDBLOCK)
        return refuse_in_use(folder);
    if (error != 0 && error != ENOSYS && error != ENOTSUP && error != ENOLCK)
        DT_FAIL(DT_ERR_CREATE, "cannot lock %s: %s; choose another --out", path, strerror(error));
    return DT_OK;
}

static dt_status check_lease(const struct dt_run_folder *folder)
{
    char path[DT_PATH_MAX];
    struct stat beat, now;
    DT_TRY(dt_heartbeat_path(path, folder->path));
    if (stat(path, &beat) != 0)
        return DT_OK;
    /* A file server has its own clock, so both times compared come from it. */
    if (futimens(folder->lock_fd, NULL) != 0 || fstat(folder->lock_fd, &now) != 0)
        DT_FAIL(DT_ERR_CREATE, "cannot write %s/.lock: %s", folder->path, strerror(errno));
    if (now.st_mtime - beat.st_mtime < DT_LEASE_S)
        return refuse_in_use(folder);
    return DT_OK;
}

/* --- The text of RUN: JSON whose last member is a checksum of the record as it is printed without
 * one, so that damage is detected and white space does not matter --- */

static dt_status print_record(struct dt_jsonw *w, const struct record *record, bool with_check)
{
    *w = (struct dt_jsonw){.pretty = true};
    dt_jsonw_begin(w, NULL, '{');
    dt_members_write(w, members, DT_COUNT(members) - !with_check, record);
    dt_jsonw_close(w, '}');
    return dt_jsonw_end(w);
}

static dt_status compute_check(char check[DT_HASH_DIGITS + 1], const struct record *record)
{
    struct dt_jsonw w;
    dt_status status = print_record(&w, record, false);
    if (status == DT_OK)
        dt_hash_write(check, XXH3_64bits(w.text, w.bytes));
    dt_jsonw_reset(&w);
    return status;
}

static dt_status load_record(struct record *record, const char *path)
{
    char expected[DT_HASH_DIGITS + 1];
    struct dt_json_doc *doc;
    *record = (struct record){0};
    DT_TRY(dt_json_load(&doc, path, NULL));
    bool good = dt_members_read(record, members, DT_COUNT(members), dt_json_root(doc));
    dt_json_destroy(doc);
    if (good)
        DT_TRY(compute_check(expected, record));
    if (!good || strcmp(record->check, expected) != 0)
        DT_FAIL(DT_ERR_DATA, "%s is damaged: its contents are not what was written", path);
    return DT_OK;
}

/* --- RUN and this run --- */

static dt_status record_path(char path[DT_PATH_MAX], const struct dt_run_folder *folder)
{
    return dt_file_path(path, "%s/RUN", folder->path);
}

/* The record of the previous run; all zero but is_running if missing or damaged. */
static dt_status read_record(struct dt_run_folder *folder, struct record *record)
{
    char path[DT_PATH_MAX];
    DT_TRY(record_path(path, folder));
    dt_status status = load_record(record, path);
    if (status == DT_OK) {
        memcpy(folder->run_id, record->run_id, sizeof folder->run_id);
        folder->incarnation = record->incarnation;
        return DT_OK;
    }
    *record = (struct record){.is_running = true};
    bool is_missing = status == DT_ERR_NO_INPUT;
    if (!is_missing)
        dt_log(DT_LOG_WARNING, "%s; the run continues under a new id", dt_error_text());
    dt_error_clear();
    /* An unknown number of starts came before: the time in seconds is larger. */
    bool has_beats = dt_heartbeat_path(path, folder->path) == DT_OK && dt_file_exists(path);
    if (!is_missing || has_beats)
        folder->incarnation = (int64_t)time(NULL);
    return DT_OK;
}

static void warn_of_kills(const struct record *record)
{
    struct dt_memory_kills now;
    char limit[32];
    if (!record->is_running || !dt_memory_read_kills(&now, "") ||
        strcmp(now.group, record->kills.group) != 0 || now.n <= record->kills.n)
        return;
    uint64_t bytes = dt_memory_limit("");
    dt_log(DT_LOG_WARNING,
           "the previous run was probably killed for memory (limit %s); lower data.workers, "
           "data.prefetch or train.micro_batch_size",
           bytes < INT64_MAX ? dt_memory_format(limit, sizeof limit, bytes) : "of the machine");
}

/* The lock is taken before RUN is read, because the job that holds it may be writing RUN. Links are
 * checked before anything follows them. Without locks a young heartbeat counts as one, unless RUN
 * says that the run has ended. The holder's text comes last, so a job that fails here does not
 * claim the folder. */
dt_status dt_run_folder_open_by(struct dt_run_folder *folder, const char *path,
                                int (*lock)(int fd, int operation))
{
    char lock_path[DT_PATH_MAX];
    struct record record;
    bool locked;
    *folder = (struct dt_run_folder){.lock_fd = -1, .last_step = -1};
    DT_TRY(dt_file_path(folder->path, "%s", path));
    DT_TRY(dt_file_path(lock_path, "%s/.lock", path));
    const bool is_new = !dt_file_exists(path);
    DT_TRY(dt_file_make_folder(path));
    DT_TRY(open_lock(folder, lock_path));
    DT_TRY(check_links(folder));
    DT_TRY(take_lock(folder, lock_path, lock, &locked));
    folder->is_new = is_new && locked; /* otherwise somebody else may use it */
    DT_TRY(read_record(folder, &record));
    if (!locked && record.is_running)
        DT_TRY(check_lease(folder));
    folder->was_running = record.incarnation > 0 && record.is_running;
    folder->last_step = record.is_running ? dt_heartbeat_last_step(path) : record.step;
    warn_of_kills(&record);
    return write_holder(folder, lock_path);
}

dt_status dt_run_folder_open(struct dt_run_folder *folder, const char *path)
{
    return dt_run_folder_open_by(folder, path, flock);
}

static dt_status save_record(const struct dt_run_folder *folder, struct record *record)
{
    char path[DT_PATH_MAX];
    struct dt_jsonw w;
    DT_TRY(record_path(path, folder));
    memcpy(record->run_id, folder->run_id, sizeof record->run_id);
    record->incarnation = folder->incarnation;
    record->pid = getpid();
    dt_host_name(record->host);
    if (!dt_memory_read_kills(&record->kills, ""))
        record->kills = (struct dt_memory_kills){0};
    DT_TRY(compute_check(record->check, record));
    dt_status status = print_record(&w, record, true);
    if (status == DT_OK)
        status = dt_file_save(path, w.text, w.bytes);
    dt_jsonw_reset(&w);
    DT_TRY(status);
    return DT_OK;
}

dt_status dt_run_folder_begin(struct dt_run_folder *folder, bool fresh)
{
    static const char *const leftovers[] = {"RUN",           "config.json", "classes.json",
                                            "confusion.svg", "errors.csv",  "errors.jpg"};
    struct record record = {.is_running = true, .step = -1};
    unsigned char id[ID_BYTES];
    char path[DT_PATH_MAX];
    if (fresh || !folder->run_id[0]) {
        if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
            DT_FAIL(DT_ERR_IO, "cannot get random numbers for the id of the run: %s",
                    strerror(errno));
        for (size_t i = 0; i < sizeof id; i++)
            snprintf(folder->run_id + 2 * i, 3, "%02x", id[i]);
    }
    folder->incarnation++;
    for (size_t i = 0; i < DT_COUNT(leftovers); i++) {
        DT_TRY(dt_file_path(path, "%s/%s", folder->path, leftovers[i]));
        dt_file_clean(path);
    }
    folder->is_new = false;
    return save_record(folder, &record);
}

bool dt_run_folder_state(struct dt_run_state *out, const char *path)
{
    char file[DT_PATH_MAX];
    struct record record = {0};
    const bool is_there =
        dt_file_path(file, "%s/RUN", path) == DT_OK && load_record(&record, file) == DT_OK;
    dt_error_clear();
    *out = (struct dt_run_state){record.incarnation, record.is_running, record.exit_code};
    return is_there;
}

bool dt_run_folder_is_lost(const struct dt_run_folder *folder)
{
    char path[DT_PATH_MAX];
    struct stat own, there;
    if (folder->lock_fd < 0 || dt_file_path(path, "%s/.lock", folder->path) != DT_OK)
        return false;
    if (fstat(folder->lock_fd, &own) != 0 || stat(path, &there) != 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ESTALE;
    return own.st_ino != there.st_ino || own.st_dev != there.st_dev;
}

/* Only a good record of another run proves that there is one: a new RUN replaces the old one
 * atomically. */
dt_status dt_run_folder_check(void *context)
{
    const struct dt_run_folder *folder = context;
    char path[DT_PATH_MAX];
    struct record record;
    if (dt_run_folder_is_lost(folder))
        DT_FAIL(DT_ERR_IO, "run folder %s has been removed, renamed or replaced", folder->path);
    DT_TRY(record_path(path, folder));
    dt_status status = load_record(&record, path);
    if (status == DT_ERR_NO_INPUT || status == DT_ERR_DATA) {
        dt_log(DT_LOG_WARNING, "%s", dt_error_text());
        dt_error_clear();
        return DT_OK;
    }
    DT_TRY(status);
    if (record.incarnation == folder->incarnation && strcmp(record.run_id, folder->run_id) == 0)
        return DT_OK;
    DT_FAIL(DT_ERR_IN_USE,
            "another job has taken over run folder %s (process %" PRId64
            " on %s, incarnation %" PRId64 "; this one is %" PRId64 "); nothing more is saved",
            folder->path, record.pid, record.host, record.incarnation, folder->incarnation);
}

/* The error that ended the run has not been printed yet, so it is kept. */
void dt_run_folder_end(struct dt_run_folder *folder, dt_status ended, int64_t step)
{
    struct record record = {.exit_code = (int)ended, .step = step};
    dt_error_keep();
    dt_status status = dt_run_folder_check(folder);
    if (status == DT_OK)
        status = save_record(folder, &record);
    if (status != DT_OK)
        dt_log(DT_LOG_WARNING, "cannot record the end of the run: %s", dt_error_text());
    dt_error_restore();
}

/* Once no other rank writes there. The lock goes last: until then no other job begins there. */
static void remove_new(const struct dt_run_folder *folder)
{
    static const char *const names[] = {"index", "heartbeat.bin", ".lock"};
    const double patience_s = 2, until_s = dt_clock_s() + patience_s;
    char path[DT_PATH_MAX];
    dt_error_keep();
    while (!dt_heartbeat_have_left(folder->path) && dt_clock_s() < until_s)
        dt_clock_sleep(0.02);
    for (size_t i = 0; i < DT_COUNT(names); i++)
        if (dt_file_path(path, "%s/%s", folder->path, names[i]) == DT_OK)
            dt_file_remove_folder(path);
    dt_file_remove_empty(folder->path);
    dt_error_restore();
}

void dt_run_folder_close(struct dt_run_folder *folder)
{
    if (folder->is_new)
        remove_new(folder);
    folder->is_new = false;
    if (folder->lock_fd >= 0)
        close(folder->lock_fd);
    folder->lock_fd = -1;
}

/* --- Space --- */

dt_status dt_run_folder_check_space(const char *path, int n, uint64_t bytes)
{
    char there[32], each[32], all[32];
    uint64_t free_bytes = dt_file_free_bytes(path), need;
    if (__builtin_mul_overflow((uint64_t)n, bytes, &need))
        need = UINT64_MAX;
    if (need <= free_bytes)
        return DT_OK;
    DT_FAIL(DT_ERR_CREATE,
            "%s has %s free; %d checkpoint%s of %s need%s %s; free space, lower checkpoint.keep, "
            "or choose another --out",
            path, dt_memory_format(there, sizeof there, free_bytes), n, DT_S(n),
            dt_memory_format(each, sizeof each, bytes), n == 1 ? "s" : "",
            dt_memory_format(all, sizeof all, need));
}
