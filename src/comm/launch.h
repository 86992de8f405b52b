/* What the environment says about how this process was started. No MPI here: testable alone. */
#ifndef DTRAIN_COMM_LAUNCH_H
#define DTRAIN_COMM_LAUNCH_H

#include "base/status.h"

/* DT_ERR_USAGE with the command to type when a launcher started several processes but MPI sees only
 * this one: n_ranks is MPI's size. Then every process would train alone. */
dt_status dt_comm_check_launch(int n_ranks);

#endif
