/* Parts of the input pipeline, each timed by itself, for input_vs_torchvision.py,
 * detect_input_vs_torchvision.py, index_1300k.py and coco_read.py. One JSON line on standard
 * output: images, seconds of CPU time and by the clock. Rows are those of epoch EPOCH, the first N
 * of its order.
 *
 *     input_tool full   PATH SIZE AUGMENT EPOCH N     libjpeg's decode of whole images from memory
 *     input_tool crop   PATH SIZE AUGMENT EPOCH N     decode of what the rows need, from memory
 *     input_tool row    PATH SIZE AUGMENT EPOCH N     rows: read, decode, resize
 *     input_tool loader PATH SIZE AUGMENT EPOCH N WORKERS     the loader, epochs from EPOCH on
 *     input_tool canvas PATH EPOCH LAPS [warp]        rows of a detector, of COCO's annotations
 *     input_tool index  PATH CACHE                    opens a data set
 *     input_tool coco   PATH                          reads COCO's annotations */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <jpeglib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "boxes/coco.h"
#include "data/dataset.h"
#include "data/row.h"
#include "dtrain/data.h"
#include "image/jpeg.h"
#include "image/resize.h"

static const struct dt_config_data shards_data = {.source = DT_SOURCE_SHARDS};

enum { SEED = 1, BATCH = 16 };

struct tool {
    struct dt_dataset *dataset;
    struct dt_config_data data;
    struct dt_loader_options options;
    uint32_t epoch, laps, n, n_samples, *order;
    struct dt_sample *samples; /* by position, where they are kept in memory */
    uint8_t *pixels;           /* of a row, or of a whole image */
    size_t capacity;
    double cpu_s, clock_s;
};

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void start(struct tool *t)
{
    t->cpu_s = cpu_s();
    t->clock_s = dt_clock_s();
}

static void stop(const struct tool *t, double images)
{
    printf("{\"images\": %.0f, \"cpu_s\": %.6f, \"clock_s\": %.6f}\n", images, cpu_s() - t->cpu_s,
           dt_clock_s() - t->clock_s);
}

static dt_status load_samples(struct tool *t)
{
    DT_TRY(DT_NEW(t->samples, t->n));
    for (uint32_t i = 0; i < t->n; i++)
        DT_TRY(dt_dataset_read(t->dataset, t->order[i], &t->samples[i]));
    return DT_OK;
}

static dt_status room(struct tool *t, size_t bytes)
{
    return DT_GROW(t->pixels, t->capacity, bytes, "pixels");
}

/* As Pillow and any plain user of libjpeg: no crop, one object for all images. */
static dt_status decode_full(struct tool *t)
{
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    info.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&info);
    start(t);
    for (uint32_t i = 0; i < t->n; i++) {
        jpeg_mem_src(&info, t->samples[i].data, t->samples[i].bytes);
        jpeg_read_header(&info, TRUE);
        info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
        jpeg_start_decompress(&info);
        size_t row = (size_t)info.output_width * (size_t)info.output_components;
        DT_TRY(room(t, row * info.output_height));
        while (info.output_scanline < info.output_height) {
            JSAMPROW line = t->pixels + row * info.output_scanline;
            jpeg_read_scanlines(&info, &line, 1);
        }
        jpeg_finish_decompress(&info);
    }
    stop(t, t->n);
    jpeg_destroy_decompress(&info);
    return DT_OK;
}

static dt_status find_need(struct tool *t, uint32_t i, int width, int height,
                           struct dt_resize *resize, struct dt_rect *need)
{
    const struct dt_loader_options *o = &t->options;
    const int side = o->canvases.size[0].width;
    struct dt_crop crop;
    dt_crop_draw(&crop, o->data, true, SEED, t->epoch, t->order[i], width, height, side);
    return dt_resize_prepare(resize, need, &crop, DT_RESIZE_CROP, width, height, side, side);
}

static dt_status decode_crops(struct tool *t)
{
    struct dt_jpeg *jpeg = NULL;
    struct dt_resize *resize = NULL;
    struct dt_rect *needs = NULL, *need;
    dt_status status;
    int width, height;
    DT_TRY_OUT(dt_jpeg_create(&jpeg, NULL));
    DT_TRY_OUT(dt_resize_create(&resize));
    DT_TRY_OUT(DT_NEW(needs, t->n));
    for (uint32_t i = 0; i < t->n; i++) {
        const struct dt_sample *s = &t->samples[i];
        need = &needs[i];
        DT_TRY_OUT(dt_jpeg_open(jpeg, &width, &height, s->data, s->bytes));
        DT_TRY_OUT(find_need(t, i, width, height, resize, need));
        DT_TRY_OUT(room(t, (size_t)need->w * (size_t)need->h * 3));
    }
    start(t);
    for (uint32_t i = 0; i < t->n; i++) {
        const struct dt_sample *s = &t->samples[i];
        need = &needs[i];
        DT_TRY_OUT(dt_jpeg_open(jpeg, &width, &height, s->data, s->bytes));
        DT_TRY_OUT(dt_jpeg_decode(jpeg, t->pixels, need->x, need->y, need->w, need->h));
    }
    stop(t, t->n);
out:
    dt_jpeg_destroy(jpeg);
    dt_resize_destroy(resize);
    free(needs);
    return status;
}

static dt_status make_rows(struct tool *t)
{
    struct dt_row_reader *reader = NULL;
    struct dt_crop crop;
    dt_status status = DT_OK;
    const struct dt_canvas size = dt_row_canvas(&t->options);
    DT_TRY_OUT(room(t, 3 * (size_t)size.width * (size_t)size.height));
    DT_TRY_OUT(dt_row_reader_create(&reader, t->dataset, &t->options));
    start(t);
    for (uint32_t lap = 0; lap < t->laps; lap++)
        for (uint32_t i = 0; i < t->n; i++)
            DT_TRY_OUT(dt_row_read(reader, t->pixels, &crop, t->epoch + lap, t->order[i]));
    stop(t, t->n * t->laps);
out:
    dt_row_reader_destroy(reader);
    return status;
}

/* From the first batch on, so that the start is left out; N images are enough. */
static dt_status run_loader(struct tool *t)
{
    struct dt_loader *loader = NULL;
    struct dt_loader_times first = {0}, now = {0};
    const struct dt_batch *batch;
    dt_status status;
    DT_TRY_OUT(dt_loader_create(&loader, t->dataset, &t->options));
    for (uint32_t epoch = t->epoch; first.images == 0 || now.images - first.images < t->n;) {
        DT_TRY_OUT(dt_loader_next(loader, &batch));
        if (!batch) {
            DT_TRY_OUT(dt_loader_start(loader, epoch++, 0));
            continue;
        }
        dt_loader_release(loader, batch);
        dt_loader_times(loader, &now);
        if (first.images > 0)
            continue;
        first = now;
        start(t);
    }
    stop(t, (double)(now.images - first.images));
out:
    dt_loader_destroy(loader);
    return status;
}

/* --- Index --- */

/* The most memory this process has had. */
static long peak_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static void print_opened(uint32_t images, double begin_cpu_s, double begin_s, long before_kib)
{
    printf("{\"images\": %u, \"cpu_s\": %.6f, \"clock_s\": %.6f, \"before_kib\": %ld, "
           "\"peak_kib\": %ld}\n",
           images, cpu_s() - begin_cpu_s, dt_clock_s() - begin_s, before_kib, peak_kib());
}

static dt_status open_coco(const char *path)
{
    struct dt_coco coco;
    dt_log_init(DT_LOG_WARNING, 0, 1);
    const long before_kib = peak_kib();
    const double begin_cpu_s = cpu_s(), begin_s = dt_clock_s();
    DT_TRY(dt_coco_open(&coco, path, &(struct dt_coco_rules){0}));
    print_opened(coco.n_images, begin_cpu_s, begin_s, before_kib);
    dt_coco_reset(&coco);
    return DT_OK;
}

static dt_status open_index(const char *path, const char *cache)
{
    struct dt_dataset *dataset;
    struct dt_dataset_options options = {.data = &shards_data, .path = path, .cache_dir = cache};
    long before_kib = peak_kib();
    double begin_cpu_s = cpu_s(), begin_s = dt_clock_s();
    DT_TRY(dt_dataset_open(&dataset, &options));
    print_opened(dt_dataset_size(dataset), begin_cpu_s, begin_s, before_kib);
    dt_dataset_close(dataset);
    return DT_OK;
}

static dt_status open_tool(struct tool *t, char **argv, int workers)
{
    int size = atoi(argv[3]);
    struct dt_dataset_options set = {.data = &shards_data, .path = argv[2]};
    DT_TRY(dt_dataset_open(&t->dataset, &set));
    t->n_samples = dt_dataset_size(t->dataset);
    t->epoch = (uint32_t)atoi(argv[5]);
    t->laps = 1;
    t->n = (uint32_t)atoi(argv[6]);
    t->data = (struct dt_config_data){
        .augment = strcmp(argv[4], "cifar") == 0 ? DT_AUGMENT_CIFAR : DT_AUGMENT_IMAGENET,
        .scaled_decode = strcmp(argv[4], "scaled") == 0 ? DT_SCALED_TRAIN : DT_SCALED_NEVER,
        .val_resize = size,
        .prefetch = 3,
    };
    t->options = (struct dt_loader_options){
        .train = true,
        .data = &t->data,
        .canvases = {{{size, size}}, 1},
        .split = {BATCH, 1, 0, 1, 1},
        .workers = workers,
        .seed = SEED,
    };
    DT_TRY(DT_NEW(t->order, t->n_samples));
    dt_sampler_order(t->order, t->n_samples, SEED, t->epoch, true);
    if (workers == 0 && t->n > t->n_samples)
        t->n = t->n_samples;
    return DT_OK;
}

/* Of both orientations; images are at 800/1333 and flipped, warped ones also turned and scaled. */
static dt_status open_canvases(struct tool *t, char **argv, double warp)
{
    const struct dt_dataset_options set = {
        .data = &t->data, .path = argv[2], .targets = DT_COLUMN_BOXES};
    t->data = (struct dt_config_data){.source = DT_SOURCE_AUTO,
                                      .augment = DT_AUGMENT_IMAGENET,
                                      .min_side = 800,
                                      .max_side = 1333,
                                      .rotate = warp,
                                      .scale = warp};
    t->options = (struct dt_loader_options){
        .train = true, .data = &t->data, .canvases = {{{1344, 800}, {800, 1344}}, 2}, .seed = SEED};
    t->epoch = (uint32_t)atoi(argv[3]);
    t->laps = (uint32_t)atoi(argv[4]);
    DT_TRY(dt_dataset_open(&t->dataset, &set));
    t->n = dt_dataset_size(t->dataset);
    DT_TRY(DT_NEW(t->order, t->n));
    dt_sampler_order(t->order, t->n, SEED, t->epoch, false);
    return DT_OK;
}

static dt_status run(struct tool *t, int argc, char **argv)
{
    static const struct {
        const char *name;
        int argc;
        bool in_memory;
        dt_status (*run)(struct tool *t);
    } parts[] = {{"full", 7, true, decode_full},
                 {"crop", 7, true, decode_crops},
                 {"row", 7, false, make_rows},
                 {"loader", 8, false, run_loader}};
    if (argc == 4 && strcmp(argv[1], "index") == 0)
        return open_index(argv[2], argv[3]);
    if (argc == 3 && strcmp(argv[1], "coco") == 0)
        return open_coco(argv[2]);
    if ((argc == 5 || argc == 6) && strcmp(argv[1], "canvas") == 0) {
        DT_TRY(open_canvases(t, argv, argc == 6 ? 0.1 : 0));
        return make_rows(t);
    }
    for (size_t i = 0; i < DT_COUNT(parts); i++) {
        if (argc != parts[i].argc || strcmp(argv[1], parts[i].name) != 0)
            continue;
        DT_TRY(open_tool(t, argv, argc == 8 ? atoi(argv[7]) : 0));
        if (parts[i].in_memory)
            DT_TRY(load_samples(t));
        return parts[i].run(t);
    }
    DT_FAIL(DT_ERR_USAGE, "see the head of tests/perf/input_tool.c");
}

int main(int argc, char **argv)
{
    struct tool t = {0};
    dt_status status = run(&t, argc, argv);
    if (status != DT_OK)
        fprintf(stderr, "input_tool: %s\n", dt_error_text());
    for (uint32_t i = 0; t.samples && i < t.n; i++)
        free(t.samples[i].data);
    free(t.samples);
    free(t.order);
    free(t.pixels);
    dt_dataset_close(t.dataset);
    return (int)status;
}
