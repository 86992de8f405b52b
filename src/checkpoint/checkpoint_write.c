/* Writing checkpoints. The order of the calls is the protocol: every step relies on the durability
 * of the ones before it, and older checkpoints are not touched until the new one is durable. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/host.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_internal.h"
#include "checkpoint/snapshot.h"

enum { BLOCK_BYTES = 1 << 20 }; /* between two beats */

/* The folder that already has the name of the new checkpoint. */
enum present { ABSENT, DAMAGED, SAME, OTHER };

struct save {
    const struct dt_checkpoint_target *target;
    const struct dt_snapshot *snapshot;
    const struct dt_checkpoint *state;
    char *path;
    char temporary[DT_PATH_MAX];
    enum present present;
    bool is_temporary; /* the temporary folder belongs to this attempt alone */
    struct dt_manifest manifest;
};

/* --- Files --- */

struct piece {
    const void *data;
    uint64_t bytes;
};

static dt_status write_piece(int fd, const struct piece *piece, XXH3_state_t *hash,
                             const char *path)
{
    const char *data = piece->data;
    for (uint64_t done = 0, n; done < piece->bytes; done += n) {
        n = piece->bytes - done < BLOCK_BYTES ? piece->bytes - done : BLOCK_BYTES;
        XXH3_128bits_update(hash, data + done, (size_t)n);
        DT_TRY(dt_file_write(fd, data + done, (size_t)n, path));
        dt_pulse_beat(&dt_pulse_writer);
    }
    return DT_OK;
}

/* Writes a file of the temporary folder; name, size and hash go to *file. */
static dt_status write_file(const struct save *s, struct dt_manifest_file *file, const char *name,
                            const struct piece *pieces, int n_pieces)
{
    char path[DT_PATH_MAX];
    int fd = -1;
    dt_status status = DT_OK;
    XXH3_state_t *hash = XXH3_createState();
    if (!hash || XXH3_128bits_reset(hash) != XXH_OK)
        DT_TRY_OUT(DT_ERROR(DT_ERR_MEMORY, "out of memory for the checksum of %s", name));
    DT_TRY_OUT(dt_file_path(path, "%s/%s", s->temporary, name));
    DT_TRY_OUT(dt_file_create(&fd, path));
    for (int i = 0; i < n_pieces; i++) {
        DT_TRY_OUT(write_piece(fd, &pieces[i], hash, path));
        file->bytes += pieces[i].bytes;
    }
    DT_TRY_OUT(dt_file_finish(&fd, path));
    dt_pulse_beat(&dt_pulse_writer);
    XXH128_hash_t sum = XXH3_128bits_digest(hash);
    file->hash = (struct dt_hash){.low = sum.low64, .high = sum.high64};
    snprintf(file->name, sizeof file->name, "%s", name);
out:
    if (fd >= 0)
        close(fd);
    XXH3_freeState(hash);
    return status;
}

static dt_status write_tensors(struct save *s, const char *name, enum dt_snapshot_file which)
{
    int n;
    struct piece data;
    char *text = NULL;
    size_t bytes = 0;
    const struct dt_st_tensor *tensors = dt_snapshot_tensors(s->snapshot, which, &n);
    struct dt_manifest_file *file = &s->manifest.files[s->manifest.n_files++];
    data.data = dt_snapshot_data(s->snapshot, which, &data.bytes);
    DT_TRY(DT_NEW(file->tensors, (size_t)n));
    file->n_tensors = n;
    for (int i = 0; i < n; i++) {
        const struct dt_st_tensor *t = &tensors[i];
        memcpy(file->tensors[i].name, t->name, sizeof t->name);
        file->tensors[i].hash = XXH3_64bits((const char *)data.data + t->offset, (size_t)t->bytes);
        dt_pulse_beat(&dt_pulse_writer);
    }
    DT_TRY(dt_st_head(&text, &bytes, tensors, (size_t)n,
                      which == DT_SNAPSHOT_OPTIM ? NULL : s->target->classes, NULL));
    const struct piece pieces[] = {{.data = text, .bytes = bytes}, data};
    dt_status status = write_file(s, file, name, pieces, DT_COUNT(pieces));
    free(text);
    return status;
}

static dt_status write_text(struct save *s, const char *name, const char *text, size_t bytes)
{
    struct dt_manifest_file *file = &s->manifest.files[s->manifest.n_files++];
    return write_file(s, file, name, &(struct piece){.data = text, .bytes = bytes}, 1);
}

static dt_status write_state(struct save *s)
{
    struct dt_jsonw w = {0};
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_checkpoint_state_print(&w, s->state));
    DT_TRY_OUT(write_text(s, "state.json", w.text, w.bytes));
out:
    dt_jsonw_reset(&w);
    return status;
}

static dt_status write_manifest(const struct save *s)
{
    struct dt_jsonw w = {0};
    struct dt_manifest_file itself = {0};
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_manifest_print(&w, &s->manifest));
    DT_TRY_OUT(write_file(s, &itself, dt_manifest_name,
                          &(struct piece){.data = w.text, .bytes = w.bytes}, 1));
out:
    dt_jsonw_reset(&w);
    return status;
}

static dt_status write_folder(struct save *s)
{
    const char *config = s->target->config_json;
    int n_averages;
    dt_snapshot_tensors(s->snapshot, DT_SNAPSHOT_EMA, &n_averages);
    DT_TRY(dt_file_remove_folder(s->temporary));
    DT_TRY(dt_file_add_folder(s->temporary));
    DT_TRY(write_tensors(s, DT_MODEL_FILE, DT_SNAPSHOT_MODEL));
    DT_TRY(write_tensors(s, DT_OPTIM_FILE, DT_SNAPSHOT_OPTIM));
    if (n_averages > 0)
        DT_TRY(write_tensors(s, DT_EMA_FILE, DT_SNAPSHOT_EMA));
    DT_TRY(write_state(s));
    DT_TRY(write_text(s, "config.json", config, strlen(config)));
    DT_TRY(write_manifest(s));
    return dt_file_sync_folder(s->temporary);
}

/* --- Folders --- */

static dt_status move_to_trash(const char *dir, int64_t step)
{
    char path[DT_PATH_MAX], trash[DT_PATH_MAX];
    DT_TRY(dt_checkpoint_path(path, dir, step));
    DT_TRY(dt_file_path(trash, "%s/.trash-step-%09" PRId64, dir, step));
    DT_TRY(dt_file_remove_folder(trash));
    return dt_file_rename(path, trash);
}

static void beat(void *context, uint64_t bytes)
{
    (void)context;
    (void)bytes;
    dt_pulse_beat(&dt_pulse_writer);
}

static bool names_best(const struct dt_checkpoint *state, const int64_t *steps, int n_steps)
{
    for (int i = 0; i < n_steps; i++)
        if (steps[i] == state->best.step)
            return true;
    return false;
}

/* The step of the best existing checkpoint, -1 = none. The save of the best state may have failed:
 * the previous best, which older checkpoints name, is kept until a better one is saved. */
static int64_t find_best(const struct save *s, const int64_t *steps, int n_steps)
{
    char path[DT_PATH_MAX];
    struct dt_checkpoint state;
    if (!s->target->config.keep_best || s->state->best.step < 0)
        return -1;
    if (names_best(s->state, steps, n_steps))
        return s->state->best.step;
    for (int i = 0; i < n_steps; i++)
        if (steps[i] < s->state->step &&
            dt_checkpoint_path(path, s->target->dir, steps[i]) == DT_OK &&
            dt_checkpoint_state_load(&state, path) == DT_OK && names_best(&state, steps, n_steps))
            return state.best.step;
    return -1;
}

/* DT_OK for one that is good as far as known: it is not newer than the one that the run resumed
 * from, or this incarnation wrote it. Others were rejected at the start and are verified again. */
static dt_status check_own(const struct save *s, int64_t step)
{
    char path[DT_PATH_MAX];
    struct dt_manifest m;
    if (step <= s->target->resumed_step)
        return DT_OK;
    DT_TRY(dt_checkpoint_path(path, s->target->dir, step));
    const bool is_own = dt_manifest_load(&m, path) == DT_OK &&
                        strcmp(m.run_id, s->target->run_id) == 0 &&
                        m.incarnation == s->target->incarnation;
    dt_manifest_reset(&m);
    return is_own ? DT_OK : dt_checkpoint_verify_with(NULL, path, beat, NULL);
}

static void point_link(const struct save *s, const char *name, int64_t step)
{
    char path[DT_PATH_MAX], target[64];
    snprintf(target, sizeof target, "step-%09" PRId64, step);
    if (dt_file_path(path, "%s/%s", s->target->dir, name) != DT_OK ||
        dt_file_link(path, target) != DT_OK)
        dt_log(DT_LOG_WARNING, "%s; this link is only a hint", dt_error_text());
}

/* Damaged checkpoints are removed and unreadable ones kept; neither counts towards keep. The new
 * one is durable, so nothing here can fail the save. */
static void retire_old(const struct save *s)
{
    const char *dir = s->target->dir;
    const struct dt_config_checkpoint *config = &s->target->config;
    int64_t *steps = NULL;
    int n_steps = 0, n_newer = 0, n_moved = 0;
    dt_status status = dt_checkpoint_list(&steps, &n_steps, dir);
    int64_t best_step = status == DT_OK ? find_best(s, steps, n_steps) : -1;
    if (best_step >= 0)
        point_link(s, "best", best_step);
    for (int i = 0; i < n_steps && status == DT_OK; i++) {
        if (steps[i] >= s->state->step)
            continue;
        dt_status found = check_own(s, steps[i]);
        bool is_kept = found == DT_OK ? ++n_newer < config->keep || steps[i] == best_step
                                      : !dt_checkpoint_is_damaged(found);
        if (found == DT_OK && config->keep_every > 0)
            is_kept = is_kept || steps[i] % config->keep_every == 0;
        if (!is_kept)
            status = move_to_trash(dir, steps[i]);
        n_moved += !is_kept;
    }
    if (status == DT_OK && n_moved > 0)
        status = dt_file_sync_folder(dir);
    free(steps);
    if (status == DT_OK)
        dt_checkpoint_empty_trash(dir);
    else
        dt_log(DT_LOG_WARNING, "old checkpoints were not removed: %s", dt_error_text());
}

/* --- The protocol --- */

static bool is_same_best(const struct dt_best *a, const struct dt_best *b)
{
    return a->step == b->step && (a->step < 0 || (a->metric == b->metric && a->value == b->value));
}

/* Compares what may differ if a step is saved twice, as after an evaluation cut short by a stop. */
static bool is_same(const struct dt_checkpoint *a, const struct dt_checkpoint *b)
{
    return a->eval_due == b->eval_due && is_same_best(&a->best, &b->best) &&
           is_same_best(&a->goal, &b->goal) && a->goal_waits == b->goal_waits &&
           a->n_updates == b->n_updates && a->loss_scale.scale == b->loss_scale.scale &&
           a->loss_scale.n_clean == b->loss_scale.n_clean;
}

/* A checkpoint that cannot be read may be good, so it stays and this save fails. */
static dt_status look(struct save *s)
{
    struct dt_checkpoint found;
    s->present = ABSENT;
    if (!dt_file_exists(s->path))
        return DT_OK;
    dt_status status = dt_checkpoint_verify_with(&found, s->path, beat, NULL);
    if (status != DT_OK && !dt_checkpoint_is_damaged(status))
        return dt_error_pass(status, __func__, __FILE__, __LINE__);
    s->present = status != DT_OK ? DAMAGED : is_same(&found, s->state) ? SAME : OTHER;
    return DT_OK;
}

/* The last moment at which the save may still be given up: may_commit finds a run folder that is
 * lost or that another job has taken over. One rename makes the checkpoint visible. */
static dt_status publish(struct save *s)
{
    const struct dt_checkpoint_target *target = s->target;
    bool done;
    if (target->may_commit)
        DT_TRY(target->may_commit(target->context));
    if (s->present == DAMAGED)
        DT_TRY(move_to_trash(target->dir, s->state->step));
    if (s->present != OTHER)
        return dt_file_rename(s->temporary, s->path);
    DT_TRY(dt_file_exchange(&done, s->temporary, s->path));
    s->is_temporary = !done; /* it now holds the previous one, which may be the durable one */
    if (!done)
        dt_log(DT_LOG_WARNING,
               "%s was not updated with the last evaluation: its file system cannot exchange "
               "folders",
               s->path);
    return DT_OK;
}

static void remove_temporary(const struct save *s)
{
    if (dt_file_remove_folder(s->temporary) != DT_OK)
        dt_log(DT_LOG_WARNING, "%s", dt_error_text());
}

/* Every call needs the ones before it to be durable. The files are synced before the rename, so a
 * crash leaves either a .tmp- folder or a complete checkpoint. The rename is synced before anything
 * old is touched: until then the old checkpoint may be the only one on the disk, in an exchange
 * even the one in the temporary folder. The links and the removal come last and cannot fail the
 * save. */
static dt_status save_checkpoint(struct save *s)
{
    const char *dir = s->target->dir;
    DT_TRY(dt_file_add_folder(dir));
    DT_TRY(look(s));
    if (s->present != SAME) {
        s->is_temporary = true;
        DT_TRY(write_folder(s));
        DT_TRY(publish(s));
    }
    DT_TRY(dt_file_sync_folder(dir));
    if (s->present == SAME || s->present == OTHER)
        remove_temporary(s); /* the previous one: only once the exchange is durable */
    point_link(s, "latest", s->state->step);
    retire_old(s);
    dt_error_clear();
    return DT_OK;
}

/* When a disk or a quota is full, the text also says how much is needed and free. */
static dt_status give_up(const struct save *s, dt_status why)
{
    char problem[DT_PATH_MAX + 512], space[128] = "", needed[32], there[32];
    uint64_t free_bytes = dt_file_free_bytes(s->target->dir);
    snprintf(problem, sizeof problem, "%s", dt_error_text());
    if (s->is_temporary)
        remove_temporary(s);
    dt_memory_format(needed, sizeof needed, dt_snapshot_bytes(s->snapshot));
    dt_memory_format(there, sizeof there, free_bytes);
    bool is_full = strstr(problem, strerror(ENOSPC)) || strstr(problem, strerror(EDQUOT));
    if (is_full && free_bytes == INT64_MAX)
        snprintf(space, sizeof space, " (it needs %s)", needed);
    else if (is_full)
        snprintf(space, sizeof space, " (it needs %s, %s are free)", needed, there);
    DT_FAIL(why,
            "cannot save the checkpoint of step %" PRId64
            " in %s: %s%s; older checkpoints are intact",
            s->state->step, s->target->dir, problem, space);
}

dt_status dt_checkpoint_write(char *path, const struct dt_checkpoint_target *target,
                              const struct dt_snapshot *snapshot)
{
    struct save s = {
        .target = target, .snapshot = snapshot, .state = dt_snapshot_state(snapshot), .path = path};
    DT_TRY(dt_checkpoint_path(path, target->dir, s.state->step));
    DT_TRY(dt_file_path(s.temporary, "%s/.tmp-step-%09" PRId64 "-%" PRId64, target->dir,
                        s.state->step, target->incarnation));
    struct dt_manifest *m = &s.manifest;
    *m = (struct dt_manifest){
        .step = s.state->step,
        .epoch = s.state->epoch,
        .batch = s.state->batch,
        .incarnation = target->incarnation,
        .config_hash = target->config_hash,
        .n_ranks = s.state->n_ranks,
        .global_batch_size = s.state->global_batch_size,
    };
    snprintf(m->run_id, sizeof m->run_id, "%s", target->run_id);
    snprintf(m->build_id, sizeof m->build_id, "%s", target->build_id);
    snprintf(m->repro, sizeof m->repro, "%s", target->repro);
    enum dt_section before = dt_pulse_enter(&dt_pulse_writer, DT_SECTION_SAVE);
    dt_fault_at_section(DT_SECTION_SAVE);
    dt_pulse_step(&dt_pulse_writer, s.state->step);
    dt_status status = save_checkpoint(&s);
    if (status != DT_OK)
        status = give_up(&s, status);
    dt_pulse_enter(&dt_pulse_writer, before);
    dt_manifest_reset(&s.manifest);
    return status;
}
