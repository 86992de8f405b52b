#include "events/events_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

dt_status dt_append_open(struct dt_append *file, const char *dir, const char *name, bool keep)
{
    const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    struct stat info;
    *file = (struct dt_append){.fd = -1};
    DT_TRY(dt_file_path(file->path, "%s/%s", dir, name));
    DT_TRY(dt_file_make_folder(dir));
    file->fd = open(file->path, flags | (keep ? 0 : O_TRUNC), 0666);
    if (file->fd < 0)
        DT_FAIL(DT_ERR_CREATE, "cannot create %s: %s", file->path, strerror(errno));
    if (fstat(file->fd, &info) != 0 || !S_ISREG(info.st_mode))
        DT_FAIL(DT_ERR_PERMISSION, "%s is not a regular file; remove it", file->path);
    file->end = lseek(file->fd, 0, SEEK_END);
    return DT_OK;
}

dt_status dt_append_write(struct dt_append *file, const void *data, size_t bytes)
{
    enum { MAX_BYTES = 1 << 20 };
    if (file->n_kept > 0 && file->used + bytes > MAX_BYTES)
        (void)dt_append_flush(file);
    if (file->n_kept > 0 && file->used + bytes > MAX_BYTES) {
        file->n_lost++;
        return DT_OK;
    }
    DT_TRY(DT_GROW(file->kept, file->capacity, file->used + bytes, file->path));
    memcpy(file->kept + file->used, data, bytes);
    file->used += bytes;
    file->n_kept++;
    return DT_OK;
}

dt_status dt_append_flush(void *state)
{
    struct dt_append *file = state;
    if (file->is_torn && ftruncate(file->fd, file->end) != 0)
        DT_FAIL(DT_ERR_IO, "cannot remove half a record of %s: %s", file->path, strerror(errno));
    const dt_status status = dt_file_write(file->fd, file->kept, file->used, file->path);
    file->is_torn = status != DT_OK && ftruncate(file->fd, file->end) != 0;
    if (status != DT_OK)
        return dt_error_pass(status, __func__, __FILE__, __LINE__);
    file->end += (off_t)file->used;
    file->used = 0;
    file->n_kept = 0;
    if (file->is_vital && fdatasync(file->fd) != 0)
        DT_FAIL(DT_ERR_IO, "cannot sync %s: %s", file->path, strerror(errno));
    file->is_vital = false;
    return DT_OK;
}

dt_status dt_append_cut(struct dt_append *file, dt_append_stale *is_stale, void *context)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    FILE *lines = fopen(file->path, "r");
    if (!lines)
        DT_FAIL(DT_ERR_IO, "cannot read %s: %s", file->path, strerror(errno));
    file->end = 0;
    while ((n = getline(&line, &capacity, lines)) > 0 && line[n - 1] == '\n' &&
           !(is_stale && is_stale(context, line)))
        file->end += n;
    const int error = ferror(lines) ? errno : 0;
    free(line);
    fclose(lines);
    if (error) /* keep what may be there */
        DT_FAIL(DT_ERR_IO, "cannot read %s: %s", file->path, strerror(error));
    if (ftruncate(file->fd, file->end) != 0)
        DT_FAIL(DT_ERR_IO, "cannot remove the last lines of %s: %s", file->path, strerror(errno));
    return DT_OK;
}

void dt_append_close(void *state)
{
    struct dt_append *file = state;
    if (file->path[0] && file->fd >= 0) {
        (void)dt_append_flush(file);
        close(file->fd);
    }
    const int64_t n = file->n_kept + file->n_lost;
    if (n > 0)
        dt_log(DT_LOG_WARNING, "%" PRId64 " record%s could not be written to %s", n, DT_S(n),
               file->path);
    free(file->kept);
}
