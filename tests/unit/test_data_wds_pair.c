/* WebDataset's rules: keys, and what each member is to its sample. */
#include <string.h>

#include "base/mem.h"
#include "data/wds_pair.h"
#include "image/png.h"
#include "test.h"

TEST(keys)
{
    static const struct {
        const char *name;
        size_t bytes;
    } rows[] = {
        {"0001.jpg", 4},      {"a.b/0001.seg.png", 8},
        {"a/b", 0},           {".hidden", 0},
        {"a/.jpg", 0},        {"__meta__/x.jpg", 0},
        {"__meta__.json", 8}, {"___.cls", 3},
        {"a/__x.jpg", 5},     {"", 0},
    };
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        if (dt_wds_key(rows[i].name) != rows[i].bytes)
            fail_msg("%s: %zu", rows[i].name, dt_wds_key(rows[i].name));
}

TEST(samples)
{
    static const struct {
        const char *name;
        bool begins;
        enum dt_wds_kind kind;
        bool has_image, has_label; /* afterwards */
    } rows[] = {
        {"a.jpg", true, DT_WDS_IMAGE, true, false},
        {"a.txt", false, DT_WDS_OTHER, true, false},
        {"a.jpg.cls", false, DT_WDS_OTHER, true, false},
        {"a.CLS", false, DT_WDS_LABEL, true, true},
        {"a.JPEG", false, DT_WDS_SECOND_IMAGE, true, true},
        {"a.cls", false, DT_WDS_SECOND_LABEL, true, true},
        {"ab.cls", true, DT_WDS_LABEL, false, true}, /* neither key may be a prefix of the other */
        {"a.jpg", true, DT_WDS_IMAGE, true, false},
        {"x/a.jpg", true, DT_WDS_IMAGE, true, false},
        {"x/a.json", false, DT_WDS_JSON, true, false},
        {"y/a.json", true, DT_WDS_JSON, false, false},
    };
    struct dt_wds_pair pair = {0};
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        if (dt_wds_begins(&pair, rows[i].name) != rows[i].begins ||
            dt_wds_add(&pair, rows[i].name) != rows[i].kind)
            fail_msg("row %zu, %s", i, rows[i].name);
        assert_true(pair.has_image == rows[i].has_image && pair.has_label == rows[i].has_label);
    }
    assert_string_equal(pair.key, "y/a");
}

/* Of a detector the .json member counts, and the mode outlives the sample. */
TEST(detector)
{
    static const struct {
        const char *name;
        enum dt_wds_kind kind;
        const char *lacks; /* afterwards */
    } rows[] = {
        {"a.jpg", DT_WDS_IMAGE, ".json member"},
        {"a.txt", DT_WDS_OTHER, ".json member"},
        {"a.cls", DT_WDS_OTHER, ".json member: shards for a classifier do not train a detector"},
        {"a.JSON", DT_WDS_BOXES, NULL},
        {"a.json", DT_WDS_SECOND_LABEL, NULL},
        {"b.json", DT_WDS_BOXES, ".jp"},
        {"b.jpeg", DT_WDS_IMAGE, NULL},
        {"c.seg.json", DT_WDS_OTHER, NULL},
    };
    struct dt_wds_pair pair = {.label = DT_WDS_BOXES};
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        assert_int_equal(dt_wds_add(&pair, rows[i].name), rows[i].kind);
        const char *lacks = dt_wds_lacks(&pair);
        if ((lacks == NULL) != (rows[i].lacks == NULL) ||
            (lacks && strncmp(lacks, rows[i].lacks, strlen(rows[i].lacks))))
            fail_msg("row %zu: %s", i, lacks ? lacks : "complete");
    }
    pair = (struct dt_wds_pair){0};
    dt_wds_add(&pair, "a.jpg");
    assert_string_equal(dt_wds_lacks(&pair), ".cls member");
    assert_false(dt_wds_needs_json(&pair));
    dt_wds_add(&pair, "a.json");
    assert_null(dt_wds_lacks(&pair));
    assert_true(dt_wds_needs_json(&pair));
    dt_wds_add(&pair, "a.cls");
    assert_false(dt_wds_needs_json(&pair));
}

/* Next to a JPEG a PNG is no image of the sample, in either order. */
TEST(png)
{
    static const struct {
        const char *name;
        enum dt_wds_kind kind;
    } rows[] = {
        {"a.PNG", DT_WDS_IMAGE}, {"a.png", DT_WDS_SECOND_IMAGE}, {"b.jpg", DT_WDS_IMAGE},
        {"b.png", DT_WDS_OTHER}, {"b.png", DT_WDS_OTHER},        {"b.jpeg", DT_WDS_SECOND_IMAGE},
        {"c.png", DT_WDS_IMAGE}, {"c.jpg", DT_WDS_IMAGE},        {"c.jpeg", DT_WDS_SECOND_IMAGE},
        {"c.png", DT_WDS_OTHER}, {"d.png", DT_WDS_IMAGE},        {"d.seg.png", DT_WDS_OTHER},
    };
    struct dt_wds_pair pair = {0};
    if (!dt_png_is_known())
        skip();
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        if (dt_wds_add(&pair, rows[i].name) != rows[i].kind)
            fail_msg("row %zu, %s", i, rows[i].name);
}

TEST_MAIN(NULL, NULL)
