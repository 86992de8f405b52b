/* state.json. Every member is required; the manifest vouches for the bytes, so a mismatch here
 * means another version. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/build.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"

enum { FINGERPRINT_DIGITS = 16 };
static const int64_t integer_max = INT64_C(1) << 53; /* exact in JSON's doubles */
static const double scale_max = 0x1p24;

/* The members that are integers, in file order. */
static const struct {
    const char *key;
    size_t offset;
    bool wide; /* int64_t, else int */
    int64_t min;
} integers[] = {
    {"step", offsetof(struct dt_checkpoint, step), true, 0},
    {"epoch", offsetof(struct dt_checkpoint, epoch), true, 0},
    {"batch", offsetof(struct dt_checkpoint, batch), true, 0},
    {"updates", offsetof(struct dt_checkpoint, n_updates), true, 0},
    {"passes", offsetof(struct dt_checkpoint, n_passes), true, 0},
    {"goal_waits", offsetof(struct dt_checkpoint, goal_waits), true, 0},
    {"ranks", offsetof(struct dt_checkpoint, n_ranks), false, 1},
    {"micro_batch_size", offsetof(struct dt_checkpoint, micro_batch_size), false, 0},
    {"num_classes", offsetof(struct dt_checkpoint, num_classes), false, 0},
    {"image_size", offsetof(struct dt_checkpoint, image_size), false, 0},
    {"global_batch_size", offsetof(struct dt_checkpoint, global_batch_size), false, 1},
    {"seed", offsetof(struct dt_checkpoint, seed), true, 0},
    {"train_images", offsetof(struct dt_checkpoint, n_train_images), true, 0},
};

static void print_best(struct dt_jsonw *w, const char *name, const struct dt_best *best)
{
    dt_jsonw_begin(w, name, '{');
    dt_jsonw_add(w, "metric: %s, value: %g, step: %" PRId64 ", epoch: %" PRId64 "}",
                 dt_metric_name(best->metric), best->value, best->step, best->epoch);
}

dt_status dt_checkpoint_state_print(struct dt_jsonw *w, const struct dt_checkpoint *state)
{
    char fingerprint[FINGERPRINT_DIGITS + 1];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, state->fingerprint);
    *w = (struct dt_jsonw){.pretty = true};
    dt_jsonw_add(w, "{format: %d, dtrain: %s", DT_CHECKPOINT_FORMAT, dt_version);
    for (size_t i = 0; i < DT_COUNT(integers); i++) {
        const void *field = (const char *)state + integers[i].offset;
        dt_jsonw_integer(w, integers[i].key,
                         integers[i].wide ? *(const int64_t *)field : *(const int *)field);
    }
    dt_jsonw_add(w, "eval_due: %hhd, model: %s, data_fingerprint: %s", state->eval_due,
                 state->model, fingerprint);
    if (state->origin[0])
        dt_jsonw_string(w, "origin", state->origin);
    print_best(w, "best", &state->best);
    print_best(w, "goal", &state->goal);
    dt_jsonw_number(w, "goal_reference", state->goal_reference);
    if (state->plateau.factor != 0)
        dt_jsonw_add(w, "plateau: {best: %g, waits: %" PRId64 ", factor: %g}", state->plateau.best,
                     state->plateau.waits, state->plateau.factor);
    if (state->epoch_loss.epoch != 0)
        dt_jsonw_add(w, "epoch_loss: {epoch: %" PRId64 ", loss: %g, weight: %g}",
                     state->epoch_loss.epoch, state->epoch_loss.loss, state->epoch_loss.weight);
    if (state->n_parts > 0 &&
        state->n_parts * (int64_t)state->micro_batch_size != state->global_batch_size)
        dt_jsonw_integer(w, "micro_batches", state->n_parts);
    if (state->precision >= 0)
        dt_jsonw_string(w, "precision", dt_precision_name((enum dt_precision)state->precision));
    if (state->loss_scale.scale > 0)
        dt_jsonw_add(w, "loss_scale: %g, clean_steps: %d", (double)state->loss_scale.scale,
                     state->loss_scale.n_clean);
    dt_jsonw_close(w, '}');
    return dt_jsonw_end(w);
}

static bool parse_integers(struct dt_checkpoint *state, const struct dt_json *root)
{
    for (size_t i = 0; i < DT_COUNT(integers); i++) {
        int64_t value, max = integers[i].wide ? integer_max : INT32_MAX;
        if (!dt_json_integer(dt_json_get(root, integers[i].key), integers[i].min, max, &value))
            return false;
        void *field = (char *)state + integers[i].offset;
        if (integers[i].wide)
            *(int64_t *)field = value;
        else
            *(int *)field = (int)value;
    }
    return state->batch == 0 || state->batch < state->n_train_images / state->global_batch_size;
}

static bool parse_others(struct dt_checkpoint *state, const struct dt_json *root)
{
    const struct dt_json *due = dt_json_get(root, "eval_due");
    const struct dt_json *print = dt_json_get(root, "data_fingerprint");
    const struct dt_json *origin = dt_json_get(root, "origin"); /* absent without an origin */
    bool ok = due && due->type == DT_JSON_BOOL &&
              dt_json_text(dt_json_get(root, "model"), state->model, sizeof state->model) &&
              (dt_json_text(origin, state->origin, sizeof state->origin) || !origin) && print &&
              print->type == DT_JSON_STRING && strlen(print->string) == FINGERPRINT_DIGITS &&
              strspn(print->string, "0123456789abcdef") == FINGERPRINT_DIGITS;
    if (!ok)
        return false;
    state->eval_due = due->boolean;
    return sscanf(print->string, "%" SCNx64, &state->fingerprint) == 1;
}

static bool parse_best(struct dt_best *best, const struct dt_json *object)
{
    const struct dt_json *metric = dt_json_get(object, "metric");
    best->value = dt_json_number(object, "value");
    if (!metric || metric->type != DT_JSON_STRING || isnan(best->value))
        return false;
    best->metric = 0;
    while (best->metric < DT_N_METRICS && strcmp(dt_metric_name(best->metric), metric->string) != 0)
        best->metric++;
    return best->metric < DT_N_METRICS &&
           dt_json_integer(dt_json_get(object, "step"), -1, integer_max, &best->step) &&
           dt_json_integer(dt_json_get(object, "epoch"), 0, integer_max, &best->epoch);
}

/* The member is absent with other schedules. */
static bool parse_plateau(struct dt_plateau *plateau, const struct dt_json *object)
{
    if (!object)
        return true;
    plateau->best = dt_json_number(object, "best");
    plateau->factor = dt_json_number(object, "factor");
    return !isnan(plateau->best) && plateau->factor > 0 &&
           dt_json_integer(dt_json_get(object, "waits"), 0, integer_max, &plateau->waits);
}

/* The member is absent in checkpoints of older versions: then the mean is of the rest of the epoch.
 */
static bool parse_epoch_loss(struct dt_epoch_loss *sum, const struct dt_json *object)
{
    if (!object)
        return true;
    sum->loss = dt_json_number(object, "loss");
    sum->weight = dt_json_number(object, "weight");
    return !isnan(sum->loss) && sum->weight >= 0 &&
           dt_json_integer(dt_json_get(object, "epoch"), 1, integer_max, &sum->epoch);
}

/* Absent if all micro-batches are alike. */
static bool parse_parts(struct dt_checkpoint *state, const struct dt_json *n)
{
    int64_t n_parts = 0;
    if (state->micro_batch_size > 0)
        n_parts = state->global_batch_size / state->micro_batch_size;
    const bool ok = !n || dt_json_integer(n, 1, INT32_MAX, &n_parts);
    state->n_parts = (int)n_parts;
    return ok;
}

/* Not every run has these members: they are absent or valid. */
static bool parse_precision(struct dt_checkpoint *state, const struct dt_json *root)
{
    const struct dt_json *name = dt_json_get(root, "precision");
    const struct dt_json *scale = dt_json_get(root, "loss_scale");
    int64_t n_clean;
    state->precision = -1;
    for (int p = DT_PRECISION_FP32; name && p <= DT_PRECISION_FP16; p++)
        if (name->type == DT_JSON_STRING &&
            strcmp(dt_precision_name((enum dt_precision)p), name->string) == 0)
            state->precision = p;
    if (name && state->precision < 0)
        return false;
    if (!scale)
        return true;
    if (scale->type != DT_JSON_NUMBER || !(scale->number > 0) || scale->number > scale_max ||
        !dt_json_integer(dt_json_get(root, "clean_steps"), 0, INT32_MAX, &n_clean))
        return false;
    state->loss_scale =
        (struct dt_loss_scale){.scale = (float)scale->number, .n_clean = (int32_t)n_clean};
    return true;
}

dt_status dt_checkpoint_state_load(struct dt_checkpoint *state, const char *path)
{
    char file[DT_PATH_MAX];
    struct dt_json_doc *doc;
    *state = (struct dt_checkpoint){0};
    DT_TRY(dt_file_path(file, "%s/%s", path, "state.json"));
    DT_TRY(dt_json_load(&doc, file, NULL));
    const struct dt_json *root = dt_json_root(doc);
    const double reference = state->goal_reference = dt_json_number(root, "goal_reference");
    dt_status status = dt_manifest_check_format(root, DT_CHECKPOINT_FORMAT, file);
    bool ok = parse_integers(state, root) && parse_others(state, root) &&
              parse_parts(state, dt_json_get(root, "micro_batches")) &&
              parse_precision(state, root) && parse_best(&state->best, dt_json_get(root, "best")) &&
              parse_best(&state->goal, dt_json_get(root, "goal")) && !isnan(reference) &&
              parse_plateau(&state->plateau, dt_json_get(root, "plateau")) &&
              parse_epoch_loss(&state->epoch_loss, dt_json_get(root, "epoch_loss"));
    dt_json_destroy(doc);
    if (status == DT_OK && !ok)
        DT_FAIL(DT_ERR_DATA, "%s: members are missing or have wrong values", file);
    return status;
}
