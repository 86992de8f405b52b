/* Checkpoints on disk. Everything is written into a folder with a temporary name, made durable and
 * renamed; only then `latest` moves and old ones go. A crash at any point leaves the older ones. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dtrain/file.h"
#include "dtrain/json.h"
#include "dtrain/log.h"
#include "dtrain/mem.h"
#include "train/safetensors.h"
#include "train/session.h"

static const char model_file[] = "model.safetensors";
static const char optim_file[] = "optim.safetensors";
static const char state_file[] = "state.json";
static const char stat_end[] = "running_var"; /* PyTorch has num_batches_tracked after it */

enum { FORMAT = 1, MAX_CHECKPOINTS = 4096 };

/* --- Writing --- */

/* The tensors of one file: graph tensors, and a counter after each running_var (graph id -1). */
struct contents {
    struct dt_st_tensor *tensors;
    int *ids;
    size_t n, capacity;
    size_t most; /* elements of the largest */
};

static void add_tensor(struct contents *c, const char *prefix, const struct dt_tensor *tensor,
                       int id)
{
    struct dt_st_tensor *t = &c->tensors[c->n];
    snprintf(t->name, sizeof t->name, "%s%s", prefix, tensor->name);
    t->dtype = DT_ST_F32;
    t->n_dims = tensor->n_dims;
    for (int i = 0; i < tensor->n_dims; i++)
        t->dim[i] = tensor->dim[i];
    size_t elements = dt_tensor_elements(tensor);
    c->most = elements > c->most ? elements : c->most;
    c->ids[c->n++] = id;
}

static void add_counter(struct contents *c, const struct dt_tensor *running_var)
{
    struct dt_st_tensor *t = &c->tensors[c->n];
    int n_module = (int)(strlen(running_var->name) - strlen(stat_end));
    snprintf(t->name, sizeof t->name, "%.*snum_batches_tracked", n_module, running_var->name);
    t->dtype = DT_ST_I64;
    t->n_dims = 0;
    c->ids[c->n++] = -1;
}

static bool is_running_var(const struct dt_tensor *tensor)
{
    size_t n = strlen(tensor->name), n_end = strlen(stat_end);
    return tensor->role == DT_STAT && n > n_end && strcmp(tensor->name + n - n_end, stat_end) == 0;
}

static dt_status list_contents(struct contents *c, const struct dt_graph *g, bool momentum)
{
    DT_TRY(DT_NEW(c->tensors, 2 * (size_t)g->n_tensors));
    DT_TRY(DT_NEW(c->ids, 2 * (size_t)g->n_tensors));
    for (int t = 0; t < g->n_tensors; t++) {
        const struct dt_tensor *tensor = &g->tensor[t];
        if (tensor->role == DT_PARAM || (tensor->role == DT_STAT && !momentum))
            add_tensor(c, momentum ? "momentum." : "", tensor, t);
        if (is_running_var(tensor) && !momentum)
            add_counter(c, tensor);
    }
    return DT_OK;
}

static dt_status write_tensor(struct dt_st_writer *writer, struct dt_plan *plan, int id,
                              bool momentum, float *values)
{
    const struct dt_tensor *tensor = &plan->graph->tensor[id];
    enum dt_arena arena = tensor->role == DT_STAT ? DT_ARENA_STATS
                          : momentum              ? DT_ARENA_MOMENTUM
                                                  : DT_ARENA_PARAMS;
    DT_TRY(dt_plan_get(plan, arena, id, values));
    return dt_st_write(writer, values, dt_tensor_elements(tensor) * sizeof *values);
}

static dt_status write_tensors(struct dt_plan *plan, const char *folder, bool momentum,
                               int64_t n_passes)
{
    char path[DT_PATH_MAX];
    struct contents c = {0};
    struct dt_st_writer *writer = NULL;
    float *values = NULL;
    dt_status status = DT_OK;
    DT_TRY_OUT(dt_file_path(path, "%s/%s", folder, momentum ? optim_file : model_file));
    DT_TRY_OUT(list_contents(&c, plan->graph, momentum));
    DT_TRY_OUT(DT_NEW(values, c.most));
    DT_TRY_OUT(dt_st_create(&writer, path, c.tensors, c.n));
    for (size_t i = 0; i < c.n; i++) {
        if (c.ids[i] >= 0)
            DT_TRY_OUT(write_tensor(writer, plan, c.ids[i], momentum, values));
        else
            DT_TRY_OUT(dt_st_write(writer, &n_passes, sizeof n_passes));
    }
    status = dt_st_end(writer);
    writer = NULL;
out:
    dt_st_abandon(writer);
    free(values);
    free(c.ids);
    free(c.tensors);
    return status;
}

static dt_status state_text(struct dt_jsonw *w, const struct dt_checkpoint *state)
{
    char fingerprint[24];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, state->fingerprint);
    dt_jsonw_init(w, true);
    dt_jsonw_begin(w, NULL, '{');
    dt_jsonw_integer(w, "format", FORMAT);
    dt_jsonw_string(w, "dtrain", DTRAIN_VERSION);
    dt_jsonw_integer(w, "step", state->step);
    dt_jsonw_integer(w, "epoch", state->epoch);
    dt_jsonw_integer(w, "batch", state->batch);
    dt_jsonw_integer(w, "passes", state->n_passes);
    dt_jsonw_number(w, "best_top1", state->best_top1);
    dt_jsonw_bool(w, "eval_due", state->eval_due);
    dt_jsonw_integer(w, "ranks", state->n_ranks);
    if (state->precision >= 0)
        dt_jsonw_string(w, "precision", dt_precision_name((enum dt_precision)state->precision));
    if (state->loss_scale.scale > 0) {
        dt_jsonw_number(w, "loss_scale", (double)state->loss_scale.scale);
        dt_jsonw_integer(w, "clean_steps", state->loss_scale.n_clean);
    }
    dt_jsonw_string(w, "model", state->model);
    dt_jsonw_integer(w, "num_classes", state->num_classes);
    dt_jsonw_integer(w, "image_size", state->image_size);
    dt_jsonw_integer(w, "global_batch", state->global_batch);
    dt_jsonw_integer(w, "seed", (int64_t)state->seed);
    dt_jsonw_string(w, "data_fingerprint", fingerprint);
    dt_jsonw_integer(w, "train_images", state->n_train_images);
    dt_jsonw_close(w, '}');
    return dt_jsonw_end(w);
}

static dt_status write_state(const char *folder, const struct dt_checkpoint *state,
                             const char *config_json)
{
    char path[DT_PATH_MAX];
    struct dt_jsonw w;
    char *text = NULL;
    dt_status status = DT_OK;
    DT_TRY_OUT(state_text(&w, state));
    DT_TRY_OUT(dt_file_path(path, "%s/%s", folder, state_file));
    /* The writer takes no ready JSON, so the configuration goes in after the opening brace. */
    size_t bytes = strlen(config_json) + w.bytes + 32;
    DT_TRY_OUT(DT_NEW(text, bytes));
    int n = snprintf(text, bytes, "{\n  \"config\": %s,%s\n", config_json, w.text + 1);
    DT_TRY_OUT(dt_file_save(path, text, (size_t)n));
out:
    free(text);
    dt_jsonw_reset(&w);
    return status;
}

/* --- Folders --- */

/* Removes a checkpoint folder and what a crash may have left in it: files only, one level. */
static dt_status remove_folder(const char *path)
{
    char file[DT_PATH_MAX];
    DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? DT_OK
                               : DT_ERROR(DT_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (dt_file_path(file, "%s/%s", path, entry->d_name) == DT_OK)
            unlink(file); /* what stays makes rmdir fail */
    }
    closedir(dir);
    if (rmdir(path) != 0)
        DT_FAIL(DT_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    return DT_OK;
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Steps of the folders "step-NNN" in `dir`, newest first; a missing folder has none. */
static dt_status list_steps(int64_t **steps, int *n_steps, const char *dir)
{
    *n_steps = 0;
    DT_TRY(DT_NEW(*steps, MAX_CHECKPOINTS));
    DIR *d = opendir(dir);
    if (!d)
        return DT_OK;
    for (struct dirent *entry; (entry = readdir(d)) && *n_steps < MAX_CHECKPOINTS;) {
        int64_t step;
        char name[64];
        if (sscanf(entry->d_name, "step-%" SCNd64, &step) != 1 || step < 0)
            continue;
        snprintf(name, sizeof name, "step-%09" PRId64, step);
        if (strcmp(name, entry->d_name) == 0)
            (*steps)[(*n_steps)++] = step;
    }
    closedir(d);
    qsort(*steps, (size_t)*n_steps, sizeof **steps, descending);
    return DT_OK;
}

static void remove_old(const char *dir, int64_t newest, int keep)
{
    char path[DT_PATH_MAX];
    int64_t *steps = NULL;
    int n_steps, n_kept = 1;
    if (list_steps(&steps, &n_steps, dir) == DT_OK)
        for (int i = 0; i < n_steps; i++) {
            if (steps[i] == newest || n_kept++ < keep)
                continue;
            if (dt_file_path(path, "%s/step-%09" PRId64, dir, steps[i]) != DT_OK ||
                remove_folder(path) != DT_OK)
                dt_log(DT_LOG_WARNING, "old checkpoint stays: %s", dt_error_text());
        }
    dt_error_clear();
    free(steps);
}

/* Puts the finished folder in its place. A folder of that name can only be an incomplete or older
 * checkpoint of the same step. */
static dt_status publish(const char *temporary, const char *path, const char *dir)
{
    DT_TRY(dt_file_sync_folder(temporary));
    DT_TRY(remove_folder(path));
    if (rename(temporary, path) != 0)
        DT_FAIL(DT_ERR_IO, "cannot rename %s to %s: %s", temporary, path, strerror(errno));
    return dt_file_sync_folder(dir);
}

static dt_status save_files(const char *folder, struct dt_plan *plan,
                            const struct dt_checkpoint *state, const char *config_json)
{
    DT_TRY(remove_folder(folder));
    DT_TRY(dt_file_make_folder(folder));
    DT_TRY(write_tensors(plan, folder, false, state->n_passes));
    DT_TRY(write_tensors(plan, folder, true, state->n_passes));
    return write_state(folder, state, config_json);
}

dt_status dt_checkpoint_save(char *path, const char *dir, struct dt_plan *plan,
                             const struct dt_checkpoint *state, const char *config_json, int keep)
{
    char temporary[DT_PATH_MAX], latest[DT_PATH_MAX], name[64];
    int n = snprintf(name, sizeof name, "step-%09" PRId64 "\n", state->step);
    DT_TRY(dt_file_path(path, "%s/step-%09" PRId64, dir, state->step));
    DT_TRY(dt_file_path(temporary, "%s/.saving", dir));
    DT_TRY(dt_file_path(latest, "%s/latest", dir));
    DT_TRY(dt_file_make_folder(dir));
    dt_status status = save_files(temporary, plan, state, config_json);
    if (status == DT_OK)
        status = publish(temporary, path, dir);
    if (status != DT_OK) {
        char text[2048];
        snprintf(text, sizeof text, "%s", dt_error_text());
        if (remove_folder(temporary) != DT_OK)
            dt_log(DT_LOG_WARNING, "%s", dt_error_text());
        DT_FAIL(status, "cannot save checkpoint %s: %s; older checkpoints are intact", path, text);
    }
    DT_TRY(dt_file_save(latest, name, (size_t)n));
    remove_old(dir, state->step, keep);
    return DT_OK;
}

/* --- Reading --- */

static bool get_int(const struct dt_json *root, const char *key, int64_t *out)
{
    return dt_json_integer(dt_json_get(root, key), 0, INT64_C(1) << 53, out);
}

static bool get_text(const struct dt_json *root, const char *key, char *out, size_t bytes)
{
    const struct dt_json *value = dt_json_get(root, key);
    return value && value->type == DT_JSON_STRING &&
           (size_t)snprintf(out, bytes, "%s", value->string) < bytes;
}

/* What older versions did not record. */
static void parse_precision(struct dt_checkpoint *state, const struct dt_json *root)
{
    char name[8];
    int64_t n_clean;
    const struct dt_json *scale = dt_json_get(root, "loss_scale");
    state->precision = -1;
    if (get_text(root, "precision", name, sizeof name))
        for (int p = DT_PRECISION_FP32; p <= DT_PRECISION_FP16; p++)
            if (strcmp(dt_precision_name((enum dt_precision)p), name) == 0)
                state->precision = p;
    if (scale && scale->type == DT_JSON_NUMBER && scale->number > 0 && scale->number <= 0x1p24 &&
        dt_json_integer(dt_json_get(root, "clean_steps"), 0, INT32_MAX, &n_clean))
        state->loss_scale =
            (struct dt_loss_scale){.scale = (float)scale->number, .n_clean = (int32_t)n_clean};
}

static bool parse_state(struct dt_checkpoint *state, const struct dt_json *root)
{
    int64_t format, n_ranks, num_classes, image_size, global_batch, seed;
    char fingerprint[24];
    const struct dt_json *best = dt_json_get(root, "best_top1");
    const struct dt_json *eval_due = dt_json_get(root, "eval_due");
    bool ok = get_int(root, "format", &format) && format == FORMAT &&
              get_int(root, "step", &state->step) && get_int(root, "epoch", &state->epoch) &&
              get_int(root, "batch", &state->batch) && get_int(root, "passes", &state->n_passes) &&
              get_int(root, "ranks", &n_ranks) && get_int(root, "num_classes", &num_classes) &&
              get_int(root, "image_size", &image_size) &&
              get_int(root, "global_batch", &global_batch) && get_int(root, "seed", &seed) &&
              get_int(root, "train_images", &state->n_train_images) &&
              get_text(root, "model", state->model, sizeof state->model) &&
              get_text(root, "data_fingerprint", fingerprint, sizeof fingerprint) && best &&
              best->type == DT_JSON_NUMBER;
    if (!ok || sscanf(fingerprint, "%" SCNx64, &state->fingerprint) != 1)
        return false;
    state->best_top1 = best->number;
    state->eval_due = eval_due && eval_due->boolean;
    state->n_ranks = (int)n_ranks;
    state->num_classes = (int)num_classes;
    state->image_size = (int)image_size;
    state->global_batch = (int)global_batch;
    state->seed = (uint64_t)seed;
    parse_precision(state, root);
    return true;
}

dt_status dt_checkpoint_read_state(struct dt_checkpoint *state, const char *path)
{
    char file[DT_PATH_MAX];
    struct dt_json_doc *doc;
    DT_TRY(dt_file_path(file, "%s/%s", path, state_file));
    DT_TRY(dt_json_load(&doc, file, NULL));
    *state = (struct dt_checkpoint){0};
    bool ok = parse_state(state, dt_json_root(doc));
    dt_json_destroy(doc);
    if (!ok)
        DT_FAIL(DT_ERR_DATA, "%s: not a state of this version of dtrain (format %d)", file, FORMAT);
    return DT_OK;
}

/* Opening checks sizes and the table of contents. */
static dt_status check_file(const char *path, const char *name)
{
    char file[DT_PATH_MAX];
    struct dt_st_reader *reader = NULL;
    DT_TRY(dt_file_path(file, "%s/%s", path, name));
    DT_TRY(dt_st_open(&reader, file));
    dt_st_close(reader);
    return DT_OK;
}

static dt_status check_complete(struct dt_checkpoint *state, const char *path)
{
    DT_TRY(dt_checkpoint_read_state(state, path));
    DT_TRY(check_file(path, model_file));
    return check_file(path, optim_file);
}

dt_status dt_checkpoint_find(char *path, struct dt_checkpoint *state, const char *dir)
{
    int64_t *steps = NULL;
    int n_steps = 0;
    dt_status status = list_steps(&steps, &n_steps, dir);
    bool found = false;
    for (int i = 0; i < n_steps && status == DT_OK && !found; i++) {
        status = dt_file_path(path, "%s/step-%09" PRId64, dir, steps[i]);
        found = status == DT_OK && check_complete(state, path) == DT_OK;
        if (status == DT_OK && !found)
            dt_log(DT_LOG_WARNING, "checkpoint %s is not usable: %s", path, dt_error_text());
    }
    if (!found)
        path[0] = '\0';
    free(steps);
    return status;
}

static void list_difference(char *text, size_t bytes, const char *key, const char *saved,
                            const char *current)
{
    size_t used = strlen(text);
    if (strcmp(saved, current) != 0)
        snprintf(text + used, bytes - used, "\n    %s: %s there, %s now", key, saved, current);
}

dt_status dt_checkpoint_match(const struct dt_checkpoint *saved,
                              const struct dt_checkpoint *current, const char *path)
{
    const struct {
        const char *key;
        uint64_t saved, current;
    } numbers[] = {
        {"model.num_classes", (uint64_t)saved->num_classes, (uint64_t)current->num_classes},
        {"model.image_size", (uint64_t)saved->image_size, (uint64_t)current->image_size},
        {"train.global_batch", (uint64_t)saved->global_batch, (uint64_t)current->global_batch},
        {"train.seed", saved->seed, current->seed},
        {"training images", (uint64_t)saved->n_train_images, (uint64_t)current->n_train_images},
        {"fingerprint of the training data", saved->fingerprint, current->fingerprint},
    };
    char text[2048] = "";
    list_difference(text, sizeof text, "model.name", saved->model, current->model);
    for (size_t i = 0; i < DT_COUNT(numbers); i++) {
        char a[32], b[32];
        snprintf(a, sizeof a, "%" PRIu64, numbers[i].saved);
        snprintf(b, sizeof b, "%" PRIu64, numbers[i].current);
        list_difference(text, sizeof text, numbers[i].key, a, b);
    }
    if (text[0])
        DT_FAIL(DT_ERR_CONFIG,
                "cannot resume from %s, it is of a different run:%s\n    use the old values, or "
                "another --out for a new run",
                path, text);
    return DT_OK;
}

static dt_status load_momentum(struct dt_plan *plan, struct dt_st_reader *file, const char *path,
                               int id, float *values)
{
    const struct dt_tensor *tensor = &plan->graph->tensor[id];
    char name[DT_ST_NAME_MAX];
    snprintf(name, sizeof name, "momentum.%s", tensor->name);
    const struct dt_st_tensor *saved = dt_st_find(file, name);
    if (!saved || saved->elements != dt_tensor_elements(tensor))
        DT_FAIL(DT_ERR_DATA, "%s: tensor %s is missing or has another size", path, name);
    DT_TRY(dt_st_read_f32(file, saved, values));
    return dt_plan_set(plan, DT_ARENA_MOMENTUM, id, values);
}

dt_status dt_checkpoint_load(struct dt_plan *plan, const char *path)
{
    char file[DT_PATH_MAX];
    struct dt_st_reader *reader = NULL;
    float *values = NULL;
    size_t most = 0;
    dt_status status = DT_OK;
    const struct dt_graph *g = plan->graph;
    DT_TRY(dt_file_path(file, "%s/%s", path, model_file));
    DT_TRY(dt_weights_load(plan, file, NULL, false));
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensor[t].role == DT_PARAM && dt_tensor_elements(&g->tensor[t]) > most)
            most = dt_tensor_elements(&g->tensor[t]);
    DT_TRY(dt_file_path(file, "%s/%s", path, optim_file));
    DT_TRY_OUT(DT_NEW(values, most));
    DT_TRY_OUT(dt_st_open(&reader, file));
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensor[t].role == DT_PARAM)
            DT_TRY_OUT(load_momentum(plan, reader, file, t, values));
out:
    dt_st_close(reader);
    free(values);
    return status;
}
