/* state.json. Every member is required; the manifest vouches for the bytes, so a mismatch here
 * means another version. */
#include <float.h>
#include <math.h>

#include "base/build.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/member.h"
#include "checkpoint/checkpoint.h"

#define STATE(...)                    DT_MEMBER(struct dt_checkpoint, __VA_ARGS__)
#define METRIC_NAME(upper, name, ...) #name,
static const char *const metrics[] = {DT_METRIC_LIST(METRIC_NAME) NULL};
static const char *const precisions[] = {DT_PRECISION_NAMES, NULL};

static const struct dt_member members[] = {
    STATE(INT64, step, "step"),
    STATE(INT64, epoch, "epoch"),
    STATE(INT64, batch, "batch"),
    STATE(INT64, n_updates, "updates"),
    STATE(INT64, n_passes, "passes"),
    STATE(INT64, goal_waits, "goal_waits"),
    STATE(INT, n_ranks, "ranks", .min = 1),
    STATE(INT, micro_batch_size, "micro_batch_size"),
    STATE(INT, num_classes, "num_classes"),
    STATE(INT, image_size, "image_size"),
    STATE(INT, global_batch_size, "global_batch_size", .min = 1),
    STATE(UINT64, seed, "seed"),
    STATE(INT64, n_train_images, "train_images"),
    STATE(BOOL, eval_due, "eval_due"),
    STATE(TEXT, model, "model"),
    STATE(HASH, fingerprint, "data_fingerprint"),
    STATE(TEXT, origin, "origin", .is_optional = true),
};
/* Members that may be absent: the state has none, or all micro-batches are alike. */
static const struct dt_member others[] = {
    STATE(REAL, goal_reference, "goal_reference", .min = -INFINITY),
    STATE(INT, n_parts, "micro_batches", .min = 1, .is_optional = true),
    STATE(CHOICE, precision, "precision", .choices = precisions, .is_optional = true),
};
static const struct dt_member best[] = {
    DT_MEMBER(struct dt_best, CHOICE, metric, "metric", .choices = metrics),
    DT_MEMBER(struct dt_best, REAL, value, "value", .min = -INFINITY),
    DT_MEMBER(struct dt_best, INT64, step, "step", .min = -1),
    DT_MEMBER(struct dt_best, INT64, epoch, "epoch"),
};
static const struct dt_member plateau[] = {
    DT_MEMBER(struct dt_plateau, REAL, best, "best", .min = -INFINITY),
    DT_MEMBER(struct dt_plateau, INT64, waits, "waits"),
    DT_MEMBER(struct dt_plateau, REAL, factor, "factor", .min = DBL_MIN),
};
static const struct dt_member epoch_loss[] = {
    DT_MEMBER(struct dt_epoch_loss, INT64, epoch, "epoch", .min = 1),
    DT_MEMBER(struct dt_epoch_loss, REAL, loss, "loss", .min = -INFINITY),
    DT_MEMBER(struct dt_epoch_loss, REAL, weight, "weight"),
};
static const struct dt_member loss_scale[] = {
    STATE(FLOAT, loss_scale.scale, "loss_scale", .min = DBL_MIN, .max = 0x1p24),
    STATE(INT, loss_scale.n_clean, "clean_steps"),
};

static void write_object(struct dt_jsonw *w, const char *name, const struct dt_member *rows,
                         size_t n, const void *from)
{
    dt_jsonw_begin(w, name, '{');
    dt_members_write(w, rows, n, from);
    dt_jsonw_close(w, '}');
}

dt_status dt_checkpoint_state_print(struct dt_jsonw *w, const struct dt_checkpoint *state)
{
    *w = (struct dt_jsonw){.pretty = true};
    dt_jsonw_add(w, "{format: %d, dtrain: %s", DT_CHECKPOINT_FORMAT, dt_version);
    dt_members_write(w, members, DT_COUNT(members), state);
    write_object(w, "best", best, DT_COUNT(best), &state->best);
    write_object(w, "goal", best, DT_COUNT(best), &state->goal);
    dt_jsonw_number(w, "goal_reference", state->goal_reference);
    if (state->plateau.factor != 0)
        write_object(w, "plateau", plateau, DT_COUNT(plateau), &state->plateau);
    if (state->epoch_loss.epoch != 0)
        write_object(w, "epoch_loss", epoch_loss, DT_COUNT(epoch_loss), &state->epoch_loss);
    if (state->n_parts > 0 &&
        state->n_parts * (int64_t)state->micro_batch_size != state->global_batch_size)
        dt_jsonw_integer(w, "micro_batches", state->n_parts);
    if (state->precision >= 0)
        dt_jsonw_string(w, "precision", precisions[state->precision]);
    if (state->loss_scale.scale > 0)
        dt_members_write(w, loss_scale, DT_COUNT(loss_scale), state);
    dt_jsonw_close(w, '}');
    return dt_jsonw_end(w);
}

static bool read_object(void *out, const struct dt_member *rows, size_t n,
                        const struct dt_json *root, const char *name)
{
    const struct dt_json *object = dt_json_get(root, name);
    return !object || dt_members_read(out, rows, n, object);
}

/* Absent: plateau with other schedules, loss_scale with other precisions, and epoch_loss in
 * checkpoints of older versions: then the mean is of the rest of the epoch. */
static bool parse(struct dt_checkpoint *state, const struct dt_json *root)
{
    state->precision = -1;
    if (!dt_members_read(state, members, DT_COUNT(members), root))
        return false;
    if (state->micro_batch_size > 0)
        state->n_parts = state->global_batch_size / state->micro_batch_size;
    return dt_members_read(state, others, DT_COUNT(others), root) &&
           state->precision < DT_PRECISION_AUTO &&
           (state->batch == 0 || state->batch < state->n_train_images / state->global_batch_size) &&
           dt_members_read(&state->best, best, DT_COUNT(best), dt_json_get(root, "best")) &&
           dt_members_read(&state->goal, best, DT_COUNT(best), dt_json_get(root, "goal")) &&
           read_object(&state->plateau, plateau, DT_COUNT(plateau), root, "plateau") &&
           read_object(&state->epoch_loss, epoch_loss, DT_COUNT(epoch_loss), root, "epoch_loss") &&
           (!dt_json_get(root, "loss_scale") ||
            dt_members_read(state, loss_scale, DT_COUNT(loss_scale), root));
}

dt_status dt_checkpoint_state_load(struct dt_checkpoint *state, const char *path)
{
    char file[DT_PATH_MAX];
    struct dt_json_doc *doc;
    *state = (struct dt_checkpoint){0};
    DT_TRY(dt_file_path(file, "%s/%s", path, "state.json"));
    DT_TRY(dt_json_load(&doc, file, NULL));
    const struct dt_json *root = dt_json_root(doc);
    dt_status status = dt_manifest_check_format(root, DT_CHECKPOINT_FORMAT, file);
    const bool ok = parse(state, root);
    dt_json_destroy(doc);
    if (status == DT_OK && !ok)
        DT_FAIL(DT_ERR_DATA, "%s: members are missing or have wrong values", file);
    return status;
}
