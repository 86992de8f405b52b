/* Synthetic images and class folders. */
#include "base/names.h"
#include "data/dataset.h"
#include "data_files.h"

static const struct dt_config_data synthetic_data = {.source = DT_SOURCE_SYNTHETIC};
static const struct dt_config_data auto_data = {.source = DT_SOURCE_AUTO};
static const struct dt_config_data folder_data = {.source = DT_SOURCE_FOLDER};

enum { SIZE = 40 };

static struct dt_dataset *open_good(const struct dt_dataset_options *options)
{
    struct dt_dataset *dataset;
    assert_ok(dt_dataset_open(&dataset, options));
    return dataset;
}

static void expect_error(dt_status expected, const char *text,
                         const struct dt_dataset_options *options)
{
    struct dt_dataset *dataset;
    assert_error(dt_dataset_open(&dataset, options), expected, text);
    assert_null(dataset);
}

/* --- Synthetic --- */

TEST(synthetic)
{
    const struct dt_dataset_options options = {.data = &synthetic_data,
                                               .num_classes = 7,
                                               .synthetic_images = 50,
                                               .canvases = {{{SIZE, SIZE}}, 1},
                                               .seed = 3};
    struct dt_dataset *first = open_good(&options), *second = open_good(&options);
    struct dt_sample a = {0}, b = {0};
    char name[64];

    assert_true(dt_dataset_is_raw(first));
    assert_int_equal(dt_dataset_size(first), 50);
    assert_true(dt_dataset_fingerprint(first) == dt_dataset_fingerprint(second));
    assert_string_equal(dt_dataset_name(first, 17, name, sizeof name), "synthetic image 17");
    assert_string_equal(dt_dataset_name(first, 50, name, sizeof name), "sample 50 of 50");
    for (uint32_t id = 0; id < 50; id++) {
        assert_int_equal(dt_dataset_label(first, id), id % 7);
        assert_int_equal(dt_dataset_read(first, id, &a), DT_OK);
        assert_int_equal(a.bytes, SIZE * SIZE * 3);
        assert_int_equal(dt_dataset_read(second, id, &b), DT_OK);
        assert_memory_equal(a.data, b.data, a.bytes);
        assert_int_equal(dt_dataset_read(first, (id + 7) % 50, &b), DT_OK); /* same class */
        assert_memory_not_equal(a.data, b.data, a.bytes);
    }
    assert_int_equal(dt_dataset_read(first, 50, &a), DT_ERR_INTERNAL);
    dt_dataset_close(first);
    dt_dataset_close(second);
    free(a.data);
    free(b.data);
}

/* Mean colours of one class agree, also under another seed; those of different classes do not. */
TEST(synthetic_classes)
{
    double mean[2][6][3] = {{{0}}};
    struct dt_sample sample = {0};

    for (uint64_t seed = 0; seed < 2; seed++) {
        const struct dt_dataset_options options = {.data = &synthetic_data,
                                                   .num_classes = 6,
                                                   .synthetic_images = 6,
                                                   .canvases = {{{SIZE, SIZE}}, 1},
                                                   .seed = seed};
        struct dt_dataset *dataset = open_good(&options);
        for (uint32_t id = 0; id < 6; id++) {
            assert_int_equal(dt_dataset_read(dataset, id, &sample), DT_OK);
            for (size_t i = 0; i < sample.bytes; i++)
                mean[seed][id][i % 3] += sample.data[i] / (double)(SIZE * SIZE);
        }
        dt_dataset_close(dataset);
    }
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 6; k++) {
            double distance = 0;
            for (int c = 0; c < 3; c++) {
                const double difference = mean[0][i][c] - mean[1][k][c];
                distance += difference * difference;
            }
            if (i == k)
                assert_true(distance < 12); /* noise of 1600 pixels: about 1 per colour */
            else
                assert_true(distance > 12);
        }
    free(sample.data);
}

TEST(synthetic_sizes)
{
    static const int sizes[] = {1, 2, 63, 64, 65, 224};
    struct dt_dataset_options options = {.data = &synthetic_data, .num_classes = 2};
    struct dt_sample sample = {0};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        options.synthetic_images = 2;
        options.canvases = (struct dt_canvases){{{sizes[i], sizes[i]}}, 1};
        struct dt_dataset *dataset = open_good(&options);
        for (uint32_t id = 0; id < 2; id++) {
            assert_int_equal(dt_dataset_read(dataset, id, &sample), DT_OK);
            assert_int_equal(sample.bytes, (size_t)sizes[i] * (size_t)sizes[i] * 3);
        }
        dt_dataset_close(dataset);
    }
    options.synthetic_images = 0;
    expect_error(DT_ERR_CONFIG, "at least one image", &options);
    options.synthetic_images = 1;
    struct dt_names names = {0};
    assert_ok(dt_names_add(&names, "cat", 3));
    options.classes = &names;
    expect_error(DT_ERR_DATA, "the synthetic data set holds the label 1, but", &options);
    dt_names_reset(&names);
    options.classes = NULL;
    options.num_classes = 0;
    struct dt_dataset *dataset = open_good(&options);
    assert_int_equal(dt_dataset_n_classes(dataset), 1000);
    assert_null(dt_dataset_class(dataset, 0));
    dt_dataset_close(dataset);
    free(sample.data);
}

/* Whether in every row of the box, made larger by `more`, the colours differ by as much as noise of
 * half strength: a row is of one stripe. */
static bool has_stripes(const uint8_t *pixels, const float *box, int more)
{
    for (int y = (int)box[1]; y < (int)box[3]; y++)
        for (int c = 0; c < 3; c++) {
            int min = 255, max = 0;
            for (int x = (int)box[0] - more; x < (int)box[2] + more; x++) {
                const int value = pixels[3 * (y * SIZE + x) + c];
                min = value < min ? value : min;
                max = value > max ? value : max;
            }
            if (max - min > 127)
                return false;
        }
    return true;
}

/* The last box of an image is not covered. */
TEST(synthetic_boxes)
{
    enum { MAX = 8, N = 40, N_CLASSES = 5 };
    struct dt_dataset_options options = {.data = &synthetic_data,
                                         .num_classes = N_CLASSES,
                                         .synthetic_images = N,
                                         .canvases = {{{SIZE, SIZE}}, 1},
                                         .targets = DT_COLUMN_BOXES};
    struct dt_dataset *dataset = open_good(&options);
    struct dt_sample sample = {0};
    struct dt_truth truths[MAX];
    struct dt_image_info info;
    int seen[MAX + 1] = {0}, seen_labels[N_CLASSES] = {0}, n_tight = 0, n_inner = 0;

    assert_int_equal(dt_dataset_max_boxes(dataset), MAX);
    for (uint32_t id = 0; id < N; id++) {
        const int n = dt_dataset_truths(dataset, id, truths);
        dt_dataset_image(dataset, id, &info);
        assert_true(info.id == id && info.width == SIZE && info.height == SIZE);
        assert_in_range(n, 1, MAX);
        seen[n]++;
        assert_int_equal(dt_dataset_read(dataset, id, &sample), DT_OK);
        for (int i = 0; i < n; i++) {
            const struct dt_truth *t = &truths[i];
            assert_true(t->x >= 0 && t->y >= 0 && t->x + t->w <= SIZE && t->y + t->h <= SIZE);
            assert_true(t->w >= SIZE / 8 && t->w <= SIZE / 2 && t->h >= SIZE / 8 &&
                        t->h <= SIZE / 2);
            assert_true(t->area == t->w * t->h && !t->is_crowd);
            assert_in_range(t->label, 0, N_CLASSES - 1);
            seen_labels[t->label]++;
        }
        const struct dt_truth *t = &truths[n - 1];
        const float last[] = {(float)t->x, (float)t->y, (float)(t->x + t->w), (float)(t->y + t->h)};
        assert_true(has_stripes(sample.data, last, 0));
        if (last[0] > 0 && last[2] < SIZE) {
            n_inner++;
            n_tight += !has_stripes(sample.data, last, 1);
        }
    }
    for (int n = 1; n <= MAX; n++)
        assert_true(seen[n] > 0);
    for (int c = 0; c < N_CLASSES; c++)
        assert_true(seen_labels[c] > 0);
    assert_true(n_inner > N / 2 && n_tight > 3 * n_inner / 4);
    const uint64_t fingerprint = dt_dataset_fingerprint(dataset);
    dt_dataset_close(dataset);
    options.targets = DT_COLUMN_LABELS;
    dataset = open_good(&options);
    assert_int_equal(dt_dataset_max_boxes(dataset), 0);
    assert_true(dt_dataset_fingerprint(dataset) != fingerprint);
    dt_dataset_close(dataset);
    free(sample.data);
}

/* --- Class folders --- */

TEST(folder)
{
    static const struct {
        const char *name;
        int label;
    } expected[] = {{"A/x.JPG", 0},         {"A/deep/y.jpg", 0}, {"A/deep er/y.jpg", 0},
                    {"A/deep/er/y.jpg", 0}, {"a b/10.jpeg", 1},  {"a b/2.jpg", 1},
                    {"\xc3\xa9/n.jpg", 2}};
    const size_t n = sizeof expected / sizeof expected[0];
    struct dt_sample sample = {0};
    char name[300];

    make_folder("set/a b");
    make_folder("set/empty"); /* no class */
    make_folder("set/__MACOSX");
    write_text("set/__MACOSX/._1.jpg", "no image");
    write_text("set/__MACOSX/1.jpg", "no image");
    make_folder("set/\xc3\xa9");
    make_folder("set/.hidden");
    make_folder("set/A/deep er");
    make_folder("set/A/deep/er");
    make_folder("set/A/empty.jpg");
    write_text("set/notes.jpg", "no class");
    write_text("set/.hidden/a.jpg", "hidden");
    write_text("set/A/.x.jpg", "hidden");
    write_text("set/A/x.avif", "not read");
    assert_int_equal(symlink("nothing", at("set/A/dangling")), 0);
    write_text("set/A/xjpg", "no suffix");
    for (size_t i = n; i-- > 0;) {
        snprintf(name, sizeof name, "set/%s", expected[i].name);
        write_text(name, expected[i].name);
    }
    const struct dt_dataset_options options = {
        .data = &folder_data, .path = at("set"), .num_classes = 3};
    struct dt_dataset *dataset = open_good(&options);
    assert_int_equal(dt_dataset_size(dataset), n);
    assert_false(dt_dataset_is_raw(dataset));
    for (uint32_t id = 0; id < n; id++) {
        assert_int_equal(dt_dataset_label(dataset, id), expected[id].label);
        assert_string_equal(dt_dataset_name(dataset, id, name, sizeof name) + strlen(at("set/")),
                            expected[id].name);
        assert_int_equal(dt_dataset_read(dataset, id, &sample), DT_OK);
        assert_int_equal(sample.bytes, strlen(expected[id].name));
        assert_memory_equal(sample.data, expected[id].name, sample.bytes);
    }
    const uint64_t fingerprint = dt_dataset_fingerprint(dataset);
    dt_dataset_close(dataset);

    write_text("set/A/x.JPG", "another size");
    dataset = open_good(&options);
    assert_true(dt_dataset_fingerprint(dataset) != fingerprint);
    /* Files that change later are single bad samples. */
    assert_int_equal(unlink(at("set/A/x.JPG")), 0);
    assert_int_equal(dt_dataset_read(dataset, 0, &sample), DT_ERR_DATA);
    write_text("set/A/x.JPG", "");
    assert_error(dt_dataset_read(dataset, 0, &sample), DT_ERR_DATA, "has 0 bytes");
    unlink(at("set/A/x.JPG"));
    assert_int_equal(mkfifo(at("set/A/x.JPG"), 0600), 0);
    assert_int_equal(dt_dataset_read(dataset, 0, &sample), DT_ERR_DATA);
    dt_dataset_close(dataset);
    free(sample.data);
    expect_error(DT_ERR_DATA, "set/A/x.JPG has the name of an image but is not a regular file",
                 &options);
}

/* Links to folders are followed, unless they lead back. */
TEST(folder_links)
{
    static const char *const loops[] = {".", "../..", "../../a", "/"};
    const struct dt_dataset_options options = {
        .data = &folder_data, .path = at("links/set"), .num_classes = 2};

    make_folder("links/set/a/in");
    make_folder("links/out");
    write_text("links/out/1.jpg", "1");
    assert_int_equal(symlink("../out", at("links/set/b")), 0);
    assert_int_equal(symlink("../../out", at("links/set/a/x")), 0);
    assert_int_equal(symlink("../b", at("links/set/a/y")), 0);
    struct dt_dataset *dataset = open_good(&options);
    assert_int_equal(dt_dataset_size(dataset), 3);
    dt_dataset_close(dataset);
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++) {
        assert_int_equal(symlink(loops[i][0] == '/' ? test_dir : loops[i], at("links/set/a/in/up")),
                         0);
        expect_error(DT_ERR_DATA, "would never end", &options);
        assert_int_equal(unlink(at("links/set/a/in/up")), 0);
    }
}

TEST(folder_errors)
{
    struct dt_dataset_options options = {.data = &folder_data, .num_classes = 2};

    make_folder("bad");
    options.path = at("bad");
    expect_error(DT_ERR_DATA, "bad holds no class folders with images", &options);
    write_text("bad/1.jpg", "1");
    expect_error(DT_ERR_DATA, "bad holds 1 images, but no class folders: move", &options);
    write_text("bad/1.tar", "1");
    expect_error(DT_ERR_DATA, "bad holds shards, not class folders: set data.source", &options);
    make_folder("split/train");
    make_folder("split/val");
    options.path = at("split");
    expect_error(DT_ERR_DATA, "split holds train and val, which are no classes: set", &options);
    options.path = at("bad");
    make_folder("bad/a");
    make_folder("bad/b");
    expect_error(DT_ERR_DATA, "bad holds shards, not class folders", &options);
    options.path = at("nowhere");
    expect_error(DT_ERR_NO_INPUT, "nowhere", &options);
    write_text("plain", "file");
    options.path = at("plain");
    expect_error(DT_ERR_NO_INPUT, "plain", &options);
    options.path = "";
    expect_error(DT_ERR_CONFIG, "no path", &options);
    options.path = at("bad");
    assert_int_equal(symlink("nothing", at("bad/a/x.jpg")), 0);
    expect_error(DT_ERR_NO_INPUT, "bad/a/x.jpg", &options);
    dt_dataset_close(NULL);
}

/* --- Cache --- */

static void read_as(const struct dt_dataset *dataset, uint32_t id, dt_status status,
                    const char *text)
{
    struct dt_sample sample = {0};
    assert_int_equal(dt_dataset_read(dataset, id, &sample), status);
    if (status == DT_OK) {
        assert_int_equal(sample.bytes, strlen(text));
        assert_memory_equal(sample.data, text, sample.bytes);
    }
    free(sample.data);
}

/* Room for two of three samples: they stay readable when the files are gone. */
TEST(cache)
{
    static const char *const texts[] = {"first", "another", "third"};
    const struct dt_dataset_options options = {.data = &folder_data, .path = at("cached")};
    make_folder("cached/a");
    write_text("cached/a/1.jpg", texts[0]);
    write_text("cached/a/2.jpg", texts[1]);
    write_text("cached/a/3.jpg", texts[2]);
    struct dt_dataset *dataset = open_good(&options);
    assert_int_equal(dt_dataset_cache(dataset, 2 * (8 + 7)), DT_OK);
    dt_dataset_forget(dataset);
    for (int round = 0; round < 2; round++)
        for (uint32_t id = 0; id < 3; id++) {
            dt_dataset_will_need(dataset, id);
            read_as(dataset, id, DT_OK, texts[id]);
        }
    for (int i = 1; i <= 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "cached/a/%d.jpg", i);
        assert_int_equal(unlink(at(name)), 0);
    }
    read_as(dataset, 0, DT_OK, texts[0]);
    read_as(dataset, 1, DT_OK, texts[1]);
    read_as(dataset, 2, DT_ERR_DATA, NULL);
    dt_dataset_close(dataset);
}

/* --- Classes --- */

static const char *const class_names[] = {"cat", "dog", "fox"};

static void make_animals(void)
{
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "animals/%s", class_names[i]);
        make_folder(name);
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "animals/%s/%d.jpg", class_names[i], k);
            write_text(name, name);
        }
    }
}

static struct dt_names parse_names(const char *text)
{
    struct dt_names names = {0};
    assert_ok(dt_classes_parse(&names, text, "list"));
    return names;
}

/* Opens the three animals as data whose labels follow `list`. */
static struct dt_dataset *open_listed(struct dt_dataset_options *options, struct dt_names *names,
                                      const char *list)
{
    *names = parse_names(list);
    options->classes = names;
    return open_good(options);
}

TEST(classes)
{
    struct dt_dataset_options options = {.data = &auto_data, .path = at("animals")};
    struct dt_names names = {0};
    char name[300];
    make_animals();
    struct dt_dataset *own = open_good(&options);
    assert_int_equal(dt_dataset_n_classes(own), 3);
    assert_string_equal(dt_dataset_class(own, 2), "fox");
    assert_null(dt_dataset_class(own, 3));

    /* Another order, and a class of which there are no images. */
    struct dt_dataset *other = open_listed(&options, &names, "fox\nowl\r\ncat\ndog");
    assert_int_equal(dt_dataset_n_classes(other), 4);
    assert_string_equal(dt_dataset_class(other, 1), "owl");
    for (uint32_t id = 0; id < 6; id++)
        assert_int_equal(dt_dataset_label(other, id), id < 2 ? 2 : id < 4 ? 3 : 0);
    assert_true(dt_dataset_fingerprint(own) != dt_dataset_fingerprint(other));
    dt_dataset_close(other);
    dt_names_reset(&names);

    /* A subset. */
    options.subset = true;
    other = open_listed(&options, &names, "fox\ncat\n");
    assert_int_equal(dt_dataset_size(other), 4);
    assert_int_equal(dt_dataset_label(other, 0), 1);
    assert_int_equal(dt_dataset_label(other, 3), 0);
    assert_non_null(strstr(dt_dataset_name(other, 2, name, sizeof name), "animals/fox/0.jpg"));
    read_as(other, 3, DT_OK, "animals/fox/1.jpg");
    dt_dataset_close(other);
    dt_names_reset(&names);
    dt_dataset_close(own);
}

TEST(wrong_classes)
{
    struct dt_dataset_options options = {
        .data = &auto_data, .path = at("animals"), .num_classes = 2};
    struct dt_names names = parse_names("cat\nfox\n"), bad = {0};
    expect_error(DT_ERR_CONFIG, "has 3 classes (the last is fox), but model.num_classes is 2",
                 &options);
    options.classes = &names;
    expect_error(DT_ERR_DATA, "holds 1 class(es) that the model is not trained for: dog;",
                 &options);
    dt_names_reset(&names);
    names = parse_names("ant\nbee");
    options.subset = true;
    expect_error(DT_ERR_DATA, "holds none of the 2 classes, which begin with ant; it has cat, dog",
                 &options);
    dt_names_reset(&names);
    assert_error(dt_classes_parse(&bad, "a\nb\na\n", "map.txt"), DT_ERR_DATA,
                 "map.txt lists class a twice");
    dt_names_reset(&bad);
    assert_error(dt_classes_parse(&bad, "a\n\nb\n", "map.txt"), DT_ERR_DATA,
                 "map.txt:2: an empty line");
    dt_names_reset(&bad);
    assert_int_equal(dt_classes_load(&bad, at("nowhere")), DT_ERR_NO_INPUT);
    write_text("nul", "");
    assert_int_equal(dt_classes_load(&bad, at("nul")), DT_ERR_DATA);
    options.path = at("nul");
    expect_error(DT_ERR_DATA, "neither a folder, nor a tar, nor a .csv or .json file", &options);
    options.path = at("nowhere");
    expect_error(DT_ERR_NO_INPUT, "no data at", &options);
    options.path = at("no-{00..01}.tar");
    expect_error(DT_ERR_NO_INPUT, "shards are missing", &options);
    options.path = at(".");
    options.targets = DT_COLUMN_BOXES;
    expect_error(DT_ERR_CONFIG, "a detector needs boxes", &options);
}

TEST_MAIN(make_test_dir, remove_test_dir)
