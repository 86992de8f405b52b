/* The loader of a detector on four canvases, over JPEG files of many sizes with made-up boxes: each
 * batch has one canvas, the data are the same for every number of ranks and workers, evaluation
 * sees each image once, a restart continues exactly, and bad images are replaced by others of the
 * same canvas. */
#include "boxes/canvas.h"
#include "data/dataset.h"
#include "image/jpeg.h"
#include "image/resize.h"
#include "loader_rig.h"

#include <math.h>

enum { N_CANVASES = 4, MAX = 3, G = 6 };
static const struct dt_canvases canvases = {{{80, 64}, {64, 80}, {64, 64}, {64, 128}}, N_CANVASES};
static const struct dt_config_data data = {.augment = DT_AUGMENT_IMAGENET,
                                           .prefetch = 3,
                                           .min_side = 48,
                                           .max_side = 150,
                                           .max_bad_fraction = 1.0};

/* --- A folder of files whose names say their sizes, with boxes --- */

static const char *g_unlike = ""; /* a part of the names of files of which the size is wrong */

static void image_of(const struct dt_dataset *dataset, uint32_t id, struct dt_image_info *out)
{
    char name[256];
    dt_dataset_folder.name(dataset, id, name, sizeof name);
    const int i = (int)strtol(strrchr(name, '/') + 1, NULL, 10);
    *out = (struct dt_image_info){i, good_width(i), good_height(i), NULL};
    if (g_unlike[0] && strstr(name, g_unlike))
        out->width++;
}

/* Half of the image; a crowd; the right end. */
static int truths_of(const struct dt_dataset *dataset, uint32_t id, struct dt_truth *out)
{
    struct dt_image_info info;
    image_of(dataset, id, &info);
    out[0] = (struct dt_truth){.w = info.width / 2.0, .h = info.height, .label = 1};
    out[1] = (struct dt_truth){.w = info.width, .h = info.height, .is_crowd = true};
    out[2] = (struct dt_truth){.x = info.width - 4, .y = 3, .w = 9, .h = 5, .label = (int)id % 3};
    return MAX;
}

static struct dt_dataset_kind g_kind;

static struct dt_dataset *open_boxes(const struct folder *folder)
{
    struct dt_dataset *dataset = open_folder(folder);
    g_kind = dt_dataset_folder;
    g_kind.image = image_of;
    g_kind.truths = truths_of;
    dataset->kind = &g_kind;
    dataset->max_boxes = MAX;
    return dataset;
}

static struct dt_loader_options options_of(bool train, int rank, int n_ranks, int micro,
                                           int workers)
{
    struct dt_loader_options options = {
        .train = train, .data = &data, .canvases = canvases, .workers = workers, .seed = SEED};
    options.split = (struct dt_split){.images = train ? G : n_ranks * micro,
                                      .n_parts = train ? G / micro : n_ranks,
                                      .first = train ? rank * (G / (n_ranks * micro)) : rank,
                                      .n_passes = train ? G / (n_ranks * micro) : 1,
                                      .unit = 1};
    return options;
}

static int canvas_of(const struct dt_dataset *dataset, uint32_t id)
{
    const struct dt_layout layout = {&data, canvases};
    struct dt_image_info info;
    image_of(dataset, id, &info);
    return dt_canvas_choose(&layout, info.width, info.height);
}

/* --- What a run has seen --- */

struct placed {
    uint32_t id;
    int32_t canvas, size[2], labels[MAX];
    float boxes[4 * MAX];
    uint64_t pixels; /* FNV-1a */
};

enum { MAX_BATCHES = N / G };
struct lap {
    struct placed rows[MAX_BATCHES][G];
    uint64_t n;
};

static uint64_t hash_of(const uint8_t *bytes, size_t n)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

static void note(struct placed *row, const struct dt_batch *batch, int i)
{
    const size_t bytes = 3 * (size_t)batch->width * (size_t)batch->height;
    assert_int_equal(batch->width, canvases.size[batch->canvas].width);
    assert_int_equal(batch->height, canvases.size[batch->canvas].height);
    row->id = batch->ids[i];
    row->canvas = batch->canvas;
    memcpy(row->size, batch->sizes + 2 * i, sizeof row->size);
    memcpy(row->labels, batch->box_labels + MAX * i, sizeof row->labels);
    memcpy(row->boxes, batch->boxes + 4 * MAX * i, sizeof row->boxes);
    row->pixels = hash_of(batch->pixels + bytes * (size_t)i, bytes);
}

static void read_lap(struct lap *lap, struct dt_loader *loader,
                     const struct dt_loader_options *options, uint32_t epoch, uint64_t first)
{
    const int n_parts = options->split.n_parts;
    const struct dt_batch *batch;
    lap->n = dt_loader_batches(loader);
    assert_in_range(lap->n, 1, MAX_BATCHES);
    assert_int_equal(dt_loader_start(loader, epoch, first), DT_OK);
    for (uint64_t m = 0; (batch = next(loader)); m++) {
        const int at = G * (options->split.first + batch->pass) / n_parts;
        for (int i = 0; i < batch->n; i++)
            note(&lap->rows[batch->index][at + i], batch, i);
        dt_loader_release(loader, batch);
    }
}

static void read_all(struct lap laps[EPOCHS], struct dt_dataset *dataset, int n_ranks, int micro,
                     int workers)
{
    memset(laps, 0, EPOCHS * sizeof *laps);
    for (int rank = 0; rank < n_ranks; rank++) {
        const struct dt_loader_options options = options_of(true, rank, n_ranks, micro, workers);
        struct dt_loader *loader = open_loader(dataset, &options);
        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++)
            read_lap(&laps[epoch], loader, &options, epoch, 0);
        dt_loader_destroy(loader);
    }
}

/* The batches that the plain rule gives. */
static void check_order(const struct lap *lap, const struct dt_dataset *dataset, uint32_t epoch)
{
    uint32_t order[N], own[N_CANVASES][N], n[N_CANVASES] = {0};
    uint64_t n_batches = 0;
    dt_sampler_order(order, N, SEED, epoch, true);
    for (int i = 0; i < N; i++) {
        const int canvas = canvas_of(dataset, order[i]);
        own[canvas][n[canvas]++] = order[i];
        if (n[canvas] % G != 0)
            continue;
        for (int k = 0; k < G; k++) {
            const struct placed *row = &lap->rows[n_batches][k];
            assert_int_equal(row->canvas, canvas);
            assert_int_equal(row->id, own[canvas][n[canvas] - G + (uint32_t)k]);
        }
        n_batches++;
    }
    assert_int_equal(lap->n, n_batches);
}

static struct folder g_folder;

static int make_files(void **state)
{
    (void)state;
    folder_make(&g_folder);
    folder_add_good(&g_folder, N);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    return remove_tree(g_folder.path);
}

TEST(ranks_and_workers)
{
    static const int cases[][3] = {{1, 3, 3}, {2, 3, 2}, {2, 1, 4}, {3, 2, 1}, {6, 1, 2}};
    struct dt_dataset *dataset = open_boxes(&g_folder);
    struct lap *expected = malloc(EPOCHS * sizeof *expected), *laps = malloc(EPOCHS * sizeof *laps);
    int n_used[N_CANVASES] = {0};
    read_all(expected, dataset, 1, G, 1);
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        check_order(&expected[epoch], dataset, epoch);
        for (uint64_t i = 0; i < expected[epoch].n; i++)
            n_used[expected[epoch].rows[i][0].canvas]++;
    }
    for (int i = 0; i < N_CANVASES; i++)
        assert_true(n_used[i] > 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        read_all(laps, dataset, cases[i][0], cases[i][1], cases[i][2]);
        assert_memory_equal(laps, expected, EPOCHS * sizeof *laps);
    }
    free(laps);
    free(expected);
    dt_dataset_close(dataset);
}

TEST(restart)
{
    struct dt_dataset *dataset = open_boxes(&g_folder);
    const struct dt_loader_options options = options_of(true, 1, 2, 3, 2);
    struct lap whole = {0}, rest = {0};
    struct dt_loader *loader = open_loader(dataset, &options);
    read_lap(&whole, loader, &options, 1, 0);
    dt_loader_destroy(loader);
    for (uint64_t first = 1; first < whole.n; first++) {
        loader = open_loader(dataset, &options);
        read_lap(&rest, loader, &options, 1, first);
        assert_memory_equal(rest.rows[first], whole.rows[first],
                            (whole.n - first) * sizeof whole.rows[0]);
        dt_loader_destroy(loader);
    }
    dt_dataset_close(dataset);
}

/* The pixels: the whole decoded image, resized and flipped in the corner, and zeros. */
static void check_pixels(const struct dt_dataset *dataset, const struct dt_batch *batch, int row)
{
    const int32_t height = batch->sizes[2 * row], width = batch->sizes[2 * row + 1];
    const uint8_t *pixels =
        batch->pixels + 3 * (size_t)row * (size_t)batch->width * (size_t)batch->height;
    struct dt_sample sample = {0};
    struct dt_jpeg *jpeg;
    struct dt_resize *resize;
    struct dt_rect need;
    int w, h;
    assert_int_equal(dt_jpeg_create(&jpeg, NULL), DT_OK);
    assert_int_equal(dt_resize_create(&resize), DT_OK);
    assert_int_equal(dt_dataset_read(dataset, batch->ids[row], &sample), DT_OK);
    assert_int_equal(dt_jpeg_open(jpeg, &w, &h, sample.data, sample.bytes), DT_OK);
    const struct dt_crop whole = {0, 0, (float)w, (float)h, batch->crops[row].flip};
    uint8_t *all = malloc((size_t)w * (size_t)h * 3 + DT_RESIZE_PAD);
    uint8_t *expected = malloc((size_t)width * (size_t)height * 3);
    assert_int_equal(dt_jpeg_decode(jpeg, all, 0, 0, w, h), DT_OK);
    assert_int_equal(dt_resize_prepare(resize, &need, &whole, DT_RESIZE_IMAGE, w, h, width, height),
                     DT_OK);
    assert_true(need.w == w && need.h == h);
    dt_resize_run(resize, expected, all);
    for (int y = 0; y < batch->height; y++) {
        const int used = y < height ? width : 0;
        assert_memory_equal(pixels + 3 * y * batch->width, expected + 3 * y * width, 3 * used);
        for (int i = 3 * used; i < 3 * batch->width; i++)
            assert_int_equal(pixels[3 * y * batch->width + i], 0);
    }
    free(expected);
    free(all);
    free(sample.data);
    dt_resize_destroy(resize);
    dt_jpeg_destroy(jpeg);
}

/* The first box is half of the image, the crowd is left out, the last is cut at the edge. */
static void check_boxes(const struct dt_batch *batch, int row)
{
    const float *box = batch->boxes + 4 * MAX * row;
    const int32_t *labels = batch->box_labels + MAX * row;
    const float width = (float)batch->sizes[2 * row + 1], height = (float)batch->sizes[2 * row];
    const bool flip = batch->crops[row].flip;
    assert_true(fabsf(box[flip ? 0 : 2] - width / 2) < 1e-4f &&
                box[flip ? 2 : 0] == (flip ? width : 0));
    assert_true(box[1] == 0 && box[3] == height);
    assert_true(flip ? box[4] == 0 : box[6] == width);
    assert_true(box[8] == 0 && box[10] == 0);
    assert_int_equal(labels[0], 1);
    assert_int_equal(labels[1], batch->ids[row] % 3);
    assert_int_equal(labels[2], -1);
}

TEST(rows)
{
    struct dt_dataset *dataset = open_boxes(&g_folder);
    const struct dt_loader_options options = options_of(true, 0, 1, G, 2);
    struct dt_loader *loader = open_loader(dataset, &options);
    const struct dt_batch *batch;
    int n_flips = 0;
    assert_int_equal(dt_loader_start(loader, 0, 0), DT_OK);
    while ((batch = next(loader))) {
        for (int i = 0; i < batch->n; i++) {
            check_pixels(dataset, batch, i);
            check_boxes(batch, i);
            n_flips += batch->crops[i].flip;
        }
        dt_loader_release(loader, batch);
    }
    assert_in_range(n_flips, 5, 40);
    dt_loader_destroy(loader);
    dt_dataset_close(dataset);
}

/* Turned, and with other colours: the boxes stay inside the images, and the rest is 0. */
TEST(changed_rows)
{
    struct dt_config_data changed = data;
    struct dt_dataset *dataset = open_boxes(&g_folder);
    struct dt_loader_options options = options_of(true, 0, 1, G, 3);
    const struct dt_batch *batch;
    struct placed row, plain_row;
    int n_same = 0, n = 0;
    changed.color_jitter = 0.4;
    changed.rotate = changed.shear = changed.translate = changed.scale = 0.3;
    struct dt_loader *plain = open_loader(dataset, &options);
    options.data = &changed;
    struct dt_loader *loader = open_loader(dataset, &options);
    assert_int_equal(dt_loader_start(plain, 2, 0), DT_OK);
    assert_int_equal(dt_loader_start(loader, 2, 0), DT_OK);
    while ((batch = next(loader))) {
        const struct dt_batch *other = next(plain);
        for (int i = 0; i < G; i++, n++) {
            const size_t first = (size_t)i * (size_t)batch->width * (size_t)batch->height;
            note(&row, batch, i);
            note(&plain_row, other, i);
            n_same += row.pixels == plain_row.pixels;
            assert_memory_equal(row.size, plain_row.size, sizeof row.size);
            for (int k = 0; k < batch->width * batch->height; k++)
                if (k / batch->width >= row.size[0] || k % batch->width >= row.size[1])
                    assert_memory_equal(batch->pixels + 3 * (first + (size_t)k), "\0\0\0", 3);
            for (int k = 0; k < MAX && row.labels[k] >= 0; k++) {
                const float *b = row.boxes + 4 * k;
                assert_true(b[0] >= 0 && b[0] < b[2] && b[2] <= (float)row.size[1]);
                assert_true(b[1] >= 0 && b[1] < b[3] && b[3] <= (float)row.size[0]);
            }
        }
        dt_loader_release(loader, batch);
        dt_loader_release(plain, other);
    }
    assert_true(n > 0 && n_same == 0);
    dt_loader_destroy(loader);
    dt_loader_destroy(plain);
    dt_dataset_close(dataset);
}

/* Each image once, whatever the ranks; rows that are left over are empty. */
TEST(evaluation)
{
    struct dt_dataset *dataset = open_boxes(&g_folder);
    for (int n_ranks = 1; n_ranks <= 3; n_ranks++) {
        int seen[N] = {0}, n_empty = 0;
        for (int rank = 0; rank < n_ranks; rank++) {
            const struct dt_loader_options options = options_of(false, rank, n_ranks, 4, 2);
            struct dt_loader *loader = open_loader(dataset, &options);
            const struct dt_batch *batch;
            assert_int_equal(dt_loader_start(loader, 0, 0), DT_OK);
            while ((batch = next(loader))) {
                for (int i = 0; i < batch->n; i++) {
                    assert_int_equal(canvas_of(dataset, batch->ids[i]), batch->canvas);
                    assert_false(batch->crops[i].flip);
                    seen[batch->ids[i]]++;
                }
                for (int i = batch->n; i < 4; i++, n_empty++)
                    assert_true(batch->labels[i] == -1 && batch->box_labels[MAX * i] == -1);
                dt_loader_release(loader, batch);
            }
            dt_loader_destroy(loader);
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(seen[i], 1);
        assert_true(n_empty > 0);
    }
    dt_dataset_close(dataset);
}

/* Files of another size than annotated are bad: replaced by one of the same canvas. */
TEST(wrong_sizes)
{
    struct dt_dataset *dataset = open_boxes(&g_folder);
    const struct dt_loader_options options = options_of(true, 0, 1, G, 2);
    g_unlike = "2-good";
    struct dt_loader *loader = open_loader(dataset, &options);
    const struct dt_batch *batch;
    uint64_t n_bad, n_before;
    int n_replaced = 0;
    assert_int_equal(dt_loader_start(loader, 0, 0), DT_OK);
    while ((batch = next(loader))) {
        const struct dt_canvas *canvas = &canvases.size[batch->canvas];
        for (int i = 0; i < batch->n; i++) {
            char name[256];
            assert_int_equal(canvas_of(dataset, batch->ids[i]), batch->canvas);
            assert_in_range(batch->sizes[2 * i], 1, canvas->height);
            assert_in_range(batch->sizes[2 * i + 1], 1, canvas->width);
            dt_dataset_name(dataset, batch->ids[i], name, sizeof name);
            n_replaced += strstr(name, g_unlike) != NULL;
        }
        dt_loader_release(loader, batch);
    }
    dt_loader_bad_positions(loader, &n_bad, &n_before);
    assert_true(n_replaced > 0 && n_bad == (uint64_t)n_replaced);
    dt_loader_destroy(loader);
    g_unlike = "";
    dt_dataset_close(dataset);
}

TEST(counts)
{
    struct dt_dataset *dataset = open_boxes(&g_folder);
    struct dt_loader_options options = options_of(true, 0, 1, G, 1);
    struct dt_loader *loader;
    uint32_t n[DT_MAX_CANVASES], own[N_CANVASES] = {0};
    dt_loader_count(n, NULL, dataset, options.data, &options.canvases);
    for (uint32_t id = 0; id < N; id++)
        own[canvas_of(dataset, id)]++;
    for (int i = 0; i < N_CANVASES; i++)
        assert_int_equal(n[i], own[i]);
    options.split.images = 40; /* fewer than all, but more than on a canvas */
    assert_error(dt_loader_create(&loader, dataset, &options), DT_ERR_CONFIG,
                 "less than one global batch of 40 on each canvas");
    options.canvases.n = 1;
    dt_loader_count(n, NULL, dataset, options.data, &options.canvases);
    assert_true(n[0] == N && n[1] == 0);
    dt_dataset_close(dataset);
}

TEST_MAIN(make_files, remove_files)
