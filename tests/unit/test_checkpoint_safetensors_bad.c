/* safetensors that must be refused: malformed files one by one, cut files, random damage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "checkpoint/safetensors.h"
#include "safetensors_files.h"

/* --- Malformed files --- */

struct bad_file {
    const char *what, *header;
    size_t data_bytes;
    int64_t length; /* stated; 0: the true one */
};

static const struct bad_file bad_files[] = {
    {"header longer than the file", GOOD, 8, 1000},
    {"header of 2^63 bytes", GOOD, 8, INT64_MAX},
    {"header above the limit", GOOD, 8, (16 << 20) + 1},
    {"header ends in the middle", GOOD, 8, 20},
    {"header reaches into the data", GOOD, 8, sizeof GOOD - 1 + 4},
    {"trailing bytes", GOOD, 9, 0},
    {"data cut", GOOD, 7, 0},
    {"no data", GOOD, 0, 0},
    {"overlap", "{" T("a", "F32", "2", "0,8") "," T("b", "F32", "2", "4,12") "}", 12, 0},
    {"same place twice", "{" T("a", "F32", "2", "0,8") "," T("b", "F32", "2", "0,8") "}", 8, 0},
    {"gap", "{" T("a", "F32", "2", "0,8") "," T("b", "F32", "2", "12,20") "}", 20, 0},
    {"gap at the beginning", "{" T("a", "F32", "2", "4,12") "}", 12, 0},
    {"size larger than the shape", "{" T("a", "F32", "2", "0,12") "}", 12, 0},
    {"size smaller than the shape", "{" T("a", "F32", "2", "0,4") "}", 4, 0},
    {"size of another type", "{" T("a", "I64", "2", "0,8") "}", 8, 0},
    {"offsets reversed", "{" T("a", "F32", "2", "8,0") "}", 8, 0},
    {"product overflows to 0", "{" T("a", "F32", "4294967296,4294967296", "0,0") "}", 0, 0},
    {"bytes overflow to 0", "{" T("a", "F32", "4294967296,1073741824", "0,0") "}", 0, 0},
    {"dimension above 2^53", "{" T("a", "F32", "0,18014398509481984", "0,0") "}", 0, 0},
    {"dimension of 1e400", "{" T("a", "F32", "1e400", "0,8") "}", 8, 0},
    {"negative dimension", "{" T("a", "F32", "-2", "0,8") "}", 8, 0},
    {"two negative dimensions", "{" T("a", "F32", "-1,-2", "0,8") "}", 8, 0},
    {"fractional dimension", "{" T("a", "F32", "2.5", "0,10") "}", 10, 0},
    {"dimension is a string", "{" T("a", "F32", "\"2\"", "0,8") "}", 8, 0},
    {"nine dimensions", "{" T("a", "F32", "1,1,1,1,1,1,1,1,2", "0,8") "}", 8, 0},
    {"duplicate names", "{" T("a", "F32", "2", "0,8") "," T("a", "F32", "2", "8,16") "}", 16, 0},
    {"duplicate dtype",
     "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, 0},
    {"unknown dtype", "{" T("a", "F31", "2", "0,8") "}", 8, 0},
    {"dtype in small letters", "{" T("a", "f32", "2", "0,8") "}", 8, 0},
    {"dtype not supported", "{" T("a", "U8", "8", "0,8") "}", 8, 0},
    {"dtype is a number", "{\"a\":{\"dtype\":32,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, 0},
    {"dtype missing", "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, 0},
    {"shape missing", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, 0},
    {"offsets missing", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, 0},
    {"key in place of another", "{\"a\":{\"dtype\":\"F32\",\"Shape\":[2],\"data_offsets\":[0,8]}}",
     8, 0},
    {"one key more", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8,
     0},
    {"fractional offsets", "{" T("a", "F32", "2", "0,8.5") "}", 8, 0},
    {"negative offsets", "{" T("a", "F32", "2", "-8,0") "}", 8, 0},
    {"one offset", "{" T("a", "F32", "2", "8") "}", 8, 0},
    {"three offsets", "{" T("a", "F32", "2", "0,8,8") "}", 8, 0},
    {"offset null", "{" T("a", "F32", "2", "null,8") "}", 8, 0},
    {"tensor is an array", "{\"a\":[2,0,8]}", 8, 0},
    {"tensor is null", "{\"a\":null}", 0, 0},
    {"header is an array", "[]", 0, 0},
    {"header is a string", "\"{}\"", 0, 0},
    {"header begins with a space", " {}", 0, 0},
    {"header is empty", "", 0, 0},
    {"bracket missing", "{" T("a", "F32", "2", "0,8"), 8, 0},
    {"text after the object", "{}x", 0, 0},
    {"comma at the end", "{" T("a", "F32", "2", "0,8") ",}", 8, 0},
    {"bad UTF-8 in a name", "{" T("a\xff", "F32", "2", "0,8") "}", 8, 0},
    {"NUL in a name", "{" T("a\\u0000", "F32", "2", "0,8") "}", 8, 0},
    {"metadata is a string", "{\"__metadata__\":\"pt\"}", 0, 0},
    {"metadata with a number", "{\"__metadata__\":{\"format\":1}}", 0, 0},
    {"metadata with an object", "{\"__metadata__\":{\"format\":{}}}", 0, 0},
};

TEST(malformed)
{
    struct dt_st_reader *reader;
    save_raw(-1, GOOD, 8); /* the table's starting point is accepted */
    assert_ok(dt_st_open(&reader, path));
    dt_st_close(reader);
    for (size_t i = 0; i < DT_COUNT(bad_files); i++) {
        const struct bad_file *bad = &bad_files[i];
        save_raw(bad->length ? bad->length : -1, bad->header, bad->data_bytes);
        dt_error_clear();
        dt_status status = dt_st_open(&reader, path);
        if (status != DT_ERR_DATA || !strstr(dt_error_text(), path) || reader)
            fail_msg("%s: status %d, text \"%s\"", bad->what, (int)status, dt_error_text());
    }
}

/* What people give instead: the message names it, and the command that converts it. */
TEST(foreign)
{
    static const struct {
        const char *head, *what;
        size_t at; /* of `head`, after letters */
    } files[] = {
        {"PK\3\4\n\n\n\narchive/data.pkl", "a file of PyTorch", 0},
        {"\x80\2\x8a\nl\xfc\x9c\x46", "a pickle of Python", 0},
        {"PK\3\4\n\n\n\nweights.npy", "NumPy's .npz archive", 0},
        {"PK\3\4\n\n\n\nmetadata.json", "a model of Keras", 0},
        {"PK\3\4\n\n\n\nreadme.txt", "a zip archive", 0},
        {"\x89HDF\r\n\x1a\n", "an HDF5 file", 0},
        {"\b\7\x12\7pytorch", "a model in ONNX", 0},
        {"\x1f\x8b\b\b", "compressed with gzip", 0},
        {"ustar", "a tar archive", 257},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull", 0},
        {"<!DOCTYPE html>\n<html>", "a web page", 0},
        {"something else", "does not begin with the length of a header", 0},
    };
    struct dt_st_reader *reader;
    char convert[3 * DT_PATH_MAX];
    snprintf(convert, sizeof convert, "scripts/to_safetensors.py %s %s", path, path);
    for (size_t i = 0; i < DT_COUNT(files); i++) {
        char block[600];
        memset(block, 'n', sizeof block);
        memcpy(block + files[i].at, files[i].head, strlen(files[i].head));
        save_bytes(block, sizeof block);
        assert_int_equal(dt_st_open(&reader, path), DT_ERR_DATA);
        if (!strstr(dt_error_text(), files[i].what) ||
            (i < 2) != (strstr(dt_error_text(), convert) != NULL))
            fail_msg("%s: \"%s\"", files[i].what, dt_error_text());
    }
}

TEST(long_name)
{
    char header[400], name[DT_ST_NAME_MAX + 1];
    struct dt_st_reader *reader;
    for (size_t n = DT_ST_NAME_MAX - 1; n <= DT_ST_NAME_MAX; n++) {
        memset(name, 'n', n);
        name[n] = '\0';
        snprintf(header, sizeof header,
                 "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", name);
        save_raw(-1, header, 8);
        assert_int_equal(dt_st_open(&reader, path), n < DT_ST_NAME_MAX ? DT_OK : DT_ERR_DATA);
        dt_st_close(reader);
    }
}

/* All header entries are parsed, so their number is limited. */
TEST(many_tensors)
{
    enum { LIMIT = 10000, ENTRY = 64 };
    struct dt_st_reader *reader;
    char *block = malloc(8 + (LIMIT + 1) * ENTRY);
    assert_non_null(block);
    for (int n = LIMIT; n <= LIMIT + 1; n++) {
        char *end = block + 8;
        for (int i = 0; i < n; i++)
            end += snprintf(end, ENTRY, "%c\"%d\":{\"dtype\":\"F32\",\"shape\":[0],%s}",
                            i ? ',' : '{', i, "\"data_offsets\":[0,0]");
        *end++ = '}';
        uint64_t length = (uint64_t)(end - block - 8);
        memcpy(block, &length, sizeof length);
        save_bytes(block, (size_t)(end - block));
        assert_int_equal(dt_st_open(&reader, path), n <= LIMIT ? DT_OK : DT_ERR_DATA);
        dt_st_close(reader);
    }
    assert_non_null(strstr(dt_error_text(), "at most 10000"));
    free(block);
}

TEST(short_files)
{
    struct dt_st_reader *reader;
    char *text;
    size_t bytes;
    save_raw(-1, "{" T("a", "F32", "2", "0,8") "," T("b", "I64", "1", "8,16") "}", 16);
    assert_ok(dt_file_load(&text, &bytes, path, 1 << 20));
    for (size_t n = 0; n < bytes; n++) { /* cut at every byte */
        save_bytes(text, n);
        assert_int_equal(dt_st_open(&reader, path), DT_ERR_DATA);
    }
    free(text);
    assert_int_equal(dt_st_open(&reader, folder), DT_ERR_NO_INPUT);
    unlink(path);
    assert_int_equal(dt_st_open(&reader, path), DT_ERR_NO_INPUT);
    assert_null(reader);
}

/* The file shrinks after it was opened. */
TEST(cut_later)
{
    struct dt_st_reader *reader;
    float values[2];
    save_raw(-1, GOOD, 8);
    assert_ok(dt_st_open(&reader, path));
    assert_int_equal(truncate(path, (off_t)(8 + sizeof GOOD - 1 + 3)), 0);
    assert_int_equal(dt_st_read_f32(reader, dt_st_get(reader, 0), values), DT_ERR_DATA);
    dt_st_close(reader);
}

/* --- Random damage: either refused, or what is read still has the shape that was written (damage
 * to the letters of a name cannot be seen in a format without a checksum). --- */

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
    save_raw(-1, damage_header, DAMAGE_DATA);
    assert_ok(dt_file_load(&text, &bytes, path, 1 << 20));
    assert_int_equal(bytes, BYTES);
    dt_rng_init(&rng, 7, DT_RNG_SYNTHETIC, 0, 0);
    int n_refused = 0;
    for (size_t at = 0; at < 8 + HEADER; at++) {
        for (int k = 0; k < 4; k++) {
            char kept = text[at];
            text[at] = (char)(text[at] ^ (char)(1 + dt_rng_below(&rng, 255)));
            save_bytes(text, bytes);
            struct dt_st_reader *reader;
            dt_status status = dt_st_open(&reader, path);
            if (at < 8 || status != DT_OK)
                assert_int_equal(status, DT_ERR_DATA);
            else
                check_damaged(reader);
            n_refused += status != DT_OK;
            dt_st_close(reader);
            text[at] = kept;
        }
    }
    assert_true(n_refused > HEADER);
    free(text);
}

/* Several damages at once, cut and grown files: no crash, no leak, and all that is accepted can be
 * read within the bounds of its own sizes. */
TEST(heavy_damage)
{
    char *text, damaged[1024];
    size_t bytes;
    struct dt_rng rng;
    save_raw(-1, damage_header, DAMAGE_DATA);
    assert_ok(dt_file_load(&text, &bytes, path, 1 << 20));
    dt_rng_init(&rng, 8, DT_RNG_SYNTHETIC, 0, 0);
    for (int round = 0; round < 1500; round++) {
        size_t n = bytes;
        memcpy(damaged, text, bytes);
        for (uint32_t k = dt_rng_below(&rng, 6); k > 0; k--) {
            static const char letters[] = "0123456789,:{}[]\"\\ -eE.FIB";
            size_t at = dt_rng_below(&rng, (uint32_t)n);
            damaged[at] = letters[dt_rng_below(&rng, sizeof letters - 1)];
        }
        if (dt_rng_below(&rng, 4) == 0)
            n = dt_rng_below(&rng, sizeof damaged - 1);
        memset(damaged + bytes, 'x', sizeof damaged - bytes);
        save_bytes(damaged, n);
        struct dt_st_reader *reader;
        dt_status status = dt_st_open(&reader, path);
        for (size_t i = 0; status == DT_OK && i < dt_st_count(reader); i++) {
            const struct dt_st_tensor *t = dt_st_get(reader, i);
            float *values = malloc((size_t)t->elements * sizeof *values + 1);
            assert_non_null(values);
            assert_int_equal(dt_st_read_f32(reader, t, values),
                             t->dtype == DT_ST_I64 ? DT_ERR_DATA : DT_OK);
            free(values);
        }
        assert_true(status == DT_OK || status == DT_ERR_DATA);
        dt_st_close(reader);
    }
    free(text);
}

TEST_MAIN(make_folder, remove_folder)
