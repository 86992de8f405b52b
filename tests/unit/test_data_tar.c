/* Tar shards: headers of all kinds and WebDataset's pairing rules. Archives that must be refused
 * are in tests/fuzz/tar_index_cases.py. */
#include "data/tar_index.h"
#include "data_files.h"

#define NAME_100                                                                                   \
    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" \
    "nnnnnnnn"

struct found {
    char names[8][256];
    size_t n;
};

/* Notes the name, and that the data begin where they should. */
static dt_status note_hello(void *context, const struct dt_tar_member *member)
{
    struct found *found = context;
    char data[5];
    assert_true(found->n < 8);
    snprintf(found->names[found->n++], 256, "%s", member->name);
    assert_int_equal(member->bytes, sizeof data);
    assert_int_equal(pread(member->fd, data, sizeof data, (off_t)member->offset), sizeof data);
    assert_memory_equal(data, "hello", sizeof data);
    return DT_OK;
}

/* Reference archives of the three flavours, if they are there. */
TEST(golden)
{
    static const struct {
        const char *file, *names[4];
    } cases[] = {
        {"ustar.tar", {"a.jpg", "a.cls", "y.jpg", "z.jpg"}},
        {"pax.tar", {"a.jpg", "a.cls", "xxxxxxxx", "\xc3\xa9.jpg"}},
        {"gnu.tar", {"a.jpg", "a.cls", "xxxxxxxx", "\xc3\xa9.jpg"}},
    };
    const char *shared = getenv("DTRAIN_SHARED_DIR");
    int n_skipped;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct found found = {.n = 0};
        char path[512];
        snprintf(path, sizeof path, "%s/golden/%s", shared ? shared : "", cases[i].file);
        if (access(path, R_OK))
            skip();
        assert_ok(dt_tar_walk(path, note_hello, &found, &n_skipped));
        assert_int_equal(found.n, 4);
        for (int k = 0; k < 4; k++)
            assert_memory_equal(found.names[k], cases[i].names[k], strlen(cases[i].names[k]));
    }
}

/* The same members by hand, so that the above is covered everywhere. */
TEST(long_names)
{
    struct tar tar = {0};
    struct found found = {.n = 0};
    char out[256];
    int n_skipped;

    tar_add(&tar, "global", 'g', "14 comment=abc\n", 15);
    tar_pax(&tar, "path", "d/" NAME_100 NAME_100 ".jpg");
    tar_text(&tar, "short", "hello");
    tar_pax(&tar, "path", "\xc3\xa9.cls");
    tar_text(&tar, "short", "hello");
    tar_add(&tar, "././@LongLink", 'L', NAME_100 "gnu.jpg", sizeof NAME_100 "gnu.jpg");
    tar_text(&tar, "short", "hello");
    tar_text(&tar, "\xff\xfe.jpg", "hello"); /* no UTF-8 */
    tar_end(&tar);
    tar_save(&tar, "long.tar");
    assert_ok(dt_tar_walk(at("long.tar"), note_hello, &found, &n_skipped));
    assert_int_equal(found.n, 4);
    assert_int_equal(n_skipped, 0);
    assert_string_equal(found.names[0], "d/" NAME_100 NAME_100 ".jpg");
    assert_string_equal(found.names[1], "\xc3\xa9.cls");
    assert_string_equal(found.names[2], NAME_100 "gnu.jpg");
    /* global header and record, pax header and record, own header */
    dt_tar_member_name(at("long.tar"), 5 * 512, out, sizeof out);
    assert_string_equal(out, found.names[0]);
    dt_tar_member_name(at("long.tar"), 17, out, sizeof out);
    assert_string_equal(out, "byte 17");
    assert_string_equal(dt_error_text(), "");
}

/* --- Pairing --- */

TEST(pairing)
{
    struct tar tar = {0};
    struct dt_tar_index index = {0};

    tar_text(&tar, "__meta__.json", "{}");
    tar_text(&tar, "__info__/x.jpg", "no sample");
    tar_text(&tar, "0.cls", "3"); /* label first */
    tar_text(&tar, "0.jpg", "zero");
    tar_text(&tar, "1.JPEG", "first"); /* image first, upper case, others between */
    tar_text(&tar, "1.json", "{}");
    tar_add(&tar, "1.link", '2', "", 0);
    tar_text(&tar, "README", "no dot");
    tar_text(&tar, ".hidden.jpg", "x");
    tar_text(&tar, "1.Cls", " -7\n");
    tar_add(&tar, "d", '5', "", 0);
    tar_text(&tar, "d/1.cls", "5"); /* the folder is part of the key */
    tar_text(&tar, "d/1.jpeg", "");
    tar_text(&tar, "d.e/f.txt", "only text");
    tar_text(&tar, "d.e/x.seg.jpg", "suffix seg.jpg is not an image");
    tar_end(&tar);
    tar_save(&tar, "pairs.tar");

    assert_ok(dt_tar_index_build(&index, at("pairs.tar"), "label"));
    static const struct {
        int32_t label;
        uint32_t bytes;
        const char *name;
    } expected[] = {{3, 4, "0.jpg"}, {-7, 5, "1.JPEG"}, {5, 0, "d/1.jpeg"}};
    assert_int_equal(index.n, 3);
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        assert_int_equal(index.entries[i].label, expected[i].label);
        assert_int_equal(index.entries[i].bytes, expected[i].bytes);
        dt_tar_member_name(at("pairs.tar"), index.entries[i].offset, name, sizeof name);
        assert_string_equal(name, expected[i].name);
    }
    dt_tar_index_reset(&index);
}

static dt_status ignore(void *context, const struct dt_tar_member *member)
{
    (void)context, (void)member;
    return DT_OK;
}

/* Labels in .json, and what is no sample. */
TEST(kinds)
{
    static const struct {
        const char *members[8];       /* names and contents */
        const char *label_key, *text; /* text: NULL: one sample with the label 2 */
    } rows[] = {
        {{"a.jpg", "x", "a.json", "{\"label\": 2, \"x\": [1]}"}, "label", NULL},
        {{"a.json", "{\"cls\": 2}", "a.jpg", "x"}, "cls", NULL},
        {{"a.json", "no json", "a.cls", "2", "a.jpg", "x"}, "label", NULL},
        {{"a.cls", "2", "a.png", "x", "a.json", "{}"}, "label", NULL},
        {{"a.cls", "2", "a.jpg", "x", "b.json", "{}", "c.v1.jpg", "x"}, "label", NULL},
        {{"a.jpg", "x", "a.json", "{\"id\": 2, \"key\": 1}"},
         "label",
         "no \"label\" (data.label_key), only id key"},
        {{"a.jpg", "x", "a.json", "{\"label\": [0, 1]}"}, "label", "a.json of shard"},
        {{"a.jpg", "x", "a.json", "{\"label\": \"cat\"}"}, "label", "the label, is not an integer"},
        {{"a.jpg", "x", "a.json", "{\"label\": 1.5}"}, "label", "the label, is not an integer"},
        {{"a.jpg", "x", "a.json", ""}, "label", "a.json of shard"},
        {{"a.cls", "2", "a.avif", "x"}, "label", "only .cls .avif;"},
        {{"a.cls", "2", "a.in.jpg", "x"}, "label", "only .cls .in.jpg;"},
        {{"v.1.jpg", "x", "v.1.cls", "2"},
         "label",
         "holds 0 samples, and 1 without an image; a key ends at the first dot"},
        {{"v.1.jpg", "x", "w.1.jpg", "2"},
         "label",
         "first dot of a name, and these suffixes follow it: .1.jpg"},
    };
    struct dt_tar_index index = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tar tar = {0};
        for (int k = 0; k < 8 && rows[i].members[k]; k += 2)
            tar_text(&tar, rows[i].members[k], rows[i].members[k + 1]);
        tar_end(&tar);
        tar_save(&tar, "kinds.tar");
        const dt_status status = dt_tar_index_build(&index, at("kinds.tar"), rows[i].label_key);
        if (!rows[i].text && (status || index.n != 1 || index.entries[0].label != 2))
            fail_msg("row %zu: %zu samples, %s", i, index.n, dt_error_text());
        if (rows[i].text && (status != DT_ERR_DATA || !strstr(dt_error_text(), rows[i].text)))
            fail_msg("row %zu: %s", i, dt_error_text());
        dt_error_clear();
    }
    dt_tar_index_reset(&index);
}

/* The cache does not answer for another key. */
TEST(cached_label_key)
{
    struct tar tar = {0};
    struct dt_tar_index index = {0};
    tar_text(&tar, "a.jpg", "x");
    tar_text(&tar, "a.json", "{\"label\": 2, \"other\": 5}");
    tar_end(&tar);
    tar_save(&tar, "keys.tar");
    for (int i = 0; i < 4; i++) {
        assert_ok(dt_tar_index_open(&index, at("keys.tar"), i % 2 ? "other" : "label", at("")));
        assert_int_equal(index.entries[0].label, i % 2 ? 5 : 2);
        dt_tar_index_reset(&index);
    }
}

/* Everything but folders and regular files is skipped and counted. */
TEST(skipped)
{
    struct tar tar = {0};
    int n_skipped = 0;

    tar_add(&tar, "folder/", '5', "", 0);
    for (const char *type = "123466"; *type; type++)
        tar_add(&tar, "special.jpg", *type, "", 0);
    tar_text(&tar, "0.jpg", "x");
    tar_end(&tar);
    tar_save(&tar, "special.tar");
    assert_ok(dt_tar_walk(at("special.tar"), ignore, NULL, &n_skipped));
    assert_int_equal(n_skipped, 6);
    tar_add(&tar, "PaxHeaders/x", 'x', "24 GNU.sparse.size=1024\n24 GNU.sparse.map=512,1\n", 48);
    tar_add(&tar, "sparse.jpg", '0', "x", 1);
    tar_end(&tar);
    tar_save(&tar, "sparse.tar");
    assert_error(dt_tar_walk(at("sparse.tar"), ignore, NULL, &n_skipped), DT_ERR_DATA,
                 "sparse.jpg of shard");
    assert_non_null(strstr(dt_error_text(), "write the shard again without --sparse"));
}

/* 10 GiB, in base 256, of which the file has all or, as a hole, a part. */
TEST(large_member)
{
    static const char size[12] = "\x80\0\0\0\0\0\0\2\x80\0\0";
    struct tar tar = {0};
    int n_skipped = 0;

    tar_text(&tar, "0.mp4", "");
    memcpy(tar.data + 124, size, sizeof size);
    tar_sum(tar.data);
    tar_save(&tar, "large.tar");
    assert_int_equal(truncate(at("large.tar"), (10LL << 30) - 4096), 0);
    assert_error(dt_tar_walk(at("large.tar"), ignore, NULL, &n_skipped), DT_ERR_DATA, "truncated");
    assert_int_equal(truncate(at("large.tar"), (10LL << 30) + 3 * 512), 0);
    assert_int_equal(dt_tar_walk(at("large.tar"), ignore, NULL, &n_skipped), DT_ERR_DATA);
    assert_non_null(strstr(dt_error_text(), "has 10737418240 bytes; at most"));
}

TEST_MAIN(make_test_dir, remove_test_dir)
