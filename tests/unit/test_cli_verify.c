/* dtrain verify: the lines on standard output, and the status. */
#include "capture.h"
#include "checkpoint_rig.h"
#include "cli/commands.h"
#include "pack/pack.h"

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
    ok(dt_file_path(path[0], "%s/nowhere", r->parent));
    run_verify(r->parent, DT_ERR_NO_INPUT, said, sizeof said);
    run_verify(path[0], DT_ERR_NO_INPUT, said, sizeof said);
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

/* As if the folder had been removed between the listing and the reading. */
RIG_TEST(removed_meanwhile)
{
    char path[DT_PATH_MAX], said[4096], line[2048];
    ok(rig_save(r, path, 10));
    assert_int_equal(symlink("nowhere", rig_path(r->dir, "step-000000005")), 0);
    run_verify(r->parent, DT_OK, said, sizeof said);
    snprintf(line, sizeof line, "\n--  %s  was removed", rig_path(r->dir, "step-000000005"));
    assert_non_null(strstr(said, line));
    assert_int_equal(truncate(rig_path(path, "config.json"), 3), 0);
    run_verify(r->parent, DT_ERR_DATA, said, sizeof said);
    assert_non_null(strstr(dt_error_text(), "1 of 2 checkpoints"));
}

RIG_TEST(images)
{
    char path[DT_PATH_MAX], said[4096], line[4096], table[DT_PATH_MAX];
    ok(dt_file_path(path, "%s/photos", r->parent));
    ok(dt_file_path(table, "%s/photos.csv", r->parent));
    ok(dt_shapes_write(path, 2, 32, 1));
    run_verify(path, DT_OK, said, sizeof said);
    snprintf(line, sizeof line, "ok  %s  20 of 20 images decoded, ", path);
    assert_ptr_equal(strstr(said, line), said);
    assert_int_equal(truncate(rig_path(path, "ring/00001.jpg"), 300), 0);
    ok(dt_file_save(rig_path(path, "star/00000.jpg"), "\0\0\0\x20\146typavif\0\0\0\0", 16));
    run_verify(path, DT_ERR_DATA, said, sizeof said);
    snprintf(
        line, sizeof line,
        "!!  %s/ring/00001.jpg: Premature end of JPEG file\n!!  %s/star/00000.jpg: an AVIF file, "
        "not a JPEG file; convert it: mogrify -format jpg FILE\n",
        path, path);
    assert_string_equal(said, line);
    assert_non_null(strstr(dt_error_text(), "2 of the 20 images of "));
    snprintf(line, sizeof line, "path,label\nphotos/ring/00000.jpg,0\nphotos/ring/00001.jpg,1\n");
    ok(dt_file_save(table, line, strlen(line)));
    run_verify(table, DT_ERR_DATA, said, sizeof said);
    assert_non_null(strstr(said, "ring/00001.jpg: Premature end"));
}

RIG_TEST(folder_of_runs)
{
    char said[4096];
    ok(dt_file_make_folder(rig_path(r->parent, "run")));
    ok(dt_file_save(rig_path(r->parent, "run/metrics.jsonl"), "{}\n", 3));
    run_verify(r->parent, DT_ERR_USAGE, said, sizeof said);
    assert_non_null(strstr(dt_error_text(), " is a folder of runs; "));
    assert_string_equal(said, "");
}

TEST_MAIN(NULL, NULL)
