/* Data that differ between machines, on 1 to 4 ranks: every rank has a folder of its own. What
 * differs on the last rank is found on all, with the name of the file. */
#include "base/mem.h"
#include "dist_rig.h"
#include "engine/preflight.h"
#include "test_dir.h"

enum { FILES = 40, LARGE = 300000 };

static const struct dt_config_data data = {.source = DT_SOURCE_FOLDER};

/* File i of `class`; one of them is larger than what is read of a file. */
static void save(const char *class, int i, int changed_byte)
{
    char path[DT_PATH_MAX], *bytes = NULL;
    size_t size = i == 7 ? LARGE : 100 + (size_t)i;
    assert_ok(DT_NEW(bytes, size));
    if (changed_byte >= 0)
        bytes[changed_byte] = 1;
    assert_ok(dt_file_make_folder(at(class)));
    assert_ok(dt_file_path(path, "%s/%s/%02d.jpg", test_dir, class, i));
    assert_ok(dt_file_save(path, bytes, size));
    free(bytes);
}

static int make_files(void **state)
{
    const int result = make_test_dir(state);
    for (int i = 0; i < FILES; i++)
        save(i % 2 ? "a" : "b", i, -1);
    return result;
}

static void check(enum dt_digest kind, bool reads, dt_status expected, const char *part)
{
    struct dt_dataset *set = NULL;
    const struct dt_dataset_options options = {.data = &data, .path = test_dir};
    assert_ok(dt_dataset_open(&set, &options));
    dt_status status = dt_same_data_compare(comm, set, "data.train", kind, reads);
    if (n == 1)
        expected = DT_OK;
    assert_all(status == expected);
    if (expected != DT_OK)
        assert_all(dt_error_origin() == 0 && strstr(dt_error_text(), part) &&
                   strstr(dt_error_text(), dt_comm_host(comm, n - 1)));
    dt_dataset_close(set);
    dt_error_clear();
}

TEST(equal)
{
    for (enum dt_digest kind = DT_DIGEST_QUICK; kind <= DT_DIGEST_FULL; kind++)
        check(kind, true, DT_OK, "");
}

TEST(other_bytes)
{
    const bool is_last = rank == n - 1;
    save("a", 13, is_last ? 50 : -1);
    check(DT_DIGEST_QUICK, true, DT_ERR_DISAGREE, "a/13.jpg (113 bytes)");
    check(DT_DIGEST_QUICK, rank == 0, DT_OK, "");
    save("a", 13, -1);
    save("a", 7, is_last ? LARGE - 1 : -1);
    check(DT_DIGEST_FULL, true, DT_ERR_DISAGREE, "a/07.jpg (300000 bytes)");
    save("a", 7, -1);
    check(DT_DIGEST_FULL, true, DT_OK, "");
}

TEST(other_names)
{
    if (rank == n - 1)
        save("a", 14, -1);
    check(DT_DIGEST_FULL, true, DT_ERR_DISAGREE, "a/14.jpg (114 bytes) on ");
}

RANKS_TEST_MAIN(make_files, remove_test_dir)
