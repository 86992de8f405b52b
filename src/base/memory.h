/* How much memory there is, and signs that a process was killed for it: from the machine and from
 * this process's control group (v2). */
#ifndef DTRAIN_BASE_MEMORY_H
#define DTRAIN_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes this process can still get, of the machine and of its control group; INT64_MAX if unknown.
 * `root` is "" or a folder that holds proc and sys, for tests. */
uint64_t dt_memory_available(const char *root);

enum { DT_GROUP_MAX = 512 };

struct dt_memory_kills {
    char group[DT_GROUP_MAX]; /* boot id and control group, to which the count belongs */
    int64_t n;
};

/* False if the machine does not say. `root` as in dt_memory_available. */
bool dt_memory_read_kills(struct dt_memory_kills *out, const char *root);
/* The least memory.max of the control group and those around it; INT64_MAX if there is none. */
uint64_t dt_memory_limit(const char *root);
/* "31 MB", "1.5 GB" into out[bytes]: decimal units. */
const char *dt_memory_format(char *out, size_t bytes, uint64_t value);

#endif
