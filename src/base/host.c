/* Available memory is MemAvailable of the machine, and memory.max of this process's control group
 * (v2) and of its ancestors. A value that cannot be read sets no limit. Without base/file.h, which
 * logs, while base/log.h asks for the name of the node. */
#include "base/host.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

enum { PATH_BYTES = 4096 };
#define KIB " %" SCNu64 " kB"

/* gethostname need not NUL-terminate a name that it truncates. */
void dt_host_name(char out[DT_HOST_MAX])
{
    static const char unknown[] = "unknown host";
    memset(out, 0, DT_HOST_MAX);
    if (gethostname(out, DT_HOST_MAX - 1) != 0)
        memcpy(out, unknown, sizeof unknown);
}

/* Reads one value from the first line of root/name that has the format. */
__attribute__((format(scanf, 3, 4))) static bool find_value(const char *root, const char *name,
                                                            const char *format, ...)
{
    char line[PATH_BYTES];
    bool found = false;
    if (snprintf(line, sizeof line, "%s%s", root, name) >= PATH_BYTES)
        return false;
    FILE *file = fopen(line, "r");
    while (file && !found && fgets(line, sizeof line, file)) {
        va_list args;
        va_start(args, format);
        found = vsscanf(line, format, args) == 1;
        va_end(args);
    }
    if (file)
        fclose(file);
    return found;
}

/* The cgroup v2 line is "0::/path". */
static bool find_group(char group[PATH_BYTES], const char *root)
{
    return find_value(root, "/proc/self/cgroup", "0::%4095[^\n]", group) && group[0] == '/';
}

uint64_t dt_memory_limit(const char *root)
{
    char name[PATH_BYTES + 64], group[PATH_BYTES];
    uint64_t least = INT64_MAX, bytes;
    if (!find_group(group, root))
        return least;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = '\0';
        snprintf(name, sizeof name, "/sys/fs/cgroup%s/memory.max", group);
        if (find_value(root, name, "%" SCNu64, &bytes) && bytes < least) /* otherwise "max" */
            least = bytes;
    }
    return least;
}

uint64_t dt_memory_available(const char *root)
{
    uint64_t least = dt_memory_limit(root), kib;
    if (find_value(root, "/proc/meminfo", "MemAvailable:" KIB, &kib) && 1024 * kib < least)
        least = 1024 * kib;
    return least;
}

void dt_memory_use(struct dt_memory_use *out, const char *root)
{
    struct dt_memory_use kib = {0};
    find_value(root, "/proc/meminfo", "MemTotal:" KIB, &kib.total);
    find_value(root, "/proc/meminfo", "MemAvailable:" KIB, &kib.available);
    find_value(root, "/proc/meminfo", "Cached:" KIB, &kib.cached);
    find_value(root, "/proc/self/status", "VmRSS:" KIB, &kib.resident);
    *out = (struct dt_memory_use){.total = 1024 * kib.total,
                                  .available = 1024 * kib.available,
                                  .cached = 1024 * kib.cached,
                                  .resident = 1024 * kib.resident};
}

uint64_t dt_storage_bytes_read(const char *root)
{
    uint64_t bytes = 0;
    find_value(root, "/proc/self/io", "read_bytes: %" SCNu64, &bytes);
    return bytes;
}

bool dt_memory_read_kills(struct dt_memory_kills *out, const char *root)
{
    char name[PATH_BYTES + 64], group[PATH_BYTES], boot[41];
    if (!find_group(group, root) ||
        !find_value(root, "/proc/sys/kernel/random/boot_id", "%40s", boot))
        return false;
    snprintf(name, sizeof name, "/sys/fs/cgroup%s/memory.events", group);
    int n = snprintf(out->group, sizeof out->group, "%s %s", boot, group);
    return n < (int)sizeof out->group && find_value(root, name, "oom_kill %" SCNd64, &out->n);
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
