/* Where checkpoints are: the folders of a run folder and their names. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_internal.h"

dt_status dt_checkpoint_path(char *path, const char *dir, int64_t step)
{
    return dt_file_path(path, "%s/step-%09" PRId64, dir, step);
}

static bool parse_name(int64_t *step, const char *name)
{
    char again[64];
    if (sscanf(name, "step-%" SCNd64, step) != 1 || *step < 0)
        return false;
    snprintf(again, sizeof again, "step-%09" PRId64, *step);
    return strcmp(again, name) == 0;
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static dt_status collect_steps(int64_t **steps, int *n_steps, DIR *d, const char *dir)
{
    size_t capacity = 0;
    struct dirent *entry;
    while (errno = 0, (entry = readdir(d))) {
        int64_t step;
        if (!parse_name(&step, entry->d_name))
            continue;
        DT_TRY(DT_GROW(*steps, capacity, (size_t)*n_steps, "checkpoints"));
        (*steps)[(*n_steps)++] = step;
    }
    if (errno != 0)
        DT_FAIL(DT_ERR_IO, "cannot list %s: %s", dir, strerror(errno));
    if (*n_steps > 0)
        qsort(*steps, (size_t)*n_steps, sizeof **steps, descending);
    return DT_OK;
}

dt_status dt_checkpoint_list(int64_t **steps, int *n_steps, const char *dir)
{
    *steps = NULL;
    *n_steps = 0;
    DIR *d = opendir(dir);
    if (!d && errno == ENOENT)
        return DT_OK;
    if (!d)
        DT_FAIL(dt_file_input_status(errno), "cannot list %s: %s", dir,
                dt_file_problem(dir, errno));
    dt_status status = collect_steps(steps, n_steps, d, dir);
    closedir(d);
    if (status == DT_OK)
        return DT_OK;
    free(*steps);
    *steps = NULL;
    *n_steps = 0;
    return dt_error_pass(status, __func__, __FILE__, __LINE__);
}

bool dt_checkpoint_folder_step(int64_t *step, const char *path)
{
    char *real = realpath(path, NULL);
    const char *slash = real ? strrchr(real, '/') : NULL;
    bool is_named = slash && parse_name(step, slash + 1);
    free(real);
    return is_named;
}

static bool is_in(const char *folder, const char *name)
{
    char path[DT_PATH_MAX];
    return (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path &&
           dt_file_exists(path);
}

dt_status dt_checkpoint_locate(char *dir, bool *is_one, const char *path)
{
    struct stat info;
    int64_t step;
    if (stat(path, &info) != 0)
        DT_FAIL(dt_file_input_status(errno), "cannot open %s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        DT_FAIL(DT_ERR_NO_INPUT, "%s is not a folder", path);
    *is_one = dt_checkpoint_folder_step(&step, path) || is_in(path, dt_manifest_name) ||
              is_in(path, DT_STATE_FILE);
    return dt_file_path(dir, is_in(path, "checkpoints") && !*is_one ? "%s/checkpoints" : "%s",
                        path);
}
