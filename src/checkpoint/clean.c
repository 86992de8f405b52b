/* What saves leave behind is removed, and nothing else: only names that a save gives, in a folder
 * that is opened once, so that a link that appears later leads nowhere. */
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_internal.h"

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

static void remove_links(const char *dir)
{
    static const char *const names[] = {"latest", "best"};
    char path[DT_PATH_MAX];
    for (size_t i = 0; i < DT_COUNT(names); i++)
        if (dt_file_path(path, "%s/%s", dir, names[i]) == DT_OK)
            dt_file_clean(path);
}

void dt_checkpoint_clean(const char *dir)
{
    remove_folders(dir, is_temporary, &dt_pulse_main);
    remove_folders(dir, is_trash, &dt_pulse_main);
    remove_links(dir);
}

/* The name is one that dt_checkpoint_clean removes. */
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
