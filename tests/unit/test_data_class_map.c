/* What labels mean where a training and a validation set name their classes in two ways: names, and
 * numbers. */
#include "capture.h"
#include "data/dataset.h"
#include "data_files.h"

static const struct dt_config_data plain = {.source = DT_SOURCE_AUTO, .class_map = "the map"};

static enum dt_part first_part = DT_PART_TRAIN;

/* As dt_sets_open: the validation set after the training set, of which the status is returned;
 * got: "file=class ..." of its samples. */
static dt_status open_pair(char got[512], const char *train, const char *val,
                           const struct dt_names *map)
{
    struct dt_dataset *first = NULL, *second = NULL;
    struct dt_dataset_options options = {.data = &plain,
                                         .path = at(train),
                                         .class_map = map,
                                         .classes = map,
                                         .classes_of = map ? "the map" : NULL,
                                         .subset = map,
                                         .part = first_part};
    char name[DT_PATH_MAX], number[16];
    got[0] = '\0';
    DT_TRY(dt_dataset_open(&first, &options));
    options.num_classes = dt_dataset_n_classes(first);
    options.classes = map ? map : dt_dataset_classes(first);
    options.classes_of = options.path;
    options.path = at(val);
    options.part = DT_PART_VAL;
    const dt_status status = dt_dataset_open(&second, &options);
    for (uint32_t id = 0; status == DT_OK && id < dt_dataset_size(second); id++) {
        const int label = dt_dataset_label(second, id);
        dt_dataset_name(second, id, name, sizeof name);
        snprintf(got + strlen(got), 512 - strlen(got), "%s%s=%s", id ? " " : "",
                 strstr(name, "/set-") + 5, dt_dataset_label_text(first, label, number));
    }
    dt_dataset_close(second);
    dt_dataset_close(first);
    return status;
}

/* Folders of one image, and a table that lists each of them `times` times with another label. */
static void make(const char *name, const char *const *folders, const char *const *labels, int n,
                 int times)
{
    char folder[96], path[128], table[1024] = "path,label\n";
    for (int i = 0; i < n * times; i++) {
        snprintf(folder, sizeof folder, "set-%s/%s", name, folders[i % n]);
        snprintf(path, sizeof path, "%s/a.jpg", folder);
        make_folder(folder);
        write_text(path, "a");
        snprintf(table + strlen(table), sizeof table - strlen(table), "%s,%s\n", path,
                 labels[i % n]);
    }
    snprintf(path, sizeof path, "%s.csv", name);
    write_text(path, table);
}

TEST(class_maps)
{
    static const char *const numbers[] = {"0", "1", "10", "2"}, *const padded[] = {"00", "01"};
    static const char *const sparse[] = {"7", "10"}, *const positions[] = {"0", "1"};
    static const char *const animals[] = {"Bär", "ant"}, *const reversed[] = {"1", "0"};
    static const struct {
        const char *train, *val, *expected;
        dt_status status;
    } cases[] = {
        /* Names that are numbers mean these. */
        {"set-numbers", "numbers.csv",
         "numbers/0/a.jpg=0 numbers/1/a.jpg=1 numbers/10/a.jpg=10 "
         "numbers/2/a.jpg=2",
         DT_OK},
        {"many.csv", "set-numbers",
         "numbers/0/a.jpg=0 numbers/1/a.jpg=1 numbers/10/a.jpg=10 "
         "numbers/2/a.jpg=2",
         DT_OK},
        {"set-padded", "padded.csv", "padded/00/a.jpg=00 padded/01/a.jpg=01", DT_OK},
        {"padded.csv", "set-padded", "padded/00/a.jpg=0 padded/01/a.jpg=1", DT_OK},
        {"set-numbers", "sparse.csv", "has the label 7, but the classes of ", DT_ERR_DATA},
        {"first.csv", "set-numbers", "has the class 10, but the labels of ", DT_ERR_DATA},
        /* Nothing says which number is which name. */
        {"set-animals", "animals.csv", "set-animals (Bär, ant) and numbers in ", DT_ERR_DATA},
        {"animals.csv", "set-animals", "set-animals (Bär, ant) and numbers in ", DT_ERR_DATA},
        /* The same scheme. */
        {"set-animals", "set-animals", "animals/Bär/a.jpg=Bär animals/ant/a.jpg=ant", DT_OK},
        {"animals.csv", "first.csv", "first/0/a.jpg=0 first/1/a.jpg=1", DT_OK},
    };
    char got[512];
    make("numbers", numbers, numbers, 4, 1);
    make("many", numbers, numbers, 4, 3);
    make("padded", padded, positions, 2, 1);
    make("sparse", sparse, sparse, 2, 1);
    make("animals", animals, reversed, 2, 1);
    make("first", positions, positions, 2, 1);
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        const dt_status status = open_pair(got, cases[i].train, cases[i].val, NULL);
        if (status == DT_OK)
            assert_string_equal(got, cases[i].expected);
        else
            assert_error(status, cases[i].status, cases[i].expected);
        assert_int_equal(status, cases[i].status);
        dt_error_clear();
    }
    /* data.class_map says it. */
    struct dt_names map = {0};
    assert_ok(dt_classes_parse(&map, "ant\nBär\n", "the map"));
    assert_ok(open_pair(got, "set-animals", "animals.csv", &map));
    assert_string_equal(got, "animals/Bär/a.jpg=Bär animals/ant/a.jpg=ant");
    assert_ok(open_pair(got, "animals.csv", "set-animals", &map));
    assert_string_equal(got, "animals/Bär/a.jpg=Bär animals/ant/a.jpg=ant");
    dt_names_reset(&map);
}

static void says(const char *train, const char *text)
{
    char got[512], said[4096];
    struct capture capture = capture_begin(stderr);
    const dt_status status = open_pair(got, train, train, NULL);
    capture_end(&capture, said, sizeof said);
    assert_ok(status);
    if (!strstr(said, text))
        fail_msg("no \"%s\" in: %s", text, said);
}

TEST(notices)
{
    write_text("gap.csv",
               "path,label\nset-first/0/a.jpg,0\nset-first/0/a.jpg,0\nset-first/0/a.jpg,0\n"
               "set-first/1/a.jpg,3\n");
    says("gap.csv", "gap.csv: 2 of 4 classes have no images: 1, 2");
    first_part = DT_PART_ALL; /* dtrain verify */
    says("gap.csv", "gap.csv: 2 of 4 classes have no images: 1, 2");
    write_text("case.csv", "path,label\nset-first/0/a.jpg,Ring\nset-first/1/a.jpg,ring\n");
    says("case.csv", "the classes Ring and ring differ in case only");
}

TEST_MAIN(make_test_dir, remove_test_dir)
