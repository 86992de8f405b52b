/* safetensors, reading and writing: the golden file byte by byte, round trips, 16-bit types, what
 * cannot be written, files that are missing, shrink or have one wrong byte. */
#include <math.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "checkpoint/safetensors.h"
#include "test_dir.h"
#include "test_status.h"

/* A header entry, and a header for 8 bytes of data. */
#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"
#define GOOD "{" T("a", "F32", "2", "0,8") "}"

static void save_bytes(const void *data, size_t bytes)
{
    write_bytes("x.safetensors", data, bytes);
}

/* length | header | data */
static void save_raw(const char *header, size_t data_bytes)
{
    static unsigned char block[1 << 16];
    size_t n = strlen(header);
    const uint64_t length = n;
    assert_true(8 + n + data_bytes <= sizeof block);
    memcpy(block, &length, 8);
    memcpy(block + 8, header, n);
    for (size_t i = 0; i < data_bytes; i++)
        block[8 + n + i] = (unsigned char)(i * 37);
    save_bytes(block, 8 + n + data_bytes);
}

static void declare(struct dt_st_tensor *t, const char *name, enum dt_st_dtype dtype, int n_dims,
                    int64_t d0, int64_t d1)
{
    *t = (struct dt_st_tensor){.dtype = dtype, .n_dims = n_dims, .dim = {d0, d1}};
    snprintf(t->name, sizeof t->name, "%s", name);
}

/* --- Good files --- */

/* Writes head and data; the data of all tensors are contiguous. */
static void save_tensors(struct dt_st_tensor *tensors, size_t n, const void *data)
{
    char *head;
    size_t n_head;
    assert_ok(dt_st_place(tensors, n));
    assert_ok(dt_st_head(&head, &n_head, tensors, n, NULL, NULL));
    size_t n_data = n ? (size_t)(tensors[n - 1].offset + tensors[n - 1].bytes) : 0;
    head = realloc(head, n_head + n_data);
    assert_non_null(head);
    memcpy(head + n_head, data, n_data);
    save_bytes(head, n_head + n_data);
    free(head);
}

/* The bytes of an integer tensor, which nothing in dtrain reads. */
static void copy_data(char *out, const char *file, const struct dt_st_tensor *t)
{
    char *text;
    size_t bytes;
    uint64_t length;
    assert_ok(dt_file_load(&text, &bytes, file, 1 << 24));
    memcpy(&length, text, sizeof length);
    memcpy(out, text + sizeof length + length + t->offset, (size_t)t->bytes);
    free(text);
}

/* Reads every tensor of `file` and writes all of them to x.safetensors in the same order. */
static void rewrite(struct dt_st_reader *from, const char *file)
{
    size_t n = dt_st_count(from);
    const struct dt_st_tensor *last = dt_st_get(from, n - 1);
    struct dt_st_tensor *tensors;
    char *data;
    assert_ok(DT_NEW(tensors, n));
    assert_ok(DT_NEW(data, last->offset + last->bytes));
    for (size_t i = 0; i < n; i++) {
        const struct dt_st_tensor *t = dt_st_get(from, i);
        void *values = malloc((size_t)t->bytes + 1);
        assert_non_null(values);
        if (t->dtype == DT_ST_I64)
            copy_data(values, file, t);
        else
            assert_ok(dt_st_read_f32(from, t, values));
        memcpy(data + t->offset, values, (size_t)t->bytes);
        free(values);
        tensors[i] = *t;
        tensors[i].offset = tensors[i].bytes = tensors[i].elements = 77; /* to be computed */
    }
    save_tensors(tensors, n, data);
    free(data);
    free(tensors);
}

static void assert_same_files(const char *left, const char *right)
{
    char *a, *b;
    size_t n_a, n_b;
    assert_ok(dt_file_load(&a, &n_a, left, 1 << 24));
    assert_ok(dt_file_load(&b, &n_b, right, 1 << 24));
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    free(a);
    free(b);
}

TEST(golden)
{
    char golden[DT_PATH_MAX];
    const char *shared = getenv("DTRAIN_SHARED_DIR");
    assert_ok(dt_file_path(golden, "%s/golden/tiny.safetensors", shared ? shared : "."));
    if (!dt_file_exists(golden))
        skip();
    struct dt_st_reader *reader;
    assert_ok(dt_st_open(&reader, golden));
    assert_int_equal(dt_st_count(reader), 3);
    const struct dt_st_tensor *weight = dt_st_find(reader, "fc.weight");
    assert_non_null(weight);
    assert_int_equal(weight->n_dims, 2);
    assert_int_equal(weight->dim[0], 2);
    assert_int_equal(weight->dim[1], 3);
    const struct dt_st_tensor *counter = dt_st_find(reader, "bn1.num_batches_tracked");
    assert_non_null(counter);
    assert_int_equal(counter->n_dims, 0);
    assert_int_equal(counter->elements, 1);
    rewrite(reader, golden);
    dt_st_close(reader);
    assert_same_files(golden, at("x.safetensors"));
}

/* Bytes by hand: needs no file from outside. */
TEST(layout)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2],"
        "\"data_offsets\":[0,8]},\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[8,16]}}";
    struct dt_st_tensor tensors[2];
    char data[16];
    declare(&tensors[0], "a", DT_ST_F32, 1, 2, 0);
    declare(&tensors[1], "n", DT_ST_I64, 0, 0, 0);
    memcpy(data, (float[]){1.0F, -2.0F}, 8);
    memcpy(data + 8, (int64_t[]){-3}, 8);
    save_tensors(tensors, 2, data);
    assert_int_equal(tensors[1].offset, 8);
    assert_int_equal(tensors[1].elements, 1);

    char *text;
    size_t bytes, n = sizeof header - 1, padded = (n + 7) / 8 * 8;
    uint64_t length;
    float values[2];
    int64_t counter;
    assert_ok(dt_file_load(&text, &bytes, at("x.safetensors"), 1 << 20));
    assert_int_equal(bytes, 8 + padded + 16);
    memcpy(&length, text, 8);
    memcpy(values, text + 8 + padded, 8);
    memcpy(&counter, text + 8 + padded + 8, 8);
    assert_int_equal(length, padded);
    assert_memory_equal(text + 8, header, n);
    for (size_t i = n; i < padded; i++)
        assert_int_equal(text[8 + i], ' ');
    assert_true(values[0] == 1.0F && values[1] == -2.0F && counter == -3);
    free(text);
}

TEST(round_trip)
{
    enum { N = 40, MAX = 64 };
    static float data[N * MAX];
    struct dt_st_tensor tensors[N];
    struct dt_st_reader *reader;
    float in[MAX];
    size_t n_data = 0;
    for (int i = 0; i < N; i++) {
        char name[40];
        snprintf(name, sizeof name, "module.layer%d.\"w\\\xc3\xa9", i);
        declare(&tensors[i], name, DT_ST_F32, 2, i % 7, 1 + i % 5); /* some are empty */
        for (int e = 0; e < (i % 7) * (1 + i % 5); e++)
            data[n_data++] = e == 5 ? (float)NAN : (float)(100 * i + e);
    }
    save_tensors(tensors, N, data);
    assert_int_equal(tensors[N - 1].offset + tensors[N - 1].bytes, n_data * sizeof *data);

    assert_ok(dt_st_open(&reader, at("x.safetensors")));
    assert_int_equal(dt_st_count(reader), N);
    for (int i = 0; i < N; i++) {
        const char *name = tensors[i].name;
        const struct dt_st_tensor *t = dt_st_find(reader, i % 3 ? name : name + strlen("module."));
        assert_non_null(t);
        assert_string_equal(t->name, name);
        assert_int_equal(t->dtype, DT_ST_F32);
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->dim[0], i % 7);
        assert_int_equal(t->elements, (i % 7) * (1 + i % 5));
        assert_ok(dt_st_read_f32(reader, t, in));
        assert_memory_equal(in, (char *)data + tensors[i].offset, t->bytes);
    }
    assert_null(dt_st_find(reader, "layer"));
    assert_null(dt_st_find(reader, "\"w\\\xc3\xa9")); /* not all share that layer */
    dt_st_close(reader);
}

/* Without tensors, and with a header that other programs pad differently. */
TEST(small_files)
{
    struct dt_st_reader *reader;
    save_tensors(NULL, 0, "");
    assert_ok(dt_st_open(&reader, at("x.safetensors")));
    assert_int_equal(dt_st_count(reader), 0);
    dt_st_close(reader);
    /* Another order than that of the offsets, an empty tensor between, no metadata. */
    save_raw("{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
             "\"e\":{\"shape\":[0,5],\"data_offsets\":[4,4],\"dtype\":\"I64\"},"
             "\"a\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]}}      ",
             8);
    assert_ok(dt_st_open(&reader, at("x.safetensors")));
    assert_int_equal(dt_st_count(reader), 3);
    assert_string_equal(dt_st_get(reader, 0)->name, "a");
    assert_string_equal(dt_st_get(reader, 1)->name, "e");
    assert_string_equal(dt_st_get(reader, 2)->name, "b");
    dt_st_close(reader);
}

/* --- 16-bit types: all 65,536 patterns against arithmetic in double. --- */

static double f16_value(unsigned bits)
{
    int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    double sign = bits & 0x8000U ? -1.0 : 1.0;
    if (exponent == 31)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, exponent - 25);
}

static double bf16_value(unsigned bits)
{
    int exponent = (bits >> 7) & 255, fraction = bits & 127;
    double sign = bits & 0x8000U ? -1.0 : 1.0;
    if (exponent == 255)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, -133);
    return sign * ldexp(128 + fraction, exponent - 134);
}

static void check_16_bit(const char *dtype, double (*value)(unsigned))
{
    enum { N = 1 << 16 };
    static unsigned char block[8 + 72 + 2 * N];
    static float out[N + 1];
    char header[73];
    int n = snprintf(header, sizeof header,
                     "{\"t\":{\"dtype\":\"%s\",\"shape\":[256,256],\"data_offsets\":[0,131072]}}",
                     dtype);
    assert_in_range(n, 1, 72);
    memset(block, ' ', sizeof block);
    memcpy(block, &(uint64_t){72}, 8);
    memcpy(block + 8, header, (size_t)n);
    for (unsigned i = 0; i < N; i++)
        memcpy(block + 80 + 2 * i, &(uint16_t){(uint16_t)i}, 2);
    save_bytes(block, sizeof block);
    struct dt_st_reader *reader;
    assert_ok(dt_st_open(&reader, at("x.safetensors")));
    out[N] = -7.0F;
    assert_ok(dt_st_read_f32(reader, dt_st_get(reader, 0), out));
    assert_true(out[N] == -7.0F);
    for (unsigned i = 0; i < N; i++) {
        double expected = value(i);
        bool is_equal = isnan(expected)
                            ? isnan(out[i])
                            : (double)out[i] == expected && !signbit(out[i]) == !signbit(expected);
        if (!is_equal)
            fail_msg("%s 0x%04x: %g, expected %g", dtype, i, (double)out[i], expected);
    }
    dt_st_close(reader);
}

TEST(f16)
{
    check_16_bit("F16", f16_value);
}

TEST(bf16)
{
    check_16_bit("BF16", bf16_value);
}

/* --- What cannot be written --- */

TEST(refused)
{
    struct dt_st_tensor tensor;
    declare(&tensor, "a", DT_ST_F32, 1, 2, 0);
    assert_ok(dt_st_place(&tensor, 1));
    declare(&tensor, "a", DT_ST_BF16, 1, 2, 0); /* only read, never written */
    assert_int_equal(dt_st_place(&tensor, 1), DT_ERR_INTERNAL);
    declare(&tensor, "a", DT_ST_F32, 2, INT64_MAX / 2, 8);
    assert_int_equal(dt_st_place(&tensor, 1), DT_ERR_INTERNAL);
    declare(&tensor, "a", DT_ST_F32, 2, INT64_C(1) << 31, INT64_C(1) << 31);
    assert_int_equal(dt_st_place(&tensor, 1), DT_ERR_INTERNAL);
    declare(&tensor, "a", DT_ST_F32, 1, -1, 0);
    assert_int_equal(dt_st_place(&tensor, 1), DT_ERR_INTERNAL);
    declare(&tensor, "__metadata__", DT_ST_F32, 1, 2, 0);
    assert_int_equal(dt_st_place(&tensor, 1), DT_ERR_INTERNAL);
}

/* A header above what the reader accepts is refused instead of written. */
TEST(long_header)
{
    enum { N = 70000 };
    struct dt_st_tensor *tensors;
    char *head = NULL, name[DT_ST_NAME_MAX];
    size_t bytes;
    assert_ok(DT_NEW(tensors, N));
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "%0200d", i);
        declare(&tensors[i], name, DT_ST_F32, 0, 0, 0);
    }
    assert_ok(dt_st_place(tensors, N));
    assert_int_equal(dt_st_head(&head, &bytes, tensors, N, NULL, NULL), DT_ERR_INTERNAL);
    assert_null(head);
    free(tensors);
}

/* --- Bad files: malformed ones are in tests/fuzz/safetensors_cases.py --- */

TEST(no_file)
{
    struct dt_st_reader *reader;
    assert_int_equal(dt_st_open(&reader, test_dir), DT_ERR_NO_INPUT);
    unlink(at("x.safetensors"));
    assert_int_equal(dt_st_open(&reader, at("x.safetensors")), DT_ERR_NO_INPUT);
    assert_null(reader);
}

/* The file shrinks after it was opened. */
TEST(cut_later)
{
    struct dt_st_reader *reader;
    float values[2];
    save_raw(GOOD, 8);
    assert_ok(dt_st_open(&reader, at("x.safetensors")));
    assert_int_equal(truncate(at("x.safetensors"), (off_t)(8 + sizeof GOOD - 1 + 3)), 0);
    assert_int_equal(dt_st_read_f32(reader, dt_st_get(reader, 0), values), DT_ERR_DATA);
    dt_st_close(reader);
}

/* Either refused, or what is read still has the shape that was written (damage to the letters of a
 * name cannot be seen in a format without a checksum). */
static const char damage_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"}," T("conv.weight", "F32", "2,3", "0,24") "," T(
        "conv.half", "F16", "5", "24,34") "," T("conv.count", "I64", "", "34,42") "}";
enum { DAMAGE_DATA = 42 };

static void check_damaged(const struct dt_st_reader *reader)
{
    static const int64_t elements[] = {6, 5, 1};
    static const uint64_t sizes[] = {24, 10, 8};
    assert_int_equal(dt_st_count(reader), 3);
    for (size_t i = 0; i < 3; i++) {
        const struct dt_st_tensor *t = dt_st_get(reader, i);
        assert_int_equal(t->elements, elements[i]);
        assert_int_equal(t->bytes, sizes[i]);
        assert_int_equal(t->n_dims, i == 0 ? 2 : i == 1 ? 1 : 0);
    }
    assert_int_equal(dt_st_get(reader, 0)->dim[0], 2);
    assert_int_equal(dt_st_get(reader, 0)->dim[1], 3);
}

TEST(single_damage)
{
    enum { HEADER = sizeof damage_header - 1, BYTES = 8 + HEADER + DAMAGE_DATA };
    char *text;
    size_t bytes;
    struct dt_rng rng;
    save_raw(damage_header, DAMAGE_DATA);
    assert_ok(dt_file_load(&text, &bytes, at("x.safetensors"), 1 << 20));
    assert_int_equal(bytes, BYTES);
    dt_rng_init(&rng, 7, DT_RNG_SYNTHETIC, 0, 0);
    int n_refused = 0;
    for (size_t i = 0; i < 8 + HEADER; i++) {
        for (int k = 0; k < 4; k++) {
            char kept = text[i];
            text[i] = (char)(text[i] ^ (char)(1 + dt_rng_below(&rng, 255)));
            save_bytes(text, bytes);
            struct dt_st_reader *reader;
            dt_status status = dt_st_open(&reader, at("x.safetensors"));
            if (i < 8 || status != DT_OK)
                assert_int_equal(status, DT_ERR_DATA);
            else
                check_damaged(reader);
            n_refused += status != DT_OK;
            dt_st_close(reader);
            text[i] = kept;
        }
    }
    assert_true(n_refused > HEADER);
    free(text);
}

TEST_MAIN(make_test_dir, remove_test_dir)
