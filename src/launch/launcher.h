/* The command line of the MPI launcher that is there. */
#ifndef DTRAIN_LAUNCH_LAUNCHER_H
#define DTRAIN_LAUNCH_LAUNCHER_H

#include "launch/hosts.h"
#include "launch/launch.h"
#include "launch/process.h"

struct dt_launcher;
/* Of what DTRAIN_MPIRUN names, else of mpirun, else of srun in a job of Slurm. DT_ERR_NO_INPUT. */
dt_status dt_launcher_find(const struct dt_launcher **out);
/* Whether it may wait in a queue before it starts the ranks. */
bool dt_launcher_queues(const struct dt_launcher *launcher);
/* The whole command line for n_ranks ranks of dtrain, and in the environment what goes with it. */
dt_status dt_launcher_command(struct dt_words *out, const struct dt_launcher *launcher,
                              const struct dt_launch_options *options,
                              const struct dt_launch_hosts *hosts, int n_ranks);

#endif
