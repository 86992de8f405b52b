/* The members of a struct, described once: what stores and prints them follows from the rows. */
#ifndef DTRAIN_BASE_MEMBER_H
#define DTRAIN_BASE_MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

enum dt_member_type {
    DT_MEMBER_BOOL,
    DT_MEMBER_INT,
    DT_MEMBER_INT64,
    DT_MEMBER_UINT64,
    DT_MEMBER_REAL, /* double */
    DT_MEMBER_FLOAT,
    DT_MEMBER_CHOICE, /* int or enum: one of `choices` */
    DT_MEMBER_TEXT,   /* char[] */
    DT_MEMBER_HASH,   /* uint64_t as 16 hexadecimal digits */
};

struct dt_member {
    const char *name;
    enum dt_member_type type;
    size_t offset, bytes;       /* in the struct */
    double min, max;            /* of a number; max 0: any that is exact in JSON */
    const char *const *choices; /* then NULL */
    bool is_optional;           /* not written if it is 0 or ""; if absent it stays as it was */
};

/* A row for `member` of the struct `of`; then its name and further initialisers. */
#define DT_MEMBER(of, kind, member, ...)                          \
    {                                                             \
        .type = DT_MEMBER_##kind, .offset = offsetof(of, member), \
        .bytes = sizeof(((of *)0)->member), .name = __VA_ARGS__   \
    }

/* A number, bool or choice at `field`, as a double. */
double dt_member_number(enum dt_member_type type, const void *field);
void dt_member_set_number(enum dt_member_type type, void *field, double value);

/* The rows as members of the open object of `w`. */
void dt_members_write(struct dt_jsonw *w, const struct dt_member *rows, size_t n, const void *from);
/* False if a member is missing that is not optional, or has a wrong value; other members of
 * `object` do not matter. */
bool dt_members_read(void *out, const struct dt_member *rows, size_t n,
                     const struct dt_json *object);

/* 64 bits as 16 lower-case digits; false if `digits` does not begin with so many. */
enum { DT_HASH_DIGITS = 16 };
void dt_hash_write(char out[DT_HASH_DIGITS + 1], uint64_t hash);
bool dt_hash_read(uint64_t *out, const char *digits);

#endif
