/* dtrain --version: for people a line, for programs what this build is and which files it reads. */
#include <stdio.h>

#include "base/build.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "engine/devices.h"

dt_status dt_version_print(const char *json)
{
    struct dt_jsonw w = {.pretty = true};
    char mpi[128], nccl[128];
    if (!json) {
        printf("dtrain %s\n", dt_version);
        return DT_OK;
    }
    dt_comm_describe_plane(DT_PLANE_MPI, mpi, sizeof mpi);
    dt_comm_describe_plane(DT_PLANE_NCCL, nccl, sizeof nccl);
    dt_jsonw_add(&w, "{dtrain: %s, date: %s, build: %s, config_format: %d, checkpoint_format: %d",
                 dt_version, dt_version_date, dt_build_id(), DT_CONFIG_FORMAT,
                 DT_CHECKPOINT_FORMAT);
    dt_jsonw_add(&w, "cuda: %hhd, mpi: %s, nccl: %s}", dt_devices_has_cuda(), mpi, nccl);
    return dt_jsonw_save(&w, json);
}
