/* The run folder as a whole: who may work in it, which run it belongs to, and how the last one
 * ended. Rank 0 only.
 *
 *   .lock          flock by rank 0 for as long as it lives, so no stale lock is possible; its
 *                  text (host, pid, job, start) is for the error message
 *   RUN            {"run_id", "incarnation", "state": "running" | "ended", "exit_code", "step",
 *                  "host", "pid", "memory_group", "memory_kills", "check"}; a resumed
 *                  run keeps the id, the incarnation grows with every start. A writer that
 *                  finds an incarnation other than its own must not commit anything.
 *   heartbeat.bin  beats of the watchdogs (watchdog.h)
 *
 * Where the file system has no flock (ENOSYS, ENOTSUP, ENOLCK), a heartbeat.bin younger than 60 s
 * means that the folder is in use, unless RUN says "ended".
 *
 * A damaged RUN causes a warning: the run continues under a new id and with an incarnation above
 * all earlier ones. */
#ifndef DTRAIN_CHECKPOINT_RUN_FOLDER_H
#define DTRAIN_CHECKPOINT_RUN_FOLDER_H

#include "base/file.h"
#include "checkpoint/manifest.h"

struct dt_run_folder {
    char path[DT_PATH_MAX];
    int lock_fd; /* -1 = not locked */
    bool is_new; /* made by open, and no run has begun in it */
    char run_id[DT_ID_MAX];
    int64_t incarnation;
    /* The previous run. */
    bool was_running;  /* it did not end by itself */
    int64_t last_step; /* it had reached at least this step; -1 = unknown */
};

/* Creates the folder if needed and takes the lock. DT_ERR_IN_USE, naming the holder and since when;
 * DT_ERR_CREATE or DT_ERR_PERMISSION if the folder cannot be written; DT_ERR_CREATE if it belongs
 * to another user and is world-writable (without sticky bit); DT_ERR_PERMISSION if a folder in it
 * is a link of one user to a folder of another. Reads RUN, warns if the previous run was probably
 * killed for memory; changes nothing else. *folder may be closed in any case. */
dt_status dt_run_folder_open(struct dt_run_folder *folder, const char *path);
/* Begins a new incarnation: RUN says "running". With `fresh` it gets a new run id. */
dt_status dt_run_folder_begin(struct dt_run_folder *folder, bool fresh);
struct dt_run_state {
    int64_t incarnation;
    bool is_running; /* says RUN; exit_code is that of a run that has ended */
    int exit_code;
};
/* False if there is no intact RUN. */
bool dt_run_folder_state(struct dt_run_state *out, const char *path);
/* Whether the folder has been removed, renamed or replaced since it was opened: its .lock is no
 * longer the one that this process holds, so another job may begin there. False if not open. */
bool dt_run_folder_is_lost(const struct dt_run_folder *folder);
/* DT_ERR_IO if the folder is lost, DT_ERR_IN_USE if another incarnation has begun. Any thread
 * (may_commit of the checkpoints; context = the folder). */
dt_status dt_run_folder_check(void *folder);
/* RUN says "ended". Failing to write it is only a warning. */
void dt_run_folder_end(struct dt_run_folder *folder, dt_status status, int64_t step);
/* Releases the lock. If open has made the folder and no run has begun in it, it is removed, unless
 * there is something in it that is not of the start. */
void dt_run_folder_close(struct dt_run_folder *folder);

/* DT_ERR_CREATE if the file system of `path` has no room for `n` checkpoints of `bytes`; the text
 * has all figures. */
dt_status dt_run_folder_check_space(const char *path, int n, uint64_t bytes);

/* dt_run_folder_open with another flock(2): tests emulate a file system that has none. */
dt_status dt_run_folder_open_by(struct dt_run_folder *folder, const char *path,
                                int (*lock)(int fd, int operation));

#endif
