/* Files of a checkpoint. First byte 'm': the rest is a MANIFEST.json; 'c': the same, after its
 * checksum has been corrected; otherwise it is a safetensors file, and every tensor is read. */
#include <inttypes.h>

#include <xxhash.h>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "fuzz.h"

static void check_tensor(struct dt_st_reader *reader, const struct dt_st_tensor *t, size_t bytes)
{
    uint64_t elements = 1;
    FUZZ_CHECK(t->n_dims >= 0 && t->n_dims <= DT_ST_MAX_DIMS);
    for (int d = 0; d < t->n_dims; d++)
        elements *= (uint64_t)t->dim[d];
    FUZZ_CHECK(elements == t->elements && t->bytes <= bytes && t->offset <= bytes - t->bytes);
    FUZZ_CHECK(dt_st_find(reader, t->name) == t);
    float *values = malloc((size_t)t->elements * sizeof *values + 1);
    FUZZ_CHECK(values);
    FUZZ_CHECK(dt_st_read_f32(reader, t, values) == (t->dtype == DT_ST_I64 ? DT_ERR_DATA : DT_OK));
    dt_error_clear();
    free(values);
}

static void read_tensors(const uint8_t *data, size_t bytes)
{
    struct dt_st_reader *reader;
    dt_status status = dt_st_open(&reader, fuzz_file(data, bytes));
    if (status != DT_OK) {
        fuzz_check_refusal(status, DT_ERR_DATA);
        FUZZ_CHECK(!reader);
        return;
    }
    fuzz_accept(dt_st_count(reader));
    for (size_t i = 0; i < dt_st_count(reader); i++)
        check_tensor(reader, dt_st_get(reader, i), bytes);
    dt_st_close(reader);
}

/* An accepted manifest prints as the same manifest. */
static void check_manifest(const struct dt_manifest *manifest)
{
    struct dt_jsonw w, w2;
    struct dt_manifest again = {0};
    fuzz_accept(1);
    FUZZ_CHECK(manifest->n_files >= 0 && manifest->n_files <= DT_MANIFEST_MAX_FILES);
    FUZZ_CHECK(dt_manifest_print(&w, manifest) == DT_OK);
    FUZZ_CHECK(dt_manifest_load(&again, fuzz_folder_file(dt_manifest_name, w.text, w.bytes)) ==
               DT_OK);
    FUZZ_CHECK(dt_manifest_print(&w2, &again) == DT_OK);
    FUZZ_CHECK(w.bytes == w2.bytes && memcmp(w.text, w2.text, w.bytes) == 0);
    dt_jsonw_reset(&w);
    dt_jsonw_reset(&w2);
    dt_manifest_reset(&again);
}

static void read_manifest(const uint8_t *data, size_t bytes)
{
    struct dt_manifest manifest = {0};
    dt_status status = dt_manifest_load(&manifest, fuzz_folder_file(dt_manifest_name, data, bytes));
    if (status == DT_OK)
        check_manifest(&manifest);
    else
        fuzz_check_refusal(status, DT_ERR_DATA);
    dt_manifest_reset(&manifest);
}

/* The checksum, the last member, covers the text before it. */
static void correct_checksum(uint8_t *text, size_t bytes)
{
    static const char key[] = ",\n  \"checksum\": \"";
    enum { KEY = sizeof key - 1, DIGITS = 32 };
    char digits[DIGITS + 1];
    for (size_t at = bytes; at-- > 0;) {
        if (bytes - at < KEY + DIGITS || memcmp(text + at, key, KEY) != 0)
            continue;
        XXH128_hash_t sum = XXH3_128bits(text, at);
        snprintf(digits, sizeof digits, "%016" PRIx64 "%016" PRIx64, sum.high64, sum.low64);
        memcpy(text + at + KEY, digits, DIGITS);
        return;
    }
}

static void read_corrected(const uint8_t *data, size_t bytes)
{
    uint8_t *text = malloc(bytes + 1);
    FUZZ_CHECK(text);
    memcpy(text, data, bytes);
    correct_checksum(text, bytes);
    read_manifest(text, bytes);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    if (data[0] == 'm')
        read_manifest(data + 1, bytes - 1);
    else if (data[0] == 'c')
        read_corrected(data + 1, bytes - 1);
    else
        read_tensors(data + 1, bytes - 1);
    return 0;
}
