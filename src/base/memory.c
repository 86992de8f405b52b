/* Available memory: MemAvailable of the machine, and memory.max of this process's control group
 * (v2) and of its ancestors. A value that cannot be read sets no limit. */
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

/* Passes the lines of a file to `parse` until it accepts one. */
static bool find_line(const char *path, bool (*parse)(const char *line, void *out), void *out)
{
    char line[DT_PATH_MAX];
    bool found = false;
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    while (!found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        found = parse(line, out);
    }
    fclose(file);
    return found;
}

static bool parse_available(const char *line, void *out)
{
    uint64_t *bytes = out, kib;
    if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) != 1)
        return false;
    *bytes = kib * 1024;
    return true;
}

static bool parse_number(const char *line, void *out)
{
    return sscanf(line, "%" SCNu64, (uint64_t *)out) == 1; /* otherwise "max" */
}

/* The cgroup v2 line is "0::/path". */
static bool parse_group(const char *line, void *out)
{
    char *group = out;
    if (strncmp(line, "0::/", 4) != 0)
        return false;
    snprintf(group, DT_PATH_MAX, "%s", line + 3);
    return true;
}

static bool parse_kills(const char *line, void *out)
{
    return sscanf(line, "oom_kill %" SCNd64, (int64_t *)out) == 1;
}

static bool parse_boot(const char *line, void *out)
{
    return sscanf(line, "%40s", (char *)out) == 1;
}

static bool find_group(char *group, const char *root)
{
    char path[DT_PATH_MAX];
    return dt_file_path(path, "%s/proc/self/cgroup", root) == DT_OK &&
           find_line(path, parse_group, group);
}

uint64_t dt_memory_limit(const char *root)
{
    char path[DT_PATH_MAX], group[DT_PATH_MAX];
    uint64_t least = INT64_MAX, bytes;
    if (!find_group(group, root))
        return least;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = '\0';
        if (dt_file_path(path, "%s/sys/fs/cgroup%s/memory.max", root, group) == DT_OK &&
            find_line(path, parse_number, &bytes) && bytes < least)
            least = bytes;
    }
    return least;
}

uint64_t dt_memory_available(const char *root)
{
    char path[DT_PATH_MAX];
    uint64_t least = dt_memory_limit(root), bytes;
    if (dt_file_path(path, "%s/proc/meminfo", root) == DT_OK &&
        find_line(path, parse_available, &bytes) && bytes < least)
        least = bytes;
    return least;
}

/* Takes what it knows and accepts no line, so that all are read. */
static bool parse_use(const char *line, void *out)
{
    struct dt_memory_use *use = out;
    uint64_t kib;
    if (sscanf(line, "MemTotal: %" SCNu64 " kB", &kib) == 1)
        use->total = kib * 1024;
    if (sscanf(line, "Cached: %" SCNu64 " kB", &kib) == 1)
        use->cached = kib * 1024;
    if (sscanf(line, "VmRSS: %" SCNu64 " kB", &kib) == 1)
        use->resident = kib * 1024;
    (void)parse_available(line, &use->available);
    return false;
}

void dt_memory_use(struct dt_memory_use *out, const char *root)
{
    static const char *const files[] = {"meminfo", "self/status"};
    char path[DT_PATH_MAX];
    *out = (struct dt_memory_use){0};
    for (size_t i = 0; i < DT_COUNT(files); i++)
        if (dt_file_path(path, "%s/proc/%s", root, files[i]) == DT_OK)
            (void)find_line(path, parse_use, out);
}

bool dt_memory_read_kills(struct dt_memory_kills *out, const char *root)
{
    char path[DT_PATH_MAX], group[DT_PATH_MAX], boot[41];
    if (!find_group(group, root) ||
        dt_file_path(path, "%s/proc/sys/kernel/random/boot_id", root) != DT_OK ||
        !find_line(path, parse_boot, boot))
        return false;
    int n = snprintf(out->group, sizeof out->group, "%s %s", boot, group);
    return n < (int)sizeof out->group &&
           dt_file_path(path, "%s/sys/fs/cgroup%s/memory.events", root, group) == DT_OK &&
           find_line(path, parse_kills, &out->n);
}

const char *dt_memory_format(char *out, size_t bytes, uint64_t value)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    double size = (double)value;
    for (; size >= 999.5 && unit + 1 < DT_COUNT(units); unit++)
        size /= 1000;
    snprintf(out, bytes, "%.*f %s", unit > 0 && size < 9.95 ? 1 : 0, size, units[unit]);
    return out;
}
