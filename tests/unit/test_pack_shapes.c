/* The tools: generated JPEG files, and packing a folder into shards. */
#include "base/names.h"
#include "data/dataset.h"
#include "data_files.h"
#include "image/jpeg.h"
#include "pack/pack.h"

static const struct dt_config_data shards_data = {.source = DT_SOURCE_SHARDS};

enum { PER_CLASS = 3, N = 10 * PER_CLASS };

static dt_status write_shards(const char *src, const char *dst, const char *prefix, int per_shard,
                              uint64_t seed)
{
    const struct dt_shard_options options = {.src = src,
                                             .data = &(struct dt_config_data){.label_key = "label"},
                                             .dst = dst,
                                             .prefix = prefix,
                                             .per_shard = per_shard,
                                             .quality = 95,
                                             .threads = 2,
                                             .seed = seed};
    return dt_shard_write(&options);
}

static struct dt_dataset *open_good(enum dt_source source, const char *path)
{
    struct dt_dataset *dataset;
    const struct dt_dataset_options options = {
        .data = &(const struct dt_config_data){.source = source}, .path = path, .num_classes = 10};
    assert_ok(dt_dataset_open(&dataset, &options));
    return dataset;
}

static void write_shapes(const char *name, int size, uint64_t seed)
{
    assert_ok(dt_shapes_write(at(name), PER_CLASS, size, seed));
}

static void expect_failure(dt_status expected, const char *text, dt_status status)
{
    assert_error(status, expected, text);
}

/* Number of samples with other bytes. */
static int n_different(const struct dt_dataset *a, const struct dt_dataset *b)
{
    struct dt_sample x = {0}, y = {0};
    int n = 0;
    for (uint32_t id = 0; id < N; id++) {
        assert_int_equal(dt_dataset_read(a, id, &x), DT_OK);
        assert_int_equal(dt_dataset_read(b, id, &y), DT_OK);
        n += x.bytes != y.bytes || memcmp(x.data, y.data, x.bytes) != 0;
    }
    free(x.data);
    free(y.data);
    return n;
}

TEST(shapes)
{
    struct dt_sample sample = {0};

    write_shapes("shapes/deep", 32, 5); /* makes the folders above too */
    write_shapes("again", 32, 5);
    write_shapes("other", 32, 6);
    struct dt_dataset *first = open_good(DT_SOURCE_FOLDER, at("shapes/deep"));
    struct dt_dataset *again = open_good(DT_SOURCE_FOLDER, at("again"));
    struct dt_dataset *other = open_good(DT_SOURCE_FOLDER, at("other"));
    assert_string_equal(dt_dataset_class(first, 0), "checker");
    assert_non_null(dt_dataset_class(first, 9));
    assert_null(dt_dataset_class(first, 10));
    assert_int_equal(dt_dataset_size(first), N);
    assert_true(dt_dataset_fingerprint(first) == dt_dataset_fingerprint(again));
    assert_int_equal(n_different(first, again), 0);
    assert_int_equal(n_different(first, other), N);
    for (uint32_t id = 0; id < N; id++) {
        assert_int_equal(dt_dataset_label(first, id), id / PER_CLASS);
        assert_int_equal(dt_dataset_read(first, id, &sample), DT_OK);
        assert_memory_equal(sample.data, "\xff\xd8\xff", 3);
        assert_memory_equal(sample.data + sample.bytes - 2, "\xff\xd9", 2);
    }
    dt_dataset_close(first);
    dt_dataset_close(again);
    dt_dataset_close(other);
    free(sample.data);
    expect_failure(DT_ERR_USAGE, "not 0 and 32", dt_shapes_write(at("x"), 0, 32, 1));
    expect_failure(DT_ERR_USAGE, "not 1 and 7", dt_shapes_write(at("x"), 1, 7, 1));
    write_text("file", "");
    expect_failure(DT_ERR_CREATE, "file", dt_shapes_write(at("file"), 1, 32, 1));
}

TEST(encode_error)
{
    uint8_t pixels[3] = {0}, *data = NULL;
    size_t bytes;
    expect_failure(DT_ERR_INTERNAL, "cannot encode",
                   dt_jpeg_encode(&data, &bytes, pixels, 0, 1, 90, 1));
    assert_int_equal(dt_jpeg_encode(&data, &bytes, pixels, 1, 1, 90, 1), DT_OK);
    assert_true(bytes > 100);
    free(data);
}

/* --- Packing --- */

static void pack(const char *from, const char *to, const char *prefix, int per_shard, uint64_t seed)
{
    assert_ok(write_shards(at(from), at(to), prefix, per_shard, seed));
}

/* The shards hold the folder's bytes and labels, in the order of the sampler. */
TEST(pack)
{
    struct dt_sample x = {0}, y = {0};
    uint32_t order[N];
    char name[300];

    write_shapes("src", 16, 1);
    pack("src", "packed", "train", 8, 11);
    struct dt_dataset *folder = open_good(DT_SOURCE_FOLDER, at("src"));
    struct dt_dataset *shards = open_good(DT_SOURCE_SHARDS, at("packed/train-{0000..0003}.tar"));
    assert_int_equal(dt_dataset_size(shards), N);
    dt_sampler_order(order, N, 11, 0, true);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(dt_dataset_label(shards, i), dt_dataset_label(folder, order[i]));
        assert_int_equal(dt_dataset_read(shards, i, &x), DT_OK);
        assert_int_equal(dt_dataset_read(folder, order[i], &y), DT_OK);
        assert_int_equal(x.bytes, y.bytes);
        assert_memory_equal(x.data, y.data, x.bytes);
    }
    dt_dataset_name(shards, N - 1, name, sizeof name);
    assert_non_null(strstr(name, "train-0003.tar: 000029.jpg"));
    dt_dataset_close(folder);
    dt_dataset_close(shards);
    free(x.data);
    free(y.data);
}

/* Same seed: the same files, byte for byte; another seed: another order. */
TEST(pack_deterministic)
{
    static const char *const files[] = {"train-0000.tar", "train-0003.tar", "_info.json",
                                        "classes.txt"};
    char name[64];
    size_t bytes[3];

    pack("src", "packed1", "train", 8, 11);
    pack("src", "packed2", "train", 8, 12);
    for (size_t i = 0; i < 4; i++) {
        char *data[3];
        for (int k = 0; k < 3; k++) {
            static const char *const folders[] = {"packed", "packed1", "packed2"};
            snprintf(name, sizeof name, "%s/%s", folders[k], files[i]);
            data[k] = read_bytes(name, &bytes[k]);
        }
        assert_int_equal(bytes[0], bytes[1]);
        assert_memory_equal(data[0], data[1], bytes[0]);
        if (i < 2)
            assert_true(bytes[0] != bytes[2] || memcmp(data[0], data[2], bytes[0]) != 0);
        for (int k = 0; k < 3; k++)
            free(data[k]);
    }
    char *tar = read_bytes("packed/train-0000.tar", bytes);
    assert_string_equal(tar, "000000.cls");
    assert_memory_equal(tar + 100,
                        "000444 \0"
                        "000000 \0"
                        "000000 ",
                        23);                           /* mode, owner, group */
    assert_memory_equal(tar + 136, "00000000000", 11); /* time */
    assert_memory_equal(tar + 257, "ustar\00000", 8);
    assert_string_equal(tar + 1024, "000000.jpg");
    assert_int_equal(bytes[0] % 10240, 0);
    free(tar);
    tar = read_bytes("packed/classes.txt", bytes);
    assert_memory_equal(tar, "checker\ncircle\ncross\n", 21);
    free(tar);
}

/* A second prefix is a second split; existing shards are not mixed with new ones. */
TEST(pack_splits)
{
    struct dt_dataset *dataset;
    struct dt_names names = {0};
    const struct dt_dataset_options both = {
        .data = &shards_data, .path = at("packed"), .num_classes = 10};

    pack("again", "packed", "val", 100, 1);
    expect_failure(DT_ERR_CONFIG, "2 splits (train, val", dt_dataset_open(&dataset, &both));
    dataset = open_good(DT_SOURCE_SHARDS, at("packed/val-0000.tar"));
    assert_int_equal(dt_dataset_size(dataset), N);
    dt_dataset_close(dataset);
    dataset = open_good(DT_SOURCE_SHARDS, at("packed/train-{0000..0003}.tar"));
    dt_dataset_close(dataset);
    expect_failure(DT_ERR_CREATE, "already holds shards",
                   write_shards(at("src"), at("packed"), "train", 4, 1));

    make_folder("two/a");
    write_text("two/a/1.jpg", "x");
    expect_failure(DT_ERR_DATA, "classes differ",
                   write_shards(at("two"), at("packed"), "more", 4, 1));

    /* An image that cannot be packed leaves no files. */
    write_text("two/a/2.jpg", "");
    expect_failure(DT_ERR_DATA, "two/a/2.jpg", write_shards(at("two"), at("none"), "x", 1, 1));
    assert_int_equal(dt_names_list(&names, at("none")), DT_OK);
    assert_int_equal(names.n, 0);
    dt_names_reset(&names);
    expect_failure(DT_ERR_USAGE, "prefix", write_shards(at("two"), at("none"), "a/b", 1, 1));
    expect_failure(DT_ERR_USAGE, "prefix", write_shards(at("two"), at("none"), "", 1, 1));
    expect_failure(DT_ERR_USAGE, "at least one", write_shards(at("two"), at("none"), "x", 0, 1));
    expect_failure(DT_ERR_NO_INPUT, "absent", write_shards(at("absent"), at("none"), "x", 1, 1));
    write_text("file", "");
    expect_failure(DT_ERR_CREATE, "file", write_shards(at("two"), at("file"), "x", 1, 1));
}

TEST_MAIN(make_test_dir, remove_test_dir)
