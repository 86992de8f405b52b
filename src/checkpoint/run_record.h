/* The text of <run folder>/RUN. Its last member is a checksum of the others, so that a damaged file
 * is found out. */
#ifndef DTRAIN_CHECKPOINT_RUN_RECORD_H
#define DTRAIN_CHECKPOINT_RUN_RECORD_H

#include "base/memory.h"
#include "checkpoint/manifest.h"
#include "dtrain/comm.h"

struct dt_run_record {
    char run_id[DT_ID_MAX];
    int64_t incarnation;
    bool is_running;
    int exit_code; /* of a run that has ended, and its steps */
    int64_t step;
    char host[DT_HOST_MAX]; /* of rank 0 */
    int64_t pid;
    struct dt_memory_kills kills; /* at its start; group "" = unknown */
};

/* DT_ERR_NO_INPUT if it is missing, DT_ERR_DATA for anything that is not as save has written it. */
dt_status dt_run_record_load(struct dt_run_record *record, const char *path);
dt_status dt_run_record_save(const char *path, const struct dt_run_record *record);

#endif
