/* Checks how this process was launched, from the environment. Uses no MPI, so it can be tested
 * without. */
#ifndef DTRAIN_COMM_LAUNCH_H
#define DTRAIN_COMM_LAUNCH_H

#include "base/status.h"

/* DT_ERR_USAGE with the command to type if a launcher started several processes but MPI sees only
 * this one (n_ranks is MPI's size), so that every process would train alone. */
dt_status dt_comm_check_launch(int n_ranks);

#endif
