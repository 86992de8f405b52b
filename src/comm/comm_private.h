/* Inside the comm module: the communicator and the wrapper around MPI calls. */
#ifndef DTRAIN_COMM_PRIVATE_H
#define DTRAIN_COMM_PRIVATE_H

#include <mpi.h>

#include "dtrain/comm.h"

struct dt_reduce; /* the data plane, mpi.c */

struct dt_comm {
    MPI_Comm control; /* MPI_COMM_NULL until open has made it */
    MPI_Comm data;
    MPI_Comm node; /* the ranks that share memory with this one */
    int rank, size, local_rank, local_size;
    int n_allowed_cpus;
    bool is_bound;
    struct dt_reduce *reduce; /* NULL until dt_comm_open_reduce */
};

/* DT_OK, or DT_ERR_DEVICE with the call and MPI's text recorded. */
dt_status dt_comm_mpi_status(int code, const char *call, const char *file, int line);
#define DT_MPI(call)                                                                     \
    do {                                                                                 \
        dt_status dt_mpi_status = dt_comm_mpi_status((call), #call, __FILE__, __LINE__); \
        if (dt_mpi_status != DT_OK)                                                      \
            return dt_mpi_status;                                                        \
    } while (0)

/* Frees the data plane; accepts a comm without one. */
void dt_comm_close_reduce(struct dt_comm *comm);

/* Fills n_allowed_cpus and is_bound (binding.c). Collective on `node`. */
dt_status dt_comm_find_binding(struct dt_comm *comm);

#endif
