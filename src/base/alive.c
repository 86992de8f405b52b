#include "base/alive.h"

#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/host.h"
#include "base/json.h"

static bool has_text(const struct dt_json_doc *run, const char *key, const char *text)
{
    const struct dt_json *value = run ? dt_json_get(dt_json_root(run), key) : NULL;
    return value && value->string && strcmp(value->string, text) == 0;
}

static bool is_lock_free(const char *folder)
{
    char path[DT_PATH_MAX];
    int fd = -1;
    uint64_t bytes;
    const bool is_free = dt_file_path(path, "%s/.lock", folder) == DT_OK &&
                         dt_file_open_own(&fd, &bytes, path) == DT_OK &&
                         flock(fd, LOCK_SH | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return is_free;
}

bool dt_run_is_alive(const char *folder)
{
    char path[DT_PATH_MAX], host[DT_HOST_MAX];
    struct dt_json_doc *run = NULL;
    struct stat beat;
    dt_host_name(host);
    const bool has_run = dt_json_load_own(&run, folder, "RUN", &dt_json_default_limits) == DT_OK;
    const bool has_beats =
        dt_file_path(path, "%s/heartbeat.bin", folder) == DT_OK && stat(path, &beat) == 0;
    const bool is_alive =
        !has_text(run, "state", "ended") &&
        (has_beats ? difftime(time(NULL), beat.st_mtime) < DT_LEASE_S : has_run) &&
        !(has_text(run, "host", host) && is_lock_free(folder));
    dt_json_destroy(run);
    dt_error_clear();
    return is_alive;
}
