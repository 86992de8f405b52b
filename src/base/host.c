/* Available memory is MemAvailable of the machine, and what the limits of this process's control
 * groups, of either version, and of their ancestors leave. A value that cannot be read sets no
 * limit. Without base/file.h, which logs, while base/log.h asks for the name of the node. */
#include "base/host.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };
/* Versions of control groups; a machine may have both, of which one limits memory, and one CPUs. */
enum { V1 = 1, V2, V1_CPU };
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

static bool find_group(char group[PATH_BYTES], const char *root, int version)
{
    static const char file[] = "/proc/self/cgroup";
    const bool found = version == V2 ? find_value(root, file, "0::%4095[^\n]", group)
                       : version == V1
                           ? find_value(root, file, "%*d:memory:%4095[^\n]", group)
                           : find_value(root, file, "%*d:cpu:%4095[^\n]", group) ||
                                 find_value(root, file, "%*d:cpu,cpuacct:%4095[^\n]", group) ||
                                 find_value(root, file, "%*d:cpuacct,cpu:%4095[^\n]", group);
    return found && group[0] == '/';
}

static const char *group_file(char path[PATH_BYTES + 64], int version, const char *group,
                              const char *name)
{
    static const char *const folders[] = {[V1] = "/memory", [V2] = "", [V1_CPU] = "/cpu"};
    snprintf(path, PATH_BYTES + 64, "/sys/fs/cgroup%s%s/%s", folders[version], group, name);
    return path;
}

/* Without the pages of files, which make room. */
static uint64_t used_by(const char *root, int version, const char *group)
{
    char path[PATH_BYTES + 64];
    const bool old = version == V1;
    uint64_t used = 0, active = 0, inactive = 0;
    group_file(path, version, group, old ? "memory.usage_in_bytes" : "memory.current");
    find_value(root, path, "%" SCNu64, &used);
    group_file(path, version, group, "memory.stat");
    find_value(root, path, old ? "total_active_file %" SCNu64 : "active_file %" SCNu64, &active);
    find_value(root, path, old ? "total_inactive_file %" SCNu64 : "inactive_file %" SCNu64,
               &inactive);
    return used > active + inactive ? used - active - inactive : 0;
}

/* The smallest limit, or what the use of memory leaves of one. */
static uint64_t min_of_groups(const char *root, bool is_left)
{
    const uint64_t unlimited = UINT64_C(1) << 60; /* v1 has a number for that, v2 a word */
    char path[PATH_BYTES + 64], group[PATH_BYTES];
    uint64_t min = INT64_MAX, bytes;
    for (int version = V1; version <= V2; version++) {
        if (!find_group(group, root, version))
            continue;
        for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
            *end = '\0';
            group_file(path, version, group,
                       version == V1 ? "memory.limit_in_bytes" : "memory.max");
            if (!find_value(root, path, "%" SCNu64, &bytes) || bytes >= unlimited)
                continue;
            const uint64_t used = is_left ? used_by(root, version, group) : 0;
            bytes -= used < bytes ? used : bytes;
            min = bytes < min ? bytes : min;
        }
    }
    return min;
}

uint64_t dt_memory_limit(const char *root)
{
    return min_of_groups(root, false);
}

double dt_cpu_quota(const char *root)
{
    char path[PATH_BYTES + 64], group[PATH_BYTES];
    double min = INFINITY, quota, period;
    for (int version = V2; version <= V1_CPU; version++) {
        const bool is_v2 = version == V2;
        if (!find_group(group, root, version))
            continue;
        for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
            *end = '\0';
            group_file(path, version, group, is_v2 ? "cpu.max" : "cpu.cfs_quota_us");
            if (!find_value(root, path, "%lf", &quota) || quota <= 0) /* "max", -1: none */
                continue;
            group_file(path, version, group, is_v2 ? "cpu.max" : "cpu.cfs_period_us");
            if (find_value(root, path, is_v2 ? "%*f %lf" : "%lf", &period) && period > 0)
                min = fmin(min, quota / period);
        }
    }
    return min;
}

int dt_cpus_within(int n, const char *root)
{
    return (int)fmin(n, ceil(dt_cpu_quota(root)));
}

int dt_cpus_allowed(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return dt_cpus_within(CPU_COUNT(&set), "");
    return dt_cpus_within((int)sysconf(_SC_NPROCESSORS_ONLN), ""); /* more than fit into the set */
}

uint64_t dt_memory_available(const char *root)
{
    uint64_t min = min_of_groups(root, true), kib;
    if (find_value(root, "/proc/meminfo", "MemAvailable:" KIB, &kib) && 1024 * kib < min)
        min = 1024 * kib;
    return min;
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
    char path[PATH_BYTES + 64], group[PATH_BYTES], boot[41];
    if (!find_value(root, "/proc/sys/kernel/random/boot_id", "%40s", boot))
        return false;
    for (int version = V1; version <= V2; version++) {
        if (!find_group(group, root, version))
            continue;
        group_file(path, version, group, version == V1 ? "memory.oom_control" : "memory.events");
        int n = snprintf(out->group, sizeof out->group, "%s %s", boot, group);
        if (n < (int)sizeof out->group && find_value(root, path, "oom_kill %" SCNd64, &out->n))
            return true;
    }
    return false;
}

const char *dt_memory_format(char *out, size_t bytes, uint64_t value)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    double size = (double)value;
    for (; size >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        size /= 1000;
    snprintf(out, bytes, "%.*f %s", unit > 0 && size < 9.95 ? 1 : 0, size, units[unit]);
    return out;
}

const char *dt_memory_limit_text(char *out, size_t bytes, const char *root)
{
    const uint64_t min = dt_memory_limit(root);
    char limit[32];
    out[0] = '\0';
    if (min < INT64_MAX)
        snprintf(out, bytes, " (the memory of this job is limited to %s)",
                 dt_memory_format(limit, sizeof limit, min));
    return out;
}
