/* File helpers: short reads and writes are continued, outputs appear under their name only when
 * they are complete and on the disk. */
#include "dtrain/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dtrain/mem.h"

dt_status dt_file_input_status(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return DT_ERR_NO_INPUT;
    case EACCES:
    case EPERM:
        return DT_ERR_PERMISSION;
    case ENOMEM:
        return DT_ERR_MEMORY;
    default:
        return DT_ERR_IO;
    }
}

dt_status dt_file_open(int *fd, uint64_t *bytes, const char *path)
{
    struct stat info;
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO must not block */
    if (*fd < 0)
        DT_FAIL(dt_file_input_status(errno), "cannot open %s: %s", path, strerror(errno));
    int error = fstat(*fd, &info) != 0 ? errno : 0;
    if (error == 0 && S_ISREG(info.st_mode)) {
        *bytes = (uint64_t)info.st_size;
        return DT_OK;
    }
    close(*fd);
    *fd = -1;
    if (error != 0)
        DT_FAIL(DT_ERR_IO, "cannot inspect %s: %s", path, strerror(error));
    DT_FAIL(DT_ERR_NO_INPUT, "%s is not a regular file", path);
}

dt_status dt_file_pread(int fd, void *out, size_t bytes, uint64_t offset, const char *path)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pread(fd, (char *)out + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            DT_FAIL(DT_ERR_IO, "cannot read %s at offset %llu: %s", path,
                    (unsigned long long)(offset + done), strerror(errno));
        if (n == 0)
            DT_FAIL(DT_ERR_DATA, "%s ends at offset %llu, %zu bytes too early", path,
                    (unsigned long long)(offset + done), bytes - done);
        done += (size_t)n;
    }
    return DT_OK;
}

dt_status dt_file_write(int fd, const void *data, size_t bytes, const char *path)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            DT_FAIL(DT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
        done += (size_t)n;
    }
    return DT_OK;
}

dt_status dt_file_load(char **text, size_t *bytes, const char *path, size_t limit)
{
    int fd = -1;
    uint64_t size = 0;
    char *block = NULL;
    dt_status status = DT_OK;
    DT_TRY(dt_file_open(&fd, &size, path));
    if (size > limit)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "%s has %llu bytes; at most %zu are accepted", path,
                            (unsigned long long)size, limit));
    DT_TRY_OUT(DT_NEW(block, (size_t)size + 1));
    DT_TRY_OUT(dt_file_pread(fd, block, (size_t)size, 0, path));
    *text = block;
    *bytes = (size_t)size;
    block = NULL;
out:
    free(block);
    close(fd);
    return status;
}

dt_status dt_file_path(char *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out, DT_PATH_MAX, format, args);
    va_end(args);
    if (n < 0 || n >= DT_PATH_MAX)
        DT_FAIL(DT_ERR_USAGE, "path longer than %d bytes: %.60s...", DT_PATH_MAX - 1, out);
    return DT_OK;
}

dt_status dt_file_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        DT_FAIL(DT_ERR_IO, "cannot open folder %s: %s", path, strerror(errno));
    int error = fsync(fd) != 0 ? errno : 0;
    close(fd);
    if (error != 0 && error != EINVAL && error != ENOTSUP) /* some file systems cannot */
        DT_FAIL(DT_ERR_IO, "cannot sync folder %s: %s", path, strerror(error));
    return DT_OK;
}

static dt_status sync_parent(const char *path)
{
    char parent[DT_PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash)
        return dt_file_sync_folder(".");
    DT_TRY(dt_file_path(parent, "%.*s", (int)(slash - path + 1), path));
    return dt_file_sync_folder(parent);
}

dt_status dt_file_save(const char *path, const void *data, size_t bytes)
{
    char temporary[DT_PATH_MAX];
    dt_status status = DT_OK;
    DT_TRY(dt_file_path(temporary, "%s.tmp", path));
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        DT_FAIL(DT_ERR_CREATE, "cannot create %s: %s", temporary, strerror(errno));
    DT_TRY_OUT(dt_file_write(fd, data, bytes, temporary));
    if (fsync(fd) != 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_IO, "cannot sync %s: %s", temporary, strerror(errno)));
    int closed = close(fd);
    fd = -1;
    if (closed != 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_IO, "cannot close %s: %s", temporary, strerror(errno)));
    if (rename(temporary, path) != 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_CREATE, "cannot rename %s to %s: %s", temporary, path,
                            strerror(errno)));
    DT_TRY_OUT(sync_parent(path));
out:
    if (fd >= 0)
        close(fd);
    if (status != DT_OK)
        unlink(temporary);
    return status;
}

dt_status dt_file_make_folder(const char *path)
{
    char part[DT_PATH_MAX];
    DT_TRY(dt_file_path(part, "%s", path));
    for (char *p = part + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            DT_FAIL(DT_ERR_CREATE, "cannot create folder %s: %s", part, strerror(errno));
        *p = '/';
    }
    struct stat info;
    if (mkdir(part, 0777) != 0 && errno != EEXIST)
        DT_FAIL(DT_ERR_CREATE, "cannot create folder %s: %s", part, strerror(errno));
    if (stat(part, &info) != 0 || !S_ISDIR(info.st_mode))
        DT_FAIL(DT_ERR_CREATE, "cannot use %s as a folder: it is something else", part);
    return DT_OK;
}

bool dt_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}
