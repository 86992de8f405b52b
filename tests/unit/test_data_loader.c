/* The loader over a folder of generated JPEG files: the data of an epoch are the same for every
 * number of ranks and workers, evaluation sees each image once, a restart continues exactly, and
 * starting or ending at any moment is safe. */
#include "data/dataset.h"
#include "image/jpeg.h"
#include "image/resize.h"
#include "loader_rig.h"

static const struct dt_config_data synthetic_data = {.source = DT_SOURCE_SYNTHETIC};

/* The crop that a good sample must have got in this epoch. */
static void check_crop(const struct dt_dataset *dataset, const struct row *row, uint32_t epoch)
{
    char name[256];
    struct dt_crop crop;
    const char *number = strrchr(dt_dataset_name(dataset, row->id, name, sizeof name), '/') + 1;
    int i = (int)strtol(number, NULL, 10);
    dt_crop_draw(&crop, &rig_data, true, SEED, epoch, row->id, good_width(i), good_height(i), SIZE);
    assert_true(row->crop.x == crop.x && row->crop.y == crop.y && row->crop.w == crop.w &&
                row->crop.h == crop.h && row->crop.flip == crop.flip);
}

/* The pixels, made here from all of the decoded image. */
static void check_pixels(const struct dt_dataset *dataset, const struct row *row,
                         enum dt_resize_edge edge)
{
    struct dt_sample sample = {0};
    struct dt_jpeg *jpeg;
    struct dt_resize *resize;
    struct dt_rect need;
    int width, height;
    uint8_t expected[SIZE * SIZE * 3];
    assert_int_equal(dt_jpeg_create(&jpeg, NULL), DT_OK);
    assert_int_equal(dt_resize_create(&resize), DT_OK);
    assert_int_equal(dt_dataset_read(dataset, row->id, &sample), DT_OK);
    assert_int_equal(dt_jpeg_open(jpeg, &width, &height, sample.data, sample.bytes), DT_OK);
    uint8_t *all = malloc((size_t)width * (size_t)height * 3 + DT_RESIZE_PAD);
    assert_int_equal(dt_jpeg_decode(jpeg, all, 0, 0, width, height), DT_OK);
    assert_int_equal(dt_resize_prepare(resize, &need, &row->crop, edge, width, height, SIZE, SIZE),
                     DT_OK);
    for (int y = 0; y < need.h; y++)
        memmove(all + y * need.w * 3, all + ((need.y + y) * width + need.x) * 3,
                (size_t)need.w * 3);
    dt_resize_run(resize, expected, all);
    assert_memory_equal(row->pixels, expected, sizeof expected);
    free(all);
    free(sample.data);
    dt_resize_destroy(resize);
    dt_jpeg_destroy(jpeg);
}

TEST(ranks_and_workers)
{
    struct folder folder;
    uint32_t order[N];
    static struct run run;
    struct dt_dataset *dataset = open_good(&folder, N);
    read_run(&run, dataset, 1, GLOBAL, 1);
    int n_flips = 0;
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        dt_sampler_order(order, N, SEED, epoch, true);
        for (int p = 0; p < BATCHES * GLOBAL; p++) {
            const struct row *row = &run.rows[epoch][p / GLOBAL][p % GLOBAL];
            assert_int_equal(row->id, order[p]);
            assert_int_equal(row->label, dt_dataset_label(dataset, order[p]));
            check_crop(dataset, row, epoch);
            check_pixels(dataset, row, DT_RESIZE_CROP);
            n_flips += row->crop.flip;
        }
    }
    assert_true(n_flips > EPOCHS * BATCHES * GLOBAL / 4 &&
                n_flips < EPOCHS * BATCHES * GLOBAL * 3 / 4);
    check_same_for_all_splits(dataset, &run);
    close_folder(&folder, dataset);
}

/* Neighbours in the order share their labels; crops are those without mixing; and all of it is the
 * same for every split in even micro-batches. */
TEST(mixing)
{
    static const struct dt_config_data data = {RIG_DATA, .color_jitter = 0.4, .random_erasing = 0.5,
                                               .mixup = 0.2, .cutmix = 1};
    struct folder folder;
    static struct run plain, run, expected;
    int n_mixed = 0;
    struct dt_dataset *dataset = open_good(&folder, N);
    read_run(&plain, dataset, 1, GLOBAL, 1);
    read_run_with(&expected, dataset, 1, GLOBAL, 1, &data);
    for (int p = 0; p < EPOCHS * BATCHES * GLOBAL; p++) {
        const struct row *rows = (const void *)expected.rows, *row = rows + p;
        const struct row *other = rows + (p ^ 1), *before = (const struct row *)plain.rows + p;
        assert_true(row->id == before->id && row->label == before->label);
        assert_memory_equal(&row->crop, &before->crop, sizeof row->crop);
        assert_true(before->label2 == before->label && before->share == 1);
        assert_true(row->label2 == other->label && row->share == other->share);
        assert_true(row->share >= 0.5f && row->share <= 1);
        n_mixed += row->share < 1;
    }
    assert_true(n_mixed > EPOCHS * BATCHES * GLOBAL / 2);
    for (int i = 0; i < N_SPLITS; i++)
        for (int workers = 1; workers <= 4 && splits[i].micro_batch_size % 2 == 0; workers += 3) {
            const struct dt_split pairs =
                split_of(0, splits[i].ranks, splits[i].micro_batch_size, 2);
            if (dt_split_min(&pairs) == 0)
                continue;
            read_run_with(&run, dataset, splits[i].ranks, splits[i].micro_batch_size, workers,
                          &data);
            assert_memory_equal(&run, &expected, sizeof run);
        }
    close_folder(&folder, dataset);
}

TEST(restart)
{
    struct folder folder;
    static struct run whole, part;
    struct dt_dataset *dataset = open_good(&folder, N);
    read_run(&whole, dataset, 1, 4, 4);
    for (int first = 0; first <= BATCHES; first++) {
        struct dt_loader_options options = make_options(true, 0, 1, 4, 2);
        struct dt_loader *loader = open_loader(dataset, &options);
        assert_null(next(loader)); /* no epoch was started */
        assert_int_equal(dt_loader_start(loader, 1, (uint64_t)first), DT_OK);
        memcpy(&part, &whole, sizeof part);
        memset(part.rows[1][first < BATCHES ? first : 0], 0xee,
               first < BATCHES ? sizeof part.rows[1][0] * (size_t)(BATCHES - first) : 0);
        read_epoch(&part, loader, 1, first, &options);
        assert_memory_equal(&part, &whole, sizeof part);
        assert_int_equal(dt_loader_start(loader, 1, BATCHES + 1), DT_ERR_INTERNAL);
        dt_loader_destroy(loader);
    }
    close_folder(&folder, dataset);
}

/* Every id once over all ranks, rows past the end blank, and equal numbers of batches on all ranks.
 */
static void check_evaluation(struct dt_dataset *dataset, struct row *rows, int n_ranks,
                             int micro_batch_size, int workers)
{
    int n = (int)dt_dataset_size(dataset), seen[N] = {0};
    int per_step = n_ranks * micro_batch_size;
    for (int rank = 0; rank < n_ranks; rank++) {
        struct dt_loader_options options =
            make_options(false, rank, n_ranks, micro_batch_size, workers);
        struct dt_loader *loader = open_loader(dataset, &options);
        const struct dt_batch *batch;
        int n_batches = 0;
        assert_int_equal(dt_loader_batches(loader), (n + per_step - 1) / per_step);
        assert_int_equal(dt_loader_start(loader, 0, 0), DT_OK);
        for (; (batch = next(loader)); n_batches++) {
            struct row *scratch = calloc((size_t)micro_batch_size, sizeof *scratch);
            copy_rows(scratch, batch);
            for (int i = 0; i < batch->n; i++) {
                seen[batch->ids[i]]++;
                assert_int_equal(batch->labels[i], dt_dataset_label(dataset, batch->ids[i]));
                if (n_ranks > 1)
                    assert_memory_equal(&rows[batch->ids[i]], &scratch[i], sizeof *rows);
                else
                    rows[batch->ids[i]] = scratch[i];
            }
            for (int i = batch->n; i < micro_batch_size; i++) {
                assert_int_equal(batch->labels[i], -1);
                for (int k = 0; k < SIZE * SIZE * 3; k++)
                    assert_int_equal(batch->pixels[i * SIZE * SIZE * 3 + k], 0);
            }
            free(scratch);
            dt_loader_release(loader, batch);
        }
        assert_int_equal(n_batches, dt_loader_batches(loader));
        dt_loader_destroy(loader);
    }
    for (int i = 0; i < n; i++)
        assert_int_equal(seen[i], 1);
}

TEST(evaluation)
{
    static const int sizes[] = {N, 48, 5, 1};
    struct row *rows = calloc(N, sizeof *rows);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        struct folder folder;
        struct dt_dataset *dataset = open_good(&folder, sizes[k]);
        for (int n_ranks = 1; n_ranks <= 4; n_ranks++)
            check_evaluation(dataset, rows, n_ranks, 4, 1 + 3 * (n_ranks % 2));
        for (int i = 0; i < sizes[k]; i++)
            check_pixels(dataset, &rows[i], DT_RESIZE_IMAGE);
        close_folder(&folder, dataset);
    }
    free(rows);
}

/* --- Synthetic data, wrong use, and moments --- */

static struct dt_dataset *open_generated(int n, int size, bool has_boxes)
{
    struct dt_dataset_options options = {.data = &synthetic_data,
                                         .num_classes = CLASSES,
                                         .synthetic_images = n,
                                         .canvases = {{{size, size}}, 1},
                                         .targets = has_boxes ? DT_COLUMN_BOXES : DT_COLUMN_LABELS,
                                         .seed = 4};
    struct dt_dataset *dataset;
    assert_ok(dt_dataset_open(&dataset, &options));
    return dataset;
}

static struct dt_dataset *open_synthetic(int n, int size)
{
    return open_generated(n, size, false);
}

TEST(synthetic)
{
    struct dt_dataset *dataset = open_synthetic(N, SIZE);
    static struct run run;
    read_run(&run, dataset, 1, GLOBAL, 1);
    const struct row *row = &run.rows[0][0][0];
    assert_true(row->crop.w == SIZE && row->crop.x == 0.0f && !row->crop.flip);
    assert_memory_not_equal(row->pixels, row[1].pixels, sizeof row->pixels);
    check_same_for_all_splits(dataset, &run);
    dt_dataset_close(dataset);
}

/* The boxes of row `row`, which are those of its image, mirrored with it. */
static int check_boxes(const struct dt_dataset *dataset, const struct dt_batch *batch, int row)
{
    enum { MAX = 8 };
    const float *box = batch->boxes + 4 * MAX * row;
    const int32_t *labels = batch->box_labels + MAX * row;
    const bool flip = batch->crops[row].flip;
    struct dt_sample sample = {0};
    struct dt_truth own[MAX] = {{0}};
    const int n = dt_dataset_truths(dataset, batch->ids[row], own);
    for (int i = 0; i < MAX; i++) {
        const double left = flip && i < n ? SIZE - own[i].x - own[i].w : own[i].x;
        assert_true((double)box[4 * i] == left && (double)box[4 * i + 1] == own[i].y);
        assert_true((double)box[4 * i + 2] == left + own[i].w);
        assert_true((double)box[4 * i + 3] == own[i].y + own[i].h);
        assert_int_equal(labels[i], i < n ? own[i].label : -1);
    }
    assert_int_equal(batch->sizes[2 * row], SIZE);
    assert_int_equal(batch->sizes[2 * row + 1], SIZE);
    assert_int_equal(dt_dataset_read(dataset, batch->ids[row], &sample), DT_OK);
    for (int i = 0; i < SIZE * SIZE; i++) {
        const int x = flip ? SIZE - 1 - i % SIZE : i % SIZE;
        assert_memory_equal(batch->pixels + 3 * (row * SIZE * SIZE + i),
                            sample.data + 3 * (i / SIZE * SIZE + x), 3);
    }
    free(sample.data);
    return flip;
}

static int check_epoch(struct dt_dataset *dataset, struct dt_loader_options *options)
{
    options->canvases.size[0] = (struct dt_canvas){SIZE, SIZE};
    options->canvases.n = 1;
    struct dt_loader *loader = open_loader(dataset, options);
    const struct dt_batch *batch;
    int n_flipped = 0;
    assert_int_equal(dt_loader_start(loader, 1, 0), DT_OK);
    while ((batch = next(loader))) {
        for (int i = 0; i < batch->n; i++)
            n_flipped += check_boxes(dataset, batch, i);
        for (int i = batch->n; i < dt_split_max(&options->split); i++)
            assert_true(batch->box_labels[8 * i] == -1 && batch->boxes[4 * 8 * i + 2] == 0);
        dt_loader_release(loader, batch);
    }
    dt_loader_destroy(loader);
    return n_flipped;
}

/* About half of the training images of an epoch are flipped, the same ones on any number of ranks;
 * none in evaluation or without augmentation. */
TEST(boxes)
{
    const struct dt_config_data plain = {.prefetch = 3};
    struct dt_loader_options options = make_options(true, 0, 1, 4, 3);
    struct dt_dataset *dataset = open_generated(N, SIZE, true);
    int n_flipped = 0;
    const int alone = check_epoch(dataset, &options);
    assert_in_range(alone, BATCHES * GLOBAL / 4, BATCHES * GLOBAL * 3 / 4);
    for (int rank = 0; rank < 3; rank++) {
        options = make_options(true, rank, 3, 2, 2);
        n_flipped += check_epoch(dataset, &options);
    }
    assert_int_equal(n_flipped, alone);
    options.data = &plain;
    assert_int_equal(check_epoch(dataset, &options), 0);
    options = make_options(false, 0, 1, 8, 2);
    assert_int_equal(check_epoch(dataset, &options), 0);
    dt_dataset_close(dataset);
}

/* An error that is not about one sample comes to the caller with its text. */
TEST(worker_failure)
{
    struct dt_dataset *dataset = open_synthetic(N, SIZE - 1);
    struct dt_loader_options options = make_options(true, 0, 1, 12, 4);
    struct dt_loader *loader = open_loader(dataset, &options);
    const struct dt_batch *batch;
    assert_int_equal(dt_loader_start(loader, 0, 0), DT_OK);
    assert_error(dt_loader_next(loader, &batch), DT_ERR_CONFIG, "the data set holds images of");
    dt_loader_destroy(loader);
    dt_dataset_close(dataset);
}

/* A column that only the kind of the data knows. */
static void fill_shares(const struct dt_dataset *dataset, uint32_t id, void *out)
{
    (void)dataset;
    *(float *)out = 2 + (float)id;
}

TEST(column_of_kind)
{
    struct dt_dataset *dataset = open_synthetic(N, SIZE);
    struct dt_dataset_kind kind = dt_dataset_synthetic;
    kind.column[DT_COLUMN_MIX_SHARE] = fill_shares;
    dataset->kind = &kind;
    const struct dt_loader_options options = make_options(false, 0, 1, 10, 2);
    struct dt_loader *loader = open_loader(dataset, &options);
    const struct dt_batch *batch;
    assert_int_equal(dt_loader_start(loader, 0, 0), DT_OK);
    while ((batch = next(loader))) {
        for (int i = 0; i < 10; i++)
            assert_true(batch->mix_share[i] == (i < batch->n ? 2 + (float)batch->ids[i] : 1));
        dt_loader_release(loader, batch);
    }
    dt_loader_destroy(loader);
    dt_dataset_close(dataset);
}

TEST(wrong_options)
{
    struct dt_dataset *dataset = open_synthetic(N, SIZE);
    struct dt_loader_options good = make_options(true, 0, 2, 3, 1), wrong[8];
    const struct dt_config_data mixed = {RIG_DATA, .mixup = 0.2};
    for (int i = 0; i < 8; i++)
        wrong[i] = good;
    wrong[0].split.images = 3; /* for 4 micro-batches */
    wrong[1].split.images = 0;
    wrong[2].canvases.size[0].width = 0;
    wrong[3].split.first = 3;
    wrong[4].split.n_parts = 0;
    wrong[5].split.images = 60; /* more than the 53 samples */
    wrong[6].train = false;     /* two passes in evaluation */
    wrong[7].data = &mixed;     /* not in pairs */
    for (int i = 0; i < 8; i++) {
        struct dt_loader *loader;
        dt_status status = dt_loader_create(&loader, dataset, &wrong[i]);
        assert_int_equal(status, i == 3 || i == 4 ? DT_ERR_INTERNAL : DT_ERR_CONFIG);
        assert_null(loader);
        assert_true(dt_error_text()[0] != 0);
    }
    dt_loader_destroy(NULL);
    dt_dataset_close(dataset);
}

TEST(holding_batches)
{
    struct dt_dataset *dataset = open_synthetic(N, SIZE);
    struct dt_loader_options options = make_options(true, 0, 1, 2, 4);
    struct dt_loader *loader = open_loader(dataset, &options);
    const struct dt_batch *held[3], *batch;
    struct row kept[3][2], again[2];
    assert_int_equal(dt_loader_start(loader, 0, 0), DT_OK);
    for (int i = 0; i < 3; i++) {
        held[i] = next(loader);
        copy_rows(kept[i], held[i]);
    }
    assert_int_equal(dt_loader_next(loader, &batch), DT_ERR_INTERNAL); /* not an endless wait */
    dt_loader_release(loader, held[1]);                                /* in any order */
    dt_loader_release(loader, held[0]);
    batch = next(loader);
    assert_int_equal(batch->index * 6 + (uint64_t)batch->pass, 3);
    copy_rows(again, held[2]); /* still as it was */
    assert_memory_equal(again, kept[2], sizeof again);

    assert_int_equal(dt_loader_start(loader, 0, 0), DT_OK); /* with two batches held */
    dt_loader_release(loader, held[2]);                     /* of the old epoch: nothing happens */
    for (int i = 0; i < 3; i++) {
        held[i] = next(loader);
        copy_rows(again, held[i]);
        assert_memory_equal(again, kept[i], sizeof again);
        dt_loader_release(loader, held[i]);
    }
    assert_true(dt_loader_wait_s(loader) >= 0.0);
    dt_loader_destroy(loader);
    dt_dataset_close(dataset);
}

static bool is_inside(const struct dt_loader *loader, const void *data, size_t bytes)
{
    const char *block;
    size_t block_bytes;
    for (int i = 0; (block = dt_loader_memory(loader, i, &block_bytes)); i++)
        if ((const char *)data >= block && (const char *)data + bytes <= block + block_bytes)
            return true;
    return false;
}

/* The memory a device pins: all that batches point to, in blocks that share no page. */
TEST(memory)
{
    const uintptr_t page = 4096;
    struct dt_dataset *dataset = open_generated(N, SIZE, true);
    struct dt_loader_options options = make_options(true, 0, 1, 2, 1);
    options.canvases.size[0] = (struct dt_canvas){SIZE, SIZE};
    options.canvases.n = 1;
    struct dt_loader *loader = open_loader(dataset, &options);
    uintptr_t pages[16];
    size_t bytes;
    int n = 0;
    for (const char *block; (block = dt_loader_memory(loader, n, &bytes)); n++) {
        assert_true(n < 16 && bytes > 0 && bytes < page);
        pages[n] = (uintptr_t)block;
        assert_int_equal(pages[n] % page, 0);
        for (int i = 0; i < n; i++)
            assert_true(pages[i] != pages[n]);
    }
    assert_int_equal(n, options.data->prefetch);
    assert_int_equal(dt_loader_start(loader, 0, 0), DT_OK);
    for (int i = 0; i < 2 * options.data->prefetch; i++) {
        const struct dt_batch *batch = next(loader);
        assert_true(is_inside(loader, batch->pixels, 2 * SIZE * SIZE * 3));
        assert_true(is_inside(loader, batch->labels, 2 * sizeof *batch->labels));
        assert_true(is_inside(loader, batch->labels2, 2 * sizeof *batch->labels2));
        assert_true(is_inside(loader, batch->mix_share, 2 * sizeof *batch->mix_share));
        assert_true(is_inside(loader, batch->boxes, 2 * 8 * 4 * sizeof *batch->boxes));
        assert_true(is_inside(loader, batch->box_labels, 2 * 8 * sizeof *batch->box_labels));
        assert_true(is_inside(loader, batch->sizes, 2 * 2 * sizeof *batch->sizes));
        dt_loader_release(loader, batch);
    }
    dt_loader_destroy(loader);
    dt_dataset_close(dataset);
}

static void wait_for_images(const struct dt_loader *loader, uint64_t n)
{
    struct dt_loader_times times = {0};
    for (int i = 0; i < 3000 && times.images < n; i++) {
        usleep(10000);
        dt_loader_times(loader, &times);
    }
    assert_int_equal(times.images, n);
}

/* After the end of an epoch all slots are filled from the next one, which then begins without
 * waiting; after the last epoch nothing is loaded. */
TEST(ahead)
{
    const uint64_t per_epoch = BATCHES * GLOBAL;
    struct folder folder;
    static struct run expected, run;
    struct dt_dataset *dataset = open_good(&folder, N);
    read_run(&expected, dataset, 1, 4, 1);
    for (int workers = 1; workers <= 4; workers += 3) {
        struct dt_loader_options options = make_options(true, 0, 1, 4, workers);
        options.epochs = EPOCHS;
        struct dt_loader *loader = open_loader(dataset, &options);
        memset(&run, 0xee, sizeof run);
        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
            double wait_s = dt_loader_wait_s(loader);
            assert_int_equal(dt_loader_start(loader, epoch, 0), DT_OK);
            const struct dt_batch *first = next(loader);
            if (epoch > 0)
                assert_true(dt_loader_wait_s(loader) == wait_s); /* it was ready */
            copy_rows(run.rows[epoch][0], first);
            dt_loader_release(loader, first);
            for (const struct dt_batch *batch; (batch = next(loader));) {
                copy_rows(run.rows[epoch][batch->index] + batch->pass * 4, batch);
                dt_loader_release(loader, batch);
            }
            bool is_last = epoch + 1 == EPOCHS;
            wait_for_images(loader, per_epoch * (epoch + 1) + (is_last ? 0 : 3 * 4));
        }
        assert_memory_equal(&run, &expected, sizeof run);
        assert_int_equal(dt_loader_start(loader, EPOCHS, 0), DT_OK); /* `dtrain bench` continues */
        assert_int_equal(next(loader)->epoch, EPOCHS);
        dt_loader_destroy(loader);
    }
    close_folder(&folder, dataset);
}

/* Evaluations of fewer batches than slots, one after the other. */
TEST(small_evaluations)
{
    struct dt_dataset *dataset = open_synthetic(3, SIZE);
    struct dt_loader_options options = make_options(false, 0, 1, 2, 4);
    struct dt_loader *loader = open_loader(dataset, &options);
    for (int i = 0; i < 20; i++) {
        uint32_t id = 0;
        assert_int_equal(dt_loader_start(loader, 0, 0), DT_OK);
        for (const struct dt_batch *batch; (batch = next(loader)); dt_loader_release(loader, batch))
            for (int row = 0; row < batch->n; row++)
                assert_int_equal(batch->ids[row], id++);
        assert_int_equal(id, 3);
    }
    dt_loader_destroy(loader);
    dt_dataset_close(dataset);
}

/* Starts and ends while rows are being made. */
TEST(any_moment)
{
    struct folder folder;
    static struct run run;
    struct row rows[4];
    struct dt_dataset *dataset = open_good(&folder, N);
    read_run(&run, dataset, 1, 4, 1);
    for (int i = 0; i < 40; i++) {
        struct dt_loader_options options = make_options(true, 0, 1, 4, 1 + i % 4);
        struct dt_loader *loader = open_loader(dataset, &options);
        for (int k = 0; k < i % 5; k++) {
            uint32_t epoch = (uint32_t)(i + k) % EPOCHS;
            int first = (i * 3 + k) % BATCHES;
            assert_int_equal(dt_loader_start(loader, epoch, (uint64_t)first), DT_OK);
            for (int b = 0; b < (i + k) % 4; b++) {
                const struct dt_batch *batch = next(loader);
                if (!batch)
                    break;
                copy_rows(rows, batch);
                assert_memory_equal(rows, &run.rows[epoch][batch->index][batch->pass * 4],
                                    sizeof rows);
                if (b % 2 == 0)
                    dt_loader_release(loader, batch);
            }
        }
        dt_loader_destroy(loader);
    }
    close_folder(&folder, dataset);
}

TEST_MAIN(NULL, NULL)
