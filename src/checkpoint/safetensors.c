/* Reading: the whole header (sizes, names, contiguous offsets up to the end of the file) is checked
 * before any tensor is read; tensors are then read with pread, so a file truncated later is an
 * error and not a signal. Writing: only the header is made here, from the declared tensors. */
#include "checkpoint/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/checkpoint_internal.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

enum {
    LENGTH_BYTES = 8,
    HEADER_MAX = 16 << 20,
    TENSORS_MAX = 10000,
    HEADER_ALIGN = 8, /* with the length before it this aligns all data */
    CONVERT_ELEMENTS = 4096,
};

static const int64_t integer_max = INT64_C(1) << 53; /* exact in JSON's doubles */
static const struct dt_json_limits header_limits = {.bytes = HEADER_MAX, .n_values = 200000};

static const struct {
    const char *name;
    uint64_t bytes;
} dtypes[] = {
    [DT_ST_F32] = {"F32", 4}, [DT_ST_F16] = {"F16", 2}, [DT_ST_BF16] = {"BF16", 2},
    [DT_ST_F64] = {"F64", 8}, [DT_ST_I64] = {"I64", 8},
};

/* --- Reading --- */

struct dt_st_reader {
    int fd;
    char path[DT_PATH_MAX];
    uint64_t data_offset; /* of the first data byte in the file */
    struct dt_st_tensor *tensors;
    size_t n_tensors;
    size_t n_shared;        /* bytes of the prefix of all names, which ends in a dot */
    char *classes, *config; /* of the metadata, NULL = none */
};

static dt_status parse_dtype(struct dt_st_tensor *t, const struct dt_json *value, const char *path)
{
    if (!value || value->type != DT_JSON_STRING)
        DT_FAIL(DT_ERR_DATA, "%s: tensor \"%s\" has no dtype", path, t->name);
    for (size_t i = 0; i < DT_COUNT(dtypes); i++) {
        if (strcmp(value->string, dtypes[i].name) == 0) {
            t->dtype = (enum dt_st_dtype)i;
            return DT_OK;
        }
    }
    DT_FAIL(DT_ERR_DATA,
            "%s: tensor \"%s\" has dtype %.20s; F32, F16, BF16, F64, I64 can be read: convert it",
            path, t->name, value->string);
}

static dt_status parse_shape(struct dt_st_tensor *t, const struct dt_json *value, const char *path)
{
    if (!value || value->type != DT_JSON_ARRAY)
        DT_FAIL(DT_ERR_DATA, "%s: tensor \"%s\" has no shape", path, t->name);
    if (value->n_children > DT_ST_MAX_DIMS)
        DT_FAIL(DT_ERR_DATA, "%s: tensor \"%s\" has %d dimensions; at most %d are accepted", path,
                t->name, value->n_children, DT_ST_MAX_DIMS);
    t->elements = 1;
    for (const struct dt_json *d = value->child; d; d = d->next) {
        int64_t dim;
        if (!dt_json_integer(d, 0, integer_max, &dim))
            DT_FAIL(DT_ERR_DATA, "%s: dimension %d of tensor \"%s\" is not a size", path, t->n_dims,
                    t->name);
        if (__builtin_mul_overflow(t->elements, (uint64_t)dim, &t->elements))
            DT_FAIL(DT_ERR_DATA, "%s: the dimensions of tensor \"%s\" overflow", path, t->name);
        t->dim[t->n_dims++] = dim;
    }
    if (__builtin_mul_overflow(t->elements, dtypes[t->dtype].bytes, &t->bytes))
        DT_FAIL(DT_ERR_DATA, "%s: the size of tensor \"%s\" overflows", path, t->name);
    return DT_OK;
}

static dt_status parse_tensor(struct dt_st_tensor *t, const struct dt_json *entry, const char *path)
{
    if (strlen(entry->key) >= DT_ST_NAME_MAX)
        DT_FAIL(DT_ERR_DATA, "%s: tensor name \"%.40s...\" has more than %d bytes", path,
                entry->key, DT_ST_NAME_MAX - 1);
    snprintf(t->name, sizeof t->name, "%s", entry->key);
    if (entry->type != DT_JSON_OBJECT || entry->n_children != 3)
        DT_FAIL(DT_ERR_DATA, "%s: tensor \"%s\" must have dtype, shape and data_offsets, no more",
                path, t->name);
    DT_TRY(parse_dtype(t, dt_json_get(entry, "dtype"), path));
    DT_TRY(parse_shape(t, dt_json_get(entry, "shape"), path));
    const struct dt_json *offsets = dt_json_get(entry, "data_offsets");
    int64_t begin, end;
    if (!offsets || offsets->type != DT_JSON_ARRAY || offsets->n_children != 2 ||
        !dt_json_integer(offsets->child, 0, integer_max, &begin) ||
        !dt_json_integer(offsets->child->next, begin, integer_max, &end))
        DT_FAIL(DT_ERR_DATA, "%s: tensor \"%s\" has no valid data_offsets", path, t->name);
    if ((uint64_t)(end - begin) != t->bytes)
        DT_FAIL(DT_ERR_DATA,
                "%s: tensor \"%s\" occupies %" PRId64 " bytes, but its shape needs %" PRIu64, path,
                t->name, end - begin, t->bytes);
    t->offset = (uint64_t)begin;
    return DT_OK;
}

static dt_status read_metadata(struct dt_st_reader *r, const struct dt_json *metadata)
{
    const struct dt_json *classes = dt_json_get(metadata, "classes");
    const struct dt_json *config = dt_json_get(metadata, "config");
    if (metadata->type != DT_JSON_OBJECT)
        DT_FAIL(DT_ERR_DATA, "%s: __metadata__ is not an object", r->path);
    for (const struct dt_json *m = metadata->child; m; m = m->next) {
        if (m->type != DT_JSON_STRING)
            DT_FAIL(DT_ERR_DATA, "%s: \"%s\" in __metadata__ is not a string", r->path, m->key);
    }
    if (classes)
        DT_TRY(dt_mem_copy_text(&r->classes, classes->string));
    if (config)
        DT_TRY(dt_mem_copy_text(&r->config, config->string));
    return DT_OK;
}

/* Empty tensors share their offset with the next one and come first. */
static int compare_offsets(const void *left, const void *right)
{
    const struct dt_st_tensor *a = left, *b = right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static size_t shared_prefix(const struct dt_st_reader *r)
{
    const char *first = r->n_tensors > 0 ? r->tensors[0].name : "";
    size_t n = strlen(first);
    for (size_t i = 0; i < r->n_tensors; i++)
        while (strncmp(r->tensors[i].name, first, n) != 0)
            n--;
    while (n > 0 && first[n - 1] != '.')
        n--;
    return n;
}

static dt_status parse_header(struct dt_st_reader *r, const struct dt_json *root,
                              uint64_t data_bytes)
{
    if (root->type != DT_JSON_OBJECT)
        DT_FAIL(DT_ERR_DATA, "%s: the header is not an object", r->path);
    if (root->n_children > TENSORS_MAX)
        DT_FAIL(DT_ERR_DATA, "%s: the header has %d entries; at most %d are accepted", r->path,
                root->n_children, TENSORS_MAX);
    DT_TRY(DT_NEW(r->tensors, (size_t)root->n_children));
    for (const struct dt_json *entry = root->child; entry; entry = entry->next) {
        if (strcmp(entry->key, "__metadata__") == 0)
            DT_TRY(read_metadata(r, entry));
        else
            DT_TRY(parse_tensor(&r->tensors[r->n_tensors++], entry, r->path));
    }
    qsort(r->tensors, r->n_tensors, sizeof *r->tensors, compare_offsets);
    r->n_shared = shared_prefix(r);
    uint64_t end = 0;
    for (size_t i = 0; i < r->n_tensors; i++) {
        const struct dt_st_tensor *t = &r->tensors[i];
        if (t->offset != end)
            DT_FAIL(DT_ERR_DATA,
                    "%s: tensor \"%s\" begins at byte %" PRIu64 " of the data, not at %" PRIu64
                    " where the one before it ends",
                    r->path, t->name, t->offset, end);
        end += t->bytes; /* at most 2^53: checked by parse_tensor */
    }
    if (end != data_bytes)
        DT_FAIL(DT_ERR_DATA, "%s has %" PRIu64 " bytes of data, but its header describes %" PRIu64,
                r->path, data_bytes, end);
    return DT_OK;
}

static dt_status read_header(struct dt_st_reader *r, uint64_t file_bytes)
{
    uint64_t length;
    char *text = NULL;
    struct dt_json_doc *doc = NULL;
    dt_status status = DT_OK;
    if (file_bytes < LENGTH_BYTES)
        DT_FAIL(DT_ERR_DATA, "%s is too short for a safetensors file", r->path);
    DT_TRY(dt_file_pread(r->fd, &length, sizeof length, 0, r->path));
    if (length > HEADER_MAX)
        return dt_foreign_refuse(r->fd, file_bytes, r->path);
    if (length > file_bytes - LENGTH_BYTES)
        DT_FAIL(DT_ERR_DATA,
                "%s is cut off or not a safetensors file: a header of %" PRIu64
                " bytes in a file of %" PRIu64,
                r->path, length, file_bytes);
    r->data_offset = LENGTH_BYTES + length;
    DT_TRY(DT_NEW(text, (size_t)length + 1));
    DT_TRY_OUT(dt_file_pread(r->fd, text, (size_t)length, LENGTH_BYTES, r->path));
    if (text[0] != '{')
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "%s: the header does not begin with {", r->path));
    DT_TRY_OUT(dt_json_parse(&doc, text, (size_t)length, r->path, &header_limits));
    DT_TRY_OUT(parse_header(r, dt_json_root(doc), file_bytes - r->data_offset));
out:
    dt_json_destroy(doc);
    free(text);
    return status;
}

dt_status dt_st_open(struct dt_st_reader **reader, const char *path)
{
    struct dt_st_reader *r = NULL;
    uint64_t file_bytes = 0;
    dt_status status = DT_OK;
    *reader = NULL;
    DT_TRY(DT_NEW(r, 1));
    r->fd = -1;
    DT_TRY_OUT(dt_file_path(r->path, "%s", path));
    DT_TRY_OUT(dt_file_open(&r->fd, &file_bytes, path));
    DT_TRY_OUT(read_header(r, file_bytes));
    *reader = r;
    return DT_OK;
out:
    dt_st_close(r);
    return status;
}

void dt_st_close(struct dt_st_reader *reader)
{
    if (!reader)
        return;
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader->tensors);
    free(reader->classes);
    free(reader->config);
    free(reader);
}

const char *dt_st_classes(const struct dt_st_reader *reader)
{
    return reader->classes;
}

const char *dt_st_config(const struct dt_st_reader *reader)
{
    return reader->config;
}

size_t dt_st_count(const struct dt_st_reader *reader)
{
    return reader->n_tensors;
}

const struct dt_st_tensor *dt_st_get(const struct dt_st_reader *reader, size_t index)
{
    return &reader->tensors[index];
}

const struct dt_st_tensor *dt_st_find(const struct dt_st_reader *reader, const char *name)
{
    const struct dt_st_tensor *prefixed = NULL;
    const size_t bytes = strlen(name);
    for (size_t i = 0; i < reader->n_tensors; i++) {
        const struct dt_st_tensor *t = &reader->tensors[i];
        const size_t all = strlen(t->name), before = all > bytes ? all - bytes : 0;
        if (strcmp(t->name + before, name) != 0)
            continue;
        if (before == 0)
            return t;
        if (before <= reader->n_shared && t->name[before - 1] == '.')
            prefixed = t;
    }
    return prefixed;
}

static dt_status read_converted(struct dt_st_reader *r, const struct dt_st_tensor *t, float *out)
{
    union {
        uint16_t half[CONVERT_ELEMENTS];
        double wide[CONVERT_ELEMENTS];
    } raw;
    const size_t each = dtypes[t->dtype].bytes;
    for (uint64_t done = 0; done < t->elements;) {
        uint64_t left = t->elements - done;
        size_t n = left < CONVERT_ELEMENTS ? (size_t)left : CONVERT_ELEMENTS;
        uint64_t at = r->data_offset + t->offset + done * each;
        DT_TRY(dt_file_pread(r->fd, &raw, n * each, at, r->path));
        for (size_t i = 0; i < n; i++)
            out[done + i] = t->dtype == DT_ST_F64   ? (float)raw.wide[i]
                            : t->dtype == DT_ST_F16 ? dt_fp16_to_float(raw.half[i])
                                                    : dt_bf16_to_float(raw.half[i]);
        done += n;
    }
    return DT_OK;
}

dt_status dt_st_read_f32(struct dt_st_reader *reader, const struct dt_st_tensor *t, float *out)
{
    if (t->dtype == DT_ST_I64)
        DT_FAIL(DT_ERR_DATA, "%s: tensor \"%s\" is I64, but floating point is needed", reader->path,
                t->name);
    if (t->dtype != DT_ST_F32)
        return read_converted(reader, t, out);
    return dt_file_pread(reader->fd, out, (size_t)t->bytes, reader->data_offset + t->offset,
                         reader->path);
}

dt_status dt_st_read_i64(struct dt_st_reader *reader, const struct dt_st_tensor *t, void *out)
{
    return dt_file_pread(reader->fd, out, (size_t)t->bytes, reader->data_offset + t->offset,
                         reader->path);
}

/* --- Writing --- */

dt_status dt_st_place(struct dt_st_tensor *tensors, size_t n_tensors)
{
    uint64_t end = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        struct dt_st_tensor *t = &tensors[i];
        if ((t->dtype != DT_ST_F32 && t->dtype != DT_ST_I64) || t->n_dims < 0 ||
            t->n_dims > DT_ST_MAX_DIMS || strcmp(t->name, "__metadata__") == 0)
            DT_FAIL(DT_ERR_INTERNAL, "tensor \"%s\" cannot be written to a safetensors file",
                    t->name);
        t->elements = 1;
        for (int d = 0; d < t->n_dims; d++)
            if (t->dim[d] < 0 || t->dim[d] > integer_max ||
                __builtin_mul_overflow(t->elements, (uint64_t)t->dim[d], &t->elements))
                DT_FAIL(DT_ERR_INTERNAL, "the dimensions of tensor \"%s\" overflow", t->name);
        t->offset = end;
        if (__builtin_mul_overflow(t->elements, dtypes[t->dtype].bytes, &t->bytes) ||
            __builtin_add_overflow(end, t->bytes, &end) || end > (uint64_t)integer_max)
            DT_FAIL(DT_ERR_INTERNAL, "too many bytes up to tensor \"%s\"", t->name);
    }
    return DT_OK;
}

static void put_header(struct dt_jsonw *json, const struct dt_st_tensor *tensors, size_t n,
                       const char *classes, const char *config)
{
    /* Without the format transformers refuses the file. */
    dt_jsonw_add(json, "{__metadata__: {format: %s", "pt");
    if (classes)
        dt_jsonw_string(json, "classes", classes);
    if (config)
        dt_jsonw_string(json, "config", config);
    dt_jsonw_close(json, '}');
    for (size_t i = 0; i < n; i++) {
        const struct dt_st_tensor *t = &tensors[i];
        dt_jsonw_begin(json, t->name, '{');
        dt_jsonw_add(json, "dtype: %s, shape: [", dtypes[t->dtype].name);
        for (int d = 0; d < t->n_dims; d++)
            dt_jsonw_integer(json, NULL, t->dim[d]);
        dt_jsonw_add(json, "], data_offsets: [%zu, %zu]}", t->offset, t->offset + t->bytes);
    }
    dt_jsonw_close(json, '}');
}

dt_status dt_st_head(char **head, size_t *bytes, const struct dt_st_tensor *tensors,
                     size_t n_tensors, const char *classes, const char *config)
{
    struct dt_jsonw json = {0};
    dt_status status = DT_OK;
    put_header(&json, tensors, n_tensors, classes, config);
    DT_TRY_OUT(dt_jsonw_end(&json));
    uint64_t length = (json.bytes + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
    if (length > HEADER_MAX)
        DT_TRY_OUT(DT_ERROR(DT_ERR_INTERNAL,
                            "a safetensors header of %" PRIu64 " bytes is above the limit %d",
                            length, HEADER_MAX));
    *bytes = LENGTH_BYTES + (size_t)length;
    DT_TRY_OUT(DT_NEW(*head, *bytes));
    memcpy(*head, &length, LENGTH_BYTES);
    memset(*head + LENGTH_BYTES, ' ', (size_t)length);
    memcpy(*head + LENGTH_BYTES, json.text, json.bytes);
out:
    dt_jsonw_reset(&json);
    return status;
}
