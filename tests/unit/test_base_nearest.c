/* "Did you mean": what counts as near. */
#include <string.h>

#include "base/mem.h"
#include "base/nearest.h"
#include "test.h"

static const char *const names[] = {"lr", "keep", "train", "momentum", "resnet18", "resnet50"};

TEST(near)
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
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        const char *nearest = dt_nearest(rows[i].name, names, DT_COUNT(names));
        if (!nearest || strcmp(nearest, rows[i].nearest) != 0)
            fail_msg("%s -> %s", rows[i].name, nearest ? nearest : "none");
    }
}

/* Few letters of which many differ, and names too long to compare. */
TEST(far)
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
    for (size_t i = 0; i < DT_COUNT(far); i++)
        if (dt_nearest(far[i], names, DT_COUNT(names)))
            fail_msg("%s -> %s", far[i], dt_nearest(far[i], names, DT_COUNT(names)));
    assert_null(dt_nearest("train", names, 0));
}

TEST_MAIN(NULL, NULL)
