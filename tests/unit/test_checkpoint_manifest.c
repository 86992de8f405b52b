/* MANIFEST.json: what is printed loads again; any other text does not, whether damaged, formatted
 * differently, or made up with a correct checksum. */
#include <xxhash.h>

#include "base/mem.h"
#include "checkpoint/manifest.h"
#include "test_dir.h"
#include "test_status.h"

static void put(const char *text, size_t bytes)
{
    write_bytes("MANIFEST.json", text, bytes);
}

static void example(struct dt_manifest *m, struct dt_manifest_tensor tensors[2])
{
    *m = (struct dt_manifest){
        .step = INT64_C(9007199254740991),
        .epoch = 3,
        .batch = 7,
        .incarnation = 2,
        .config_hash = UINT64_C(0xfedcba9876543210),
        .n_ranks = 4,
        .global_batch_size = 256,
        .run_id = "run-1",
        .build_id = "0123abcd",
        .repro = "CPU \"x\" \\ 2",
        .files = {{.name = "model.safetensors",
                   .bytes = 123456,
                   .hash = {.low = 1, .high = UINT64_MAX},
                   .tensors = tensors,
                   .n_tensors = 2},
                  {.name = "state.json", .bytes = 0, .hash = {.low = UINT64_MAX, .high = 0}}},
        .n_files = 2,
    };
    tensors[0] = (struct dt_manifest_tensor){.name = "conv1.weight", .hash = 0};
    tensors[1] = (struct dt_manifest_tensor){.name = "a \"quoted\" \\ name", .hash = 5};
}

static void print_example(struct dt_jsonw *w)
{
    struct dt_manifest m;
    struct dt_manifest_tensor tensors[2];
    example(&m, tensors);
    assert_ok(dt_manifest_print(w, &m));
}

TEST(round_trip)
{
    struct dt_manifest in, out;
    struct dt_manifest_tensor tensors[2];
    struct dt_jsonw w, again;
    example(&in, tensors);
    assert_ok(dt_manifest_print(&w, &in));
    put(w.text, w.bytes);
    assert_ok(dt_manifest_load(&out, test_dir));
    assert_true(out.step == in.step && out.epoch == 3 && out.batch == 7 && out.incarnation == 2);
    assert_true(out.config_hash == in.config_hash && out.n_ranks == 4 &&
                out.global_batch_size == 256);
    assert_string_equal(out.run_id, "run-1");
    assert_string_equal(out.build_id, "0123abcd");
    assert_string_equal(out.repro, in.repro);
    assert_int_equal(out.n_files, 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(out.files[i].name, in.files[i].name);
        assert_true(out.files[i].bytes == in.files[i].bytes);
        assert_memory_equal(&out.files[i].hash, &in.files[i].hash, sizeof in.files[i].hash);
        assert_int_equal(out.files[i].n_tensors, in.files[i].n_tensors);
        assert_string_equal(out.files[0].tensors[i].name, tensors[i].name);
        assert_true(out.files[0].tensors[i].hash == tensors[i].hash);
    }
    assert_ok(dt_manifest_print(&again, &out));
    assert_string_equal(again.text, w.text);
    dt_jsonw_reset(&again);
    dt_jsonw_reset(&w);
    dt_manifest_reset(&out);
}

/* The checksum as manifest.h documents it, computed here from the text alone. */
TEST(checksum_as_documented)
{
    struct dt_jsonw w;
    char expected[64];
    print_example(&w);
    char *end = strstr(w.text, ",\n  \"checksum\": \"");
    assert_non_null(end);
    XXH128_hash_t sum = XXH3_128bits(w.text, (size_t)(end - w.text));
    snprintf(expected, sizeof expected, ",\n  \"checksum\": \"%016llx%016llx\"\n}\n",
             (unsigned long long)sum.high64, (unsigned long long)sum.low64);
    assert_string_equal(end, expected);
    dt_jsonw_reset(&w);
}

static void refused(const char *text, size_t bytes, const char *what)
{
    struct dt_manifest m;
    put(text, bytes);
    dt_status status = dt_manifest_load(&m, test_dir);
    if (status != DT_ERR_DATA)
        fail_msg("%s: %s %s", what, dt_status_name(status), dt_error_text());
    assert_int_equal(m.n_files, 0);
    assert_non_null(strstr(dt_error_text(), "MANIFEST.json"));
}

TEST(every_bit)
{
    struct dt_jsonw w;
    print_example(&w);
    for (size_t i = 0; i < 8 * w.bytes; i++) {
        w.text[i / 8] = (char)(w.text[i / 8] ^ 1 << i % 8);
        refused(w.text, w.bytes, "flipped bit");
        w.text[i / 8] = (char)(w.text[i / 8] ^ 1 << i % 8);
    }
    printf("%zu flipped bits\n", 8 * w.bytes);
    dt_jsonw_reset(&w);
}

TEST(every_length)
{
    static const char extra[] = " \n}0\0x";
    struct dt_jsonw w;
    char longer[8192];
    print_example(&w);
    assert_true(w.bytes + 2 < sizeof longer);
    for (size_t n = 0; n < w.bytes; n++)
        refused(w.text, n, "cut");
    for (size_t at = 0; at <= w.bytes; at++)
        for (size_t i = 0; i < sizeof extra; i++) {
            memcpy(longer, w.text, at);
            longer[at] = extra[i];
            memcpy(longer + at + 1, w.text + at, w.bytes - at);
            refused(longer, w.bytes + 1, "a byte more");
        }
    for (size_t at = 0; at < w.bytes; at++) {
        memcpy(longer, w.text, at);
        memcpy(longer + at, w.text + at + 1, w.bytes - at - 1);
        if (memcmp(longer, w.text, w.bytes - 1) != 0)
            refused(longer, w.bytes - 1, "a byte less");
    }
    dt_jsonw_reset(&w);
}

/* --- Made up with a correct checksum --- */

/* The example with `from` replaced by `to`, and the checksum of that. */
static void forge(char *out, size_t bytes, const char *from, const char *to)
{
    struct dt_jsonw w;
    print_example(&w);
    char *at = strstr(w.text, from);
    char *end = strstr(w.text, ",\n  \"checksum\"");
    assert_true(at && end && at < end);
    int n = snprintf(out, bytes, "%.*s%s%.*s", (int)(at - w.text), w.text, to,
                     (int)(end - at) - (int)strlen(from), at + strlen(from));
    XXH128_hash_t sum = XXH3_128bits(out, (size_t)n);
    n += snprintf(out + n, bytes - (size_t)n, ",\n  \"checksum\": \"%016llx%016llx\"\n}\n",
                  (unsigned long long)sum.high64, (unsigned long long)sum.low64);
    assert_true((size_t)n < bytes);
    dt_jsonw_reset(&w);
}

TEST(forged)
{
    static const char *const cases[][2] = {
        {"\"state.json\"", "\"../state.json\""},
        {"\"state.json\"", "\"..\""},
        {"\"state.json\"", "\".\""},
        {"\"state.json\"", "\".hidden\""},
        {"\"state.json\"", "\"/etc/passwd\""},
        {"\"state.json\"", "\"a/b\""},
        {"\"state.json\"", "\"\""},
        {"\"state.json\"", "\"a\\nb\""},
        {"\"state.json\"", "\"a\\u001bb\""},
        {"\"state.json\"", "\"a\xc3\xa4\""},
        {"\"state.json\"", "\"model.safetensors\""},
        {"\"state.json\"",
         "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""},
        {"\"state.json\": {", "\"state.json\": 5, \"x\": {"},
        {"\"conv1.weight\"", "\"conv1\\tweight\""},
        {"\"conv1.weight\"", "\"a \\\"quoted\\\" \\\\ name\""},
        {"\"0000000000000000\"", "\"000000000000000\""},
        {"\"0000000000000000\"", "\"00000000000000000\""},
        {"\"0000000000000000\"", "\"00000000 0000000\""},
        {"\"0000000000000000\"", "\"-000000000000000\""},
        {"\"0000000000000000\"", "\"000000000000000G\""},
        {"\"0000000000000000\"", "0"},
        {"ffffffffffffffff", "FFFFFFFFFFFFFFFF"},
        {"\"bytes\": 123456", "\"bytes\": -1"},
        {"\"bytes\": 123456", "\"bytes\": 123456.0"},
        {"\"bytes\": 123456", "\"bytes\": 1.5"},
        {"\"bytes\": 123456", "\"bytes\": 18446744073709551616"},
        {"\"bytes\": 123456", "\"bytes\": \"123456\""},
        {"\"bytes\": 123456,", ""},
        {"\"bytes\"", "\"\\u0062ytes\""},
        {"\"format\": 2", "\"format\": 1"},
        {"\"format\": 2", "\"format\": \"1\""},
        {"\"format\": 2", "\"format\": 2, \"other\": 1"},
        {"\"format\": 2,", ""},
        {"\"epoch\": 3", "\"epoch\": -3"},
        {"\"epoch\": 3", "\"epoch\": 3e0"},
        {"\"epoch\": 3", "\"epoch\":  3"},
        {"\"epoch\": 3,\n  \"batch\": 7", "\"batch\": 7,\n  \"epoch\": 3"},
        {"\"step\": 9007199254740991", "\"step\": 9007199254740993"},
        {"\"ranks\": 4", "\"ranks\": 4294967300"},
        {"\"run-1\"", "\"run-111111111111111111111111111111111111111111111111111111\""},
        {"\"run-1\"", "\"run\\u002d1\""},
        {"\"run-1\"", "\"run\\n1\""},
        {"\"run-1\"", "null"},
        {"\"files\": {", "\"files\": {\"x\": {}, "},
    };
    char text[8192];
    forge(text, sizeof text, "run-1", "run-2");
    struct dt_manifest m;
    put(text, strlen(text));
    assert_ok(dt_manifest_load(&m, test_dir)); /* so the checksum is right */
    assert_string_equal(m.run_id, "run-2");
    dt_manifest_reset(&m);
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        forge(text, sizeof text, cases[i][0], cases[i][1]);
        refused(text, strlen(text), cases[i][1]);
    }
}

/* --- Limits --- */

static struct dt_manifest_tensor *many(int n)
{
    struct dt_manifest_tensor *tensors = calloc((size_t)n, sizeof *tensors);
    assert_non_null(tensors);
    for (int i = 0; i < n; i++) {
        memset(tensors[i].name, '"', sizeof tensors[i].name - 1);
        int length = snprintf(tensors[i].name, sizeof tensors[i].name, "%d", i);
        tensors[i].name[length] = '"';
        tensors[i].hash = (uint64_t)i;
    }
    return tensors;
}

TEST(max_tensors)
{
    struct dt_manifest m = {0}, out;
    struct dt_jsonw w;
    for (int n = DT_MANIFEST_MAX_TENSORS; n <= DT_MANIFEST_MAX_TENSORS + 1; n++) {
        struct dt_manifest_tensor *tensors = many(n);
        m.n_files = 2;
        snprintf(m.files[0].name, sizeof m.files[0].name, "a");
        snprintf(m.files[1].name, sizeof m.files[1].name, "b");
        m.files[0].tensors = tensors;
        m.files[0].n_tensors = n / 2;
        m.files[1].tensors = tensors + n / 2;
        m.files[1].n_tensors = n - n / 2;
        dt_status status = dt_manifest_print(&w, &m);
        assert_int_equal(status, n > DT_MANIFEST_MAX_TENSORS ? DT_ERR_DATA : DT_OK);
        if (status == DT_OK) {
            put(w.text, w.bytes);
            assert_ok(dt_manifest_load(&out, test_dir));
            assert_string_equal(out.files[1].tensors[n / 2 - 1].name, tensors[n - 1].name);
            dt_manifest_reset(&out);
        }
        dt_jsonw_reset(&w);
        free(tensors);
    }
}

/* Excess size is detected before memory is allocated, and what could not be read is not printed. */
TEST(limits)
{
    static const char *const names[] = {"", "..", "a/b", ".x", "a\x01", "\xff"};
    struct dt_manifest m;
    struct dt_manifest_tensor tensors[2];
    struct dt_jsonw w;
    put("{", 1);
    assert_int_equal(truncate(at("MANIFEST.json"), INT64_C(1) << 40), 0);
    assert_error(dt_manifest_load(&m, test_dir), DT_ERR_DATA, "at most");
    for (size_t i = 0; i < DT_COUNT(names); i++) {
        example(&m, tensors);
        snprintf(m.files[1].name, sizeof m.files[1].name, "%s", names[i]);
        assert_int_equal(dt_manifest_print(&w, &m), DT_ERR_DATA);
        dt_jsonw_reset(&w);
    }
    example(&m, tensors);
    tensors[1] = tensors[0];
    assert_int_equal(dt_manifest_print(&w, &m), DT_ERR_DATA);
    dt_jsonw_reset(&w);
}

/* Names of devices may be anything; the manifest stays readable. */
TEST(odd_texts)
{
    struct dt_manifest m, out;
    struct dt_manifest_tensor tensors[2];
    struct dt_jsonw w;
    example(&m, tensors);
    memset(m.repro, 0xe4, sizeof m.repro - 1);
    snprintf(m.run_id, sizeof m.run_id, "a\nb\x7f");
    assert_ok(dt_manifest_print(&w, &m));
    put(w.text, w.bytes);
    assert_ok(dt_manifest_load(&out, test_dir));
    assert_string_equal(out.run_id, "a?b?");
    assert_int_equal(strlen(out.repro), sizeof m.repro - 1);
    dt_manifest_reset(&out);
    dt_jsonw_reset(&w);
}

TEST(absent)
{
    struct dt_manifest m;
    unlink(at("MANIFEST.json"));
    assert_int_equal(dt_manifest_load(&m, test_dir), DT_ERR_NO_INPUT);
    dt_manifest_reset(&m);
}

TEST_MAIN(make_test_dir, remove_test_dir)
