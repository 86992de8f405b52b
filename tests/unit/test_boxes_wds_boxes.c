/* Shards with boxes: what a .json member and categories.json must say, the index with its cache,
 * the data set, and which network takes which shards. */
#include "base/log.h"
#include "base/mem.h"
#include "boxes/wds_boxes.h"
#include "data/dataset.h"
#include "data_files.h"

static const char good[] =
    "{\"id\": 7, \"file_name\": \"a.jpg\", \"width\": 40, \"height\": 30, \"more\": [1, {}],"
    " \"annotations\": [{\"id\": 3, \"category_id\": 90, \"bbox\": [1.5, 2, 10, 0.1],"
    " \"area\": 0.125, \"iscrowd\": 1, \"segmentation\": [[1, 2]]},"
    " {\"area\": 4, \"bbox\": [-1, 0, 2, 2], \"category_id\": 1, \"id\": -9007199254740991}]}";
static const char categories[] =
    "[{\"id\": 90, \"name\": \"toothbrush\", \"supercategory\": \"x\"}, {\"name\": \"person\", "
    "\"id\": 1}]";

/* --- The .json member --- */

TEST(member)
{
    struct dt_wds_boxes boxes = {0};

    for (int i = 0; i < 2; i++)
        assert_int_equal(dt_wds_boxes_parse(&boxes, good, strlen(good), "m"), DT_OK);
    assert_int_equal(boxes.n, 2);
    assert_int_equal(boxes.n_truths, 4);
    for (size_t i = 0; i < boxes.n; i++) {
        const struct dt_truth *t = &boxes.truths[2 * i];
        assert_true(boxes.images[i].id == 7 && boxes.images[i].width == 40);
        assert_true(boxes.images[i].height == 30 && boxes.images[i].n_truths == 2);
        assert_true(t->x == 1.5 && t->y == 2 && t->w == 10 && t->h == 0.1 && t->area == 0.125);
        assert_true(t->id == 3 && t->label == 90 && t->is_crowd);
        assert_true(t[1].id == -9007199254740991 && t[1].x == -1 && !t[1].is_crowd);
    }
    const uint64_t hash = dt_wds_boxes_hash(&boxes, 5);
    boxes.truths[3].area = 5;
    assert_true(dt_wds_boxes_hash(&boxes, 5) != hash);
    boxes.truths[3].area = 4;
    boxes.truths[0].area = 5; /* of another image */
    assert_true(dt_wds_boxes_hash(&boxes, 5) == hash);
    dt_wds_boxes_reset(&boxes);
}

/* `good` with the first occurrence of a text replaced. */
static void replace(char *out, size_t bytes, const char *text, const char *by)
{
    const char *found = strstr(good, text);
    assert_non_null(found);
    snprintf(out, bytes, "%.*s%s%s", (int)(found - good), good, by, found + strlen(text));
}

TEST(bad_members)
{
    static const struct {
        const char *text, *by, *error;
    } rows[] = {
        {"\"id\": 7", "\"id\": 7.5", "m:1:8: id: 7.5 is not an integer below 2^53"},
        {"\"id\": 7, ", "", "m:1:1: the image has no \"id\""},
        {"\"width\": 40", "\"width\": 0", "width: 0 is not within 1..65500"},
        {"\"height\": 30", "\"height\": 65501", "height: 65501 is not within"},
        {"\"annotations\": [", "\"other\": [", "the image has no \"annotations\""},
        {"\"annotations\": [", "\"annotations\": [3, ", "annotations: expected an object"},
        {"\"id\": 3", "\"id\": 9007199254740994", "annotations.id: 9007199254740994 is"},
        {"\"category_id\": 90", "\"category_id\": -1", "category_id: -1 is not"},
        {"\"category_id\": 90", "\"category_id\": 2147483648", "within 0..2147483647"},
        {"\"category_id\": 90, ", "", "the annotation has no \"category_id\""},
        {"[1.5, 2, 10, 0.1]", "[1.5, 2, 10]", "bbox: a box must be four numbers"},
        {"[1.5, 2, 10, 0.1]", "[1.5, 2, 10, \"1\"]", "annotations.bbox: expected a number"},
        {"[1.5, 2, 10, 0.1]", "[1.5, 2, -10, 1]", "bbox: -10 is negative"},
        {"[1.5, 2, 10, 0.1]", "[2e9, 2, 10, 1]", "bbox: 2e+09 is far outside any image"},
        {"\"bbox\": [1.5, 2, 10, 0.1], ", "", "the annotation has no \"bbox\""},
        {"\"area\": 0.125", "\"area\": -1", "area: -1 is negative"},
        {"\"iscrowd\": 1", "\"iscrowd\": 2", "annotations.iscrowd: 2 is neither 0 nor 1"},
        {"]}", "]", "m:1:"},
    };
    struct dt_wds_boxes boxes = {0};
    char text[1024];

    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        replace(text, sizeof text, rows[i].text, rows[i].by);
        assert_error(dt_wds_boxes_parse(&boxes, text, strlen(text), "m"), DT_ERR_DATA,
                     rows[i].error);
        assert_int_equal(boxes.n + boxes.n_truths, 0);
    }
    assert_error(dt_wds_boxes_parse(&boxes, "[]", 2, "m"), DT_ERR_DATA,
                 "m:1:1: expected an object");
    dt_wds_boxes_reset(&boxes);
}

/* --- categories.json, and from ids of categories to labels and back --- */

static void load_categories(struct dt_coco *coco)
{
    write_text("categories.json", categories);
    assert_int_equal(dt_wds_categories_load(coco, at("categories.json")), DT_OK);
}

TEST(categories)
{
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"[]", "the list of categories is empty"},
        {"{}", ":1:1: the categories must be a list"},
        {"[{\"id\": 1}]", ":1:2: the category has no \"name\""},
        {"[{\"id\": 1, \"name\": \"\"}]", "name: a name of 0 bytes"},
        {"[{\"id\": -1, \"name\": \"a\"}]", "id: -1 is not within 0..2147483647"},
        {"[{\"id\": 1, \"name\": \"a\"}, {\"id\": 1, \"name\": \"b\"}]",
         "another category with the id 1"},
        {"[{\"id\": 1, \"name\": \"a\"}, {\"id\": 2, \"name\": \"a\"}]",
         "another category with the name a"},
    };
    struct dt_coco coco = {0};

    load_categories(&coco);
    assert_int_equal(coco.n_categories, 2);
    assert_string_equal(dt_names_get(&coco.categories, 0), "person");
    static const int64_t ids[] = {1, 90, 0, 2, 91};
    for (int i = 0; i < 5; i++)
        assert_int_equal(dt_coco_label(&coco, ids[i]), i < 2 ? i : -1);
    dt_coco_reset(&coco);
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        write_text("categories.json", rows[i].text);
        assert_error(dt_wds_categories_load(&coco, at("categories.json")), DT_ERR_DATA,
                     rows[i].error);
        dt_coco_reset(&coco);
    }
}

TEST(move_and_write)
{
    static const char written[] =
        "{\"id\":7,\"file_name\":\"a.jpg\",\"width\":40,\"height\":30,\"annotations\":["
        "{\"id\":3,\"category_id\":90,\"bbox\":[1.5,2,10,0.1],\"area\":0.125,\"iscrowd\":1},"
        "{\"id\":-9007199254740991,\"category_id\":1,\"bbox\":[-1,0,2,2],\"area\":4,\"iscrowd\":0}]"
        "}";
    struct dt_wds_boxes boxes = {0};
    struct dt_coco coco = {0};
    struct dt_jsonw json;

    load_categories(&coco);
    assert_int_equal(dt_wds_boxes_parse(&boxes, good, strlen(good), "m"), DT_OK);
    boxes.truths[1].label = 5;
    assert_error(dt_wds_boxes_move(&coco, &boxes, "x"), DT_ERR_DATA,
                 "x: box -9007199254740991 of image 7 has the "
                 "category 5, which the categories.json");
    dt_wds_boxes_reset(&boxes);
    dt_coco_reset(&coco);
    load_categories(&coco);
    assert_int_equal(dt_wds_boxes_parse(&boxes, good, strlen(good), "m"), DT_OK);
    assert_int_equal(dt_wds_boxes_move(&coco, &boxes, "x"), DT_OK);
    assert_true(coco.n_images == 1 && coco.max_boxes == 2 && coco.first_truth[1] == 2);
    assert_true(coco.truths[0].label == 1 && coco.truths[1].label == 0);
    assert_int_equal(dt_names_add(&coco.files, "a.jpg", 5), DT_OK);
    assert_int_equal(dt_wds_boxes_write(&json, &coco, 0), DT_OK);
    assert_string_equal(json.text, written);
    dt_jsonw_reset(&json);
    assert_int_equal(dt_wds_categories_write(&json, &coco), DT_OK);
    write_text("categories.json", json.text);
    dt_jsonw_reset(&json);
    dt_coco_reset(&coco);
    assert_int_equal(dt_wds_categories_load(&coco, at("categories.json")), DT_OK);
    assert_true(coco.category_ids[0] == 1 && coco.category_ids[1] == 90);
    dt_coco_reset(&coco);
}

/* --- Shards --- */

/* Image i has the id 10 + i, i boxes and the bytes "image <i>". */
static void make_boxes(const char *name, int first, int n)
{
    struct tar tar = {0};
    char member[64], text[4096];

    for (int i = first; i < first + n; i++) {
        snprintf(member, sizeof member, "%06d.jpg", i);
        snprintf(text, sizeof text, "image %d", i);
        tar_text(&tar, member, text);
        int at =
            snprintf(text, sizeof text, "{\"id\":%d,\"width\":40,\"height\":%d,\"annotations\":[",
                     10 + i, 30 + i);
        for (int k = 0; k < i; k++)
            at += snprintf(text + at, sizeof text - (size_t)at,
                           "%s{\"id\":%d,\"category_id\":%d,\"bbox\":[%d,0,5,5],\"area\":25}",
                           k ? "," : "", 100 * i + k, k % 2 ? 90 : 1, k);
        snprintf(text + at, sizeof text - (size_t)at, "]}");
        snprintf(member, sizeof member, "%06d.json", i);
        tar_text(&tar, member, text);
    }
    tar_end(&tar);
    tar_save(&tar, name);
}

static dt_status open_path(struct dt_dataset **dataset, const char *path, const char *cache,
                           bool has_boxes)
{
    static const struct dt_config_data data = {.source = DT_SOURCE_SHARDS};
    const struct dt_dataset_options options = {.data = &data,
                                               .path = path,
                                               .cache_dir = cache,
                                               .targets =
                                                   has_boxes ? DT_COLUMN_BOXES : DT_COLUMN_LABELS};
    return dt_dataset_open(dataset, &options);
}

/* Checks images first .. n-1 of the shards above, and returns the fingerprint. */
static uint64_t check_shards(const char *path, const char *cache, int n)
{
    struct dt_dataset *dataset = NULL;
    struct dt_truth truths[16];
    struct dt_image_info image;
    struct dt_sample sample = {0};

    assert_ok(open_path(&dataset, path, cache, true));
    assert_int_equal(dt_dataset_size(dataset), n);
    assert_int_equal(dt_dataset_max_boxes(dataset), n - 1);
    assert_int_equal(dt_dataset_n_classes(dataset), 2);
    assert_string_equal(dt_dataset_class(dataset, 1), "toothbrush");
    assert_true(dt_dataset_category(dataset, 1) == 90);
    for (int i = 0; i < n; i++) {
        dt_dataset_image(dataset, (uint32_t)i, &image);
        assert_true(image.id == 10 + i && image.width == 40 && image.height == 30 + i);
        assert_int_equal(dt_dataset_truths(dataset, (uint32_t)i, truths), i);
        for (int k = 0; k < i; k++)
            assert_true(truths[k].id == 100 * i + k && truths[k].x == k && truths[k].area == 25 &&
                        truths[k].label == k % 2);
        assert_int_equal(dt_dataset_read(dataset, (uint32_t)i, &sample), DT_OK);
        assert_true(sample.bytes == 7 && sample.data[6] == '0' + i);
    }
    const uint64_t fingerprint = dt_dataset_fingerprint(dataset);
    free(sample.data);
    dt_dataset_close(dataset);
    return fingerprint;
}

/* The second time the boxes come from the cache: the shards themselves are ruined. */
TEST(shards)
{
    size_t bytes;
    char path[600];

    make_folder("s");
    make_boxes("s/a-0.tar", 0, 3);
    make_boxes("s/a-1.tar", 3, 4);
    write_text("s/categories.json", categories);
    const uint64_t fingerprint = check_shards(at("s"), NULL, 7);
    snprintf(path, sizeof path, "%s", at("s/a-{0..1}.tar"));
    set_time("s/a-1.tar", 1000);
    assert_true(check_shards(path, at("cache"), 7) == fingerprint);

    char *tar = read_bytes("s/a-1.tar", &bytes), *json = strstr(tar + 512 * 3, "\"area\":25");
    for (size_t i = 0; !json && i < bytes; i++)
        json = memcmp(tar + i, "\"area\":25", 9) == 0 ? tar + i : NULL;
    assert_non_null(json);
    json[7] = 'x';
    write_bytes("s/a-1.tar", tar, bytes);
    set_time("s/a-1.tar", 1000);
    assert_true(check_shards(path, at("cache"), 7) == fingerprint);
    set_time("s/a-1.tar", 1001);
    struct dt_dataset *dataset;
    assert_error(open_path(&dataset, path, at("cache"), true), DT_ERR_DATA,
                 "member 000003.json of shard ");
    free(tar);
}

TEST(damaged_cache)
{
    char cache[400];
    size_t bytes;

    make_folder("d");
    make_boxes("d/b.tar", 0, 4);
    write_text("d/categories.json", categories);
    const uint64_t fingerprint = check_shards(at("d"), at("cache2"), 4);
    find_only_file(cache, sizeof cache, "cache2/index");
    char *whole = read_bytes(cache, &bytes);
    assert_int_equal(bytes, 32 + (4 + 2 + 2 + 6) * 64); /* header, values, arrays */
    for (size_t i = 0; i < 2 * bytes; i += 23) {
        char *bad = malloc(bytes);
        assert_non_null(bad);
        memcpy(bad, whole, bytes);
        bad[i % bytes] ^= 0x40;
        write_bytes(cache, i < bytes ? bad : whole, i < bytes ? bytes : i - bytes);
        free(bad);
        assert_true(check_shards(at("d"), at("cache2"), 4) == fingerprint);
    }
    free(whole);
}

/* --- Shards for another network, and shards that do not fit --- */

static void expect_refused(dt_status wanted, const char *text, const char *path, bool has_boxes)
{
    struct dt_dataset *dataset = NULL;
    assert_error(open_path(&dataset, path, NULL, has_boxes), wanted, text);
}

TEST(other_network)
{
    struct tar tar = {0};
    char path[1200];

    make_folder("o");
    make_boxes("o/boxes.tar", 1, 2);
    make_shard("o/labels.tar", 0, 2);
    expect_refused(DT_ERR_CONFIG,
                   "a detector needs boxes, and shards with boxes have a "
                   "categories.json next to them",
                   at("o/labels.tar"), true);
    expect_refused(DT_ERR_DATA, "sample 000001 of shard", at("o/boxes.tar"), false);
    assert_non_null(strstr(dt_error_text(), "shards for a detector do not train a classifier"));
    write_text("o/categories.json", categories);
    expect_refused(DT_ERR_DATA, "shards for a classifier do not train a detector",
                   at("o/labels.tar"), true);
    make_folder("o/p");
    make_boxes("o/p/boxes.tar", 1, 2);
    write_text("o/p/categories.json", "[{\"id\": 1, \"name\": \"person\"}]");
    expect_refused(DT_ERR_DATA, "has the category 90, which", at("o/p"), true);
    snprintf(path, sizeof path, "%s::%s", at("o/boxes.tar"), at("o/p/boxes.tar"));
    expect_refused(DT_ERR_DATA,
                   "p/categories.json differs from the categories.json of the shards before", path,
                   true);
    tar_text(&tar, "a.json", good);
    tar_text(&tar, "b.jpg", "x");
    tar_end(&tar);
    tar_save(&tar, "o/half.tar");
    expect_refused(DT_ERR_DATA, "sample a of shard", at("o/half.tar"), true);
    assert_non_null(strstr(dt_error_text(), " member, only .json; its members must be adjacent"));
    tar_text(&tar, "a.json", good);
    tar_text(&tar, "a.json", good);
    tar_end(&tar);
    tar_save(&tar, "o/twice.tar");
    expect_refused(DT_ERR_DATA, "is a second label of its sample", at("o/twice.tar"), true);
}

int main(void)
{
    dt_log_init(DT_LOG_ERROR, 0, 1);
    return run_all_tests(make_test_dir, remove_test_dir);
}
