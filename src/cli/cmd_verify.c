/* dtrain verify: reads every byte of shards, of one checkpoint, or of all checkpoints in a folder
 * or run folder, newest first, and prints a line for each; decodes all images of class folders, of
 * a CSV table or of COCO's annotations, and prints a line for each that cannot be used. DT_ERR_DATA
 * if one is damaged, DT_ERR_NO_INPUT if there is none. */
#include <inttypes.h>
#include <stdarg.h>
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
#include "dtrain/data.h"
#include "page/page_run.h"

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

static void print_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void print_line(const char *format, ...)
{
    char line[4 * DT_PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *c = line; (c = strchr(c, '\n'));)
        *c = '?';
    dt_utf8_escape(line); /* names of folders, and in damaged files, may have escape sequences */
    printf("%s\n", line);
    fflush(stdout);
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

/* DT_ERR_NO_INPUT: the training that runs there has removed it meanwhile; else it is damaged. */
static dt_status verify_one(const char *path)
{
    struct dt_checkpoint state;
    double begin_s = dt_clock_s();
    struct progress progress = {.path = path, .drawn_s = begin_s};
    int n_tensors = 0;
    dt_status status = dt_checkpoint_verify_with(&state, path, draw_progress, &progress);
    if (status == DT_OK)
        status = count_tensors(&n_tensors, path);
    dt_log_progress("");
    if (status != DT_OK)
        status = dt_file_exists(path) ? DT_ERR_DATA : DT_ERR_NO_INPUT;
    if (status == DT_OK)
        print_line("ok  %s  step %" PRId64 ", %.1f MB, %d tensors, %.1f s", path, state.step,
                   (double)progress.bytes / mega, n_tensors, dt_clock_s() - begin_s);
    else if (status == DT_ERR_DATA)
        print_line("!!  %s  %s", path, dt_error_text());
    else
        print_line("--  %s  was removed before it was verified", path);
    return status;
}

/* --- Images --- */

static dt_status verify_images(const char *path, const struct dt_arguments *args,
                               const struct dt_config_data *data)
{
    struct dt_dataset *sets[2] = {NULL};
    struct dt_image_check check = {
        .n_threads = args->shard.threads, .lists_all = true, .what = "verifying"};
    const struct dt_names *bad = &check.bad;
    const double begin_s = dt_clock_s();
    const struct dt_dataset_options options = {
        .data = data, .path = path, .images_folder = args->shard.image_folder, .part = DT_PART_ALL};
    DT_TRY(dt_dataset_open(&sets[0], &options));
    const uint32_t n = dt_dataset_size(sets[0]), asked = (uint32_t)args->decode;
    check.step = args->decode > 0 && asked < n ? n / asked : 1;
    dt_status status = DT_NEW(check.hashes, n);
    if (status == DT_OK)
        status = dt_dataset_check(&check, sets[0]);
    for (size_t i = 0; status == DT_OK && i < bad->n; i++)
        print_line("!!  %s", dt_names_get(bad, i));
    if (status == DT_OK)
        status = dt_dataset_twins(check.hashes, (const struct dt_dataset *const *)sets);
    if (status == DT_OK)
        status = dt_dataset_tell(sets[0], &check.notes, path);
    if (status == DT_OK && bad->n > 0)
        status = DT_ERROR(DT_ERR_DATA, "%zu of the %u images of %s cannot be used", bad->n,
                          (unsigned)n, path);
    else if (status == DT_OK)
        print_line("ok  %s  %u of %u images decoded, %.1f s", path, (unsigned)check.n, (unsigned)n,
                   dt_clock_s() - begin_s);
    dt_dataset_close(sets[0]);
    dt_names_reset(&check.bad);
    free(check.hashes);
    return status;
}

/* --- Checkpoints --- */

static bool holds_something(const char *dir)
{
    struct dt_names entries = {0};
    const bool holds = dt_names_list(&entries, dir) == DT_OK && entries.n > 0;
    dt_names_reset(&entries);
    dt_error_clear();
    return holds;
}

static dt_status verify_all(const char *dir, const struct dt_arguments *args,
                            const struct dt_config_data *data)
{
    char path[DT_PATH_MAX];
    int64_t *steps = NULL;
    int n_steps = 0, n_bad = 0;
    dt_status status = DT_OK;
    DT_TRY(dt_checkpoint_list(&steps, &n_steps, dir));
    for (int i = 0; i < n_steps; i++) {
        DT_TRY_OUT(dt_checkpoint_path(path, dir, steps[i]));
        n_bad += verify_one(path) == DT_ERR_DATA;
    }
    if (n_steps == 0 && dt_runs_found(dir))
        status = DT_ERROR(DT_ERR_USAGE,
                          "%s is a folder of runs; name one of those that dtrain "
                          "runs %s lists",
                          dir, dir);
    else if (n_steps == 0 && strcmp(dir, args->operands[0]) == 0 && holds_something(dir))
        status = verify_images(dir, args, data);
    else if (n_steps == 0)
        status = DT_ERROR(DT_ERR_NO_INPUT, "%s holds no checkpoint, no shards and no images", dir);
    else if (n_bad > 0)
        status =
            DT_ERROR(DT_ERR_DATA, "%d of %d checkpoints in %s cannot be used", n_bad, n_steps, dir);
out:
    free(steps);
    return status;
}

dt_status dt_cmd_verify(const struct dt_arguments *args)
{
    const char *path = args->operands[0];
    char dir[DT_PATH_MAX];
    static struct dt_config config;
    bool is_one;
    DT_TRY(dt_arguments_config(&config, args));
    config.data.source = DT_SOURCE_AUTO;
    if (dt_shards_found(path))
        return dt_shards_verify(path, &config.data, args->decode, args->shard.threads, stdout);
    if (dt_name_has_suffix(path, ".csv") || dt_name_has_suffix(path, ".json"))
        return verify_images(path, args, &config.data);
    DT_TRY(dt_checkpoint_locate(dir, &is_one, path));
    if (!is_one)
        return verify_all(dir, args, &config.data);
    const dt_status status = verify_one(path);
    return status == DT_OK ? DT_OK : DT_ERROR(status, "%s cannot be used", path);
}
