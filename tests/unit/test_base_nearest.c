/* "Did you mean": what counts as near. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/nearest.h"

static const char *const names[] = {"lr", "keep", "train", "momentum", "resnet18", "resnet50"};

static void test_near(void **state)
{
    static const struct {
        const char *name, *nearest;
    } rows[] = {
        {"train", "train"},          {"TRAIN", "train"},      {"trian", "train"},
        {"tran", "train"},           {"trains", "train"},     {"tarian", "train"},
        {"momentm", "momentum"},     {"mmentun", "momentum"}, {"LR", "lr"},
        {"resnet5O", "resnet50"},    {"kep", "keep"},         {"mom", "momentum"},
        {"resnet50_v2", "resnet50"}, {"resnet", "resnet18"},
    };
    (void)state;
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        const char *nearest = dt_nearest(rows[i].name, names, DT_COUNT(names));
        if (!nearest || strcmp(nearest, rows[i].nearest) != 0)
            fail_msg("%s -> %s", rows[i].name, nearest ? nearest : "none");
    }
}

/* Few letters of which many differ, and names too long to compare. */
static void test_far(void **state)
{
    static const char *const far[] = {"",
                                      "l",
                                      "bs",
                                      "le",
                                      "wd",
                                      "seed",
                                      "brawn",
                                      "tr",
                                      "kp",
                                      "mobilenet_v2",
                                      "a_name_much_longer_than_any_other"};
    (void)state;
    for (size_t i = 0; i < DT_COUNT(far); i++)
        if (dt_nearest(far[i], names, DT_COUNT(names)))
            fail_msg("%s -> %s", far[i], dt_nearest(far[i], names, DT_COUNT(names)));
    assert_null(dt_nearest("train", names, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near),
        cmocka_unit_test(test_far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
