/* Tables of images: what is read, and every mistake with its line. Files read by Python's csv
 * module too: interop/data_sets. */
#include "base/rng.h"
#include "capture.h"
#include "data/dataset.h"
#include "data_files.h"

static const struct dt_config_data plain = {.source = DT_SOURCE_AUTO};

static dt_status open_text(struct dt_dataset **dataset, const char *text, int num_classes)
{
    const struct dt_dataset_options options = {
        .data = &plain, .path = at("set/list.csv"), .num_classes = num_classes};
    write_text("set/list.csv", text);
    return dt_dataset_open(dataset, &options);
}

/* `expected`: "label name\n" of each sample. */
static void check_samples(const char *text, int n_classes, const char *expected)
{
    struct dt_dataset *dataset;
    struct dt_sample sample = {0};
    char all[1024] = "", name[600];
    assert_ok(open_text(&dataset, text, 0));
    for (uint32_t id = 0; id < dt_dataset_size(dataset); id++) {
        const char *path = dt_dataset_name(dataset, id, name, sizeof name);
        assert_int_equal(strncmp(path, test_dir, strlen(test_dir)), 0);
        snprintf(all + strlen(all), sizeof all - strlen(all), "%d %s\n",
                 dt_dataset_label(dataset, id), path + strlen(test_dir) + 1);
        assert_int_equal(dt_dataset_read(dataset, id, &sample), DT_OK);
    }
    assert_string_equal(all, expected);
    assert_int_equal(dt_dataset_n_classes(dataset), n_classes);
    dt_dataset_close(dataset);
    free(sample.data);
}

static void check_error(const char *text, dt_status status, const char *message)
{
    struct dt_dataset *dataset;
    assert_error(open_text(&dataset, text, 3), status, message);
    assert_null(dataset);
}

static int make_set(void **state)
{
    if (make_test_dir(state))
        return -1;
    make_folder("set/in");
    write_text("set/in/a.jpg", "a");
    write_text("set/b, \"2\".png", "b");
    write_text("set/\n", "line");
    return 0;
}

TEST(tables)
{
    char absolute[256];
    check_samples("path,label\nin/a.jpg,cat\n\"b, \"\"2\"\".png\",ant\nin/a.jpg,cat\n", 2,
                  "1 set/in/a.jpg\n0 set/b, \"2\".png\n1 set/in/a.jpg\n");
    check_samples("\xef\xbb\xbfx,\"label\",y,path\r\n,7,,in/a.jpg\r\n\r\n\"a\r\nb\",007,,in/a.jpg",
                  8, "7 set/in/a.jpg\n7 set/in/a.jpg\n");
    check_samples("path,label\n\"\n\",1\n", 2, "1 set/?\n");
    check_samples("path,label\rin/a.jpg,7\rin/a.jpg,x\r", 2, "0 set/in/a.jpg\n1 set/in/a.jpg\n");
    check_samples("path, label\n in/a.jpg ,ring \n\"in/a.jpg\", ring\n", 1,
                  "0 set/in/a.jpg\n0 set/in/a.jpg\n");
    check_samples("path,label\nin/a.jpg,1.0\nin/a.jpg,2.\n", 3, "1 set/in/a.jpg\n2 set/in/a.jpg\n");
    check_samples("path,label\nin/a.jpg,1.0.0\n", 1, "0 set/in/a.jpg\n");
    snprintf(absolute, sizeof absolute, "path,label\n%s,\"\xc3\xa9,\"\n", at("set/in/a.jpg"));
    check_samples(absolute, 1, "0 set/in/a.jpg\n");
}

static void says(const char *text, const char *what)
{
    char said[2048];
    struct dt_dataset *dataset;
    struct capture capture = capture_begin(stderr);
    const dt_status status = open_text(&dataset, text, 0);
    capture_end(&capture, said, sizeof said);
    assert_ok(status);
    dt_dataset_close(dataset);
    if (!strstr(said, what))
        fail_msg("no \"%s\" in: %s", what, said);
}

TEST(notices)
{
    says("path, label\nin/a.jpg, ring\n", "blanks around 2 of its values are ignored");
    says("id,path,label,sex\n1,in/a.jpg,0,f\n", "columns that are not used: \"id\", \"sex\"");
    says("path,label,fold,rust\nin/a.jpg,0,0,1\nin/a.jpg,0,2,0\n", "not used: \"fold\", \"rust\"");
    says("path,label\nin/a.jpg,0\nin/a.jpg,1\nin/a.jpg,0\n",
         "2 of 3 rows name an image of an earlier row, 1 of them with another label");
    says("path,label\nin/a.jpg,0\nin/a.jpg,1\n",
         "list.csv:3: in/a.jpg is also in line 2, with another");
}

TEST(fingerprint)
{
    static const char *const texts[] = {
        "path,label\nin/a.jpg,x\nin/a.jpg,y\n", "path,label\nin/a.jpg,y\nin/a.jpg,x\n",
        "path,label\nin/a.jpg,x\nin/a.jpg,z\n", "path,label\n./in/a.jpg,x\nin/a.jpg,y\n"};
    struct dt_dataset *dataset;
    uint64_t prints[5];
    for (size_t i = 0; i < 5; i++) {
        if (i == 4)
            write_text("set/in/a.jpg", "longer");
        assert_int_equal(open_text(&dataset, texts[i % 4], 0), DT_OK);
        prints[i] = dt_dataset_fingerprint(dataset);
        dt_dataset_close(dataset);
        for (size_t k = 0; k < i; k++)
            assert_true(prints[k] != prints[i]);
    }
}

TEST(mistakes)
{
    static const struct {
        const char *text, *message;
        dt_status status;
    } cases[] = {
        {"", "list.csv:1: no column \"path\": the first line names ;", DT_ERR_DATA},
        {"path;label\n", "no column \"path\": the first line names \"path;label\"", DT_ERR_DATA},
        {"path,class\n", "no column \"label\": the first line names \"path\", \"class\"",
         DT_ERR_DATA},
        {"path,label,label_2\n", "list.csv:1: the column \"label_2\": an image has one",
         DT_ERR_DATA},
        {"path,label,rust,dent\nin/a.jpg,1,0,1\nin/a.jpg,0,1,1\n",
         "list.csv:1: the columns \"rust\", \"dent\" hold 0 and 1 only", DT_ERR_DATA},
        {"labels,path,label\n", "list.csv:1: the column \"labels\": an image has one", DT_ERR_DATA},
        {"path,label\nin/a.jpg,1.0\nin/a.jpg,nan\n", "list.csv:3: the label \"nan\" stands for",
         DT_ERR_DATA},
        {"path,label\nin/a.jpg, N/A \n", "list.csv:2: the label \"N/A\" stands for", DT_ERR_DATA},
        {"path,label\nin/a.jpg,0.5\n", "list.csv:2: the label 0.5 is a fraction", DT_ERR_DATA},
        {"path,label\nin\\a.jpg,1\n", "in\\a.jpg (it has backslashes; folders end in /)",
         DT_ERR_NO_INPUT},
        {"path,label\n", "holds no samples", DT_ERR_DATA},
        {"path,label\n\nin/a.jpg\n", "list.csv:3: 1 column(s), but the first line", DT_ERR_DATA},
        {"path,label\nin/a.jpg,1,2\n", "list.csv:2: 3 column(s)", DT_ERR_DATA},
        {"path,label\n,1\n", "list.csv:2: the path is empty", DT_ERR_DATA},
        {"path,label\nin/a.jpg,\n", "list.csv:2: the label is empty", DT_ERR_DATA},
        {"path,label\n\"a\nb\",1\n\"in/a.jpg,1\n", "list.csv:4: the quote before \"in/a.jpg,1",
         DT_ERR_DATA},
        {"path,label\n\"a\"b,1\n", "list.csv:2: text after a closing quote: b,1", DT_ERR_DATA},
        {"path,label\nin/a.jpg,3\n", "list.csv:2: label 3 is out of range", DT_ERR_DATA},
        {"path,label\nin/a.jpg,-1\n", "list.csv:2: label -1 is out of range", DT_ERR_DATA},
        {"path,label\nin/a.jpg,99999999999999999999\n", "is out of range", DT_ERR_DATA},
        {"path,label\nin/a.jpg,1\nin/b.jpg,1\nin/c.jpg,1\n",
         "list.csv are missing, the first in line 3: in/b.jpg", DT_ERR_NO_INPUT},
        {"path,label\nin/a.jpg,1\nin/b.jpg,1\n", "1 of 2 images in ", DT_ERR_NO_INPUT},
        {"path,label\nin,1\n", "list.csv:2: ", DT_ERR_DATA},
        {"path,label\nin/a.jpg,a\nin/a.jpg,b\nin/a.jpg,c\nin/a.jpg,d\n",
         "has 4 classes (the last is d), but model.num_classes is 3", DT_ERR_CONFIG},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_error(cases[i].text, cases[i].status, cases[i].message);
}

TEST(largest_label)
{
    struct dt_dataset *dataset;
    struct dt_dataset_options options = {
        .data = &plain, .path = at("set/list.csv"), .part = DT_PART_TRAIN};
    write_text("set/list.csv", "path,label\nin/a.jpg,0\nin/a.jpg,999999\n");
    assert_error(dt_dataset_open(&dataset, &options), DT_ERR_DATA,
                 "set/in/a.jpg has the label 999999, which makes more classes than the 2 images");
    options.num_classes = 1000000;
    assert_ok(dt_dataset_open(&dataset, &options));
    dt_dataset_close(dataset);
    write_text("set/list.csv", "path,label\nin/a.jpg,0\nin/a.jpg,1\n");
    options.num_classes = 0;
    assert_ok(dt_dataset_open(&dataset, &options));
    dt_dataset_close(dataset);
}

/* Whatever is in a table, it is read or refused. */
TEST(noise)
{
    static const char letters[] = ",,\"\"\"\r\n\n1a-";
    struct dt_dataset *dataset;
    struct dt_rng rng;
    int n_read = 0;
    dt_rng_init(&rng, 1, DT_RNG_SHUFFLE, 0, 0);
    for (int i = 0; i < 3000; i++) {
        char text[] = "path,x,label\nin/a.jpg,,1\n\"in/a.jpg\",\"\n\",2\r\nin/a.jpg,3,1";
        for (uint32_t n = dt_rng_below(&rng, 4); n > 0; n--)
            text[dt_rng_below(&rng, sizeof text - 1)] =
                letters[dt_rng_below(&rng, sizeof letters)]; /* also NUL */
        dt_status status = open_text(&dataset, text, 0);
        if (status == DT_OK) {
            n_read += dt_dataset_size(dataset) > 0;
            dt_dataset_close(dataset);
        } else if (status != DT_ERR_DATA && status != DT_ERR_NO_INPUT) {
            fail_msg("%d: %s in:\n%s", (int)status, dt_error_text(), text);
        }
    }
    assert_true(n_read > 100 && n_read < 2900);
}

TEST(limits)
{
    struct dt_dataset *dataset;
    char text[4096] = "path,label\n";
    const struct dt_dataset_options options = {.data = &plain, .path = at("set/list.csv")};
    memset(text + 11, 'a', 1100);
    strcpy(text + 1111, ",1\n");
    check_error(text, DT_ERR_DATA, "list.csv:2: a path of 1100 bytes is too long");
    memset(text, ',', 300);
    text[300] = '\0';
    check_error(text, DT_ERR_DATA, "list.csv:1: more than 256 columns");
    write_bytes("set/list.csv", "path,label\n\0", 12);
    assert_error(dt_dataset_open(&dataset, &options), DT_ERR_DATA, "is not a text file");
}

TEST_MAIN(make_set, remove_test_dir)
