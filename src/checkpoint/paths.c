/* The folders of checkpoints in a run folder and their names; and removing what saves left behind.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
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

dt_status dt_checkpoint_list(int64_t **steps, int *n_steps, const char *dir)
{
    size_t capacity = 0;
    struct dirent *entry;
    int64_t step;
    dt_status status = DT_OK;
    *steps = NULL;
    *n_steps = 0;
    DIR *d = opendir(dir);
    if (!d && errno == ENOENT)
        return DT_OK;
    if (!d)
        DT_FAIL(dt_file_input_status(errno), "cannot list %s: %s", dir,
                dt_file_problem(dir, errno));
    while (errno = 0, (entry = readdir(d))) {
        if (!parse_name(&step, entry->d_name))
            continue;
        DT_TRY_OUT(DT_GROW(*steps, capacity, (size_t)*n_steps, "checkpoints"));
        (*steps)[(*n_steps)++] = step;
    }
    if (errno != 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_IO, "cannot list %s: %s", dir, strerror(errno)));
    if (*n_steps > 0)
        qsort(*steps, (size_t)*n_steps, sizeof **steps, descending);
out:
    closedir(d);
    if (status != DT_OK) {
        free(*steps);
        *steps = NULL;
        *n_steps = 0;
    }
    return status;
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

/* --- What saves leave behind: only names that a save gives are removed, in a folder that is opened
 * once, so that a link that appears later leads nowhere --- */

static bool is_temporary(const char *name)
{
    int n = 0;
    (void)sscanf(name, ".tmp-step-%*[0-9]-%*[0-9]%n", &n);
    return n > 0 && !name[n];
}

static bool is_trash(const char *name)
{
    int n = 0;
    (void)sscanf(name, ".trash-step-%*[0-9]%n", &n);
    return n > 0 && !name[n];
}

/* Leftovers do no harm, so a failure is only a warning. */
static void remove_folders(const char *dir, bool (*is_leftover)(const char *name),
                           struct dt_pulse *pulse)
{
    char path[DT_PATH_MAX];
    int fd;
    DIR *d = dt_file_open_folder(&fd, dir) == DT_OK ? fdopendir(fd) : NULL;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (!is_leftover(entry->d_name))
            continue;
        if (dt_file_path(path, "%s/%s", dir, entry->d_name) != DT_OK ||
            dt_file_remove_folder_at(fd, entry->d_name, path) != DT_OK)
            dt_log(DT_LOG_WARNING, "%s", dt_error_text());
        dt_pulse_beat(pulse);
    }
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    dt_error_clear();
}

void dt_checkpoint_empty_trash(const char *dir)
{
    remove_folders(dir, is_trash, &dt_pulse_writer);
}

void dt_checkpoint_clean(const char *dir)
{
    static const char *const links[] = {"latest", "best"};
    char path[DT_PATH_MAX];
    remove_folders(dir, is_temporary, &dt_pulse_main);
    remove_folders(dir, is_trash, &dt_pulse_main);
    for (size_t i = 0; i < DT_COUNT(links); i++)
        if (dt_file_path(path, "%s/%s", dir, links[i]) == DT_OK)
            dt_file_clean(path);
}

/* Tries with a name that dt_checkpoint_clean removes. */
dt_status dt_checkpoint_check_dir(const char *dir)
{
    char path[DT_PATH_MAX];
    if (!dt_file_exists(dir))
        return DT_OK;
    DT_TRY(dt_file_path(path, "%s/.tmp-step-000000000-0", dir));
    dt_status status = dt_file_add_folder(path);
    if (status != DT_OK)
        DT_FAIL(status, "cannot save checkpoints: %s; %schoose another --out", dt_error_text(),
                status == DT_ERR_PERMISSION ? "let its owner make it writable, or " : "");
    return dt_file_remove_folder(path);
}
