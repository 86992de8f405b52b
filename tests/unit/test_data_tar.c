/* Tar shards: headers of all kinds, WebDataset's pairing rules, and archives that must be refused.
 */
#include "data/tar_index.h"
#include "data_files.h"
#include "dtrain/data.h"

static const struct dt_config_data shards_data = {.source = DT_SOURCE_SHARDS};

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
        if (dt_tar_walk(path, note_hello, &found, &n_skipped) != DT_OK)
            fail_msg("%s", dt_error_text());
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
    if (dt_tar_walk(at("long.tar"), note_hello, &found, &n_skipped) != DT_OK)
        fail_msg("%s", dt_error_text());
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

    if (dt_tar_index_build(&index, at("pairs.tar"), false) != DT_OK)
        fail_msg("%s", dt_error_text());
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

/* Everything but folders and regular files is skipped and counted. */
TEST(skipped)
{
    struct tar tar = {0};
    int n_skipped = 0;

    tar_add(&tar, "folder/", '5', "", 0);
    for (const char *type = "123466"; *type; type++)
        tar_add(&tar, "special.jpg", *type, "", 0);
    tar_add(&tar, "PaxHeaders/x", 'x', "24 GNU.sparse.size=1024\n24 GNU.sparse.map=512,1\n", 48);
    tar_add(&tar, "sparse.jpg", '0', "x", 1);
    tar_text(&tar, "0.jpg", "x");
    tar_end(&tar);
    tar_save(&tar, "special.tar");
    if (dt_tar_walk(at("special.tar"), ignore, NULL, &n_skipped) != DT_OK)
        fail_msg("%s", dt_error_text());
    assert_int_equal(n_skipped, 7);
}

/* --- Archives that must be refused --- */

/* Each makes the shard bad.tar; the good sample 0 is in it already. */
static void make_no_label(struct tar *tar)
{
    tar_text(tar, "1.jpg", "x");
    tar_end(tar);
}

static void make_no_image(struct tar *tar)
{
    tar_text(tar, "1.cls", "1");
    tar_text(tar, "1.png", "x");
    tar_end(tar);
}

static void make_interleaved(struct tar *tar)
{
    tar_text(tar, "1.jpg", "x");
    tar_text(tar, "2.jpg", "x");
    tar_text(tar, "1.cls", "1");
    tar_text(tar, "2.cls", "1");
    tar_end(tar);
}

static void make_two_labels(struct tar *tar)
{
    tar_text(tar, "1.cls", "1");
    tar_text(tar, "1.cls", "1");
    tar_end(tar);
}

static void make_two_images(struct tar *tar)
{
    tar_text(tar, "1.jpg", "x");
    tar_text(tar, "1.jpeg", "x");
    tar_end(tar);
}

static void add_label(struct tar *tar, const char *label)
{
    tar_text(tar, "1.cls", label);
    tar_text(tar, "1.jpg", "x");
    tar_end(tar);
}

static void make_word_label(struct tar *tar)
{
    add_label(tar, "cat");
}

static void make_fraction_label(struct tar *tar)
{
    add_label(tar, "1.5");
}

static void make_empty_label(struct tar *tar)
{
    add_label(tar, "");
}

static void make_huge_label(struct tar *tar)
{
    add_label(tar, "99999999999999999999");
}

static void make_long_label(struct tar *tar)
{
    add_label(tar, "1                                           ");
}

static void make_high_label(struct tar *tar)
{
    add_label(tar, "10");
}

static void make_negative_label(struct tar *tar)
{
    add_label(tar, "-1");
}

static void make_cut_data(struct tar *tar)
{
    static const char big[3000];
    tar_add(tar, "2.jpg", '0', big, sizeof big);
    tar->bytes -= 2000;
}

static void make_cut_header(struct tar *tar)
{
    add_label(tar, "1");
    tar->bytes = 4 * 512 + 100; /* 0.cls and 0.jpg take four blocks */
}

static void make_cut_between(struct tar *tar)
{
    add_label(tar, "1");
    tar->bytes -= 1024;
}

static void make_joined(struct tar *tar)
{
    add_label(tar, "1");
    add_label(tar, "2");
}

static void make_bad_sum(struct tar *tar)
{
    add_label(tar, "1");
    tar->data[4 * 512 + 130] ^= 1;
}

static void make_gzip(struct tar *tar)
{
    tar_end(tar);
    memcpy(tar->data, "\x1f\x8b\x08\x00", 4);
}

static void make_zstd(struct tar *tar)
{
    tar_end(tar);
    memcpy(tar->data, "\x28\xb5\x2f\xfd", 4);
}

static void make_noise(struct tar *tar)
{
    tar_end(tar);
    for (size_t i = 0; i < tar->bytes; i++)
        tar->data[i] = (char)(i * 31 + 7);
}

static void make_empty_file(struct tar *tar)
{
    tar->bytes = 0;
}

static void make_absolute(struct tar *tar)
{
    tar_text(tar, "/etc/1.jpg", "x");
    tar_end(tar);
}

static void make_parent(struct tar *tar)
{
    tar_text(tar, "a/../../1.jpg", "x");
    tar_end(tar);
}

static void make_long_name(struct tar *tar)
{
    char name[1100];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    tar_pax(tar, "path", name);
    tar_text(tar, "1.jpg", "x");
    tar_end(tar);
}

static void make_link(struct tar *tar)
{
    tar_text(tar, "1.cls", "1");
    tar_add(tar, "1.jpg", '1', "", 0); /* a hard link carries no data */
    tar_end(tar);
}

static void make_control(struct tar *tar)
{
    tar_text(tar, "1\033[2J.jpg", "x");
    tar_end(tar);
}

static void make_long_headers(struct tar *tar)
{
    enum { RECORDS = 7000, BYTES = 10 };
    static char records[RECORDS * BYTES + 1];
    for (int i = 0; i < RECORDS; i++)
        memcpy(records + i * BYTES, "10 a=6789\n", BYTES);
    tar_add(tar, "PaxHeaders/x", 'x', records, RECORDS * BYTES);
    tar_text(tar, "1.jpg", "x");
    tar_end(tar);
}

static void make_bad_pax(struct tar *tar)
{
    tar_add(tar, "PaxHeaders/x", 'x', "99 path=b.jpg\n", 14);
    tar_text(tar, "1.jpg", "x");
    tar_end(tar);
}

static void make_no_samples(struct tar *tar)
{
    tar->bytes = 0;
    tar_text(tar, "README", "nothing here");
    tar_end(tar);
}

static const struct {
    void (*make)(struct tar *tar);
    const char *text;
} bad_shards[] = {
    {make_no_label, "sample 1 of shard * has an image but no .cls"},
    {make_no_image, "sample 1 of shard * has a .cls member but no .jpg"},
    {make_interleaved, "adjacent"},
    {make_two_labels, "member 1.cls of shard * at byte 3584 is a second label"},
    {make_two_images, "member 1.jpeg of shard * is a second image"},
    {make_word_label, "1.cls of shard * is not an integer: 'cat'"},
    {make_fraction_label, "not an integer: '1.5'"},
    {make_empty_label, "not an integer"},
    {make_huge_label, "not an integer"},
    {make_long_label, "not an integer"},
    {make_high_label, "label 10 of 1.jpg in shard * is out of range: * labels must be 0 to 9"},
    {make_negative_label, "label -1 of 1.jpg in shard * is out of range"},
    {make_cut_data, "is truncated: member 2.jpg needs 3000 bytes at byte 2560"},
    {make_cut_header, "damaged or truncated near byte 2048"},
    {make_cut_between, "it ends at byte 4096 without an end-of-archive marker"},
    {make_joined, "data after its end-of-archive marker, at byte 5120"},
    {make_bad_sum, "damaged"},
    {make_gzip, "gunzip it first"},
    {make_zstd, "unzstd it first"},
    {make_noise, "is not a tar archive"},
    {make_empty_file, "is not a tar archive: it has only 0 bytes"},
    {make_absolute, "leads out of the archive"},
    {make_parent, "leads out of the archive"},
    {make_long_name, "has no name of 1 to 1024 bytes"},
    {make_control, "at byte 2560 has a control character in its name"},
    {make_long_headers, "the headers of member 1.jpg of shard * take"},
    {make_bad_pax, "malformed pax"},
    {make_link, "no .jpg"},
    {make_no_samples, "holds no samples"},
};

/* True if the parts of `pattern` between the stars occur in `text` in this order. */
static int occurs(const char *text, const char *pattern)
{
    char part[128];
    for (;;) {
        const size_t bytes = strcspn(pattern, "*");
        snprintf(part, sizeof part, "%.*s", (int)bytes, pattern);
        text = strstr(text, part);
        if (!text || !pattern[bytes])
            return text != NULL;
        text += bytes;
        pattern += bytes + 1;
    }
}

TEST(bad_shards)
{
    for (size_t i = 0; i < sizeof bad_shards / sizeof bad_shards[0]; i++) {
        struct tar tar = {0};
        struct dt_dataset *dataset;
        tar_text(&tar, "0.cls", "0");
        tar_text(&tar, "0.jpg", "x");
        bad_shards[i].make(&tar);
        tar_save(&tar, "bad.tar");
        const struct dt_dataset_options options = {
            .data = &shards_data, .path = at("bad.tar"), .num_classes = 10};
        const dt_status status = dt_dataset_open(&dataset, &options);
        if (status != DT_ERR_DATA || !occurs(dt_error_text(), bad_shards[i].text) || dataset ||
            !strstr(dt_error_text(), "bad.tar"))
            fail_msg("case %zu (%s): status %d, %s", i, bad_shards[i].text, (int)status,
                     dt_error_text());
    }
}

TEST_MAIN(make_test_dir, remove_test_dir)
