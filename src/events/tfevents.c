#include "events/tfevents.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"

enum { VARINT, FIXED64, LENGTH, FIXED32 = 5 };

static void put_raw(struct dt_proto *p, const void *data, size_t bytes)
{
    if (p->status != DT_OK || bytes == 0)
        return;
    p->status = DT_GROW(p->at, p->capacity, p->used + bytes, "an event");
    if (p->status != DT_OK)
        return;
    memcpy(p->at + p->used, data, bytes);
    p->used += bytes;
}

/* Little-endian. */
static void put_fixed(struct dt_proto *p, uint64_t value, size_t bytes)
{
    for (; bytes > 0; bytes--, value >>= 8)
        put_raw(p, &(uint8_t){(uint8_t)value}, 1);
}

static void put_varint(struct dt_proto *p, uint64_t value)
{
    for (; value > 127; value >>= 7)
        put_fixed(p, (value & 127) | 128, 1);
    put_fixed(p, value, 1);
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
    put_fixed(p, bits, sizeof bits);
}

static void put_float(struct dt_proto *p, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(p, field, FIXED32);
    put_fixed(p, bits, sizeof bits);
}

static void put_bytes(struct dt_proto *p, int field, const void *data, size_t bytes)
{
    put_key(p, field, LENGTH);
    put_varint(p, bytes);
    put_raw(p, data, bytes);
}

void dt_proto_text(struct dt_proto *p, int field, const char *text)
{
    put_bytes(p, field, text, strlen(text));
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

/* --- Events --- */

enum { LENGTH_BYTES = 8, CRC_BYTES = 4, HEAD_BYTES = LENGTH_BYTES + CRC_BYTES };

/* Field numbers. */
enum {
    EVENT_TIME = 1,
    EVENT_STEP,
    EVENT_VERSION,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7,
    EVENT_SOURCE = 10
};
enum { VALUE_TAG = 1, VALUE_SIMPLE, VALUE_IMAGE = 4, VALUE_TENSOR = 8, VALUE_METADATA };
enum { METADATA_PLUGIN = 1, METADATA_DESCRIPTION = 3, METADATA_CLASS };
enum { PLUGIN_NAME = 1, PLUGIN_CONTENT };
enum { TENSOR_TYPE = 1, TENSOR_SHAPE, TENSOR_STRINGS = 8 };
enum { TYPE_FLOAT = 1, TYPE_STRING = 7, CLASS_SCALAR = 1, CLASS_TENSOR };

void dt_tfevents_begin(struct dt_proto *p, double wall_time_s, int64_t step)
{
    p->used = 0;
    p->status = DT_OK;
    put_raw(p, (uint8_t[HEAD_BYTES]){0}, HEAD_BYTES);
    dt_proto_double(p, EVENT_TIME, wall_time_s);
    if (step != 0)
        dt_proto_integer(p, EVENT_STEP, step);
}

static void store(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

dt_status dt_tfevents_end(struct dt_proto *p)
{
    if (p->status != DT_OK)
        return p->status;
    store(p->at, p->used - HEAD_BYTES, LENGTH_BYTES);
    store(p->at + LENGTH_BYTES, dt_crc32c_masked(p->at, LENGTH_BYTES), CRC_BYTES);
    put_fixed(p, dt_crc32c_masked(p->at + HEAD_BYTES, p->used - HEAD_BYTES), CRC_BYTES);
    return p->status;
}

void dt_tfevents_version(struct dt_proto *p)
{
    enum { WRITER = 1 };
    dt_proto_text(p, EVENT_VERSION, "brain.Event:2");
    size_t source = dt_proto_open(p, EVENT_SOURCE);
    dt_proto_text(p, WRITER, "dtrain");
    dt_proto_close(p, source);
}

void dt_tfevents_restart(struct dt_proto *p)
{
    enum { STATUS = 1, START = 1 };
    size_t session = dt_proto_open(p, EVENT_SESSION);
    dt_proto_integer(p, STATUS, START);
    dt_proto_close(p, session);
}

size_t dt_tfevents_open_summary(struct dt_proto *p)
{
    return dt_proto_open(p, EVENT_SUMMARY);
}

static size_t open_value(struct dt_proto *p, const char *tag)
{
    enum { SUMMARY_VALUE = 1 };
    size_t value = dt_proto_open(p, SUMMARY_VALUE);
    dt_proto_text(p, VALUE_TAG, tag);
    return value;
}

static void put_plugin(struct dt_proto *p, const char *name)
{
    size_t plugin = dt_proto_open(p, METADATA_PLUGIN);
    dt_proto_text(p, PLUGIN_NAME, name);
    dt_proto_close(p, plugin);
}

void dt_tfevents_scalar(struct dt_proto *p, const char *tag, double number, const char *description)
{
    size_t value = open_value(p, tag);
    if (description) {
        size_t metadata = dt_proto_open(p, VALUE_METADATA);
        put_plugin(p, "scalars");
        dt_proto_text(p, METADATA_DESCRIPTION, description);
        dt_proto_integer(p, METADATA_CLASS, CLASS_SCALAR);
        dt_proto_close(p, metadata);
    }
    put_float(p, VALUE_SIMPLE, (float)number);
    dt_proto_close(p, value);
}

/* The beginning of a tensor with one dimension. */
static size_t open_tensor(struct dt_proto *p, int type, int64_t size)
{
    enum { SHAPE_DIM = 2, DIM_SIZE = 1 };
    size_t tensor = dt_proto_open(p, VALUE_TENSOR);
    dt_proto_integer(p, TENSOR_TYPE, type);
    size_t shape = dt_proto_open(p, TENSOR_SHAPE), dim = dt_proto_open(p, SHAPE_DIM);
    if (size != 0)
        dt_proto_integer(p, DIM_SIZE, size);
    dt_proto_close(p, dim);
    dt_proto_close(p, shape);
    return tensor;
}

void dt_tfevents_text(struct dt_proto *p, const char *tag, const char *text)
{
    size_t value = open_value(p, tag), metadata = dt_proto_open(p, VALUE_METADATA);
    put_plugin(p, "text");
    dt_proto_integer(p, METADATA_CLASS, CLASS_TENSOR);
    dt_proto_close(p, metadata);
    size_t tensor = open_tensor(p, TYPE_STRING, 1);
    dt_proto_text(p, TENSOR_STRINGS, text);
    dt_proto_close(p, tensor);
    dt_proto_close(p, value);
}

static int64_t big_endian(const uint8_t *at)
{
    return (int64_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

void dt_tfevents_image(struct dt_proto *p, const char *tag, int64_t width, int64_t height,
                       const uint8_t *file, size_t bytes)
{
    enum { HEIGHT = 1, WIDTH, COLOURS, FILE_BYTES, RGB = 3 };
    size_t value = open_value(p, tag), image = dt_proto_open(p, VALUE_IMAGE);
    dt_proto_integer(p, HEIGHT, height);
    dt_proto_integer(p, WIDTH, width);
    dt_proto_integer(p, COLOURS, RGB);
    put_bytes(p, FILE_BYTES, file, bytes);
    dt_proto_close(p, image);
    dt_proto_close(p, value);
}

void dt_tfevents_png(struct dt_proto *p, const char *tag, const uint8_t *png, size_t bytes)
{
    enum { AT_WIDTH = 16, AT_HEIGHT = 20, MIN = 24 };
    if (bytes < MIN || memcmp(png, "\x89PNG", 4) != 0) {
        p->status = DT_ERROR(DT_ERR_DATA, "the picture %s is not a PNG file", tag);
        return;
    }
    dt_tfevents_image(p, tag, big_endian(png + AT_WIDTH), big_endian(png + AT_HEIGHT), png, bytes);
}

struct dt_tfevents_plugin dt_tfevents_open_plugin(struct dt_proto *p, const char *tag,
                                                  const char *plugin)
{
    struct dt_tfevents_plugin at = {.value = open_value(p, tag)};
    at.metadata = dt_proto_open(p, VALUE_METADATA);
    at.plugin = dt_proto_open(p, METADATA_PLUGIN);
    dt_proto_text(p, PLUGIN_NAME, plugin);
    at.content = dt_proto_open(p, PLUGIN_CONTENT);
    return at;
}

/* Readers expect a tensor, even an empty one. */
void dt_tfevents_close_plugin(struct dt_proto *p, struct dt_tfevents_plugin at)
{
    dt_proto_close(p, at.content);
    dt_proto_close(p, at.plugin);
    dt_proto_close(p, at.metadata);
    dt_proto_close(p, open_tensor(p, TYPE_FLOAT, 0));
    dt_proto_close(p, at.value);
}
