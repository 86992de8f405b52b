/* The readers of the sources of `dtrain shard`: CRC-32C, MATLAB 5 files, TFRecord; and threads.
 * Whole ones from outside (scipy, own encoders in Python) are read in e2e/shard; here are known
 * values and damage to every byte. */
#include <zlib.h>

#include "base/crc32c.h"
#include "base/parallel_for.h"
#include "data_files.h"
#include "pack/images.h"
#include "pack/mat5.h"
#include "pack/pack.h"

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

/* --- MATLAB 5: built by hand after the format's description --- */

struct mat {
    uint8_t data[4096];
    size_t n;
};

static void put(struct mat *mat, const void *data, size_t bytes)
{
    assert_true(mat->n + bytes + 8 <= sizeof mat->data);
    memcpy(mat->data + mat->n, data, bytes);
    mat->n += (bytes + 7) / 8 * 8;
}

static void element(struct mat *mat, uint32_t type, const void *data, uint32_t bytes)
{
    const uint32_t tag[] = {type, bytes};
    put(mat, tag, sizeof tag);
    put(mat, data, bytes);
}

/* A matrix's head; returns where its size goes. */
static size_t matrix(struct mat *mat, uint32_t class, int32_t rows, int32_t columns,
                     const char *name)
{
    const uint32_t tag[] = {14, 0}, flags[] = {class, 0};
    const int32_t sizes[] = {rows, columns};
    const size_t at = mat->n;
    put(mat, tag, sizeof tag);
    element(mat, 6, flags, sizeof flags);
    element(mat, 5, sizes, sizeof sizes);
    element(mat, 1, name, (uint32_t)strlen(name));
    return at;
}

static void close_matrix(struct mat *mat, size_t at)
{
    const uint32_t bytes = (uint32_t)(mat->n - at - 8);
    memcpy(mat->data + at + 4, &bytes, sizeof bytes);
}

static void number(struct mat *mat, double value)
{
    const size_t at = matrix(mat, 6, 1, 1, "");
    const uint32_t small[] = {1u << 16 | 2, (uint32_t)value}; /* in its tag, as one byte */
    if (value < 200)
        put(mat, small, sizeof small);
    else
        element(mat, 9, &value, sizeof value);
    close_matrix(mat, at);
}

static void text(struct mat *mat, const char *value)
{
    uint16_t wide[32];
    const size_t at = matrix(mat, 4, 1, (int32_t)strlen(value), "");
    for (size_t i = 0; value[i]; i++)
        wide[i] = (uint8_t)value[i];
    element(mat, 4, wide, (uint32_t)(2 * strlen(value)));
    close_matrix(mat, at);
}

static void make_mat(struct mat *mat)
{
    static const char fields[16] = "ID\0\0\0\0\0\0WNID";
    const uint32_t width[] = {4u << 16 | 5, 8};
    memset(mat, 0, sizeof *mat);
    mat->n = 128;
    memcpy(mat->data + 124, "\0\1IM", 4);
    const size_t other = matrix(mat, 6, 1, 0, "other");
    element(mat, 9, "", 0);
    close_matrix(mat, other);
    const size_t at = matrix(mat, 2, 2, 1, "synsets");
    put(mat, width, sizeof width);
    element(mat, 1, fields, sizeof fields);
    number(mat, 7);
    text(mat, "n01440764");
    number(mat, 1000);
    text(mat, "n2");
    close_matrix(mat, at);
}

/* The same with the variables packed by zlib; *n bytes, free(). */
static uint8_t *packed(const struct mat *mat, size_t *n)
{
    uLongf bytes = compressBound((uLong)(mat->n - 128));
    uint8_t *out = calloc(1, 136 + bytes);
    assert_non_null(out);
    memcpy(out, mat->data, 128);
    /* From the second variable on: one element packs one. */
    const size_t first = 128 + 64;
    assert_int_equal(mat->data[first], 14);
    assert_int_equal(compress(out + 136, &bytes, mat->data + first, (uLong)(mat->n - first)), Z_OK);
    const uint32_t tag[] = {15, (uint32_t)bytes};
    memcpy(out + 128, tag, sizeof tag);
    *n = 136 + bytes;
    return out;
}

static void check_synsets(const struct dt_mat_struct *array)
{
    char wnid[16];
    double id;
    assert_int_equal(array->n_elements, 2);
    assert_int_equal(dt_mat_field(array, "ID"), 0);
    assert_int_equal(dt_mat_field(array, "WNID"), 1);
    assert_int_equal(dt_mat_field(array, "WN"), -1);
    assert_true(dt_mat_number(array, 0, 0, &id) && id == 7);
    assert_true(dt_mat_number(array, 1, 0, &id) && id == 1000);
    assert_true(dt_mat_text(array, 0, 1, wnid, sizeof wnid));
    assert_string_equal(wnid, "n01440764");
    assert_true(dt_mat_text(array, 1, 1, wnid, sizeof wnid));
    assert_string_equal(wnid, "n2");
    assert_false(dt_mat_text(array, 0, 1, wnid, 9)); /* no room for the NUL */
    assert_false(dt_mat_number(array, 0, 1, &id));   /* nine numbers */
}

TEST(mat)
{
    struct mat mat;
    struct dt_mat_struct array = {0};
    size_t n;

    make_mat(&mat);
    assert_int_equal(dt_mat_load(&array, mat.data, mat.n, "synsets"), DT_OK);
    check_synsets(&array);
    dt_mat_reset(&array);
    uint8_t *small = packed(&mat, &n);
    assert_int_equal(dt_mat_load(&array, small, n, "synsets"), DT_OK);
    check_synsets(&array);
    dt_mat_reset(&array);
    free(small);
    assert_error(dt_mat_load(&array, mat.data, mat.n, "other"), DT_ERR_DATA, "not a struct");
    dt_mat_reset(&array);
    assert_error(dt_mat_load(&array, mat.data, mat.n, "none"), DT_ERR_DATA,
                 "no variable named none");
    dt_mat_reset(&array);
}

/* Whatever comes: an answer, and every cell can be asked for. The block has the exact size, so that
 * the sanitizers see a byte too much. */
static void try_mat(const uint8_t *data, size_t n)
{
    struct dt_mat_struct array = {0};
    char line[64];
    double value;
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, data, n);
    if (dt_mat_load(&array, copy, n, "synsets") == DT_OK)
        for (uint32_t i = 0; i < array.n_elements; i++)
            for (int f = 0; f < (int)array.n_fields; f++) {
                dt_mat_number(&array, i, f, &value);
                dt_mat_text(&array, i, f, line, sizeof line);
            }
    dt_mat_reset(&array);
    free(copy);
}

TEST(mat_damage)
{
    static const uint8_t masks[] = {1, 0x10, 0x80, 0xff};
    struct mat mat;
    size_t n;

    make_mat(&mat);
    uint8_t *small = packed(&mat, &n);
    for (size_t cut = 0; cut < mat.n; cut++)
        try_mat(mat.data, cut);
    for (size_t cut = 0; cut < n; cut++)
        try_mat(small, cut);
    for (size_t i = 124; i < mat.n; i++)
        for (size_t k = 0; k < sizeof masks; k++) {
            mat.data[i] ^= masks[k];
            try_mat(mat.data, mat.n);
            mat.data[i] ^= masks[k];
        }
    for (size_t i = 124; i < n; i++) {
        small[i] ^= 0x55;
        try_mat(small, n);
        small[i] ^= 0x55;
    }
    free(small);
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
