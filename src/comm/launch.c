/* Reads the variables that launchers set in the environment, one table per question.
 *
 * Failed launches: a launcher (srun, another MPI's mpiexec, torchrun) started several processes,
 * but each of them is an MPI world of its own because launcher and MPI do not share a protocol. A
 * row has the variable with its process count, the variable that identifies the launcher, and the
 * command to use instead. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dtrain/comm.h"

struct launcher {
    const char *count;  /* variable with the number of processes */
    const char *marker; /* variable that must be set too */
    const char *name;
    const char *advice;
};

enum { N_INNERMOST = 2 }; /* rows that hide those of the surrounding allocation */
static const struct launcher launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "the mpirun of Open MPI",
     "use the mpirun of the MPI that dtrain was built with"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun",
     "use \"srun --mpi=pmix dtrain ...\" or mpirun"},
    {"SLURM_NTASKS", "SLURM_PROCID", "srun",
     "use \"srun --mpi=pmix dtrain ...\" or mpirun (for one rank: mpirun -np 1)"},
    {"PMI_SIZE", "PMI_RANK", "the mpiexec of another MPI",
     "use the mpirun of the MPI that dtrain was built with"},
    {"WORLD_SIZE", "LOCAL_RANK", "torchrun", "use \"mpirun -np N dtrain ...\" or srun --mpi=pmix"},
};

/* The variable as a number, 0 if it is not set or not a number. */
static long env_count(const char *name)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return 0;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    return errno || *end ? 0 : value;
}

dt_status dt_comm_check_launch(int n_ranks)
{
    if (n_ranks > 1)
        return DT_OK;
    for (size_t i = 0; i < DT_COUNT(launchers); i++) {
        const struct launcher *l = &launchers[i];
        long n = getenv(l->marker) ? env_count(l->count) : 0;
        if (n > 1)
            DT_FAIL(
                DT_ERR_USAGE,
                "%s started %ld processes (%s=%ld), but MPI sees only one rank, so each process "
                "would train alone; %s",
                l->name, n, l->count, n, l->advice);
        /* One rank or a one-task job step inside a larger allocation: meant to be alone. */
        if (i < N_INNERMOST && n == 1)
            break;
    }
    return DT_OK;
}

struct dt_comm_launch dt_comm_launched(void)
{
    static const struct {
        const char *rank, *size, *local_size;
    } rows[] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
        {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", ""},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""},
    };
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        if (getenv(rows[i].rank))
            return (struct dt_comm_launch){.variable = rows[i].rank,
                                           .rank = (int)env_count(rows[i].rank),
                                           .n_ranks = (int)env_count(rows[i].size),
                                           .n_local = (int)env_count(rows[i].local_size)};
    return (struct dt_comm_launch){.variable = ""};
}

double dt_comm_keepalive_s(void)
{
    return (double)(env_count("OMPI_MCA_oob_tcp_keepalive_time") +
                    env_count("OMPI_MCA_oob_tcp_keepalive_intvl") *
                        env_count("OMPI_MCA_oob_tcp_keepalive_probes"));
}

/* The mpiexec of MPICH waits for the ranks of other nodes, and Intel's returns 255, if a rank just
 * exits. This is what MPI_Abort tells it (PMI-1); it then ends all ranks and returns the code. */
void dt_comm_exit(int code)
{
    const bool is_hydra = env_count("MPI_LOCALNRANKS") > 0;
    const long fd = is_hydra ? env_count("PMI_FD") : 0;
    if (fd > 0) {
        dt_clock_sleep(1); /* it passes on nothing that it reads later, such as an error message */
        dprintf((int)fd, "cmd=abort exitcode=%d\n", code);
        dt_clock_sleep(5);
    }
    _exit(code);
}
