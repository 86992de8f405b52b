/* This node: its name, its available memory and CPUs, and signs that a process was killed for lack
 * of it, from the machine and from this process's control group (v1 or v2). */
#ifndef DTRAIN_BASE_HOST_H
#define DTRAIN_BASE_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DT_HOST_MAX = 256 }; /* bytes of a node's name */

/* Padded with zeros; "unknown host" if there is no name. */
void dt_host_name(char out[DT_HOST_MAX]);

/* Bytes this process can still allocate within the machine and its control group; INT64_MAX if
 * unknown. `root` is "" or, in tests, a folder that holds proc and sys. */
uint64_t dt_memory_available(const char *root);

/* The memory of the machine and of this process, in bytes; 0 = unknown. `root` as above. */
struct dt_memory_use {
    uint64_t total, available, cached; /* cached: pages of files */
    uint64_t resident;                 /* of this process */
};
void dt_memory_use(struct dt_memory_use *out, const char *root);

/* Bytes that this process has read from storage, not from the page cache; 0 = unknown. */
uint64_t dt_storage_bytes_read(const char *root);

enum { DT_GROUP_MAX = 512 };

struct dt_memory_kills {
    char group[DT_GROUP_MAX]; /* boot id and control group that the count belongs to */
    int64_t n;
};

/* False if the count is not available. `root` as in dt_memory_available. */
bool dt_memory_read_kills(struct dt_memory_kills *out, const char *root);
/* The smallest limit of the control group and its ancestors; INT64_MAX if there is none. */
uint64_t dt_memory_limit(const char *root);
/* The same for the end of a sentence, " (the memory of this job is limited to 400 MB)", or "". */
const char *dt_memory_limit_text(char *out, size_t bytes, const char *root);
/* "31 MB", "1.5 GB" into out[bytes]: decimal units. */
const char *dt_memory_format(char *out, size_t bytes, uint64_t value);

/* CPUs, of which it may be a fraction, whose time the control group and its ancestors allow;
 * INFINITY if there is no limit. `root` as above. */
double dt_cpu_quota(const char *root);
/* n, or the quota, rounded up, if that is less. */
int dt_cpus_within(int n, const char *root);
int dt_cpus_allowed(void); /* CPUs of this thread's mask, within the quota */

#endif
