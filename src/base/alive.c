#include "base/alive.h"

#include <math.h>
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

/* Infinite if there is no such file. */
static double age_s(const char *folder, const char *name)
{
    char path[DT_PATH_MAX];
    struct stat info;
    if (dt_file_path(path, "%s/%s", folder, name) != DT_OK || stat(path, &info) != 0)
        return INFINITY;
    return difftime(time(NULL), info.st_mtime);
}

bool dt_run_is_alive(const char *folder)
{
    char host[DT_HOST_MAX];
    struct dt_json_doc *run = NULL;
    dt_host_name(host);
    (void)dt_json_load_own(&run, folder, "RUN", NULL);
    const double beat_s = age_s(folder, "heartbeat.bin");
    const double event_s = fmin(age_s(folder, "RUN"), age_s(folder, "metrics.jsonl"));
    const bool is_young =
        isfinite(beat_s) ? beat_s < DT_LEASE_S : run && event_s < DT_EVENT_LEASE_S;
    const bool is_alive = is_young && !has_text(run, "state", "ended") &&
                          !(has_text(run, "host", host) && is_lock_free(folder));
    dt_json_destroy(run);
    dt_error_clear();
    return is_alive;
}
