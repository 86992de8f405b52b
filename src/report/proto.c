#include "report/proto.h"

#include <string.h>

#include "base/mem.h"

enum { VARINT, FIXED64, LENGTH, FIXED32 = 5 };

void dt_proto_raw(struct dt_proto *p, const void *data, size_t bytes)
{
    void *at = p->at;
    if (p->status != DT_OK || bytes == 0)
        return;
    p->status = dt_mem_grow(&at, &p->capacity, p->used + bytes, 1, "an event");
    p->at = at;
    if (p->status != DT_OK)
        return;
    memcpy(p->at + p->used, data, bytes);
    p->used += bytes;
}

void dt_proto_fixed(struct dt_proto *p, uint64_t value, size_t bytes)
{
    for (; bytes > 0; bytes--, value >>= 8)
        dt_proto_raw(p, &(uint8_t){(uint8_t)value}, 1);
}

static void put_varint(struct dt_proto *p, uint64_t value)
{
    for (; value > 127; value >>= 7)
        dt_proto_fixed(p, (value & 127) | 128, 1);
    dt_proto_fixed(p, value, 1);
}

static void put_key(struct dt_proto *p, int field, int type)
{
    put_varint(p, (uint64_t)(field << 3 | type));
}

void dt_proto_integer(struct dt_proto *p, int field, int64_t value)
{
    put_key(p, field, VARINT);
    put_varint(p, (uint64_t)value);
}

void dt_proto_double(struct dt_proto *p, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(p, field, FIXED64);
    dt_proto_fixed(p, bits, sizeof bits);
}

void dt_proto_float(struct dt_proto *p, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(p, field, FIXED32);
    dt_proto_fixed(p, bits, sizeof bits);
}

void dt_proto_bytes(struct dt_proto *p, int field, const void *data, size_t bytes)
{
    put_key(p, field, LENGTH);
    put_varint(p, bytes);
    dt_proto_raw(p, data, bytes);
}

void dt_proto_text(struct dt_proto *p, int field, const char *text)
{
    dt_proto_bytes(p, field, text, strlen(text));
}

size_t dt_proto_open(struct dt_proto *p, int field)
{
    put_key(p, field, LENGTH);
    return p->used;
}

/* The length goes in front of what was written since. */
void dt_proto_close(struct dt_proto *p, size_t begin)
{
    const size_t end = p->used, bytes = end - begin;
    uint8_t length[10];
    put_varint(p, bytes);
    if (p->status != DT_OK)
        return;
    memcpy(length, p->at + end, p->used - end);
    memmove(p->at + begin + (p->used - end), p->at + begin, bytes);
    memcpy(p->at + begin, length, p->used - end);
}
