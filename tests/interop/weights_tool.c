/* Loads weights into a model and writes them again, without data and training.
 *
 *   weights_tool HEIGHT WIDTH IN OUT KEY=VALUE...
 *
 * IN: safetensors as for model.initial_checkpoint, "" for random weights; OUT: as in a checkpoint.
 * KEY=VALUE: of the configuration; model.num_classes is needed. Prints what was loaded, and the
 * numbers of parameters and of those that are trained. */
#include "../support/plan_files.h"
#include "checkpoint/weights.h"
#include "engine/engine.h"

enum { HEIGHT = 1, WIDTH, IN, OUT, SETS };

static dt_status build_graph(struct dt_graph **g, const struct dt_model *model,
                             const struct dt_config *config, int height, int width)
{
    const struct dt_model_options options =
        dt_config_model_options(config, config->model.num_classes);
    DT_TRY(dt_graph_create(g));
    DT_TRY(dt_graph_begin(*g, DT_TRAIN, 1, height, width));
    if (model->detects)
        DT_TRY(dt_graph_boxes(*g, 1));
    int src = dt_graph_ingest(*g, config->data.mean, config->data.std);
    int logits = model->build(*g, src, model, &options);
    if (!model->detects)
        dt_graph_softmax_xent(*g, logits, 0);
    DT_TRY(dt_graph_fuse(*g, NULL, NULL));
    return dt_graph_differentiate(*g);
}

static void count(const struct dt_graph *g)
{
    size_t n = 0, n_trained = 0;
    for (int t = 0; t < g->n_tensors; t++) {
        size_t elements = g->tensor[t].role == DT_PARAM ? dt_tensor_elements(&g->tensor[t]) : 0;
        n += elements;
        n_trained += g->tensor[t].frozen ? 0 : elements;
    }
    printf("%zu parameters, %zu trained\n", n, n_trained);
}

static dt_status run(int argc, char **argv)
{
    const struct dt_device_options device_options = {.threads = 2, .seed = 1};
    const struct dt_plan_options options = {
        .bucket_bytes = 1 << 24, .last_bucket_bytes = 1 << 20, .n_ranks = 1};
    static struct dt_config config;
    char text[DT_WEIGHTS_TEXT];
    struct dt_device *device;
    struct dt_graph *g;
    struct dt_plan *plan;
    DT_TRY(dt_config_load(&config, NULL, (const char *const *)argv + SETS, (size_t)(argc - SETS)));
    const struct dt_model *model = dt_model_find(config.model.name);
    DT_TRY(build_graph(&g, model, &config, atoi(argv[HEIGHT]), atoi(argv[WIDTH])));
    DT_TRY(dt_backend_cpu.open(&device, &device_options));
    DT_TRY(dt_plan_build(&plan, g, &dt_backend_cpu, device, NULL, &options));
    DT_TRY(dt_plan_init_params(plan, config.train.seed));
    if (argv[IN][0])
        DT_TRY(dt_weights_load(plan, argv[IN], model, true, text));
    if (argv[IN][0])
        printf("%s\n", text);
    count(g);
    DT_TRY(write_state(plan, DT_SNAPSHOT_MODEL, argv[OUT]));
    dt_plan_destroy(plan);
    dt_graph_destroy(g);
    dt_backend_cpu.close(device);
    return DT_OK;
}

int main(int argc, char **argv)
{
    dt_status status = argc >= SETS ? run(argc, argv) : DT_ERROR(DT_ERR_USAGE, "see the source");
    if (status != DT_OK)
        fprintf(stderr, "weights_tool: %s\n", dt_error_text());
    return (int)status;
}
