/* COCO's annotations: what the tables hold, every mistake with its place, detections. */
#include "base/mem.h"
#include "boxes/coco.h"
#include "capture.h"
#include "data_files.h"

/* Out of order: annotations first, ids neither sorted nor dense, unknown members in between. */
static const char good[] =
    "{\"info\": {\"year\": 2017}, \"annotations\": [\n"
    "{\"segmentation\": [[1.5,2,3.25,4,5,6]], \"id\": 7, \"image_id\": 30, \"category_id\": 9,\n"
    " \"bbox\": [1.5, 2.25, 10.01, 20], \"area\": 123.456, \"iscrowd\": 0},\n"
    "{\"id\": 5, \"image_id\": 10, \"category_id\": 2, \"bbox\": [0,0,4,4], \"area\": 16},\n"
    "{\"segmentation\": {\"counts\": [1,2], \"size\": [4,4]}, \"iscrowd\": 1, \"id\": 6,\n"
    " \"image_id\": 30, \"category_id\": 2, \"bbox\": [-3,1e1,5,6.5], \"area\": 0}],\n"
    "\"categories\": [{\"id\": 9, \"name\": \"tree\", \"supercategory\": \"x\"},\n"
    "  {\"name\": \"ant \\u00e9\", \"id\": 2}],\n"
    "\"images\": [{\"id\": 30, \"file_name\": \"b.jpg\", \"width\": 40, \"height\": 50},\n"
    "  {\"file_name\": \"sub/a.jpg\", \"height\": 30, \"width\": 20, \"id\": 10, \"license\": 4},\n"
    "  {\"file_name\": \"c.jpg\", \"height\": 1, \"width\": 2, \"id\": 20}]}\n";

static const struct dt_coco_rules rules = {0};

static dt_status open_text(struct dt_coco *coco, const char *text)
{
    write_text("set.json", text);
    return dt_coco_open(coco, at("set.json"), &rules);
}

static void check_truth(const struct dt_truth *t, struct dt_truth expected)
{
    assert_true(t->x == expected.x && t->y == expected.y && t->w == expected.w &&
                t->h == expected.h && t->area == expected.area);
    assert_int_equal(t->id, expected.id);
    assert_int_equal(t->label, expected.label);
    assert_int_equal(t->is_crowd, expected.is_crowd);
}

TEST(tables)
{
    static const int64_t ids[] = {10, 20, 30};
    static const char *const names[] = {"sub/a.jpg", "c.jpg", "b.jpg"};
    static const int sizes[][2] = {{20, 30}, {2, 1}, {40, 50}};
    static const size_t first[] = {0, 1, 1, 3};
    struct dt_coco coco;
    assert_ok(open_text(&coco, good));
    assert_int_equal(coco.n_images, 3);
    for (int i = 0; i < 3; i++) {
        const struct dt_coco_image *image = &coco.images[i];
        assert_int_equal(image->id, ids[i]);
        assert_int_equal(image->width, sizes[i][0]);
        assert_int_equal(image->height, sizes[i][1]);
        assert_string_equal(dt_names_get(&coco.files, image->name), names[i]);
    }
    assert_memory_equal(coco.first_truth, first, sizeof first);
    check_truth(&coco.truths[0], (struct dt_truth){0, 0, 4, 4, 16, 5, 0, false});
    check_truth(&coco.truths[1], (struct dt_truth){1.5, 2.25, 10.01, 20, 123.456, 7, 1, false});
    check_truth(&coco.truths[2], (struct dt_truth){-3, 10, 5, 6.5, 0, 6, 0, true});
    assert_int_equal(coco.n_categories, 2);
    assert_int_equal(coco.category_ids[0], 2);
    assert_int_equal(coco.category_ids[1], 9);
    assert_string_equal(dt_names_get(&coco.categories, 0), "ant \xc3\xa9");
    assert_string_equal(dt_names_get(&coco.categories, 1), "tree");
    assert_int_equal(coco.max_boxes, 2);
    dt_coco_reset(&coco);
    assert_null(coco.truths);
    dt_coco_reset(&coco);
}

/* A copy of `good` with the first occurrence of `from` replaced. */
static char *change(const char *from, const char *to)
{
    const char *found = strstr(good, from);
    assert_non_null(found);
    const size_t bytes = sizeof good + strlen(to);
    char *text = malloc(bytes);
    assert_non_null(text);
    snprintf(text, bytes, "%.*s%s%s", (int)(found - good), good, to, found + strlen(from));
    return text;
}

static void check_changed(const char *from, const char *to, const char *message)
{
    struct dt_coco coco;
    char *text = change(from, to);
    const dt_status status = open_text(&coco, text);
    if (message ? status != DT_ERR_DATA || !strstr(dt_error_text(), message) : status != DT_OK)
        fail_msg("%s -> %s: %d, \"%s\" lacks \"%s\"", from, to, (int)status, dt_error_text(),
                 message);
    dt_coco_reset(&coco);
    free(text);
}

TEST(mistakes)
{
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"\"id\": 5", "\"id\": 7", "set.json:4:1: there is another annotation with the id 7"},
        {"\"id\": 9,", "\"id\": 2,", "set.json:8:3: there is another category with the id 2"},
        {"\"tree\"", "\"ant \\u00e9\"", "set.json:7:16: there is another category with the name"},
        {"\"id\": 20", "\"id\": 10", "set.json:11:3: there is another image with the id 10"},
        {"\"id\": 5", "\"id\": 5.5", "set.json:4:8: annotations.id: 5.5 is not an integer"},
        {"\"id\": 5, ", "", "set.json:4:1: the annotation has no \"id\""},
        {"\"image_id\": 10, ", "", "the annotation has no \"image_id\""},
        {"\"category_id\": 9,", "", "the annotation has no \"category_id\""},
        {"\"area\": 16", "\"area\": \"16\"", "expected a number"},
        {"\"area\": 16", "\"area\": NaN", "expected a number, got 'N'"},
        {"\"area\": 16", "\"area\": Infinity", "expected a number, got 'I'"},
        {"\"area\": 16", "\"area\": 1e999", "number 1e999 is too large"},
        {"\"area\": 16", "\"area\": 16, \"area\": 17", "the annotation has \"area\" twice"},
        {"[0,0,4,4]", "[0,0,4,-0.5]", "-0.5 is negative"},
        {"[0,0,4,4]", "[0,0,4]", ":53: bbox: a box must be four numbers"},
        {"[0,0,4,4]", "[0,0,4,null]", "expected a number"},
        {"[0,0,4,4]", "[0,0,4,1e10]", "1e+10 is far outside any image"},
        {"[0,0,4,4]", "null", "expected an array"},
        {"\"iscrowd\": 1", "\"iscrowd\": 2", "2 is neither 0 nor 1"},
        {"\"file_name\": \"b.jpg\", ", "", "set.json:9:12: the image has no \"file_name\""},
        {"\"b.jpg\"", "\"../b.jpg\"", "file_name: ../b.jpg must be a path inside"},
        {"\"b.jpg\"", "\"x/../../b.jpg\"", "must be a path inside"},
        {"\"b.jpg\"", "\"\"", "file_name: a name of 0 bytes"},
        {"\"b.jpg\"", "\"b\\n.jpg\"", "file_name: b?.jpg has control characters"},
        {"\"width\": 40", "\"width\": 0", "width: 0 is not within 1..65500"},
        {"\"width\": 40", "\"width\": 65501", "65501 is not within 1..65500"},
        {"\"id\": 9,", "\"id\": -9,", "id: -9 is not within 0..2147483647"},
        {", \"name\": \"tree\"", "", "the category has no \"name\""},
        {"\"images\"", "\"image\"",
         "set.json:1:1: this is not a file of COCO's instances: the outermost object has no "
         "\"images\""},
        {"\"categories\"", "\"cats\"", "has no \"categories\""},
        {"\"annotations\"", "\"boxes\"", "has no \"annotations\""},
        {"\"info\": {", "\"images\": [], \"info\": {", "has \"images\" twice"},
        {"{\"info\"", "[{\"info\"",
         "set.json:1:1: this is not a file of COCO's instances: it must"},
        {"\"id\": 20}]}", "\"id\": 20}]", "'{' without its '}': the file is not complete"},
        {"\"id\": 20}]}", "\"id\": 20}]}}", "expected the end of the text"},
        /* Allowed: */
        {"[0,0,4,4]", "[0,0,0,0]", NULL},
        {"\"image_id\": 10", "\"image_id\": 10.0", NULL},
        {"\"iscrowd\": 1", "\"iscrowd\": true", NULL},
        {"\"segmentation\": [[1.5,2,3.25,4,5,6]], ", "", NULL},
        {"\"id\": 5", "\"id\": -5", NULL},
    };
    for (size_t i = 0; i < DT_COUNT(cases); i++)
        check_changed(cases[i].from, cases[i].to, cases[i].message);
}

/* A row of six that is of no use is skipped and named, unless that is more than is allowed. */
TEST(skipped)
{
    static const struct {
        const char *from, *to, *named;
        uint32_t n_images;
        size_t n_truths;
    } cases[] = {
        {"\"image_id\": 10", "\"image_id\": 11",
         "set.json:4:1: there is no image with the id 11: the list of images lacks it", 3, 2},
        {"\"image_id\": 10", "\"image_id\": \"10\"", "its image_id is a text", 3, 2},
        {"\"category_id\": 9", "\"category_id\": 3",
         "set.json:2:1: there is no category with the id 3", 3, 2},
        {"\"id\": 5", "\"id\": {\"a\": [[1], \"}\"]}", "expected a number", 3, 2},
        {"\"bbox\": [0,0,4,4], ", "", "json:4:1: the annotation has no \"bbox\"", 3, 2},
        {"\"area\": 16", "\"area\": -1", ":72: area: -1 is negative", 3, 2},
        {"\"area\": 16", "\"area\": null", "json:4:72: annotations.area: expected a number", 3, 2},
        {"[0,0,4,4]", "[0,0,-4,4]", "bbox: -4 is negative", 3, 2},
        {"[0,0,4,4]", "[0,0,4,4,[5]]", "a box must be four numbers", 3, 2},
        {"[0,0,4,4]", "{\"x\": [0, {}], \"w\": 4}", "expected an array", 3, 2},
        {"\"b.jpg\"", "\"/b.jpg\"", "/b.jpg must be a path inside", 2, 1},
        {"\"width\": 40", "\"width\": -1", "width: -1 is not within 1..65500", 2, 1},
        {"\"height\": 30", "\"height\": \"30\"", "expected a number, got '\"'", 2, 2},
        {"\"id\": 20", "\"id\": \"20\"", "no image with the id \"20\": ids of images are", 2, 3},
        {"\"id\": 20", "\"id\": null", "images.id: expected a number", 2, 3},
    };
    char said[2048];
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        struct dt_coco coco;
        char *text = change(cases[i].from, cases[i].to);
        check_changed(cases[i].from, cases[i].to, cases[i].named);
        check_changed(cases[i].from, cases[i].to, "1 of 6 images and annotations cannot be used,");
        struct capture capture = capture_begin(stderr);
        assert_ok(dt_coco_open(&coco, at("set.json"), &(struct dt_coco_rules){.max_bad = 0.2}));
        capture_end(&capture, said, sizeof said);
        if (!strstr(said, "1 of 6 images and annotations cannot be used and are skipped:\n    ") ||
            !strstr(said, cases[i].named))
            fail_msg("%s lacks %s", said, cases[i].named);
        assert_int_equal(coco.n_images, cases[i].n_images);
        assert_int_equal(coco.first_truth[coco.n_images], cases[i].n_truths);
        dt_coco_reset(&coco);
        free(text);
    }
}

/* Rows that are no objects, and more than are named. */
TEST(many_skipped)
{
    struct dt_coco coco;
    char *text = change("\"annotations\": [", "\"annotations\": [7, null, [[]], \"x\", {}, {}, ");
    write_text("set.json", text);
    assert_error(dt_coco_open(&coco, at("set.json"), &(struct dt_coco_rules){.max_bad = 0.45}),
                 DT_ERR_DATA,
                 "6 of 12 images and annotations cannot be used, but "
                 "data.max_bad_fraction allows at most 45 % of them (5)");
    assert_non_null(strstr(dt_error_text(), "the annotation has no \"id\"\n    ..."));
    assert_ok(dt_coco_open(&coco, at("set.json"), &(struct dt_coco_rules){.max_bad = 0.5}));
    assert_int_equal(coco.first_truth[coco.n_images], 3);
    dt_coco_reset(&coco);
    free(text);
}

/* Ids of images that are texts, one of them a number; no annotations. */
TEST(texts_as_ids)
{
    static const char *const texts[] = {"a\"b", "ant", "zoo"};
    static const char file[] =
        "{\"annotations\": [{\"id\": 1, \"image_id\": \"zoo\", \"category_id\": 1, \"bbox\": "
        "[0,0,1,1]},"
        "{\"id\": 2, \"image_id\": \"none\", \"category_id\": 1, \"bbox\": [0,0,1,1]}], "
        "\"images\": ["
        "{\"id\": \"zoo\", \"file_name\": \"z\", \"width\": 3, \"height\": 3},"
        "{\"id\": \"a\\\"b\", \"file_name\": \"b\", \"width\": 1, \"height\": 1},"
        "{\"id\": 4, \"file_name\": \"n\", \"width\": 4, \"height\": 4},"
        "{\"id\": \"ant\", \"file_name\": \"a\", \"width\": 2, \"height\": 2}],"
        "\"categories\": [{\"id\": 1, \"name\": \"x\"}]}";
    struct dt_coco coco;
    assert_error(open_text(&coco, file), DT_ERR_DATA, "no image with the id \"none\"");
    assert_non_null(strstr(dt_error_text(), "4 is a number, but ids of images are texts here"));
    assert_ok(dt_coco_open(&coco, at("set.json"), &(struct dt_coco_rules){.max_bad = 0.4}));
    assert_int_equal(coco.n_images, DT_COUNT(texts));
    for (size_t i = 0; i < DT_COUNT(texts); i++) {
        assert_string_equal(dt_names_get(&coco.text_ids, (size_t)coco.images[i].id), texts[i]);
        assert_int_equal(coco.images[i].width, i + 1);
        assert_int_equal(coco.first_truth[i], 0);
    }
    assert_int_equal(coco.first_truth[DT_COUNT(texts)], 1);
    dt_coco_reset(&coco);
    char *text = change("\"annotations\"", "\"boxes\"");
    write_text("set.json", text);
    assert_ok(
        dt_coco_open(&coco, at("set.json"), &(struct dt_coco_rules){.may_lack_annotations = true}));
    assert_int_equal(coco.first_truth[coco.n_images], 0);
    dt_coco_reset(&coco);
    free(text);
}

TEST(empty_lists)
{
    struct dt_coco coco;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "this is not a file of COCO's instances"},
        {"[]", "this is not a file of COCO's instances"},
        {"{\"images\": [], \"annotations\": [], \"categories\": []}", "list of images is empty"},
        {"{\"images\": [{\"id\":1,\"file_name\":\"a\",\"width\":1,\"height\":1}],"
         " \"annotations\": [], \"categories\": []}",
         "list of categories is empty"},
        {"{\"images\": {}, \"annotations\": [], \"categories\": []}", "\"images\" must be a list"},
    };
    for (size_t i = 0; i < DT_COUNT(cases); i++)
        assert_error(open_text(&coco, cases[i].text), DT_ERR_DATA, cases[i].message);
    assert_int_equal(open_text(&coco, "{\"images\": [{\"id\":1,\"file_name\":\"a\",\"width\":1,"
                                      "\"height\":1}], \"annotations\": [], \"categories\":"
                                      "[{\"id\":0,\"name\":\"x\"}]}"),
                     DT_OK);
    assert_int_equal(coco.first_truth[1], 0);
    assert_int_equal(coco.max_boxes, 0);
    dt_coco_reset(&coco);
    assert_int_equal(dt_coco_open(&coco, at("missing.json"), &rules), DT_ERR_NO_INPUT);
    assert_int_equal(dt_coco_open(&coco, at("."), &rules), DT_ERR_NO_INPUT);
}

/* Every beginning of the file is an error, never a crash. */
TEST(truncated)
{
    struct dt_coco coco;
    for (size_t bytes = 0; bytes < strlen(good) - 1; bytes++) {
        write_bytes("cut.json", good, bytes);
        assert_int_equal(dt_coco_open(&coco, at("cut.json"), &rules), DT_ERR_DATA);
        assert_null(coco.images);
    }
}

/* Any change of what is kept changes the fingerprint; other members do not. */
TEST(fingerprint)
{
    static const struct {
        const char *from, *to;
        bool same;
    } cases[] = {
        {"\"year\": 2017", "\"year\": 2018", true},
        {"[1.5,2,", "[2.5,2,", true},
        {"\"license\": 4", "\"license\": 5", true},
        {"\"iscrowd\": 0", "\"iscrowd\": false", true},
        {"10.01", "10.02", false},
        {"123.456", "123.457", false},
        {"\"id\": 7", "\"id\": 8", false},
        {"\"iscrowd\": 0", "\"iscrowd\": 1", false},
        {"tree", "Tree", false},
        {"b.jpg", "d.jpg", false},
        {"\"width\": 40", "\"width\": 41", false},
        {"\"image_id\": 30", "\"image_id\": 20", false},
    };
    struct dt_coco coco;
    assert_int_equal(open_text(&coco, good), DT_OK);
    const uint64_t expected = coco.fingerprint;
    dt_coco_reset(&coco);
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        char *text = change(cases[i].from, cases[i].to);
        assert_int_equal(open_text(&coco, text), DT_OK);
        if ((coco.fingerprint == expected) != cases[i].same)
            fail_msg("%s -> %s", cases[i].from, cases[i].to);
        dt_coco_reset(&coco);
        free(text);
    }
}

TEST(found)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"{}", "found.json:1:1: this is not a file of detections"},
        {"[{\"image_id\": 11, \"category_id\": 2, \"bbox\": [0,0,1,1], \"score\": 1}]",
         "found.json:1:2: there is no image with the id 11"},
        {"[{\"image_id\": 10, \"category_id\": 1, \"bbox\": [0,0,1,1], \"score\": 1}]",
         "there is no category with the id 1"},
        {"[{\"image_id\": 10, \"category_id\": 2, \"bbox\": [0,0,1,1]}]",
         "the detection has no \"score\""},
        {"[{\"image_id\": 10, \"category_id\": 2, \"bbox\": [0,0,-1,1], \"score\": 1}]",
         "-1 is negative"},
        {"[{\"image_id\": 10, \"category_id\": 2, \"bbox\": [0,0,1,1], \"score\": NaN}]",
         "NaN and Infinity are not"},
        {"[{\"image_id\": 10", "the file is not complete"},
    };
    struct dt_coco coco;
    struct dt_found *found;
    size_t n;
    assert_int_equal(open_text(&coco, good), DT_OK);
    write_text("found.json",
               "[{\"image_id\": 30, \"category_id\": 2, \"bbox\": [0.5,1,2,3], \"score\": 0.25},\n"
               " {\"score\": 1, \"segmentation\": [], \"image_id\": 10, \"category_id\": 9,"
               " \"bbox\": [0,0,0,0]}]");
    assert_int_equal(dt_coco_read_found(&found, &n, &coco, at("found.json")), DT_OK);
    assert_int_equal(n, 2);
    assert_true(found[0].x == 0.5 && found[0].y == 1 && found[0].w == 2 && found[0].h == 3);
    assert_true(found[0].score == 0.25 && found[1].score == 1);
    assert_int_equal(found[0].image, 2);
    assert_int_equal(found[0].label, 0);
    assert_int_equal(found[1].image, 0);
    assert_int_equal(found[1].label, 1);
    free(found);
    write_text("found.json", "[]");
    assert_int_equal(dt_coco_read_found(&found, &n, &coco, at("found.json")), DT_OK);
    assert_int_equal(n, 0);
    free(found);
    for (size_t i = 0; i < DT_COUNT(bad); i++) {
        write_text("found.json", bad[i].text);
        const dt_status status = dt_coco_read_found(&found, &n, &coco, at("found.json"));
        if (status != DT_ERR_DATA || found || !strstr(dt_error_text(), bad[i].message))
            fail_msg("text %zu: %s", i, dt_error_text());
    }
    dt_coco_reset(&coco);
}

/* Files of some tools have no areas and count annotations from 0. */
TEST(lenient)
{
    struct dt_coco coco;
    char *text = change("\"id\": 5, \"image_id\": 10, \"category_id\": 2, \"bbox\": [0,0,4,4], "
                        "\"area\": 16",
                        "\"id\": 0, \"image_id\": 10, \"category_id\": 2, \"bbox\": [0,0,4,2.5]");
    assert_int_equal(open_text(&coco, text), DT_OK);
    check_truth(&coco.truths[0], (struct dt_truth){0, 0, 4, 2.5, 10, 0, 0, false});
    dt_coco_reset(&coco);
    free(text);
}

TEST_MAIN(make_test_dir, remove_test_dir)
