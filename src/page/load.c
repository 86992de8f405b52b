/* Reads the file line by line. */
#include "page/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/mem.h"
#include "base/sort.h"
#include "page/events.h"

enum { LINE_MOST = 1 << 20 };

/* Half a line is at the end of a file that is being written, or whose writer was killed. */
static dt_status read_lines(struct dt_events *events, FILE *file)
{
    const char *path = events->run->path;
    char *line = NULL;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(line, LINE_MOST));
    while (fgets(line, LINE_MOST, file)) {
        size_t bytes = strlen(line);
        if (bytes > 0 && line[bytes - 1] == '\n')
            DT_TRY_OUT(dt_events_add(events, line, bytes - 1));
        else if (!feof(file))
            DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "%s:%d: not a line of JSON below 1 MiB", path,
                                events->line + 1));
    }
    if (ferror(file))
        DT_TRY_OUT(DT_ERROR(DT_ERR_IO, "cannot read %s: %s", path, strerror(errno)));
    if (!events->run->start)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "%s: no run has started in this file", path));
out:
    free(line);
    return status;
}

/* Folder, file and name from the path of folder or file. */
static dt_status set_paths(struct dt_run *run, const char *path)
{
    struct stat info;
    bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    DT_TRY(dt_file_path(run->path, is_folder ? "%s/metrics.jsonl" : "%s", path));
    char *real = realpath(run->path, NULL);
    if (!real)
        DT_FAIL(dt_file_input_status(errno),
                "cannot read %s: %s; name a run folder or its metrics.jsonl", run->path,
                strerror(errno));
    *strrchr(real, '/') = '\0';
    dt_status status = dt_file_path(run->folder, "%s", real);
    snprintf(run->name, sizeof run->name, "%s", dt_file_base(run->folder));
    free(real);
    return status;
}

static bool has_heartbeat(const struct dt_run *run)
{
    char path[DT_PATH_MAX];
    struct stat info;
    return dt_file_path(path, "%s/heartbeat.bin", run->folder) == DT_OK && stat(path, &info) == 0 &&
           difftime(time(NULL), info.st_mtime) < 60;
}

dt_status dt_run_load(struct dt_run *run, const char *path)
{
    struct dt_events *events = NULL;
    *run = (struct dt_run){.median_images_per_s = NAN};
    DT_TRY(set_paths(run, path));
    FILE *file = fopen(run->path, "re");
    if (!file)
        DT_FAIL(dt_file_input_status(errno), "cannot read %s: %s", run->path, strerror(errno));
    dt_status status = DT_NEW(events, 1);
    if (status == DT_OK) {
        events->run = run;
        events->rate_stride = 1;
        events->begin_s = NAN;
        status = read_lines(events, file);
        dt_sort_f64(events->rates, events->n_rates);
        if (events->n_rates > 0)
            run->median_images_per_s = dt_percentile_f64(events->rates, events->n_rates, 0.5);
    }
    run->is_alive = !run->end && has_heartbeat(run);
    free(events);
    fclose(file);
    return status;
}

dt_status dt_runs_load(struct dt_run **runs, char *const *paths, size_t n)
{
    DT_TRY(DT_NEW(*runs, n));
    for (size_t i = 0; i < n; i++)
        DT_TRY(dt_run_load(&(*runs)[i], paths[i]));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            if (k != i && strcmp(dt_file_base((*runs)[i].name), dt_file_base((*runs)[k].name)) == 0)
                memcpy((*runs)[i].name, (*runs)[i].folder, DT_PATH_MAX);
    return DT_OK;
}
