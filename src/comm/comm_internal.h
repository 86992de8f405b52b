/* Internals of the comm module: the communicator, the wrapper for MPI calls, the interface of a
 * data plane. */
#ifndef DTRAIN_COMM_COMM_INTERNAL_H
#define DTRAIN_COMM_COMM_INTERNAL_H

#include <mpi.h>

#include "dtrain/comm.h"

/* A way to sum gradients. plane.c checks the arguments and that the plane is open. */
struct dt_plane_ops {
    void (*describe)(char *out, size_t bytes); /* as dt_comm_describe_plane */
    /* Sets comm->reduce. Collective; ranks may return different statuses, which plane.c unifies. */
    dt_status (*open)(struct dt_comm *comm, const struct dt_comm_options *options);
    dt_status (*reduce)(struct dt_comm *comm, int reduction, void *buffer, size_t count);
    dt_status (*poll)(struct dt_comm *comm);
    dt_status (*wait)(struct dt_comm *comm, int reduction); /* NULL: nothing to wait for */
    dt_status (*exchange)(struct dt_comm *comm, void *all, size_t bytes);
    dt_status (*unite)(struct dt_comm *comm, void *words, size_t bytes); /* SLICES only */
    /* Frees comm->reduce, even if only partly constructed; not called if that is NULL. */
    void (*close)(struct dt_comm *comm);
};

/* A wait on a CPU, {0} when it begins: it first yields after every idle poll and later sleeps, so
 * that loader threads and ranks on the same CPUs make progress. A poll that has `moved` something
 * is progress for the watchdog. */
struct dt_idle {
    double since_s;
    int n_polls;
    bool is_long;
};
void dt_idle_wait(struct dt_idle *idle, bool moved);

extern const struct dt_plane_ops dt_plane_mpi;
extern const struct dt_plane_ops dt_plane_central;
extern const struct dt_plane_ops dt_plane_slices;
extern const struct dt_plane_ops dt_plane_nccl; /* only with DTRAIN_HAVE_NCCL */

struct dt_comm {
    MPI_Comm control; /* MPI_COMM_NULL until open creates it */
    MPI_Comm data;
    MPI_Comm node; /* the ranks that share memory with this one */
    int rank, size, local_rank, local_size, first_of_node;
    char (*hosts)[DT_HOST_MAX];            /* of all ranks */
    int n_allowed_cpus, n_sharing, n_cpus; /* see comm.h */
    bool is_bound;                         /* no two ranks of the node share a CPU */
    double wait_s;                         /* spent in collective calls of the control plane */
    double sent_bytes;                     /* see comm.h */
    double maxima[DT_COMM_MAXIMA]; /* of dt_comm_begin_max; on the way while request is set */
    int n_maxima;
    MPI_Request request; /* MPI_REQUEST_NULL if none */
    /* The data plane: NULL until dt_comm_open_reduce. */
    const struct dt_plane_ops *plane;
    void *reduce; /* private data of the plane */
    int n_reductions;
    size_t max_count;
    bool has_failed; /* one of its calls failed, here or (open) on another rank */
};

/* The numbers of a message on a 16-bit wire: rounded to nearest even when sent, added in fp32 when
 * received. Infinities and NaNs arrive as such, so that the step is skipped on all
 * ranks; an fp16 message makes values of 65520 or more infinite. */
struct dt_wire {
    void (*pack)(uint16_t *out, const float *in, int count);
    /* Packs in + kept, and keeps what rounding takes away: error feedback. */
    void (*pack_keeping)(uint16_t *out, const float *in, float *kept, int count);
    void (*unpack)(float *out, const uint16_t *in, int count);
    void (*add)(float *sum, const uint16_t *in, int count);
    bool keeps; /* sums use pack_keeping */
};

const struct dt_wire *dt_wire_find(enum dt_dtype type); /* NULL: not a 16-bit type */

/* control.c: DT_OK, or DT_ERR_DEVICE with the call and MPI's text recorded. */
dt_status dt_comm_mpi_status(int code, const char *call, const char *file, int line);
#define DT_MPI(call)                                                                     \
    do {                                                                                 \
        dt_status dt_mpi_status = dt_comm_mpi_status((call), #call, __FILE__, __LINE__); \
        if (dt_mpi_status != DT_OK)                                                      \
            return dt_mpi_status;                                                        \
    } while (0)

/* control.c: dt_comm_bcast among some ranks. */
dt_status dt_comm_bcast_among(struct dt_comm *comm, MPI_Comm ranks, void *data, size_t bytes,
                              int root);

/* Adds the time since begin_s to wait_s, and a span of it to the timeline. */
void dt_comm_count_wait(struct dt_comm *comm, const char *what, double begin_s);
/* DT_MPI for a call that returns only when other ranks make theirs; `what` is for the watchdog. */
#define DT_MPI_WAIT(what, call)                                                               \
    do {                                                                                      \
        double dt_mpi_begin_s = dt_clock_s();                                                 \
        dt_pulse_wait(&dt_pulse_main, (what));                                                \
        int dt_mpi_code = (call);                                                             \
        dt_pulse_go_on(&dt_pulse_main);                                                       \
        dt_comm_count_wait(comm, (what), dt_mpi_begin_s);                                     \
        dt_status dt_mpi_status = dt_comm_mpi_status(dt_mpi_code, #call, __FILE__, __LINE__); \
        if (dt_mpi_status != DT_OK)                                                           \
            return dt_mpi_status;                                                             \
    } while (0)

/* --- slices.c: what the data planes of slices share: the parts of all ranks, counted from rank 0's
 * first one on, and the additions that make one of them --- */

enum { DT_SLICE_ALIGN = 16 }; /* floats to which portions are cut */

struct dt_slice_table {
    int *n_parts; /* of every rank */
    int n;        /* of all */
    int first;    /* this rank's first part */
    int n_others; /* n without this rank's */
    struct dt_slice_join {
        int to, from;
    } * joins;   /* n - 1 additions in their order: the sum is then in part 0 */
    size_t slot; /* floats from a part of this rank to the next */
};

/* `table` starts as {0}. */
dt_status dt_slice_table_make(struct dt_slice_table *table, const struct dt_comm *comm,
                              const struct dt_comm_options *options);
void dt_slice_table_free(struct dt_slice_table *table);

/* The floats from *first on of which a rank makes the sum; their number. */
size_t dt_slice_portion(size_t *first, const struct dt_comm *comm, size_t count, int rank);

/* This rank's portion, of `count` floats from `first` on, of a part: its own are in `buffer`, the
 * others' have arrived one after the other. */
static inline float *dt_slice_values(const struct dt_slice_table *t, int part, float *buffer,
                                     float *arrived, size_t first, size_t count)
{
    const int own = t->n - t->n_others, i = part - t->first;
    if (i >= 0 && i < own)
        return buffer + (size_t)i * t->slot + first;
    return arrived + (size_t)(i < 0 ? part : part - own) * count;
}

#endif
