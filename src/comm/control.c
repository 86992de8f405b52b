/* The control plane: small collectives, agreement on a status, abort.
 *
 * Errors are returned as codes (MPI_ERRORS_RETURN, comm.c) only so that they can be reported: there
 * is no recovery, the job ends. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/trace.h"
#include "comm/comm_internal.h"

enum {
    PIECE_BYTES = 1 << 30, /* MPI counts are ints: larger broadcasts are split */
    ERROR_BYTES = 16 * 1024,
    TAG_COPY = 1,
    TAG_NOTE,
};

dt_status dt_comm_mpi_status(int code, const char *call, const char *file, int line)
{
    if (code == MPI_SUCCESS)
        return DT_OK;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        length = 0;
    text[length] = '\0';
    return dt_error_set(DT_ERR_DEVICE, file, line, "MPI failed in %s: %s (code %d)", call,
                        length ? text : "unknown error", code);
}

void dt_comm_count_wait(struct dt_comm *comm, const char *what, double begin_s)
{
    double end_s = dt_clock_s();
    comm->wait_s += end_s - begin_s;
    if (dt_trace_is_on())
        dt_trace_span("wait for ranks", "call", what, begin_s, end_s);
}

dt_status dt_comm_bcast_among(struct dt_comm *comm, MPI_Comm ranks, void *data, size_t bytes,
                              int root)
{
    for (size_t done = 0; done < bytes;) {
        size_t piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        DT_MPI_WAIT("bcast", MPI_Bcast((char *)data + done, (int)piece, MPI_BYTE, root, ranks));
        done += piece;
    }
    return DT_OK;
}

dt_status dt_comm_bcast(struct dt_comm *comm, void *data, size_t bytes, int root)
{
    return dt_comm_bcast_among(comm, comm->control, data, bytes, root);
}

dt_status dt_comm_sum_f64(struct dt_comm *comm, double *values, int count)
{
    DT_MPI_WAIT("sum",
                MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_SUM, comm->control));
    return DT_OK;
}

dt_status dt_comm_sum_f32(struct dt_comm *comm, float *values, size_t count)
{
    if (count > INT_MAX)
        DT_FAIL(DT_ERR_INTERNAL, "MPI cannot sum %zu floats at once", count);
    DT_MPI_WAIT("sum",
                MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, comm->control));
    return DT_OK;
}

dt_status dt_comm_sum_i64(struct dt_comm *comm, int64_t *values, int count)
{
    DT_MPI_WAIT("sum",
                MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_INT64_T, MPI_SUM, comm->control));
    return DT_OK;
}

dt_status dt_comm_max_f64(struct dt_comm *comm, double *values, int count)
{
    DT_MPI_WAIT("max",
                MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_MAX, comm->control));
    return DT_OK;
}

dt_status dt_comm_begin_max(struct dt_comm *comm, const double *values, int count)
{
    if (count > DT_COMM_MAXIMA || comm->request != MPI_REQUEST_NULL)
        DT_FAIL(DT_ERR_INTERNAL, "cannot begin a maximum of %d values", count);
    comm->n_maxima = count;
    memcpy(comm->maxima, values, (size_t)count * sizeof *values);
    DT_MPI(MPI_Iallreduce(MPI_IN_PLACE, comm->maxima, count, MPI_DOUBLE, MPI_MAX, comm->control,
                          &comm->request));
    return DT_OK;
}

dt_status dt_comm_end_max(struct dt_comm *comm, double *values)
{
    DT_MPI_WAIT("agree", MPI_Wait(&comm->request, MPI_STATUS_IGNORE));
    memcpy(values, comm->maxima, (size_t)comm->n_maxima * sizeof *values);
    return DT_OK;
}

double dt_comm_wait_s(const struct dt_comm *comm)
{
    return comm->wait_s;
}

dt_status dt_comm_gather(struct dt_comm *comm, void *out, const void *in, size_t bytes)
{
    if (bytes > INT_MAX)
        DT_FAIL(DT_ERR_INTERNAL, "cannot gather %zu bytes of each rank: the limit is 2 GiB", bytes);
    DT_MPI_WAIT("gather",
                MPI_Allgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, comm->control));
    return DT_OK;
}

dt_status dt_comm_copy(struct dt_comm *comm, void *data, size_t bytes, int from, int to)
{
    if (comm->rank == from && from != to)
        comm->sent_bytes += (double)bytes;
    for (size_t done = 0; from != to && done < bytes;) {
        int piece = (int)(bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES);
        char *at = (char *)data + done;
        if (comm->rank == from)
            DT_MPI_WAIT("copy", MPI_Send(at, piece, MPI_BYTE, to, TAG_COPY, comm->control));
        if (comm->rank == to)
            DT_MPI_WAIT("copy", MPI_Recv(at, piece, MPI_BYTE, from, TAG_COPY, comm->control,
                                         MPI_STATUS_IGNORE));
        done += (size_t)piece;
    }
    return DT_OK;
}

dt_status dt_comm_send_note(struct dt_comm *comm, int64_t note, int to)
{
    DT_MPI_WAIT("note", MPI_Send(&note, 1, MPI_INT64_T, to, TAG_NOTE, comm->control));
    return DT_OK;
}

/* Leaves the CPU to the ranks that compute. */
static int take_note(struct dt_comm *comm, int64_t *note, int *from)
{
    MPI_Status status;
    int has_come = 0;
    int code = MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTE, comm->control, &has_come, &status);
    while (code == MPI_SUCCESS && !has_come) {
        dt_clock_sleep(5e-5);
        code = MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTE, comm->control, &has_come, &status);
    }
    if (code != MPI_SUCCESS)
        return code;
    *from = status.MPI_SOURCE;
    return MPI_Recv(note, 1, MPI_INT64_T, *from, TAG_NOTE, comm->control, &status);
}

dt_status dt_comm_take_note(struct dt_comm *comm, int64_t *note, int *from)
{
    DT_MPI_WAIT("note", take_note(comm, note, from));
    return DT_OK;
}

dt_status dt_comm_clock(struct dt_comm *comm, double *offset_s, double *error_s)
{
    enum { ROUND_TRIPS = 32 };
    double best[] = {0, 0}; /* offset, error */
    for (int r = 1; r < comm->size; r++) {
        double found[] = {0, INFINITY};
        for (int i = 0; i < ROUND_TRIPS; i++) {
            double sent_s = dt_clock_s(), there_s = sent_s;
            DT_TRY(dt_comm_copy(comm, &there_s, sizeof there_s, 0, r));
            there_s = dt_clock_s();
            DT_TRY(dt_comm_copy(comm, &there_s, sizeof there_s, r, 0));
            double half_s = (dt_clock_s() - sent_s) / 2;
            if (half_s < found[1]) {
                found[0] = sent_s + half_s - there_s;
                found[1] = half_s;
            }
        }
        DT_TRY(dt_comm_copy(comm, found, sizeof found, 0, r));
        if (r == comm->rank)
            memcpy(best, found, sizeof best);
    }
    *offset_s = best[0];
    *error_s = best[1];
    return DT_OK;
}

dt_status dt_comm_find_same(struct dt_comm *comm, const char *identity, size_t bytes, int *peer)
{
    *peer = -1;
    char *identities;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(identities, (size_t)comm->size * bytes));
    DT_TRY_OUT(dt_comm_gather(comm, identities, identity, bytes));
    for (int r = 0; r < comm->size && identity[0] && *peer < 0; r++)
        if (r != comm->rank && strncmp(identities + (size_t)r * bytes, identity, bytes) == 0)
            *peer = r;
out:
    free(identities);
    return status;
}

dt_status dt_comm_barrier(struct dt_comm *comm)
{
    DT_MPI_WAIT("barrier", MPI_Barrier(comm->control));
    return DT_OK;
}

static int rest(struct dt_comm *comm)
{
    MPI_Request request;
    int is_done = 0, code = MPI_Ibarrier(comm->control, &request);
    while (code == MPI_SUCCESS && !is_done) {
        code = MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
        if (!is_done)
            dt_clock_sleep(0.001);
    }
    return code;
}

dt_status dt_comm_rest(struct dt_comm *comm)
{
    DT_MPI_WAIT("rest", rest(comm));
    return DT_OK;
}

dt_status dt_comm_agree(struct dt_comm *comm, dt_status status)
{
    int first = status == DT_OK ? comm->size : comm->rank;
    DT_MPI_WAIT("agree", MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm->control));
    if (first == comm->size)
        return DT_OK;

    struct {
        int32_t status;
        char text[ERROR_BYTES];
    } message = {.status = (int32_t)status};
    if (comm->rank == first)
        strncpy(message.text, dt_error_text(), sizeof message.text - 1);
    DT_MPI_WAIT("agree", MPI_Bcast(&message, (int)sizeof message, MPI_BYTE, first, comm->control));
    if (comm->rank != first) /* the failing rank keeps its own text and trail */
        status = DT_ERROR((dt_status)message.status, "%s", message.text);
    dt_error_set_origin(first);
    return status;
}

void dt_comm_abort(struct dt_comm *comm, dt_status status)
{
    MPI_Abort(comm ? comm->control : MPI_COMM_WORLD, (int)status);
    _exit((int)status);
}
