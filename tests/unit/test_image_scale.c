/* The cost of a large data set: heap per sample, with a cached index. The figures of 1.3 million
 * samples are measured by tests/perf/index_1300k.py. */
#include <malloc.h>

#include "data_files.h"
#include "dtrain/data.h"

static const struct dt_config_data shards_data = {.source = DT_SOURCE_SHARDS};

enum { SHARDS = 64, SAMPLES = 512, MAX_BYTES_PER_SAMPLE = 40 };

static size_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* All are names of one file; each has an index of its own. */
static void make_shards(void)
{
    char name[32];
    make_folder("shards");
    make_shard("shards/s-00.tar", 0, SAMPLES);
    for (int i = 1; i < SHARDS; i++) {
        snprintf(name, sizeof name, "shards/s-%02d.tar", i);
        assert_int_equal(link(at("shards/s-00.tar"), at(name)), 0);
    }
}

static void open_set(struct dt_dataset **dataset)
{
    const struct dt_dataset_options options = {
        .data = &shards_data, .path = at("shards"), .cache_dir = at("run"), .num_classes = 10};
    assert_ok(dt_dataset_open(dataset, &options));
    assert_int_equal(dt_dataset_size(*dataset), SHARDS * SAMPLES);
}

TEST(bytes_per_sample)
{
    struct dt_dataset *dataset;
    make_shards();
    make_folder("run");
    open_set(&dataset);
    uint64_t fingerprint = dt_dataset_fingerprint(dataset);
    dt_dataset_close(dataset);

    size_t before = heap_bytes();
    if (before == 0) { /* a sanitizer's allocator does not count here */
        skip();
        return;
    }
    open_set(&dataset);
    size_t taken = heap_bytes() - before;
    assert_true(taken > 16 * (size_t)SHARDS * SAMPLES);
    assert_true(taken < MAX_BYTES_PER_SAMPLE * (size_t)SHARDS * SAMPLES);
    assert_true(dt_dataset_fingerprint(dataset) == fingerprint);
    dt_dataset_close(dataset);
}

TEST_MAIN(make_test_dir, remove_test_dir)
