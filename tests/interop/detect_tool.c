/* Trains a detector on given weights and batches and detects, for comparison with torchvision.
 *
 *   detect_tool HEIGHT WIDTH MAX_BOXES STEPS WEIGHTS BATCHES OUT [KEY=VALUE...]
 *
 * KEY=VALUE: settings, such as model.name, train.global_batch_size (of the one rank) and
 * schedule.lr, which is constant. WEIGHTS: safetensors, or "" for random ones. BATCHES: per step
 * the pixels (u8 N,H,W,3), sizes (i32 N,2), boxes (f32 N,MAX_BOXES,4) and labels (i32 N,MAX_BOXES;
 * -1 = no box); read again from its beginning when it ends. Prints "loss box_loss" for each step,
 * then a line "image x1 y1 x2 y2 score label" for each detection in the last batch, or with 0 steps
 * in the first one. OUT gets "grad.<name>" (of step 1), "stat.<name>" and "param.<name>" (after the
 * last step). */
#include <string.h>

#include "../support/plan_files.h"
#include "base/clock.h"
#include "dtrain/models.h"
#include "eval/detections.h"

struct run {
    struct dt_config config;
    int height, width, max_boxes, batch, steps;
    const char *weights, *batches, *out;
    struct tool_device device;
    struct dt_plan *plan;
};

static dt_status build_graph(struct dt_graph **g, struct run *run)
{
    const struct dt_config *config = &run->config;
    const struct dt_model_options options =
        dt_config_model_options(config, config->model.num_classes);
    const struct dt_model *model = dt_model_find(config->model.name);
    if (!model)
        return DT_ERR_CONFIG;
    DT_TRY(dt_graph_create(g));
    for (int phase = run->steps > 0 ? DT_TRAIN : DT_EVAL; phase < DT_N_PHASES; phase++) {
        DT_TRY(dt_graph_begin(*g, (enum dt_phase)phase, run->batch, run->height, run->width));
        DT_TRY(dt_graph_boxes(*g, run->max_boxes));
        int image = dt_graph_ingest(*g, config->data.mean, config->data.std);
        model->build(*g, image, model, &options);
    }
    DT_TRY(dt_graph_fuse(*g, is_supported, &run->device));
    return run->steps > 0 ? dt_graph_differentiate(*g) : dt_graph_check(*g);
}

/* --- Batches --- */

struct batch {
    uint8_t *pixels;
    int32_t *sizes, *labels;
    float *boxes;
    FILE *file;
};

static dt_status open_batches(struct batch *b, const struct run *run)
{
    const size_t n = (size_t)run->batch, m = n * (size_t)run->max_boxes;
    DT_TRY(DT_NEW(b->pixels, n * (size_t)(run->height * run->width * 3)));
    DT_TRY(DT_NEW(b->sizes, 2 * n));
    DT_TRY(DT_NEW(b->boxes, 4 * m));
    DT_TRY(DT_NEW(b->labels, m));
    b->file = fopen(run->batches, "rb");
    if (!b->file)
        DT_FAIL(DT_ERR_NO_INPUT, "cannot open %s", run->batches);
    return DT_OK;
}

static bool read_batch(struct batch *b, const struct run *run)
{
    const size_t n = (size_t)run->batch, m = n * (size_t)run->max_boxes;
    const size_t bytes = n * (size_t)(run->height * run->width * 3);
    return fread(b->pixels, 1, bytes, b->file) == bytes &&
           fread(b->sizes, sizeof(int32_t), 2 * n, b->file) == 2 * n &&
           fread(b->boxes, sizeof(float), 4 * m, b->file) == 4 * m &&
           fread(b->labels, sizeof(int32_t), m, b->file) == m;
}

static dt_status next_batch(struct batch *b, const struct run *run)
{
    if (read_batch(b, run))
        return DT_OK;
    rewind(b->file);
    if (!read_batch(b, run))
        DT_FAIL(DT_ERR_DATA, "%s is too short", run->batches);
    return DT_OK;
}

static dt_status feed(const struct batch *b, struct run *run, int program)
{
    const struct dt_feed input = {
        .pixels = b->pixels, .sizes = b->sizes, .boxes = b->boxes, .box_labels = b->labels};
    return dt_plan_feed(run->plan, program, &input);
}

static void close_batches(struct batch *b)
{
    fclose(b->file);
    free(b->pixels);
    free(b->sizes);
    free(b->boxes);
    free(b->labels);
}

/* --- Steps --- */

/* Gradients as the plan has them are not divided yet. */
static void divide(const struct dt_graph *g, struct section *gradients, double by)
{
    for (int t = 0; t < g->n_tensors; t++)
        for (size_t i = 0; gradients->values[t] && i < dt_tensor_elements(&g->tensor[t]); i++)
            gradients->values[t][i] /= (float)by;
}

static dt_status train(struct run *run, struct batch *b, struct section *gradients)
{
    const bool global = run->config.train.loss_normalizer == DT_NORMALIZER_GLOBAL;
    for (int step = 0; step < run->steps; step++) {
        const struct dt_scalars scalars = {.lr = (float)run->config.schedule.lr,
                                           .optim = dt_config_optim(&run->config),
                                           .diff_scale = global ? 1 : 1 / (float)run->batch,
                                           .step = (uint32_t)step};
        struct dt_counters c;
        const double begin_s = dt_clock_s();
        DT_TRY(next_batch(b, run));
        DT_TRY(feed(b, run, DT_TRAIN));
        DT_TRY(dt_plan_train(run->plan, DT_TRAIN, &scalars, 0, 1));
        DT_TRY(dt_plan_end_feed(run->plan));
        DT_TRY(run->device.backend->download(run->device.device, &c));
        printf("%.9g %.9g\n", c.loss / c.weight, c.box_loss / c.weight);
        fflush(stdout);
        if (getenv("DETECT_TOOL_TIMES"))
            fprintf(stderr, "%.6f\n", dt_clock_s() - begin_s);
        if (step == 0) {
            DT_TRY(take(run->plan, gradients));
            divide(run->plan->graph, gradients, global && c.weight > 1 ? c.weight : 1);
        }
    }
    return DT_OK;
}

/* --- Detections --- */

static dt_status print_image(const struct dt_levels *levels, int image)
{
    enum { MAX = 300 };
    struct dt_detection d[MAX];
    int n;
    DT_TRY(dt_levels_detect(d, &n, levels, image, 0.5, MAX));
    for (int i = 0; i < n; i++)
        printf("%d %.9g %.9g %.9g %.9g %.9g %d\n", image, (double)d[i].box[0], (double)d[i].box[1],
               (double)d[i].box[2], (double)d[i].box[3], (double)d[i].score, d[i].label);
    return DT_OK;
}

static dt_status detect(struct run *run, const struct batch *b)
{
    struct dt_levels levels = {.n_levels = 0};
    DT_TRY(feed(b, run, DT_EVAL));
    DT_TRY(dt_plan_eval(run->plan, DT_EVAL));
    DT_TRY(dt_plan_end_feed(run->plan));
    DT_TRY(dt_levels_read(&levels, run->plan, DT_EVAL));
    for (int image = 0; image < run->batch; image++)
        DT_TRY(print_image(&levels, image));
    dt_levels_reset(&levels);
    return DT_OK;
}

/* --- The whole --- */

static dt_status run_batches(struct run *run)
{
    struct section sections[] = {
        {"grad", DT_PARAM, DT_ARENA_GRADS, NULL},
        {"stat", DT_STAT, DT_ARENA_STATS, NULL},
        {"param", DT_PARAM, DT_ARENA_PARAMS, NULL},
    };
    struct batch b;
    DT_TRY(open_batches(&b, run));
    if (run->steps == 0)
        DT_TRY(next_batch(&b, run));
    DT_TRY(train(run, &b, &sections[0]));
    DT_TRY(detect(run, &b));
    close_batches(&b);
    if (run->steps == 0)
        return DT_OK;
    DT_TRY(take(run->plan, &sections[1]));
    DT_TRY(take(run->plan, &sections[2]));
    return write_out(run->plan->graph, run->out, sections, 3);
}

static dt_status run_all(struct run *run)
{
    const struct dt_plan_options options = {.bucket_bytes = 4 << 20,
                                            .last_bucket_bytes = 1 << 20,
                                            .n_ranks = 1,
                                            .record = true,
                                            .optim = run->config.optim.name};
    struct dt_graph *g = NULL;
    DT_TRY(open_device(&run->device, &run->config));
    DT_TRY(build_graph(&g, run));
    DT_TRY(dt_plan_build(&run->plan, g, run->device.backend, run->device.device, NULL, &options));
    DT_TRY(dt_plan_init_params(run->plan, 1));
    if (run->weights[0])
        DT_TRY(load_weights(run->plan, run->weights));
    DT_TRY(run_batches(run));
    dt_plan_destroy(run->plan);
    dt_graph_destroy(g);
    run->device.backend->close(run->device.device);
    return DT_OK;
}

int main(int argc, char **argv)
{
    enum { FIRST_SETTING = 8 };
    if (argc < FIRST_SETTING) {
        fprintf(stderr, "usage: detect_tool HEIGHT WIDTH MAX_BOXES STEPS WEIGHTS BATCHES OUT "
                        "[KEY=VALUE...]\n");
        return DT_ERR_USAGE;
    }
    struct run run = {.height = (int)strtol(argv[1], NULL, 10),
                      .width = (int)strtol(argv[2], NULL, 10),
                      .max_boxes = (int)strtol(argv[3], NULL, 10),
                      .steps = (int)strtol(argv[4], NULL, 10),
                      .weights = argv[5],
                      .batches = argv[6],
                      .out = argv[7]};
    dt_status status = dt_config_load(&run.config, NULL, (const char *const *)argv + FIRST_SETTING,
                                      (size_t)(argc - FIRST_SETTING));
    run.batch = run.config.train.global_batch_size;
    if (status == DT_OK)
        status = run_all(&run);
    if (status != DT_OK)
        fprintf(stderr, "detect_tool: %s\n%s\n", dt_error_text(), dt_error_trail());
    return status;
}
