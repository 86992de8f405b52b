/* File helpers: short reads and writes are continued; an output gets its name only when it is
 * complete and on disk. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"

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

const char *dt_file_problem(const char *path, int error)
{
    static _Thread_local char out[DT_PATH_MAX + 128];
    char part[DT_PATH_MAX], *slash;
    const int before = errno;
    struct stat info;
    if (error == EFBIG)
        return "it would exceed the file size limit (ulimit -f)";
    if (error == EMFILE)
        return "this process may not open more files (ulimit -n)";
    if (error != EACCES && error != EPERM)
        return strerror(error);
    snprintf(part, sizeof part, "%s", path);
    while (stat(part, &info) != 0 && (slash = strrchr(part, '/')) != NULL && slash != part)
        *slash = '\0';
    if (stat(part, &info) == 0)
        snprintf(out, sizeof out, "%s (%s belongs to uid %u and has mode %04o; this is uid %u)",
                 strerror(error), part, (unsigned)info.st_uid, (unsigned)info.st_mode & 07777,
                 (unsigned)geteuid());
    else
        snprintf(out, sizeof out, "%s", strerror(error));
    errno = before;
    return out;
}

static dt_status open_regular(int *fd, uint64_t *bytes, const char *path, int more)
{
    struct stat info;
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | more); /* a FIFO must not block */
    if (*fd < 0 && errno == ELOOP && more)
        DT_FAIL(DT_ERR_PERMISSION, "%s is a link, which is not followed", path);
    if (*fd < 0)
        DT_FAIL(dt_file_input_status(errno), "cannot open %s: %s", path,
                dt_file_problem(path, errno));
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

dt_status dt_file_open(int *fd, uint64_t *bytes, const char *path)
{
    return open_regular(fd, bytes, path, 0);
}

dt_status dt_file_open_own(int *fd, uint64_t *bytes, const char *path)
{
    return open_regular(fd, bytes, path, O_NOFOLLOW);
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

static dt_status load_regular(char **text, size_t *bytes, const char *path, size_t limit, int more)
{
    int fd = -1;
    uint64_t size = 0;
    char *block = NULL;
    dt_status status = DT_OK;
    DT_TRY(open_regular(&fd, &size, path, more));
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

dt_status dt_file_load(char **text, size_t *bytes, const char *path, size_t limit)
{
    return load_regular(text, bytes, path, limit, 0);
}

dt_status dt_file_load_own(char **text, size_t *bytes, const char *path, size_t limit)
{
    return load_regular(text, bytes, path, limit, O_NOFOLLOW);
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

/* --- Changes to the file system, each counted by fault injection --- */

static bool is_faulty(void)
{
    const int error = dt_fault_io(NULL);
    if (error != 0)
        errno = error;
    return error != 0;
}

/* A call that returns -1 and sets errno, or the fault injected in its place. */
#define CHANGE(call) (is_faulty() ? -1 : (call))

dt_status dt_file_write(int fd, const void *data, size_t bytes, const char *path)
{
    for (size_t done = 0; done < bytes;) {
        bool crash;
        const int error = dt_fault_io(&crash);
        const size_t left = crash ? (bytes - done) / 2 : bytes - done;
        const ssize_t n = error ? -1 : write(fd, (const char *)data + done, left);
        if (crash)
            dt_fault_crash();
        if (error)
            errno = error;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            DT_FAIL(DT_ERR_IO, "cannot write %s: %s", path,
                    n < 0 ? dt_file_problem(path, errno) : "no progress");
        done += (size_t)n;
    }
    return DT_OK;
}

dt_status dt_file_write_stream(int fd, FILE *stream, char **text, const size_t *bytes,
                               const char *path)
{
    const bool complete = stream && fclose(stream) == 0;
    const dt_status status = complete
                                 ? dt_file_write(fd, *text, *bytes, path)
                                 : DT_ERROR(DT_ERR_MEMORY, "out of memory: the text of %s", path);
    free(*text);
    return status;
}

static dt_status output_status(int error)
{
    return error == EACCES || error == EPERM ? DT_ERR_PERMISSION : DT_ERR_CREATE;
}

dt_status dt_file_create(int *fd, const char *path)
{
    do
        *fd = CHANGE(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0)
        DT_FAIL(output_status(errno), "cannot create %s: %s", path, dt_file_problem(path, errno));
    return DT_OK;
}

/* Only EINTR is retried: after any other error the kernel may have dropped the data, and a second
 * fsync would report success. */
static int sync_fd(int fd)
{
    int result;
    do
        result = CHANGE(fsync(fd));
    while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

/* The descriptor is always closed; Linux closes it even if it returns EINTR. */
static int close_written(int fd)
{
    const int fault = dt_fault_io(NULL), error = close(fd) == 0 || errno == EINTR ? 0 : errno;
    return fault ? fault : error;
}

dt_status dt_file_finish(int *fd, const char *path)
{
    const int synced = sync_fd(*fd), closed = close_written(*fd);
    *fd = -1;
    if (synced != 0)
        DT_FAIL(DT_ERR_IO, "cannot sync %s: %s", path, dt_file_problem(path, synced));
    if (closed != 0)
        DT_FAIL(DT_ERR_IO, "cannot close %s: %s", path, dt_file_problem(path, closed));
    return DT_OK;
}

dt_status dt_file_rename(const char *from, const char *to)
{
    if (CHANGE(rename(from, to)) != 0)
        DT_FAIL(DT_ERR_CREATE, "cannot rename %s to %s: %s", from, to, strerror(errno));
    return DT_OK;
}

dt_status dt_file_exchange(bool *done, const char *a, const char *b)
{
    *done = CHANGE(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE)) == 0;
    if (!*done && errno != EINVAL && errno != ENOSYS)
        DT_FAIL(DT_ERR_CREATE, "cannot exchange %s and %s: %s", a, b, strerror(errno));
    return DT_OK;
}

static dt_status remove_at(int at, const char *name, int flags, const char *path)
{
    if (CHANGE(unlinkat(at, name, flags)) != 0 && errno != ENOENT)
        DT_FAIL(DT_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    return DT_OK;
}

dt_status dt_file_remove(const char *path)
{
    return remove_at(AT_FDCWD, path, 0, path);
}

dt_status dt_file_remove_empty(const char *path)
{
    return remove_at(AT_FDCWD, path, AT_REMOVEDIR, path);
}

static dt_status remove_entries(DIR *folder, const char *path)
{
    struct dirent *entry;
    while (errno = 0, (entry = readdir(folder))) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (CHANGE(unlinkat(dirfd(folder), name, 0)) != 0 && errno != ENOENT)
            DT_FAIL(DT_ERR_IO, "cannot remove %s/%s: %s", path, name, strerror(errno));
    }
    if (errno != 0)
        DT_FAIL(DT_ERR_IO, "cannot read folder %s: %s", path, strerror(errno));
    return DT_OK;
}

dt_status dt_file_remove_folder_at(int at, const char *name, const char *path)
{
    /* Links are not followed: their targets are not ours. */
    const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        if (error == ENOENT || error == ENOTDIR)
            return remove_at(at, name, 0, path);
        DT_FAIL(DT_ERR_IO, "cannot open folder %s: %s", path, strerror(error));
    }
    const dt_status status = remove_entries(folder, path);
    closedir(folder);
    DT_TRY(status);
    return remove_at(at, name, AT_REMOVEDIR, path);
}

dt_status dt_file_remove_folder(const char *path)
{
    return dt_file_remove_folder_at(AT_FDCWD, path, path);
}

dt_status dt_file_open_folder(int *fd, const char *path)
{
    struct stat link, there;
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd >= 0)
        return DT_OK;
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        DT_FAIL(dt_file_input_status(errno), "cannot open folder %s: %s", path,
                dt_file_problem(path, errno));
    if (lstat(path, &link) == 0 && fstat(*fd, &there) == 0 && link.st_uid == there.st_uid)
        return DT_OK;
    close(*fd);
    *fd = -1;
    DT_FAIL(DT_ERR_PERMISSION,
            "%s is a link of uid %u to a folder of uid %u, so it is not followed: give both one "
            "owner (chown -h), or choose another folder",
            path, (unsigned)link.st_uid, (unsigned)there.st_uid);
}

dt_status dt_file_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES)
        return DT_OK; /* writable but not readable: only its owner can sync it */
    if (fd < 0)
        DT_FAIL(DT_ERR_IO, "cannot open folder %s: %s", path, strerror(errno));
    const int error = sync_fd(fd);
    close(fd);
    if (error != 0 && error != EINVAL && error != ENOTSUP) /* some file systems do not support it */
        DT_FAIL(DT_ERR_IO, "cannot sync folder %s: %s", path, strerror(error));
    return DT_OK;
}

/* The folder part of `path`, including the slash; "./" if it has none. */
static dt_status parent_of(char *parent, const char *path)
{
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    while (bytes > 0 && path[bytes - 1] != '/')
        bytes--;
    return dt_file_path(parent, "%.*s", bytes ? (int)bytes : 2, bytes ? path : "./");
}

static dt_status sync_parent(const char *path)
{
    char parent[DT_PATH_MAX];
    DT_TRY(parent_of(parent, path));
    return dt_file_sync_folder(parent);
}

/* A unique name in the folder of `path`, which clashes neither with another process that saves the
 * same file now nor with a temporary file left by a crash. */
static dt_status temporary_name(char *out, const char *path)
{
    char parent[DT_PATH_MAX];
    const char *name = dt_file_base(path);
    uint64_t token = 0;
    DT_TRY(parent_of(parent, path));
    if (getrandom(&token, sizeof token, 0) != (ssize_t)sizeof token)
        DT_FAIL(DT_ERR_INTERNAL, "no random numbers for a temporary name: %s", strerror(errno));
    return dt_file_path(out, "%s.tmp-%.150s-%016llx", parent, name, (unsigned long long)token);
}

dt_status dt_file_begin(struct dt_new_file *file, const char *path)
{
    struct stat info;
    file->fd = -1;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        DT_FAIL(DT_ERR_CREATE, "cannot replace %s, which is not a regular file", path);
    DT_TRY(dt_file_path(file->path, "%s", path));
    DT_TRY(temporary_name(file->temporary, path));
    return dt_file_create(&file->fd, file->temporary);
}

/* The order makes the file durable before its name: its bytes are synced and it is closed, only
 * then renamed, and then the folder is synced. A crash in between leaves the old file whole, or the
 * new one. Any failure removes the temporary file and leaves the old one. */
dt_status dt_file_end(struct dt_new_file *file, dt_status status)
{
    if (file->fd < 0)
        return status;
    DT_TRY_OUT(status);
    DT_TRY_OUT(dt_file_finish(&file->fd, file->temporary));
    DT_TRY_OUT(dt_file_rename(file->temporary, file->path));
    return sync_parent(file->path);
out:
    if (file->fd >= 0)
        close_written(file->fd);
    file->fd = -1;
    (void)CHANGE(unlink(file->temporary));
    return status;
}

dt_status dt_file_save(const char *path, const void *data, size_t bytes)
{
    struct dt_new_file file;
    DT_TRY(dt_file_begin(&file, path));
    return dt_file_end(&file, dt_file_write(file.fd, data, bytes, file.temporary));
}

dt_status dt_file_check_new(const char *path)
{
    struct dt_new_file file;
    if (strcmp(path, "-") == 0)
        return DT_OK;
    DT_TRY(dt_file_begin(&file, path));
    (void)dt_file_end(&file, DT_STOPPED);
    return DT_OK;
}

/* Gives a temporary file, which exists, its name; removes it on failure. */
static dt_status put_in_place(const char *temporary, const char *path)
{
    dt_status status = dt_file_rename(temporary, path);
    (void)CHANGE(unlink(temporary)); /* also left by a rename to another link of the same file */
    DT_TRY(status);
    return sync_parent(path);
}

dt_status dt_file_link(const char *path, const char *target)
{
    char temporary[DT_PATH_MAX];
    DT_TRY(temporary_name(temporary, path));
    if (CHANGE(symlink(target, temporary)) != 0)
        DT_FAIL(DT_ERR_CREATE, "cannot create link %s: %s", path, strerror(errno));
    return put_in_place(temporary, path);
}

static dt_status copy_file(const char *from, const char *temporary)
{
    enum { BLOCK = 1 << 16 };
    char block[BLOCK];
    int in = -1, out = -1;
    uint64_t bytes;
    DT_TRY(dt_file_open(&in, &bytes, from));
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_file_create(&out, temporary));
    for (uint64_t at = 0; at < bytes; at += BLOCK) {
        const size_t n = bytes - at < BLOCK ? (size_t)(bytes - at) : BLOCK;
        DT_TRY_OUT(dt_file_pread(in, block, n, at, from));
        DT_TRY_OUT(dt_file_write(out, block, n, temporary));
    }
    DT_TRY_OUT(dt_file_finish(&out, temporary));
out:
    if (out >= 0)
        close_written(out);
    close(in);
    return status;
}

dt_status dt_file_publish(const char *from, const char *to)
{
    char temporary[DT_PATH_MAX];
    DT_TRY(temporary_name(temporary, to));
    dt_status status = CHANGE(link(from, temporary)) == 0 ? DT_OK : copy_file(from, temporary);
    if (status == DT_OK)
        return put_in_place(temporary, to);
    (void)CHANGE(unlink(temporary));
    return status;
}

bool dt_file_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

dt_status dt_file_folder(char *out, const char *path)
{
    const int n =
        (int)(dt_file_is_folder(path) ? strlen(path) : strlen(path) - strlen(dt_file_base(path)));
    const int n_slash = n > 1 && path[n - 1] == '/';
    return dt_file_path(out, "%.*s", n > 0 ? n - n_slash : 1, n > 0 ? path : ".");
}

/* Other processes may be creating it at the same time. */
dt_status dt_file_add_folder(const char *path)
{
    if (dt_file_is_folder(path))
        return DT_OK;
    if (CHANGE(mkdir(path, 0777)) == 0)
        return sync_parent(path);
    if (errno == EEXIST && dt_file_is_folder(path))
        return DT_OK;
    if (errno == EEXIST)
        DT_FAIL(DT_ERR_CREATE, "cannot use %s as a folder: it exists and is not one", path);
    DT_FAIL(output_status(errno), "cannot create folder %s: %s", path,
            dt_file_problem(path, errno));
}

void dt_file_clean(const char *path)
{
    enum { TOKEN_DIGITS = 16 };
    char parent[DT_PATH_MAX], start[DT_PATH_MAX], file[DT_PATH_MAX];
    const char *name = dt_file_base(path);
    if (parent_of(parent, path) != DT_OK || dt_file_path(start, ".tmp-%.150s-", name) != DT_OK)
        return;
    DIR *dir = opendir(parent);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        size_t n = strlen(start);
        if (strncmp(entry->d_name, start, n) == 0 && strlen(entry->d_name) == n + TOKEN_DIGITS &&
            strspn(entry->d_name + n, "0123456789abcdef") == TOKEN_DIGITS &&
            dt_file_path(file, "%s%s", parent, entry->d_name) == DT_OK)
            remove_at(dirfd(dir), entry->d_name, 0, file);
    }
    if (dir)
        closedir(dir);
    dt_error_clear();
}

dt_status dt_file_make_folder(const char *path)
{
    char part[DT_PATH_MAX];
    DT_TRY(dt_file_path(part, "%s", path));
    for (char *p = part + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        DT_TRY(dt_file_add_folder(part));
        *p = '/';
    }
    return dt_file_add_folder(part);
}

const char *dt_file_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool dt_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

void dt_file_existing(char path[DT_PATH_MAX])
{
    while (access(path, F_OK) != 0 && errno == ENOENT) {
        char *slash = strrchr(path, '/');
        if (!slash)
            memcpy(path, ".", 2);
        else
            slash[slash == path] = '\0';
    }
}

uint64_t dt_file_free_bytes(const char *path)
{
    struct statvfs info;
    if (statvfs(path, &info) != 0 || info.f_blocks == 0)
        return INT64_MAX;
    return (uint64_t)info.f_bavail * info.f_frsize;
}
