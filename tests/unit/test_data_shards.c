/* Shards as a data set: patterns, the cached index, _info.json, reading by threads, and packing. */
#include <pthread.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/names.h"
#include "data/dataset.h"
#include "data/shard_list.h"
#include "data_files.h"

static const struct dt_config_data shards_data = {.source = DT_SOURCE_SHARDS};

static dt_status open_path(struct dt_dataset **dataset, const char *path, const char *cache)
{
    const struct dt_dataset_options options = {
        .data = &shards_data, .path = path, .cache_dir = cache, .num_classes = 10};
    return dt_dataset_open(dataset, &options);
}

static struct dt_dataset *open_good(const char *path, const char *cache)
{
    struct dt_dataset *dataset;
    assert_ok(open_path(&dataset, path, cache));
    return dataset;
}

static void expect_error(dt_status expected, const char *text, const char *path)
{
    struct dt_dataset *dataset;
    assert_error(open_path(&dataset, path, NULL), expected, text);
}

/* --- Patterns --- */

TEST(patterns)
{
    static const struct {
        const char *pattern, *paths; /* joined by blanks; NULL: DT_ERR_CONFIG */
    } cases[] = {
        {"a.tar", "a.tar"},
        {"x-{0000..0003}.tar", "x-0000.tar x-0001.tar x-0002.tar x-0003.tar"},
        {"x-{8..11}", "x-8 x-9 x-10 x-11"},
        {"x-{08..11}", "x-08 x-09 x-10 x-11"},
        {"x-{8..011}", "x-008 x-009 x-010 x-011"},
        {"x-{0..0}", "x-0"},
        {"{a,b,}.tar", "a.tar b.tar .tar"},
        {"{a,b}-{0..1}", "a-0 a-1 b-0 b-1"},
        {"{a..b,c}", "a..b c"},
        {"a-{0..1}::b", "a-0 a-1 b"},
        {"a:b/{1,2}::c::d{3..4}", "a:b/1 a:b/2 c d3 d4"},
        {"x-{0..1", NULL},
        {"x-0}", NULL},
        {"x-}0{", NULL},
        {"x-{{0..1}}", NULL},
        {"x-{3..1}", NULL},
        {"x-{}", NULL},
        {"x-{5}", NULL},
        {"x-{a..f}", NULL},
        {"x-{0..}", NULL},
        {"x-{0000000000..1}", NULL},
        {"x-{0..99999999}", NULL},
        {"a::", NULL},
        {"::a", NULL},
        {"", NULL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dt_names names = {0};
        char joined[512] = "";
        const dt_status status = dt_brace_expand(&names, cases[i].pattern);
        assert_int_equal(status, cases[i].paths ? DT_OK : DT_ERR_CONFIG);
        for (size_t k = 0; cases[i].paths && k < names.n; k++)
            snprintf(joined + strlen(joined), sizeof joined - strlen(joined), "%s%s", k ? " " : "",
                     dt_names_get(&names, k));
        if (cases[i].paths)
            assert_string_equal(joined, cases[i].paths);
        dt_names_reset(&names);
    }
}

/* --- Missing shards, folders and _info.json --- */

TEST(missing)
{
    make_folder("missing");
    make_shard("missing/x-00.tar", 0, 2);
    make_shard("missing/x-02.tar", 0, 2);
    expect_error(DT_ERR_NO_INPUT, "2 of 4 shards are missing: ", at("missing/x-{00..03}.tar"));
    expect_error(DT_ERR_NO_INPUT, "missing/x-01.tar, x-03.tar", at("missing/x-{00..03}.tar"));
    expect_error(DT_ERR_NO_INPUT, "x-22.tar, ...", at("missing/x-{02..99}.tar")); /* 20 listed */
}

TEST(folder_of_shards)
{
    make_folder("folder");
    expect_error(DT_ERR_NO_INPUT, "holds no .tar files; for class folders set data.source=folder",
                 at("folder"));
    make_shard("folder/b.tar", 3, 2);
    make_shard("folder/a.tar", 0, 3);
    write_text("folder/c.tar.gz", "other files do not matter");
    struct dt_dataset *dataset = open_good(at("folder"), NULL);
    assert_int_equal(dt_dataset_size(dataset), 5);
    for (uint32_t id = 0; id < 5; id++)
        assert_int_equal(dt_dataset_label(dataset, id), id);
    dt_dataset_close(dataset);
}

TEST(info)
{
    static const struct {
        const char *info;
        dt_status status;
        const char *text;
    } cases[] = {
        {"{\"splits\":{\"t\":{\"filenames\":[\"a.tar\",\"b.tar\"],\"shard_lengths\":[3,2]}}}",
         DT_OK, ""},
        {"{\"splits\":{}}", DT_OK, ""},
        {"{\"splits\":{\"t\":{\"filenames\":[\"a.tar\",\"b.tar\"],\"shard_lengths\":[3,4]}}}",
         DT_ERR_DATA, "b.tar holds 2 samples, but "},
        {"{\"splits\":{\"t\":{\"filenames\":[\"a.tar\",\"b.tar\",\"c.tar\"],"
         "\"shard_lengths\":[3,2,1]}}}",
         DT_ERR_NO_INPUT, "lists 3 shards, but 1 of them are missing"},
        {"{\"splits\":{\"t\":{\"filenames\":[\"a.tar\"],\"shard_lengths\":[3]},"
         "\"v\":{\"filenames\":[\"b.tar\"],\"shard_lengths\":[2]}}}",
         DT_ERR_CONFIG, "holds 2 splits (t, v, ...): give the shards"},
        {"{\"splits\":{\"t\":{\"filenames\":[\"a.tar\"],\"shard_lengths\":[3,2]}}}", DT_ERR_DATA,
         "of equal length"},
        {"{\"splits\":{\"t\":{\"filenames\":[\"a.tar\"],\"shard_lengths\":[1.5]}}}", DT_ERR_DATA,
         "a name and a number of samples"},
        {"{\"splits\":{\"t\":{\"filenames\":[\"a.tar\"]}}}", DT_ERR_DATA, "needs the lists"},
        {"[]", DT_ERR_DATA, "no object named splits"},
        {"{", DT_ERR_DATA, "_info.json"},
    };

    make_folder("info");
    make_shard("info/a.tar", 0, 3);
    make_shard("info/b.tar", 3, 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text("info/_info.json", cases[i].info);
        if (cases[i].status == DT_OK)
            dt_dataset_close(open_good(at("info"), NULL));
        else
            expect_error(cases[i].status, cases[i].text, at("info"));
    }
}

TEST(label_offset)
{
    struct dt_dataset *dataset;
    struct dt_config_data data = {.source = DT_SOURCE_SHARDS, .label_offset = 5};
    struct dt_dataset_options options = {.data = &data, .num_classes = 5};

    make_shard("offset.tar", 5, 5); /* labels 5 to 9 */
    options.path = at("offset.tar");
    assert_int_equal(dt_dataset_open(&dataset, &options), DT_OK);
    assert_int_equal(dt_dataset_label(dataset, 0), 0);
    assert_int_equal(dt_dataset_label(dataset, 4), 4);
    dt_dataset_close(dataset);
    data.label_offset = 4;
    assert_error(dt_dataset_open(&dataset, &options), DT_ERR_DATA, "label 9 of 000009.jpg");
    assert_non_null(strstr(dt_error_text(), "labels must be 4 to 8"));
}

/* --- The cached index --- */

TEST(cache)
{
    char cache[300];
    size_t bytes;

    make_shard("cached.tar", 0, 9);
    set_time("cached.tar", 1000);
    struct dt_dataset *dataset = open_good(at("cached.tar"), at("cache"));
    const uint64_t fingerprint = dt_dataset_fingerprint(dataset);
    dt_dataset_close(dataset);
    find_only_file(cache, sizeof cache, "cache/index");

    /* Used: the archive's content is ruined while its size and time stay the same. */
    char *tar = read_bytes("cached.tar", &bytes), *ruined = calloc(1, bytes);
    assert_non_null(ruined);
    write_bytes("cached.tar", ruined, bytes);
    set_time("cached.tar", 1000);
    dataset = open_good(at("cached.tar"), at("cache"));
    assert_int_equal(dt_dataset_size(dataset), 9);
    assert_int_equal(dt_dataset_label(dataset, 8), 8);
    assert_true(dt_dataset_fingerprint(dataset) == fingerprint);
    dt_dataset_close(dataset);

    /* Not used when the time is another one. */
    set_time("cached.tar", 1001);
    assert_int_equal(open_path(&dataset, at("cached.tar"), at("cache")), DT_ERR_DATA);
    write_bytes("cached.tar", tar, bytes);
    set_time("cached.tar", 1002);
    dt_dataset_close(open_good(at("cached.tar"), at("cache")));

    /* Flipped bytes and cuts are noticed. */
    size_t cache_bytes;
    char *good = read_bytes(cache, &cache_bytes);
    assert_int_equal(cache_bytes, 32 + 4 * 64 + 256); /* header, values, entries */
    for (size_t i = 0; i < 2 * cache_bytes; i += 3) {
        const size_t kept = i < cache_bytes ? cache_bytes : i - cache_bytes;
        char *bad = malloc(cache_bytes);
        assert_non_null(bad);
        memcpy(bad, good, cache_bytes);
        if (i < cache_bytes)
            bad[i] ^= 0x10;
        write_bytes(cache, bad, kept);
        free(bad);
        dataset = open_good(at("cached.tar"), at("cache"));
        assert_int_equal(dt_dataset_size(dataset), 9);
        assert_true(dt_dataset_fingerprint(dataset) == fingerprint);
        dt_dataset_close(dataset);
    }
    char *again = read_bytes(cache, &cache_bytes);
    assert_memory_equal(again, good, cache_bytes);
    free(again);
    free(good);
    free(tar);
    free(ruined);
}

TEST(cache_not_writable)
{
    make_shard("uncached.tar", 0, 2);
    write_text("file", "not a folder");
    dt_dataset_close(open_good(at("uncached.tar"), at("file")));
    dt_dataset_close(open_good(at("uncached.tar"), at("file/below")));
}

/* --- Reading --- */

enum { N_SHARDS = 40, PER_SHARD = 7, N_THREADS = 4 };

static void *read_all(void *argument)
{
    const struct dt_dataset *dataset = argument;
    struct dt_sample sample = {0};
    char expected[32];
    size_t n_wrong = 0;

    for (uint32_t i = 0; i < 5 * N_SHARDS * PER_SHARD; i++) {
        const uint32_t id = i * 61 % (N_SHARDS * PER_SHARD);
        const int n = snprintf(expected, sizeof expected, "image %u", (unsigned)id);
        n_wrong += dt_dataset_read(dataset, id, &sample) != DT_OK || (int)sample.bytes != n ||
                   memcmp(sample.data, expected, sample.bytes) != 0 ||
                   dt_dataset_label(dataset, id) != (int)(id % 10);
    }
    free(sample.data);
    return (void *)(uintptr_t)n_wrong;
}

TEST(threads)
{
    struct rlimit limit, low;
    pthread_t threads[N_THREADS];
    void *n_wrong;

    make_folder("many");
    for (int i = 0; i < N_SHARDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "many/m-%02d.tar", i);
        make_shard(name, i * PER_SHARD, PER_SHARD);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = 32; /* 8 shards open at a time: descriptors come and go */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    struct dt_dataset *dataset = open_good(at("many/m-{00..39}.tar"), NULL);
    assert_int_equal(dt_dataset_size(dataset), N_SHARDS * PER_SHARD);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, dataset), 0);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], &n_wrong);
        assert_null(n_wrong);
    }
    dt_dataset_close(dataset);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Damage to shards after the data set was opened makes only single samples bad. */
TEST(changed_later)
{
    struct dt_sample sample = {0};
    char name[300];

    make_shard("later.tar", 0, 3);
    struct tar tar = {0};
    tar_text(&tar, "0.cls", "0");
    tar_text(&tar, "0.jpg", "");
    tar_end(&tar);
    tar_save(&tar, "zero.tar");
    char pattern[300];
    snprintf(pattern, sizeof pattern, "%s::%s", at("later.tar"), at("zero.tar"));
    struct dt_dataset *dataset = open_good(pattern, NULL);
    assert_int_equal(dt_dataset_read(dataset, 0, &sample), DT_OK);
    assert_int_equal(truncate(at("later.tar"), 2000), 0);
    assert_int_equal(dt_dataset_read(dataset, 2, &sample), DT_ERR_DATA);
    assert_int_equal(dt_dataset_read(dataset, 3, &sample), DT_ERR_DATA); /* empty image */
    assert_non_null(strstr(dt_error_text(), "0 bytes"));
    assert_int_equal(unlink(at("zero.tar")), 0);
    dt_dataset_name(dataset, 3, name, sizeof name);
    assert_non_null(strstr(name, "zero.tar: byte "));
    dt_dataset_close(dataset);
    free(sample.data);
}

TEST(fingerprint)
{
    uint64_t seen[4];
    static const struct {
        const char *label, *image, *name;
    } variants[] = {{"1", "abc", "x"}, {"2", "abc", "x"}, {"1", "abcd", "x"}, {"1", "abc", "y"}};

    for (size_t i = 0; i < 4; i++) {
        struct tar tar = {0};
        char member[16];
        snprintf(member, sizeof member, "%s.cls", variants[i].name);
        tar_text(&tar, member, variants[i].label);
        snprintf(member, sizeof member, "%s.jpg", variants[i].name);
        tar_text(&tar, member, variants[i].image);
        tar_end(&tar);
        tar_save(&tar, "print.tar");
        struct dt_dataset *dataset = open_good(at("print.tar"), NULL);
        seen[i] = dt_dataset_fingerprint(dataset);
        for (size_t k = 0; k < i; k++)
            assert_true(seen[i] != seen[k]);
        dt_dataset_close(dataset);
    }
}

TEST(cifar)
{
    const char *shared = getenv("DTRAIN_SHARED_DIR");
    char path[512], name[600];
    int count[10] = {0};
    struct dt_sample sample = {0};

    snprintf(path, sizeof path, "%s/data/cifar10/cifar10-train-{0000..0009}.tar",
             shared ? shared : "");
    snprintf(name, sizeof name, "%s/data/cifar10/_info.json", shared ? shared : "");
    if (access(name, R_OK))
        skip();
    struct dt_dataset *dataset = open_good(path, at("cifar-cache"));
    assert_int_equal(dt_dataset_size(dataset), 50000);
    for (uint32_t id = 0; id < 50000; id++)
        count[dt_dataset_label(dataset, id)]++;
    for (int i = 0; i < 10; i++)
        assert_int_equal(count[i], 5000);
    for (uint32_t id = 0; id < 50000; id += 997) {
        assert_int_equal(dt_dataset_read(dataset, id, &sample), DT_OK);
        assert_memory_equal(sample.data, "\xff\xd8\xff", 3);
        assert_memory_equal(sample.data + sample.bytes - 2, "\xff\xd9", 2);
        dt_dataset_name(dataset, id, name, sizeof name);
        assert_memory_equal(name + strlen(name) - 4, ".jpg", 4);
    }
    const uint64_t fingerprint = dt_dataset_fingerprint(dataset);
    dt_dataset_close(dataset);
    dataset = open_good(path, at("cifar-cache"));
    assert_true(dt_dataset_fingerprint(dataset) == fingerprint);
    dt_dataset_close(dataset);
    free(sample.data);
}

int main(void)
{
    dt_log_init(DT_LOG_ERROR, 0, 1); /* damaged caches are warned about */
    return run_all_tests(make_test_dir, remove_test_dir);
}
