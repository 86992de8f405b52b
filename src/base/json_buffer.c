#include "base/json_buffer.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_scan.h"

enum { TOKEN_BYTES = DT_JSON_STRING_MAX + 64 };

dt_status dt_json_buffer_open(struct dt_json_buffer *buffer, const char *path)
{
    buffer->path = path;
    buffer->line = 1;
    buffer->at = buffer->end = buffer->block;
    buffer->fd = -1;
    DT_TRY(dt_file_open(&buffer->fd, &buffer->file_bytes, path));
    (void)posix_fadvise(buffer->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return DT_OK;
}

void dt_json_buffer_close(struct dt_json_buffer *buffer)
{
    if (buffer->path && buffer->fd >= 0)
        close(buffer->fd);
}

static size_t left_in_buffer(const struct dt_json_buffer *s)
{
    return (size_t)(s->end - s->at);
}

static bool is_all_read(const struct dt_json_buffer *s)
{
    return s->read_bytes == s->file_bytes;
}

static dt_status refill(struct dt_json_buffer *s)
{
    size_t kept = left_in_buffer(s), room = DT_JSON_BLOCK_BYTES - kept;
    if (room > s->file_bytes - s->read_bytes)
        room = (size_t)(s->file_bytes - s->read_bytes);
    memmove(s->block, s->at, kept);
    DT_TRY(dt_file_pread(s->fd, s->block + kept, room, s->read_bytes, s->path));
    s->read_bytes += room;
    s->at = s->block;
    s->end = s->block + kept + room;
    s->block[kept + room] = '\0';
    return DT_OK;
}

dt_status dt_json_buffer_have(struct dt_json_buffer *s)
{
    return left_in_buffer(s) < TOKEN_BYTES && !is_all_read(s) ? refill(s) : DT_OK;
}

uint64_t dt_json_buffer_offset(const struct dt_json_buffer *s, const char *at)
{
    return s->read_bytes - (uint64_t)(s->end - at);
}

dt_status dt_json_skip_space(struct dt_json_buffer *s)
{
    for (;;) {
        if (*s->at == '\0' && s->at == s->end && !is_all_read(s)) {
            DT_TRY(refill(s));
            continue;
        }
        if (*s->at == '\n') {
            s->line++;
            s->start = dt_json_buffer_offset(s, s->at) + 1;
        } else if (*s->at != ' ' && *s->at != '\t' && *s->at != '\r') {
            return dt_json_buffer_have(s);
        }
        s->at++;
    }
}

/* --- Errors --- */

/* The line of an offset, and where that line begins. */
static dt_status find_line(const struct dt_json_buffer *s, uint64_t offset, uint64_t *line,
                           uint64_t *start)
{
    char block[4096];
    *line = 1;
    *start = 0;
    for (uint64_t at = 0, n; at < offset; at += n) {
        n = offset - at < sizeof block ? offset - at : sizeof block;
        DT_TRY(dt_file_pread(s->fd, block, (size_t)n, at, s->path));
        for (size_t i = 0; i < n; i++)
            if (block[i] == '\n') {
                *line += 1;
                *start = at + i + 1;
            }
    }
    return DT_OK;
}

dt_status dt_json_buffer_fail_list(const struct dt_json_buffer *buffer, uint64_t offset,
                                   const char *format, va_list args)
{
    char what[1024];
    uint64_t line = buffer->line, start = buffer->start;
    vsnprintf(what, sizeof what, format, args);
    if (offset < start)
        DT_TRY(find_line(buffer, offset, &line, &start));
    DT_FAIL(DT_ERR_DATA, "%s:%llu:%llu: %s", buffer->path, (unsigned long long)line,
            (unsigned long long)(offset - start + 1), what);
}

dt_status dt_json_buffer_fail(const struct dt_json_buffer *buffer, uint64_t offset,
                              const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const dt_status status = dt_json_buffer_fail_list(buffer, offset, format, args);
    va_end(args);
    return status;
}

dt_status dt_json_buffer_refuse(const struct dt_json_buffer *s, const char *at,
                                const char *expected)
{
    const int c = (unsigned char)*at;
    if (at == s->end)
        DT_JSON_FAIL_AT(s, at, "expected %s, but the file ends here: it is not complete", expected);
    const bool is_number = c == 'N' || c == 'I' || c == '+' || c == '.';
    if (c > 0x20 && c < 0x7f)
        DT_JSON_FAIL_AT(
            s, at, "expected %s, got '%c'%s", expected, c,
            is_number ? "; JSON numbers look like -1, 0.5 or 1e-4, and NaN and Infinity are not "
                        "among them"
                      : "");
    DT_JSON_FAIL_AT(s, at, "expected %s, got byte 0x%02x", expected, (unsigned)c);
}
