#include "data/digest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/thread.h"
#include "data/dataset.h"

enum { QUICK_PIECES = 64, QUICK_BYTES = 1 << 16, BUFFER_BYTES = 1 << 20, MAX_THREADS = 8 };

struct reading {
    const struct dt_dataset *dataset;
    enum dt_digest kind;
    uint64_t *hashes;
    uint32_t n;
    _Atomic uint32_t n_done;
    double start_s;
};

uint32_t dt_digest_pieces(const struct dt_dataset *dataset, enum dt_digest kind)
{
    uint32_t n = dataset->is_view ? 0 : dataset->n_files;
    return kind == DT_DIGEST_QUICK && n > 0 ? QUICK_PIECES : n;
}

static void name_file(char out[DT_PATH_MAX], const struct dt_dataset *dataset, enum dt_digest kind,
                      uint32_t piece)
{
    uint32_t n = dataset->n_files, file = piece;
    if (kind == DT_DIGEST_QUICK)
        file = n < QUICK_PIECES ? piece % n : (uint32_t)((uint64_t)piece * n / QUICK_PIECES);
    dataset->kind->file(dataset, file, out, DT_PATH_MAX);
}

void dt_digest_describe(char out[DT_PATH_MAX + 64], const struct dt_dataset *dataset,
                        enum dt_digest kind, uint32_t piece)
{
    char path[DT_PATH_MAX];
    struct stat info;
    name_file(path, dataset, kind, piece);
    if (stat(path, &info) == 0)
        snprintf(out, DT_PATH_MAX + 64, "%s (%lld bytes)", path, (long long)info.st_size);
    else
        snprintf(out, DT_PATH_MAX + 64, "%s (missing)", path);
}

static dt_status hash_bytes(uint64_t *hash, int fd, uint64_t first, uint64_t bytes,
                            const char *path)
{
    dt_status status = DT_OK;
    char *buffer = NULL;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return DT_ERROR(DT_ERR_MEMORY, "out of memory: cannot hash %s", path);
    XXH3_64bits_reset_withSeed(state, *hash);
    DT_TRY_OUT(DT_NEW(buffer, BUFFER_BYTES));
    for (uint64_t done = 0; done < bytes;) {
        size_t n = bytes - done < BUFFER_BYTES ? (size_t)(bytes - done) : BUFFER_BYTES;
        DT_TRY_OUT(dt_file_pread(fd, buffer, n, first + done, path));
        XXH3_64bits_update(state, buffer, n);
        done += n;
        dt_pulse_beat(&dt_pulse_main); /* at the end the main thread waits for the others */
    }
    *hash = XXH3_64bits_digest(state);
out:
    XXH3_freeState(state);
    free(buffer);
    return status;
}

static dt_status hash_piece(void *context, uint32_t piece, int thread)
{
    struct reading *r = context;
    char path[DT_PATH_MAX];
    uint64_t bytes, first = 0, position;
    int fd;
    (void)thread;
    name_file(path, r->dataset, r->kind, piece);
    uint64_t *hash = &r->hashes[piece];
    dt_status status = dt_file_open(&fd, &bytes, path);
    if (status == DT_ERR_NO_INPUT || status == DT_ERR_PERMISSION) {
        dt_error_clear(); /* a bad sample, unless other machines can read it */
        *hash = XXH64(dt_file_base(path), strlen(dt_file_base(path)), UINT64_MAX);
        return DT_OK;
    }
    DT_TRY(status);
    uint64_t length = bytes;
    *hash = XXH64(dt_file_base(path), strlen(dt_file_base(path)), bytes);
    position = XXH64(&piece, sizeof piece, bytes);
    if (r->kind == DT_DIGEST_QUICK && bytes > QUICK_BYTES) {
        length = QUICK_BYTES;
        first = position % (bytes - QUICK_BYTES + 1);
    }
    status = hash_bytes(hash, fd, first, length, path);
    close(fd);
    dt_pulse_beat(&dt_pulse_main);
    dt_log_progress_of("comparing data", ++r->n_done, r->n, "files", r->start_s);
    return status;
}

dt_status dt_digest_make(uint64_t *hashes, const struct dt_dataset *dataset, enum dt_digest kind)
{
    struct reading r = {.dataset = dataset,
                        .kind = kind,
                        .hashes = hashes,
                        .n = dt_digest_pieces(dataset, kind),
                        .start_s = dt_clock_s()};
    if (r.n == 0)
        return DT_OK;
    dt_status status = dt_parallel_run(r.n, dt_parallel_threads(MAX_THREADS, r.n), hash_piece, &r);
    dt_log_progress("");
    return status;
}
