/* A file is a 128-byte header followed by elements: a tag (type, bytes), then data padded to 8
 * bytes. Data of at most 4 bytes may be stored in the tag. A variable is an element of type matrix,
 * usually wrapped in a zlib-compressed element. A matrix consists of elements itself: flags, sizes,
 * name, contents. A struct array has a matrix for every field of every element. */
#include "pack/mat5.h"

#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/mem.h"

enum {
    HEADER_BYTES = 128,
    MAX_VARIABLE = 64 << 20,
    MAX_ELEMENTS = 10000,
    MAX_FIELDS = 256,
    TYPE_MATRIX = 14,
    TYPE_COMPRESSED = 15,
    CLASS_STRUCT = 2
};

/* The unread rest of a buffer. */
struct cursor {
    const uint8_t *at;
    size_t left;
};

struct element {
    uint32_t type;
    const uint8_t *data;
    size_t bytes;
};

static uint32_t u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Reads the next element; compressed ones are not padded. False if it extends past the end. */
static bool next_element(struct cursor *cursor, struct element *element)
{
    if (cursor->left < 8)
        return false;
    const uint32_t word = u32(cursor->at);
    const bool is_small = word >> 16 != 0;
    const size_t head = is_small ? 4 : 8;
    element->type = is_small ? word & 0xffff : word;
    element->bytes = is_small ? word >> 16 : u32(cursor->at + 4);
    element->data = cursor->at + head;
    if (element->bytes > (is_small ? 4 : cursor->left - 8))
        return false;
    size_t used = is_small ? 8 : 8 + element->bytes;
    if (element->type != TYPE_COMPRESSED)
        used = (used + 7) / 8 * 8;
    used = used < cursor->left ? used : cursor->left; /* the last one need not be padded */
    cursor->at += used;
    cursor->left -= used;
    return true;
}

/* The elements at the start of every matrix. */
struct matrix {
    unsigned class;
    uint64_t n; /* product of the sizes */
    struct element name;
    struct cursor contents;
};

static bool open_matrix(struct matrix *matrix, const uint8_t *data, size_t bytes)
{
    struct element flags, sizes;
    *matrix = (struct matrix){.n = 1, .contents = {data, bytes}};
    if (!next_element(&matrix->contents, &flags) || flags.bytes != 8 ||
        !next_element(&matrix->contents, &sizes) || sizes.bytes < 8 || sizes.bytes % 4 != 0 ||
        !next_element(&matrix->contents, &matrix->name))
        return false;
    matrix->class = flags.data[0];
    for (size_t i = 0; i < sizes.bytes; i += 4) {
        const uint32_t size = u32(sizes.data + i);
        if (size > MAX_VARIABLE || matrix->n * size > MAX_VARIABLE)
            return false;
        matrix->n *= size;
    }
    return true;
}

/* --- Finding the variable --- */

/* Inflates into array->data piece by piece, as the size is not stored in the file. */
static dt_status inflate_all(struct dt_mat_struct *array, const struct element *packed)
{
    dt_status status = DT_OK;
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)packed->data,
                       .avail_in = (uInt)packed->bytes};
    void *block = array->data;
    size_t capacity = 0;
    int result;

    array->bytes = 0;
    if (inflateInit(&stream) != Z_OK)
        DT_FAIL(DT_ERR_MEMORY, "out of memory: cannot decompress");
    do {
        if (array->bytes >= MAX_VARIABLE)
            DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "a variable has more than %d bytes", MAX_VARIABLE));
        DT_TRY_OUT(dt_mem_grow(&block, &capacity, array->bytes + 65536, 1, "a variable"));
        array->data = block;
        stream.next_out = array->data + array->bytes;
        stream.avail_out = (uInt)(capacity - array->bytes);
        result = inflate(&stream, Z_NO_FLUSH);
        array->bytes = capacity - stream.avail_out;
    } while (result == Z_OK);
    if (result != Z_STREAM_END)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DATA, "compressed data are damaged or truncated"));
out:
    inflateEnd(&stream);
    return status;
}

static dt_status unpack(struct dt_mat_struct *array, const struct element *element,
                        struct element *out)
{
    if (element->type == TYPE_COMPRESSED) {
        free(array->data);
        array->data = NULL;
        DT_TRY(inflate_all(array, element));
        struct cursor cursor = {array->data, array->bytes};
        if (!next_element(&cursor, out))
            DT_FAIL(DT_ERR_DATA, "a compressed variable is damaged");
        return DT_OK;
    }
    *out = *element;
    return DT_OK;
}

static dt_status find_variable(struct dt_mat_struct *array, struct matrix *matrix,
                               struct cursor file, const char *name)
{
    struct element element, variable;

    while (file.left > 0) {
        if (!next_element(&file, &element))
            DT_FAIL(DT_ERR_DATA, "an element extends past the end of the file");
        DT_TRY(unpack(array, &element, &variable));
        if (variable.type == TYPE_MATRIX && open_matrix(matrix, variable.data, variable.bytes) &&
            matrix->name.bytes == strlen(name) &&
            memcmp(matrix->name.data, name, matrix->name.bytes) == 0)
            return DT_OK;
    }
    DT_FAIL(DT_ERR_DATA, "it has no variable named %s", name);
}

/* --- The struct --- */

static dt_status read_field_names(struct dt_mat_struct *array, struct cursor *cursor)
{
    struct element length, names;

    if (!next_element(cursor, &length) || length.bytes != 4 || !next_element(cursor, &names))
        DT_FAIL(DT_ERR_DATA, "the field names are damaged");
    const uint32_t width = u32(length.data);
    if (width < 1 || width > sizeof array->fields[0] || names.bytes % width != 0 ||
        names.bytes / width > MAX_FIELDS)
        DT_FAIL(DT_ERR_DATA, "the field names are damaged");
    array->n_fields = (uint32_t)(names.bytes / width);
    DT_TRY(DT_NEW(array->fields, array->n_fields));
    for (uint32_t i = 0; i < array->n_fields; i++)
        memcpy(array->fields[i], names.data + (size_t)i * width, width - 1);
    return DT_OK;
}

static dt_status read_cells(struct dt_mat_struct *array, struct cursor *cursor)
{
    const size_t n = (size_t)array->n_elements * array->n_fields;
    struct element element;

    if (n > cursor->left / 8)
        DT_FAIL(DT_ERR_DATA, "the struct array is truncated");
    DT_TRY(DT_NEW(array->cells, n));
    for (size_t i = 0; i < n; i++) {
        if (!next_element(cursor, &element) || element.type != TYPE_MATRIX)
            DT_FAIL(DT_ERR_DATA, "field %zu of the struct array is damaged or truncated", i);
        array->cells[i] = (struct dt_mat_cell){element.data, element.bytes};
    }
    return DT_OK;
}

dt_status dt_mat_load(struct dt_mat_struct *array, const uint8_t *file, size_t bytes,
                      const char *name)
{
    struct matrix matrix;

    if (bytes < HEADER_BYTES || file[126] != 'I' || file[127] != 'M')
        DT_FAIL(DT_ERR_DATA, "it is not a little-endian MATLAB 5 file");
    DT_TRY(find_variable(array, &matrix, (struct cursor){file + HEADER_BYTES, bytes - HEADER_BYTES},
                         name));
    if (matrix.class != CLASS_STRUCT || matrix.n > MAX_ELEMENTS)
        DT_FAIL(DT_ERR_DATA, "%s is not a struct array of at most %d elements", name, MAX_ELEMENTS);
    array->n_elements = (uint32_t)matrix.n;
    DT_TRY(read_field_names(array, &matrix.contents));
    DT_TRY(read_cells(array, &matrix.contents));
    return DT_OK;
}

void dt_mat_reset(struct dt_mat_struct *array)
{
    free(array->data);
    free(array->fields);
    free(array->cells);
    *array = (struct dt_mat_struct){0};
}

int dt_mat_field(const struct dt_mat_struct *array, const char *name)
{
    for (uint32_t i = 0; i < array->n_fields; i++)
        if (strcmp(array->fields[i], name) == 0)
            return (int)i;
    return -1;
}

/* --- Cells --- */

/* Numbers are stored in the smallest type that holds all values of the array. */
#define NUMBER(type)                                      \
    static double read_##type(const uint8_t *at)          \
    {                                                     \
        type value;                                       \
        memcpy(&value, at, sizeof value); /* unaligned */ \
        return (double)value;                             \
    }
NUMBER(int8_t)
NUMBER(uint8_t)
NUMBER(int16_t)
NUMBER(uint16_t)
NUMBER(int32_t)
NUMBER(uint32_t)
NUMBER(float)
NUMBER(double)

static const struct {
    size_t bytes;
    double (*read)(const uint8_t *at);
} number_types[] = {
    [1] = {1, read_int8_t},    [2] = {1, read_uint8_t}, [3] = {2, read_int16_t},
    [4] = {2, read_uint16_t},  [5] = {4, read_int32_t}, [6] = {4, read_uint32_t},
    [7] = {4, read_float},     [9] = {8, read_double},  [16] = {1, read_uint8_t}, /* UTF-8 */
    [17] = {2, read_uint16_t},                                                    /* UTF-16 */
};

/* Value i of a cell; false if the cell has no such value. */
static bool value_at(const struct element *values, size_t i, double *out)
{
    if (values->type >= DT_COUNT(number_types) || !number_types[values->type].read)
        return false;
    const size_t size = number_types[values->type].bytes;
    if (i >= values->bytes / size)
        return false;
    *out = number_types[values->type].read(values->data + i * size);
    return true;
}

static bool open_cell(const struct dt_mat_struct *array, uint32_t element, int field, uint64_t *n,
                      struct element *values)
{
    const struct dt_mat_cell *cell =
        &array->cells[(size_t)element * array->n_fields + (size_t)field];
    struct matrix matrix;
    if (!open_matrix(&matrix, cell->data, cell->bytes))
        return false;
    *n = matrix.n;
    return next_element(&matrix.contents, values);
}

bool dt_mat_number(const struct dt_mat_struct *array, uint32_t element, int field, double *out)
{
    struct element values;
    uint64_t n;
    return open_cell(array, element, field, &n, &values) && n == 1 && value_at(&values, 0, out);
}

bool dt_mat_text(const struct dt_mat_struct *array, uint32_t element, int field, char *out,
                 size_t bytes)
{
    struct element values;
    uint64_t n;
    double value;

    if (!open_cell(array, element, field, &n, &values) || n < 1 || n >= bytes)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!value_at(&values, i, &value) || !(value >= 0x20 && value <= 0x7e))
            return false;
        out[i] = (char)value;
    }
    out[n] = 0;
    return true;
}
