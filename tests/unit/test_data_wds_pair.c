/* WebDataset's rules: keys, and what each member is to its sample. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "data/wds_pair.h"

static void test_keys(void **state)
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
    (void)state;
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        if (dt_wds_key(rows[i].name) != rows[i].bytes)
            fail_msg("%s: %zu", rows[i].name, dt_wds_key(rows[i].name));
}

static void test_samples(void **state)
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
        {"x/a.json", false, DT_WDS_OTHER, true, false},
        {"y/a.json", true, DT_WDS_OTHER, false, false},
    };
    struct dt_wds_pair pair = {0};
    (void)state;
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        if (dt_wds_begins(&pair, rows[i].name) != rows[i].begins ||
            dt_wds_add(&pair, rows[i].name) != rows[i].kind)
            fail_msg("row %zu, %s", i, rows[i].name);
        assert_true(pair.has_image == rows[i].has_image && pair.has_label == rows[i].has_label);
    }
    assert_string_equal(pair.key, "y/a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
