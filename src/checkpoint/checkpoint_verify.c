/* Verifying a checkpoint. Trusts only what the manifest confirms: a checkpoint is either good or
 * skipped. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_internal.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/snapshot.h"

enum { BLOCK_BYTES = 1 << 20 };

enum { MODEL, OPTIM, EMA, STATE, CONFIG, N_FILES };
static const struct {
    const char *name;
    bool has_tensors, is_optional;
} files[N_FILES] = {
    [MODEL] = {DT_MODEL_FILE, true, false},    [OPTIM] = {DT_OPTIM_FILE, true, false},
    [EMA] = {DT_EMA_FILE, true, true},         [STATE] = {DT_STATE_FILE, false, false},
    [CONFIG] = {DT_CONFIG_FILE, false, false},
};

/* --- Checksums --- */

struct verifying {
    const char *path; /* of the folder */
    dt_checkpoint_beat *beat;
    void *context;
    struct dt_manifest manifest;
    struct dt_manifest_file *listed[N_FILES]; /* in the manifest */
    struct dt_st_reader *tables[N_FILES];     /* of files with tensors */
    size_t block_bytes;
    char *block;
};

/* Progress of the checksums of one file. */
struct scan {
    const struct dt_manifest_file *listed;
    const struct dt_st_reader *table;
    XXH3_state_t *whole, *part; /* of the file, of the current tensor */
    uint64_t header;            /* bytes still to come before the data */
    uint64_t left;              /* bytes still to come of the tensor */
    int tensor;
};

static void begin_tensor(struct scan *scan)
{
    if (scan->tensor < scan->listed->n_tensors)
        scan->left = dt_st_get(scan->table, (size_t)scan->tensor)->bytes;
    XXH3_64bits_reset(scan->part);
}

static dt_status feed(struct scan *scan, const char *data, size_t bytes)
{
    XXH3_128bits_update(scan->whole, data, bytes);
    size_t skipped = scan->header < bytes ? (size_t)scan->header : bytes;
    scan->header -= skipped;
    data += skipped;
    bytes -= skipped;
    while (scan->header == 0 && scan->tensor < scan->listed->n_tensors) {
        size_t n = scan->left < bytes ? (size_t)scan->left : bytes;
        XXH3_64bits_update(scan->part, data, n);
        scan->left -= n;
        data += n;
        bytes -= n;
        if (scan->left > 0)
            break; /* it continues in the next block */
        const struct dt_manifest_tensor *tensor = &scan->listed->tensors[scan->tensor];
        uint64_t found = XXH3_64bits_digest(scan->part);
        if (found != tensor->hash)
            DT_FAIL(DT_ERR_DATA,
                    "tensor %s in %s is damaged: its checksum is %016" PRIx64
                    ", the manifest says %016" PRIx64,
                    tensor->name, scan->listed->name, found, tensor->hash);
        scan->tensor++;
        begin_tensor(scan);
    }
    return DT_OK;
}

static dt_status scan_file(struct verifying *verifying, struct scan *scan, int fd, const char *path)
{
    uint64_t n;
    for (uint64_t done = 0; done < scan->listed->bytes; done += n) {
        n = scan->listed->bytes - done;
        n = n < verifying->block_bytes ? n : verifying->block_bytes;
        DT_TRY(dt_file_pread(fd, verifying->block, (size_t)n, done, path));
        DT_TRY(feed(scan, verifying->block, (size_t)n));
        verifying->beat(verifying->context, n);
    }
    const struct dt_hash *hash = &scan->listed->hash;
    XXH128_hash_t found = XXH3_128bits_digest(scan->whole);
    if (found.low64 != hash->low || found.high64 != hash->high)
        DT_FAIL(DT_ERR_DATA, "%s is damaged: its checksum is not the one in the manifest",
                scan->listed->name);
    return DT_OK;
}

static dt_status check_sums(struct verifying *verifying, int file)
{
    char path[DT_PATH_MAX];
    int fd = -1;
    uint64_t bytes;
    dt_status status = DT_OK;
    struct scan scan = {.listed = verifying->listed[file],
                        .table = verifying->tables[file],
                        .whole = XXH3_createState(),
                        .part = XXH3_createState(),
                        .header = verifying->listed[file]->bytes};
    if (!scan.whole || !scan.part)
        DT_TRY_OUT(DT_ERROR(DT_ERR_MEMORY, "out of memory for checksums"));
    for (int i = 0; i < scan.listed->n_tensors; i++)
        scan.header -= dt_st_get(scan.table, (size_t)i)->bytes;
    XXH3_128bits_reset(scan.whole);
    begin_tensor(&scan);
    DT_TRY_OUT(dt_file_path(path, "%s/%s", verifying->path, scan.listed->name));
    DT_TRY_OUT(dt_file_open(&fd, &bytes, path));
    DT_TRY_OUT(scan_file(verifying, &scan, fd, path));
out:
    if (fd >= 0)
        close(fd);
    XXH3_freeState(scan.whole);
    XXH3_freeState(scan.part);
    return status;
}

/* --- Everything but the checksums --- */

static dt_status check_regular(const char *folder, const char *name, uint64_t *bytes)
{
    char path[DT_PATH_MAX];
    struct stat info;
    DT_TRY(dt_file_path(path, "%s/%s", folder, name));
    int error = lstat(path, &info) == 0 ? 0 : errno;
    if (error == ENOENT)
        DT_FAIL(DT_ERR_NO_INPUT, "%s is missing", name);
    if (error != 0)
        DT_FAIL(dt_file_input_status(error), "cannot inspect %s: %s", path,
                dt_file_problem(path, error));
    if (!S_ISREG(info.st_mode))
        DT_FAIL(DT_ERR_DATA, "%s is not a regular file", name);
    *bytes = (uint64_t)info.st_size;
    return DT_OK;
}

/* The manifest must list exactly the files of a checkpoint, with their actual sizes. */
static dt_status check_files(struct verifying *verifying)
{
    uint64_t bytes = 0;
    for (int i = 0; i < verifying->manifest.n_files; i++) {
        struct dt_manifest_file *listed = &verifying->manifest.files[i];
        int file = 0;
        while (file < N_FILES && strcmp(files[file].name, listed->name) != 0)
            file++;
        if (file == N_FILES)
            DT_FAIL(DT_ERR_DATA, "the manifest names %s, which is not a file of a checkpoint",
                    listed->name);
        verifying->listed[file] = listed;
        DT_TRY(check_regular(verifying->path, listed->name, &bytes));
        if (bytes != listed->bytes)
            DT_FAIL(DT_ERR_DATA, "%s has %" PRIu64 " bytes, the manifest says %" PRIu64,
                    listed->name, bytes, listed->bytes);
        bytes = bytes < BLOCK_BYTES ? bytes : BLOCK_BYTES;
        verifying->block_bytes =
            bytes > verifying->block_bytes ? (size_t)bytes : verifying->block_bytes;
    }
    for (int i = 0; i < N_FILES; i++)
        if (!verifying->listed[i] && !files[i].is_optional)
            DT_FAIL(DT_ERR_DATA, "the manifest does not name %s", files[i].name);
    return DT_OK;
}

/* Compares the header's table of contents with the manifest's. */
static dt_status check_table(struct verifying *verifying, int file)
{
    char path[DT_PATH_MAX];
    const struct dt_manifest_file *listed = verifying->listed[file];
    if (!files[file].has_tensors && listed->n_tensors > 0)
        DT_FAIL(DT_ERR_DATA, "the manifest has tensors in %s", listed->name);
    if (!files[file].has_tensors)
        return DT_OK;
    DT_TRY(dt_file_path(path, "%s/%s", verifying->path, listed->name));
    DT_TRY(dt_st_open(&verifying->tables[file], path));
    const struct dt_st_reader *table = verifying->tables[file];
    if (dt_st_count(table) != (size_t)listed->n_tensors)
        DT_FAIL(DT_ERR_DATA, "%s has %zu tensors, the manifest says %d", listed->name,
                dt_st_count(table), listed->n_tensors);
    for (int i = 0; i < listed->n_tensors; i++) {
        const char *name = dt_st_get(table, (size_t)i)->name;
        if (strcmp(name, listed->tensors[i].name) != 0)
            DT_FAIL(DT_ERR_DATA, "tensor %d of %s is %s, the manifest says %s", i, listed->name,
                    name, listed->tensors[i].name);
    }
    return DT_OK;
}

/* Also the scale and the shift of a frozen batch norm, which counts no batches. */
static bool is_statistic(const struct dt_st_reader *model, const char *name)
{
    static const char *const ends[] = {".running_mean", ".running_var", ".num_batches_tracked"};
    char other[DT_ST_NAME_MAX + 32];
    const char *dot = strrchr(name, '.');
    const int n_module = dot ? (int)(dot - name) : 0;
    for (size_t i = 0; dot && i < DT_COUNT(ends); i++)
        if (dot > name && strcmp(dot, ends[i]) == 0)
            return true;
    snprintf(other, sizeof other, "%.*s.running_var", n_module, name);
    const bool is_norm = dt_st_find(model, other);
    snprintf(other, sizeof other, "%.*s.num_batches_tracked", n_module, name);
    return is_norm && !dt_st_find(model, other);
}

static bool is_alike(const struct dt_st_tensor *a, const struct dt_st_tensor *b)
{
    return a->dtype == b->dtype && a->n_dims == b->n_dims &&
           memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

static bool is_state_of(const struct dt_st_tensor *state, const char *name,
                        const struct dt_st_tensor *param)
{
    size_t n = strlen(name);
    return strncmp(state->name, name, n) == 0 && state->name[n] == '.' &&
           strcmp(state->name + n + 1, param->name) == 0 && is_alike(state, param);
}

/* One state of every parameter, in the same order. *n_done: tensors of the file so far. */
static dt_status check_state_of_all(size_t *n_done, const struct verifying *verifying,
                                    const char *name)
{
    const struct dt_st_reader *model = verifying->tables[MODEL], *optim = verifying->tables[OPTIM];
    for (size_t i = 0; i < dt_st_count(model); i++) {
        const struct dt_st_tensor *param = dt_st_get(model, i);
        if (is_statistic(model, param->name))
            continue;
        if (*n_done == dt_st_count(optim) || !is_state_of(dt_st_get(optim, *n_done), name, param))
            DT_FAIL(DT_ERR_DATA, "%s does not hold the %s of %s in its place", files[OPTIM].name,
                    name, param->name);
        ++*n_done;
    }
    return DT_OK;
}

static bool has_outer_at(const struct dt_st_reader *optim, size_t i)
{
    return i < dt_st_count(optim) && strncmp(dt_st_get(optim, i)->name, "outer.", 6) == 0;
}

/* The momentum of all, for some optimizers the mean square, and with train.outer_momentum that;
 * nothing else. */
static dt_status check_states(const struct verifying *verifying)
{
    const struct dt_st_reader *optim = verifying->tables[OPTIM];
    size_t n_done = 0;
    DT_TRY(check_state_of_all(&n_done, verifying, dt_arena_name(DT_ARENA_MOMENTUM)));
    if (n_done < dt_st_count(optim) && !has_outer_at(optim, n_done))
        DT_TRY(check_state_of_all(&n_done, verifying, dt_arena_name(DT_ARENA_SQUARE)));
    if (has_outer_at(optim, n_done))
        DT_TRY(check_state_of_all(&n_done, verifying, dt_arena_name(DT_ARENA_OUTER)));
    if (n_done != dt_st_count(optim))
        DT_FAIL(DT_ERR_DATA, "%s is a state of a tensor that %s does not have",
                dt_st_get(optim, n_done)->name, files[MODEL].name);
    return DT_OK;
}

/* The moving averages, if there are any, are those of the model's tensors. */
static dt_status check_averages(const struct verifying *verifying)
{
    const struct dt_st_reader *model = verifying->tables[MODEL], *averages = verifying->tables[EMA];
    if (!averages)
        return DT_OK;
    bool same = dt_st_count(averages) == dt_st_count(model);
    for (size_t i = 0; same && i < dt_st_count(model); i++)
        same = strcmp(dt_st_get(averages, i)->name, dt_st_get(model, i)->name) == 0 &&
               is_alike(dt_st_get(averages, i), dt_st_get(model, i));
    if (!same)
        DT_FAIL(DT_ERR_DATA, "%s does not hold the tensors of %s", files[EMA].name,
                files[MODEL].name);
    return DT_OK;
}

static dt_status check_state(struct dt_checkpoint *state, const struct verifying *verifying)
{
    const struct dt_manifest *m = &verifying->manifest;
    int64_t named;
    DT_TRY(dt_checkpoint_state_load(state, verifying->path));
    if (state->step != m->step || state->epoch != m->epoch || state->batch != m->batch ||
        state->n_ranks != m->n_ranks || state->global_batch_size != m->global_batch_size)
        DT_FAIL(DT_ERR_DATA,
                "%s is of step %" PRId64 ", but the manifest is of another state, step %" PRId64,
                files[STATE].name, state->step, m->step);
    if (dt_checkpoint_folder_step(&named, verifying->path) && named != m->step)
        DT_FAIL(DT_ERR_DATA,
                "its files are of step %" PRId64 ", but the folder is named step %" PRId64, m->step,
                named);
    return DT_OK;
}

dt_status dt_checkpoint_verify_with(struct dt_checkpoint *state, const char *path,
                                    dt_checkpoint_beat *beat, void *context)
{
    struct verifying *verifying = NULL;
    struct dt_checkpoint unused;
    uint64_t bytes;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(verifying, 1));
    *verifying = (struct verifying){.path = path, .beat = beat, .context = context};
    DT_TRY_OUT(check_regular(path, dt_manifest_name, &bytes));
    DT_TRY_OUT(dt_manifest_load(&verifying->manifest, path));
    DT_TRY_OUT(check_files(verifying));
    DT_TRY_OUT(DT_NEW(verifying->block, verifying->block_bytes));
    for (int i = N_FILES - 1; i >= 0; i--) { /* small ones first */
        if (!verifying->listed[i])
            continue;
        DT_TRY_OUT(check_table(verifying, i));
        DT_TRY_OUT(check_sums(verifying, i));
    }
    DT_TRY_OUT(check_states(verifying));
    DT_TRY_OUT(check_averages(verifying));
    DT_TRY_OUT(check_state(state ? state : &unused, verifying));
out:
    for (int i = 0; i < N_FILES; i++)
        dt_st_close(verifying->tables[i]);
    dt_manifest_reset(&verifying->manifest);
    free(verifying->block);
    free(verifying);
    return status;
}

static void beat_main(void *context, uint64_t bytes)
{
    (void)context;
    (void)bytes;
    dt_pulse_beat(&dt_pulse_main);
}

dt_status dt_checkpoint_verify(struct dt_checkpoint *state, const char *path)
{
    return dt_checkpoint_verify_with(state, path, beat_main, NULL);
}

bool dt_checkpoint_is_damaged(dt_status status)
{
    return status == DT_ERR_DATA || status == DT_ERR_NO_INPUT;
}
