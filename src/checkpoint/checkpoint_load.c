/* Loading a checkpoint that has been verified. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_internal.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"

dt_status dt_checkpoint_config(struct dt_config *config, const char *path)
{
    char file[DT_PATH_MAX];
    DT_TRY(dt_file_path(file, "%s/%s", path, DT_CONFIG_FILE));
    return dt_config_load(config, file, NULL, 0);
}

dt_status dt_checkpoint_classes(char **classes, const char *path)
{
    char file[DT_PATH_MAX];
    DT_TRY(dt_file_path(file, "%s/%s", path, DT_MODEL_FILE));
    return dt_weights_classes(classes, NULL, file, NULL);
}

dt_status dt_checkpoint_match(const struct dt_checkpoint *saved,
                              const struct dt_checkpoint *current, const char *path)
{
    if (saved->n_train_images != current->n_train_images ||
        saved->fingerprint != current->fingerprint)
        DT_FAIL(DT_ERR_CONFIG,
                "cannot resume from %s, which was trained on other data: %" PRId64
                " images with fingerprint %016" PRIx64 " then, %" PRId64
                " with fingerprint %016" PRIx64
                " now; use the old data, --allow-config-change, or another --out",
                path, saved->n_train_images, saved->fingerprint, current->n_train_images,
                current->fingerprint);
    return DT_OK;
}

static dt_status load_state(struct dt_plan *plan, enum dt_arena arena, struct dt_st_reader *file,
                            const char *path, int id, float *values)
{
    const struct dt_tensor *tensor = &plan->graph->tensor[id];
    char name[DT_ST_NAME_MAX];
    snprintf(name, sizeof name, "%s.%s", dt_arena_name(arena), tensor->name);
    const struct dt_st_tensor *saved = dt_st_find(file, name);
    if (!saved && arena == DT_ARENA_OUTER) { /* it was off: it begins at 0 */
        memset(values, 0, dt_tensor_elements(tensor) * sizeof *values);
        return dt_plan_set(plan, arena, id, values);
    }
    bool fits = saved && saved->n_dims == tensor->n_dims;
    for (int i = 0; fits && i < saved->n_dims; i++)
        fits = saved->dim[i] == tensor->dim[i];
    if (!fits)
        DT_FAIL(DT_ERR_DATA, "%s: tensor %s is missing or has a different shape", path, name);
    DT_TRY(dt_st_read_f32(file, saved, values));
    return dt_plan_set(plan, arena, id, values);
}

/* Loads them as weights; the weights are loaded afterwards. */
static dt_status load_averages(struct dt_plan *plan, const char *path, const char *model)
{
    char file[DT_PATH_MAX];
    DT_TRY(dt_file_path(file, "%s/%s", path, DT_EMA_FILE));
    const bool exists = dt_file_exists(file);
    if (!exists)
        dt_log(DT_LOG_WARNING,
               "%s has no moving average of the weights (train.ema_decay); it begins as a copy of "
               "them",
               path);
    DT_TRY(dt_weights_load(plan, exists ? file : model, NULL, false, NULL));
    return dt_plan_start_ema(plan);
}

dt_status dt_checkpoint_load(struct dt_plan *plan, const char *path, bool with_states)
{
    char file[DT_PATH_MAX];
    struct dt_st_reader *reader = NULL;
    float *values = NULL;
    dt_status status = DT_OK;
    const struct dt_graph *g = plan->graph;
    DT_TRY(dt_file_path(file, "%s/%s", path, DT_MODEL_FILE));
    if (dt_plan_has_ema(plan))
        DT_TRY(load_averages(plan, path, file));
    DT_TRY(dt_weights_load(plan, file, NULL, false, NULL));
    if (!with_states)
        return DT_OK;
    DT_TRY(dt_file_path(file, "%s/%s", path, DT_OPTIM_FILE));
    DT_TRY_OUT(DT_NEW(values, dt_graph_largest(g, DT_PARAM)));
    DT_TRY_OUT(dt_st_open(&reader, file));
    for (enum dt_arena a = 0; a < DT_N_ARENAS; a++)
        for (int t = 0; t < g->n_tensors && dt_plan_has_state(plan, a); t++)
            if (g->tensor[t].role == DT_PARAM)
                DT_TRY_OUT(load_state(plan, a, reader, file, t, values));
out:
    dt_st_close(reader);
    free(values);
    return status;
}
