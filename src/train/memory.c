/* How much memory there is: MemAvailable of the machine, and memory.max of this process's control
 * group (v2) and of the groups around it. What cannot be read sets no limit. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dtrain/file.h"
#include "train/session.h"

/* Hands the lines of a file to `parse` until it takes one. */
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
    return sscanf(line, "%" SCNu64, (uint64_t *)out) == 1; /* else "max" */
}

/* The line of version 2 is "0::/path". */
static bool parse_group(const char *line, void *out)
{
    char *group = out;
    if (strncmp(line, "0::/", 4) != 0)
        return false;
    snprintf(group, DT_PATH_MAX, "%s", line + 3);
    return true;
}

uint64_t dt_memory_available(const char *root)
{
    char path[DT_PATH_MAX], group[DT_PATH_MAX];
    uint64_t least = INT64_MAX, bytes;
    if (dt_file_path(path, "%s/proc/meminfo", root) == DT_OK &&
        find_line(path, parse_available, &bytes) && bytes < least)
        least = bytes;
    if (dt_file_path(path, "%s/proc/self/cgroup", root) != DT_OK ||
        !find_line(path, parse_group, group))
        return least;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = '\0';
        if (dt_file_path(path, "%s/sys/fs/cgroup%s/memory.max", root, group) == DT_OK &&
            find_line(path, parse_number, &bytes) && bytes < least)
            least = bytes;
    }
    return least;
}
