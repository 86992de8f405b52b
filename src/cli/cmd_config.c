/* dtrain config: prints the resolved configuration, a new one, the JSON Schema, or help on keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "cli/commands.h"
#include "dtrain/config.h"
#include "dtrain/models.h"

static void add_data(struct dt_jsonw *w, const char *path)
{
    if (strcmp(path, "synthetic") == 0)
        dt_jsonw_add(w, "data: {_comment: %s, source: %s},",
                     "generated images; yours: train, as in configs/README.md", path);
    else
        dt_jsonw_add(w, "data: {_comment: %s, train: %s, val_fraction: %g},",
                     "for a validation set of its own write val in place of val_fraction", path,
                     0.1);
}

/* A configuration to start from, with comments. */
static dt_status print_new(const struct dt_arguments *args)
{
    const char *name = args->model ? args->model : "resnet18";
    const struct dt_model *model = dt_model_find(name);
    struct dt_jsonw w = {.pretty = true};
    char start[128] = "train it: dtrain --config THIS.json";
    char dir[DT_PATH_MAX];
    if (!model)
        return dt_error_pass(DT_ERR_CONFIG, __func__, __FILE__, __LINE__);
    const bool on_gpu = args->n_gpus > 0;
    if (args->n_gpus > 1)
        snprintf(start, sizeof start, "train it: dtrain --ranks %d --config THIS.json",
                 (int)args->n_gpus);
    snprintf(dir, sizeof dir, "runs/%s", name);
    dt_jsonw_add(&w, "{_comment: [%s, %s],", start, "all keys: dtrain config help");
    dt_jsonw_add(&w, "model: {_comment: %s, name: %s},", "others: dtrain models", name);
    add_data(&w, args->data);
    dt_jsonw_add(&w, "train: {_comment: %s, epochs: %d, batch_size_per_rank: %d, precision: %s},",
                 "bf16: CPUs, and GPUs since Ampere", 30, model->detects ? 4 : 32,
                 on_gpu ? "bf16" : "fp32");
    dt_jsonw_add(&w, "optim: {name: %s, weight_decay: %g},", model->detects ? "adamw" : "sgd",
                 model->detects ? 0.05 : 0.0001);
    dt_jsonw_add(&w, "schedule: {_comment: %s, kind: %s, lr: %g, lr_base_size: %d},",
                 "lr is for lr_base_size images per update, and grows with them", "cosine",
                 model->detects ? 0.0001 : 0.1, model->detects ? 16 : 256);
    dt_jsonw_add(&w, "device: {kind: %s}, output: {dir: %s}}",
                 on_gpu             ? "cuda"
                 : args->n_gpus < 0 ? "auto"
                                    : "cpu",
                 dir);
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK)
        printf("%s", w.text);
    dt_jsonw_reset(&w);
    return status;
}

dt_status dt_cmd_config(const struct dt_arguments *args)
{
    static const char *const names[] = {"show", "new", "schema", "help"};
    const char *name = args->operands[0];
    if (args->n_operands > 1 && strcmp(name, "help") != 0)
        DT_FAIL(DT_ERR_USAGE,
                "%s: unexpected argument of dtrain config %s; see dtrain config --help",
                args->operands[1], name);
    const bool is_new = strcmp(name, "new") == 0;
    const bool has_wishes =
        args->model || args->n_gpus >= 0 || strcmp(args->data, "synthetic") != 0;
    if (is_new ? args->config || args->n_sets > 0 || args->out : has_wishes)
        DT_FAIL(DT_ERR_USAGE, "dtrain config %s: %s --data, --model and --gpus", name,
                is_new ? "it takes only" : "only dtrain config new takes");
    if (strcmp(name, "show") == 0) {
        struct dt_config config;
        char *text;
        DT_TRY(dt_arguments_config(&config, args));
        DT_TRY(dt_config_print(&text, &config));
        printf("%s", text);
        free(text);
        return DT_OK;
    }
    if (is_new)
        return print_new(args);
    if (strcmp(name, "schema") == 0)
        return dt_config_print_schema(stdout);
    if (strcmp(name, "help") == 0)
        return dt_config_print_help(stdout, args->n_operands > 1 ? args->operands[1] : NULL);
    const char *nearest = dt_nearest(name, names, DT_COUNT(names));
    DT_FAIL(DT_ERR_USAGE, "dtrain config %s: unknown; %s%s%s", name,
            nearest ? "did you mean " : "use show, new, schema or help", nearest ? nearest : "",
            nearest ? "?" : "");
}
