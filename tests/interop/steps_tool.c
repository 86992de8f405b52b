/* Runs training steps on given weights and batches, for comparison with PyTorch.
 *
 *   steps_tool MODEL CLASSES SIZE BATCH STEPS LR WEIGHTS BATCHES OUT [cpu|bf16|cuda [mixed|plain
 *              [FROZEN]]]
 *
 * WEIGHTS: safetensors. BATCHES: per step BATCH*SIZE*SIZE*3 bytes of pixels, then BATCH i32 labels;
 * mixed: then BATCH i32 second labels, BATCH f32 shares of the first ones and CLASSES f32 class
 * weights. bf16: on the CPU, in that precision. FROZEN: modules that are not trained, a newline
 * after each. Prints one loss per step. OUT gets "grad.<name>" (gradients of step 1) and
 * "stat.<name>" (running statistics after step 1), and "param.<name>" (weights after the last
 * step). SGD momentum 0.9, weight decay 0.1 on conv and linear weights. */
#include <string.h>

#include "../support/plan_files.h"
#include "dtrain/models.h"
#include "engine/engine.h"

struct run {
    const char *model;
    int classes, size, batch, steps;
    float lr;
    const char *weights, *batches, *out, *device_kind, *frozen;
    bool mixed;
    struct tool_device device;
};

static dt_status build_graph(struct dt_graph **g, struct run *run)
{
    static const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
    const struct dt_model_options options = {.num_classes = run->classes, .dropout = 0};
    const struct dt_model *model = dt_model_find(run->model);
    if (!model)
        return DT_ERR_CONFIG;
    DT_TRY(dt_graph_create(g));
    DT_TRY(dt_graph_begin(*g, DT_TRAIN, run->batch, run->size, run->size));
    if (run->mixed)
        DT_TRY(dt_graph_mix_labels(*g));
    if (run->mixed)
        DT_TRY(dt_graph_weigh_classes(*g, run->classes));
    int image = dt_graph_ingest(*g, mean, std);
    dt_graph_softmax_xent(*g, model->build(*g, image, model, &options), 0.1);
    DT_TRY(dt_graph_check(*g));
    DT_TRY(dt_freeze(*g, run->frozen));
    DT_TRY(dt_graph_fuse(*g, is_supported, &run->device));
    return dt_graph_differentiate(*g);
}

/* The parts of a step of BATCHES, in its order; without mixing the last three stay as they are. */
struct batch {
    uint8_t *pixels;
    int32_t *labels, *labels2;
    float *mix_shares, *class_weights;
};

static dt_status read_batch(struct batch *b, FILE *in, const struct run *run)
{
    size_t n = (size_t)run->batch, pixel_bytes = n * (size_t)run->size * (size_t)run->size * 3;
    size_t n_classes = (size_t)run->classes;
    if (fread(b->pixels, 1, pixel_bytes, in) != pixel_bytes ||
        fread(b->labels, sizeof *b->labels, n, in) != n ||
        (run->mixed && (fread(b->labels2, sizeof *b->labels2, n, in) != n ||
                        fread(b->mix_shares, sizeof *b->mix_shares, n, in) != n ||
                        fread(b->class_weights, sizeof(float), n_classes, in) != n_classes)))
        DT_FAIL(DT_ERR_DATA, "%s is too short", run->batches);
    return DT_OK;
}

static dt_status train(struct dt_plan *plan, const struct run *run)
{
    struct section sections[] = {
        {"grad", DT_PARAM, DT_ARENA_GRADS, NULL},
        {"stat", DT_STAT, DT_ARENA_STATS, NULL},
        {"param", DT_PARAM, DT_ARENA_PARAMS, NULL},
    };
    size_t n = (size_t)run->batch;
    struct batch b = {NULL};
    DT_TRY(DT_NEW(b.pixels, n * (size_t)run->size * (size_t)run->size * 3));
    DT_TRY(DT_NEW(b.labels, n));
    DT_TRY(DT_NEW(b.labels2, n));
    DT_TRY(DT_NEW(b.mix_shares, n));
    DT_TRY(DT_NEW(b.class_weights, (size_t)run->classes));
    const struct dt_feed input = {.pixels = b.pixels,
                                  .labels = b.labels,
                                  .labels2 = b.labels2,
                                  .mix_share = b.mix_shares,
                                  .class_weights = b.class_weights};
    FILE *in = fopen(run->batches, "rb");
    if (!in)
        DT_FAIL(DT_ERR_NO_INPUT, "cannot open %s", run->batches);
    for (int step = 0; step < run->steps; step++) {
        const struct dt_scalars scalars = {.lr = run->lr,
                                           .optim = {.momentum = 0.9, .weight_decay = 0.1f},
                                           .diff_scale = 1.0f / (float)run->batch,
                                           .step = (uint32_t)step};
        struct dt_counters counters;
        DT_TRY(read_batch(&b, in, run));
        DT_TRY(dt_plan_feed(plan, DT_TRAIN, &input));
        DT_TRY(dt_plan_train(plan, DT_TRAIN, &scalars, 0, 1));
        DT_TRY(dt_plan_end_feed(plan));
        DT_TRY(plan->backend->download(run->device.device, &counters));
        printf("%.9g\n", counters.loss / counters.weight);
        if (step == 0) {
            DT_TRY(take(plan, &sections[0]));
            DT_TRY(take(plan, &sections[1]));
        }
    }
    fclose(in);
    free(b.pixels);
    free(b.labels);
    free(b.labels2);
    free(b.mix_shares);
    free(b.class_weights);
    DT_TRY(take(plan, &sections[2]));
    return write_out(plan->graph, run->out, sections, 3);
}

static dt_status run_all(struct run *run)
{
    const struct dt_plan_options options = {
        .bucket_bytes = 4 << 20, .last_bucket_bytes = 1 << 20, .n_ranks = 1, .record = true};
    struct dt_config config;
    struct dt_graph *g = NULL;
    struct dt_plan *plan = NULL;
    dt_config_init(&config);
    config.train.precision =
        strcmp(run->device_kind, "bf16") == 0 ? DT_PRECISION_BF16 : DT_PRECISION_FP32;
    config.device.kind = strcmp(run->device_kind, "cuda") == 0 ? DT_DEVICE_CUDA : DT_DEVICE_CPU;
    DT_TRY(open_device(&run->device, &config));
    DT_TRY(build_graph(&g, run));
    DT_TRY(dt_plan_build(&plan, g, run->device.backend, run->device.device, NULL, &options));
    DT_TRY(load_weights(plan, run->weights));
    DT_TRY(train(plan, run));
    dt_plan_destroy(plan);
    dt_graph_destroy(g);
    run->device.backend->close(run->device.device);
    return DT_OK;
}

int main(int argc, char **argv)
{
    if (argc < 10 || argc > 13) {
        fprintf(stderr, "usage: steps_tool MODEL CLASSES SIZE BATCH STEPS LR WEIGHTS BATCHES OUT "
                        "[cpu|bf16|cuda [mixed|plain [FROZEN]]]\n");
        return DT_ERR_USAGE;
    }
    struct run run = {.model = argv[1],
                      .classes = (int)strtol(argv[2], NULL, 10),
                      .size = (int)strtol(argv[3], NULL, 10),
                      .batch = (int)strtol(argv[4], NULL, 10),
                      .steps = (int)strtol(argv[5], NULL, 10),
                      .lr = strtof(argv[6], NULL),
                      .weights = argv[7],
                      .batches = argv[8],
                      .out = argv[9],
                      .device_kind = argc > 10 ? argv[10] : "cpu",
                      .mixed = argc > 11 && strcmp(argv[11], "mixed") == 0,
                      .frozen = argc > 12 ? argv[12] : ""};
    dt_status status = run_all(&run);
    if (status != DT_OK)
        fprintf(stderr, "steps_tool: %s\n%s\n", dt_error_text(), dt_error_trail());
    return status;
}
