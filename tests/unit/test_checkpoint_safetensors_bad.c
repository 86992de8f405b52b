/* safetensors that are missing, shrink or have one wrong byte. Malformed files are in
 * tests/fuzz/safetensors_cases.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "checkpoint/safetensors.h"
#include "safetensors_files.h"

TEST(no_file)
{
    struct dt_st_reader *reader;
    assert_int_equal(dt_st_open(&reader, folder), DT_ERR_NO_INPUT);
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

TEST_MAIN(make_folder, remove_folder)
