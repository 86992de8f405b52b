/* Finding checkpoints and weights: the newest checkpoint that verifies, and what a path on the
 * command line stands for. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_internal.h"
#include "checkpoint/weights.h"

enum { LATEST_BYTES = 64, LIST_BYTES = 4096 };

/* --- The newest good one --- */

/* Only a hint, so it is never followed; but whoever moved files by hand wants to know. */
static void compare_latest(const char *dir, const char *path)
{
    char latest[DT_PATH_MAX], target[LATEST_BYTES];
    const char *name = strrchr(path, '/') + 1;
    if (dt_file_path(latest, "%s/latest", dir) != DT_OK)
        return;
    ssize_t bytes = readlink(latest, target, sizeof target - 1);
    target[bytes > 0 ? bytes : 0] = '\0';
    if (target[0] && strcmp(target, name) != 0)
        dt_log(DT_LOG_WARNING, "%s points to %s, but the newest good checkpoint is %s", latest,
               target, name);
}

static dt_status try_one(bool *found, struct dt_checkpoint *state, const char *path, bool is_last)
{
    dt_status status = dt_checkpoint_verify(state, path);
    *found = status == DT_OK;
    if (status == DT_ERR_PERMISSION)
        DT_FAIL(status,
                "cannot tell whether checkpoint %s is good: %s; let its owner make it readable "
                "(chmod -R u+rX, or chown), or move it away to use %s",
                path, dt_error_text(), is_last ? "none" : "the one before it");
    /* A bad disk may never return it; any other error may be gone at the next start. */
    if (!*found && !dt_checkpoint_is_damaged(status) && status != DT_ERR_IO)
        return dt_error_pass(status, __func__, __FILE__, __LINE__);
    if (!*found)
        dt_log(DT_LOG_WARNING, "checkpoint %s is not usable: %s; %s", path, dt_error_text(),
               is_last ? "no earlier one exists" : "trying the previous one");
    return DT_OK;
}

dt_status dt_checkpoint_find(char *path, struct dt_checkpoint *state, const char *dir)
{
    int64_t *steps = NULL;
    int n_steps = 0;
    bool found = false;
    dt_status status = DT_OK;
    path[0] = '\0';
    DT_TRY(dt_checkpoint_list(&steps, &n_steps, dir));
    for (int i = 0; i < n_steps && !found; i++) {
        DT_TRY_OUT(dt_checkpoint_path(path, dir, steps[i]));
        DT_TRY_OUT(try_one(&found, state, path, i == n_steps - 1));
    }
    if (found)
        compare_latest(dir, path);
out:
    if (!found)
        path[0] = '\0';
    free(steps);
    return status;
}

/* --- Weights by a path --- */

static dt_status verify_one(const char *path)
{
    dt_status status = dt_checkpoint_verify(NULL, path);
    if (status != DT_OK)
        DT_FAIL(status, "cannot load weights from %s: %s", path, dt_error_text());
    return DT_OK;
}

/* The best checkpoint if it is kept and good, otherwise the newest good one. */
static dt_status find_best(char *out, const char *dir, bool latest)
{
    char best[DT_PATH_MAX];
    struct dt_checkpoint state;
    DT_TRY(dt_checkpoint_find(out, &state, dir));
    if (out[0] == '\0')
        DT_FAIL(DT_ERR_NO_INPUT, "cannot load weights: %s holds no good checkpoint", dir);
    if (latest || state.best.step == state.step)
        return DT_OK;
    if (state.best.step < 0) {
        dt_log(DT_LOG_INFO, "no checkpoint is the best one yet; using the newest, %s", out);
        return DT_OK;
    }
    DT_TRY(dt_checkpoint_path(best, dir, state.best.step));
    if (dt_file_exists(best) && verify_one(best) == DT_OK)
        return dt_file_path(out, "%s", best);
    dt_log(DT_LOG_WARNING, "the best checkpoint, %s, is missing or damaged; using the newest, %s",
           best, out);
    dt_error_clear();
    return DT_OK;
}

/* Folders of other programs hold a model.safetensors without a manifest; a checkpoint has one. */
static bool is_model_folder(const char *path)
{
    char file[DT_PATH_MAX], dir[DT_PATH_MAX];
    bool is_one;
    return dt_file_path(file, "%s/%s", path, DT_MODEL_FILE) == DT_OK && dt_file_exists(file) &&
           dt_checkpoint_locate(dir, &is_one, path) == DT_OK && !is_one;
}

/* The folder of the weights in a checkpoint, a folder of checkpoints, a run folder, or a folder of
 * another program. */
static dt_status find_in_folder(char *out, const char *path)
{
    char dir[DT_PATH_MAX];
    bool is_one;
    DT_TRY(dt_checkpoint_locate(dir, &is_one, path));
    if (is_one) {
        DT_TRY(verify_one(path));
        return dt_file_path(out, "%s", path);
    }
    if (strcmp(dir, path) == 0 && is_model_folder(path))
        return dt_file_path(out, "%s", path);
    return find_best(out, dir, false);
}

static dt_status refuse_step(const char *run, const char *dir, long long step)
{
    int64_t *steps;
    int n_steps;
    char buffer[LIST_BYTES];
    struct dt_text list = dt_text_in(buffer, sizeof buffer);
    DT_TRY(dt_checkpoint_list(&steps, &n_steps, dir));
    for (int i = n_steps - 1; i >= 0; i--)
        dt_text_add(&list, "%s%" PRId64, i == n_steps - 1 ? "it has " : ", ", steps[i]);
    free(steps);
    DT_FAIL(DT_ERR_NO_INPUT, "%s has no checkpoint of step %lld; %s", run, step,
            n_steps > 0 ? buffer : "it has none");
}

/* RUN@best, RUN@latest, RUN@step-N. */
static dt_status find_in_run(char *out, const char *path, const char *at)
{
    char run[DT_PATH_MAX], dir[DT_PATH_MAX], end;
    const char *which = at + 1;
    long long step;
    bool is_one, latest = strcmp(which, "latest") == 0;
    DT_TRY(dt_file_path(run, "%.*s", (int)(at - path), path));
    DT_TRY(dt_checkpoint_locate(dir, &is_one, run));
    if (latest || strcmp(which, "best") == 0)
        return find_best(out, dir, latest);
    if (sscanf(which, "step-%lld%c", &step, &end) != 1)
        DT_FAIL(DT_ERR_USAGE, "%s: after the @ write best, latest or step-N", path);
    DT_TRY(dt_checkpoint_path(out, dir, step));
    return dt_file_exists(out) ? verify_one(out) : refuse_step(run, dir, step);
}

/* The weights that decided which checkpoint is the best. */
static dt_status choose_file(char *out, const char *folder)
{
    static struct dt_config config;
    char ema[DT_PATH_MAX];
    DT_TRY(dt_file_path(out, "%s/%s", folder, DT_MODEL_FILE));
    DT_TRY(dt_file_path(ema, "%s/%s", folder, DT_EMA_FILE));
    const bool has_ema = dt_file_exists(ema) && !is_model_folder(folder);
    if (has_ema)
        DT_TRY(dt_checkpoint_config(&config, folder));
    const bool is_evaluated = has_ema && config.eval.weights != DT_WEIGHTS_RAW;
    dt_log(DT_LOG_INFO, "weights: %s%s", is_evaluated ? ema : out,
           is_evaluated ? " (moving averages, which the run evaluated)"
           : has_ema    ? " (not the moving averages: eval.weights was raw)"
                        : "");
    return is_evaluated ? dt_file_path(out, "%s", ema) : DT_OK;
}

dt_status dt_weights_find(char *out, const char *path)
{
    char folder[DT_PATH_MAX];
    struct stat info;
    const char *at = strrchr(path, '@');
    bool exists = stat(path, &info) == 0;
    if (exists && !S_ISDIR(info.st_mode))
        return dt_file_path(out, "%s", path);
    if (exists)
        DT_TRY(find_in_folder(folder, path));
    else if (at && at > path)
        DT_TRY(find_in_run(folder, path, at));
    else
        DT_FAIL(dt_file_input_status(errno), "cannot load weights from %s: %s", path,
                strerror(errno));
    return choose_file(out, folder);
}

dt_status dt_weights_config(char *out, const char *model)
{
    DT_TRY(dt_file_path(out, "%.*sconfig.json", (int)(dt_file_base(model) - model), model));
    if (dt_file_exists(out))
        return DT_OK;
    struct dt_st_reader *file = NULL;
    const bool is_known = dt_st_open(&file, model) == DT_OK && dt_st_config(file) &&
                          dt_file_path(out, "%s", dt_st_config(file)) == DT_OK;
    dt_st_close(file);
    DT_FAIL(DT_ERR_USAGE, "%s has no config.json next to its weights; give one with --config%s%s",
            model, is_known ? " " : "", is_known ? out : "");
}
