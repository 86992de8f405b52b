/* Applies an optimizer to given weights and gradients. In step k the learning rate is schedule.lr /
 * (1 + k).
 *
 *   update_tool IN OUT STEPS KEY=VALUE...
 *
 * KEY=VALUE: settings, such as model.name and optim.name. IN: safetensors with "param.<name>", and
 * "grad<k>.<name>" for k from 0 to STEPS - 1. OUT0 gets the weights, OUT1 the optimizer's
 * states, such as "momentum.<name>". */
#include "../support/plan_files.h"
#include "dtrain/models.h"

static dt_status build_graph(struct dt_graph **g, const struct dt_config *config)
{
    const struct dt_model_options options = {.num_classes = config->model.num_classes};
    const struct dt_model *model = dt_model_find(config->model.name);
    DT_TRY(dt_graph_create(g));
    DT_TRY(dt_graph_begin(*g, DT_TRAIN, 2, config->model.image_size, config->model.image_size));
    int image = dt_graph_ingest(*g, config->data.mean, config->data.std);
    dt_graph_softmax_xent(*g, model->build(*g, image, model, &options), 0);
    DT_TRY(dt_graph_check(*g));
    return dt_graph_differentiate(*g);
}

/* Leaves only what follows the backward part. */
static void drop_passes(struct dt_plan *plan)
{
    int n = 0;
    for (int i = 0; i < plan->n_actions[DT_TRAIN]; i++)
        if (plan->actions[DT_TRAIN][i].kind != DT_ACTION_OP)
            plan->actions[DT_TRAIN][n++] = plan->actions[DT_TRAIN][i];
    plan->n_actions[DT_TRAIN] = n;
}

static dt_status set_all(struct dt_plan *plan, enum dt_arena arena, struct dt_st_reader *in,
                         const char *prefix, float *values)
{
    for (int t = 0; t < plan->graph->n_tensors; t++) {
        const struct dt_tensor *tensor = &plan->graph->tensor[t];
        char name[DT_ST_NAME_MAX];
        if (tensor->role != DT_PARAM)
            continue;
        snprintf(name, sizeof name, "%s.%s", prefix, tensor->name);
        const struct dt_st_tensor *entry = dt_st_find(in, name);
        if (!entry || entry->elements != dt_tensor_elements(tensor))
            DT_FAIL(DT_ERR_DATA, "no fitting %s", name);
        DT_TRY(dt_st_read_f32(in, entry, values));
        DT_TRY(dt_plan_set(plan, arena, t, values));
    }
    return DT_OK;
}

static dt_status update(struct dt_plan *plan, const struct dt_config *config, const char *path,
                        int n_steps)
{
    struct dt_scalars scalars = {.optim = dt_config_optim(config)};
    struct dt_st_reader *in;
    float *values;
    DT_TRY(DT_NEW(values, dt_graph_largest(plan->graph, DT_PARAM)));
    DT_TRY(dt_st_open(&in, path));
    DT_TRY(set_all(plan, DT_ARENA_PARAMS, in, "param", values));
    for (int k = 0; k < n_steps; k++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "grad%d", k);
        DT_TRY(set_all(plan, DT_ARENA_GRADS, in, prefix, values));
        scalars.lr = (float)(config->schedule.lr / (1 + k));
        DT_TRY(dt_plan_train(plan, DT_TRAIN, &scalars, 0, 1));
    }
    dt_st_close(in);
    free(values);
    return DT_OK;
}

static dt_status write_all(struct dt_plan *plan, const char *out)
{
    for (int f = 0; f < DT_N_SNAPSHOT_FILES; f++) {
        char path[DT_PATH_MAX];
        DT_TRY(dt_file_path(path, "%s%d", out, f));
        DT_TRY(write_state(plan, f, path));
    }
    return DT_OK;
}

static dt_status run(char **arguments, size_t n_sets)
{
    const struct dt_backend *backend = &dt_backend_cpu;
    const struct dt_device_options device_options = {.threads = 1, .deterministic = true};
    struct dt_device *device;
    struct dt_graph *g;
    struct dt_plan *plan;
    struct dt_config config;
    DT_TRY(dt_config_load(&config, NULL, (const char *const *)arguments + 3, n_sets));
    const struct dt_plan_options options = {.bucket_bytes = 1 << 18,
                                            .last_bucket_bytes = 1 << 16,
                                            .n_ranks = 1,
                                            .optim = config.optim.name,
                                            .clip = config.optim.clip_norm > 0,
                                            .decay_norm_bias = config.optim.decay_norm_bias};
    DT_TRY(backend->open(&device, &device_options));
    DT_TRY(build_graph(&g, &config));
    DT_TRY(dt_plan_build(&plan, g, backend, device, NULL, &options));
    drop_passes(plan);
    DT_TRY(update(plan, &config, arguments[0], (int)strtol(arguments[2], NULL, 10)));
    DT_TRY(write_all(plan, arguments[1]));
    dt_plan_destroy(plan);
    dt_graph_destroy(g);
    backend->close(device);
    return DT_OK;
}

int main(int argc, char **argv)
{
    dt_status status = argc < 4 ? DT_ERR_USAGE : run(argv + 1, (size_t)argc - 4);
    if (status != DT_OK)
        fprintf(stderr, "update_tool: %s\n%s\n", dt_error_text(), dt_error_trail());
    return status;
}
