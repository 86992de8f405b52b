/* The readers of the sources of `dtrain shard`: CRC-32C and TFRecord; and threads. Whole files of
 * encoders in Python are read in e2e/shard; here are known values and damage to every byte. */
#include "base/crc32c.h"
#include "base/thread.h"
#include "data_files.h"
#include "pack/pack.h"
#include "pack/source.h"

/* --- CRC-32C: RFC 3720 B.4 --- */

TEST(crc32c)
{
    uint8_t bytes[48] = {0};
    assert_int_equal(dt_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(dt_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(dt_crc32c(bytes, 32), 0x62a8ab43);
    for (uint8_t i = 0; i < 32; i++)
        bytes[i] = i;
    assert_int_equal(dt_crc32c(bytes, 32), 0x46dd794e);
    assert_int_equal(dt_crc32c(bytes, 0), 0);
    const uint32_t sum = dt_crc32c(bytes, 31);
    memmove(bytes + 1, bytes, 31); /* unaligned */
    assert_int_equal(dt_crc32c(bytes + 1, 31), sum);
}

/* --- TFRecord: one record, every byte of its structure damaged, the sums made right again --- */

static size_t make_record(uint8_t *out, const uint8_t *data, size_t bytes)
{
    const uint64_t length = bytes;
    memcpy(out, &length, 8);
    uint32_t sum = dt_crc32c_masked(out, 8);
    memcpy(out + 8, &sum, 4);
    memcpy(out + 12, data, bytes);
    sum = dt_crc32c_masked(data, bytes);
    memcpy(out + 12 + bytes, &sum, 4);
    return 16 + bytes;
}

/* Example { Features { "image/encoded": "image bytes", "image/class/label": 3 } } */
static const char example[] = "\x0a\x40"
                              "\x0a\x20\x0a\x0dimage/encoded\x12\x0f\x0a\x0d\x0a\x0bimage bytes"
                              "\x0a\x1c\x0a\x11image/class/label\x12\x07\x1a\x05\x0a\x03\x83\x80";

static dt_status open_record(struct dt_dataset **dataset)
{
    const struct dt_shard_options options = {.src = at("record"), .label_offset = 1};
    return dt_source_open(dataset, &options);
}

TEST(record)
{
    uint8_t data[sizeof example], record[sizeof example + 16];
    struct dt_dataset *dataset;
    struct dt_sample sample = {0};
    size_t n_read = 0;

    memcpy(data, example, sizeof data); /* its NUL ends the varint 83 80 00 = 3 */
    write_bytes("record", record, make_record(record, data, sizeof data));
    assert_int_equal(open_record(&dataset), DT_OK);
    assert_int_equal(dt_dataset_size(dataset), 1);
    assert_int_equal(dt_dataset_label(dataset, 0), 2);
    assert_int_equal(dt_dataset_read(dataset, 0, &sample), DT_OK);
    assert_int_equal(sample.bytes, 11);
    assert_memory_equal(sample.data, "image bytes", 11);
    dt_dataset_close(dataset);
    for (size_t i = 0; i < sizeof data; i++)
        for (unsigned mask = 1; mask < 256; mask *= 2) {
            data[i] ^= (uint8_t)mask;
            write_bytes("record", record, make_record(record, data, sizeof data));
            data[i] ^= (uint8_t)mask;
            const dt_status status = open_record(&dataset);
            assert_true(status == DT_OK || status == DT_ERR_DATA);
            if (status != DT_OK)
                continue;
            n_read += dt_dataset_read(dataset, 0, &sample) == DT_OK;
            dt_dataset_close(dataset);
        }
    assert_true(n_read > 11 * 8); /* bytes of the image may be anything */
    free(sample.data);
}

/* --- Threads --- */

struct counts {
    uint32_t seen[500];
    uint32_t fail_from;
};

static dt_status count_index(void *context, uint32_t index, int thread)
{
    struct counts *counts = context;
    counts->seen[index] += thread >= 0 && thread < 4;
    if (index >= counts->fail_from)
        DT_FAIL(DT_ERR_DATA, "index %u", (unsigned)index);
    return DT_OK;
}

TEST(parallel)
{
    struct counts counts = {.fail_from = 500};

    for (int threads = 1; threads <= 4; threads++) {
        memset(counts.seen, 0, sizeof counts.seen);
        assert_int_equal(dt_parallel_run(500, threads, count_index, &counts), DT_OK);
        for (int i = 0; i < 500; i++)
            assert_int_equal(counts.seen[i], 1);
    }
    for (int threads = 1; threads <= 4; threads++) {
        memset(counts.seen, 0, sizeof counts.seen);
        counts.fail_from = 100;
        assert_int_equal(dt_parallel_run(500, threads, count_index, &counts), DT_ERR_DATA);
        assert_string_equal(dt_error_text(), "index 100"); /* begun before all later ones */
        assert_int_equal(counts.seen[99], 1);
    }
    assert_int_equal(dt_parallel_threads(8, 3), 3);
    assert_int_equal(dt_parallel_threads(8, 0), 1);
    assert_int_equal(dt_parallel_run(0, 1, count_index, &counts), DT_OK);
    assert_true(dt_parallel_threads(0, 1000) >= 1);
}

TEST_MAIN(make_test_dir, remove_test_dir)
