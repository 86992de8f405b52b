/* One fixed-size beat per rank. */
#include "watch/heartbeat.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/pulse.h"

static const char magic[8] = {'d', 't', 'b', 'e', 'a', 't', '0', '1'};
enum { MAX_RANKS = 1 << 16 };

_Static_assert(sizeof(struct dt_heartbeat) == 256, "a beat has a fixed size and no padding");

static uint64_t checksum(const struct dt_heartbeat *beat)
{
    return XXH3_64bits(beat, offsetof(struct dt_heartbeat, checksum));
}

dt_status dt_heartbeat_path(char *path, const char *dir)
{
    return dt_file_path(path, "%s/heartbeat.bin", dir);
}

/* Writes the chosen ones of n beats. */
static dt_status write_beats(const char *path, const struct dt_heartbeat *beats, const bool *chosen,
                             int n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0)
        DT_FAIL(DT_ERR_IO, "cannot open %s for writing: %s", path, strerror(errno));
    int error = 0;
    for (int i = 0; i < n && error == 0; i++) {
        if (!chosen[i])
            continue;
        const ssize_t done =
            pwrite(fd, &beats[i], sizeof *beats, beats[i].rank * (off_t)sizeof *beats);
        error = done < 0 ? errno : done != (ssize_t)sizeof *beats ? ENOSPC : 0;
    }
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error != 0)
        DT_FAIL(DT_ERR_IO, "cannot write %s: %s", path, strerror(error));
    return DT_OK;
}

dt_status dt_heartbeat_write(const char *path, struct dt_heartbeat *beat)
{
    const bool chosen = true;
    memcpy(beat->magic, magic, sizeof magic);
    beat->checksum = checksum(beat);
    return write_beats(path, beat, &chosen, 1);
}

dt_status dt_heartbeat_read(const char *path, int64_t start_id, struct dt_heartbeat *beats,
                            bool *valid, int n_ranks)
{
    int fd;
    uint64_t bytes;
    dt_status status = DT_OK;
    memset(valid, 0, (size_t)n_ranks * sizeof *valid);
    DT_TRY(dt_file_open(&fd, &bytes, path));
    uint64_t n_there = bytes / sizeof *beats;
    int n = n_there < (uint64_t)n_ranks ? (int)n_there : n_ranks;
    DT_TRY_OUT(dt_file_pread(fd, beats, (size_t)n * sizeof *beats, 0, path));
    for (int r = 0; r < n; r++)
        valid[r] = memcmp(beats[r].magic, magic, sizeof magic) == 0 &&
                   beats[r].checksum == checksum(&beats[r]) && beats[r].rank == r &&
                   (start_id < 0 || beats[r].start_id == start_id);
out:
    close(fd);
    return status;
}

dt_status dt_heartbeat_merge(const char *const paths[2], int64_t start_id, int n_ranks)
{
    struct dt_heartbeat *beats[2] = {NULL};
    bool *valid[2] = {NULL};
    int n_newer[2] = {0};
    const double begin_s = dt_clock_s(), late_s = 5;
    dt_status status = DT_OK;
    for (int i = 0; i < 2; i++) {
        DT_TRY_OUT(DT_NEW(beats[i], (size_t)n_ranks));
        DT_TRY_OUT(DT_NEW(valid[i], (size_t)n_ranks));
        DT_TRY_OUT(dt_heartbeat_read(paths[i], start_id, beats[i], valid[i], n_ranks));
    }
    for (int r = 0; r < n_ranks; r++) {
        const bool both = valid[0][r] && valid[1][r];
        for (int i = 0; i < 2; i++) {
            valid[i][r] &= !both || beats[i][r].beat > beats[1 - i][r].beat;
            n_newer[i] += valid[i][r];
        }
    }
    /* Reading may take long: another rank may have relayed meanwhile, and its beats are newer. */
    for (int i = 0; i < 2 && dt_clock_s() - begin_s < late_s; i++)
        if (n_newer[i] > 0)
            DT_TRY_OUT(write_beats(paths[1 - i], beats[i], valid[i], n_ranks));
out:
    for (int i = 0; i < 2; i++) {
        free(valid[i]);
        free(beats[i]);
    }
    return status;
}

dt_status dt_heartbeat_find_first(const char *dir, int64_t start_id, const struct dt_comm *comm)
{
    const double patience_s = 5, until_s = dt_clock_s() + patience_s;
    const int rank = dt_comm_rank(comm);
    char path[DT_PATH_MAX];
    struct dt_heartbeat beat;
    bool is_there = false;
    DT_TRY(dt_heartbeat_path(path, dir));
    while (dt_heartbeat_read(path, start_id, &beat, &is_there, 1), !is_there) {
        if (dt_clock_s() > until_s)
            DT_FAIL(DT_ERR_DISAGREE,
                    "rank %d (%s) does not see the run folder of rank 0 (%s), %s: put it on a file "
                    "system that all nodes share, or set output.shared=false",
                    rank, dt_comm_host(comm, rank), dt_comm_host(comm, 0), dir);
        dt_clock_sleep(0.2);
        dt_pulse_beat(&dt_pulse_main);
    }
    return DT_OK;
}

/* An earlier start with more ranks has left beats behind those of the last start: only beats with
 * the start_id of the first intact one count. */
static int64_t last_step(const struct dt_heartbeat *beats, const bool *valid, int n)
{
    int64_t step = -1;
    int first = 0;
    while (first < n && !valid[first])
        first++;
    for (int r = first; r < n; r++)
        if (valid[r] && beats[r].start_id == beats[first].start_id && beats[r].main.step > step)
            step = beats[r].main.step;
    return step;
}

/* Returns how many there are; the caller frees both. */
static int read_all(struct dt_heartbeat **beats, bool **valid, const char *dir)
{
    char path[DT_PATH_MAX];
    int fd;
    uint64_t bytes;
    *beats = NULL;
    *valid = NULL;
    if (dt_heartbeat_path(path, dir) != DT_OK || dt_file_open(&fd, &bytes, path) != DT_OK)
        return 0;
    close(fd);
    const uint64_t n_there = bytes / sizeof **beats;
    const int n = n_there < MAX_RANKS ? (int)n_there : MAX_RANKS;
    const bool is_read = DT_NEW(*beats, (size_t)n + 1) == DT_OK &&
                         DT_NEW(*valid, (size_t)n + 1) == DT_OK &&
                         dt_heartbeat_read(path, -1, *beats, *valid, n) == DT_OK;
    return is_read ? n : 0;
}

int64_t dt_heartbeat_last_step(const char *dir)
{
    struct dt_heartbeat *beats;
    bool *valid;
    const int n = read_all(&beats, &valid, dir);
    const int64_t step = last_step(beats, valid, n);
    free(valid);
    free(beats);
    return step;
}

double dt_heartbeat_period_s(int n_ranks)
{
    static const double normal_s = 1, longest_s = 5, ranks_per_s = 64;
    return fmin(fmax(normal_s, n_ranks / ranks_per_s), longest_s);
}

bool dt_heartbeat_have_left(const char *dir)
{
    struct dt_heartbeat *beats;
    bool *valid, have_left = true;
    const int n = read_all(&beats, &valid, dir);
    for (int r = 0; r < n; r++)
        have_left &= !valid[r] || (beats[r].flags & DT_HEARTBEAT_HAS_LEFT);
    free(valid);
    free(beats);
    return have_left;
}
