/* Small file helpers that loop over short reads and writes and give one clear sentence on failure.
 * Every call that changes the file system goes through here, so that the fault switches (fault.h)
 * can count it. */
#ifndef DTRAIN_BASE_FILE_H
#define DTRAIN_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { DT_PATH_MAX = 1024 };

/* The status that fits errno after a failed open/read of an input (66, 77, 71 or 74). */
dt_status dt_file_input_status(int error);
/* Opens a regular file for reading (FIFOs and devices are refused); its size goes to *bytes. */
dt_status dt_file_open(int *fd, uint64_t *bytes, const char *path);
/* Reads exactly `bytes` at `offset`; a shorter file is DT_ERR_DATA. */
dt_status dt_file_pread(int fd, void *out, size_t bytes, uint64_t offset, const char *path);
dt_status dt_file_write(int fd, const void *data, size_t bytes, const char *path);
/* A new file for writing; one that is there already, even as a link, is DT_ERR_CREATE. */
dt_status dt_file_create(int *fd, const char *path);
/* fsync and close; *fd is -1 afterwards in any case. */
dt_status dt_file_finish(int *fd, const char *path);
/* DT_ERR_CREATE; of folders only if `to` is absent or an empty folder. Not durable before
 * dt_file_sync_folder of the parents. */
dt_status dt_file_rename(const char *from, const char *to);
/* The two swap their names in one step; *done is false where the file system cannot do that. */
dt_status dt_file_exchange(bool *done, const char *a, const char *b);
/* unlink; absent is DT_OK. */
dt_status dt_file_remove(const char *path);
/* A folder and the files in it, one level, or a single file or link; absent is DT_OK. */
dt_status dt_file_remove_folder(const char *path);
/* Whole file into a NUL-terminated block (free()); larger than `limit` is DT_ERR_DATA. */
dt_status dt_file_load(char **text, size_t *bytes, const char *path, size_t limit);
/* Writes a temporary name, fsync, rename, fsync of the folder. DT_ERR_CREATE or DT_ERR_IO. A crash
 * may leave the temporary file: ".tmp-*" in the same folder, a new name every time. */
dt_status dt_file_save(const char *path, const void *data, size_t bytes);
/* Removes what a crash in dt_file_save(path) has left. */
void dt_file_clean(const char *path);
/* mkdir -p; what it makes is durable. */
dt_status dt_file_make_folder(const char *path);
dt_status dt_file_sync_folder(const char *path);
/* snprintf of a path into out[DT_PATH_MAX]; too long is DT_ERR_USAGE. */
dt_status dt_file_path(char *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What follows the last slash of a path. */
const char *dt_file_base(const char *path);
bool dt_file_exists(const char *path);
/* Bytes that can still be written in the file system of `path`; INT64_MAX if unknown. */
uint64_t dt_file_free_bytes(const char *path);

#endif
