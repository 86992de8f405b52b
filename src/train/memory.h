/* Signs that a process was killed for memory: the count of such kills in its control group (v2). */
#ifndef DTRAIN_TRAIN_MEMORY_H
#define DTRAIN_TRAIN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
