/* The run folder and the data: whether all hosts see the same ones. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "doctor/doctor.h"
#include "engine/preflight.h"

/* Pieces are written until there are enough or time is up; the fastest counts. */
enum { PIECE_BYTES = 4 << 20, MAX_PIECES = 8 };
static const double writing_s = 1;
static const double seeing_s = 5; /* as training waits: file servers may show a new file late */

/* --- The run folder --- */

/* A file with a name of its own, which no file server can have heard of before. */
static dt_status write_token(char path[DT_PATH_MAX], const struct dt_doctor *d)
{
    uint64_t token = 0;
    int fd;
    if (getrandom(&token, sizeof token, 0) != (ssize_t)sizeof token)
        DT_FAIL(DT_ERR_IO, "cannot get random numbers: %s", strerror(errno));
    DT_TRY(dt_file_path(path, "%s/.tmp-doctor-%016llx", d->folder, (unsigned long long)token));
    DT_TRY(dt_file_create(&fd, path));
    return dt_file_finish(&fd, path);
}

static dt_status look_for(const struct dt_doctor *d, const char *path)
{
    for (double begin_s = dt_clock_s(); dt_clock_s() - begin_s < seeing_s; dt_clock_sleep(0.1))
        if (access(path, F_OK) == 0)
            return DT_OK;
    DT_FAIL(DT_ERR_DISAGREE,
            "what rank 0 (%s) writes to %s is not seen here: the run folder must be on a file "
            "system that all hosts share; mount it here, or set output.dir to a folder that is",
            dt_comm_host(d->comm, 0), d->folder);
}

/* *sees: this host does. */
static dt_status check_shared(struct dt_doctor *d, bool *sees)
{
    bool all, must_see = d->rank == 0 || d->config->output.shared;
    char path[DT_PATH_MAX] = "";
    dt_status status = d->rank == 0 ? write_token(path, d) : DT_OK;
    DT_TRY(
        dt_doctor_note_all(d, DT_STAGE_FOLDER, status, "set output.dir to another folder", &all));
    DT_TRY(dt_comm_bcast(d->comm, path, sizeof path, 0));
    if (all && must_see)
        status = look_for(d, path);
    *sees = all && must_see && status == DT_OK;
    if (all)
        DT_TRY(dt_doctor_note_all(d, DT_STAGE_FOLDER, status, "", &all));
    if (d->rank == 0 && path[0])
        (void)dt_file_remove(path);
    return DT_OK;
}

/* The time that a file of that size takes until it is on the disk. */
static dt_status write_piece(const char *path, const uint8_t *bytes, double *seconds)
{
    const double begin_s = dt_clock_s();
    int fd;
    DT_TRY(dt_file_create(&fd, path));
    dt_status status = dt_file_write(fd, bytes, PIECE_BYTES, path);
    if (status == DT_OK)
        status = dt_file_finish(&fd, path);
    else
        close(fd);
    *seconds = dt_clock_s() - begin_s;
    dt_error_keep();
    (void)dt_file_remove(path);
    dt_error_restore();
    return status;
}

/* All hosts write at the same time, as a server that they share has to bear. */
static dt_status measure_writing(struct dt_doctor *d)
{
    char path[DT_PATH_MAX];
    uint8_t *bytes;
    double seconds = 1, spent_s = 0;
    d->own.disk_free_bytes = (double)dt_file_free_bytes(d->folder);
    DT_TRY(dt_file_path(path, "%s/.tmp-doctor-%d-%d", d->folder, d->rank, (int)getpid()));
    DT_TRY(DT_NEW(bytes, PIECE_BYTES));
    for (size_t i = 0; i < PIECE_BYTES; i++)
        bytes[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24); /* for disks that compress */
    dt_status status = DT_OK;
    for (int i = 0; i < MAX_PIECES && spent_s < writing_s && status == DT_OK; i++) {
        status = write_piece(path, bytes, &seconds);
        spent_s += seconds;
        d->own.write_bytes_per_s = fmax(d->own.write_bytes_per_s, PIECE_BYTES / seconds);
        dt_pulse_beat(&dt_pulse_main);
    }
    free(bytes);
    return status;
}

dt_status dt_doctor_folder(struct dt_doctor *d)
{
    bool sees;
    memcpy(d->folder, d->config->output.dir, sizeof d->folder);
    if (d->rank == 0)
        dt_file_existing(d->folder); /* the examination makes none */
    DT_TRY(dt_comm_bcast(d->comm, d->folder, sizeof d->folder, 0));
    DT_TRY(check_shared(d, &sees));
    dt_status status = sees && dt_comm_local_rank(d->comm) == 0 ? measure_writing(d) : DT_OK;
    if (status == DT_ERR_IO && d->own.disk_free_bytes < PIECE_BYTES)
        status = DT_ERR_CREATE; /* as training says it */
    dt_doctor_note(d, DT_STAGE_FOLDER, status,
                   "make room there, or set output.dir to another folder");
    return dt_comm_barrier(d->comm);
}

/* --- The data --- */

dt_status dt_doctor_data(struct dt_doctor *d)
{
    struct dt_sets_options data = {.train = true,
                                   .val = dt_config_has_validation(d->config),
                                   .is_raw = true,
                                   .may_lack = true};
    bool all;
    if (d->config->data.source != DT_SOURCE_SYNTHETIC && !d->config->data.train[0])
        return DT_OK;
    DT_TRY(dt_bench_find_index(d->config, &d->bench.engine.ranks, &data.cache_dir));
    dt_status status = dt_sets_open(&d->bench.sets, &data);
    if (status != DT_OK) {
        dt_doctor_note_alike(d, DT_STAGE_DATA, status);
        return DT_OK;
    }
    /* Rank 0 has read for all. */
    status = d->bench.engine.ranks.rank == 0 ? d->bench.sets.status : DT_OK;
    if (status != DT_OK)
        status = DT_ERROR(status, "%s", d->bench.sets.problem);
    DT_TRY(dt_doctor_note_all(d, DT_STAGE_DATA, status,
                              "all hosts need the same data under the same path", &all));
    if (all)
        dt_doctor_note_alike(d, DT_STAGE_DATA,
                             dt_preflight_agree(&d->bench.engine, &d->bench.sets));
    return DT_OK;
}
