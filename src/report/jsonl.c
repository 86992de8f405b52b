/* metrics.jsonl in the run folder: one JSON object per line, each written by one write(2) to a file
 * opened for appending, so that a reader never sees half a line of a live run. A resumed run first
 * removes a partial line left by a crash. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "report/internal.h"

struct jsonl {
    int fd;
    char path[DT_PATH_MAX];
};

static void close_jsonl(void *state)
{
    struct jsonl *jsonl = state;
    if (jsonl->fd >= 0)
        close(jsonl->fd);
    free(jsonl);
}

/* Truncates the file after its last complete line. */
static dt_status cut_torn_line(const struct jsonl *jsonl)
{
    char block[4096];
    off_t end = lseek(jsonl->fd, 0, SEEK_END);
    off_t keep = end;
    for (bool found = false; keep > 0 && !found;) {
        size_t bytes = keep < (off_t)sizeof(block) ? (size_t)keep : sizeof(block);
        DT_TRY(dt_file_pread(jsonl->fd, block, bytes, (uint64_t)keep - bytes, jsonl->path));
        while (bytes > 0 && block[bytes - 1] != '\n') {
            bytes--;
            keep--;
        }
        found = bytes > 0;
    }
    if (end < 0 || (keep != end && ftruncate(jsonl->fd, keep) != 0))
        DT_FAIL(DT_ERR_IO, "cannot remove the incomplete last line of %s: %s", jsonl->path,
                strerror(errno));
    return DT_OK;
}

static dt_status open_jsonl(void **state, const struct dt_report_options *options)
{
    dt_status status = DT_OK;
    struct jsonl *jsonl = NULL;
    int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
    if (!options->dir)
        return DT_OK;
    DT_TRY(DT_NEW(jsonl, 1));
    jsonl->fd = -1;
    DT_TRY_OUT(dt_file_path(jsonl->path, "%s/metrics.jsonl", options->dir));
    DT_TRY_OUT(dt_file_make_folder(options->dir));
    jsonl->fd = open(jsonl->path, flags | (options->append ? 0 : O_TRUNC), 0666);
    if (jsonl->fd < 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_CREATE, "cannot create %s: %s", jsonl->path, strerror(errno)));
    DT_TRY_OUT(cut_torn_line(jsonl));
    *state = jsonl;
    jsonl = NULL;
out:
    if (jsonl)
        close_jsonl(jsonl);
    return status;
}

/* "2025-01-31T12:00:00.123Z". */
static void put_time(struct dt_jsonw *w)
{
    struct timespec now = {0};
    struct tm utc = {0};
    char seconds[32] = "", text[48];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text, sizeof(text), "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));
    dt_jsonw_string(w, "ts", text);
}

static void put_field(struct dt_jsonw *w, const struct dt_field *field)
{
    switch (field->kind) {
    case DT_FIELD_INT:
        dt_jsonw_integer(w, field->key, field->integer);
        break;
    case DT_FIELD_NUMBER: /* null if not finite */
        dt_jsonw_number(w, field->key, field->number);
        break;
    case DT_FIELD_TEXT:
        dt_jsonw_string(w, field->key, field->text ? field->text : "");
        break;
    case DT_FIELD_JSON:
        dt_jsonw_raw(w, field->key, field->text ? field->text : "null");
    }
}

static dt_status write_line(const struct jsonl *jsonl, const struct dt_jsonw *w)
{
    ssize_t n;
    w->text[w->bytes] = '\n'; /* replaces the NUL: text and newline are written together */
    do {
        n = write(jsonl->fd, w->text, w->bytes + 1);
    } while (n < 0 && errno == EINTR);
    w->text[w->bytes] = '\0';
    if (n != (ssize_t)w->bytes + 1)
        DT_FAIL(DT_ERR_IO, "cannot write %s: %s", jsonl->path,
                n < 0 ? strerror(errno) : "the disk is full");
    return DT_OK;
}

static dt_status event_jsonl(void *state, const char *event, const struct dt_field *fields,
                             int n_fields)
{
    struct dt_jsonw w;
    dt_jsonw_init(&w, false);
    dt_jsonw_begin(&w, NULL, '{');
    put_time(&w);
    dt_jsonw_string(&w, "event", event);
    for (int i = 0; i < n_fields; i++)
        put_field(&w, &fields[i]);
    dt_jsonw_close(&w, '}');
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK)
        status = write_line(state, &w);
    dt_jsonw_reset(&w);
    return status;
}

const struct dt_sink dt_sink_jsonl = {
    .name = "metrics.jsonl",
    .open = open_jsonl,
    .event = event_jsonl,
    .close = close_jsonl,
};
