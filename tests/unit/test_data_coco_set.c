/* The kind of data set `coco`: labels, selection, names, the folder of the images, what is refused.
 */
#include "base/mem.h"
#include "base/names.h"
#include "data/dataset.h"
#include "data_files.h"

static const struct dt_config_data plain = {.source = DT_SOURCE_AUTO};
static const char path[] = "root/annotations/instances_some.json";

/* Images 1 (two boxes), 2 (a crowd only), 3 (none), 4 (outside), 5 and 6 (one box each); categories
 * 3, 5 and 90. */
static const char annotations[] =
    "{\"images\": ["
    "{\"id\": 6, \"file_name\": \"f.jpg\", \"width\": 10, \"height\": 20},"
    "{\"id\": 5, \"file_name\": \"e.jpg\", \"width\": 10, \"height\": 20},"
    "{\"id\": 4, \"file_name\": \"d.jpg\", \"width\": 10, \"height\": 20},"
    "{\"id\": 3, \"file_name\": \"c.jpg\", \"width\": 10, \"height\": 20},"
    "{\"id\": 2, \"file_name\": \"b.jpg\", \"width\": 10, \"height\": 20},"
    "{\"id\": 1, \"file_name\": \"a.jpg\", \"width\": 30, \"height\": 40}],"
    "\"categories\": [{\"id\": 90, \"name\": \"cat\"}, {\"id\": 3, \"name\": \"dog\"},"
    "                 {\"id\": 5, \"name\": \"ant\"}], \"annotations\": ["
    "{\"id\":1,\"image_id\":1,\"category_id\":90,\"bbox\":[1,2,3,4],\"area\":12,\"iscrowd\":0},"
    "{\"id\":2,\"image_id\":2,\"category_id\":3,\"bbox\":[1,2,3,4],\"area\":12,\"iscrowd\":1},"
    "{\"id\":3,\"image_id\":1,\"category_id\":3,\"bbox\":[1,2,3,5],\"area\":15,\"iscrowd\":0},"
    "{\"id\":4,\"image_id\":4,\"category_id\":3,\"bbox\":[10,2,3,5],\"area\":15,\"iscrowd\":0},"
    "{\"id\":5,\"image_id\":5,\"category_id\":5,\"bbox\":[-2,2,3,5],\"area\":15,\"iscrowd\":0},"
    "{\"id\":6,\"image_id\":6,\"category_id\":5,\"bbox\":[1,2,3,5],\"area\":15,\"iscrowd\":0}]}";

static int make_set(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d", "f"}; /* e.jpg is missing */
    char name[64];
    if (make_test_dir(state))
        return -1;
    make_folder("root/annotations");
    make_folder("root/some");
    make_folder("empty");
    for (size_t i = 0; i < DT_COUNT(names); i++) {
        snprintf(name, sizeof name, "root/some/%s.jpg", names[i]);
        write_text(name, names[i]);
    }
    write_text(path, annotations);
    write_text("root/some/plain.json", annotations);
    return 0;
}

static struct dt_dataset_options options_of(enum dt_part part)
{
    return (struct dt_dataset_options){
        .data = &plain, .path = at(path), .targets = DT_COLUMN_BOXES, .part = part, .seed = 1};
}

static struct dt_dataset *open_set(const struct dt_dataset_options *options)
{
    struct dt_dataset *dataset;
    assert_ok(dt_dataset_open(&dataset, options));
    return dataset;
}

static void expect_error(const struct dt_dataset_options *options, dt_status status,
                         const char *message)
{
    struct dt_dataset *dataset;
    assert_error(dt_dataset_open(&dataset, options), status, message);
    assert_null(dataset);
}

/* "id:labels of its boxes" of every sample. */
static void expect_samples(const struct dt_dataset *dataset, const char *expected)
{
    char all[256] = "";
    struct dt_truth truths[8];
    struct dt_image_info image;
    assert_in_range(dt_dataset_max_boxes(dataset), 0, DT_COUNT(truths));
    for (uint32_t id = 0; id < dt_dataset_size(dataset); id++) {
        dt_dataset_image(dataset, id, &image);
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%d:", id ? " " : "",
                 (int)image.id);
        assert_int_equal(image.width, image.id == 1 ? 30 : 10);
        assert_int_equal(image.height, image.id == 1 ? 40 : 20);
        const int n = dt_dataset_truths(dataset, id, truths);
        for (int i = 0; i < n; i++)
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%d", i ? "," : "",
                     (int)truths[i].label);
        assert_int_equal(dt_dataset_label(dataset, id), 0);
    }
    assert_string_equal(all, expected);
}

TEST(samples)
{
    struct dt_dataset_options options = options_of(DT_PART_ALL);
    struct dt_dataset *dataset = open_set(&options);
    struct dt_sample sample = {0};
    char name[600];
    expect_samples(dataset, "1:2,0 2:0 3: 4:0 5:1 6:1");
    assert_int_equal(dt_dataset_n_classes(dataset), 3);
    assert_string_equal(dt_dataset_class(dataset, 0), "dog");
    assert_string_equal(dt_dataset_class(dataset, 1), "ant");
    assert_string_equal(dt_dataset_class(dataset, 2), "cat");
    assert_int_equal(dt_dataset_category(dataset, 1), 5);
    assert_int_equal(dt_dataset_category(dataset, 2), 90);
    assert_string_equal(dt_dataset_name(dataset, 0, name, sizeof name),
                        at("root/annotations/../some/a.jpg"));
    assert_int_equal(dt_dataset_read(dataset, 5, &sample), DT_OK);
    assert_int_equal(sample.data[0], 'f');
    /* A missing file is one bad sample. */
    assert_error(dt_dataset_read(dataset, 4, &sample), DT_ERR_DATA, "e.jpg");
    dt_dataset_close(dataset);
    options.part = DT_PART_VAL;
    dataset = open_set(&options);
    expect_samples(dataset, "1:2,0 2:0 3: 4:0 5:1 6:1");
    dt_dataset_close(dataset);
    options.part = DT_PART_TRAIN;
    dataset = open_set(&options);
    expect_samples(dataset, "1:2,0 5:1 6:1");
    dt_dataset_close(dataset);
    free(sample.data);
}

TEST(ids_as_labels)
{
    struct dt_dataset_options options = options_of(DT_PART_TRAIN);
    options.num_classes = 91;
    struct dt_dataset *dataset = open_set(&options);
    expect_samples(dataset, "1:90,3 5:5 6:5");
    assert_int_equal(dt_dataset_n_classes(dataset), 91);
    assert_string_equal(dt_dataset_class(dataset, 90), "cat");
    assert_string_equal(dt_dataset_class(dataset, 3), "dog");
    assert_string_equal(dt_dataset_class(dataset, 0), "N/A 0");
    assert_string_equal(dt_dataset_class(dataset, 89), "N/A 89");
    assert_int_equal(dt_dataset_category(dataset, 90), 90);
    assert_int_equal(dt_dataset_category(dataset, 4), -1);

    /* Validation data follow the names of the training data. */
    struct dt_dataset_options val_options = options_of(DT_PART_VAL);
    val_options.num_classes = 91;
    val_options.classes = dt_dataset_classes(dataset);
    struct dt_dataset *val = open_set(&val_options);
    expect_samples(val, "1:90,3 2:3 3: 4:3 5:5 6:5");
    assert_int_equal(dt_dataset_n_classes(val), 91);
    assert_int_equal(dt_dataset_category(val, 90), 90);
    dt_dataset_close(val);
    dt_dataset_close(dataset);

    options.num_classes = 90; /* not above every id */
    expect_error(&options, DT_ERR_CONFIG, "has 3 classes (the last is cat), but model.num_classes");
    options.num_classes = 2;
    expect_error(&options, DT_ERR_CONFIG, "has 3 classes");
    options.num_classes = 3;
    dt_dataset_close(open_set(&options));
}

TEST(given_classes)
{
    struct dt_names classes = {0};
    struct dt_dataset_options options = options_of(DT_PART_VAL);
    options.classes = &classes;
    assert_int_equal(dt_names_add(&classes, "cat", 3), DT_OK);
    assert_int_equal(dt_names_add(&classes, "ant", 3), DT_OK);
    expect_error(&options, DT_ERR_DATA, "1 class(es) that the model is not trained for: dog");
    /* data.class_map */
    options.subset = true;
    struct dt_dataset *dataset = open_set(&options);
    expect_samples(dataset, "1:0 2: 3: 4: 5:1 6:1");
    assert_int_equal(dt_dataset_n_classes(dataset), 2);
    assert_int_equal(dt_dataset_category(dataset, 0), 90);
    dt_dataset_close(dataset);
    options.part = DT_PART_TRAIN;
    dataset = open_set(&options);
    expect_samples(dataset, "1:0 5:1 6:1");
    dt_dataset_close(dataset);
    assert_int_equal(dt_names_add(&classes, "emu", 3), DT_OK);
    expect_error(&options, DT_ERR_DATA, "data.class_map lists 1 class(es) that");
    dt_names_reset(&classes);
}

/* Both sides together are all images, whatever can be trained on. */
TEST(val_fraction)
{
    struct dt_config_data data = plain;
    struct dt_dataset_options options = options_of(DT_PART_TRAIN);
    struct dt_image_info image;
    int sides[7] = {0};
    data.val_fraction = 0.4;
    options.data = &data;
    struct dt_dataset *train = open_set(&options);
    options.part = DT_PART_VAL;
    options.rest_of = train;
    struct dt_dataset *val = open_set(&options);
    for (uint32_t id = 0; id < dt_dataset_size(train); id++) {
        dt_dataset_image(train, id, &image);
        sides[image.id] += 1;
    }
    for (uint32_t id = 0; id < dt_dataset_size(val); id++) {
        dt_dataset_image(val, id, &image);
        sides[image.id] += 2;
    }
    for (int i = 1; i <= 6; i++)
        if (i == 1 || i >= 5 ? sides[i] != 1 && sides[i] != 2 : sides[i] != 0 && sides[i] != 2)
            fail_msg("image %d: %d", i, sides[i]);
    assert_true(dt_dataset_size(val) > 0);
    dt_dataset_close(val);
    dt_dataset_close(train);

    data.val_fraction = 0;
    data.max_train = 2;
    options = options_of(DT_PART_TRAIN);
    options.data = &data;
    train = open_set(&options);
    assert_int_equal(dt_dataset_size(train), 2);
    dt_dataset_close(train);
}

TEST(folders)
{
    struct dt_dataset_options options = options_of(DT_PART_TRAIN);
    struct dt_dataset *dataset = open_set(&options);
    const uint64_t fingerprint = dt_dataset_fingerprint(dataset);
    char name[600];
    dt_dataset_close(dataset);

    /* Without the prefix: beside the file. The place of the files does not count. */
    options.path = at("root/some/plain.json");
    dataset = open_set(&options);
    assert_string_equal(dt_dataset_name(dataset, 0, name, sizeof name), at("root/some/a.jpg"));
    assert_true(dt_dataset_fingerprint(dataset) == fingerprint);
    dt_dataset_close(dataset);

    options.path = at(path);
    options.images_folder = at("root/some");
    dataset = open_set(&options);
    assert_string_equal(dt_dataset_name(dataset, 0, name, sizeof name), at("root/some/a.jpg"));
    dt_dataset_close(dataset);

    options.images_folder = at("empty");
    expect_error(&options, DT_ERR_NO_INPUT, "such as a.jpg; set data.train_images to their folder");
    options.part = DT_PART_ALL;
    expect_error(&options, DT_ERR_NO_INPUT, "such as a.jpg; set --image-folder to their folder");
    options.images_folder = at("none");
    options.part = DT_PART_VAL;
    expect_error(&options, DT_ERR_NO_INPUT, "set data.val_images to their folder");
}

TEST(refused)
{
    struct dt_dataset_options options = options_of(DT_PART_TRAIN);
    options.targets = DT_COLUMN_LABELS;
    expect_error(&options, DT_ERR_CONFIG, "holds boxes, which only a detector is trained on");
    options.targets = DT_COLUMN_BOXES;
    options.path = at("root/some");
    expect_error(&options, DT_ERR_CONFIG, "a detector needs boxes: annotations of COCO");
    options.path = at("root/some/crowds.json");
    write_text("root/some/crowds.json",
               "{\"images\": [{\"id\": 1, \"file_name\": \"a.jpg\", \"width\": 9, \"height\": 9}],"
               "\"categories\": [{\"id\": 1, \"name\": \"cat\"}], \"annotations\": [{\"id\": 1, "
               "\"image_id\": 1, \"category_id\": 1, \"bbox\": [1,1,2,2], \"area\": 4, "
               "\"iscrowd\": 1}]}");
    expect_error(&options, DT_ERR_DATA, "has a box to train on");
}

TEST_MAIN(make_set, remove_test_dir)
