/* For tests of the loader: folders of generated JPEG files, and the data of a whole run, indexed by
 * position. */
#ifndef TEST_LOADER_RIG_H
#define TEST_LOADER_RIG_H

#include "base/file.h"
#include "dtrain/data.h"
#include "jpeg_make.h"
#include "test_dir.h"
#include "test_status.h"

static const struct dt_config_data folder_data = {.source = DT_SOURCE_FOLDER};

enum { CLASSES = 3, N = 53, GLOBAL = 12, SIZE = 24, EPOCHS = 3, SEED = 9 };

/* --- Folders of files --- */

struct folder {
    char path[64];
    char files[N + 1][128];
    int n_files;
};

static inline void folder_make(struct folder *folder)
{
    char path[128];
    *folder = (struct folder){.path = "/tmp/dtrain-loader-XXXXXX"};
    assert_non_null(mkdtemp(folder->path));
    for (int c = 0; c < CLASSES; c++) {
        snprintf(path, sizeof path, "%s/class%d", folder->path, c);
        assert_int_equal(mkdir(path, 0700), 0);
    }
}

static inline void folder_add(struct folder *folder, const char *name, const struct file *file)
{
    char path[128];
    snprintf(path, sizeof path, "%s/class%d/%02d-%s.jpg", folder->path, folder->n_files % CLASSES,
             folder->n_files, name);
    assert_int_equal(dt_file_save(path, file->data, file->bytes), DT_OK);
    memcpy(folder->files[folder->n_files], path, sizeof path);
    folder->n_files++;
}

static inline int good_width(int i)
{
    return 30 + i * 7 % 50;
}

static inline int good_height(int i)
{
    return 25 + i * 11 % 60;
}

static inline void folder_add_good(struct folder *folder, int n)
{
    for (int i = 0; i < n; i++) {
        struct jpeg_kind kind = jpeg_kinds[i % 4];
        kind.width = good_width(i);
        kind.height = good_height(i);
        struct file file = jpeg_make(&kind);
        folder_add(folder, "good", &file);
        free(file.data);
    }
}

static inline struct dt_dataset *open_folder(const struct folder *folder)
{
    struct dt_dataset_options options = {.data = &folder_data, .path = folder->path};
    struct dt_dataset *dataset;
    assert_ok(dt_dataset_open(&dataset, &options));
    assert_int_equal(dt_dataset_size(dataset), folder->n_files);
    return dataset;
}

/* Of `n` good files. */
static inline struct dt_dataset *open_good(struct folder *folder, int n)
{
    folder_make(folder);
    folder_add_good(folder, n);
    return open_folder(folder);
}

static inline void close_folder(struct folder *folder, struct dt_dataset *dataset)
{
    dt_dataset_close(dataset);
    assert_int_equal(remove_tree(folder->path), 0);
}

#define RIG_DATA \
    .augment = DT_AUGMENT_IMAGENET, .val_resize = SIZE + 4, .prefetch = 3, .max_bad_fraction = 1.0
static const struct dt_config_data rig_data = {RIG_DATA};

/* Of GLOBAL images, in the fewest micro-batches of at most so many. */
static inline struct dt_split split_of(int rank, int n_ranks, int micro_batch_size, int unit)
{
    const int per_rank = (GLOBAL / unit + n_ranks - 1) / n_ranks, max = micro_batch_size / unit;
    const int n_passes = (per_rank + max - 1) / max;
    return (struct dt_split){GLOBAL, n_ranks * n_passes, rank * n_passes, n_passes, unit, 0};
}

static inline struct dt_loader_options make_options(bool train, int rank, int n_ranks,
                                                    int micro_batch_size, int workers)
{
    return (struct dt_loader_options){
        .train = train,
        .data = &rig_data,
        .canvases = {{{SIZE, SIZE}}, 1},
        .split = train ? split_of(rank, n_ranks, micro_batch_size, 1)
                       : (struct dt_split){n_ranks * micro_batch_size, n_ranks, rank, 1, 1, 0},
        .workers = workers,
        .seed = SEED,
    };
}

static inline struct dt_loader *open_loader(struct dt_dataset *dataset,
                                            const struct dt_loader_options *options)
{
    struct dt_loader *loader;
    assert_ok(dt_loader_create(&loader, dataset, options));
    return loader;
}

static const struct dt_batch *next(struct dt_loader *loader)
{
    const struct dt_batch *batch;
    assert_ok(dt_loader_next(loader, &batch));
    return batch;
}

/* --- The data of a whole run, by position --- */

struct row {
    uint32_t id;
    int32_t label, label2;
    float share;
    struct dt_crop crop;
    uint8_t pixels[SIZE * SIZE * 3];
};

enum { BATCHES = N / GLOBAL };

struct run {
    struct row rows[EPOCHS][BATCHES][GLOBAL];
};

static inline void copy_rows(struct row *rows, const struct dt_batch *batch)
{
    for (int i = 0; i < batch->n; i++) {
        memset(&rows[i], 0, sizeof rows[i]);
        rows[i].id = batch->ids[i];
        rows[i].label = batch->labels[i];
        rows[i].label2 = batch->labels2[i];
        rows[i].share = batch->mix_share[i];
        rows[i].crop.x = batch->crops[i].x; /* member by member, as padding is undefined */
        rows[i].crop.y = batch->crops[i].y;
        rows[i].crop.w = batch->crops[i].w;
        rows[i].crop.h = batch->crops[i].h;
        rows[i].crop.flip = batch->crops[i].flip;
        memcpy(rows[i].pixels, batch->pixels + i * SIZE * SIZE * 3, SIZE * SIZE * 3);
    }
}

/* Reads the rest of the epoch that `loader` was started in into its positions of `run`. */
static inline void read_epoch(struct run *run, struct dt_loader *loader, uint32_t epoch, int first,
                              const struct dt_loader_options *options)
{
    const int passes = options->split.n_passes, unit = options->split.unit;
    const int n_parts = options->split.n_parts;
    const struct dt_batch *batch;
    assert_int_equal(dt_loader_batches(loader), BATCHES);
    for (int g = first; g < BATCHES; g++) {
        for (int pass = 0; pass < passes; pass++) {
            const int part = options->split.first + pass;
            const int begin = GLOBAL / unit * part / n_parts * unit;
            const int end = GLOBAL / unit * (part + 1) / n_parts * unit;
            batch = next(loader);
            assert_non_null(batch);
            assert_int_equal(batch->epoch, epoch);
            assert_int_equal(batch->index, g);
            assert_int_equal(batch->pass, pass);
            assert_int_equal(batch->n, end - begin);
            copy_rows(run->rows[epoch][g] + begin, batch);
            dt_loader_release(loader, batch);
        }
    }
    assert_null(next(loader));
    assert_null(next(loader));
}

static inline void read_run_with(struct run *run, struct dt_dataset *dataset, int n_ranks,
                                 int micro_batch_size, int workers,
                                 const struct dt_config_data *data)
{
    memset(run, 0xee, sizeof *run);
    for (int rank = 0; rank < n_ranks; rank++) {
        struct dt_loader_options options =
            make_options(true, rank, n_ranks, micro_batch_size, workers);
        options.data = data;
        if (data->mixup > 0)
            options.split = split_of(rank, n_ranks, micro_batch_size, 2);
        struct dt_loader *loader = open_loader(dataset, &options);
        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
            assert_int_equal(dt_loader_start(loader, epoch, 0), DT_OK);
            read_epoch(run, loader, epoch, 0, &options);
        }
        dt_loader_destroy(loader);
    }
}

static inline void read_run(struct run *run, struct dt_dataset *dataset, int n_ranks,
                            int micro_batch_size, int workers)
{
    read_run_with(run, dataset, n_ranks, micro_batch_size, workers, &rig_data);
}

static const struct {
    int ranks, micro_batch_size;
} splits[] = {{1, 12},
              {1, 4},
              {2, 6},
              {2, 3},
              {3, 4},
              {3, 1},
              {4, 3},
              {4, 1},
              /* uneven: */ {1, 5},
              {2, 4},
              {5, 3},
              {5, 2},
              {7, 2}};
enum { N_SPLITS = sizeof splits / sizeof splits[0] };

static inline void check_same_for_all_splits(struct dt_dataset *dataset, const struct run *expected)
{
    static struct run run;
    for (size_t i = 0; i < N_SPLITS; i++) {
        for (int workers = 1; workers <= 4; workers += 3) {
            read_run(&run, dataset, splits[i].ranks, splits[i].micro_batch_size, workers);
            assert_memory_equal(&run, expected, sizeof run);
        }
    }
}

#endif
