/* The interface between ranks: a control plane (always MPI, src/comm/comm.c) and a data plane that
 * sums gradients while the backward pass runs (src/comm/mpi.c). Main thread only. */
#ifndef DTRAIN_COMM_H
#define DTRAIN_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dtrain/status.h"

struct dt_comm;

struct dt_comm_options {
    bool ring;        /* ring in a fixed order, the same bits in every run; else MPI's choice */
    int n_slots;      /* reductions that can be under way at once: the number of buckets */
    size_t max_count; /* largest count of a reduction, in floats */
};

/* --- Control plane. Collective unless said otherwise. --- */

/* MPI_Init_thread and what can be known of the launch. Detects srun singletons (SLURM_NTASKS > 1
 * with one rank) and fails with DT_ERR_USAGE and the command to type. One rank without mpirun
 * works. */
dt_status dt_comm_open(struct dt_comm **comm, int *argc, char ***argv);
void dt_comm_close(struct dt_comm *comm); /* MPI_Finalize; accepts NULL */
int dt_comm_rank(const struct dt_comm *comm);
int dt_comm_size(const struct dt_comm *comm);
int dt_comm_local_rank(const struct dt_comm *comm); /* on this node */
int dt_comm_local_size(const struct dt_comm *comm);
int dt_comm_allowed_cpus(const struct dt_comm *comm); /* sched_getaffinity of this rank; local */
/* True if the ranks of this node are bound to different CPUs; else they share them. */
bool dt_comm_is_bound(const struct dt_comm *comm);

dt_status dt_comm_bcast(struct dt_comm *comm, void *data, size_t bytes, int root);
dt_status dt_comm_sum_f64(struct dt_comm *comm, double *values,
                          int count); /* in place, all ranks */
dt_status dt_comm_sum_i64(struct dt_comm *comm, int64_t *values, int count);
dt_status dt_comm_max_f64(struct dt_comm *comm, double *values, int count);
dt_status dt_comm_sum_f32(struct dt_comm *comm, float *values, size_t count); /* fixed order */
/* Gathers `bytes` of each rank on all ranks: out has size * bytes. */
dt_status dt_comm_gather(struct dt_comm *comm, void *out, const void *in, size_t bytes);
dt_status dt_comm_barrier(struct dt_comm *comm);
/* Ends a phase: every rank passes its own status and all return the same one: DT_OK, or the status
 * of the lowest failing rank. The error text of that rank becomes the error text everywhere;
 * *origin (may be NULL) says which rank it was, so that only that one message is printed. */
dt_status dt_comm_agree(struct dt_comm *comm, dt_status status, int *origin);
/* Ends the job of all ranks at once, for a failure in the middle of a step. Local, does not return.
 */
void dt_comm_abort(struct dt_comm *comm, dt_status status) __attribute__((noreturn));

/* --- Data plane: sums of fp32 over all ranks, in place. --- */

/* Collective. Allocates what reductions need; after it nothing is allocated. */
dt_status dt_comm_open_reduce(struct dt_comm *comm, const struct dt_comm_options *options);
/* Starts the sum of buffer[0 .. count) in `slot` and returns at once. The buffer must stay
 * untouched until dt_comm_wait. All ranks start slots in the same order. */
dt_status dt_comm_reduce(struct dt_comm *comm, int slot, float *buffer, size_t count);
/* Moves reductions on without blocking; called between steps of the plan. */
dt_status dt_comm_poll(struct dt_comm *comm);
dt_status dt_comm_wait(struct dt_comm *comm, int slot);
/* Warns (once, from rank 0 of a node) when threads > CPUs this rank may use, or when binding leaves
 * CPUs of the job idle. Local. */
void dt_comm_check_binding(const struct dt_comm *comm, int threads);

#endif
