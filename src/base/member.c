#include "base/member.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define NUMBER_LIST(X) \
    X(BOOL, bool)      \
    X(INT, int) X(CHOICE, int) X(INT64, int64_t) X(UINT64, uint64_t) X(FLOAT, float) X(REAL, double)

double dt_member_number(enum dt_member_type type, const void *field)
{
#define GET(NAME, c_type)  \
    case DT_MEMBER_##NAME: \
        return (double)*(const c_type *)field;
    switch (type) {
        NUMBER_LIST(GET)
    default:
        return NAN;
    }
}

void dt_member_set_number(enum dt_member_type type, void *field, double value)
{
#define SET(NAME, c_type)                 \
    case DT_MEMBER_##NAME:                \
        *(c_type *)field = (c_type)value; \
        break;
    switch (type) {
        NUMBER_LIST(SET)
    default:
        break;
    }
}

void dt_hash_write(char out[DT_HASH_DIGITS + 1], uint64_t hash)
{
    snprintf(out, DT_HASH_DIGITS + 1, "%016" PRIx64, hash);
}

bool dt_hash_read(uint64_t *out, const char *digits)
{
    static const char all[] = "0123456789abcdef";
    *out = 0;
    for (int i = 0; i < DT_HASH_DIGITS; i++) {
        const char *digit = digits[i] ? strchr(all, digits[i]) : NULL;
        if (!digit)
            return false;
        *out = *out << 4 | (uint64_t)(digit - all);
    }
    return true;
}

/* --- JSON --- */

static bool is_real(const struct dt_member *row)
{
    return row->type == DT_MEMBER_REAL || row->type == DT_MEMBER_FLOAT;
}

static void write_one(struct dt_jsonw *w, const struct dt_member *row, const void *field)
{
    char hash[DT_HASH_DIGITS + 1];
    const char *text = NULL;
    if (row->type == DT_MEMBER_TEXT)
        text = field;
    else if (row->type == DT_MEMBER_CHOICE)
        text = row->choices[*(const int *)field];
    else if (row->type == DT_MEMBER_HASH)
        dt_hash_write(hash, *(const uint64_t *)field);
    if (text || row->type == DT_MEMBER_HASH)
        dt_jsonw_string(w, row->name, text ? text : hash);
    else if (row->type == DT_MEMBER_BOOL)
        dt_jsonw_bool(w, row->name, *(const bool *)field);
    else if (is_real(row))
        dt_jsonw_number(w, row->name, dt_member_number(row->type, field));
    else
        dt_jsonw_integer(w, row->name, (int64_t)dt_member_number(row->type, field));
}

void dt_members_write(struct dt_jsonw *w, const struct dt_member *rows, size_t n, const void *from)
{
    for (const struct dt_member *row = rows; row < rows + n; row++) {
        const char *field = (const char *)from + row->offset;
        const bool is_text = row->type == DT_MEMBER_TEXT;
        if (!row->is_optional || (is_text ? *field : dt_member_number(row->type, field)) != 0)
            write_one(w, row, field);
    }
}

static bool read_number(void *field, const struct dt_member *row, const struct dt_json *value)
{
    const double highest = row->type == DT_MEMBER_INT ? INT32_MAX : HUGE_VAL;
    const double max = row->max > 0 ? row->max : highest;
    int64_t integer;
    if (!is_real(row) && !dt_json_integer(value, INT64_MIN, INT64_MAX, &integer))
        return false;
    if (value->type != DT_JSON_NUMBER || !(value->number >= row->min && value->number <= max))
        return false;
    dt_member_set_number(row->type, field, value->number);
    return true;
}

static bool read_one(void *field, const struct dt_member *row, const struct dt_json *value)
{
    const bool is_text = value->type == DT_JSON_STRING;
    switch (row->type) {
    case DT_MEMBER_TEXT:
        return dt_json_text(value, field, row->bytes);
    case DT_MEMBER_HASH:
        return is_text && strlen(value->string) == DT_HASH_DIGITS &&
               dt_hash_read(field, value->string);
    case DT_MEMBER_CHOICE:
        for (int i = 0; is_text && row->choices[i]; i++)
            if (strcmp(row->choices[i], value->string) == 0)
                return *(int *)field = i, true;
        return false;
    case DT_MEMBER_BOOL:
        *(bool *)field = value->boolean;
        return value->type == DT_JSON_BOOL;
    default:
        return read_number(field, row, value);
    }
}

bool dt_members_read(void *out, const struct dt_member *rows, size_t n,
                     const struct dt_json *object)
{
    for (const struct dt_member *row = rows; row < rows + n; row++) {
        const struct dt_json *value = dt_json_get(object, row->name);
        if (value ? !read_one((char *)out + row->offset, row, value) : !row->is_optional)
            return false;
    }
    return true;
}
