/* Small file helpers that loop over short reads and writes and give one clear sentence on failure.
 * Every call that changes the file system goes through here, so that fault injection (fault.h) can
 * count it. */
#ifndef DTRAIN_BASE_FILE_H
#define DTRAIN_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

enum { DT_PATH_MAX = 1024 };

/* The status that fits errno after a failed open/read of an input (66, 77, 71 or 74). */
dt_status dt_file_input_status(int error);
/* strerror(error), or which limit of ulimit has been reached; for a lack of permission also which
 * part of the path it is about, whose that is and its mode. Keeps errno; valid until the next call
 * in this thread. */
const char *dt_file_problem(const char *path, int error);
/* Opens a regular file for reading (FIFOs and devices are refused); its size goes to *bytes. */
dt_status dt_file_open(int *fd, uint64_t *bytes, const char *path);
/* The same, but a link is not followed: DT_ERR_PERMISSION. Of what others may have put there. */
dt_status dt_file_open_own(int *fd, uint64_t *bytes, const char *path);
/* Reads exactly `bytes` at `offset`; a shorter file is DT_ERR_DATA. */
dt_status dt_file_pread(int fd, void *out, size_t bytes, uint64_t offset, const char *path);
dt_status dt_file_write(int fd, const void *data, size_t bytes, const char *path);
/* Writes what a stream of open_memstream(text, bytes) holds and closes it; NULL is DT_ERR_MEMORY.
 */
dt_status dt_file_write_stream(int fd, FILE *stream, char **text, const size_t *bytes,
                               const char *path);
/* Creates a new file for writing; if the name exists, even as a link, the result is DT_ERR_CREATE,
 * without permission DT_ERR_PERMISSION. */
dt_status dt_file_create(int *fd, const char *path);
/* fsync and close; *fd is always -1 afterwards. */
dt_status dt_file_finish(int *fd, const char *path);
/* rename; DT_ERR_CREATE on failure. A folder can only replace an empty folder. Not durable until
 * dt_file_sync_folder is called on the parents. */
dt_status dt_file_rename(const char *from, const char *to);
/* Swaps two names atomically; *done is false if the file system cannot do that. */
dt_status dt_file_exchange(bool *done, const char *a, const char *b);
/* unlink; DT_OK if it does not exist. */
dt_status dt_file_remove(const char *path);
dt_status dt_file_remove_empty(const char *path); /* rmdir; DT_OK if it does not exist */
/* Removes a folder with the files in it (one level), or a single file or link; DT_OK if absent. */
dt_status dt_file_remove_folder(const char *path);
/* The same for `name` in an open folder, whatever has its name by now; `path` is for messages. */
dt_status dt_file_remove_folder_at(int folder, const char *name, const char *path);
/* Reads a whole file into a NUL-terminated block (free()); DT_ERR_DATA if larger than `limit`. */
dt_status dt_file_load(char **text, size_t *bytes, const char *path, size_t limit);
dt_status dt_file_load_own(char **text, size_t *bytes, const char *path, size_t limit);
/* Writes a temporary file, then fsync, rename and fsync of the folder. DT_ERR_CREATE or DT_ERR_IO.
 * What is not a regular file, such as /dev/stdout, is not replaced: DT_ERR_CREATE.
 * A crash can leave the temporary file, ".tmp-*" with a new name every time, in the same folder. */
dt_status dt_file_save(const char *path, const void *data, size_t bytes);
/* The same in steps, for a file that is written with dt_file_write(fd, ..., path) in between. The
 * end removes the temporary file unless `status` is DT_OK; it accepts a file that was not begun,
 * {.fd = -1}, and returns `status` or its own failure. */
struct dt_new_file {
    char path[DT_PATH_MAX], temporary[DT_PATH_MAX];
    int fd;
};
dt_status dt_file_begin(struct dt_new_file *file, const char *path);
dt_status dt_file_end(struct dt_new_file *file, dt_status status);
/* Whether dt_file_save(path) could begin: to find out before long work whose result goes there; "-"
 * is standard output. */
dt_status dt_file_check_new(const char *path);
/* Makes `path` a symbolic link to `target`, in place of what was there. */
dt_status dt_file_link(const char *path, const char *target);
/* Makes `to` the same file as `from` (a hard link), or a copy where links are not possible, in
 * place of what was there; durable, like dt_file_save. */
dt_status dt_file_publish(const char *from, const char *to);
/* Removes what a crash in dt_file_save(path) left behind. */
void dt_file_clean(const char *path);
/* Opens a folder. A link is followed only if it belongs to the owner of the folder that it leads
 * to, otherwise DT_ERR_PERMISSION: one user cannot make another change what is not theirs. */
dt_status dt_file_open_folder(int *fd, const char *path);
/* mkdir -p; the new folders are durable. */
dt_status dt_file_make_folder(const char *path);
/* The last part of the path only: its parent must exist. */
dt_status dt_file_add_folder(const char *path);
dt_status dt_file_sync_folder(const char *path);
/* snprintf of a path into out[DT_PATH_MAX]; DT_ERR_USAGE if it is too long. */
dt_status dt_file_path(char *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The part of a path after the last slash. */
const char *dt_file_base(const char *path);
bool dt_file_exists(const char *path);
bool dt_file_is_folder(const char *path);
/* The path of a folder, or of the folder of what else it names, into out[DT_PATH_MAX]. */
dt_status dt_file_folder(char *out, const char *path);
/* Shortens a path to its deepest part that exists; "." if no part of a relative one does. */
void dt_file_existing(char path[DT_PATH_MAX]);
/* Bytes still free in the file system of `path`; INT64_MAX if unknown. */
uint64_t dt_file_free_bytes(const char *path);

#endif
