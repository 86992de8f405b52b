/* The parts of making rows, measured: which images and bytes are counted, and that the parts make
 * up the time of the whole. No duration is asserted. */
#include "base/clock.h"
#include "loader_rig.h"

static const struct dt_config_data synthetic_data = {.source = DT_SOURCE_SYNTHETIC};

static struct dt_input_stages measure(const struct dt_dataset *dataset,
                                      const struct dt_loader_options *options, uint32_t first,
                                      uint32_t n)
{
    struct dt_input_stages stages;
    double begin_s = dt_clock_s();
    assert_ok(dt_input_measure(&stages, dataset, options, first, n));
    double all_s = dt_clock_s() - begin_s;
    assert_true(stages.read_s >= 0 && stages.entropy_s >= 0 && stages.transform_s >= 0);
    assert_true(stages.read_s + stages.entropy_s + stages.transform_s + stages.resize_s <= all_s);
    return stages;
}

/* Bytes of the files at positions first .. first+n-1 of epoch 0. Sample ids are those of the files
 * sorted by class and name: file i is in class i % CLASSES. */
static uint64_t bytes_at(const struct folder *folder, uint32_t first, uint32_t n)
{
    uint32_t order[N];
    uint64_t bytes = 0;
    int files[N], n_files = 0;
    for (int c = 0; c < CLASSES; c++)
        for (int i = c; i < folder->n_files; i += CLASSES)
            files[n_files++] = i;
    dt_sampler_order(order, (uint32_t)n_files, SEED, 0, true);
    for (uint32_t i = first; i < first + n; i++) {
        struct stat info;
        assert_int_equal(stat(folder->files[files[order[i]]], &info), 0);
        bytes += (uint64_t)info.st_size;
    }
    return bytes;
}

TEST(images_and_bytes)
{
    static const struct {
        uint32_t first, n;
    } ranges[] = {{0, 20}, {0, 1}, {7, 5}, {19, 1}, {20, 0}};
    struct folder folder;
    struct dt_dataset *dataset = open_good(&folder, 20);
    struct dt_loader_options options = make_options(true, 0, 1, 4, 1);
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        struct dt_input_stages s = measure(dataset, &options, ranges[i].first, ranges[i].n);
        assert_int_equal(s.images, ranges[i].n);
        assert_int_equal(s.bytes, bytes_at(&folder, ranges[i].first, ranges[i].n));
        assert_int_equal(s.read_s > 0, ranges[i].n > 0);
        assert_int_equal(s.entropy_s > 0, ranges[i].n > 0);
        assert_int_equal(s.resize_s > 0, ranges[i].n > 0);
    }
    struct dt_input_stages s;
    assert_int_equal(dt_input_measure(&s, dataset, &options, 19, 2), DT_ERR_INTERNAL);
    assert_int_equal(dt_input_measure(&s, dataset, &options, 0, 21), DT_ERR_INTERNAL);
    close_folder(&folder, dataset);
}

TEST(bad_images_are_left_out)
{
    struct folder folder;
    struct file broken = {.data = (uint8_t *)"no image", .bytes = 8};
    struct dt_dataset *dataset = open_good(&folder, 6);
    struct dt_loader_options options = make_options(true, 0, 1, 4, 1);
    uint64_t good_bytes = measure(dataset, &options, 0, 6).bytes;
    dt_dataset_close(dataset);
    folder_add(&folder, "bad", &broken);
    folder_add(&folder, "bad", &broken);
    dataset = open_folder(&folder);
    struct dt_input_stages s = measure(dataset, &options, 0, 8);
    assert_int_equal(s.images, 6);
    assert_int_equal(s.bytes, good_bytes);
    close_folder(&folder, dataset);
}

/* Finished pixels are read and copied only. */
TEST(synthetic)
{
    struct dt_dataset_options set = {.data = &synthetic_data,
                                     .num_classes = CLASSES,
                                     .synthetic_images = 30,
                                     .canvases = {{{SIZE, SIZE}}, 1}};
    struct dt_dataset *dataset;
    assert_int_equal(dt_dataset_open(&dataset, &set), DT_OK);
    struct dt_loader_options options = make_options(true, 0, 1, 4, 1);
    struct dt_input_stages s = measure(dataset, &options, 10, 20);
    assert_int_equal(s.images, 20);
    assert_int_equal(s.bytes, 20 * SIZE * SIZE * 3);
    assert_true(s.read_s > 0 && s.resize_s > 0);
    assert_true(s.entropy_s == 0 && s.transform_s == 0);
    dt_dataset_close(dataset);
}

/* The loader's own clocks know the same parts, put together. */
TEST(loader_times)
{
    struct folder folder;
    struct dt_dataset *dataset = open_good(&folder, 24);
    for (int mixed = 0; mixed <= 1; mixed++) {
        struct dt_loader_options options = make_options(true, 0, 1, 4, 2);
        options.epochs = 1;
        const struct dt_config_data data = {RIG_DATA, .mixup = mixed * 0.4};
        options.data = &data;
        options.split.unit = mixed ? 2 : 1;
        struct dt_loader *loader = open_loader(dataset, &options);
        struct dt_loader_times times;
        double begin_s = dt_clock_s();
        assert_int_equal(dt_loader_start(loader, 0, 0), DT_OK);
        for (const struct dt_batch *batch; (batch = next(loader));)
            dt_loader_release(loader, batch);
        dt_loader_times(loader, &times);
        double all_s = dt_clock_s() - begin_s;
        assert_int_equal(times.images, 24);
        assert_int_equal(times.bytes, bytes_at(&folder, 0, 24));
        assert_int_equal(times.workers, 2);
        assert_true(times.read_s > 0 && times.decode_s > 0);
        assert_true(times.read_s + times.decode_s <= 2 * all_s);
        dt_loader_destroy(loader);
    }
    close_folder(&folder, dataset);
}

TEST_MAIN(NULL, NULL)
