/* Several mistakes in one configuration, and files that cannot be read. Single mistakes are in
 * tests/fuzz/config_cases.py. */

#include "base/mem.h"
#include "dtrain/config.h"
#include "test_dir.h"
#include "test_status.h"

static dt_status load_text(struct dt_config *config, const char *text)
{
    write_text("config.json", text);
    return dt_config_load(config, at("config.json"), NULL, 0);
}

TEST(all_mistakes_at_once)
{
    static const char text[] = "{\n\"train\": {\"epochs\": 0,\n\"foo\": 1},\n\"zoo\": 3,\n"
                               "\"data\": {\"workers\": -1},\n\"model\": {\"name\": \"vgg\"}}";
    static const char *const sets[] = {"train.seed=x", "train.epochz=1", "nonsense"};
    static const char *const lines[] = {":2:21: train.epochs: ",
                                        ":3:8: train.foo: ",
                                        ":4:8: zoo: ",
                                        ":5:21: data.workers: ",
                                        ":6:19: model.name: there is no model ",
                                        "--set: train.seed: ",
                                        "--set: train.epochz: ",
                                        "--set: nonsense: expected key.path=value"};
    struct dt_config config;
    int n_lines = 1;
    load_text(&config, text);
    assert_int_equal(dt_config_load(&config, at("config.json"), sets, DT_COUNT(sets)),
                     DT_ERR_CONFIG);
    for (size_t i = 0; i < DT_COUNT(lines); i++)
        if (!strstr(dt_error_text(), lines[i]))
            fail_msg("\"%s\" is not in\n%s", lines[i], dt_error_text());
    for (const char *p = dt_error_text(); *p; p++)
        n_lines += *p == '\n';
    assert_int_equal(n_lines, (int)DT_COUNT(lines));
}

TEST(too_many_mistakes)
{
    struct dt_config config;
    char *text = calloc(1, 200000);
    size_t used = 1;
    assert_non_null(text);
    text[0] = '{';
    for (int i = 0; i < 1000; i++)
        used += (size_t)snprintf(text + used, 200000 - used, "%s\"made_up_%d\\n\": 1",
                                 i ? ",\n" : "", i);
    text[used] = '}';
    assert_int_equal(load_text(&config, text), DT_ERR_CONFIG);
    free(text);
    int n_left_out = 0, n_lines = 0;
    for (const char *p = dt_error_text(); *p; p++)
        n_lines += *p == '\n';
    const char *last = strrchr(dt_error_text(), '\n');
    assert_non_null(last);
    assert_int_equal(sscanf(last, "\n(and %d more mistakes)", &n_left_out), 1);
    assert_int_equal(n_lines + n_left_out, 1000);
}

TEST(unreadable_files)
{
    struct dt_config config;
    assert_error(dt_config_load(&config, at("no/such/file.json"), NULL, 0), DT_ERR_NO_INPUT,
                 at("no/such/file.json"));
    assert_int_equal(dt_config_load(&config, "/tmp", NULL, 0), DT_ERR_NO_INPUT);
    assert_int_equal(dt_config_load(&config, "/dev/zero", NULL, 0), DT_ERR_NO_INPUT);
    if (geteuid() != 0) {
        load_text(&config, "{}");
        assert_int_equal(chmod(at("config.json"), 0), 0);
        assert_int_equal(dt_config_load(&config, at("config.json"), NULL, 0), DT_ERR_PERMISSION);
        assert_int_equal(chmod(at("config.json"), 0600), 0);
    }
}

TEST_MAIN(make_test_dir, remove_test_dir)
