/* dtrain verify: the lines on standard output, and the status. */
#include "capture.h"
#include "checkpoint_rig.h"
#include "cli/commands.h"

static void run_verify(char *path, dt_status expected, char *said, size_t bytes)
{
    struct dt_arguments args = {.operands = &path, .n_operands = 1, .decode = -1};
    struct capture capture = capture_begin(stdout);
    dt_status status = dt_cmd_verify(&args);
    capture_end(&capture, said, bytes);
    if (status != expected)
        fail_msg("%s: %s %s", path, dt_status_name(status), dt_error_text());
}

RIG_TEST(checkpoints)
{
    char path[2][DT_PATH_MAX], said[4096], line[2048];
    char nowhere[] = "/nonexistent";
    run_verify(r->parent, DT_ERR_NO_INPUT, said, sizeof said);
    run_verify(nowhere, DT_ERR_NO_INPUT, said, sizeof said);
    ok(rig_save(r, path[0], 10));
    ok(rig_save(r, path[1], 20));
    run_verify(r->parent, DT_OK, said, sizeof said);
    snprintf(line, sizeof line, "ok  %s  step 20, 0.0 MB, 18 tensors, ", path[1]);
    assert_ptr_equal(strstr(said, line), said);
    snprintf(line, sizeof line, "\nok  %s  step 10, ", path[0]);
    assert_non_null(strstr(said, line));
    assert_int_equal(truncate(rig_path(path[0], "config.json"), 3), 0);
    run_verify(path[1], DT_OK, said, sizeof said);
    run_verify(path[0], DT_ERR_DATA, said, sizeof said);
    snprintf(line, sizeof line, "!!  %s  config.json has 3 bytes, the manifest says ", path[0]);
    assert_ptr_equal(strstr(said, line), said);
    run_verify(r->dir, DT_ERR_DATA, said, sizeof said);
    assert_non_null(strstr(said, line));
    assert_non_null(strstr(dt_error_text(), "1 of 2 checkpoints"));
}

TEST_MAIN(NULL, NULL)
