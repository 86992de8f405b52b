/* dtrain verify: reads every byte of shards, of one checkpoint, or of all checkpoints in a folder
 * or run folder, newest first, and prints a line for each. DT_ERR_DATA if one is damaged,
 * DT_ERR_NO_INPUT if there is none. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "data/shard_list.h"
#include "pack/pack.h"

static const double mega = 1e6, redraw_s = 0.2;

struct progress {
    const char *path;
    uint64_t bytes;
    double drawn_s;
};

static void draw_progress(void *context, uint64_t bytes)
{
    struct progress *p = context;
    char text[DT_PATH_MAX + 64];
    double now_s = dt_clock_s();
    p->bytes += bytes;
    if (now_s - p->drawn_s < redraw_s)
        return;
    p->drawn_s = now_s;
    snprintf(text, sizeof text, "%s: %.0f MB", p->path, (double)p->bytes / mega);
    dt_log_progress(text);
}

static dt_status count_tensors(int *n, const char *path)
{
    struct dt_manifest manifest;
    DT_TRY(dt_manifest_load(&manifest, path));
    *n = 0;
    for (int i = 0; i < manifest.n_files; i++)
        *n += manifest.files[i].n_tensors;
    dt_manifest_reset(&manifest);
    return DT_OK;
}

static dt_status verify_one(const char *path)
{
    struct dt_checkpoint state;
    char line[4 * DT_PATH_MAX];
    double begin_s = dt_clock_s();
    struct progress progress = {.path = path, .drawn_s = begin_s};
    int n_tensors = 0;
    dt_status status = dt_checkpoint_verify_with(&state, path, draw_progress, &progress);
    if (status == DT_OK)
        status = count_tensors(&n_tensors, path);
    dt_log_progress("");
    if (status == DT_OK)
        snprintf(line, sizeof line, "ok  %s  step %" PRId64 ", %.1f MB, %d tensors, %.1f s", path,
                 state.step, (double)progress.bytes / mega, n_tensors, dt_clock_s() - begin_s);
    else
        snprintf(line, sizeof line, "!!  %s  %s", path, dt_error_text());
    for (char *c = line; (c = strchr(c, '\n'));)
        *c = '?';
    dt_utf8_escape(line); /* names of folders, and in damaged files, may have escape sequences */
    printf("%s\n", line);
    fflush(stdout);
    return status;
}

static dt_status verify_all(const char *dir)
{
    char path[DT_PATH_MAX];
    int64_t *steps = NULL;
    int n_steps = 0, n_bad = 0;
    dt_status status = DT_OK;
    DT_TRY(dt_checkpoint_list(&steps, &n_steps, dir));
    for (int i = 0; i < n_steps; i++) {
        DT_TRY_OUT(dt_checkpoint_path(path, dir, steps[i]));
        n_bad += verify_one(path) != DT_OK;
    }
    if (n_steps == 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_NO_INPUT, "%s holds no checkpoint and no shards", dir));
    if (n_bad > 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "%d of %d checkpoints in %s cannot be used", n_bad,
                            n_steps, dir));
out:
    free(steps);
    return status;
}

dt_status dt_cmd_verify(const struct dt_arguments *args)
{
    const char *path = args->operands[0];
    char dir[DT_PATH_MAX];
    bool is_one;
    if (dt_shards_found(path))
        return dt_shards_verify(path, args->decode, (int)args->threads, stdout);
    DT_TRY(dt_checkpoint_locate(dir, &is_one, path));
    if (!is_one)
        return verify_all(dir);
    if (verify_one(path) != DT_OK)
        DT_FAIL(DT_ERR_DATA, "%s cannot be used", path);
    return DT_OK;
}
